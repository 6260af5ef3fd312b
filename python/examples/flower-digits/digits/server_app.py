"""The server: averages what clients send. One line makes it average what it cannot read: the strategy's wrapper."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import ciphergram as cg

from . import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    config = context.run_config
    clients = int(config["clients"])
    strategy = FedAvg(
        min_train_nodes=clients, min_evaluate_nodes=clients, min_available_nodes=clients
    )
    strategy = cg.flower.Encrypted(strategy, key=str(config["public-key"]))
    initial = ArrayRecord({name: Array(values) for name, values in task.new_model().items()})
    rounds, timeout = int(config["rounds"]), float(config["timeout"])
    result = strategy.start(grid, initial, num_rounds=rounds, timeout=timeout)
    if config["result"]:
        cg.flower.save(result.arrays, str(config["result"]))
