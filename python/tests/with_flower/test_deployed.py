"""The example flower-digits as processes: deployed with TLS and authenticated nodes, and in Flower's simulation."""

from __future__ import annotations

import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", "1.41")
pytest.importorskip("sklearn")

from deployment import EXAMPLE, Deployment, Watch, deployed, plain_example  # noqa: E402

import ciphergram as cg  # noqa: E402
import ciphergram.flower  # noqa: E402

sys.path.insert(0, str(EXAMPLE))
from digits import task  # noqa: E402

CLIENTS, ROUNDS, EPOCHS = 3, 2, 5
BITS = 20

# One list of what each client sent and one of what all got, by rounds.
History = tuple[list[list[task.Model]], list[task.Model]]


def history(rounds: int, *, without: tuple[int, int] | None = None) -> History:
    """FedAvg of the example in float64, by itself; `without` is the client and the round that it misses."""
    model, sent, means = task.new_model(), [], []
    for number in range(1, rounds + 1):
        data = [task.load(client, CLIENTS)[0] for client in range(CLIENTS)]
        news = [task.train(model, own, EPOCHS)[0] for own in data]
        there = [c for c in range(CLIENTS) if (c, number) != without]
        weights = {c: len(data[c][1]) for c in there}
        model = {
            name: np.float32(
                sum(weights[c] * news[c][name].astype(float) for c in there) / sum(weights.values())
            )
            for name in model
        }
        sent.append([news[c] for c in there])
        means.append(model)
    return sent, means


def bound(rounds: int) -> float:
    """The largest error of a value after some rounds.

    Every round each client rounds its weighted values to one of 2^20 steps over twice the range, at most 8, and the
    largest weight, at most 1024; the mean divides by all weights. What a round rounded training passes on, at most
    doubled.
    """
    examples = sum(len(task.load(client, CLIENTS)[0][1]) for client in range(CLIENTS))
    once = CLIENTS * 2 * 8 * 1024 / 2**BITS / examples
    return once * (2**rounds - 1)


def assert_close(found: dict[str, Any], expected: task.Model, rounds: int) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_allclose(found[name], values, atol=bound(rounds), rtol=0)


def make_keys(folder: Path, *, min_clients: int) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys = cg.keygen("ckks-sum", clients=CLIENTS, bits=BITS, min_clients=min_clients)
    keys.save(folder / "all")
    for name in ["server", *map(str, range(CLIENTS))]:
        (folder / name).mkdir()
        for file in ("public.json" if name == "server" else "secret.json", "job.json"):
            shutil.copy(folder / "all" / file, folder / name / file)
    return folder


def start_nodes(deployment: Deployment, keys: Path) -> None:
    for number in range(CLIENTS):
        key = keys / str(number) / "secret.json"
        deployment.node(
            number,
            f'ciphergram-key="{key}" ciphergram-client={number} '
            f"partition-id={number} num-partitions={CLIENTS}",
        )


def opened(path: Path, key: Path) -> dict[str, np.ndarray]:
    record = cg.flower.open(path, key)
    return {name: array.numpy() for name, array in record.items()}


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with deployed(tmp_path / "flower") as running:
        yield running


def needles(models: list[task.Model]) -> list[bytes]:
    """Return the bytes of some values of each model, as any plain encoding of its arrays has them."""
    return [model["out.weight"][4:6].tobytes()[:64] for model in models]


def watch(deployment: Deployment, sought: list[bytes]) -> Watch:
    files = [deployment.folder / name for name in ("state.db", "state.db-wal", "superlink.log")]
    return Watch(files, sought)


