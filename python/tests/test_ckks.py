"""Vectors that are computed with while encrypted, held to numpy."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ciphergram as cg
import numpy as np
import numpy.typing as npt
import pytest

RNG = np.random.default_rng(30)
Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def keys() -> cg.ckks.Keys:
    """Keys of one level, with all rotations that these tests take."""
    return cg.ckks.keygen("ckks-4096x1", rotations=["sum", "matrix:7x50", 5, -3])


@pytest.fixture(scope="module")
def band() -> cg.ckks.Keys:
    """Keys of one level, for products by square matrices."""
    return cg.ckks.keygen("ckks-4096x1", rotations=["matrix:1024x1024"])


@pytest.fixture(scope="module")
def deep() -> cg.ckks.Keys:
    """Keys of seven levels, without rotations but those of sums."""
    return cg.ckks.keygen("ckks-8192x7", rotations="sum")


def numbers(*shape: int, scale: float = 1.0) -> Floats:
    """Return numbers within ±scale."""
    return RNG.uniform(-scale, scale, shape)


def near(found: Floats, expected: Any, tolerance: float = 1e-5) -> None:
    """Hold a result to what it should be, relative to the largest of that."""
    expected = np.asarray(expected)
    assert found.dtype == np.float64 and found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-300)


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 10_000])
def test_any_number_of_values_returns(keys: cg.ckks.Keys, size: int) -> None:
    x = numbers(size)
    for half in (keys.secret, keys.public, keys):
        vector = half.encrypt(x)
        assert (vector.shape, len(vector), vector.size) == ((size,), size, size)
        assert vector.ciphertexts == -(-size // 4096) and vector.level == 1
        near(keys.decrypt(vector), x)


@pytest.mark.parametrize(
    "values",
    [3.5, 7, [1, 2, 3], (0.5,), np.float32(2.0), numbers(2, 3, 4), numbers(4, 4).T, numbers(9)[::2]]
    + [np.arange(5, dtype=dtype) for dtype in (np.float16, np.float32, np.int8, np.uint64, ">f8")],
    ids=str,
)
def test_anything_of_numbers_is_encrypted(keys: cg.ckks.Keys, values: Any) -> None:
    vector = keys.encrypt(values)
    assert vector.shape == np.shape(values)
    near(keys.decrypt(vector), np.asarray(values, np.float64))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1000.0, 1e12])
def test_units_follow_the_values(keys: cg.ckks.Keys, scale: float) -> None:
    x, y = numbers(300, scale=scale), numbers(300, scale=3.0)
    a, b = keys.encrypt(x), keys.encrypt(y)
    near(keys.decrypt(a * b), x * y)
    near(keys.decrypt(a * y), x * y)
    near(keys.decrypt(a * (0.3 / scale) + b), x * (0.3 / scale) + y)
    near(keys.decrypt((a * a).sum()), (x * x).sum())
    near(keys.decrypt(a.mean()), x.mean(), 1e-4)


X, Y = numbers(5000), numbers(5000, scale=4.0)


@pytest.mark.parametrize(
    "of",
    [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: -x,
        lambda x, y: x + X,
        lambda x, y: Y - x,
        lambda x, y: X * x,
        lambda x, y: x + 1.5,
        lambda x, y: 2 - x,
        lambda x, y: np.float64(0.7) * x,
        lambda x, y: x * -8,
        lambda x, y: x * 0,
        lambda x, y: x / 3,
        lambda x, y: x / -7 + y / 4,
        lambda x, y: x * y / np.int64(6) - 1 / 3,
        lambda x, y: x / 0.3,
        lambda x, y: y / (np.abs(X) + 1),
        lambda x, y: x**2,
        lambda x, y: x * y + x - 0.25 * y,
        lambda x, y: x.mean(),
        lambda x, y: x.sum() / 8 - y.sum(),
        lambda x, y: x @ y,
        lambda x, y: x @ Y,
        lambda x, y: Y @ x,
        lambda x, y: x - x.mean(),
        lambda x, y: x * y.mean(),
        lambda x, y: X + x.mean(),
    ],
)
def test_operators_are_those_of_numpy(
    keys: cg.ckks.Keys, of: Callable[[Any, Any], Any]
) -> None:
    found = keys.decrypt(of(keys.encrypt(X), keys.encrypt(Y)))
    near(found, of(X, Y), 1e-4)


def test_shapes_stay_and_must_agree(keys: cg.ckks.Keys) -> None:
    x = numbers(3, 4)
    a = keys.encrypt(x)
    near(keys.decrypt(a * x + 1.0), x * x + 1.0)
    near(keys.decrypt(a.sum()), x.sum(), 1e-4)
    for other in (numbers(4), numbers(12), numbers(4, 3), keys.encrypt(numbers(4, 3))):
        for apply in (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a @ b):
            with pytest.raises(cg.LayoutError):
                apply(a, other)
    with pytest.raises(TypeError):
        len(a.sum())


def test_matrices_multiply_from_either_side(keys: cg.ckks.Keys) -> None:
    matrix, x = numbers(7, 50, scale=20.0), numbers(50)
    a = keys.encrypt(x)
    for found in (matrix @ a, a @ matrix.T):
        assert found.shape == (7,) and found.level == 0
        near(keys.decrypt(found), matrix @ x)
    near(keys.decrypt(np.zeros((7, 50)) @ a), np.zeros(7), 1)
    near(keys.decrypt((matrix @ a).sum() + 1), (matrix @ x).sum() + 1, 1e-4)
    with pytest.raises(cg.NoEvaluationKey, match='rotations=."matrix:9x50".') as error:
        numbers(9, 50) @ a
    assert error.value.rotation == "matrix:9x50"


@pytest.mark.parametrize(
    "scheme, inputs, outputs",
    [
        ("ckks-4096x1", 64, 10),
        ("ckks-4096x2", 784, 192),
        ("ckks-4096x1", 784, 1024),
        ("ckks-4096x1", 784, 3312),
        ("ckks-8192x7", 64, 192),
    ],
)
def test_matrices_are_as_precise_as_the_vector(scheme: str, inputs: int, outputs: int) -> None:
    rng = np.random.default_rng(0)
    x, matrix = rng.standard_normal(inputs), rng.standard_normal((inputs, outputs))
    keys = cg.ckks.keygen(scheme, rotations=[f"matrix:{outputs}x{inputs}"])
    largest = 0.0
    # Of some hundred values, as the largest of few is no guide.
    for _ in range(2 + 300 // outputs):
        found = keys.encrypt(x) @ matrix
        off = np.abs(keys.decrypt(found) - x @ matrix).max()
        assert off <= found.error
        largest = max(largest, off)
    assert found.error < 16 * largest
    assert largest < 1e-6 * np.sqrt(inputs)


@pytest.mark.parametrize("diagonals", [1, 8, 64, 512])
def test_errors_of_bands_grow_by_the_root(band: cg.ckks.Keys, diagonals: int) -> None:
    ones = np.ones((1024, 1024))
    x = np.random.default_rng(1).standard_normal(1024)
    for signs in (1.0, RNG.choice([-1.0, 1.0], ones.shape)):
        matrix = (np.triu(ones) - np.triu(ones, diagonals)) * signs
        largest = 0.0
        for _ in range(2):
            found = matrix @ band.encrypt(x)
            off = np.abs(band.decrypt(found) - matrix @ x).max()
            assert off <= found.error
            largest = max(largest, off)
        assert found.error < 16 * largest and largest < 2e-6 * np.sqrt(diagonals)


def test_what_numpy_would_take_apart_is_refused(keys: cg.ckks.Keys) -> None:
    a, square = keys.encrypt(numbers(50)), keys.encrypt(numbers(2, 2))
    calls: list[Callable[[], Any]] = [
        lambda: np.roll(a, 1),  # type: ignore[call-overload]
        lambda: np.dot(numbers(7, 50), a),  # type: ignore[call-overload]
        lambda: np.sum(a),  # type: ignore[call-overload]
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"it is v\.rotate\(-k\)"):
            call()
    for call in (
        lambda: square @ numbers(2, 2),
        lambda: numbers(2, 2) @ square,
        lambda: square @ square,
        lambda: a @ square,
    ):
        with pytest.raises(cg.LayoutError, match="row by row"):
            call()
    bare = cg.ckks.loads(bytes(a))
    for call in (lambda: bare.rotate(5), bare.sum, lambda: numbers(7, 50) @ bare):
        with pytest.raises(cg.NoEvaluationKey, match=r"vector\.under\(keys\.evaluation\)"):
            call()


def test_a_matrix_wider_than_a_ciphertext() -> None:
    keys = cg.ckks.keygen("ckks-4096x1", rotations=["matrix:3x4096", "sum"])
    matrix, x = numbers(3, 6000), numbers(6000)
    found = matrix @ keys.encrypt(x)
    # Numbers of either sign cancel, what they are off by does not.
    near(keys.decrypt(found), matrix @ x, 1e-3)
    # What is there again behind the values is not part of the sum, but costs a level.
    with pytest.raises(cg.OutOfLevels):
        found.sum()


def test_rotations_go_around_the_slots(keys: cg.ckks.Keys) -> None:
    whole, part = numbers(4096), numbers(100)
    a, b = keys.encrypt(whole), keys.encrypt(part)
    for steps in (5, -3, 4096 + 5):
        near(keys.decrypt(a.rotate(steps)), np.roll(whole, -steps))
        slots = np.concatenate([part, np.zeros(3996)])
        near(keys.decrypt(b.rotate(steps)), np.roll(slots, -steps)[:100])
    near(keys.decrypt(b.rotate(0)), part)
    # Sums leave out what is behind the values, also after the way through a file.
    turned = cg.ckks.loads(bytes(b.rotate(-3)), keys)
    near(keys.decrypt(turned.sum()), part[:-3].sum(), 1e-4)
    near(keys.decrypt(turned.rotate(5).rotate(-2 + 2)), np.concatenate([part[2:], [0, 0]]))
    with pytest.raises(cg.NoEvaluationKey, match=r"rotations=\[99\]") as error:
        a.rotate(99)
    assert error.value.rotation == 99
    with pytest.raises(cg.LayoutError, match="2 ciphertexts"):
        keys.encrypt(numbers(5000)).rotate(1)


@pytest.mark.parametrize(
    "coefficients",
    [[0.5], [1.0, 2.0], [0.0, 0.0, 3.0], [0.5, 0.197, 0.0, -0.004], [1, -1, 0.5, 0, 2, 0, 0, 1]],
    ids=str,
)
def test_polynomials_are_those_of_numpy(deep: cg.ckks.Keys, coefficients: list[float]) -> None:
    for scale in (0.01, 1.0, 5.0):
        x = numbers(100, scale=scale)
        found = deep.encrypt(x).polyval(coefficients)
        near(deep.decrypt(found), np.polynomial.polynomial.polyval(x, coefficients), 1e-4)
        assert found.level == 7 - int(np.ceil(np.log2(len(coefficients))))


def test_levels_go_down_to_none(deep: cg.ckks.Keys) -> None:
    x = numbers(50, scale=1.2)
    a = deep.encrypt(x)
    for power in (1, 2, 3, 5, 8):
        found = a**power
        assert found.level == 7 - int(np.ceil(np.log2(power)))
        near(deep.decrypt(found), x**power, 1e-4)
    product, exact = a, x
    while product.level:
        product, exact = product * a, exact * x
    near(deep.decrypt(product), exact, 1e-4)
    for step in (lambda: product * a, lambda: product * 0.3, lambda: product**2, lambda: product * x):
        with pytest.raises(cg.OutOfLevels):
            step()
    # These take none.
    near(deep.decrypt((product * 4 - a / 3).sum()), (exact * 4 - x / 3).sum(), 1e-4)
    with pytest.raises(cg.LayoutError):
        a**0


def test_values_that_have_grown_are_brought_back(deep: cg.ckks.Keys) -> None:
    x, y = numbers(3000, scale=1e4), numbers(3000, scale=0.1)
    a, b = deep.encrypt(x), deep.encrypt(y)
    near(deep.decrypt(((a - a.mean()) ** 2).mean()), x.var(), 1e-4)
    near(deep.decrypt((a + b) * (a - b)), x * x - y * y, 1e-4)
    near(deep.decrypt((a + b) * b), (x + y) * y, 1e-4)
    near(deep.decrypt((a * 3 + b).polyval([0, 1, 1e-4])), 3 * x + y + 1e-4 * (3 * x + y) ** 2, 1e-4)


def test_what_a_result_may_be_is_known(keys: cg.ckks.Keys) -> None:
    a = keys.encrypt([0.5, -0.25], range=1.0)
    assert (a.range, a.scheme, a.key_id) == (1.0, "ckks-4096x1", keys.secret.id)
    assert 0 < a.error < 1e-5 and a.bits_left > 40 and 2**39 < a.scale < 2**41
    product = a * a
    assert product.range == 1.0 and product.level == 0
    assert abs(keys.decrypt(product)[0] - 0.25) <= product.error
    assert repr(product).startswith("<Vector of shape (2,), ckks-4096x1, level 0, ")
    # A result that might wrap around is refused.
    large = keys.encrypt(X, range=1.0)
    for _ in range(12):
        large = large + large
    with pytest.raises(cg.Overflow, match="range="):
        large * large
    with pytest.raises(cg.Overflow):
        product + 1e6


def test_what_is_wrong_is_named(keys: cg.ckks.Keys) -> None:
    a = keys.encrypt([1.0, 2.0, 3.0])
    with pytest.raises(cg.NotFinite) as error:
        keys.encrypt([1.0, np.nan])
    assert (error.value.index, error.value.value) == (1, "NaN")
    beyond_range = "has 3 at index 2, beyond the range of ±2: clip values, or give a larger range="
    with pytest.raises(cg.Overflow, match=beyond_range) as beyond:
        keys.encrypt([1.0, 2.0, 3.0], range=2.0)
    assert (beyond.value.index, beyond.value.range) == (2, 2.0)
    with pytest.raises(cg.NotFinite) as error:
        a * [1.0, np.inf, 0.0]
    assert error.value.index == 1
    with pytest.raises(cg.Overflow) as beyond:
        a + [0.0, 1e30, 0.0]
    assert (beyond.value.index, beyond.value.value) == (1, 1e30)
    for wrong in ("abc", None, 1j, [1j], object(), {"a": 1}, [[1.0], [1.0, 2.0]]):
        with pytest.raises(cg.DtypeError):
            keys.encrypt(wrong)
        with pytest.raises(cg.DtypeError):
            a + wrong
    for empty in ([], np.zeros((0, 3))):
        with pytest.raises(cg.LayoutError):
            keys.encrypt(empty)
    for wrong in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(cg.ParameterError, match="range="):
            keys.encrypt(1.0, range=wrong)
    with pytest.raises(cg.ParameterError, match="ckks-8192x7"):
        cg.ckks.keygen("ckks")
    for wrong in (["all"], "matrix:0x3", [2**70], ["matrix:5000x2"]):
        with pytest.raises(cg.ParameterError):
            cg.ckks.keygen("ckks-4096x1", rotations=wrong)
    with pytest.raises(ZeroDivisionError):
        a / 0
    with pytest.raises(TypeError):
        1 / a
    with pytest.raises(TypeError):
        a / a
    with pytest.raises(TypeError):
        pow(a, 2, 3)


def test_vectors_of_another_key_are_refused(keys: cg.ckks.Keys) -> None:
    others = cg.ckks.keygen("ckks-4096x1")
    a, b = keys.encrypt([1.0]), others.encrypt([1.0])
    for refused in (
        lambda: a + b,
        lambda: a * b,
        lambda: keys.decrypt(b),
        lambda: keys.decrypt(bytes(b)),
        lambda: a.under(others.evaluation),
        lambda: cg.ckks.loads(bytes(a), others),
    ):
        with pytest.raises(cg.KeyMismatch):
            refused()
    with pytest.raises(cg.KeyKind):
        a.under(3)  # type: ignore[arg-type]


def test_keys_do_what_they_are_for(keys: cg.ckks.Keys) -> None:
    # Whoever has no evaluation key sums, and multiplies by numbers.
    a = keys.public.encrypt(X)
    near(keys.decrypt(a + a - 0.5 * a), 1.5 * X)
    for refused in (lambda: a * a, lambda: a @ a, lambda: a**2):
        with pytest.raises(cg.NoEvaluationKey, match="under"):
            refused()
    with pytest.raises(cg.NoEvaluationKey, match='"sum"'):
        a.sum()
    near(keys.decrypt(a.under(keys.evaluation) * a), X * X)
    near(keys.decrypt(a * a.under(keys)), X * X)
    few = keys.secret.evaluation_keys([1, 4096 - 1, -1])
    assert few.rotations == [1, 4095] and few.products and few.id == keys.secret.id
    near(keys.decrypt(keys.encrypt(numbers(3) * 0 + 1).under(few).rotate(1)), [1, 1, 0])


def test_keys_are_files_of_the_command_line(keys: cg.ckks.Keys, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "keys"
    keys.save(folder)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["evaluation.cgk", "public.json", "secret.json"]
    assert (folder / "secret.json").stat().st_mode & 0o077 == 0
    again = cg.ckks.load_keys(folder)
    public = cg.ckks.load_keys(str(folder / "public.json"))
    secret = cg.ckks.load_keys(folder / "secret.json")
    evaluation = cg.ckks.load_keys(folder / "evaluation.cgk")
    kinds = (cg.ckks.Keys, cg.ckks.PublicKey, cg.ckks.SecretKey, cg.ckks.EvaluationKeys)
    assert tuple(map(type, (again, public, secret, evaluation))) == kinds
    assert public == keys.public == secret.public and hash(public) == hash(keys.public)
    assert evaluation.rotations == keys.evaluation.rotations
    assert bytes(evaluation) == bytes(keys.evaluation)
    near(again.decrypt(public.encrypt(X).under(evaluation) * X), X * X)
    with pytest.raises(cg.Exists):
        keys.save(folder)
    for key, name in ((keys.secret, "secret.json"), (public, "public.json"), (evaluation, "evaluation.cgk")):
        with pytest.raises(cg.Exists):
            key.save(folder / name)
    (folder / "evaluation.cgk").unlink()
    bare = cg.ckks.load_keys(folder)
    assert bare.evaluation.rotations == [] and not bare.evaluation.products
    # Keys of sums are none of these, and these are none of sums.
    cg.keygen(clients=3).save(tmp_path / "sums")
    with pytest.raises(cg.KeyKind, match="of sums"):
        cg.ckks.load_keys(tmp_path / "sums")
    with pytest.raises(cg.KeyKind, match="vectors"):
        cg.load_keys(folder / "public.json")
    (tmp_path / "odd").write_text("{}")
    with pytest.raises(cg.BadFrame):
        cg.ckks.load_keys(tmp_path / "odd")
    (tmp_path / "cut.cgk").write_bytes(bytes(evaluation)[:-1])
    with pytest.raises(cg.BadFrame, match=r"cut\.cgk"):
        cg.ckks.load_keys(tmp_path / "cut.cgk")
    with pytest.raises(cg.FileError):
        cg.ckks.load_keys(tmp_path / "nothing")


def test_vectors_are_files(keys: cg.ckks.Keys, tmp_path: Path) -> None:
    x = numbers(3, 2000)
    a = keys.encrypt(x) * 3
    path = tmp_path / "x.cgm"
    for _ in range(2):
        a.save(path)
    assert path.read_bytes() == bytes(a) and a.nbytes == len(bytes(a))
    again = cg.ckks.load(path, keys)
    assert (again.shape, again.level, bytes(again)) == (a.shape, a.level, bytes(a))
    near(keys.decrypt(again.sum()), 3 * x.sum(), 1e-4)
    near(keys.decrypt(path.read_bytes()), 3 * x)
    # Without a key it is summed, and sent on.
    near(keys.decrypt(cg.ckks.load(path) + 1), 3 * x + 1)
    keys.public.save(tmp_path / "public.json")
    with pytest.raises(cg.Exists):
        a.save(tmp_path / "public.json")
    damaged = bytearray(bytes(a))
    damaged[-100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(cg.BadFrame, match=r"x\.cgm"):
        cg.ckks.load(path)
    for wrong in (b"", b"hello", bytes(keys.evaluation), bytes(a)[:-1]):
        with pytest.raises(cg.BadFrame):
            cg.ckks.loads(wrong)
    with pytest.raises(cg.CiphergramError):
        cg.loads(bytes(a))


def test_what_is_public_pickles(keys: cg.ckks.Keys) -> None:
    x = numbers(10)
    a = pickle.loads(pickle.dumps(keys.encrypt(x)))
    near(keys.decrypt(a + a), 2 * x)
    public = pickle.loads(pickle.dumps(keys.public))
    assert public == keys.public
    evaluation = pickle.loads(pickle.dumps(keys.evaluation))
    near(keys.decrypt(a.under(evaluation) * a), x * x)
    for secret in (keys, keys.secret):
        with pytest.raises(TypeError, match="secret"):
            pickle.dumps(secret)


def test_no_secret_is_shown(keys: cg.ckks.Keys, tmp_path: Path) -> None:
    keys.secret.save(tmp_path / "secret.json")
    texts = (tmp_path / "secret.json").read_text().split('"')
    secrets = [text for text in texts if len(text) > 20 and " " not in text and text != keys.secret.id]
    assert secrets
    shown = [repr(thing) for thing in (keys, keys.secret, keys.public, keys.evaluation)]
    assert not any(text[:12] in one for text in secrets for one in shown)
    assert all(keys.secret.id in one for one in shown)


def test_many_threads_share_keys_and_vectors(keys: cg.ckks.Keys) -> None:
    x, found = numbers(5000), list[Floats]()
    a = keys.encrypt(x)
    threads = [
        threading.Thread(target=lambda n=n: found.append(keys.decrypt((a * a + n / 9).sum() - n / 9 * 5000)))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(found) == 8
    for one in found:
        near(one, (x * x).sum(), 1e-4)
