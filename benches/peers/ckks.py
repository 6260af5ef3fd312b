#!/usr/bin/env python3
"""Levelled CKKS beside the libraries that compute with encrypted vectors today: one run, one core, ratios.

    python3 benches/peers/ckks.py
    python3 benches/peers/ckks.py --presets 140 --ops multiply,rotate --rivals seal-no-hexl --json figures.json

Products, rotations, encryption with encoding and decryption with decoding, under the same ring degrees, levels and
sizes of primes as far as a library has them; what it has instead is a line. Measured in pairs, as `run.py` does,
which see. SEAL is the one inside TenSEAL, built without Intel HEXL.
"""

import sys

from rivals import LEVELLED_RIVALS
from support import levelled, report
from support.arguments import add_openfhe, numbers, parse, parser, words
from support.environment import prepare_each
from support.link import Rival
from support.rounds import Row, compare
from support.session import begin, end


def arguments():
    options = parser(__doc__.splitlines()[0], LEVELLED_RIVALS)
    presets = ", ".join(f"{bits} for {name}" for bits, name in levelled.PRESETS.items())
    options.add_argument("--presets", type=numbers, default=list(levelled.PRESETS), metavar="LIST",
                         help=f"presets by the bits of their primes [all: {presets}]")
    options.add_argument("--ops", type=words, default=levelled.OPERATIONS, metavar="LIST",
                         help=f"operations [{','.join(levelled.OPERATIONS)}]")
    add_openfhe(options)
    found = parse(options, LEVELLED_RIVALS)
    if unknown := set(found.presets) - set(levelled.PRESETS) or set(found.ops) - set(levelled.OPERATIONS):
        options.error(f"no such preset or operation: {', '.join(map(str, sorted(unknown)))}")
    return found


def measure(options, bits, interpreters, ours):
    """Returns the rows under one preset, and how the rivals fared."""
    rows, rivals = [Row(case, bits) for case in levelled.cases(options.ops, bits)], []
    try:
        for name in options.rivals:
            print(f"{bits} {name}: makes keys", file=sys.stderr)
            rivals.append(Rival(interpreters[name], name, bits))
        for row in rows:
            able = [rival for rival in rivals if rival.ways(row.case.rival_operation)]
            compare(row, able, ours, options.rounds, options.seconds)
    finally:
        for rival in rivals:
            rival.close()
    return rows, rivals


def show(bits, rows, rivals):
    """Prints what was found under one preset."""
    there = [rival for rival in rivals if rival.facts]
    versions = ", ".join(f"{rival.name} {rival.version}" for rival in there)
    print(f"\n== {levelled.PRESETS[bits]}, {bits} bits of primes, beside {versions or 'nobody'}\n")
    print(report.table(rows, [rival.name for rival in there]))
    for rival in there:
        facts = rival.facts
        print(f"{rival.name}: N = {facts['degree']}, levels {facts['levels']}, primes of {facts['primes']} bits "
              f"({facts['note']}); a fresh number is off by {facts['error']:.1e}")
    for rival in rivals:
        if rival.failure:
            print(f"!! {rival.name}, {bits} bits, is not measured: {rival.failure}")
    for row in rows:
        for name, why in row.failures.items():
            print(f"!! {name}, {bits} bits, has no figure for {why}")


def main():
    options = arguments()
    ours, interpreters, core = begin(options, lambda options: prepare_each(options, "openfhe-ckks"))
    results = []
    for bits in options.presets:
        results.append((bits, *measure(options, bits, interpreters, ours)))
        show(*results[-1])
    shares = [share for *_, rivals in results for rival in rivals for share in rival.shares]
    return end(options, ours, core, shares + ours.shares, figures(results))


def figures(results):
    """Returns all figures, for a file."""
    return {
        "rivals": [{"name": rival.name, "bits": bits, "version": rival.version, "failure": rival.failure,
                    **rival.facts} for bits, _, rivals in results for rival in rivals],
        "rows": [report.as_json(row) for _, rows, _ in results for row in rows],
    }


if __name__ == "__main__":
    sys.exit(main())
