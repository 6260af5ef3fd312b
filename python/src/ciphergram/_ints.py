"""Arrays of encrypted integers and fixed-point numbers under Paillier.

What numpy does to an array's shape it does here to the places of ciphertexts, which are copied then. What is computed
is computed by the native half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index as to_integer
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from ._native import Ciphertexts, Keys, PublicKey, SecretKey
from .errors import DtypeError, LayoutError, Overflow, ScaleMismatch

# Numbers in clear as the native half takes them: their bytes; the words of each integer, or 0 of floats; the scale
# that floats are rounded at.
Given: TypeAlias = tuple[bytes, int, int]
_Index: TypeAlias = npt.NDArray[np.int64]


def _dtype_error(text: str, dtype: object) -> DtypeError:
    return DtypeError(text, tensor="", dtype=str(dtype))


def _of_objects(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return Python's numbers as an array of float64 if one is a float, else of int64 if all fit it."""
    items = array.ravel().tolist()
    floats = any(isinstance(x, (float, np.floating)) for x in items)
    for place, x in enumerate(items):
        try:
            items[place] = float(x) if isinstance(x, (float, np.floating)) else to_integer(x)
        except TypeError:
            name = type(x).__name__
            raise _dtype_error(f"item {place} is {name}, not a number", name) from None
    values = np.empty(len(items), object)
    values[:] = items
    if floats:
        return _floats(values.reshape(array.shape))
    fits = all(-(2**63) <= x < 2**63 for x in items)
    return values.astype(np.int64 if fits else object).reshape(array.shape)


def _plain(values: Any) -> npt.NDArray[Any]:
    """Return numbers in clear as an array of int64 or float64, or of Python's integers beyond."""
    if isinstance(values, EncryptedArray):
        raise _dtype_error("encrypted numbers are multiplied by numbers in clear only", "EncryptedArray")
    if hasattr(values, "__array__"):
        array = np.asarray(values)
    else:
        if isinstance(values, Iterable) and not isinstance(values, Sequence):
            values = list(values)
        array = np.array(values, dtype=object)
    if array.dtype == object or array.dtype == np.uint64:
        return _of_objects(array)
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        return array.astype(np.float64)
    raise _dtype_error(f"the values are {array.dtype}: there are integers and floats", array.dtype)


