"""A table of what must fail, each with one error that names what is wrong: never a panic, never a hang."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import blake3
import ciphergram as cg
import ml_dtypes
import numpy as np
import pytest

# What every frame ends with; it finds damage, not malice.
DIGEST_BYTES = 32


@dataclass
class World:
    """What the rows of the table are tried on: keys of four clients, and three contributions to round 1."""

    folder: Path
    keys: cg.Keys = field(default_factory=lambda: cg.keygen("ckks-sum", clients=4))
    others: cg.Keys = field(default_factory=lambda: cg.keygen("ckks-sum", clients=4))
    update: dict[str, Any] = field(
        default_factory=lambda: {"w": np.ones((3, 2), np.float32), "b": np.zeros(5, np.float32)}
    )

    def __post_init__(self) -> None:
        self.parts = [self.encrypt(client=client, round=1) for client in range(3)]

    def encrypt(self, tensors: Any = None, **options: Any) -> cg.Contribution:
        """Encrypts an update of client 0, unless something else is said."""
        given = {"client": 0, "ranges": 1.0, **options}
        return self.keys.encrypt(self.update if tensors is None else tensors, **given)

    def of(self, array: Any, **options: Any) -> cg.Contribution:
        """Encrypts one tensor."""
        return self.encrypt({"w": array}, **options)

    @property
    def sum(self) -> cg.Sum:
        """The sum of all three."""
        return cg.aggregate(self.parts, self.keys.public)

    def file(self, data: bytes) -> Path:
        """Writes a file and returns its path."""
        path = self.folder / "file"
        path.write_bytes(data)
        return path


@dataclass(frozen=True)
class Row:
    """A line of the table: what is tried, the error that it ends with, and words of its message."""

    name: str
    attempt: Callable[[World], object]
    error: type[Exception] | tuple[type[Exception], ...]
    words: str | None = None


def arrays(dtype: Any) -> list[Any]:
    """Returns arrays of NaN and of infinities, of a type of floats."""
    return [np.array([0, 1, bad], dtype) for bad in (np.nan, np.inf, -np.inf)]


def dtypes() -> list[Row]:
    """Returns rows of types that cannot be summed."""
    given = {
        "objects": np.array([object()]),
        "None": None,
        "text": "text",
        "text in an array": np.array(["a", "b"]),
        "complex": np.ones(3, np.complex64),
        "dates": np.array([1], "M8[s]"),
        "records": np.zeros(3, [("a", "f4")]),
        "a longer float": np.ones(3, np.longdouble),
        "int64": np.ones(3, np.int64),
        "uint8": np.ones(3, np.uint8),
        "bool": np.ones(3, bool),
        "integers in a list": [1, 2, 3],
        "int4": np.ones(3, ml_dtypes.int4),
        "float8": np.ones(3, ml_dtypes.float8_e4m3fn),
    }
    return [
        Row(f"dtype: {name}", lambda world, array=array: world.of(array), cg.DtypeError, "'w'|\"w\"")
        for name, array in given.items()
    ]


def values() -> list[Row]:
    """Returns rows of values that are no numbers, or too large."""
    types = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
    rows = [
        Row(
            f"value: {array[2]} of {np.dtype(dtype).name}",
            lambda world, array=array: world.of(array),
            cg.NotFinite,
            '"w" has .* at index 2',
        )
        for dtype in types
        for array in arrays(dtype)
    ]
    wide = np.array([2**53], np.int64)
    summed = {"integers": "sum", "ranges": 9.0}
    return [
        *rows,
        Row("value: NaN, measured", lambda w: cg.ranges({"w": arrays("f4")[0]}), cg.NotFinite, '"w"'),
        Row("value: NaN, proposed", lambda w: w.keys.propose({"w": arrays("f4")[0]}, client=0),
            cg.NotFinite, '"w"'),
        Row("value: an integer that is too wide", lambda w: w.of(wide, **summed), cg.Overflow, '"w"'),
    ]


LAYOUTS = [
    Row("layout: a list", lambda w: w.encrypt([np.ones(3)]), cg.LayoutError, "mapping"),
    Row("layout: a number as a name", lambda w: w.encrypt({1: np.ones(3)}), cg.LayoutError, "name 1"),
    Row("layout: a tensor less", lambda w: w.of(np.ones(3, np.float32), ranges=cg.ranges(w.update)),
        cg.LayoutError, '"b"'),
    Row("layout: another shape", lambda w: w.encrypt(
        w.update | {"b": np.ones(4, np.float32)}, ranges=cg.ranges(w.update)), cg.LayoutError, '"b"'),
    Row("layout: another type", lambda w: w.encrypt(
        w.update | {"b": np.ones(5)}, ranges=cg.ranges(w.update)), cg.LayoutError, '"b"'),
    Row("layout: a range of no tensor", lambda w: w.of(np.ones(3), ranges={"w": 1.0, "v": 1.0}),
        cg.LayoutError, '"v"'),
    Row("layout: a tensor without a range", lambda w: w.encrypt(ranges={"w": 1.0}),
        cg.LayoutError, '"b"'),
    Row("layout: another client's tensors", lambda w: cg.aggregate(
        [w.parts[0], w.of(np.ones(3, np.float32), client=3, round=1)], w.keys.public),
        cg.LayoutError, "contribution 1"),
    Row("ranges: NaN", lambda w: w.encrypt(ranges=float("nan")), cg.ParameterError, "range"),
    Row("ranges: negative", lambda w: w.encrypt(ranges=-1.0), cg.ParameterError, "range"),
    Row("ranges: infinite", lambda w: w.encrypt(ranges=float("inf")), cg.ParameterError, "range"),
    Row("ranges: text", lambda w: w.encrypt(ranges="max"), ValueError, "ranges="),
    Row("ranges: none, and none settled", lambda w: w.encrypt(ranges=None), cg.ParameterError, "ranges="),
    Row("ranges: beyond the job's", lambda w: w.encrypt(ranges=7e4), cg.BeyondJob, "max_range="),
    Row("ranges: another client's", lambda w: cg.aggregate(
        [w.parts[0], w.encrypt(client=3, round=1, ranges=0.5)], w.keys.public),
        cg.RangesDiffer, "contribution 1"),
    Row("ranges: no such policy", lambda w: cg.ranges(w.update, policy="widest"),
        cg.ParameterError, "policy="),
    Row("ranges: a policy of no number", lambda w: cg.ranges(w.update, policy="fixed:x"),
        cg.ParameterError, "policy="),
    Row("ranges: text that is none", lambda w: cg.Ranges.from_json("{}"), cg.BadFrame, "ranges"),
    Row("ranges: merged of none", lambda w: cg.merge_ranges([]), cg.TooFew),
    Row("ranges: merged of other tensors", lambda w: cg.merge_ranges(
        [cg.ranges(w.update), cg.ranges({"v": np.ones(3)})]), cg.LayoutError),
]

ARGUMENTS = [
    Row("weight: 0", lambda w: w.encrypt(weight=0), cg.WeightError, "weight 0 is no contribution"),
    Row("weight: above the largest", lambda w: w.encrypt(weight=9, max_weight=3), cg.WeightError, "weight 9"),
    Row("weight: negative", lambda w: w.encrypt(weight=-1), cg.WeightError, "weight -1 is no weight"),
    Row("weight: a fraction", lambda w: w.encrypt(weight=0.5), cg.WeightError, "scale the weights of all clients"),
    Row("weight: no number", lambda w: w.encrypt(weight=float("nan")), cg.WeightError),
    Row("weight: above the job's", lambda w: w.encrypt(weight=100_001), cg.WeightError, "100001 .*say max_weight="),
    Row("weight: a truth value", lambda w: w.encrypt(weight=True), TypeError, "a truth value is no number"),
    Row("weight: huge", lambda w: w.encrypt(weight=2**80), cg.WeightError, "no weight"),
    Row("client: one too many", lambda w: w.encrypt(client=4), cg.ClientNumberError, "client 4"),
    Row("client: negative", lambda w: w.encrypt(client=-1), cg.ParameterError, "not a number that there can be"),
    Row("client: huge", lambda w: w.encrypt(client=2**20), cg.ParameterError, "not a number that there can be"),
    Row("client: a key of none", lambda w: w.keys.secret.client(-1), cg.ParameterError, "not a number"),
    Row("ranges: a negative weight", lambda w: cg.ranges(w.update).replace({}, max_weight=-1), cg.ParameterError),
    Row("client: key of its own, where it is shared", lambda w: w.keys.secret.client(0), cg.KeyKind),
    Row("round: over", lambda w: w.encrypt(round=1), cg.RoundOver, "round 1"),
    Row("round: before that", lambda w: w.encrypt(round=0), cg.RoundOver, "round 1"),
    Row("round: negative", lambda w: w.encrypt(round=-1), cg.ParameterError, "not a number that there can be"),
    Row("clip: negative", lambda w: w.encrypt(clip=-1.0), cg.ParameterError, "clip="),
    Row("clip: NaN", lambda w: w.encrypt(clip=float("nan")), cg.ParameterError, "clip="),
    Row("integers: no such way", lambda w: w.encrypt(integers="maybe"), cg.ParameterError, "integers="),
    Row("engine: no such", lambda w: w.encrypt(engine="tpu"), cg.ParameterError, "engine="),
    Row("engine: no such, to sum", lambda w: cg.Summing(w.keys.public, engine="tpu"),
        cg.ParameterError, "engine="),
    Row("keygen: no client", lambda w: cg.keygen(clients=0), cg.ParameterError, "0 clients"),
    Row("keygen: too many clients", lambda w: cg.keygen(clients=10**6), cg.ParameterError, "1000000 clients"),
    Row("keygen: too many bits", lambda w: cg.keygen(clients=3, bits=40), cg.ParameterError, "40 bits"),
    Row("keygen: no such scheme", lambda w: cg.keygen("rsa", clients=3), cg.ParameterError, '"rsa"'),
    Row("keygen: a minimum of more than all", lambda w: cg.keygen(clients=3, min_clients=4),
        cg.ParameterError, "at least 4"),
    Row("keygen: levels of ranges that are told", lambda w: cg.keygen(clients=3, levels=8), cg.ParameterError,
        'levels= is for ranges="agree"'),
    Row("job: no rank", lambda w: cg.Job(w.keys, ranges="2"), cg.ParameterError, "agree:K"),
    Row("job: rank 0", lambda w: cg.Job(w.keys, ranges="agree:0"), cg.ParameterError, "K-th largest"),
    Row("job: private ranges of a public key", lambda w: cg.Job(w.keys.public, ranges="agree"), cg.KeyKind,
        "PublicKey is none"),
    Row("job: private ranges of a key without their secret", lambda w: cg.Job(w.keys, ranges="agree"), cg.NoRangesKey,
        "no secret of ranges"),
    Row("ranges: private ones of a job that has none", lambda w: cg.ranges(w.update, private=w.keys, client=0),
        cg.ParameterError, "no private ranges"),
    Row("ranges: private ones of nobody", lambda w: cg.ranges(w.update, private=w.keys),
        cg.ClientNumberError, "client"),
    Row("ranges: a client of ranges that are told", lambda w: cg.ranges(w.update, client=0), cg.ParameterError,
        "client= and job= are for private="),
    Row("ranges: a weight of private ones", lambda w: cg.ranges(w.update, private=w.keys, client=0, weight=2),
        cg.ParameterError, "leave weight= out"),
    Row("ranges: a job of ranges that are told", lambda w: cg.merge_ranges([], job=w.keys.job),
        cg.ParameterError, "job= is for ranges_key="),
    Row("ranges: a key to find private ones that is none", lambda w: cg.merge_ranges([], ranges_key=w.keys), TypeError,
        "RangesKey"),
    Row("keygen: a range of NaN", lambda w: cg.keygen(clients=3, max_range=float("nan")),
        cg.ParameterError, "NaN"),
    Row("threads: none", lambda w: cg.set_threads(0), cg.ParameterError, "0 threads"),
    Row("threads: more than a machine has", lambda w: cg.set_threads(2000), cg.ParameterError, "2000"),
]


def exchange(world: World, clients: tuple[int, ...]) -> tuple[cg.RoundTerms, list[cg.Announcement]]:
    """Returns a round's terms that these clients proposed, and what they announced."""
    announced = [world.keys.propose(world.update, client=client) for client in clients]
    return cg.join_round(announced, world.keys.public), announced


