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

import argparse
import json
import sys
from pathlib import Path

from rivals import RIVALS
from support import floats, report
from support.arguments import numbers, positive, words
from support.cases import DEFAULT_OPERATIONS, FLOATS, cases
from support.environment import pin, prepare
from support.link import Rival
from support.ours import Ours, OursFailed, build
from support.places import TARGET
from support.rounds import Row, compare


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path,
                        help="the ciphergram to measure [built if not given]")
    parser.add_argument("--venv", type=Path, default=TARGET / "peers-venv", metavar="FOLDER",
                        help="where the rivals are, or are installed [%(default)s]")
    parser.add_argument("--bits", type=numbers, default=[2048, 3072], metavar="LIST",
                        help="key sizes [2048,3072]")
    parser.add_argument("--ops", type=words, default=DEFAULT_OPERATIONS, metavar="LIST",
                        help=f"operations [{','.join(DEFAULT_OPERATIONS)}]")
    parser.add_argument("--rivals", type=words, default=list(RIVALS), metavar="LIST",
                        help=f"whom to measure [{','.join(RIVALS)}]")
    parser.add_argument("--rounds", type=positive(int), default=3, help="pairs of each [3]")
    parser.add_argument("--seconds", type=positive(float), default=1.0,
                        help="how long each side of a pair is measured [1]")
    parser.add_argument("--core", type=int, help="the core to run on [the last one allowed]")
    parser.add_argument("--portable", action="store_true",
                        help="also our path without vector instructions beside GMP")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    found = parser.parse_args()
    unknown = set(found.rivals) - set(RIVALS)
    if unknown:
        parser.error(f"no such rival: {', '.join(sorted(unknown))}")
    return found


def measure(options, bits, interpreter, ours):
    """Everything for one key size: the rows, those of whole files, and how the rivals fared."""
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
    # What is found is seen as it is found, even in a file.
    sys.stdout.reconfigure(line_buffering=True)
    options = arguments()
    try:
        ours = Ours((options.binary or build()).resolve())
    except OursFailed as error:
        sys.exit(f"error: {error}")
    interpreter, problems = prepare(options.venv.absolute())
    try:
        core = pin(options.core)
    except OSError as error:
        sys.exit(f"error: core {options.core}: {error.strerror}")
    print(f"core {core}, {options.rounds} rounds of {options.seconds} s a side"
          if core is not None else "!! this system cannot keep a process to one core")
    for problem in problems:
        print(f"!! {problem}")
    results = []
    for bits in options.bits:
        results.append((bits, *measure(options, bits, interpreter, ours)))
        show(*results[-1])
    shares = [share for *_, rivals in results for rival in rivals for share in rival.shares]
    shares += ours.shares
    if warning := report.busy_line(shares):
        print(warning)
    for (name, bits), why in ours.failures.items():
        print(f"!! ours, {bits} bits, failed at {name}: {why}")
    if options.json:
        figures = document(options, core, ours, results, shares)
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if ours.failures else 0


def document(options, core, ours, results, shares):
    """All figures. `shares` are the shares of the core that each measurement had."""
    return {
        "machine": ours.machine, "commit": ours.commit, "core": core,
        "rounds": options.rounds, "seconds": options.seconds, "least_share": min(shares, default=1),
        "rivals": [{"name": rival.name, "bits": bits, "version": rival.version,
                    "failure": rival.failure} for bits, *_, rivals in results for rival in rivals],
        "rows": [report.as_json(row) for _, rows, *_ in results for row in rows],
        "floats": [row for _, _, files, _ in results for row in files],
        "failures": [{"operation": name, "bits": bits, "why": why}
                     for (name, bits), why in ours.failures.items()],
    }


if __name__ == "__main__":
    sys.exit(main())
