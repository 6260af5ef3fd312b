"""Sums that openers open, beside openers of OpenSSL and a few lines of Python."""

from __future__ import annotations

import hashlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import blake3
import ciphergram as cg
import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

CLIENTS = 4
# Of four openers three open, and one alone learns nothing.
OPEN, FAULTY = 3, 1
# Coefficients of four secrets lie within 63 of zero: the smallest prime above 126, of 7 bits. A ring of degree 4096 has
# a polynomial for every two, and 22 masks make a false proof as likely as 2^-128.
P, BITS, NUMBERS, MASKS = 127, 7, 2048, 22
# What X-Wing ends its hash with: a picture of its name.
LABEL = b"\\.//^\\"


@pytest.fixture
def members(tmp_path: Path) -> list[cg.Member]:
    """Four clients, any three of whom open their sums."""
    return cg.keygen_members(tmp_path / "keys", clients=CLIENTS)


def sum_of(
    members: list[cg.Member], clients: list[int], number: int
) -> tuple[cg.Sum, list[bytes], npt.NDArray[np.float32]]:
    """Return a sum of some clients' arrays, the requests to its openers, and the mean."""
    arrays = [np.array([0.1 * number, -0.25, client / 8], np.float32) for client in clients]
    summing = cg.Summing(members[0].public)
    for client, array in zip(clients, arrays, strict=True):
        summing.add(members[client].encrypt({"w": array}, ranges=1.0, round=number))
    requests = summing.requests()
    return summing.finish(), requests, np.mean(arrays, axis=0)


def test_rounds_open_by_any_three(members: list[cg.Member]) -> None:
    for number, openers in enumerate([(0, 1, 2), (1, 2, 3), (0, 2, 3)]):
        total, requests, mean = sum_of(members, [0, 1, 3], number)
        assert len(requests) == CLIENTS
        answers = [members[i].answer(requests[i]) for i in openers]
        for member in members:
            # They learn the openers' next prekeys from the answers.
            assert member.decrypt(total, answers)["w"] == pytest.approx(mean, abs=1e-4)


def test_rounds_over_datagrams_open_by_the_clients_themselves(
    members: list[cg.Member], tmp_path: Path
) -> None:
    public = tmp_path / "keys" / "public.json"
    arrays = [np.array([0.1, -0.25, client / 8], np.float32) for client in range(CLIENTS)]

    def take_part(server: cg.Server, number: int) -> list[cg.Opened]:
        with cg.Client(server.address, members[number]) as client:
            assert client.number == number == members[number].number
            return [client.mean({"w": arrays[number]}, weight=2) for _ in range(2)]

    with cg.Server(public, clients=CLIENTS, rounds=2) as server, ThreadPoolExecutor(CLIENTS) as pool:
        means = list(pool.map(lambda number: take_part(server, number), range(CLIENTS)))
    for mean in (mean for of_client in means for mean in of_client):
        assert mean["w"] == pytest.approx(np.mean(arrays, axis=0), abs=1e-4)
        assert mean.contributors == [0, 1, 2, 3]
    with cg.Client("127.0.0.1:1", members[0]) as client, pytest.raises(cg.KeyKind, match="mean"):
        client.sum({"w": arrays[0]})
    with pytest.raises(cg.ClientNumberError):
        cg.Client("127.0.0.1:1", members[0], number=1)
    job = members[0].job
    assert job is not None
    assert (job.openers, job.open) == ([0, 1, 2, 3], 3)


def test_errors_say_who(members: list[cg.Member], tmp_path: Path) -> None:
    total, requests, _ = sum_of(members, [0, 1, 2], 0)
    answers = [members[i].answer(requests[i]) for i in range(2)]
    with pytest.raises(cg.TooFew) as few:
        members[0].decrypt(total, answers)
    assert few.value.found == 2
    assert members[0].answer(requests[0]) == answers[0], "what got lost is given again"
    _, others, _ = sum_of(members, [1, 2, 0], 1)
    with pytest.raises(cg.OpenerError) as stale:
        members[0].answer(others[0])
    assert stale.value.client == 1
    with pytest.raises(cg.JobMismatch, match="opener 1, not 2"):
        members[2].answer(requests[1])
    with pytest.raises(cg.OpenerError) as twice:
        members[3].decrypt(total, [answers[0], answers[1], answers[1]])
    assert twice.value.opener == 1
    with pytest.raises(cg.BadFrame):
        members[2].answer(answers[0][:100])
    with pytest.raises(cg.KeyKind):
        cg.keygen("ckks-sum-threshold", clients=4)
    with pytest.raises(cg.ParameterError, match="2 of 4 openers"):
        cg.keygen_members(tmp_path / "few", clients=4, open=2)
    with pytest.raises(cg.Exists):
        cg.keygen_members(tmp_path / "keys", clients=4)
    again = cg.load_keys(tmp_path / "keys" / "clients" / "0.json")
    assert isinstance(again, cg.Member)
    assert again.job is not None


