#!/usr/bin/env python3
"""Sums of float32 vectors, `ckks-sum` beside what people use today: one run, one core, ratios.

    python3 benches/peers/sums.py
    python3 benches/peers/sums.py --rivals tenseal-8192,masks --rounds 5 --json figures.json

1,000,000 float32 of 10 clients: encrypting one vector, encoding and serialising included; summing
ten, parsing included; decrypting to the mean. Measured in pairs, as `run.py` does, which see.

OpenFHE's wheel is for Python 3.10 alone, whatever its name says, and has an environment of its own.
"""

import sys

from rivals import SUM_RIVALS
from support import report, sums
from support.arguments import add_openfhe, parse, parser
from support.environment import prepare_each
from support.link import Rival
from support.rounds import Row, compare
from support.session import begin, end


def arguments():
    options = parser(__doc__.splitlines()[0], SUM_RIVALS)
    add_openfhe(options)
    return parse(options, SUM_RIVALS)


def measure(options, interpreters, ours):
    """Returns the rows and how the rivals fared. One rival at a time: their ciphertexts fill the memory."""
    rows, rivals = [Row(case, sums.BITS) for case in sums.CASES], []
    for name in options.rivals:
        print(f"{name}: encrypts for ten", file=sys.stderr)
        rival = Rival(interpreters[name], name, sums.BITS)
        rivals.append(rival)
        try:
            for row in rows:
                if rival.ways(row.case.rival_operation):
                    compare(row, [rival], ours, options.rounds, options.seconds)
        finally:
            rival.close()
    return rows, rivals


def main():
    options = arguments()
    ours, interpreters, core = begin(options, lambda options: prepare_each(options, "openfhe"))
    uploads = sums.uploads(ours)
    rows, rivals = measure(options, interpreters, ours)
    shares = [share for rival in rivals for share in rival.shares] + ours.shares
    show(rows, uploads, rivals)
    return end(options, ours, core, shares, figures(rows, uploads, rivals))


def show(rows, uploads, rivals):
    """Prints what was found."""
    there = [rival for rival in rivals if rival.facts]
    versions = ", ".join(f"{rival.name} {rival.version}" for rival in there)
    print(f"\n== 1,000,000 float32 at {sums.BITS} bits, 10 clients, beside {versions or 'nobody'}\n")
    print(sums.times_table(rows, there), sums.ratios_table(rows, there), sep="\n\n", end="\n\n")
    for line in sums.verdicts(rows, report.judge):
        print(line)
    for row in uploads:
        print(sums.upload_line(row))
    for rival in rivals:
        if rival.failure:
            print(f"!! {rival.name} is not measured: {rival.failure}")
    for row in rows:
        for name, why in row.failures.items():
            print(f"!! {name} has no figure for {why}")


def figures(rows, uploads, rivals):
    """Returns all figures, for a file."""
    return {
        "rivals": [{"name": rival.name, "version": rival.version, "failure": rival.failure,
                    **rival.facts} for rival in rivals],
        "rows": [report.as_json(row) for row in rows], "uploads": uploads,
    }


if __name__ == "__main__":
    sys.exit(main())
