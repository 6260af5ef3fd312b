"""Ranges that clients agree on without showing theirs, of a package that is built with the feature `tfhe`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_world import World, bound, fedavg, make_keys, plain_rounds, record, start_model, step, to_arrays

import ciphergram as cg
import ciphergram.flower

CLIENTS = 4
# As little work as shows it.
LEVELS = 12


def private_keys(**options: Any) -> cg.Keys:
    return cg.keygen(clients=CLIENTS, max_range=8.0, levels=LEVELS, **{"ranges": "agree:2", **options})


@pytest.fixture(scope="module")
def keys() -> cg.Keys:
    """Keys of four clients who agree on the second largest range, and clip to the median of their norms."""
    return private_keys(clip_norm="agree:median")


@pytest.fixture(scope="module")
def ranges_key(keys: cg.Keys) -> cg.RangesKey:
    return keys.ranges_key()


def update(client: int) -> dict[str, np.ndarray]:
    """Values up to 0.25 and 0.03; the last client claims the largest range that the job admits."""
    rng = np.random.default_rng(client)
    values = {"b": 0.03 * rng.uniform(-1, 1, 30), "w": 0.25 * rng.uniform(-1, 1, (6, 5))}
    for array in values.values():
        array.flat[0] = 8.0 if client == CLIENTS - 1 else np.abs(array).max()
    return values


def proposals(keys: cg.Keys, clients: Sequence[int] = range(CLIENTS)) -> list[cg.RangesProposal]:
    return [cg.ranges(update(n), private=keys, client=n) for n in clients]


def clipped(values: dict[str, np.ndarray], norm: float) -> dict[str, np.ndarray]:
    own = np.sqrt(sum((array**2).sum() for array in values.values()))
    return {name: array * min(1.0, norm / own) for name, array in values.items()}


def test_three_steps(keys: cg.Keys, ranges_key: cg.RangesKey) -> None:
    sent = [cg.RangesProposal.from_bytes(bytes(own), keys.public) for own in proposals(keys)]
    assert [own.client for own in sent] == [0, 1, 2, 3]
    agreed = cg.AgreedRanges.from_bytes(bytes(cg.merge_ranges(sent, ranges_key=ranges_key)), keys.public)
    assert agreed.clients == [0, 1, 2, 3]
    ranges = cg.open_ranges(agreed, keys)
    assert dict(ranges.items()) == {"b": 2**-5, "w": 2**-2}
    # The norms of three are from 0.7 to 1.1; levels are powers of two below that of the largest, 62 values of 8.
    assert ranges.clip_norm is not None and 0.5 <= ranges.clip_norm <= 2
    parts = [keys.encrypt(update(n), client=n, ranges=ranges) for n in range(CLIENTS)]
    mean = keys.decrypt(cg.aggregate(parts, keys.public))
    for name, limit in ranges.items():
        all_values = [clipped(update(n), ranges.clip_norm)[name] for n in range(CLIENTS)]
        exact = np.mean([np.clip(values, -limit, limit) for values in all_values], axis=0)
        assert np.abs(mean[name] - exact).max() <= 2 * limit / 2**16


def test_clients_with_keys_of_their_own_agree() -> None:
    keys = cg.keygen("paillier-2048", clients=3, max_range=8.0, ranges="agree:median", levels=8)
    own = [cg.ranges({"w": np.full(4, 2.0**n)}, private=key) for n, key in enumerate(keys.clients)]
    agreed = cg.merge_ranges(own, ranges_key=keys.ranges_key())
    assert all(cg.open_ranges(agreed, key)["w"] == 2.0 for key in keys.clients)


def test_rounds_over_datagrams(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    private_keys().save(folder)
    with cg.Server(folder / "public.json", clients=CLIENTS, rounds=2) as server:

        def take_part(number: int) -> tuple[cg.Opened, cg.Sum]:
            with cg.Client(server.address, folder / "secret.json", number=number) as client:
                return client.mean(update(number)), client.sum(update(number))

        with ThreadPoolExecutor(CLIENTS) as pool:
            means, sums = zip(*pool.map(take_part, range(CLIENTS)), strict=True)
    assert all(dict(mean.ranges.items()) == {"b": 2**-5, "w": 2**-2} for mean in means)
    exact = np.mean([np.clip(update(n)["w"], -0.25, 0.25) for n in range(CLIENTS)], axis=0)
    assert np.abs(means[0]["w"] - exact).max() < 1e-4
    # One value of each tensor of the last client, in either round.
    assert means[-1].clipped == sums[-1].clipped == {"b": 1, "w": 1}
    assert sums[0].clipped == {"b": 0, "w": 0} and cg.loads(bytes(sums[0])).clipped is None


@pytest.mark.parametrize(
    ("transport", "clip_norm", "announcements"),
    [("message", None, 3), ("message", "agree:1", 6), ("datagram", None, 0)],
)
def test_flower_agrees_on_them_in_its_first_round_and_on_norms_in_each(
    tmp_path: Path, transport: Any, clip_norm: str | None, announcements: int
) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    make_keys(keys, max_weight=32, max_range=8.0, ranges="agree:1", levels=LEVELS, clip_norm=clip_norm)
    world = World(keys, 3, step)
    server = keys / "server"
    if transport == "datagram":
        # On loopback, node keys are found beside the keys.
        server = keys / "all"
        for context in world.contexts.values():
            context.node_config["ciphergram-key"] = str(server / "secret.json")
    strategy = cg.flower.Encrypted(fedavg(), key=server / "public.json", transport=transport)
    result = strategy.start(world, record(start_model()), num_rounds=2)
    opened = to_arrays(cg.flower.open(result.arrays, keys / "0" / "secret.json"))
    for name, exact in plain_rounds(2).items():
        assert np.abs(opened[name] - exact).max() < 2 * bound(2)
    announced = [a for _, reply in world.seen for a in arrays_of(reply) if "announcement" in a.stype]
    public = cg.load_keys(server / "public.json")
    shown = [cg.Announcement.from_bytes(array.data, public, 0).ranges for array in announced]
    assert len(shown) == announcements
    assert all(set(ranges.values()) == {8.0} and ranges.max_weight == 32 for ranges in shown)


def arrays_of(message: Any) -> list[Any]:
    records = message.content.array_records.values() if message.has_content() else []
    return [array for arrays in records for array in arrays.values()]


def test_what_is_none_of_the_jobs_is_refused(keys: cg.Keys, ranges_key: cg.RangesKey) -> None:
    own = proposals(keys)
    others = private_keys()
    for odd, error, text in [
        (own[:1], cg.TooFew, "no 2-th largest"),
        ([], cg.TooFew, None),
        ([own[0], own[0], own[1]], cg.DuplicateClient, "client 0"),
        ([*own[:2], *proposals(others, [2])], cg.JobMismatch, "client 2"),
    ]:
        with pytest.raises(error, match=text):
            cg.merge_ranges(odd, ranges_key=ranges_key)
    with pytest.raises(cg.KeyMismatch):
        cg.merge_ranges(own, ranges_key=others.ranges_key(), job=keys.job)
    agreed = cg.merge_ranges(own[:2], ranges_key=ranges_key)
    with pytest.raises(cg.JobMismatch):
        cg.open_ranges(agreed, others)
    announced = [keys.propose(update(n), client=n) for n in range(CLIENTS)]
    with pytest.raises(cg.NoRangesKey, match="ranges_key="):
        cg.join_round(announced, keys.public)
    told = cg.keygen(clients=CLIENTS)
    with pytest.raises(cg.NoRangesKey, match="keygen"):
        told.ranges_key()
    with pytest.raises(cg.ParameterError, match="no private ranges"):
        cg.ranges(update(0), private=keys, client=0, job=cg.Job(keys.public))