def shares_of(identity: Path, request: bytes, opener: int, contributors: int) -> npt.NDArray[np.int64]:
    """Return an opener's sum of shares, by OpenSSL and the page on thresholds: not by this package."""
    share_bytes = 32 if opener < FAULTY else packed_bytes(NUMBERS + MASKS)
    box_bytes = 8 + 1120 + 4 + share_bytes + 16
    entry_bytes = 34 + 32 + 4 + packed_bytes(OPEN * MASKS) + 64 + 1 + 32 * CLIENTS + box_bytes
    body = request[:-32]
    counter, seed = (identity.parent / (identity.name + ".prekeys")).read_text().splitlines()[1].split()[:2]
    seed = blake3.blake3(bytes.fromhex(seed), derive_key_context="ciphergram 2026 prekey secret").digest()
    secret = hashlib.shake_256(seed).digest(96)
    lattice, curve = MLKEM768PrivateKey.from_seed_bytes(secret[:64]), X25519PrivateKey.from_private_bytes(secret[64:])
    total = np.zeros(NUMBERS + MASKS, np.int64)
    for i in range(contributors):
        box = body[len(body) - i * entry_bytes - box_bytes :][:box_bytes]
        assert int.from_bytes(box[:8], "little") == int(counter)
        lattice_part, curve_part, sealed = box[8:1096], box[1096:1128], box[1132:-16]
        shared = curve.exchange(X25519PublicKey.from_public_bytes(curve_part))
        both = lattice.decapsulate(lattice_part) + shared + curve_part + curve.public_key().public_bytes_raw()
        key = hashlib.sha3_256(both + LABEL).digest()
        # As AES-GCM begins with its nonce of zeros; what the tag is bound to is left to the package.
        share = Cipher(algorithms.AES(key), modes.CTR(bytes(15) + b"\2")).decryptor().update(sealed)
        total += expand(share) if opener < FAULTY else unpack(share)
    return total[:NUMBERS] % P


def packed_bytes(numbers: int) -> int:
    return -(-numbers * BITS // 8)


def unpack(share: bytes) -> npt.NDArray[np.int64]:
    """Return the numbers of a share, which lie one after the other from the lowest bit on."""
    count = NUMBERS + MASKS
    bits = np.unpackbits(np.frombuffer(share, np.uint8), bitorder="little")[: count * BITS]
    return bits.reshape(count, BITS).astype(np.int64) @ (1 << np.arange(BITS))


def expand(seed: bytes) -> npt.NDArray[np.int64]:
    """Return the share that a seed names: numbers below P of 128 bits of ChaCha20 each."""
    count = NUMBERS + MASKS
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), None).encryptor().update(bytes(16 * count))
    numbers = (int.from_bytes(stream[16 * i : 16 * i + 16], "little") for i in range(count))
    return np.array([number * P >> 128 for number in numbers], np.int64)


def value_at(x: int, points: list[int], values: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Return the values of polynomials at a point, by Lagrange's formula."""
    total = np.zeros(NUMBERS, np.int64)
    for own, values_there in zip(points, values, strict=True):
        factor = 1
        for other in points:
            if other != own:
                factor = factor * (x - other) * pow(own - other, -1, P) % P
        total = (total + factor * values_there) % P
    return total


def test_openers_by_the_book_find_one_secret(members: list[cg.Member], tmp_path: Path) -> None:
    """Any three of four find the same sum of secrets, with the spread of three centred binomials."""
    clients = [0, 1, 3]
    total, requests, mean = sum_of(members, clients, 0)
    files = [tmp_path / "keys" / "clients" / f"{opener}.json" for opener in range(CLIENTS)]
    shares = [shares_of(files[i], requests[i], i, len(clients)) for i in range(CLIENTS)]
    found = []
    for openers in itertools.combinations(range(CLIENTS), OPEN):
        points, values = [i + 1 for i in openers], [shares[i] for i in openers]
        rows = [value_at(-row - 1, points, values) for row in range(OPEN - FAULTY)]
        found.append(np.concatenate(rows))
        assert np.array_equal(found[-1], found[0]), openers
    secret = np.where(found[0] > P // 2, found[0] - P, found[0])
    assert np.abs(secret).max() <= 21 * len(clients)
    assert np.var(secret) == pytest.approx(10.5 * len(clients), rel=0.15)
    answers = [members[i].answer(requests[i]) for i in range(OPEN)]
    assert members[2].decrypt(total, answers)["w"] == pytest.approx(mean, abs=1e-4)
