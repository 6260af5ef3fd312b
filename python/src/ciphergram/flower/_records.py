"""What Flower's records hold: plain arrays, ciphertexts, and what a client and the server tell each other."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, RecordDict

from ..errors import BadFrame, DtypeError

# A child of Flower's logger, so that lines are seen where those of Flower are.
LOG = logging.getLogger("flwr.ciphergram")

CONTRIBUTION = "ciphergram.contribution/1"
SUM = "ciphergram.sum/1"
ANNOUNCEMENT = "ciphergram.announcement/1"
# In place of a sum that nodes have already: its name.
SUM_NAME = "ciphergram.sum-name/1"
ANSWER = "ciphergram.answer/1"

# The record of openers' prekeys in messages to clients, and their name in it and in what the two talk by.
PREKEYS = "ciphergram.prekeys"

# The name of a ciphertext in its record, and of the record that the mod and the strategy talk by.
SEALED = "ciphergram"
TALK = "ciphergram"

# The server's address, where rounds are held over datagrams.
SERVER = "server"

# What Flower's SecAgg+ looks for in a message, and why it is not there.
SECAGG_KEY = "secaggplus_configs"
SECAGG = "secaggplus_mod cannot stand beside ciphergram's mod, as both encrypt the update: leave one of them out"

WEIGHT = "num-examples"
CLIPPED = "ciphergram-clipped"

_PLACED = re.compile(r"\d{5}:")


def wrap(data: Any, stype: str) -> Array:
    """Wrap a frame, anything with the buffer protocol, as one Array of its bytes."""
    frame = bytes(data)
    return Array(dtype="uint8", shape=(len(frame),), stype=stype, data=frame)


class OpenerAnswer(bytes):
    """What an opener answered to a request."""


class SumName(NamedTuple):
    """The name of a sum that nodes have already: the number of its round, and the SHA-256 of its bytes."""

    round: int
    digest: bytes

    @classmethod
    def of(cls, round: int, sealed: Array) -> SumName:
        """Name a sum that is wrapped."""
        return cls(round, hashlib.sha256(sealed.data).digest())

    @classmethod
    def from_bytes(cls, data: object) -> SumName:
        """Read what `to_bytes` wrote.

        Raises:
            BadFrame: It is no name.
        """
        if not isinstance(data, bytes) or len(data) != 40:
            raise BadFrame("the name of a sum has 40 bytes")
        return cls(int.from_bytes(data[:8], "little"), data[8:])

    def to_bytes(self) -> bytes:
        """Return the number, in 8 bytes from the lowest, and the digest."""
        return self.round.to_bytes(8, "little") + self.digest


def sum_name(record: ArrayRecord) -> SumName | None:
    """Return the name that stands for its sum in a record; None if there is no such thing.

    Raises:
        BadFrame: It is no name.
    """
    array = record.get(SEALED)
    if array is None or array.stype != SUM_NAME:
        return None
    return SumName.from_bytes(array.data)


def digest(record: ArrayRecord) -> bytes:
    """Return the SHA-256 of a model: of its names, types, shapes and values."""
    state = hashlib.sha256()
    for name, array in record.items():
        state.update(repr((name, array.dtype, tuple(array.shape), len(array.data))).encode())
        state.update(array.data)
    return state.digest()


def only_record(content: RecordDict) -> tuple[str, ArrayRecord]:
    """Return the name and the record of the arrays of a message.

    Raises:
        BadFrame: There is none, or more than one.
    """
    records = list(content.array_records.items())
    if len(records) != 1:
        raise BadFrame(f"a message has one record of arrays, not {len(records)}")
    return records[0]


def place(names: Iterable[str]) -> list[str]:
    """Return the names that tensors are sealed under: a sum has its tensors sorted, and a model its own order.

    Names that are sorted stay as they are; others are put after their place, ``00002:fc.weight``.
    """
    given = list(names)
    if given == sorted(given) and not any(_PLACED.match(name) for name in given):
        return given
    return [f"{at:05}:{name}" for at, name in enumerate(given)]


def replaced(placed: Mapping[str, Array]) -> ArrayRecord:
    """Return a model's record of what is under the names of `place`, in the model's own order."""
    return ArrayRecord({_PLACED.sub("", name, count=1): placed[name] for name in sorted(placed)})


def is_integer(array: Array) -> bool:
    """Return whether an array is of whole numbers, which are not averaged."""
    return array.dtype.startswith(("int", "uint", "bool"))


def split(record: ArrayRecord) -> tuple[dict[str, Array], dict[str, Array]]:
    """Split a model into what is sealed and what stays with the client, both under the names of `place`."""
    sealed: dict[str, Array] = {}
    kept: dict[str, Array] = {}
    for name, array in zip(place(record), record.values(), strict=True):
        (kept if is_integer(array) else sealed)[name] = array
    return sealed, kept


def to_numpy(array: Array) -> npt.NDArray[Any]:
    """Return the values of a plain array.

    Raises:
        DtypeError: It is no plain array.
    """
    try:
        values = array.numpy()
    except (TypeError, ValueError) as error:
        raise DtypeError(f"an array is not plain: {error}") from None
    if array.dtype == "bfloat16" and values.dtype.kind == "V":
        import ml_dtypes

        return values.view(np.dtype(ml_dtypes.bfloat16))
    return values


def tensors(sealed: Mapping[str, Array]) -> dict[str, npt.NDArray[Any]]:
    """Return the values of plain arrays by their names."""
    return {name: to_numpy(array) for name, array in sealed.items()}
