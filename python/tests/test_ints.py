"""Integers under Paillier, beside python-paillier."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ciphergram as cg

KEYS = cg.keygen("paillier-2048", clients=3)


def test_integers_come_back_and_add_up() -> None:
    xs = [0, 1, -1, 2**700, -(2**700), 123456789]
    array = KEYS.public.encrypt_ints(xs)
    assert len(array) == 6 and KEYS.secret.decrypt_ints(array) == xs
    assert KEYS.secret.decrypt_ints(array + array) == [2 * x for x in xs]
    assert KEYS.secret.decrypt_ints(array + [5] * 6) == [x + 5 for x in xs]
    assert KEYS.secret.decrypt_ints([5] * 6 + array) == [x + 5 for x in xs]
    assert KEYS.secret.decrypt_ints(array * -3) == [-3 * x for x in xs]
    assert KEYS.secret.decrypt_ints(array * [1, 2, 3, 4, 5, -6]) == [
        x * k for x, k in zip(xs, [1, 2, 3, 4, 5, -6])
    ]
    assert KEYS.secret.decrypt_ints(array.sum()) == [sum(xs)]
    again = cg.EncryptedArray.from_ints(array.to_ints(), KEYS.public)
    assert KEYS.secret.decrypt_ints(again) == xs
    assert KEYS.secret.decrypt_ints(KEYS.public.encrypt_ints([])) == []


def test_numbers_and_arrays_of_numpy_are_integers_too() -> None:
    array = KEYS.public.encrypt_ints(np.arange(3))
    opened = KEYS.secret.decrypt_ints
    assert opened(array + 5) == opened(5 + array) == [5, 6, 7]
    assert opened(array + np.arange(3)) == opened(np.arange(3) + array) == [0, 2, 4]
    assert opened(array * np.arange(3)) == opened(np.arange(3) * array) == [0, 1, 4]
    assert opened(array * np.int64(-2)) == opened(np.int64(-2) * array) == [0, -2, -4]
    assert opened(sum([array, array, array])) == [0, 3, 6]


def test_what_is_no_integer_or_too_large_is_one_error() -> None:
    n = 2**2047
    for bad, error in [([1.5], cg.DtypeError), (["1"], cg.DtypeError), ([n], cg.Overflow)]:
        with pytest.raises(error):
            KEYS.public.encrypt_ints(bad)
    array = KEYS.public.encrypt_ints([1, 2])
    for others in ([1, 2, 3], KEYS.public.encrypt_ints([1, 2, 3])):
        with pytest.raises(cg.LayoutError):
            array + others
    with pytest.raises(cg.LayoutError):
        array * [1, 2, 3]
    no_integers: list[Any] = [None, 1.5, [1, None], np.zeros(2), [[1, 2], [3]], np.zeros(2, complex)]
    for bad in no_integers:
        with pytest.raises(cg.DtypeError):
            array * bad
        with pytest.raises(cg.DtypeError):
            array + bad
        with pytest.raises(cg.DtypeError):
            KEYS.public.encrypt_ints(bad)
        with pytest.raises(cg.DtypeError):
            cg.EncryptedArray.from_ints(bad, KEYS.public)
    products: Any = array
    with pytest.raises(cg.DtypeError):
        products * array
    for bad in [[0], [-1], [2**5000]]:
        with pytest.raises(cg.BadCiphertext):
            cg.EncryptedArray.from_ints(bad, KEYS.public)
    other = cg.keygen("paillier-2048", clients=3)
    with pytest.raises(cg.KeyMismatch):
        array + other.public.encrypt_ints([1, 2])
    with pytest.raises(cg.KeyMismatch):
        other.secret.decrypt_ints(array)
    with pytest.raises(cg.KeyKind):
        cg.keygen(clients=3).public.encrypt_ints([1])


PLAIN = np.arange(-6, 6).reshape(3, 4)
ARRAY = KEYS.public.encrypt_ints(PLAIN)


def same(array: cg.EncryptedArray, expected: Any) -> None:
    """Holds integers to numpy's, and their shape."""
    expected = np.asarray(expected)
    assert array.shape == expected.shape and array.size == expected.size
    opened = KEYS.secret.decrypt_ints(array)
    assert opened == (expected.tolist() if expected.ndim else [expected.tolist()])


