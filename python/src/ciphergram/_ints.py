"""Integers of any size, to and from the words of Paillier."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index as to_integer
from typing import SupportsIndex

from .errors import BadCiphertext, DtypeError, LayoutError, Overflow


def from_bytes(data: bytes) -> int:
    """Return the integer of these bytes, the lowest first."""
    return int.from_bytes(data, "little")


def _bound(n: int) -> int:
    # What lies between this and n less this is no one's plaintext: sums that overflow are found
    # there.
    return n // 3 - 1


def _integers(xs: Iterable[SupportsIndex]) -> list[int]:
    try:
        items = list(xs)
    except TypeError:
        name = type(xs).__name__
        raise DtypeError(f"{name} is no list of integers", tensor="", dtype=name) from None
    values = []
    for index, x in enumerate(items):
        try:
            values.append(to_integer(x))
        except TypeError:
            name = type(x).__name__
            text = f"item {index} is {name}, not an integer"
            raise DtypeError(text, tensor="", dtype=name) from None
    return values


def _spread(given: SupportsIndex | Iterable[SupportsIndex], count: int) -> list[int]:
    # numpy's arrays have an index too, which they refuse to give unless they hold one integer.
    try:
        return [to_integer(given)] * count  # type: ignore[arg-type]
    except TypeError:
        values = _integers(given)  # type: ignore[arg-type]
    if len(values) != count:
        raise LayoutError(f"{len(values)} integers for {count} that are encrypted")
    return values


def pack(xs: Iterable[SupportsIndex], n: int, each: int) -> bytes:
    """Return integers as plaintexts modulo n of `each` bytes, negative ones as n less |x|.

    Raises:
        Overflow: One is beyond a third of n.
        DtypeError: One is no integer.
    """
    bound, out = _bound(n), bytearray()
    for index, value in enumerate(_integers(xs)):
        if abs(value) > bound:
            raise Overflow(f"item {index} is beyond a third of n", tensor="", index=index)
        out += (value % n).to_bytes(each, "little")
    return bytes(out)


def summands(
    given: SupportsIndex | Iterable[SupportsIndex], count: int, n: int, each: int
) -> bytes:
    """Return integers to add, one for each of `count` or one for all, as `pack` does."""
    return pack(_spread(given, count), n, each)


def unpack(data: bytes, n: int, each: int) -> list[int]:
    """Return the integers of plaintexts modulo n of `each` bytes.

    Raises:
        Overflow: A result was too large.
    """
    bound, values = _bound(n), split(data, each)
    for index, value in enumerate(values):
        if value > bound:
            if value < n - bound:
                text = f"item {index} is beyond a third of n: a result overflowed"
                raise Overflow(text, tensor="", index=index)
            values[index] = value - n
    return values


def split(data: bytes, each: int) -> list[int]:
    """Return the integers of `each` bytes that follow one another."""
    places = range(0, len(data), each)
    return [int.from_bytes(data[at : at + each], "little") for at in places]


def pack_ciphertexts(xs: Iterable[SupportsIndex], each: int) -> bytes:
    """Return integers in `each` bytes.

    Raises:
        BadCiphertext: One is negative, or too large for any ciphertext.
    """
    out = bytearray()
    for index, value in enumerate(_integers(xs)):
        if value < 0 or value.bit_length() > 8 * each:
            raise BadCiphertext(f"item {index} is no ciphertext of this key", chunk=index)
        out += value.to_bytes(each, "little")
    return bytes(out)


def scalars(
    given: SupportsIndex | Iterable[SupportsIndex], count: int, n: int, each: int
) -> tuple[bytes, list[bool]]:
    """Return the magnitudes of public factors, one for each of `count`, and which are negative."""
    values = _spread(given, count)
    for index, value in enumerate(values):
        if abs(value) >= n:
            raise Overflow(f"factor {index} is not below n", tensor="", index=index)
    magnitudes = b"".join(abs(value).to_bytes(each, "little") for value in values)
    return magnitudes, [value < 0 for value in values]
