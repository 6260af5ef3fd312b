"""Sums that openers open, beside packed Shamir shares by a few lines of Python."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ciphergram as cg
import numpy as np
import numpy.typing as npt
import pytest

CLIENTS = 4


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


def test_packed_shares_by_the_book() -> None:
    """What any three of four openers recover, as the page on thresholds says it: not by this package."""
    rng = np.random.default_rng(5)
    faulty, rows = 1, 2
    bound = 2 * 21 * CLIENTS
    p = next(n for n in range(bound + 1, 2 * bound) if all(n % d for d in range(2, n)))

    def value(points: list[int], values: list[int], x: int) -> int:
        total = 0
        for own, y in zip(points, values, strict=True):
            factor = 1
            for other in points:
                if other != own:
                    factor = factor * (x - other) * pow(own - other, -1, p) % p
            total += factor * y
        return total % p

    sums, secret = [0] * CLIENTS, [0] * rows
    for _ in range(CLIENTS):
        own = [int(x) for x in rng.integers(-21, 22, rows)]
        drawn = [int(x) for x in rng.integers(0, p, faulty)]
        shares = [value([-1, -2, 1], own + drawn, opener + 1) for opener in range(CLIENTS)]
        assert shares[:faulty] == drawn
        sums = [(a + b) % p for a, b in zip(sums, shares, strict=True)]
        secret = [a + b for a, b in zip(secret, own, strict=True)]
    for openers in ([0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]):
        points, values = [i + 1 for i in openers], [sums[i] for i in openers]
        found = [value(points, values, -row - 1) for row in range(rows)]
        assert [x - p if x > p // 2 else x for x in found] == secret
