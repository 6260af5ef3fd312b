#!/usr/bin/env python3
"""The peak memory of `ciphergram encrypt`, `aggregate`, `decrypt` and `join`, as multiples of a client's tensors.

Each is a process of its own, whose peak the system counts (`ru_maxrss`). Every client has the same made tensors:
some large, some small, of float32. Ends with exit code 1 if a peak is above its limit."""

import argparse
import array
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Most bytes of memory for each byte of the command's input, from 100 million values on: below, what a process needs
# whatever it does weighs more.
LIMITS = {"encrypt": 1.5, "decrypt": 1.5, "join": 2.2}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=Path("target/release/ciphergram"))
    parser.add_argument("--values", type=int, default=100_000_000)
    parser.add_argument("--clients", type=int, default=2, help="clients that take part")
    parser.add_argument("--admitted", type=int, default=64, help="most clients of a sum, for whom there is headroom")
    parser.add_argument("--scheme", default="ckks-sum")
    parser.add_argument("--folder", type=Path, help="a folder on a disk with room [default: a temporary one]")
    return parser.parse_args()


def shapes(values):
    """Returns names and lengths of tensors: a large one, and a hundred that are not."""
    small = values // 1000
    return [(f"layer.{i}.bias", small) for i in range(100)] + [("layer.weight", values - 100 * small)]


def write_tensors(path, values):
    """Writes a safetensors file of values up to 1 in magnitude."""
    rng = random.Random(1)
    block = array.array("f", (rng.uniform(-1, 1) for _ in range(1 << 16))).tobytes()
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, length in shapes(values):
        header[name] = {"dtype": "F32", "shape": [length], "data_offsets": [end, end + 4 * length]}
        end += 4 * length
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for first in range(0, end, len(block)):
            file.write(block[: end - first])


class Bench:
    def __init__(self, args, place):
        self.place, self.binary = place, args.binary.resolve()
        self.most = 0.0
        write_tensors(place / "g", args.values)
        self.done(f"keygen --scheme {args.scheme} --clients {args.admitted} --out keys")
        (place / "keys/job.json").unlink()
        self.done(f"job --key keys/public.json --out keys/job.json --clients {args.clients} --min-clients 1")
        self.done("ranges --policy fixed:1 --out ranges.json g")

    def start(self, words, **streams):
        return subprocess.Popen([self.binary, *words.split()], cwd=self.place, **streams)

    def done(self, words):
        subprocess.run([self.binary, *words.split()], cwd=self.place, check=True, stdout=subprocess.DEVNULL)

    def peak(self, process):
        """Waits for a process to end; returns its peak in bytes."""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{process.args[1]} ended with {process.returncode}")
        # Kilobytes, but bytes on macOS.
        return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def measure(self, words, source):
        clock = time.monotonic()
        peak = self.peak(self.start(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.tell(words.split()[0], peak, source, time.monotonic() - clock)

    def tell(self, name, peak, source, seconds):
        ratio = peak / (self.place / source).stat().st_size
        limit = LIMITS.get(name)
        self.most = max(self.most, ratio / limit) if limit else self.most
        words = f"at most {limit}" if limit else "no limit"
        print(f"{name:<10} {peak / 1e6:8.0f} MB {ratio:6.2f} times {source}, {words}; {seconds:.1f} s", flush=True)

    def files(self, clients):
        for client in clients:
            encrypt = f"encrypt --key keys/secret.json --client {client} --in g --out c{client} --ranges ranges.json"
            if client == 0:
                self.measure(encrypt, "g")
            else:
                self.done(encrypt)
        self.measure("aggregate --key keys/public.json --out sum " + " ".join(f"c{c}" for c in clients), "c0")
        self.measure("decrypt --key keys/secret.json --in sum --out mean", "sum")
        for name in ["sum", "mean", *(f"c{c}" for c in clients)]:
            (self.place / name).unlink()

    def round(self, clients):
        serve = self.start(
            f"serve --key keys/public.json --listen 127.0.0.1:0 --clients {len(clients)} --min-clients 1 --json "
            "--deadline 3600", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        address = json.loads(serve.stdout.readline())["address"]
        clock = time.monotonic()
        joins = [
            self.start(f"join --key keys/secret.json --server {address} --client {client} --in g --out m{client}",
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for client in clients
        ]
        peak = max(self.peak(join) for join in joins)
        seconds = time.monotonic() - clock
        serve.stdout.read()
        self.tell("serve", self.peak(serve), "g", seconds)
        self.tell("join", peak, "g", seconds)


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(dir=args.folder) as place:
        bench = Bench(args, Path(place))
        print(f"{args.values} values of float32, {4 * args.values / 1e6:.0f} MB, {args.scheme}, {args.clients} clients "
              f"of {args.admitted}")
        bench.files(range(args.clients))
        bench.round(range(args.clients))
    sys.exit(bench.most > 1.0)


if __name__ == "__main__":
    main()
