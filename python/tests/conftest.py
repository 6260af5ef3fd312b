"""What tests share: keys and updates."""

from __future__ import annotations

from pathlib import Path

import ciphergram as cg
import numpy as np
import numpy.typing as npt
import pytest


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


@pytest.fixture(params=["context", "files"])
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder of what is too large for a context, where nothing is or everything."""
    _store = pytest.importorskip("ciphergram.flower._store")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    if request.param == "files":
        monkeypatch.setattr(_store, "_LARGE", 0)
    return tmp_path / "flwr" / "ciphergram"