def without_announcement(world: World) -> object:
    """Contributes under terms, and does not say what was announced."""
    terms, _ = exchange(world, (0, 1, 2))
    return world.encrypt(terms=terms, ranges=None)


def not_listed(world: World) -> object:
    """Contributes to a round whose terms do not list the client."""
    terms, _ = exchange(world, (0, 1))
    own = world.keys.propose(world.update, client=3)
    return world.keys.encrypt(world.update, client=3, terms=terms, announcement=own)


def smaller_ranges(world: World) -> object:
    """Contributes under terms whose ranges are below what the client announced."""
    small = {name: array / 64 for name, array in world.update.items()}
    terms, _ = exchange(world, (1, 2))
    narrow = cg.join_round(
        [world.keys.propose(small, client=client) for client in range(2)], world.keys.public
    )
    assert terms.round == narrow.round
    own = world.keys.propose(world.update, client=0)
    return world.keys.encrypt(world.update, client=0, terms=narrow, announcement=own)


PARTS = [
    Row("key: another, to sum", lambda w: cg.aggregate(w.parts, w.others.public), cg.KeyMismatch, "key"),
    Row("key: another, to open", lambda w: w.others.decrypt(w.sum), cg.KeyMismatch, "made under key"),
    Row("key: another, to read", lambda w: cg.loads(bytes(w.parts[0]), w.others.public),
        cg.KeyMismatch, "made under key"),
    Row("key: no key", lambda w: cg.aggregate(w.parts, "public.json"), cg.KeyKind, "str"),
    Row("key: unknown, to add", lambda w: cg.loads(bytes(w.parts[0])) + cg.loads(bytes(w.parts[1])),
        cg.KeyMismatch, "key="),
    Row("key: unused for integers", lambda w: w.keys.public.encrypt_ints([1]), cg.KeyKind),
    Row("round: another client's", lambda w: cg.aggregate(
        [w.parts[0], w.encrypt(client=3, round=2)], w.keys.public), cg.RoundMismatch, "round"),
    Row("job: another", lambda w: cg.aggregate([w.parts[0], w.encrypt(
        client=3, round=1, job=cg.Job(w.keys.public, max_weight=5))], w.keys.public), cg.JobMismatch),
    Row("job: of another key", lambda w: w.encrypt(job=w.others.job), (cg.JobMismatch, cg.KeyMismatch)),
    Row("sum: of nothing", lambda w: cg.aggregate([], w.keys.public), cg.TooFew),
    Row("sum: of too few", lambda w: w.keys.decrypt(w.parts[0] + w.parts[1]), cg.TooFew, "sum of 2"),
    Row("sum: of the same twice", lambda w: cg.aggregate([w.parts[0]] * 2, w.keys.public),
        cg.DuplicateClient, "contribution 1"),
    Row("sum: of one client twice", lambda w: w.sum + w.parts[0], cg.DuplicateClient),
    Row("sum: of a number", lambda w: cg.aggregate([1], w.keys.public), TypeError),
    Row("sum: of a list of tensors", lambda w: cg.aggregate([w.update], w.keys.public), TypeError),
    Row("sum: finished twice", lambda w: [s := cg.Summing(w.keys.public).add(w.parts[0]), s.finish(),
                                          s.finish()], cg.CiphergramError),
    Row("kind: a contribution where a sum belongs", lambda w: w.keys.decrypt(w.parts[0]),
        cg.BadFrame, "a contribution where a sum belongs"),
    Row("kind: an announcement where a contribution belongs", lambda w: cg.aggregate(
        [bytes(w.keys.propose(w.update, client=0))], w.keys.public), cg.BadFrame),
    Row("kind: a contribution as a key", lambda w: cg.load_keys(w.file(bytes(w.parts[0]))),
        (cg.BadFrame, cg.FileError)),
    Row("kind: nothing", lambda w: cg.loads(b""), cg.BadFrame),
    Row("kind: text", lambda w: cg.loads("contribution"), TypeError),
    Row("kind: bytes after the end", lambda w: cg.loads(bytes(w.parts[0]) + b"x"), cg.BadFrame, "past the end"),
    Row("terms: without the announcement", without_announcement, cg.ParameterError, "announcement="),
    Row("terms: of others", not_listed, cg.BadTerms),
    Row("terms: narrower than announced", smaller_ranges, cg.BadTerms),
    Row("terms: of nobody", lambda w: cg.join_round([], w.keys.public), cg.TooFew),
]