def _floats(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return numbers as float64, integers among them only where they stay what they are."""
    if array.dtype == np.float64:
        return array
    items: list[Any] = array.ravel().tolist()
    for place, x in enumerate(items):
        try:
            items[place] = float(x)
        except OverflowError:
            items[place] = np.inf
        if isinstance(x, int) and items[place] != x:
            raise Overflow(f"item {place} is an integer that is no float", tensor="", index=place)
    return np.array(items, np.float64).reshape(array.shape)


def _given(array: npt.NDArray[Any], scale: int = 0) -> Given:
    """Pack numbers for the native half."""
    if array.dtype == np.float64:
        return array.astype("<f8").tobytes(), 0, scale
    if array.dtype == np.int64:
        return array.astype("<i8").tobytes(), 1, 0
    items = array.ravel().tolist()
    each = max((x.bit_length() for x in items), default=0) // 64 + 1
    return b"".join(x.to_bytes(8 * each, "little", signed=True) for x in items), each, 0


def _integers(values: Any, what: str) -> npt.NDArray[Any]:
    array = _plain(values)
    if array.dtype == np.float64:
        raise _dtype_error(f"{what} are floats: there are only integers here", "float64")
    return array


def _split(data: bytes, each: int, signed: bool) -> list[int]:
    places = range(0, len(data), each)
    return [int.from_bytes(data[at : at + each], "little", signed=signed) for at in places]


def _fitting(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(str(shape) for shape in shapes)
        raise LayoutError(f"the shapes {text} do not fit", difference=text) from None


class EncryptedArray:
    """Encrypted numbers of any shape, one Paillier ciphertext each, as numpy's arrays.

    Integers lie between −n/3 and n/3. Fixed-point numbers are such integers k that stand for ``k / 2**scale``. Arrays
    are indexed, sliced, reshaped and iterated over, added to each other, and to numbers in clear or multiplied by
    them. A result beyond the bounds is an error when it is opened, or wraps around if it is far beyond.

    Made by `PublicKey.encrypt_ints`, `PublicKey.encrypt_floats` and `EncryptedArray.from_ints`. Arrays do not change.
    """

    __slots__ = ("_ciphertexts", "_shape")
    # Operators between numpy's arrays and this one are this one's.
    __array_ufunc__ = None

    def __init__(self, ciphertexts: Ciphertexts, shape: tuple[int, ...]) -> None:
        self._ciphertexts = ciphertexts
        self._shape = shape

    @staticmethod
    def from_ints(
        ciphertexts: Iterable[SupportsIndex], public: PublicKey | SecretKey | Keys, scale: int = 0
    ) -> EncryptedArray:
        """Take ciphertexts as integers, from 1 to n² − 1, of whichever library.

        Args:
            ciphertexts: The integers, in an array or a nested list of any shape.
            public: The key that they are under.
            scale: The binary digits after the point of what they encrypt.

        Raises:
            BadCiphertext: One is no ciphertext.
            KeyKind: The key is not of Paillier.
        """
        array = _integers(ciphertexts, "ciphertexts")
        data, each, _ = _given(array)
        return EncryptedArray(Ciphertexts.from_bytes(data, each, public, scale), array.shape)

    def to_ints(self) -> list[int]:
        """Return the ciphertexts as integers, the last axis fastest."""
        return _split(*self._ciphertexts.to_bytes(), signed=False)

    def __reduce__(self) -> tuple[Callable[..., EncryptedArray], tuple[Any, ...]]:
        data, each = self._ciphertexts.to_bytes()
        return _restored, (data, each, self._shape, self.public, self.scale)

    @property
    def public(self) -> PublicKey:
        """The key that they are under."""
        return self._ciphertexts.public

    @property
    def scale(self) -> int:
        """The binary digits after the point: 0 of integers."""
        return self._ciphertexts.scale

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of ciphertexts."""
        return len(self._ciphertexts)

    @property
    def T(self) -> EncryptedArray:  # noqa: N802
        """The array with its axes in reverse."""
        return self._at(self._places().T)

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("one encrypted number has no length")
        return self._shape[0]

    def __getitem__(self, key: Any) -> EncryptedArray:
        """Return what numpy's array would have at integers, slices, integer arrays or boolean masks.

        Raises:
            IndexError: There is no such place.
        """
        return self._at(np.asarray(self._places()[key]))

    def __iter__(self) -> Iterator[EncryptedArray]:
        len(self)
        return (self._at(np.asarray(places)) for places in self._places())

    def reshape(self, *shape: Any) -> EncryptedArray:
        """Return the same numbers in another shape, in which one length may be −1.

        Raises:
            ValueError: It holds more or fewer.
        """
        return EncryptedArray(self._ciphertexts, self._places().reshape(*shape).shape)

    def ravel(self) -> EncryptedArray:
        """Return all numbers along one axis."""
        return EncryptedArray(self._ciphertexts, (self.size,))

    def rescale(self, scale: int) -> EncryptedArray:
        """Return the same numbers at a larger scale.

        Raises:
            ScaleMismatch: It is smaller, so that digits would be lost.
        """
        found = self.scale
        if scale < found:
            text = f"numbers of scale {found} are not brought to a scale of {scale}, which is smaller"
            raise ScaleMismatch(text, found=found, expected=scale)
        if scale == found:
            return self
        return self._with(self._ciphertexts.mul(_given(np.ones(self.size), scale - found)))

    def __add__(self, other: Any) -> EncryptedArray:
        """Add encrypted numbers of the same scale, or numbers in clear, which are rounded to it.

        Raises:
            KeyMismatch: The others are under another key. ScaleMismatch: They are of another scale.
            LayoutError: The shapes do not fit.
            DtypeError: Floats, and these are integers. Overflow: One is beyond a third of n.
        """
        return self._plus(other, negate=False)

    def __radd__(self, other: Any) -> EncryptedArray:
        return self._plus(other, negate=False)

    def __neg__(self) -> EncryptedArray:
        return self.__mul__(-1)

    def __sub__(self, other: Any) -> EncryptedArray:
        """Subtract as `__add__` adds."""
        if isinstance(other, EncryptedArray):
            return self._plus(other.__neg__(), negate=False)
        return self._plus(other, negate=True)

    def __rsub__(self, other: Any) -> EncryptedArray:
        return self.__neg__()._plus(other, negate=False)

    def __mul__(self, factors: Any) -> EncryptedArray:
        """Multiply by public numbers, in time by their length.

        Integers leave the scale as it is. Floats are rounded to the scale of this array, and the result has twice it.

        Raises:
            LayoutError: The shapes do not fit.
            DtypeError: Floats, and these are integers. Overflow: One is not below n.
        """
        array = self._scaled(factors)
        shape = _fitting(self._shape, array.shape)
        given = _given(np.broadcast_to(array, shape), self.scale)
        return EncryptedArray(self._spread(shape).mul(given), shape)

    def __rmul__(self, factors: Any) -> EncryptedArray:
        return self.__mul__(factors)

    def __matmul__(self, matrix: Any) -> EncryptedArray:
        """Multiply by a public matrix or vector; of scales as `__mul__`.

        Raises:
            LayoutError: The shapes do not fit, or have more than two axes.
            DtypeError: Floats, and these are integers. Overflow: An entry is beyond 64 bits.
        """
        return self.T.__rmatmul__(self._scaled(matrix).T).T

    def __rmatmul__(self, matrix: Any) -> EncryptedArray:
        array = self._scaled(matrix)
        if array.ndim not in (1, 2) or self.ndim not in (1, 2) or array.shape[-1] != self._shape[0]:
            text = f"{array.shape} and {self._shape}"
            raise LayoutError(f"the shapes {text} do not fit in a product of matrices", difference=text)
        shape = array.shape[:-1] + self._shape[1:]
        rows = array.shape[0] if array.ndim == 2 else 1
        given = _given(array, self.scale)
        columns = np.atleast_2d(self._places().T)
        # Also a product without columns has the scale of products.
        made = [self._ciphertexts.take(b"").mul(_given(array.ravel()[:0], self.scale))]
        if len(columns):
            made = [self._ciphertexts.take(_bytes(places)).matvec(given, rows) for places in columns]
        whole = EncryptedArray(made[0].concatenate(made[1:]), (len(columns), rows))
        return whole.T.reshape(shape)

    def sum(self, axis: int | tuple[int, ...] | None = None) -> EncryptedArray:
        """Return the sum of all numbers, of shape (), or those along one or more axes."""
        kept = np.zeros(self._shape, np.int8).sum(axis=axis, keepdims=True)
        segments = np.arange(kept.size).reshape(kept.shape)
        shape = np.squeeze(kept, axis=axis).shape if self._shape else ()
        sums = self._ciphertexts.segment_sum(_bytes(np.broadcast_to(segments, self._shape)), kept.size)
        return EncryptedArray(sums, shape)

    def segment_sum(self, segment_ids: Any, num_segments: int) -> EncryptedArray:
        """Return the sum of the numbers of each segment: a histogram, if segments are bins.

        The sum of segment s is of all ``self[i]`` with ``segment_ids[i] == s``, of shape ``(num_segments,
        *self.shape[segment_ids.ndim:])``. An axis of this array that has the length 1 stands for as many as the ids
        have: ``c[:, None].segment_sum(bins, 32)`` adds the number of each row to a bin for each column of ``bins``.

        Args:
            segment_ids: Integers, the shape of which is that of the first axes.
            num_segments: The number of segments; those without a number are encrypted zeros that hide nothing.

        Raises:
            LayoutError: The shapes do not fit. IndexError: A segment is not below the number of them.
            DtypeError: The ids are no integers.
        """
        ids = _integers(segment_ids, "segments")
        count, rest = to_integer(num_segments), self._shape[ids.ndim :]
        shape = ids.shape + rest
        if ids.ndim > self.ndim or _fitting(self._shape, shape) != shape:
            text = f"{ids.shape} and {self._shape}"
            raise LayoutError(f"the segments and the numbers have the shapes {text}", difference=text)
        bad = np.argwhere((ids < 0) | (ids >= count))
        if len(bad):
            raise IndexError(f"segment {ids[tuple(bad[0])]} is not from 0 to {count - 1}")
        width = int(np.prod(rest))
        segments = ids.reshape(-1, 1) * width + np.arange(width)
        sums = self._spread(shape).segment_sum(_bytes(segments), count * width)
        return EncryptedArray(sums, (count, *rest))

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        if func is np.concatenate:
            return concatenate(*args, **kwargs)
        if func is np.sum:
            return EncryptedArray.sum(*args, **kwargs)
        return NotImplemented

    def __repr__(self) -> str:
        kind = f"numbers of scale {self.scale}" if self.scale else "integers"
        return f"<EncryptedArray of {kind}, shape {self._shape}, under key {self._ciphertexts.key_id}>"

    def _places(self) -> _Index:
        return np.arange(self.size).reshape(self._shape)

    def _at(self, places: _Index) -> EncryptedArray:
        return EncryptedArray(self._ciphertexts.take(_bytes(places)), places.shape)

    def _with(self, ciphertexts: Ciphertexts) -> EncryptedArray:
        return EncryptedArray(ciphertexts, self._shape)

    def _spread(self, shape: tuple[int, ...]) -> Ciphertexts:
        """Return the ciphertexts of the shape that this one is broadcast to."""
        if shape == self._shape:
            return self._ciphertexts
        return self._ciphertexts.take(_bytes(np.broadcast_to(self._places(), shape)))

    def _scaled(self, values: Any) -> npt.NDArray[Any]:
        """Return numbers in clear that these may be added to or multiplied by."""
        array = _plain(values)
        if array.dtype == np.float64 and not self.scale:
            raise _dtype_error("these are encrypted integers: encrypt_floats makes what floats go with", "float64")
        return array

    def _plus(self, other: Any, *, negate: bool) -> EncryptedArray:
        if isinstance(other, EncryptedArray):
            shape = _fitting(self._shape, other._shape)
            return EncryptedArray(self._spread(shape).add(other._spread(shape)), shape)
        array = self._scaled(other)
        if self.scale:
            array = _floats(array)
        shape = _fitting(self._shape, array.shape)
        given = _given(np.broadcast_to(array, shape), self.scale)
        return EncryptedArray(self._spread(shape).add_plain(given, negate), shape)


def _bytes(places: npt.NDArray[Any]) -> bytes:
    return places.astype("<i8").tobytes()


def concatenate(arrays: Sequence[EncryptedArray], axis: int = 0) -> EncryptedArray:
    """Join encrypted arrays along an axis, as numpy does, which may be called in its place.

    Raises:
        ValueError: There are none, or their other axes differ.
        KeyMismatch: They are under several keys. ScaleMismatch: They have several scales.
    """
    arrays = list(arrays)
    for array in arrays:
        if not isinstance(array, EncryptedArray):
            name = type(array).__name__
            raise _dtype_error(f"{name} is no encrypted array: encrypt it, or take it from the list", name)
    starts = np.cumsum([0] + [array.size for array in arrays])
    places = [array._places() + start for array, start in zip(arrays, starts, strict=False)]
    joined: _Index = np.concatenate(places, axis=axis)
    whole = arrays[0]._ciphertexts.concatenate([array._ciphertexts for array in arrays[1:]])
    return EncryptedArray(whole, (len(whole),))._at(joined)


def encrypt_ints(public: PublicKey, xs: Any) -> EncryptedArray:
    """See `PublicKey.encrypt_ints`."""
    array = _integers(xs, "the values")
    return EncryptedArray(Ciphertexts.encrypt(public, _given(array)), array.shape)


def encrypt_floats(public: PublicKey, xs: Any, scale: int) -> EncryptedArray:
    """See `PublicKey.encrypt_floats`."""
    array = _floats(_plain(xs))
    return EncryptedArray(Ciphertexts.encrypt(public, _given(array, scale)), array.shape)


def _opened(secret: SecretKey, array: EncryptedArray, *, floats: bool) -> tuple[bytes, int]:
    if not isinstance(array, EncryptedArray):
        raise TypeError(f"{type(array).__name__} is no encrypted array")
    return array._ciphertexts.open(secret, floats)


def decrypt_ints(secret: SecretKey, array: EncryptedArray) -> list[Any]:
    """See `SecretKey.decrypt_ints`."""
    opened = _split(*_opened(secret, array, floats=False), signed=True)
    if array.ndim < 2:
        return opened
    nested = np.empty(len(opened), object)
    nested[:] = opened
    made: list[Any] = nested.reshape(array.shape).tolist()
    return made


def decrypt_floats(secret: SecretKey, array: EncryptedArray) -> npt.NDArray[np.float64]:
    """See `SecretKey.decrypt_floats`."""
    data, _ = _opened(secret, array, floats=True)
    return np.frombuffer(data, "<f8").astype(np.float64).reshape(array.shape)


def _restored(data: bytes, each: int, shape: tuple[int, ...], public: PublicKey, scale: int) -> EncryptedArray:
    """Make a pickled array again."""
    ciphertexts = np.array(_split(data, each, signed=False), dtype=object)
    return EncryptedArray.from_ints(ciphertexts.reshape(shape), public, scale)
