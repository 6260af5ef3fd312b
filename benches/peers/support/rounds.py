"""Measuring in pairs, so that a machine that drifts moves both sides of a ratio alike."""

import statistics
import sys
from dataclasses import dataclass, field

from .link import RivalFailed


@dataclass
class Row:
    """The measurements of one case. All times are in seconds per single operation.

    `pairs` has, for each rival, (theirs, ours) of every round, one measured right after the other;
    ours is None where our binary failed. `ways` has the rival's times of every way to do it.
    """

    case: object
    bits: int
    pairs: dict = field(default_factory=dict)
    ways: dict = field(default_factory=dict)
    alone: list = field(default_factory=list)
    failures: dict = field(default_factory=dict)

    def ours_s(self):
        times = [ours for pairs in self.pairs.values() for _, ours in pairs] + self.alone
        times = [time for time in times if time is not None]
        return statistics.median(times) if times else None

    def rivals_s(self):
        """Returns each rival's median time."""
        return {name: statistics.median(theirs for theirs, _ in pairs)
                for name, pairs in self.pairs.items()}

    def ratios(self):
        """Returns our rate divided by each rival's: the median over the pairs."""
        ratios = {name: [theirs / ours for theirs, ours in pairs if ours is not None]
                  for name, pairs in self.pairs.items()}
        return {name: statistics.median(found) for name, found in ratios.items() if found}

    def best(self, names=None):
        """Returns the quickest rival of `names`, or of all; None if none of them was measured."""
        times = {name: time for name, time in self.rivals_s().items() if not names or name in names}
        return min(times, key=times.get, default=None)


def compare(row, rivals, ours, rounds, seconds):
    """Fills `row`: every rival beside ours, `rounds` times, each side for `seconds` seconds."""
    def measure_ours():
        return ours.measure(row.case.operation, row.bits, seconds, row.case.portable)

    chosen = [(rival, fastest_way(row, rival, seconds / 2)) for rival in rivals]
    chosen = [(rival, way) for rival, way in chosen if way is not None]
    for index in range(rounds):
        print(f"{row.bits} {row.case.label}: round {index + 1} of {rounds}", file=sys.stderr)
        for rival, way in chosen:
            measure_pair(row, rival, way, seconds, measure_ours, rival_first=index % 2 == 0)
        if not row.pairs:
            row.alone.append(measure_ours())


def fastest_way(row, rival, seconds):
    """Tries every way in which a rival does the operation, and names the quickest."""
    times, ways = {}, rival.ways(row.case.rival_operation)
    if len(ways) == 1:
        return ways[0]
    for way in ways:
        try:
            times[way] = rival.measure(way, seconds)
        except RivalFailed as error:
            row.failures[rival.name] = f"{way}: {error}"
    if times:
        row.ways[rival.name] = times
    return min(times, key=times.get, default=None)


def measure_pair(row, rival, way, seconds, measure_ours, rival_first):
    """Measures one pair. Who comes first changes from round to round, so that a steady drift cancels."""
    if rival.failure:
        return
    ours_s = None if rival_first else measure_ours()
    try:
        theirs_s = rival.measure(way, seconds)
    except RivalFailed as error:
        row.failures[rival.name] = f"{way}: {error}"
        return
    if rival_first:
        ours_s = measure_ours()
    row.pairs.setdefault(rival.name, []).append((theirs_s, ours_s))
