#!/usr/bin/env python3
"""A whole round of `ciphergram serve` and `join`, as processes, beside its stages through files.

What a pipeline can hide is waiting, not work: the wall time of a round is held against the processor time of
encrypting every update, adding them and decrypting the sum for everyone, each alone, divided by the cores.
Sending and receiving are in the round and not in the stages."""

import argparse
import array
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=Path("target/release/ciphergram"))
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--scheme", default="ckks-sum")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured")
    parser.add_argument("--join", default="", help="more words for every join")
    return parser.parse_args()


def write_tensors(path, values, seed):
    """Writes one float32 tensor as a safetensors file."""
    rng = random.Random(seed)
    block = array.array("f", (rng.gauss(0, 1) for _ in range(min(values, 4096))))
    data = (block * (values // len(block) + 1))[:values].tobytes()
    head = json.dumps({"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, len(data)]}})
    path.write_bytes(len(head).to_bytes(8, "little") + head.encode() + data)


def processor_time(run):
    """Returns seconds of all processes that `run` starts and waits for."""
    def spent():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime
    before = spent()
    run()
    return spent() - before


class Bench:
    def __init__(self, args, place):
        self.args, self.place, self.binary = args, place, args.binary.resolve()
        self.clients = range(args.clients)
        for client in self.clients:
            write_tensors(place / f"g{client}", args.values, client)
        self.done(f"keygen --scheme {args.scheme} --clients {args.clients} --out keys")
        # Both ways with the same ranges.
        for client in self.clients:
            self.done(f"ranges --out r{client} g{client}")
        self.done("ranges --merge --out ranges " + " ".join(f"r{client}" for client in self.clients))
        self.done("job --key keys/public.json --ranges ranges --out job")
        # A copy of the keys for each client, as on a machine of its own: processes that share a key's file share its
        # ledger, and wait for the first of them to open the sum.
        for client in self.clients:
            shutil.copytree(place / "keys", place / f"keys{client}")

    def start(self, words, **options):
        return subprocess.Popen([self.binary, *words.split()], cwd=self.place,
                                stdout=subprocess.PIPE, text=True, **options)

    def done(self, words):
        process = self.start(words)
        out, _ = process.communicate()
        assert process.returncode == 0, words
        return out

    def round(self):
        """Returns wall seconds from the first client's start to the last one's end."""
        serve = self.start(f"serve --key keys/public.json --job job --clients {self.args.clients} "
                           "--listen 127.0.0.1:0 --json")
        address = json.loads(serve.stdout.readline())["address"]
        began = time.monotonic()
        joins = [self.start(f"join --key keys{client}/secret.json --job job --server {address} --client {client} "
                            f"--in g{client} --out mean{client} {self.args.join}") for client in self.clients]
        for process in joins:
            process.communicate()
            assert process.returncode == 0
        wall = time.monotonic() - began
        serve.communicate()
        assert serve.returncode == 0
        return wall

    def stages(self):
        """Encrypts all updates, adds them, and decrypts the sum for everyone."""
        for client in self.clients:
            self.done(f"encrypt --key keys{client}/secret.json --job job --client {client} --ranges ranges "
                      f"--in g{client} --out c{client}")
        self.done("aggregate --key keys/public.json --job job --out sum " + " ".join(f"c{c}" for c in self.clients))
        for client in self.clients:
            self.done(f"decrypt --key keys{client}/secret.json --job job --in sum --out plain{client}")


def main():
    args = arguments()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        rows = []
        for _ in range(args.rounds):
            walls = []
            spent = processor_time(lambda: walls.append(bench.round()))
            rows.append((walls[0], spent, processor_time(bench.stages)))
            print("round {:.3f} s, {:.3f} s of processors; stages alone {:.3f} s of processors".format(*rows[-1]))
    wall, spent, alone = (statistics.median(column) for column in zip(*rows))
    least = alone / cores
    print(f"median of {args.rounds}: a round takes {wall:.3f} s, stages alone {least:.3f} s on {cores} cores: "
          f"{wall / least:.2f} times (wanted: 1.2 at most); processors {spent:.3f} and {alone:.3f} s")


if __name__ == "__main__":
    main()
