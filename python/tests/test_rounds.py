"""Ranges that clients find for themselves from the last mean."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ciphergram as cg
from ciphergram._rounds import next_ranges


def opened(**arrays: np.ndarray) -> cg.Opened:
    """Returns a mean, as if it had been made under ranges of 3."""
    ranges = cg.ranges(arrays, policy="fixed:3.0")
    return cg.Opened(arrays, contributors=[0, 1, 2], fewest=3, round=0, ranges=ranges)


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (1.0, 2.0),
        (0.5, 1.0),
        (0.51, 2.0),
        (-0.75, 2.0),
        (3.0, 8.0),
        (1e-40, 2.0**-131),
        (-4.0, 8.0),
    ],
)
def test_twice_the_largest_magnitude_rounded_up(largest: float, expected: float) -> None:
    array = np.array([[0.0, largest / 3], [largest, 0.0]], dtype=np.float64)
    assert next_ranges(opened(w=array)) == {"w": expected}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_every_type(dtype: type) -> None:
    assert next_ranges(opened(w=np.array([-1.5, 1.0], dtype))) == {"w": 4.0}


def test_a_small_tensor_has_a_sixteenth_of_the_largest_range() -> None:
    mean = opened(large=np.array([4.0]), small=np.array([1e-6]), none=np.zeros((0, 3)))
    assert next_ranges(mean) == {"large": 8.0, "small": 0.5, "none": 0.5}


def test_the_job_limits_it() -> None:
    assert next_ranges(opened(w=np.array([7.0])), max_range=10.0) == {"w": 10.0}


def test_zeros_keep_their_ranges() -> None:
    assert next_ranges(opened(w=np.zeros(3), b=np.zeros(()))) == {"b": 3.0, "w": 3.0}
