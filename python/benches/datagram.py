"""Time a round of a large model over datagrams against Flower's messages: a line of `bench.py`, as JSON.

Three SuperNodes send as many values as the first argument says, 50 million if there is none. What an empty round of one
value takes is subtracted from both. Server and nodes of Flower look for messages every few seconds, so that a round
is longer or shorter by some of them than the next: means are compared, and the ratio is the least within one standard
error of both sides.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "with_flower")]

from deployment import deployed  # noqa: E402
from flower import CLOCK, check  # noqa: E402

import ciphergram as cg  # noqa: E402

CLIENTS, ROUNDS = 3, 9

PROJECT = """
[project]
name = "large"
version = "1.0.0"
license = "MIT"
dependencies = ["flwr"]

[tool.flwr.app]
publisher = "ciphergram"

[tool.flwr.app.components]
serverapp = "large.server:app"
clientapp = "large.client:app"

[tool.flwr.app.config]
transport = "message"
values = 1
public-key = ""
"""

CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import ciphergram as cg

app = ClientApp(mods=[cg.flower.mod])


@app.train()
def train(message, context):
    values = message.content["arrays"]["w"].numpy() * np.float32(0.5) + np.float32(0.25)
    arrays = ArrayRecord({"w": Array(values)})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
    return Message(content, reply_to=message)
"""

SERVER = """
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import ciphergram as cg

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3
    )
    strategy = cg.flower.Encrypted(
        strategy, key=config["public-key"], transport=config["transport"]
    )
    values = np.full(config["values"], 0.5, np.float32)
    strategy.start(grid, ArrayRecord({"w": Array(values)}), num_rounds=ROUNDS, timeout=900)
"""


def app(folder: Path, times: Path) -> Path:
    """Write the app, with a clock in its server."""
    (folder / "large").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "large" / "__init__.py").touch()
    (folder / "large" / "client.py").write_text(CLIENT)
    server = SERVER.replace("ROUNDS", str(ROUNDS))
    server = server.replace("\napp = ServerApp()\n", CLOCK.format(path=str(times)))
    (folder / "large" / "server.py").write_text(server)
    return folder


def seconds(folder: Path, transport: str, values: int) -> tuple[float, float]:
    """Run the app; return the mean time of its rounds from the second on, and the variance of that."""
    here = folder / f"{transport}-{values}"
    times = here / "times"
    project = app(here / "app", times)
    keys = folder / "keys"
    with deployed(here / "run") as deployment:
        for number in range(CLIENTS):
            key = f'ciphergram-key="{keys}/secret.json" ciphergram-client={number}'
            deployment.node(number, key)
        config = {"transport": transport, "values": values, "public-key": keys / "public.json"}
        check(deployment.run(project, config, timeout=1500), ROUNDS)
    started = [float(line) for line in times.read_text().split()]
    taken = [b - a for a, b in zip(started[1:], started[2:], strict=False)]
    return statistics.mean(taken), statistics.variance(taken) / len(taken)


def main() -> None:
    """Print the line."""
    values = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cg.keygen("ckks-sum", clients=CLIENTS, bits=20, min_clients=3).save(folder / "keys")
        took = {
            (transport, size): seconds(folder, transport, size)
            for transport in ("message", "datagram")
            for size in (1, values)
        }
    (ours, error), (peer, its_error) = (
        (took[t, values][0] - took[t, 1][0], math.sqrt(took[t, values][1] + took[t, 1][1]))
        for t in ("datagram", "message")
    )
    ratio = (peer - its_error) / (max(ours, 0) + error)
    row = {
        "what": f"{values / 1e6:g} M values, three SuperNodes, beyond an empty round",
        "ours": f"{ours:.1f} ± {error:.1f} s over datagrams",
        "peer": f"{peer:.1f} ± {its_error:.1f} s in messages",
        "ratio": ratio,
        "target": ">= 3x",
        "met": ratio >= 3,
    }
    sys.stdout.write(json.dumps([row]) + "\n")


if __name__ == "__main__":
    main()
