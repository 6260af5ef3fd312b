#!/usr/bin/env python3
"""Conformance and speed on whatever GPU adapter is there: offline, in less than 8 minutes, into one JSON file.

    python3 gpu.py [--binary ./ciphergram] [--out gpu.json] [--seconds 1]

`cargo xtask gpu` puts this file beside a binary of `ciphergram`; both can be taken to a machine that has nothing
else. Runs the conformance suite over every prelude that the adapter can take, then every operation on the GPU,
on one core of the CPU, and as `auto` shares them out over the GPU and all cores. Each part that
fails or takes too long has a line in the file; the exit code is 1 if one did, or if any result was not the
oracle's.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

# Seconds for everything. Parts later in the list get what is left.
ALL = 470
OPERATIONS = "kernels,paillier,ckks-sum"


def part(command, left):
    """Runs a command that prints JSON or writes it to the file `{}`; what came, and what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        words = [path if word == "{}" else word for word in command]
        environment = {**os.environ, "NODEVICE_SELECT": "1"}
        try:
            ran = subprocess.run(words, capture_output=True, text=True, timeout=max(left, 1), env=environment)
        except subprocess.TimeoutExpired:
            return None, f"took longer than the {left:.0f} s that were left"
        except OSError as error:
            return None, str(error)
        text = ran.stdout
        if path in words:
            print(text, end="", flush=True)
            text = open(path).read() if os.path.exists(path) else ""
        wrong = (ran.stderr.strip() or f"exit code {ran.returncode}") if ran.returncode else None
        try:
            return json.loads(text), wrong
        except ValueError:
            return None, wrong or "no JSON"


def rows(report):
    """Returns seconds an operation by scheme, operation and bits."""
    found = (report or {}).get("rows", [])
    return {(row["scheme"], row["operation"], row["bits"]): row["median_s"] for row in found}


def table(parts):
    """Returns lines that hold the engines beside each other."""
    gpu, cpu, auto = (rows(parts[name]["report"]) for name in ("gpu", "cpu", "auto"))
    lines = [f"{'operation':<20} {'bits':>5} {'GPU /s':>14} {'one core /s':>14} {'times':>8} {'auto /s':>14}"]
    for key, seconds in gpu.items():
        scheme, operation, bits = key
        name = operation if scheme == "paillier" else f"{scheme}/{operation}"

        def rate(of):
            return f"{1 / of[key]:,.1f}" if key in of else "-"

        times = f"{cpu[key] / seconds:.1f}" if key in cpu else "-"
        lines.append(f"{name:<20} {bits:>5} {rate(gpu):>14} {rate(cpu):>14} {times:>8} {rate(auto):>14}")
    return lines


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(here, "ciphergram"))
    parser.add_argument("--out", default="gpu.json")
    parser.add_argument("--seconds", default="1", help="for each row")
    options = parser.parse_args()
    bench = [options.binary, "bench", "--bits", "2048", "--seconds", options.seconds, "--json", "{}"]
    # The host's side of copies wants all cores.
    all_cores = ["--threads", str(len(os.sched_getaffinity(0)))]
    commands = {
        "devices": [options.binary, "show", "devices", "--check", "--json"],
        "gpu": [*bench, *all_cores, "--engine", "gpu", "--ops", OPERATIONS],
        "cpu": [*bench, "--engine", "cpu", "--ops", OPERATIONS],
        "auto": [*bench, *all_cores, "--engine", "auto",
                 "--ops", "encrypt,encrypt_owner,decrypt,add,mul_plain,ckks-sum"],
    }
    start, parts = time.monotonic(), {}
    for name, command in commands.items():
        began = time.monotonic()
        report, wrong = part(command, ALL - (began - start))
        parts[name] = {"report": report, "wrong": wrong, "seconds": time.monotonic() - began}
        print(f"{name}: {wrong or 'done'}, {parts[name]['seconds']:.0f} s", flush=True)
    engines = parts["devices"]["report"] or []
    gpu = next((engine for engine in engines if engine["name"] == "gpu"), None)
    if gpu is None:
        missing = "there is no GPU adapter: it takes a driver, and Vulkan's loader"
        parts["devices"]["wrong"] = parts["devices"]["wrong"] or missing
    result = {"machine": platform.platform(), "seconds": time.monotonic() - start, "parts": parts}
    with open(options.out, "w") as file:
        json.dump(result, file, indent=2)
    print("\n".join(table(parts)))
    print(f"GPU: {gpu['description'] if gpu else 'none'}; all in {options.out}, {result['seconds']:.0f} s")
    sys.exit(any(part["wrong"] for part in parts.values()))


if __name__ == "__main__":
    main()
