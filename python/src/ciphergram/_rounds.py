"""Ranges of the next round, which clients find from the mean that all of them opened."""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt

from ._opened import Opened

_SMALLEST_SHARE = 1 / 16


def next_ranges(opened: Opened, max_range: float | None = None) -> dict[str, float]:
    """Find the range of each tensor from the last mean.

    A range is twice the largest magnitude in the mean, rounded up to a power of two, and at least a
    sixteenth of the largest tensor's. It tells nobody anything new: who opened the mean knows it.

    Args:
        opened: The mean.
        max_range: The largest range that the job admits, if there is a job.

    Returns:
        The ranges by name, all positive. A mean of zeros keeps the ranges that it was made under.
    """
    ranges = {name: _power_of_two(2 * _largest(array)) for name, array in opened.items()}
    largest = max(ranges.values(), default=0.0)
    if largest == 0.0:
        return dict(opened.ranges.items())
    limit = math.inf if max_range is None else max_range
    return {name: min(max(own, largest * _SMALLEST_SHARE), limit) for name, own in ranges.items()}


def _largest(array: npt.NDArray[Any]) -> float:
    return 0.0 if array.size == 0 else max(abs(float(array.max())), abs(float(array.min())))


def _power_of_two(value: float) -> float:
    """Return the least power of two that is not below a value; 0 for 0."""
    if value == 0.0 or not math.isfinite(value):
        return value
    fraction, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - 1 if fraction == 0.5 else exponent)
