"""Encrypted rounds between silos that train with FSDP2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import ciphergram as cg
import pytest
import torch
import training
from ranks import Ranks

SILOS = 3


@pytest.fixture(scope="module")
def silos() -> Iterator[list[Ranks]]:
    groups = [Ranks(1) for _ in range(SILOS)]
    yield groups
    for group in groups:
        group.close()


def test_silos_have_the_mean_of_their_gradients(silos: list[Ranks], tmp_path: Path) -> None:
    key = str(tmp_path / "keys")
    cg.keygen("ckks-sum", clients=SILOS, bits=training.BITS, min_clients=SILOS).save(key)
    with cg.Server(key, clients=SILOS, join_timeout=5.0) as server:
        for number, silo in enumerate(silos):
            silo.start(training.shard, number, server.address, key)
        results = [silo.result(0) for silo in silos]
    exact = [torch.stack(gradients).mean(0) for gradients in zip(*(own for own, _, _ in results), strict=True)]
    largest = max(float(gradient.abs().max()) for own, _, _ in results for gradient in own)
    step = 2 ** math.ceil(math.log2(largest)) / (2 ** (training.BITS - 1) - 1)
    for _, averaged, rounds in results:
        # One for each unit that fully_shard made: both layers, and what is left for the root has no parameters.
        assert rounds == 2
        assert all(torch.equal(a, b) for a, b in zip(averaged, results[0][1], strict=True))
        assert all((a - b).abs().max() <= step * 1.01 for a, b in zip(averaged, exact, strict=True))