FILES = [
    Row("file: none", lambda w: cg.load(w.folder / "none"), cg.FileError, "none: No such file"),
    Row("file: no key", lambda w: cg.load_keys(w.folder / "none"), cg.FileError, "none: No such file"),
    Row("file: a folder without a key", lambda w: cg.load_keys(w.folder), cg.FileError, "secret.json"),
    Row("file: no tensors", lambda w: w.encrypt(w.file(b"\x00" * 20)), cg.BadFrame, "file"),
    Row("file: tensors larger than it", lambda w: w.encrypt(w.file(b"\xff" * 8 + b"{}")), cg.BadFrame),
    Row("file: a key that is cut", lambda w: cg.load_keys(w.file(b'{"kty": "CKKS')), cg.BadFrame),
    Row("file: a folder that is there", lambda w: w.keys.save(w.folder), cg.Exists, "exists"),
    Row("file: a key that is there", lambda w: w.keys.public.save(w.file(b"")), cg.Exists, "exists"),
    Row("file: no folder to save in", lambda w: w.keys.public.save(w.folder / "no" / "key"), cg.FileError),
    Row("pickle: a secret key", lambda w: pickle.dumps(w.keys.secret), TypeError, "secret"),
    Row("pickle: keys", lambda w: pickle.dumps(w.keys), TypeError, "secret"),
    Row("pickle: a cut contribution", lambda w: pickle.loads(pickle.dumps(w.parts[0])[:-9]), Exception),
]



