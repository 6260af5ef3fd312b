"""Clients and servers: real sockets, threads and processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ciphergram as cg

VALUES = 3000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a key, whose clients share it."""
    path = tmp_path_factory.mktemp("net") / "keys"
    cg.keygen(clients=3).save(path)
    return path


@pytest.fixture
def server(folder: Path) -> Iterator[cg.Server]:
    """Return a server of three clients."""
    with cg.Server(folder / "public.json", clients=3, round_timeout=20.0) as server:
        yield server


def come_back(
    pool: ThreadPoolExecutor, client: cg.Client, count: int = 1
) -> list[Future[cg.Opened]]:
    """Let client 2, which was stopped, join again before others open a round."""
    turns = [pool.submit(client.mean, tensors(2), weight=3) for _ in range(count)]
    time.sleep(0.5)
    assert not any(turn.done() for turn in turns)
    return turns


def tensors(number: int, round: int = 0) -> dict[str, np.ndarray]:
    """Return a client's update of a round."""
    return {"w": np.full(VALUES, number + 1.0, np.float32) / (round + 4)}


def test_a_mean_is_in_the_order_of_its_own_call(server: cg.Server, folder: Path) -> None:
    updates = [{name: np.ones(2, np.float32) for name in names} for names in ("zab", "bza", "abz")]

    def mean(number: int) -> cg.Opened:
        with cg.Client(server.address, folder / "secret.json", number=number) as client:
            return client.mean(updates[number])

    with ThreadPoolExecutor() as pool:
        assert ["".join(mean) for mean in pool.map(mean, range(3))] == ["zab", "bza", "abz"]


def take_part(address: str, folder: Path, number: int, rounds: int) -> list[cg.Opened]:
    """Return the means of some rounds of one client."""
    with cg.Client(address, folder / "secret.json", number=number) as client:
        return [client.mean(tensors(number, r), weight=number + 1) for r in range(rounds)]


def check(means: list[cg.Opened]) -> None:
    """Hold the means of clients 0 to 2 to the exact ones."""
    for r, mean in enumerate(means):
        exact = (1 + 4 + 9) / 6 / (r + 4)
        assert np.abs(mean["w"] - exact).max() < 1e-3
        assert mean.contributors == [0, 1, 2]
        # Who opens the sum of others has sent nothing.
        assert mean.clipped in ({"w": 0}, None)


def test_threads_of_one_process_take_part(server: cg.Server, folder: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(take_part, server.address, folder, n, 4) for n in range(3)]
        means = [job.result() for job in jobs]
    for own in means:
        check(own)
        assert [mean.round for mean in own] == [mean.round for mean in means[0]]
        assert all(np.array_equal(a["w"], b["w"]) for a, b in zip(own, means[0]))
    assert server.rounds == 4


def test_clients_that_open_large_sums_at_once_do_not_wait_for_each_other(
    server: cg.Server, folder: Path
) -> None:
    # Parts of a large sum are opened on several threads, and its record lets one client open at a time.
    large = {"w": np.linspace(-1, 1, 400_000, dtype=np.float32)}

    def work(number: int) -> cg.Opened:
        with cg.Client(server.address, folder / "secret.json", number=number) as client:
            return [client.mean(large) for _ in range(3)][-1]

    with ThreadPoolExecutor(3) as pool:
        means = [job.result(60) for job in [pool.submit(work, n) for n in range(3)]]
    assert all(np.abs(mean["w"] - large["w"]).max() < 1e-3 for mean in means)


def child(address: str, folder: Path, number: int) -> None:
    """Take part in two rounds, in a process of its own."""
    check(take_part(address, folder, number, 2))


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_processes_take_part(how: str, server: cg.Server, folder: Path) -> None:
    # What this process computed on has threads that a forked child has not.
    cg.keygen(clients=3).encrypt({"w": np.zeros(300_000)}, ranges=1.0, client=0)
    context: Any = multiprocessing.get_context(how)
    children = [context.Process(target=child, args=(server.address, folder, n)) for n in range(3)]
    for process in children:
        process.start()
    for process in children:
        process.join(60)
        assert process.exitcode == 0


