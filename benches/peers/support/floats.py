"""Whole files: 1,000,000 float32 encrypted by a client and decrypted again, command by command."""

import array
import json
import random
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

from .cases import FLOAT_LIMITS_S
from .ours import OursFailed

VALUES = 1_000_000
# Bits of a quantised value, and the clients for whose sum there is headroom.
VALUE_BITS, CLIENTS = 16, 64
# Enough runs for a median; no more are begun after this many seconds.
PATIENCE_S = 60


def measure(ours, bits, rounds):
    """Returns rows of {command, bits, values, median_s, limit_s}: wall time, files and start included.

    The client encrypts with the secret key, as key owners do.
    """
    name = f"paillier-{bits}"
    print(f"{bits} floats: {VALUES} values", file=sys.stderr)
    times = {"encrypt": [], "decrypt": []}
    try:
        with tempfile.TemporaryDirectory(prefix="ciphergram-floats-") as folder:
            run_commands(ours, Path(folder), name, rounds, times)
    except OursFailed as error:
        ours.failures[f"floats {name}", bits] = str(error)
    return [{"command": command, "bits": bits, "values": VALUES,
             "median_s": statistics.median(seconds), "limit_s": FLOAT_LIMITS_S.get((command, bits))}
            for command, seconds in times.items() if seconds]


def run_commands(ours, folder, scheme, rounds, times):
    """Appends the seconds of each round to `times`."""
    keys, plain, sealed = folder / "keys", folder / "plain.safetensors", folder / "sealed.cgm"
    total, mean = folder / "sum.cgm", folder / "mean.safetensors"
    write_values(plain)
    ours.run("keygen", "--scheme", scheme, "--clients", CLIENTS, "--bits", VALUE_BITS,
             "--out", keys)
    ranges, job = folder / "ranges.json", folder / "job.json"
    ours.run("ranges", "--policy", "fixed:1", "--out", ranges, plain)
    ours.run("job", "--key", keys / "public.json", "--min-clients", 1, "--ranges", ranges,
             "--out", job)
    start = time.perf_counter()
    for _ in range(rounds):
        times["encrypt"].append(ours.run(
            "encrypt", "--key", keys / "secret.json", "--job", job, "--client", 0,
            "--in", plain, "--out", sealed))
        ours.run("aggregate", "--key", keys / "public.json", "--job", job, "--out", total, sealed)
        times["decrypt"].append(ours.run(
            "decrypt", "--key", keys / "secret.json", "--job", job, "--in", total, "--out", mean))
        for path in (sealed, total, mean):
            path.unlink()
        if time.perf_counter() - start > PATIENCE_S:
            break


def write_values(path):
    """Writes a safetensors file of one tensor: random float32 from -1 to 1."""
    generator = random.Random(1)
    values = array.array("f", (generator.uniform(-1.0, 1.0) for _ in range(VALUES)))
    if sys.byteorder == "big":
        values.byteswap()
    entry = {"dtype": "F32", "shape": [VALUES], "data_offsets": [0, 4 * VALUES]}
    header = json.dumps({"g": entry}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + values.tobytes())
