"""Models that only key holders read: sealed before the first round, opened after the last."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

import ciphergram as cg

from .._answers import decrypt, opening_key, unpack
from ..errors import BadFrame, KeyKind, LayoutError, NoJob, NoRangesKey
from ._records import SEALED, SUM, is_integer, replaced, split, tensors, to_numpy, wrap

StrPath = str | os.PathLike[str]


def sealed_sum(record: ArrayRecord) -> bytes | None:
    """Return the sum in a record; None if its arrays are plain.

    Raises:
        LayoutError: Beside the sum are other arrays than of whole numbers.
    """
    array = record.get(SEALED)
    if array is None or array.stype != SUM:
        return None
    odd = [name for name, other in record.items() if name != SEALED and not is_integer(other)]
    if odd:
        raise LayoutError(f"beside a sum, {odd[0]!r} is in plain")
    return array.data


def open(arrays: ArrayRecord | StrPath, key: Any, *, job: Any = None) -> ArrayRecord:
    """Open a model that was summed or sealed: `Result.arrays`, or the file that `save` or `seal` wrote.

    Args:
        arrays: The record, or the path of the file.
        key: A secret key or a member's, or the path of its file.
        job: The job; None for the one beside the key.

    Returns:
        The model, its tensors in their own order. Plain arrays are returned as they are.

    Raises:
        KeyKind: The key opens nothing.
        KeyMismatch, TooFew, SumMismatch: As `SecretKey.decrypt`.
    """
    record = arrays if isinstance(arrays, ArrayRecord) else initial(arrays)
    data = sealed_sum(record)
    if data is None:
        if SEALED in record:
            raise BadFrame(f"what is sealed here is a {record[SEALED].stype}, not a sum")
        return record
    opened = decrypt(opening_key(key), data, job)
    return join(opened, {name: a for name, a in record.items() if name != SEALED})


def join(opened: cg.Opened, integers: dict[str, Array]) -> ArrayRecord:
    """Join what was opened and the tensors of whole numbers to a model's record."""
    return replaced({**integers, **{name: Array(values) for name, values in opened.items()}})


def job_of(job: Any, key: cg.PublicKey | cg.SecretKey | cg.Member) -> cg.Job:
    """Return a job, given as one or as the path of its file; None for the one beside the key.

    Raises:
        NoJob: There is none.
    """
    if isinstance(job, str | os.PathLike):
        public = key if isinstance(key, cg.PublicKey) else key.public
        job = cg.Job.load(os.fspath(job), public)
    found = job or key.job
    if found is None:
        raise NoJob("no job.json is beside the key: say job=")
    return found


def ranges_key_of(ranges_key: Any, key: Any, job: cg.Job) -> cg.RangesKey | None:
    """Return the key that a job's private ranges are found with, given as one or as the path of its file.

    None is the file beside the key, if that has one; where clients show their ranges none is needed.

    Raises:
        NoRangesKey: There is none, or the package was built without private ranges.
    """
    if job.private_ranges is None:
        return None
    if isinstance(ranges_key, cg.RangesKey):
        return ranges_key
    if ranges_key is None and isinstance(key, str | os.PathLike):
        path = Path(key)
        ranges_key = (path if path.is_dir() else path.parent) / "ranges-evaluation.cgk"
    if ranges_key is None:
        raise NoRangesKey("the job agrees on private ranges: say ranges_key=, ranges-evaluation.cgk")
    return cg.RangesKey.load(ranges_key)


def seal(
    arrays: ArrayRecord, key: Any, path: StrPath, *, job: Any = None, ranges_key: Any = None
) -> None:
    """Seal a model that training begins with, so that the server never sees it.

    It is sealed as the sum of the fewest contributions that the job opens, all of the same values: the holder of
    the key makes one for each of the first clients, and so takes a round of theirs.

    Args:
        arrays: The model, in plain.
        key: A secret key, or the path of its file.
        path: The file to write, for `initial`.
        job: The job, or the path of its file; None for the one beside the key.
        ranges_key: The key that the job's private ranges are found with, if it has such, or the path of its file; None
            for the one beside the key.

    Raises:
        KeyKind: The key seals nothing.
        NoJob: No job is known.
        NotFinite, BeyondJob: As `SecretKey.encrypt`.
    """
    secret = opening_key(key)
    if isinstance(secret, cg.Member):
        raise KeyKind("a model is sealed under a secret key, and members have none: let the first round begin in plain")
    job = job_of(job, secret)
    ranges_key = ranges_key_of(ranges_key, key, job)
    sealed, integers = split(arrays)
    values = tensors(sealed)
    numbers = range(job.min_clients)
    proposals = [secret.propose(values, client=number, job=job) for number in numbers]
    terms = cg.join_round(proposals, secret.public, job=job, ranges_key=ranges_key)
    parts = [
        secret.encrypt(values, client=number, terms=terms, announcement=own, job=job)
        for number, own in zip(numbers, proposals, strict=True)
    ]
    total = cg.aggregate(parts, secret.public, job=job)
    save(ArrayRecord({SEALED: wrap(total, SUM), **integers}), path)


def save(arrays: ArrayRecord, path: StrPath) -> None:
    """Write a summed model, such as `Result.arrays`, to a file for `initial` or `open`; one that is there is replaced.

    Raises:
        BadFrame: The arrays are plain.
    """
    data = sealed_sum(arrays)
    if data is None:
        raise BadFrame("the arrays are plain: there is nothing sealed to save")
    integers = {name: to_numpy(a) for name, a in arrays.items() if name != SEALED}
    entries: dict[str, Any] = {SEALED: np.frombuffer(data, np.uint8), **integers}
    with Path(path).open("wb") as file:
        np.savez(file, **entries)


def initial(path: StrPath) -> ArrayRecord:
    """Read a model that `seal` or `save` wrote, to give to `Encrypted.start`. Takes no key.

    Raises:
        BadFrame: The file is none of these.
    """
    try:
        with np.load(Path(path), allow_pickle=False) as file:
            entries = {name: file[name] for name in file.files}
        data = entries.pop(SEALED).tobytes()
    except (ValueError, KeyError, EOFError, AttributeError) as error:
        raise BadFrame(f"{os.fspath(path)} holds no sealed model: {error}") from None
    if not isinstance(cg.loads(unpack(data)[0]), cg.Sum):
        raise BadFrame(f"{os.fspath(path)} holds no sum")
    integers = {name: Array(values) for name, values in entries.items()}
    record = ArrayRecord({SEALED: wrap(data, SUM), **integers})
    sealed_sum(record)
    return record
