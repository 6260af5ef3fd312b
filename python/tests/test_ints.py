"""Integers under Paillier, beside python-paillier."""

from __future__ import annotations

import json
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
    for others in ([1, 2, 3], KEYS.public.encrypt_ints([1])):
        with pytest.raises(cg.LayoutError):
            array + others
    with pytest.raises(cg.LayoutError):
        array * [1, 2, 3]
    no_integers: list[Any] = [None, 1.5, [1, None], np.zeros(2), np.zeros((2, 2), int)]
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
