"""Vectors to compute with while they are encrypted: sums, products, rotations, matrices, polynomials.

Under levelled CKKS, whose results are approximate, and off by about 1e-7 of the range. Three parties hold three keys:
whoever has the public one encrypts, whoever has the evaluation keys computes, and the secret one decrypts.
"""

from __future__ import annotations

from ._native.ckks import (
    EvaluationKeys,
    Keys,
    PublicKey,
    SecretKey,
    Vector,
    keygen,
    load,
    load_keys,
    loads,
)

__all__ = [
    "EvaluationKeys",
    "Keys",
    "PublicKey",
    "SecretKey",
    "Vector",
    "keygen",
    "load",
    "load_keys",
    "loads",
]