@cache
def paillier() -> cg.Keys:
    """Returns one key for all rows of integers."""
    return cg.keygen("paillier-2048", clients=3)


def ints(values: Any = ((1, 2, 3), (4, 5, 6))) -> cg.EncryptedArray:
    """Encrypts integers, 2 × 3 of them unless something else is said."""
    return paillier().public.encrypt_ints(values)


def floats(values: Any = (0.5, 1.5, 2.5), scale: Any = 40) -> cg.EncryptedArray:
    """Encrypts three numbers, unless something else is said."""
    return paillier().public.encrypt_floats(values, scale)


INTEGERS = [
    Row("ints: floats", lambda w: ints([1.5]), cg.DtypeError, "integers"),
    Row("ints: text", lambda w: ints(["1"]), cg.DtypeError, "str"),
    Row("ints: ragged", lambda w: ints([[1, 2], [3]]), cg.DtypeError, "list"),
    Row("ints: too large", lambda w: ints([0, 2**2047]), cg.Overflow, "item 1"),
    Row("ints: another shape, to add", lambda w: ints() + [1, 2], cg.LayoutError, r"\(2, 3\) and \(2,\)"),
    Row("ints: another shape, to multiply", lambda w: ints() * np.ones((3, 2), int), cg.LayoutError),
    Row("ints: a matrix of another shape", lambda w: np.ones((2, 3), int) @ ints(), cg.LayoutError, "matrices"),
    Row("ints: a number as a matrix", lambda w: ints() @ 3, cg.LayoutError, "matrices"),
    Row("ints: a matrix of large integers", lambda w: np.array([2**70, 1]) @ ints(), cg.Overflow, "64 bits"),
    Row("ints: floats, to add", lambda w: ints() + 0.5, cg.DtypeError, "encrypt_floats"),
    Row("ints: floats, to multiply", lambda w: ints() * 0.5, cg.DtypeError, "encrypt_floats"),
    Row("ints: encrypted, to multiply", lambda w: ints() * ints(), cg.DtypeError, "in clear"),
    Row("ints: a factor that is too large", lambda w: ints() * 2**2048, cg.Overflow, "item 0"),
    Row("ints: of another key", lambda w: ints([1]) + cg.keygen("paillier-2048", clients=3).public.encrypt_ints([1]),
        cg.KeyMismatch),
    Row("ints: of another key, to join", lambda w: cg.concatenate(
        [ints([1]), cg.keygen("paillier-2048", clients=3).public.encrypt_ints([1])]), cg.KeyMismatch),
    Row("ints: plain, to join", lambda w: np.concatenate([ints([1]), [1]]), cg.DtypeError, "list"),
    Row("ints: of other shapes, to join", lambda w: cg.concatenate([ints(), ints([1])]), ValueError),
    Row("ints: none to join", lambda w: cg.concatenate([]), ValueError),
    Row("ints: beyond the end", lambda w: ints()[2], IndexError),
    Row("ints: too many axes", lambda w: ints()[0, 0, 0], IndexError),
    Row("ints: a mask of another length", lambda w: ints()[[True, False, True]], IndexError),
    Row("ints: the length of one", lambda w: len(ints()[0, 0]), TypeError),
    Row("ints: through one", lambda w: list(ints()[0, 0]), TypeError),
    Row("ints: another number in a shape", lambda w: ints().reshape(4, 2), ValueError),
    Row("ints: no such axis", lambda w: ints().sum(axis=2), ValueError, "axis"),
    Row("ints: a segment too many", lambda w: ints().segment_sum([0, 2], 2), IndexError, "segment 2"),
    Row("ints: a segment below", lambda w: ints().segment_sum([-1, 0], 2), IndexError, "segment -1"),
    Row("ints: segments of another shape", lambda w: ints().segment_sum([0, 1, 0], 2), cg.LayoutError),
    Row("ints: segments of floats", lambda w: ints().segment_sum([0.0, 1.0], 2), cg.DtypeError, "segments"),
    Row("ints: a function of numpy's", lambda w: np.sort(ints()), TypeError),  # type: ignore[call-overload]
    # From below a third of n, wherever that is, to beyond it in steps that do not miss it.
    Row("ints: a result that overflowed", lambda w: [
        paillier().secret.decrypt_ints(ints([2**2043]) * factor) for factor in range(1, 32)
    ], cg.Overflow, "item 0 is beyond a third of n"),
    Row("ints: opened as no array", lambda w: paillier().secret.decrypt_ints([1]), TypeError, "list"),
    Row("ints: no ciphertext", lambda w: cg.EncryptedArray.from_ints([1, 0], paillier()), cg.BadCiphertext, "1 is 0"),
    Row("ints: a negative scale", lambda w: cg.EncryptedArray.from_ints([1], paillier(), scale=-1), cg.ParameterError),
    Row("floats: NaN", lambda w: floats([0.0, np.nan]), cg.NotFinite, "item 1"),
    Row("floats: infinite", lambda w: floats(np.inf), cg.NotFinite, "item 0"),
    Row("floats: infinite, to add", lambda w: floats() + -np.inf, cg.NotFinite),
    Row("floats: complex", lambda w: floats([1j]), cg.DtypeError, "complex"),
    Row("floats: too large", lambda w: floats([1e308], 900), cg.Overflow, "item 0"),
    Row("floats: an integer that is no float", lambda w: floats([2**53 + 1]), cg.Overflow, "item 0"),
    Row("floats: a scale too large", lambda w: floats(scale=1001), cg.ParameterError, "1001"),
    Row("floats: a negative scale", lambda w: floats(scale=-1), cg.ParameterError),
    Row("floats: another scale", lambda w: floats() + floats(scale=20), cg.ScaleMismatch,
        "its scale is 20 where 40 belongs: bring both to 40 with rescale"),
    Row("floats: another scale, to take away", lambda w: floats() * 0.5 - floats(), cg.ScaleMismatch,
        "its scale is 40 where 80 belongs"),
    Row("floats: another scale, to join", lambda w: cg.concatenate([floats(), ints([1])]), cg.ScaleMismatch),
    Row("floats: a smaller scale", lambda w: floats().rescale(39), cg.ScaleMismatch, "smaller"),
    Row("floats: an entry that is too large", lambda w: np.full(3, 1e7) @ floats(), cg.Overflow, "64 bits"),
    Row("floats: opened as integers", lambda w: paillier().secret.decrypt_ints(floats()), cg.DtypeError,
        "decrypt_floats"),
    Row("floats: a result that overflowed", lambda w: [
        paillier().secret.decrypt_floats(floats([1.0], 1000).rescale(2000) * (factor * 2**43))
        for factor in range(1, 32)
    ], cg.Overflow, "item 0 is beyond a third of n"),
    Row("floats: a result that is no float", lambda w: paillier().secret.decrypt_floats(ints([2**1024])), cg.Overflow,
        "item 0 does not fit 1024 bits"),
]

