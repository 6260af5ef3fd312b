"""What may be given as a tensor, and what comes back."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ciphergram as cg

KEYS = cg.keygen(clients=3)


def mean(x: Any, ranges: float = 4.0, **options: Any) -> cg.Opened:
    """Return the mean of three times the same tensors."""
    first = KEYS.encrypt(x, ranges=ranges, client=0, **options)
    rest = [
        KEYS.encrypt(x, ranges=ranges, client=i, round=first.round, **options) for i in (1, 2)
    ]
    return KEYS.decrypt(cg.aggregate([first, *rest], KEYS.public))


@pytest.fixture(autouse=True)
def same_rounds() -> None:
    """Begin each test at a round that no client is past."""
    last = max(KEYS.encrypt({"w": np.zeros(1)}, ranges=1.0, client=i).round for i in range(3))
    for client in range(3):
        KEYS.encrypt({"w": np.zeros(1)}, ranges=1.0, client=client, round=last + 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (5,), (2, 3, 4), (1000,)])
def test_types_and_shapes_come_back(dtype: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, shape).astype(dtype)
    opened = mean({"x": x, "other": np.ones(2)})
    assert opened["x"].dtype == np.dtype(dtype) and opened["x"].shape == shape
    error = np.abs(opened["x"].astype(np.float64) - np.asarray(x).astype(np.float64))
    step = 4.0 / 32767 * 3
    assert error.size == 0 or error.max() <= step + float(ml_dtypes.finfo(dtype).eps)


ORDERS: list[tuple[str, Callable[[np.ndarray], np.ndarray]]] = [
    ("fortran", np.asfortranarray),
    ("transposed", lambda x: x.T),
    ("strided", lambda x: x[::2, 1::3]),
    ("reversed", lambda x: x[::-1, ::-1]),
    ("broadcast", lambda x: np.broadcast_to(x[:1], (4, x.shape[1]))),
    ("big-endian", lambda x: x.astype(">f8")),
]


@pytest.mark.parametrize("order", ORDERS, ids=[name for name, _ in ORDERS])
def test_however_an_array_lies_its_values_are_read(order: Any) -> None:
    x = order[1](np.random.default_rng(2).uniform(-1, 1, (6, 9)))
    opened = mean({"x": x})
    assert opened["x"].shape == x.shape and np.abs(opened["x"] - x).max() < 1e-3


def test_an_array_that_is_read_only_or_unaligned_is_read() -> None:
    x = np.random.default_rng(3).uniform(-1, 1, 100)
    x.flags.writeable = False
    assert np.abs(mean({"x": x})["x"] - x).max() < 1e-3
    raw = b"\0" + struct.pack("<8f", *range(8))
    odd = np.frombuffer(raw, np.float32, offset=1)
    assert not odd.flags.aligned
    assert np.abs(mean({"x": odd}, ranges=8.0)["x"] - range(8)).max() < 1e-2


def test_results_are_new_arrays_of_their_own() -> None:
    x = np.random.default_rng(4).uniform(-1, 1, 10)
    before = x.copy()
    opened = mean({"x": x})
    opened["x"][:] = 9
    assert np.array_equal(x, before) and opened["x"].flags.owndata


class ByDlpack:
    def __init__(self, array: np.ndarray) -> None:
        self.inner = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.inner.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.inner.__dlpack_device__()


class ByArray:
    def __init__(self, array: np.ndarray) -> None:
        self.inner = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.inner


@pytest.mark.parametrize("kind", [ByDlpack, ByArray, list])
def test_arrays_of_others_are_taken(kind: Any) -> None:
    x = np.random.default_rng(5).uniform(-1, 1, 12)
    assert np.abs(mean({"x": kind(x)})["x"] - x).max() < 1e-3


def test_a_file_of_tensors_is_taken(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    x = {"x": np.random.default_rng(6).uniform(-1, 1, (3, 4)).astype(np.float32)}
    safetensors.save_file(x, tmp_path / "x.safetensors")
    for path in (tmp_path / "x.safetensors", str(tmp_path / "x.safetensors")):
        assert np.abs(mean(path)["x"] - x["x"]).max() < 1e-3
    with pytest.raises(cg.FileError):
        mean(tmp_path / "none")


def test_integers_are_summed_if_that_is_asked_for() -> None:
    x = {"n": np.array([3, -4], np.int32), "mask": np.array([True, False])}
    with pytest.raises(cg.DtypeError) as error:
        mean(x)
    assert error.value.tensor == "n" or error.value.tensor == "mask"
    assert isinstance(error.value, TypeError)
    opened = mean(x, integers="sum")
    assert opened["n"].dtype == np.int32 and list(opened["n"]) == [3, -4]
    assert opened["mask"].dtype == np.bool_ and list(opened["mask"]) == [True, False]


def test_torch_tensors_are_taken() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(4, 5, requires_grad=True)
    assert np.abs(mean({"x": x}, ranges=8.0)["x"] - x.detach().numpy()).max() < 1e-3
    half = torch.randn(6).to(torch.bfloat16)
    opened = mean({"x": half}, ranges=8.0)["x"]
    assert opened.dtype == ml_dtypes.bfloat16
    assert np.abs(opened.astype(float) - half.float().numpy()).max() < 0.05
    assert np.abs(mean({"x": x.T[::2]}, ranges=8.0)["x"] - x.detach().numpy().T[::2]).max() < 1e-3


BAD: list[tuple[type[Exception], Any]] = [
    (cg.DtypeError, {"x": np.array([1 + 2j])}),
    (cg.DtypeError, {"x": np.array([object()])}),
    (cg.DtypeError, {"x": np.array(["a"])}),
    (cg.DtypeError, {"x": np.array(["2026-11-23"], "datetime64[D]")}),
    (cg.DtypeError, {"x": np.zeros(3, np.longdouble)}),
    (cg.DtypeError, {"x": np.zeros(2, [("a", "f4")])}),
    (cg.DtypeError, {"x": None}),
    (cg.DtypeError, {"x": io.BytesIO()}),
    (cg.NotFinite, {"x": np.array([1.0, np.nan])}),
    (cg.NotFinite, {"x": np.array([np.inf], np.float16)}),
    (cg.LayoutError, [np.zeros(3)]),
    (cg.LayoutError, {3: np.zeros(3)}),
    (cg.LayoutError, None),
]


@pytest.mark.parametrize("case", BAD, ids=range(len(BAD)))
def test_what_is_no_tensor_is_one_error(case: Any) -> None:
    error, tensors = case
    with pytest.raises(error):
        mean(tensors)


def test_what_is_no_range_is_one_error() -> None:
    x = {"x": np.zeros(3)}
    for ranges in (-1.0, np.nan, np.inf):
        with pytest.raises(cg.ParameterError):
            KEYS.encrypt(x, ranges=ranges, client=0)
    for ranges in ("wide", [1.0], {"x": "wide"}):
        with pytest.raises(ValueError):
            KEYS.encrypt(x, ranges=ranges, client=0)
    for ranges in ({}, {"x": 1.0, "y": 1.0}, {"y": 1.0}):
        with pytest.raises(cg.LayoutError):
            KEYS.encrypt(x, ranges=ranges, client=0)
    with pytest.raises(cg.ParameterError, match="ranges="):
        KEYS.encrypt(x, client=0)
    with pytest.raises(cg.WeightError):
        KEYS.encrypt(x, ranges=1.0, weight=0, client=0)
    with pytest.raises(cg.WeightError):
        KEYS.encrypt(x, ranges=1.0, weight=5, max_weight=4, client=0)
    for clip in (0.0, -1.0, np.nan):
        with pytest.raises(cg.ParameterError):
            KEYS.encrypt(x, ranges=1.0, clip=clip, client=0)


def test_what_has_no_values_of_its_own_is_refused_by_name() -> None:
    masked = np.ma.MaskedArray([1.0, 2.0], mask=[False, True])
    with pytest.raises(cg.DtypeError, match="'x' is a masked array") as error:
        mean({"x": masked})
    assert error.value.tensor == "x"
    torch = pytest.importorskip("torch")
    with pytest.raises(cg.DtypeError, match="'x' is on torch's device meta"):
        mean({"x": torch.ones(3, device="meta")})


def test_tables_are_taken() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"b": [0.5, -0.25], "a": np.array([1, 0], np.float32)})
    opened = mean(table)
    assert list(opened) == ["b", "a"] and opened["a"].dtype == np.float32
    assert np.abs(opened["b"] - table["b"].to_numpy()).max() < 1e-3
    assert mean({"x": table["b"], "y": table})["y"].shape == (2, 2)
    assert mean(pandas.Series({"b": 0.5, "a": -0.5}))["a"].round(3) == -0.5
    with pytest.raises(cg.DtypeError, match="'b' is object"):
        mean({"b": pandas.Series([0.5, "text"], dtype=object)})


def test_results_are_loaded_by_torch() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).to(torch.bfloat16)
    state = model.state_dict()
    parts = [KEYS.encrypt(state, ranges=1.0, client=number) for number in range(3)]
    opened = KEYS.decrypt(cg.aggregate(parts, KEYS.public), like=state)
    assert opened.to_torch()["0.weight"].dtype == torch.bfloat16
    model.load_state_dict(opened.to_torch())
    nested = cg.Opened({"a": {"b": np.ones(2)}}, contributors=[], fewest=0, round=0, ranges=parts[0].ranges)
    assert isinstance(nested.to_torch()["a"]["b"], torch.Tensor)
