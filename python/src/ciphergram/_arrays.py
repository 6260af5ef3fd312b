"""Arrays in and out: what may be given as a tensor, and what results are written to."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._layout import arrange, flat, leaves, remember
from .errors import DtypeError, LayoutError

# Names of numpy's types, and of those that files of tensors use.
_NAMES = {
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "bool": "BOOL",
}
_FLOATS = ("F16", "BF16", "F32", "F64")
_DTYPES = {theirs: ours for ours, theirs in _NAMES.items()}

Described = tuple[str, str, tuple[int, ...], npt.NDArray[np.uint8]]


def describe(tensors: Any, keep: bool) -> list[Described]:
    """Describe each tensor by its name, type, shape and bytes, and remember how they were given.

    The bytes are the array's own where it is contiguous and little-endian, else those of a copy. Integers that are to
    be kept are left out.

    Raises:
        DtypeError: A tensor is no array of numbers.
        LayoutError: The tensors are not given by their names.
    """
    # A mapping, or a table of columns.
    if not (hasattr(tensors, "keys") and hasattr(tensors, "items")):
        raise LayoutError(
            f"tensors are given as a mapping of names to arrays, or as a path, not as {type(tensors).__name__}"
        )
    given = [(path, _describe(flat(path), value)) for path, value in leaves(tensors)]
    summed = [(path, tensor) for path, tensor in given if tensor[1] in _FLOATS or not keep]
    if given and not summed:
        name, dtype, *_ = given[0][1]
        text = f"tensor {name!r} is {dtype}, as all are integers, which stay with their client: sum them with "
        raise DtypeError(f'{text}integers="sum"', tensor=name, dtype=dtype)
    remember(path for path, _ in summed)
    return [tensor for _, tensor in summed]


def _describe(name: str, value: Any) -> Described:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise LayoutError(f"the name {name!r} of a tensor is no text that there can be") from None
    array, dtype = _array(name, value)
    # Also what lies the wrong way round, or is of the other byte order.
    plain = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    return name, dtype, tuple(array.shape), plain.reshape(-1).view(np.uint8)


def _array(name: str, value: Any) -> tuple[npt.NDArray[Any], str]:
    torch = sys.modules.get("torch")
    # Also while it is imported, when it has no tensors yet.
    if isinstance(value, getattr(torch, "Tensor", ())):
        return _of_torch(torch, name, value)
    if isinstance(value, np.ma.MaskedArray):
        text = f"tensor {name!r} is a masked array, and what is masked would be summed: give value.filled(...)"
        raise DtypeError(text, tensor=name, dtype="masked")
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        array = np.from_dlpack(value)
    else:
        try:
            array = np.asarray(value)
        except ValueError:
            raise _unknown(name, type(value).__name__) from None
    dtype = _NAMES.get(array.dtype.name)
    if dtype is None:
        raise _unknown(name, array.dtype)
    return array, dtype


def _of_torch(torch: Any, name: str, value: Any) -> tuple[npt.NDArray[Any], str]:
    value = value.detach()
    if value.is_meta:
        raise DtypeError(f"tensor {name!r} is on torch's device meta, and has no values", tensor=name, dtype="meta")
    if value.device.type != "cpu" or value.layout != torch.strided:
        value = value.cpu().to_dense() if value.layout != torch.strided else value.cpu()
    # Lazy conjugates and negatives have no memory of their own.
    value = value.resolve_conj().resolve_neg()
    if value.dtype == torch.bfloat16:
        return value.view(torch.uint16).numpy(), "BF16"
    dtype = _NAMES.get(str(value.dtype).removeprefix("torch."))
    if dtype is None:
        raise _unknown(name, value.dtype)
    return value.numpy(), dtype


def numbers(values: Any) -> tuple[tuple[int, ...], npt.NDArray[np.uint8]]:
    """Describe a number or an array of numbers as float64, by its shape and bytes.

    The bytes are the array's own where it is of that type and contiguous, else those of a copy.

    Raises:
        DtypeError: It is no number, and no array of numbers.
    """
    try:
        array, dtype = _array("values", values)
    except DtypeError as error:
        raise DtypeError(
            f"the values are {error.dtype}: vectors are of floats and integers", **error.fields
        ) from None
    if dtype == "BF16":
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    plain = np.ascontiguousarray(array, "<f8")
    return tuple(array.shape), plain.reshape(-1).view(np.uint8)


def to_torch(array: npt.NDArray[Any]) -> Any:
    """Return a torch tensor over the memory of an array, of the same type."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _unknown(name: str, dtype: Any) -> DtypeError:
    text = (
        f"tensor {name!r} is {dtype}; float16, bfloat16, float32 and float64 can be summed, "
"and integers with integers=\"sum\""
    )
    return DtypeError(text, tensor=name, dtype=str(dtype))


def empty(
    specs: Sequence[tuple[str, str, Sequence[int]]], like: Any = None
) -> tuple[dict[str, Any], list[npt.NDArray[np.uint8]]]:
    """Allocate an array for each of these names, types and shapes.

    Returns:
        The arrays by name, arranged as `like`, and the bytes of each in the order of `specs`.
    """
    arrays = {name: np.empty(tuple(shape), _dtype(dtype)) for name, dtype, shape in specs}
    return arrange(arrays, like, _kept), [_bytes(array) for array in arrays.values()]


def _kept(name: str, value: Any) -> npt.NDArray[Any] | None:
    if value is None:
        return None
    array, dtype = _array(name, value)
    return None if dtype in _FLOATS else np.array(array)


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    # Types that are not numpy's own have no buffer: their bytes have.
    return array.reshape(-1).view(np.uint8)


def _dtype(name: str) -> np.dtype[Any]:
    if name == "BF16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(_DTYPES[name]).newbyteorder("<")