def test_deployed_rounds_equal_plain_ones_and_the_server_reads_nothing(
    tmp_path: Path, deployment: Deployment
) -> None:
    (tmp_path / "keys").mkdir()
    keys = make_keys(tmp_path / "keys", min_clients=3)
    start_nodes(deployment, keys)
    # A stranger with a key that nobody registered.
    deployment.node(9, "partition-id=0 num-partitions=3", register=False)
    sent, means = history(ROUNDS)
    readable = needles([model for round_ in sent for model in round_] + means)
    secret = (keys / "0" / "secret.json").read_bytes()
    middle = len(secret) // 2

    with watch(deployment, readable) as seen:
        plain = tmp_path / "plain.npz"
        deployment.run(plain_example(tmp_path), {"rounds": 1, "clients": CLIENTS, "result": plain})
    assert seen.found, "of plain rounds the server has the models: the search finds what is there"
    with np.load(plain) as arrays:
        assert_close(dict(arrays), means[0], 1)

    own = needles([task.new_model()])
    # What plain rounds left behind in the database is not this run's.
    later = readable[CLIENTS * 1 : CLIENTS * ROUNDS] + readable[CLIENTS * ROUNDS + 1 :]
    with watch(deployment, [*later, secret[middle : middle + 40], *own]) as seen:
        log = deployment.run(
            EXAMPLE,
            {
                "rounds": ROUNDS,
                "clients": CLIENTS,
                "public-key": keys / "server" / "public.json",
                "result": tmp_path / "result.npz",
            },
        )
    assert {at for _, at in seen.found} <= {len(later) + 1}, "only the initial model is readable"
    assert_close(opened(tmp_path / "result.npz", keys / "0" / "secret.json"), means[-1], ROUNDS)
    assert log.count("is the sum of clients [0, 1, 2]") == ROUNDS
    assert log.count("'ciphergram-clipped': 0.0") == ROUNDS
    assert "(out of 3)" in log and "(out of 4)" not in log
    stranger = deployment.log("node9")
    assert "ciphergram" not in stranger and "Traceback" not in log
    assert deployment.processes["node9"].poll() not in (None, 0), stranger[-500:]


def test_one_node_killed_in_mid_round_and_two_finish_exactly(
    tmp_path: Path, deployment: Deployment
) -> None:
    (tmp_path / "keys").mkdir()
    keys = make_keys(tmp_path / "keys", min_clients=2)
    start_nodes(deployment, keys)
    app, mark = tmp_path / "app", tmp_path / "training"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__", "keys"))
    client = app / "digits" / "client_app.py"
    line = "    data, _ = _data(context)\n"
    stall = (
        f"{line}    if message.content['config']['server-round'] == 2 and context.node_config['partition-id'] == 2:\n"
        f"        import pathlib, time\n"
        f"        pathlib.Path({str(mark)!r}).touch()\n"
        f"        time.sleep(600)\n"
    )
    assert line in client.read_text()
    client.write_text(client.read_text().replace(line, stall, 1))
    _wait_for_nodes(deployment, CLIENTS)

    class Killer(Watch):
        def run(self) -> None:
            while not self.over.wait(0.05):
                if mark.exists() and "node2" in deployment.processes:
                    deployment.kill("node2")

    with Killer([], []):
        log = deployment.run(
            app,
            {
                "rounds": 2,
                "clients": 2,
                "timeout": 45,
                "public-key": keys / "server" / "public.json",
                "result": tmp_path / "result.npz",
            },
        )
    assert mark.exists() and "node2" not in deployment.processes
    assert "round 1 is the sum of clients [0, 1, 2]" in log
    assert "round 2 is the sum of clients [0, 1]" in log
    _, means = history(2, without=(2, 2))
    assert_close(opened(tmp_path / "result.npz", keys / "0" / "secret.json"), means[-1], 2)


def _wait_for_nodes(deployment: Deployment, nodes: int) -> None:
    end = time.monotonic() + 60
    while deployment.flwr("supernode", "list", "here").count("online") < nodes:
        assert time.monotonic() < end, "the nodes do not come online"
        time.sleep(1)


def test_the_same_app_runs_in_a_simulation(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "keys").mkdir()
    keys = make_keys(tmp_path / "keys", min_clients=3)
    with deployed(tmp_path / "flower", simulation=True) as deployment:
        log = deployment.run(
            EXAMPLE,
            {
                "rounds": 2,
                "clients": CLIENTS,
                "public-key": keys / "server" / "public.json",
                "ciphergram-key": keys / "all" / "secret.json",
                "result": tmp_path / "result.npz",
            },
        )
    assert log.count("is the sum of clients [0, 1, 2]") == 2
    _, means = history(2)
    assert_close(opened(tmp_path / "result.npz", keys / "0" / "secret.json"), means[-1], 2)
