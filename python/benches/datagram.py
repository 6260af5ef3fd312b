"""Time a round of a large model over datagrams against Flower's messages: a line of `bench.py`, as JSON.

Three SuperNodes send as many values as the first argument says, 50 million if there is none. What an empty round of one
value takes is subtracted from both. Server and nodes of Flower look for messages every few seconds, so that a round
takes several such looks, and work that fits between two of them costs no round anything.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "with_flower")]

from deployment import deployed  # noqa: E402
from flower import CLOCK  # noqa: E402

import ciphergram as cg  # noqa: E402

CLIENTS, ROUNDS = 3, 4

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


def seconds(folder: Path, transport: str, values: int) -> float:
    """Run the app, and return the median time of its rounds from the second on."""
    here = folder / f"{transport}-{values}"
    times = here / "times"
    project = app(here / "app", times)
    keys = folder / "keys"
    with deployed(here / "run") as deployment:
        for number in range(CLIENTS):
            key = f'ciphergram-key="{keys}/secret.json" ciphergram-client={number}'
            deployment.node(number, key)
        config = {"transport": transport, "values": values, "public-key": keys / "public.json"}
        deployment.run(project, config, timeout=1500)
    started = [float(line) for line in times.read_text().split()]
    return statistics.median(b - a for a, b in zip(started[1:], started[2:], strict=False))


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
    ours, peer = (took[t, values] - took[t, 1] for t in ("datagram", "message"))
    if min(ours, peer) <= 0:
        sys.exit("an empty round took longer than a full one: the machine is too busy to measure on")
    row = {
        "what": f"{values / 1e6:g} M values, three SuperNodes, beyond an empty round",
        "ours": f"{ours:.2f} s over datagrams ({took['datagram', values]:.2f} s a round)",
        "peer": f"{peer:.2f} s in messages ({took['message', values]:.2f} s a round)",
        "ratio": peer / ours,
        "target": ">= 3x",
        "met": peer >= 3 * ours,
    }
    sys.stdout.write(json.dumps([row]) + "\n")


if __name__ == "__main__":
    main()
