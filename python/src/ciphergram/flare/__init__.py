"""Encrypted aggregation for NVIDIA FLARE: two filters for clients and an aggregator for the server.

    recipe = NumpyFedAvgRecipe(..., aggregator=cg.flare.Aggregator("/keys/public.json"))
    key = "/keys/{site}/identity.json"
    recipe.add_client_input_filter(cg.flare.Decrypt(key), tasks=["train"])
    recipe.add_client_output_filter(
        cg.flare.Encrypt(key, max_weight=600, ranges=4.0), tasks=["train"]
    )

The server adds ciphertexts and keeps what it cannot read; clients open the sum of the last round,
train, and seal their models. Arguments are plain JSON, for they travel in the job's configuration:
paths of keys, never keys.

A message carries one frame in its DXO's data, under the name of the first tensor; those of the
others hold nothing, so that persistors find the names that they know. The DXO's meta says what the
frame is, in FLARE's own fields. Where openers open sums, the server asks those sites in auxiliary messages, and sends
what they answer with the sum.
"""

from __future__ import annotations

from typing import Any

import ciphergram as cg

from .._answers import decrypt, opening_key
from ._aggregator import Aggregator
from ._filters import Decrypt, Encrypt

__all__ = ["Aggregator", "Decrypt", "Encrypt", "open"]

for _part in (Aggregator, Decrypt, Encrypt):
    # Jobs name them by this module, which sites allow.
    _part.__module__ = __name__


def open(frame: bytes, key: Any, *, job: Any = None) -> cg.Opened:
    """Opens a mean that the server saved as its model.

    Args:
        frame: The one entry of the model that holds bytes.
        key: A secret key or a member's, or the path of its file.
        job: The job; None for the one beside the key.

    Raises:
        ciphergram.BadFrame: It is no sum.
        ciphergram.KeyKind: The key opens nothing.
        ciphergram.KeyMismatch, ciphergram.TooFew, ciphergram.SumMismatch: As `ciphergram.SecretKey.decrypt`.
    """
    return decrypt(opening_key(key), frame, job)
