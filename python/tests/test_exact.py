"""Sums that are exact, and tensors in more bits than the key's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ciphergram as cg
import numpy as np
import numpy.typing as npt
import pytest

Tensors = dict[str, npt.NDArray[Any]]


def summed(
    updates: list[Tensors],
    ranges: Any,
    *,
    job: Callable[[Any], cg.Job] | None = None,
    weights: tuple[int, ...] = (1, 1, 1),
    total: bool = True,
) -> Any:
    """Return the sum or the mean of three clients."""
    keys = cg.keygen("ckks-sum", clients=3)
    made = (job or (lambda public: cg.Job(public, max_range=1e12)))(keys.public)
    parts = [
        keys.encrypt(
            update,
            ranges=ranges,
            client=client,
            integers="sum",
            weight=weights[client],
            max_weight=max(weights),
            job=made,
        )
        for client, update in enumerate(updates)
    ]
    return keys.decrypt(cg.aggregate(parts, keys.public, job=made), job=made, total=total)


@pytest.mark.parametrize("largest", [1e3, 32_767, 32_768, 1e6, 1e10])
def test_counts_are_exact_over_any_range(largest: float) -> None:
    updates = [{"n": np.array(counts)} for counts in ([200, 3, 1], [7, 3, 1], [0, 4, 0])]
    assert summed(updates, largest)["n"].tolist() == [207, 10, 2]


def test_a_histogram_has_as_many_people_as_there_are() -> None:
    draw = np.random.default_rng(1)
    ages = [draw.multinomial(people, np.full(90, 1 / 90)) for people in (100_000, 2000, 769)]
    updates = [{"ages": own, "rate": np.full(4, 0.25, np.float32)} for own in ages]
    shared = cg.merge_ranges([cg.ranges(update, integers="sum") for update in updates])
    total = summed(updates, shared)
    assert total["ages"].sum() == 102_769
    assert (total["ages"] == sum(ages)).all()


def test_weighed_sums_are_exact_and_means_are_the_nearest_integer() -> None:
    updates = [{"n": np.array([x, -x], np.int32)} for x in (5, 6, 999_999)]
    weights = (999, 7, 1)
    total = summed(updates, 1e6, weights=weights)["n"]
    exact = 999 * 5 + 7 * 6 + 999_999
    assert total.tolist() == [exact, -exact]
    mean = summed(updates, 1e6, weights=weights, total=False)["n"]
    assert mean.tolist() == [round(exact / 1007), -round(exact / 1007)]


def test_what_no_sum_holds_is_refused_by_name() -> None:
    update = {"n": np.array([1, 101])}
    with pytest.raises(cg.Overflow, match='"n".*index 1 is beyond the agreed range, 100') as beyond:
        summed([update] * 3, 100)
    assert beyond.value.tensor == "n"
    wide = {"n": np.array([2**50])}
    with pytest.raises(cg.Overflow, match="2\\^53 or more"):
        cg.ranges(wide, weight=8, integers="sum")


def test_counts_are_exact_over_datagrams(tmp_path: Path) -> None:
    keys = cg.keygen("ckks-sum", clients=3)
    keys.save(tmp_path / "keys")
    job = cg.Job(keys.public, max_range=1e7)
    counts = np.array([1_000_000, 3, 1])

    def client(number: int) -> Any:
        key = tmp_path / "keys" / "secret.json"
        with cg.Client(server.address, key, number=number, job=job) as client:
            return client.mean({"n": counts}, integers="sum", total=True)["n"].tolist()

    public = tmp_path / "keys" / "public.json"
    with cg.Server(public, clients=3, job=job) as server, ThreadPoolExecutor() as pool:
        assert list(pool.map(client, range(3))) == [[3_000_000, 9, 3]] * 3


def test_layers_as_they_are_need_no_other_job() -> None:
    update = {"ln_f.weight": np.array([18.2, 1.0], np.float32), "bn.num_batches_tracked": np.array(700_000)}
    keys = cg.keygen("ckks-sum", clients=3)
    ranges = cg.ranges(update, integers="sum")
    parts = [keys.encrypt(update, ranges=ranges, client=i, integers="sum") for i in range(3)]
    mean = keys.decrypt(cg.aggregate(parts, keys.public))
    assert mean["bn.num_batches_tracked"] == 700_000
    assert np.abs(mean["ln_f.weight"] - update["ln_f.weight"]).max() < 18.3 / 32767


def test_tensors_may_have_bits_of_their_own() -> None:
    draw = np.random.default_rng(2)
    updates = [
        {name: draw.normal(size=3000) for name in ("body.w", "head.b", "head.w")} for _ in range(3)
    ]
    largest = max(np.abs(x).max() for update in updates for x in update.values())
    bits = {"head.*": 40, "head.b": 24}
    found = summed(
        updates,
        float(largest),
        job=lambda public: cg.Job(public, bits=bits),
        total=False,
    )
    for name, own in {"body.w": 16, "head.b": 24, "head.w": 40}.items():
        exact = np.mean([update[name] for update in updates], axis=0)
        off = np.abs(found[name] - exact).max()
        assert off <= largest / (2 ** (own - 1) - 1) * 1.001
        # And not of more bits than that.
        assert off >= largest / 2 ** (own + 3)
    assert found.ranges.bits == {"head.b": 24, "head.w": 40}


def test_bits_are_a_part_of_the_job() -> None:
    keys = cg.keygen("ckks-sum", clients=3)
    job = cg.Job(keys.public, bits={"head.*": 24})
    assert job.bits == {"head.*": 24} and cg.Job(keys.public).bits == {}
    update = {"head.w": np.zeros(3)}
    part = keys.encrypt(update, ranges=1.0, client=0, job=job)
    assert part.ranges.bits == {"head.w": 24}
    assert cg.Ranges.from_json(part.ranges.to_json()) == part.ranges
    assert part.ranges.replace({"head.w": 0.5}).bits == {"head.w": 24}
    with pytest.raises(cg.ParameterError, match='bits of "head.\\*": no tensor of floats'):
        keys.encrypt({"tail.w": np.zeros(3)}, ranges=1.0, client=1, job=job)
    # Of another job, whose tensors have the key's bits.
    other = cg.Job(keys.public)
    with pytest.raises(cg.JobMismatch):
        cg.aggregate([part], keys.public, job=other)
    for bits in (7, 49):
        with pytest.raises(cg.ParameterError, match="choose 8 to 48"):
            cg.Job(keys.public, bits={"x": bits})