@pytest.mark.parametrize(
    "key",
    [0, -1, (1, 2), (slice(None), 1), slice(1, None), (slice(None, None, -1), slice(1, 3)), [2, 0, 2], ([0, 2], [3, 1]),
     np.arange(3) != 1, PLAIN % 2 == 0, (..., 0), (slice(None), None), np.array([], int), (np.int64(1),)],
    ids=str,
)  # fmt: skip
def test_arrays_are_indexed_as_those_of_numpy(key: Any) -> None:
    same(ARRAY[key], PLAIN[key])


def test_shapes_are_those_of_numpy() -> None:
    for found, expected in [
        (ARRAY.T, PLAIN.T),
        (ARRAY.ravel(), PLAIN.ravel()),
        (ARRAY.T.ravel(), PLAIN.T.ravel()),
        (ARRAY.reshape(2, -1), PLAIN.reshape(2, -1)),
        (ARRAY.reshape((4, 3)), PLAIN.reshape(4, 3)),
        (cg.concatenate([ARRAY, ARRAY]), np.concatenate([PLAIN, PLAIN])),
        (cg.concatenate([ARRAY, ARRAY[:, :1]], axis=1), np.concatenate([PLAIN, PLAIN[:, :1]], axis=1)),
    ]:
        same(found, expected)
    joined: Any = np.concatenate([ARRAY, ARRAY + 1, -ARRAY], axis=-1)  # type: ignore[list-item]
    same(joined, np.concatenate([PLAIN, PLAIN + 1, -PLAIN], axis=-1))
    assert len(ARRAY) == 3 and ARRAY.ndim == 2
    for row, expected in zip(ARRAY, PLAIN, strict=True):
        same(row, expected)
    same(cg.EncryptedArray.from_ints(ARRAY.to_ints(), KEYS.public).reshape(ARRAY.shape), PLAIN)
    assert "integers, shape (3, 4)" in repr(ARRAY) and "shape ()" in repr(ARRAY[0, 0])


def test_operators_are_those_of_numpy() -> None:
    row, column, mask = np.array([3, 0, -2, 1]), np.array([[1], [-1], [2**40]]), PLAIN % 3 == 0
    small = np.array([1, 255, 0, 128], np.uint8)
    for found, expected in [
        (-ARRAY, -PLAIN),
        (ARRAY - ARRAY[0], PLAIN - PLAIN[0]),
        (ARRAY - row, PLAIN - row),
        (row - ARRAY, row - PLAIN),
        (5 - ARRAY, 5 - PLAIN),
        (ARRAY - small, PLAIN - small),
        (ARRAY + column, PLAIN + column),
        (ARRAY[:, :1] + ARRAY[:1], PLAIN[:, :1] + PLAIN[:1]),
        (ARRAY * column, PLAIN * column),
        (mask * ARRAY, mask * PLAIN),
        (ARRAY[1] * column, PLAIN[1] * column),
        (ARRAY * np.uint64(2**63), PLAIN.astype(object) * 2**63),
        (ARRAY - [-(2**63), 2**100, 0, 1], PLAIN.astype(object) - [-(2**63), 2**100, 0, 1]),
    ]:
        same(found, expected)


def test_sums_are_those_of_numpy() -> None:
    cube, encrypted = np.arange(24).reshape(2, 3, 4), KEYS.public.encrypt_ints(np.arange(24).reshape(2, 3, 4))
    for axis in (None, 0, 1, -1, (0, 2), (0, 1, 2), ()):
        same(encrypted.sum(axis=axis), cube.sum(axis=axis))
    same(np.sum(ARRAY, axis=1), PLAIN.sum(axis=1))  # type: ignore[call-overload]
    same(ARRAY[[0, 2, 2], [1, 1, 3]].sum(), PLAIN[[0, 2, 2], [1, 1, 3]].sum())
    same(KEYS.public.encrypt_ints([]).sum(), 0)
    same(ARRAY[:, :0].sum(axis=1), [0, 0, 0])


