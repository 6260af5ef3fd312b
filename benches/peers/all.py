#!/usr/bin/env python3
"""Everything beside everybody, drawn: one page and three pictures.

    python3 benches/peers/all.py
    python3 benches/peers/all.py --quick
    python3 benches/peers/all.py --out docs/figures

Makes the environments, runs `sums.py` and `run.py` with every rival that installs here and `ciphergram bench`, and
has `benches/report.py` draw what they found: `report.html` with everything, and `sums.png`, `paillier.png` and
`limits.png`. On a processor with AVX-512 all is measured again by the path of those without it. Who could not be
installed, and why, is on the page. Figures lie beside the environments, in `target/peers`. A part that fails is left
out, with a line; the exit code is 1 then.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from support.environment import pin, prepare
from support.ours import OursFailed, build
from support.places import HERE, TARGET

# What the picture of limits shows: those that people use, and whole updates.
OPERATIONS = "encrypt,encrypt_owner,decrypt,add,mul_plain,ckks-sum"
# Rivals have no more than these.
PAILLIER_OPERATIONS = "encrypt,decrypt,add,mul_plain"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true",
                        help="some minutes instead of an hour: one pair of each, keys of 2048 bits")
    parser.add_argument("--binary", type=Path, help="the ciphergram to measure [built if not given]")
    parser.add_argument("--out", type=Path, default=TARGET / "peers", metavar="FOLDER",
                        help="where the page and the pictures go [%(default)s]")
    parser.add_argument("--core", type=int, help="the core to run on [the last one allowed]")
    return parser.parse_args()


def run(name, *command):
    """Runs one part, and returns whether it did its work."""
    began = time.monotonic()
    print(f"== {name}", file=sys.stderr, flush=True)
    try:
        code = subprocess.run([str(word) for word in command]).returncode
    except OSError as error:
        code = error
    seconds = time.monotonic() - began
    print(f"== {name}: {'done' if code == 0 else f'FAILED, {code}'}, {seconds:.0f} s", file=sys.stderr, flush=True)
    return code == 0


def measure(options, binary, folder, suffix=""):
    """Measures all parts; the file of each that there is, and whether all did their work."""
    bits, rounds, seconds = ("2048", 1, 0.5) if options.quick else ("2048,3072", 3, 1.0)
    core = ["--core", options.core] if options.core is not None else []
    effort = ["--binary", binary, "--rounds", rounds, "--seconds", seconds, *core]
    files = {name: folder / f"{name}{suffix}.json" for name in ("sums", "paillier", "limits")}
    for file in files.values():
        file.unlink(missing_ok=True)
    done = [
        run("sums of float32", sys.executable, HERE / "sums.py", *effort, "--json", files["sums"]),
        run("Paillier", sys.executable, HERE / "run.py", *effort, "--bits", bits,
            "--ops", PAILLIER_OPERATIONS, "--json", files["paillier"]),
        run("limits", binary, "bench", "--ops", OPERATIONS, "--bits", bits, "--seconds", seconds,
            "--json", files["limits"]),
    ]
    return {name: file for name, file in files.items() if file.exists()}, all(done)


def has_avx512(file):
    """Returns whether what was measured took the path of AVX-512."""
    machine = json.loads(file.read_text())["machine"] or {}
    return any("AVX-512" in engine["description"] for engine in machine.get("engines", []))


def draw(options, files):
    """Draws a picture of each part and a page of all, and returns whether all are there."""
    options.out.mkdir(parents=True, exist_ok=True)
    interpreter, problems = prepare(TARGET / "venv-report", HERE.parent / "requirements.txt")
    for problem in problems:
        print(problem, file=sys.stderr)
    page = options.out / "report.html"
    outputs = {options.out / f"{name}.png": paths for name, paths in files.items()} | {page: sum(files.values(), [])}
    drawn = [run(out.name, interpreter, HERE.parent / "report.py", *inputs, "--out", out)
             for out, inputs in outputs.items()]
    print(f"{page} and, beside it, {', '.join(f'{name}.png' for name in files)}")
    return all(drawn)


def main():
    options = arguments()
    try:
        binary = (options.binary or build()).resolve()
    except OursFailed as error:
        sys.exit(f"error: {error}")
    folder = TARGET / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        pin(options.core)
    except OSError as error:
        sys.exit(f"error: core {options.core}: {error.strerror}")
    files, is_complete = measure(options, binary, folder)
    if not files:
        sys.exit("error: nothing was measured")
    runs = [files]
    if any(map(has_avx512, files.values())):
        os.environ["CIPHERGRAM_CPU"] = "avx2"
        others, are_complete = measure(options, binary, folder, "-avx2")
        runs, is_complete = [files, others], is_complete and are_complete
    files = {name: [run[name] for run in runs if name in run] for name in files}
    return 0 if draw(options, files) and is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
