"""A client: trains the model it is sent on its own digits. One line makes its updates unreadable: the mod."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import ciphergram as cg

from . import task

app = ClientApp(mods=[cg.flower.mod])


def _model(message: Message) -> task.Model:
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


def _data(context: Context) -> tuple[task.Data, task.Data]:
    config = context.node_config
    return task.load(int(config["partition-id"]), int(config["num-partitions"]))


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model, and reply with it and with the number of examples: its weight."""
    data, _ = _data(context)
    model, loss = task.train(_model(message), data, int(context.run_config["local-epochs"]))
    arrays = ArrayRecord({name: Array(values) for name, values in model.items()})
    metrics = MetricRecord({"num-examples": len(data[1]), "loss": loss})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the model."""
    _, data = _data(context)
    accuracy = task.test(_model(message), data)
    metrics = MetricRecord({"num-examples": len(data[1]), "accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