def test_segments_are_summed_as_a_histogram_is() -> None:
    rng = np.random.default_rng(7)
    weights = rng.integers(-(2**20), 2**20, 40)
    encrypted, bins = KEYS.public.encrypt_ints(weights), rng.integers(0, 8, (40, 3))
    expected = [np.bincount(bins[:, f], weights, 8).astype(int) for f in range(3)]
    same(encrypted.segment_sum(bins[:, 0], 8), expected[0])
    found = encrypted[:, None].segment_sum(bins + 8 * np.arange(3), 24)
    same(found.reshape(3, 8), expected)
    # Segments of rows, one of them empty.
    same(ARRAY.segment_sum([2, 0, 2], 4), [PLAIN[1], np.zeros(4, int), PLAIN[0] + PLAIN[2], np.zeros(4, int)])
    same(ARRAY.segment_sum(PLAIN + 6, 12), PLAIN.ravel())


def test_matrices_multiply_from_both_sides() -> None:
    rng = np.random.default_rng(8)
    left, right = rng.integers(-(2**15), 2**15, (5, 3)), rng.integers(0, 9, (4, 2))
    for found, expected in [
        (left @ ARRAY, left @ PLAIN),
        (left @ ARRAY[:, 1], left @ PLAIN[:, 1]),
        (left[0] @ ARRAY, left[0] @ PLAIN),
        (left[0] @ ARRAY[:, 1], left[0] @ PLAIN[:, 1]),
        (ARRAY @ right, PLAIN @ right),
        (ARRAY[0] @ right, PLAIN[0] @ right),
        (ARRAY @ right[:, 0], PLAIN @ right[:, 0]),
        (left.tolist() @ ARRAY, left @ PLAIN),
        (left[:, :0] @ ARRAY[:0], left[:, :0] @ PLAIN[:0]),
        (left @ ARRAY[:, :0], left @ PLAIN[:, :0]),
        (left[:0] @ ARRAY, left[:0] @ PLAIN),
    ]:
        same(found, expected)


def test_numbers_have_a_scale_that_products_add() -> None:
    public, opened = KEYS.public, KEYS.secret.decrypt_floats
    plain = np.array([[0.1, -2.5], [1e9, 2.0**-41]])
    array = public.encrypt_floats(plain)
    assert array.scale == 40 and array.shape == (2, 2) and "scale 40" in repr(array)
    rounded = np.round(plain * 2**40) / 2**40
    assert (opened(array) == rounded).all()
    assert (opened(array.T + 0.5 - array) == rounded.T + 0.5 - rounded).all()
    assert (opened(array * 3) == rounded * 3).all() and (array * 3).scale == 40
    assert (opened(1 - array) == 1 - rounded).all()
    product = array * np.array([0.5, -0.25])
    assert product.scale == 80 and (opened(product) == rounded * [0.5, -0.25]).all()
    assert (opened(product + array.rescale(80) + 1.5) == rounded * [1.5, 0.75] + 1.5).all()
    w = np.array([[0.5, -1.0], [0.0, 2.0], [3.0, 0.125]])
    assert (w @ array).scale == 80 and np.allclose(opened(w @ array), w @ plain, rtol=1e-12, atol=1e-11)
    assert float(opened(array.sum())) == rounded.sum() and opened(array[:0]).shape == (0, 2)
    # Integers of a scale that is given, and floats that are integers.
    theirs = cg.EncryptedArray.from_ints(public.encrypt_ints([3]).to_ints(), KEYS, scale=1)
    assert opened(theirs) == [1.5] and opened(public.encrypt_ints([2**60])) == [2.0**60]
    assert KEYS.secret.decrypt_ints(public.encrypt_floats([7, 2.5], scale=0)) == [7, 2]


