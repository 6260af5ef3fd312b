#!/usr/bin/env python3
"""Three clients' tensors, summed under encryption, have the mean that numpy finds.

    python numpy_mean.py --binary target/release/ciphergram

Each scheme, with and without weights, goes both ways: through files (`encrypt`, `aggregate`,
`decrypt`) and through real processes on loopback (`serve`, `join`). Every value must be within
`contributors * W / sum of weights` quantisation steps, plus half a unit in the last place of the
type of its file. Nothing is clipped, because the ranges are the clients' largest values.
"""

import argparse
import json
import math
import tempfile
from pathlib import Path

import numpy

from support import Tensor, fail, free_port, read, run, run_together, ulp, write

SCHEMES = ["ckks-sum", "paillier-2048"]
CLIENTS = 3
BITS = 16
WEIGHTS = {"unweighted": [1, 1, 1], "weighted": [120, 7, 64]}
SEED = 20
# Both sides compute in float64; their last digits are not what is compared here.
SLACK = 1 + 1e-9

# Every type; a scalar, an empty tensor, a short one, one of many chunks; magnitudes far apart.
LAYOUT = {
    "layer.weight": ("F32", (300, 70), 0.02),
    "layer.bias": ("F16", (10,), 0.5),
    "scale": ("F64", (), 3.0),
    "unused": ("F32", (0,), 1.0),
    "embedding": ("BF16", (31, 7), 1e-4),
}


def make_clients():
    generator = numpy.random.default_rng(SEED)
    return [{name: Tensor.rounded(dtype, generator.normal(0.0, scale, shape))
             for name, (dtype, shape, scale) in LAYOUT.items()} for _ in range(CLIENTS)]


def weighted_mean(clients, weights, name):
    total = sum(weight * client[name].values for weight, client in zip(weights, clients))
    return total / sum(weights)


def largest(values):
    return float(numpy.max(numpy.abs(values), initial=0.0))


def round_up_to_power_of_two(value):
    return 2.0 ** math.ceil(math.log2(value)) if value > 0 else 0.0


def agreed_ranges(clients):
    """What `serve` and `join` agree on when no ranges are given."""
    return {name: round_up_to_power_of_two(max(largest(client[name].values) for client in clients))
            for name in LAYOUT}


def load_ranges(path):
    """Reads what `ranges --merge` wrote: the range of each tensor, and the largest weight."""
    document = json.loads(path.read_text())
    ranges = {tensor["name"]: tensor["range"] for tensor in document["tensors"]}
    return ranges, document["max_weight"]


def compare(label, path, clients, weights, ranges, max_weight):
    """Holds one file of means against numpy; returns the worst error as a share of its bound."""
    found = read(path)
    if set(found) != set(LAYOUT):
        fail(f"{label}: tensors are {sorted(found)} instead of {sorted(LAYOUT)}")
    steps = len(clients) * max_weight / sum(weights)
    worst = 0.0
    for name, (dtype, shape, _) in LAYOUT.items():
        tensor = found[name]
        if (tensor.dtype, tensor.values.shape) != (dtype, shape):
            fail(f"{label}: {name} is {tensor.dtype} {tensor.values.shape}, not {dtype} {shape}")
        expected = weighted_mean(clients, weights, name)
        step = ranges[name] / (2 ** (BITS - 1) - 1)
        nearby = numpy.maximum(numpy.abs(expected), numpy.abs(tensor.values))
        bound = (steps * step + ulp(dtype, nearby) / 2) * SLACK
        share = numpy.abs(tensor.values - expected) / bound
        # Not `share > 1`: that would let a NaN pass.
        if not numpy.all(share <= 1):
            index = numpy.unravel_index(numpy.argmax(share), shape)
            at = f"{name}{list(map(int, index))}"
            fail(f"{label}: {at} is {tensor.values[index]!r}, numpy has {expected[index]!r}, "
                 f"allowed is a difference of {numpy.asarray(bound)[index]:.3g}")
        worst = max(worst, float(numpy.max(share, initial=0.0)))
    return worst


