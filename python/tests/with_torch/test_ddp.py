"""Encrypted rounds in the place of DistributedDataParallel's all-reduce."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ciphergram as cg
import pytest
import torch
import training
from ranks import Ranks

WORLD = 3
JOIN_TIMEOUT_S = 2.0


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    group = Ranks(WORLD)
    yield group
    group.close()


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("key") / "keys"
    cg.keygen("ckks-sum", clients=WORLD, bits=training.BITS, min_clients=WORLD).save(folder)
    return str(folder)


@pytest.fixture
def server(key: str) -> Iterator[cg.Server]:
    with cg.Server(key, clients=WORLD, join_timeout=JOIN_TIMEOUT_S) as running:
        yield running


def bound(averaged: dict[str, torch.Tensor], dtype: torch.dtype) -> float:
    """Returns the largest error of a value, given the largest magnitude that any rank can have sent.

    A range is the largest magnitude of any rank rounded up to a power of two; each rank is off by less than a step.
    """
    largest = WORLD * max(float(mean.abs().max()) for mean in averaged.values())
    step = 2 ** math.ceil(math.log2(largest)) / (2 ** (training.BITS - 1) - 1)
    return step + 2 * torch.finfo(dtype).eps * largest


OPTIONS: list[dict[str, Any]] = [
    {},
    {"bucket_cap_mb": 0.0002},
    {"gradient_as_bucket_view": True},
    {"static_graph": True},
    {"find_unused_parameters": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_means_are_those_of_gloo(ranks: Ranks, server: cg.Server, key: str, options: dict[str, Any]) -> None:
    results = ranks.run(training.compare, server.address, key, options, torch.float32)
    for steps, rounds in results:
        assert rounds >= 3
        for ours, gloo in steps:
            for name, mean in gloo.items():
                assert (ours[name] - mean).abs().max() <= bound(gloo, torch.float32), name
    first = [ours for ours, _ in results[0][0]]
    for other in results[1:]:
        for mine, theirs in zip(first, (ours for ours, _ in other[0]), strict=True):
            assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_buckets_that_are_rebuilt_are_rounds_of_their_own(ranks: Ranks, server: cg.Server, key: str) -> None:
    results = ranks.run(training.compare, server.address, key, {"bucket_cap_mb": 0.0002}, torch.float32)
    # One bucket in the first step, two once they are rebuilt.
    assert [rounds for _, rounds in results] == [1 + 2 + 2] * WORLD


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_other_types(ranks: Ranks, server: cg.Server, key: str, dtype: torch.dtype) -> None:
    results = ranks.run(training.compare, server.address, key, {}, dtype)
    for steps, _ in results:
        # Later steps start from the same parameters too: nothing was optimised.
        for ours, gloo in steps:
            for name, mean in gloo.items():
                assert ours[name].dtype == dtype
                assert (ours[name].double() - mean.double()).abs().max() <= bound(gloo, dtype), name


def test_training_goes_as_in_clear(ranks: Ranks, server: cg.Server, key: str) -> None:
    ours = ranks.run(training.train, server.address, key, 30)
    plain = ranks.run(training.train, None, key, 30)
    for encrypted, clear in zip(ours[0][0], plain[0][0], strict=True):
        assert encrypted == pytest.approx(clear, rel=0.02, abs=1e-4)
    assert ours[0][0][-1] < ours[0][0][0] / 3
    for _, parameters in ours[1:]:
        assert all(torch.equal(a, b) for a, b in zip(ours[0][1], parameters, strict=True))


def test_no_sync_takes_no_round(ranks: Ranks, server: cg.Server, key: str) -> None:
    for ours, gloo, rounds in ranks.run(training.accumulate, server.address, key):
        assert rounds == 1
        for name, mean in gloo.items():
            assert (ours[name] - mean).abs().max() <= bound(gloo, torch.float32)


def test_unused_parameters(ranks: Ranks, server: cg.Server, key: str) -> None:
    for ours, gloo in ranks.run(training.branches, server.address, key):
        for mine, theirs in zip(ours, gloo, strict=True):
            assert mine.keys() == theirs.keys()
            assert all((mine[n] - theirs[n]).abs().max() <= bound(theirs, torch.float32) for n in theirs)


def test_what_was_clipped_follows(ranks: Ranks, server: cg.Server, key: str) -> None:
    clip, steps = 0.125, 6
    step = 0.125 / (2 ** (training.BITS - 1) - 1)
    for total, exact, _, clipped, last in ranks.run(training.feed_back, server.address, key, clip, steps):
        assert (total - exact).abs().max() <= steps * step
        # 0.5 takes four steps and -0.25 two, and the last of each is within the clip.
        assert clipped == 3 + 1
        assert last.abs().max() == 0


def test_weights(ranks: Ranks, server: cg.Server, key: str) -> None:
    for mean in ranks.run(training.weigh, server.address, key):
        assert float(mean) == pytest.approx((1 * 2 + 2 * 4) / 7, abs=1e-3)


def test_a_gradient_that_is_not_finite_ends_the_step_everywhere(ranks: Ranks, server: cg.Server, key: str) -> None:
    results = ranks.run(training.poison, server.address, key)
    assert results[1][0].startswith("NotFinite: ")
    for first, second in results:
        assert first != "none"
        assert second == first


def test_the_state_pickles_without_keys(ranks: Ranks, server: cg.Server, key: str) -> None:
    results = ranks.run(training.feed_back, server.address, key, 0.125, 1)
    stored = results[0][2]
    secret = (Path(key) / "secret.json").read_text()
    assert len(stored) < 4096 and b"ckks" not in stored and not any(
        word.encode() in stored for word in secret.split('"') if len(word) >= 16
    )
    state = pickle.loads(stored)
    assert (state.rounds, state.clipped) == (1, 2)
    residual = state.state_dict()["residuals"]["weight"]
    assert residual.tolist() == pytest.approx([0.0, 0.375, -0.125, 0.0])


def test_a_killed_rank_ends_the_others(key: str) -> None:
    group = Ranks(WORLD)
    try:
        with cg.Server(key, clients=WORLD, join_timeout=JOIN_TIMEOUT_S, round_timeout=JOIN_TIMEOUT_S) as server:
            group.start(training.until_killed, server.address, key, 2, 2)
            errors = [group.result(rank) for rank in range(WORLD - 1)]
            assert all(error != "none" for error in errors), errors
    finally:
        group.close()
