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


def history(
    rounds: int, *, clients: int = CLIENTS, without: tuple[int, int] | None = None
) -> History:
    """FedAvg of the example in float64, by itself; `without` is the client and the round that it misses."""
    model, sent, means = task.new_model(), [], []
    for number in range(1, rounds + 1):
        data = [task.load(client, clients)[0] for client in range(clients)]
        news = [task.train(model, own, EPOCHS)[0] for own in data]
        there = [c for c in range(clients) if (c, number) != without]
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


def bound(rounds: int, clients: int = CLIENTS) -> float:
    """The largest error of a value after some rounds.

    Every round each client rounds its weighted values to one of 2^20 steps over twice the range, at most 8, and the
    largest weight, at most 1024; the mean divides by all weights. What a round rounded training passes on, at most
    doubled.
    """
    examples = sum(len(task.load(client, clients)[0][1]) for client in range(clients))
    once = clients * 2 * 8 * 1024 / 2**BITS / examples
    return once * (2**rounds - 1)


def assert_close(
    found: dict[str, Any], expected: task.Model, rounds: int, clients: int = CLIENTS
) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_allclose(found[name], values, atol=bound(rounds, clients), rtol=0)


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


def make_members(folder: Path) -> Path:
    """Make identities of four, any three of whom open sums."""
    cg.keygen_members(folder / "all", clients=4, bits=BITS)
    for name in ["server", *map(str, range(4))]:
        (folder / name).mkdir()
        own = [f"clients/{name}.json", f"clients/{name}.json.prekeys"]
        for file in [*(["public.json"] if name == "server" else own), "job.json"]:
            shutil.copy(folder / "all" / file, folder / name)
    return folder


def start_nodes(deployment: Deployment, keys: Path, clients: int = CLIENTS) -> None:
    for number in range(clients):
        key = next(path for path in (keys / str(number)).iterdir() if path.name in ("secret.json", f"{number}.json"))
        deployment.node(
            number,
            f'ciphergram-key="{key}" ciphergram-client={number} '
            f"partition-id={number} num-partitions={clients}",
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


@pytest.mark.parametrize("clients", [3, 4], ids=["under a shared key", "openers"])
def test_one_node_killed_in_mid_round_and_the_others_finish_exactly(
    tmp_path: Path, deployment: Deployment, clients: int
) -> None:
    (tmp_path / "keys").mkdir()
    keys = tmp_path / "keys"
    _ = make_keys(keys, min_clients=2) if clients == 3 else make_members(keys)
    start_nodes(deployment, keys, clients)
    last = clients - 1
    app, mark = tmp_path / "app", tmp_path / "training"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__", "keys"))
    client = app / "digits" / "client_app.py"
    line = "    data, _ = _data(context)\n"
    stall = (
        f"{line}    there = message.content['config']['server-round'], context.node_config['partition-id']\n"
        f"    if there == (2, {last}):\n"
        f"        import pathlib, time\n"
        f"        pathlib.Path({str(mark)!r}).touch()\n"
        f"        time.sleep(600)\n"
    )
    assert line in client.read_text()
    client.write_text(client.read_text().replace(line, stall, 1))
    _wait_for_nodes(deployment, clients)

    class Killer(Watch):
        def run(self) -> None:
            while not self.over.wait(0.05):
                if mark.exists() and f"node{last}" in deployment.processes:
                    deployment.kill(f"node{last}")

    with Killer([], []):
        log = deployment.run(
            app,
            {
                "rounds": 2,
                "clients": last,
                "timeout": 45,
                "public-key": keys / "server" / "public.json",
                "result": tmp_path / "result.npz",
            },
        )
    assert mark.exists() and f"node{last}" not in deployment.processes
    assert f"round 1 is the sum of clients {list(range(clients))}" in log
    assert f"round 2 is the sum of clients {list(range(last))}" in log
    _, means = history(2, clients=clients, without=(last, 2))
    key = keys / "0" / ("secret.json" if clients == 3 else "0.json")
    assert_close(opened(tmp_path / "result.npz", key), means[-1], 2, clients)


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