def test_arrays_pickle_with_their_public_key() -> None:
    array = KEYS.public.encrypt_floats([[0.5, -2.0, 1.0]])
    again = pickle.loads(pickle.dumps(array * 0.5 + 1))
    assert again.scale == 80 and again.public == KEYS.public
    assert (KEYS.secret.decrypt_floats(again) == [[1.25, 0.0, 1.5]]).all()
    none = pickle.loads(pickle.dumps(array[:0]))
    assert none.shape == (0, 3) and KEYS.secret.decrypt_floats(none).shape == (0, 3)


def test_python_paillier_reads_ours_and_we_read_theirs(tmp_path: Path) -> None:
    phe = pytest.importorskip("phe")
    KEYS.save(tmp_path / "keys")
    file = json.loads((tmp_path / "keys" / "secret.json").read_text())
    from phe.util import base64_to_int

    p, q = base64_to_int(file["p"]), base64_to_int(file["q"])
    theirs = phe.PaillierPublicKey(p * q)
    private = phe.PaillierPrivateKey(theirs, p, q)
    rng = random.Random(5)
    xs = [rng.randrange(-(10**30), 10**30) for _ in range(20)]
    ours = KEYS.public.encrypt_ints(xs)
    read = [private.raw_decrypt(c) for c in ours.to_ints()]
    assert [x if x < theirs.n // 2 else x - theirs.n for x in read] == xs
    made = cg.EncryptedArray.from_ints([theirs.raw_encrypt(x % theirs.n) for x in xs], KEYS)
    assert KEYS.secret.decrypt_ints(made) == xs
    assert KEYS.secret.decrypt_ints(made + ours) == [2 * x for x in xs]
    # The largest integer there is, twice.
    largest = KEYS.public.encrypt_ints([theirs.n // 3 - 1])
    assert KEYS.secret.decrypt_ints(largest) == [theirs.n // 3 - 1]
    for overflown in (largest + largest, largest * -2):
        with pytest.raises(cg.Overflow):
            KEYS.secret.decrypt_ints(overflown)
    with pytest.raises(cg.Overflow):
        KEYS.public.encrypt_ints([theirs.n // 3])
    mixed = [private.raw_decrypt(c) for c in (made + ours).to_ints()]
    assert [x if x < theirs.n // 2 else x - theirs.n for x in mixed] == [2 * x for x in xs]


def test_a_private_key_as_python_paillier_writes_it_opens_its_integers(tmp_path: Path) -> None:
    phe = pytest.importorskip("phe")
    from phe.util import int_to_base64

    public, private = phe.generate_paillier_keypair(n_length=2048)
    path = tmp_path / "phe.json"
    shared = {"kty": "DAJ", "alg": "PAI-GN1", "kid": "theirs", "key_ops": ["encrypt"]}
    shared["n"] = int_to_base64(public.n)
    own = {"p": int_to_base64(private.p), "q": int_to_base64(private.q), "key_ops": ["decrypt"]}
    path.write_text(json.dumps({"kty": "DAJ", "kid": "theirs", "pub": shared, **own}))
    path.chmod(0o600)
    secret = cg.load_keys(path)
    made = cg.EncryptedArray.from_ints([public.raw_encrypt(6)], secret.public)
    assert secret.decrypt_ints(made * 7) == [42]


def test_a_key_of_pheutil_opens_integers(tmp_path: Path) -> None:
    pytest.importorskip("phe")
    pytest.importorskip("click")
    path = tmp_path / "phe.json"
    made = subprocess.run(
        [sys.executable, "-m", "phe.command_line", "genpkey", "--keysize", "2048", str(path)],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    path.chmod(0o600)
    secret = cg.load_keys(path)
    assert secret.decrypt_ints(secret.public.encrypt_ints([7, -7])) == [7, -7]
