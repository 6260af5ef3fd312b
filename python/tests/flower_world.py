"""A federation of Flower in one process: a grid that calls every client's app itself."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import (
    ArrayRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

import ciphergram as cg

# A message of Flower is made by a task, which has these.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def make_keys(folder: Path, *, clients: int = 4, min_clients: int = 3, **options: Any) -> cg.Keys:
    """Make a key and its files: one folder for the server, one for each client, as on machines of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys = cg.keygen("ckks-sum", clients=clients, bits=20, min_clients=min_clients, **options)
    keys.save(folder / "all")
    for name in ["server", *map(str, range(clients))]:
        (folder / name).mkdir()
        kinds = ["public.json", "ranges-evaluation.cgk"] if name == "server" else ["secret.json"]
        for file in [*kinds, "job.json"]:
            if not (folder / "all" / file).exists():
                continue
            (folder / name / file).write_bytes((folder / "all" / file).read_bytes())
            (folder / name / file).chmod(0o600)
    return keys


Arrays = dict[str, np.ndarray]
SHAPES = {"w": (30, 7), "b": (7,)}
Update = Callable[[int, int, dict[str, np.ndarray]], dict[str, np.ndarray]]


class World:
    """Nodes with an app each; `update` makes a client's new arrays of its number, the round and the model."""

    def __init__(self, keys: Path, clients: int, update: Update, *, mods: list[Any] | None = None):
        self.update = update
        self.weights = {number: 10 * (number + 1) for number in range(clients)}
        self.extra: dict[str, Any] = {}
        self.down: set[int] = set()
        self.tamper: Callable[[Message, Message], Message] = lambda _, reply: reply
        self.seen: list[tuple[Message, Message]] = []
        self.models: dict[int, list[dict[str, np.ndarray]]] = {n: [] for n in range(clients)}
        self.app = ClientApp(mods=[cg.flower.mod] if mods is None else mods)
        self.app.train()(self._train)
        self.app.evaluate()(self._evaluate)
        self.contexts = {
            100 + n: Context(1, 100 + n, self._config(keys, n), RecordDict(), {})
            for n in range(clients)
        }

    @staticmethod
    def _config(keys: Path, number: int) -> dict[str, Any]:
        path = keys / str(number) / "secret.json"
        return {"ciphergram-key": str(path), "ciphergram-client": number}

    def _train(self, message: Message, context: Context) -> Message:
        number = context.node_id - 100
        model = {n: a.numpy() for n, a in message.content["arrays"].items()}
        self.models[number].append(model)
        server_round = message.content["config"]["server-round"]
        new = self.update(number, server_round, model)
        metrics = {"num-examples": self.weights[number], "loss": float(number), **self.extra}
        content = RecordDict(
            {"arrays": ArrayRecord(_arrays(new)), "metrics": MetricRecord(metrics)}
        )
        return Message(content, reply_to=message)

    def _evaluate(self, message: Message, context: Context) -> Message:
        number = context.node_id - 100
        self.models[number].append({n: a.numpy() for n, a in message.content["arrays"].items()})
        metrics = MetricRecord({"num-examples": 1, "accuracy": 0.5})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    # What follows is the part of Flower's Grid that strategies use.
    def get_node_ids(self) -> list[int]:
        return [node for node in self.contexts if node not in self.down]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        # At once, as rounds over datagrams wait for each other.
        with ThreadPoolExecutor(8) as threads:
            return list(threads.map(self._deliver, messages))

    def _deliver(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        if node in self.down:
            return Message(Error(code=3, reason="the node is gone"), reply_to=message)
        # A message to one node is not another's to change.
        own, message = copy.deepcopy(message), copy.deepcopy(message)
        try:
            reply = self.app(own, self.contexts[node])
        except Exception as error:
            reply = Message(Error(code=201, reason=str(error)), reply_to=own)
        self.seen.append((message, reply))
        return self.tamper(message, reply)


def _arrays(values: dict[str, np.ndarray]) -> dict[str, Any]:
    from flwr.app import Array

    return {name: Array(np.asarray(value)) for name, value in values.items()}


def record(values: dict[str, np.ndarray]) -> ArrayRecord:
    """Return a model's record."""
    return ArrayRecord(_arrays(values))


def fedavg(clients: int = 3, **options: Any) -> FedAvg:
    """Return the plain strategy of all clients."""
    return FedAvg(
        min_train_nodes=clients,
        min_evaluate_nodes=clients,
        min_available_nodes=clients,
        **options,
    )


def step(number: int, server_round: int, model: Arrays) -> Arrays:
    """A client's update: some steps away from the model, its own ones and the same in every run."""
    rng = np.random.default_rng([number, server_round])
    return {n: (a + 0.1 * rng.standard_normal(a.shape)).astype(a.dtype) for n, a in model.items()}


def start_model() -> Arrays:
    # Not in the order of the names: a model's own is kept.
    return {n: np.full(shape, 0.25, np.float32) for n, shape in SHAPES.items()}


def plain_rounds(rounds: int, clients: int = 3, update: Any = step) -> Arrays:
    """FedAvg in float64, by itself."""
    model = start_model()
    weights = np.array([10 * (n + 1) for n in range(clients)], float)
    for server_round in range(1, rounds + 1):
        news = [update(n, server_round, model) for n in range(clients)]
        model = {
            name: (
                sum(w * new[name].astype(float) for w, new in zip(weights, news, strict=True))
                / weights.sum()
            )
            for name in model
        }
        model = {name: value.astype(np.float32) for name, value in model.items()}
    return model


def to_arrays(arrays: ArrayRecord) -> Arrays:
    return {name: array.numpy() for name, array in arrays.items()}


def bound(rounds: int, largest: float = 2.0, max_weight: int = 32) -> float:
    # Each of three clients rounds its weighted values to one of 2^20 steps over twice the range and the largest
    # weight; the mean divides by all weights, 60. Later rounds pass on what earlier ones rounded.
    return rounds * 3 * (2 * largest * max_weight / 2**20) / 60
