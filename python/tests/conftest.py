"""What all tests share: keys, updates, and an end for what hangs."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import ciphergram as cg
import numpy as np
import numpy.typing as npt
import pytest

# No test takes a tenth of it, so one that does hangs, and a thread that does not let go of Python can only be killed.
HANGS_AFTER_S = 120


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Ends the process, with a traceback of every thread, if a test hangs."""
    faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def keys() -> cg.Keys:
    """Keys of four clients, and a job of at least three to a sum."""
    return cg.keygen("ckks-sum", clients=4)


@pytest.fixture
def update() -> dict[str, npt.NDArray[np.float32]]:
    """Two tensors of values from -1 to 1."""
    generator = np.random.default_rng(7)
    return {
        "w": generator.uniform(-1, 1, (3, 5)).astype(np.float32),
        "b": generator.uniform(-1, 1, 5).astype(np.float32),
    }
