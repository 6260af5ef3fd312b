#!/usr/bin/env python3
"""The Paillier libraries that people use today beside ours: one run, one core, ratios.

    python3 benches/peers/run.py
    python3 benches/peers/run.py --bits 2048 --ops encrypt,add --rounds 5 --json figures.json

Installs the rivals that `requirements.txt` pins into a virtual environment, builds our binary, and
measures each operation in pairs, theirs and ours in turn, so that a machine that slows down slows
both. A rate is of the median time over all rounds; a ratio is the median over the pairs. Theirs is
processor time, ours is time by the clock: on a busy core only ours looks slower than it is, and a
line says so. A rival that is missing or fails becomes a line; the exit code is 1 only if our own
binary fails.
"""

import sys

from rivals import RIVALS
from support import floats, report
from support.arguments import numbers, parse, parser, words
from support.cases import DEFAULT_OPERATIONS, FLOATS, cases
from support.environment import prepare
from support.link import Rival
from support.rounds import Row, compare
from support.session import begin, end


def arguments():
    options = parser(__doc__.splitlines()[0], RIVALS)
    options.add_argument("--bits", type=numbers, default=[2048, 3072], metavar="LIST",
                         help="key sizes [2048,3072]")
    options.add_argument("--ops", type=words, default=DEFAULT_OPERATIONS, metavar="LIST",
                         help=f"operations [{','.join(DEFAULT_OPERATIONS)}]")
    options.add_argument("--portable", action="store_true",
                         help="also our path without vector instructions beside GMP")
    return parse(options, RIVALS)


def measure(options, bits, interpreter, ours):
    """Measures everything for one key size: the rows, those of whole files, and how the rivals fared."""
    rivals = []
    try:
        for name in options.rivals:
            print(f"{bits} {name}: makes a key", file=sys.stderr)
            rivals.append(Rival(interpreter, name, bits))
        rows = [Row(case, bits) for case in cases(options.ops, bits, options.portable)]
        for row in rows:
            compare(row, rivals, ours, options.rounds, options.seconds)
    finally:
        for rival in rivals:
            rival.close()
    files = floats.measure(ours, bits, options.rounds) if FLOATS in options.ops else []
    return rows, files, rivals


def show(bits, rows, files, rivals):
    """Prints what was found for one key size."""
    names = [rival.name for rival in rivals if any(rival.name in row.pairs for row in rows)]
    versions = [f"{rival.name} {rival.version}" for rival in rivals if rival.version]
    print(f"\n== Paillier, n of {bits} bits, beside {', '.join(versions) or 'nobody'}\n")
    if rows:
        print(report.table(rows, names))
    for row in files:
        print(report.floats_line(row))
    for rival in rivals:
        if rival.failure:
            print(f"!! {rival.name}, {bits} bits, is not measured: {rival.failure}")
    for row in rows:
        for name, why in row.failures.items():
            print(f"!! {name}, {bits} bits, has no figure for {why}")


def main():
    options = arguments()
    ours, interpreter, core = begin(options, lambda options: prepare(options.venv.absolute()))
    results = []
    for bits in options.bits:
        results.append((bits, *measure(options, bits, interpreter, ours)))
        show(*results[-1])
    shares = [share for *_, rivals in results for rival in rivals for share in rival.shares]
    shares += ours.shares
    return end(options, ours, core, shares, figures(results))


def figures(results):
    """Returns all figures, for a file."""
    return {
        "rivals": [{"name": rival.name, "bits": bits, "version": rival.version,
                    "failure": rival.failure} for bits, *_, rivals in results for rival in rivals],
        "rows": [report.as_json(row) for _, rows, *_ in results for row in rows],
        "floats": [row for _, _, files, _ in results for row in files],
    }


if __name__ == "__main__":
    sys.exit(main())
