"""The order of results, and the dictionaries that they are in: those that went in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ciphergram as cg
import numpy as np
import pytest

NUMBERED = {str(i): np.full(2, i / 20, np.float32) for i in range(12)}
UPDATE = NUMBERED | {"z": np.zeros(1, np.float32), "a": np.zeros(1, np.float32)}


def summed(keys: cg.Keys, update: Any, **options: Any) -> cg.Sum:
    parts = [keys.encrypt(update, ranges=1.0, client=number, **options) for number in range(4)]
    return cg.aggregate(parts, keys.public)


def test_results_come_in_the_order_of_the_input(keys: cg.Keys) -> None:
    total = summed(keys, UPDATE)
    mean = keys.decrypt(total)
    assert list(mean) == list(UPDATE)
    for own, array in zip(UPDATE.values(), mean.values(), strict=True):
        np.testing.assert_allclose(array, own, atol=1e-4)
    part = keys.encrypt(UPDATE, ranges=1.0, client=3)
    for names in (part.ranges, part.ranges.keys(), part.clipped, part.ranges.specs, cg.ranges(UPDATE)):
        assert list(names or ()) == list(UPDATE)
    assert part.ranges.replace({"10": 0.5}).values() == [1.0] * 10 + [0.5] + [1.0] * 3
    # Sums are the same, however their tensors were given.
    other = dict(reversed(UPDATE.items()))
    mixed = [keys.encrypt(tensors, ranges=1.0, client=at) for at, tensors in enumerate((UPDATE, other, UPDATE))]
    total = cg.aggregate(mixed, keys.public)
    assert list(keys.decrypt(total)) == list(UPDATE)
    assert list(keys.decrypt(total, like=other)) == list(keys.decrypt(total, like=list(other))) == list(other)


def test_a_process_that_gave_nothing_sorts_numbers_by_value(keys: cg.Keys, tmp_path: Path) -> None:
    keys.save(tmp_path / "keys")
    cg.save(summed(keys, UPDATE), tmp_path / "sum.cgs")
    code = (
        "import ciphergram as cg; keys = cg.load_keys('keys'); total = cg.load('sum.cgs'); "
        "print(list(keys.decrypt(total))); print(list(keys.decrypt(total, like=('z', *map(str, range(12)), 'a'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    natural, like = map(eval, done.stdout.splitlines())
    assert natural == [*NUMBERED, "a", "z"]
    assert like == ["z", *NUMBERED, "a"]


def test_names_of_others_are_refused_before_a_sum_is_opened(keys: cg.Keys) -> None:
    total = summed(keys, UPDATE)
    with pytest.raises(cg.LayoutError, match="like= has no 'z', which was summed"):
        keys.decrypt(total, like=[*NUMBERED, "a"])
    with pytest.raises(cg.LayoutError, match="like= has 'b', which was not summed"):
        keys.decrypt(total, like=[*UPDATE, "b"])
    with pytest.raises(cg.LayoutError, match="like= has 'b', which was not summed"):
        keys.decrypt(total, like=UPDATE | {"b": np.zeros(1, np.float32)})


def test_dictionaries_within_come_back_nested(keys: cg.Keys) -> None:
    params = {
        "Dense_1": {"kernel": np.full((2, 3), 0.25, np.float32), "bias": np.zeros(3, np.float32)},
        "Dense_0": {"kernel": np.full((1, 2), -0.5, np.float32)},
    }
    total = summed(keys, params)
    assert total.ranges.keys() == ["Dense_1/kernel", "Dense_1/bias", "Dense_0/kernel"]
    mean = keys.decrypt(total)
    assert list(mean) == ["Dense_1", "Dense_0"] and list(mean["Dense_1"]) == ["kernel", "bias"]
    np.testing.assert_allclose(mean["Dense_1"]["kernel"], params["Dense_1"]["kernel"], atol=1e-4)
    flat = keys.decrypt(total, like=total.ranges.keys())
    assert list(flat) == total.ranges.keys()
    with pytest.raises(cg.LayoutError):
        keys.encrypt({"a": {"b": np.zeros(1)}, "a/b": np.zeros(1)}, ranges=1.0, client=0)


def test_integers_stay_with_their_client(keys: cg.Keys) -> None:
    update = {"bn.num_batches_tracked": np.array(100), "bn.weight": np.ones(3, np.float32), "mask": np.array([True])}
    total = summed(keys, update)
    assert total.ranges.keys() == ["bn.weight"]
    assert list(keys.decrypt(total)) == ["bn.weight"]
    whole = keys.decrypt(total, like=update)
    assert list(whole) == list(update) and whole["bn.num_batches_tracked"] == 100 and whole["mask"].dtype == bool
    assert whole["mask"] is not update["mask"]
    with pytest.raises(cg.DtypeError, match='keep them out of the sum with integers="keep", or sum them'):
        keys.encrypt(update, ranges=1.0, client=0, integers="refuse")
    with pytest.raises(cg.ParameterError, match="there are keep, sum and refuse"):
        keys.encrypt(update, ranges=1.0, client=0, integers="drop")
    assert list(summed(keys, {"n": np.array([1])}, integers="sum").ranges) == ["n"]