TABLE = [*dtypes(), *values(), *LAYOUTS, *ARGUMENTS, *PARTS, *FILES, *INTEGERS]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_one_error_names_it(row: Row, tmp_path: Path) -> None:
    with pytest.raises(row.error, match=row.words) as caught:
        row.attempt(World(tmp_path))
    message = str(caught.value)
    assert message and "\n" not in message, "one line"
    assert "--" not in message, "options are named as arguments"


def test_a_refused_call_leaves_everything_as_it_was(tmp_path: Path) -> None:
    world = World(tmp_path)
    summing = cg.Summing(world.keys.public).add(world.parts[0])
    foreign = world.others.encrypt(world.update, client=1, ranges=1.0, round=1)
    for bad in (foreign, world.parts[0], b"", bytes(world.parts[1])[:-1], b"\x00" * 300):
        with pytest.raises(cg.CiphergramError):
            summing.add(bad)
        assert len(summing) == 1
    total = summing.add(world.parts[1]).add(bytes(world.parts[2])).finish()
    opened = world.keys.decrypt(total)
    assert opened.contributors == [0, 1, 2]
    np.testing.assert_allclose(opened["w"], world.update["w"], atol=2**-14)


def test_every_cut_of_a_frame_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    for frame in (bytes(world.parts[0]), bytes(world.sum)):
        for length in range(len(frame)):
            with pytest.raises(cg.BadFrame):
                cg.loads(frame[:length], world.keys.public)


