"""Rows of `python/bench.py`: Paillier's arrays beside python-paillier, and a histogram of encrypted gradients."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import phe

import ciphergram as cg

COUNT = 200
HISTOGRAM_TARGET_S = 0.3


def seconds(call: Callable[[], object]) -> float:
    """Return the least of some times."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def scalars(keys: cg.Keys, bits: int) -> dict[str, Any]:
    """Multiply by public scalars of a number of bits."""
    rng = np.random.default_rng(bits)
    xs, factors = rng.integers(0, 2**20, COUNT), rng.integers(2 ** (bits - 1), 2**bits, COUNT).tolist()
    ours = keys.public.encrypt_ints(xs)
    n = phe.util.base64_to_int(json.loads(keys.public.to_json()[0])["n"])
    public = phe.PaillierPublicKey(n)
    theirs = [phe.EncryptedNumber(public, ciphertext) for ciphertext in ours.to_ints()]
    product = keys.secret.decrypt_ints(ours * factors)
    if product != [int(x) * factor for x, factor in zip(xs, factors, strict=True)]:
        raise AssertionError(f"products by {bits} bits are wrong")
    own = seconds(lambda: ours * factors) / COUNT
    peer = seconds(lambda: [x * factor for x, factor in zip(theirs, factors, strict=True)]) / COUNT
    gmp = "with" if phe.util.HAVE_GMP else "without"
    return {
        "what": f"ciphertext x public scalar, {bits} bits, paillier-2048; peer: phe {gmp} gmpy2",
        "ours": f"{1e6 * own:.3g} us",
        "peer": f"{1e6 * peer:.3g} us",
        "ratio": own / peer,
        "target": "<= 0.25",
        "met": own / peer <= 0.25,
    }


def histogram(keys: cg.Keys) -> dict[str, Any]:
    """Add the gradients of 400 rows to 32 bins of each of 10 features."""
    rng = np.random.default_rng(1)
    gradients, bins = rng.integers(-(2**20), 2**20, 400), rng.integers(0, 32, (400, 10))
    encrypted, segments = keys.public.encrypt_ints(gradients), bins + 32 * np.arange(10)
    sums = encrypted[:, None].segment_sum(segments, 320).reshape(10, 32)
    expected = [np.bincount(column, gradients, 32).astype(int).tolist() for column in bins.T]
    if keys.secret.decrypt_ints(sums) != expected:
        raise AssertionError("the histogram is wrong")
    own = seconds(lambda: encrypted[:, None].segment_sum(segments, 320))
    return {
        "what": "histogram of 400 encrypted rows, 10 features, 32 bins, paillier-2048",
        "ours": f"{1000 * own:.3g} ms",
        "peer": "-",
        "ratio": own,
        "target": f"<= {HISTOGRAM_TARGET_S} s",
        "met": own <= HISTOGRAM_TARGET_S,
    }


def main() -> None:
    """Print the lines."""
    keys = cg.keygen("paillier-2048", clients=3)
    rows = [scalars(keys, bits) for bits in (1, 8, 20, 62)]
    sys.stdout.write(json.dumps([*rows, histogram(keys)]) + "\n")


if __name__ == "__main__":
    main()