def in_child(work: Any) -> str:
    """Return what work says in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, str(work()).encode())
        except BaseException as error:
            os.write(write, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(write)
    said = os.read(read, 1000).decode()
    os.waitpid(pid, 0)
    return said


def test_a_fork_keeps_no_record_locked(folder: Path) -> None:
    keys = cg.load_keys(folder)
    x = {"w": np.zeros(200_000)}
    ends = threading.Event()

    def seal_on() -> None:
        while not ends.is_set():
            keys.encrypt(x, ranges=1.0, client=2)

    thread = threading.Thread(target=seal_on)
    thread.start()
    sleepers = []
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        sleepers.append(pid)
    ends.set()
    thread.join(20)
    keys.encrypt(x, ranges=1.0, client=2)
    for pid in sleepers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert not thread.is_alive()


def test_a_forked_child_has_no_client_or_server_of_its_parent(
    server: cg.Server, folder: Path
) -> None:
    client = cg.Client(server.address, folder / "secret.json", number=0)
    assert in_child(lambda: client.mean(tensors(0))) == "ForkedError"
    assert in_child(lambda: server.stop()) == "ForkedError"
    assert in_child(lambda: server.wait(1)) == "ForkedError"
    # It can leave what it has alone, and compute.
    assert in_child(lambda: client.close()) == "None"
    large = {"w": np.zeros(300_000)}
    keys = cg.load_keys(folder)
    first = keys.encrypt(large, ranges=1.0, client=0).round
    assert in_child(lambda: keys.encrypt(large, ranges=1.0, client=0).round) == str(first + 1)
    with pytest.raises(cg.RoundOver):
        keys.encrypt(large, ranges=1.0, client=0, round=first + 1)
    # The record of a key that no file has is in its process.
    memory = cg.keygen(clients=3)
    assert in_child(lambda: memory.encrypt(large, ranges=1.0, client=1)) == "ForkedError"
    assert in_child(lambda: memory.propose(large, client=1)) == "ForkedError"


# Joins, and stands still before its round opens.
DIES = """
import os, signal, sys, threading, time
import numpy as np
import ciphergram as cg
address, folder = sys.argv[1:]
client = cg.Client(address, folder, number=2)
def watch():
    time.sleep(0.5)
    print("joins", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
threading.Thread(target=watch, daemon=True).start()
client.mean({"w": np.full(3000, 3.0, np.float32)})
"""

WAITS = """
import sys, time, threading, signal, os
import numpy as np
import ciphergram as cg
address, folder, what = sys.argv[1:]
# Whoever runs the tests under nohup, or in the background of a script, has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
client = cg.Client(address, folder + "/secret.json", number=0, timeout=60)
server = cg.Server(folder + "/public.json")
at = []
def stop():
    time.sleep(0.7)
    at.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=stop).start()
try:
    server.wait() if what == "server" else client.mean({"w": np.zeros(9)})
except KeyboardInterrupt:
    print("stopped after", round(time.monotonic() - at[0], 3))