def redone(frame: bytes, at: int, mask: int) -> bytes:
    """Returns a frame of which somebody changed a byte and made the digest anew, as anyone can."""
    body = bytearray(frame[:-DIGEST_BYTES])
    body[at] ^= mask
    return bytes(body) + blake3.blake3(body).digest()


def test_every_flipped_byte_of_a_frame_is_found(tmp_path: Path) -> None:
    world = World(tmp_path)
    for frame in (bytes(world.parts[0]), bytes(world.sum)):
        for at in range(len(frame)):
            changed = bytearray(frame)
            changed[at] ^= 1 << at % 8
            with pytest.raises(cg.BadFrame):
                cg.loads(changed)


def test_a_liar_s_contribution_is_found_before_a_value_leaves(tmp_path: Path) -> None:
    """A lie in a header is found when it is read or summed, one in a ciphertext when the sum is opened."""
    world = World(tmp_path)
    frame = bytes(world.parts[0])
    opened = world.keys.decrypt(world.sum)
    summed = 0
    for at in range(len(frame) - DIGEST_BYTES):
        for mask in (1 << at % 8, 0xFF):
            lie = redone(frame, at, mask)
            try:
                total = cg.aggregate([lie, *world.parts[1:]], world.keys.public)
            except cg.CiphergramError:
                continue
            summed += 1
            # Each sum that does not open is counted, and a key ends with too many: so each has a copy that forgot.
            with pytest.raises(cg.CiphergramError):
                fresh(world, 2 * at + (mask == 0xFF)).decrypt(total)
    assert summed > 20, "some lies are in ciphertexts, which nobody can read but who opens the sum"
    assert opened.contributors == [0, 1, 2]