def weight_words(weight, max_weight):
    """Without weights the option is left out, so that its default is tried too."""
    return [] if max_weight == 1 else ["--weight", weight]


def through_files(binary, keys, folder, inputs, weights):
    """keygen has been done: ranges, encrypt, aggregate, decrypt. Returns means and ranges."""
    shared, largest_weight = folder / "ranges.json", max(weights)
    own, contributions = [], []
    for index, (source, weight) in enumerate(zip(inputs, weights)):
        own.append(folder / f"r{index}.json")
        words = weight_words(weight, largest_weight)
        run(binary, "ranges", "--out", own[-1], source, *words)
    run(binary, "ranges", "--merge", "--out", shared, *own)
    for index, (source, weight) in enumerate(zip(inputs, weights)):
        contributions.append(folder / f"c{index}.cgm")
        run(binary, "encrypt", "--key", keys / "secret.json", "--client", index, "--in", source,
            "--out", contributions[-1], "--ranges", shared, *weight_words(weight, largest_weight))
    total, mean = folder / "sum.cgm", folder / "mean.safetensors"
    run(binary, "aggregate", "--key", keys / "public.json", "--out", total, *contributions)
    run(binary, "decrypt", "--key", keys / "secret.json", "--in", total, "--out", mean)
    return mean, *load_ranges(shared)


def through_processes(binary, keys, folder, inputs, weights):
    """One server and three clients, all real processes. Returns each client's means."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    server = ["serve", "--key", keys / "public.json", "--listen", address,
              "--clients", len(inputs), "--rounds", 1]
    outputs = [folder / f"mean-{index}.safetensors" for index in range(len(inputs))]
    clients = [["join", "--key", keys / "secret.json", "--server", address, "--client", index,
                "--in", source, "--out", output, *weight_words(weight, max(weights))]
               for index, (source, output, weight) in enumerate(zip(inputs, outputs, weights))]
    run_together(binary, folder, server, port, clients)
    return outputs


def check(binary, scheme, folder, kind, weights, clients):
    folder.mkdir()
    keys = folder / "keys"
    run(binary, "keygen", "--scheme", scheme, "--clients", CLIENTS, "--bits", BITS, "--out", keys)
    inputs = [folder / f"g{index}.safetensors" for index in range(CLIENTS)]
    for path, client in zip(inputs, clients):
        write(path, client)

    label = f"{scheme}, files, {kind}"
    mean, ranges, max_weight = through_files(binary, keys, folder, inputs, weights)
    if max_weight != max(weights):
        fail(f"{label}: the largest weight is {max_weight}, not {max(weights)}")
    worst = compare(label, mean, clients, weights, ranges, max_weight)
    print(f"{label}: equal, worst error {worst:.0%} of the bound")

    label = f"{scheme}, processes, {kind}"
    ranges = agreed_ranges(clients)
    means = through_processes(binary, keys, folder, inputs, weights)
    shares = [compare(label, mean, clients, weights, ranges, max(weights)) for mean in means]
    if len({mean.read_bytes() for mean in means}) != 1:
        fail(f"{label}: clients decrypted different means")
    print(f"{label}: equal, worst error {max(shares):.0%} of the bound")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, required=True, help="the ciphergram to check")
    parser.add_argument("--scheme", choices=SCHEMES, action="append", help="default: all")
    options = parser.parse_args()
    binary, clients = options.binary.resolve(), make_clients()
    with tempfile.TemporaryDirectory(prefix="ciphergram-numpy-") as folder:
        for scheme in options.scheme or SCHEMES:
            for kind, weights in WEIGHTS.items():
                check(binary, scheme, Path(folder) / f"{scheme}-{kind}", kind, weights, clients)


if __name__ == "__main__":
    main()