"""


@pytest.mark.parametrize("what", ["nobody", "waiting", "server"])
def test_ctrl_c_ends_a_wait(what: str, server: cg.Server, folder: Path) -> None:
    address = "127.0.0.1:9" if what == "nobody" else server.address
    command = [sys.executable, "-c", WAITS, address, str(folder), what]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert ended.stdout.startswith("stopped after"), ended.stderr


def test_another_thread_stops_a_client_which_goes_on_later(
    server: cg.Server, folder: Path
) -> None:
    client = cg.Client(server.address, folder / "secret.json", number=2)
    with ThreadPoolExecutor(4) as pool:
        waits = pool.submit(client.mean, tensors(2))
        while not waits.done():
            time.sleep(0.1)
            client.stop()
        with pytest.raises(cg.Stopped):
            waits.result()
        turns = come_back(pool, client)
        jobs = [pool.submit(take_part, server.address, folder, n, 1) for n in (0, 1)]
        check([turns[0].result()])
        for job in jobs:
            job.result()
    client.close()


def test_closing_ends_a_round_and_a_second_call_waits_its_turn(
    server: cg.Server, folder: Path
) -> None:
    client = cg.Client(server.address, folder / "secret.json", number=2)
    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(client.mean, tensors(2)) for _ in range(2))
        time.sleep(0.3)
        assert not first.done() and not second.done()
        # Both began before it.
        client.close()
        for call in (first, second):
            with pytest.raises(cg.Stopped):
                call.result(30)
    # None had begun: the next call is not ended.
    client.stop()
    with ThreadPoolExecutor(4) as pool:
        turns = come_back(pool, client, count=2)
        jobs = [pool.submit(take_part, server.address, folder, n, 2) for n in (0, 1)]
        rounds = sorted(turn.result().round for turn in turns)
        assert rounds[0] < rounds[1]
        for job in jobs:
            job.result()
    client.close()


def test_a_round_that_was_stopped_goes_on_from_its_spool(
    server: cg.Server, folder: Path, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    with cg.Client(server.address, folder, number=2, spool=spool) as client:
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(client.mean, tensors(2), weight=3)
            time.sleep(0.5)
            client.stop()
            with pytest.raises(cg.Stopped):
                waits.result()
        with ThreadPoolExecutor(3) as pool:
            turns = come_back(pool, client)
            jobs = [pool.submit(take_part, server.address, folder, n, 1) for n in (0, 1)]
            check([turns[0].result()])
            for job in jobs:
                check(job.result())
        assert not spool.exists()


def test_a_job_of_two_goes_on_without_a_client_that_died(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    with pytest.warns(UserWarning):
        keys = cg.keygen(clients=3, min_clients=2)
    keys.save(folder)
    with cg.Server(folder, round_timeout=2.0, join_timeout=20.0) as server:
        command = [sys.executable, "-c", DIES, server.address, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as dying:
            assert dying.stdout is not None and dying.stdout.readline() == b"joins\n"
            with ThreadPoolExecutor(2) as pool:
                jobs = [pool.submit(take_part, server.address, folder, n, 1) for n in (0, 1)]
                means = [job.result()[0] for job in jobs]
            dying.kill()
        # Its sums are not waited for.
        server.stop(timeout=0.1)
    for mean in means:
        assert mean.contributors == [0, 1]
        assert np.abs(mean["w"] - (1 + 4) / 3 / 4).max() < 1e-3


def test_clients_with_keys_of_their_own_get_the_encrypted_sum(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    cg.keygen("paillier-2048", clients=3).save(folder)
    with cg.Server(folder) as server, ThreadPoolExecutor(3) as pool:

        def work(number: int) -> cg.Sum:
            key = folder / "clients" / f"{number}.json"
            with cg.Client(server.address, key) as client:
                with pytest.raises(cg.KeyKind):
                    client.mean(tensors(number))
                return client.sum(tensors(number), weight=number + 1)

        sums = [job.result() for job in [pool.submit(work, n) for n in range(3)]]
    assert sums[0] == sums[1] == sums[2]
    check([cg.load_keys(folder).decrypt(sums[0])])


def test_clients_choose_what_carries_their_datagrams(folder: Path) -> None:
    means: list[cg.Opened] = []
    with cg.Server(folder, clients=3, datagram=1372) as server, ThreadPoolExecutor(3) as pool:
        choices: list[dict[str, Any]] = [{"transport": "tcp"}, {"datagram": 1232}, {}]

        def mean(number: int) -> cg.Opened:
            with cg.Client(server.address, folder, number=number, **choices[number]) as client:
                return client.mean(tensors(number), weight=number + 1)

        means = list(pool.map(mean, range(3)))
    assert all(np.array_equal(mean["w"], means[0]["w"]) for mean in means)
    with pytest.raises(cg.ParameterError, match='transport="quic": a transport is auto, udp or'):
        cg.Client("127.0.0.1:9", folder, number=0, transport="quic")  # type: ignore[arg-type]
    with pytest.raises(cg.ParameterError, match=r"datagram=700: 700 .*768"):
        cg.Server(folder, datagram=700)
    with pytest.raises(cg.ParameterError, match="a proxy is http://"):
        cg.Client("127.0.0.1:9", folder, number=0, proxy="socks5://127.0.0.1")
    unreached = cg.Client("127.0.0.1:9", folder, number=0, transport="tcp", timeout=0.1)
    with pytest.raises(cg.Unreachable, match="127.0.0.1:9 in 0.1 s.*no connection by TCP to 127.0.0.1:9"):
        unreached.mean(tensors(0))


def test_what_cannot_be_is_one_error(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    cg.keygen(clients=3).save(other)
    with pytest.raises(cg.KeyKind):
        cg.Server(folder / "secret.json")
    with pytest.raises(cg.KeyKind):
        cg.Server(cg.load_keys(folder).secret)
    with pytest.raises(cg.NodeKeyError):
        cg.Server(cg.load_keys(folder).public)
    with pytest.raises(cg.NodeKeyError):
        cg.Server(folder, listen="0.0.0.0:0")
    with pytest.raises(cg.ParameterError):
        cg.Server(folder, listen="nowhere")
    with pytest.raises(cg.ParameterError):
        cg.Server(folder, clients=9)
    for fewest in (0, 3):
        with pytest.raises(cg.ParameterError):
            cg.Server(folder, clients=2, min_clients=fewest)
    for fewest in (0, 4):
        with pytest.raises(cg.ParameterError):
            cg.Client("127.0.0.1:9", folder, number=0, min_clients=fewest)
    with cg.Server(folder) as server, pytest.raises(OSError):
        cg.Server(folder, listen=server.address)
    with pytest.raises(cg.ClientNumberError):
        cg.Client("127.0.0.1:9", folder / "secret.json")
    with pytest.raises(cg.ClientNumberError):
        cg.Client("127.0.0.1:9", folder / "secret.json", number=3)
    with pytest.raises(cg.KeyKind):
        cg.Client("127.0.0.1:9", folder / "public.json", number=0)
    with pytest.raises(cg.NodeKeyError):
        cg.Client("192.0.2.1:9", folder / "secret.json", number=0)
    with pytest.raises(cg.Unreachable) as error:
        cg.Client("127.0.0.1:9", folder, number=0, timeout=0.3).mean(tensors(0))
    assert isinstance(error.value, ConnectionError)
    with cg.Server(folder) as server:
        stranger = cg.Client(
            server.address,
            folder / "secret.json",
            number=0,
            timeout=5,
            identity=other / "client.identity",
        )
        with pytest.raises(cg.Unlisted):
            stranger.mean(tensors(0))
        wrong = cg.Client(
            server.address, folder, number=0, timeout=1, server_key=other / "server.node"
        )
        with pytest.raises(cg.Unreachable):
            wrong.mean(tensors(0))
        with cg.Client(server.address, folder, number=0) as client:
            with pytest.raises(cg.NotFinite):
                client.mean({"w": np.array([np.nan])})


def test_a_server_logs_what_happens_and_warns_of_what_is_wrong(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ciphergram.server")
    with cg.Server(folder, rounds=2, join_timeout=1.0) as server, ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda number: take_part(server.address, folder, number, 1), range(3)))
        # One alone is too few.
        with pytest.raises(cg.Refused):
            take_part(server.address, folder, 0, 1)
    said = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "ciphergram.server"]
    assert sum("joined from node" in line for _, line in said) == 4
    assert ("INFO", "round 0 opened with clients [0, 1, 2]") in said
    assert any(level == "INFO" and "whole contributions of clients [0, 1, 2]" in line for level, line in said)
    assert [line for level, line in said if level == "WARNING" and "clients 1, 2 are missing" in line], said


def test_a_server_ends_by_itself_or_when_it_is_stopped(folder: Path) -> None:
    with cg.Server(folder, rounds=1) as server:
        assert not server.wait(0.05)
        with ThreadPoolExecutor(3) as pool:
            jobs = [pool.submit(take_part, server.address, folder, n, 1) for n in range(3)]
            [job.result() for job in jobs]
        assert server.wait(30) and server.rounds == 1
    server.stop()
    assert len(server.server_key) == 43
    handler = signal.getsignal(signal.SIGINT)
    idle = cg.Server(folder)
    began = threading.active_count()
    idle.stop()
    idle.stop()
    assert threading.active_count() <= began
    assert signal.getsignal(signal.SIGINT) is handler