def fresh(world: World, copy: int) -> cg.SecretKey:
    """Returns the secret key with a record of its use that is new."""
    folder = world.folder / str(copy)
    folder.mkdir()
    world.keys.job.save(folder / "job.json")
    world.keys.secret.save(folder / "secret.json")
    (folder / "secret.json.ledger").unlink(missing_ok=True)
    key = cg.load_keys(folder / "secret.json")
    assert isinstance(key, cg.SecretKey)
    return key


def test_a_round_ends_after_four_sums_that_do_not_open_and_no_key(tmp_path: Path) -> None:
    world = World(tmp_path)

    def total(round: int) -> bytes:
        parts = [world.encrypt(client=client, round=round) for client in range(3)]
        return bytes(cg.aggregate(parts, world.keys.public))

    honest = total(2)
    for bit in range(4):
        with pytest.raises(cg.SumMismatch):
            world.keys.decrypt(redone(honest, len(honest) - DIGEST_BYTES - 1 - bit, 1))
    with pytest.raises(cg.RoundSpent) as caught:
        world.keys.decrypt(honest)
    assert caught.value.round == 2
    assert world.keys.decrypt(total(3)).contributors == [0, 1, 2]


def test_errors_have_fields_and_pickle(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(cg.NotFinite) as caught:
        world.of(np.array([1, np.nan], np.float32))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.tensor, error.index, str(error)) == ("w", 1, str(caught.value))
    with pytest.raises(AttributeError):
        error.no_such_field


def test_nothing_shows_a_secret(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.keys.save(tmp_path / "keys")
    text = (tmp_path / "keys" / "secret.json").read_text()
    secrets = [part for part in text.replace('"', " ").split() if len(part) > 24]
    shown = " ".join(repr(thing) for thing in (world.keys, world.keys.secret, world.sum, world.parts[0]))
    public = (tmp_path / "keys" / "public.json").read_text()
    hidden = [secret for secret in secrets if secret not in public]
    assert hidden, "there is a secret to look for"
    assert not any(secret in shown for secret in hidden)
