"""Time a round of Flower's example, encrypted against plain: the lines of `bench.py` about it, as JSON.

Both run deployed on this machine, with three SuperNodes each of their own SuperLink, one after the other. A round is
from its training to that of the next; the first is left out, as only it asks for ranges.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "with_flower"))

import ciphergram as cg  # noqa: E402
from deployment import EXAMPLE, deployed, plain_example  # noqa: E402

CLIENTS, ROUNDS = 3, 9

# Writes the time at which each round begins.
CLOCK = """
import logging, time


class _Clock(logging.Handler):
    def emit(self, record):
        if "[ROUND" in str(record.msg):
            with open({path!r}, "a") as file:
                print(time.time(), file=file)


logging.getLogger("flwr").addHandler(_Clock())
app = ServerApp()
"""


def clocked(app: Path, folder: Path) -> Path:
    """Copy an app, with a clock in its server."""
    copy = folder / f"clocked-{app.name}"
    shutil.copytree(app, copy, ignore=shutil.ignore_patterns("__pycache__", "keys"))
    server = copy / "digits" / "server_app.py"
    text = server.read_text()
    clock = CLOCK.format(path=str(folder / f"{app.name}.times"))
    server.write_text(text.replace("\napp = ServerApp()\n", clock))
    return copy


def check(log: str, rounds: int) -> None:
    """End with an error, unless each round of a run is the sum of all clients: a lost one is a quick one."""
    summed = log.count(f"is the sum of clients {list(range(CLIENTS))}")
    if summed != rounds:
        sys.exit(f"{summed} of {rounds} rounds are sums of all clients:\n{log[-3000:]}")


def seconds(app: Path, folder: Path, keys: Path) -> float:
    """Run an app, and return the median time of its rounds from the second on."""
    copy = clocked(app, folder)
    with deployed(folder / f"run-{app.name}") as deployment:
        for number in range(CLIENTS):
            deployment.node(
                number,
                f'ciphergram-key="{keys}/secret.json" ciphergram-client={number} '
                f"partition-id={number} num-partitions={CLIENTS}",
            )
        config = {"rounds": ROUNDS, "clients": CLIENTS, "public-key": keys / "public.json"}
        log = deployment.run(copy, config, timeout=1500)
    if app == EXAMPLE:
        check(log, ROUNDS)
    times = [float(line) for line in (folder / f"{app.name}.times").read_text().split()]
    return statistics.median(b - a for a, b in zip(times[1:], times[2:], strict=False))


def main() -> None:
    """Print the line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys = folder / "keys"
        cg.keygen("ckks-sum", clients=CLIENTS, bits=20, min_clients=3).save(keys)
        plain = seconds(plain_example(folder), folder, keys)
        ours = seconds(EXAMPLE, folder, keys)
    more = 100 * (ours / plain - 1)
    row = {
        "what": "Flower digits, a round from the second on",
        "ours": f"{ours:.2f} s",
        "peer": f"{plain:.2f} s plain",
        "ratio": more,
        "target": "<= 5 % more",
        "met": more <= 5,
    }
    sys.stdout.write(json.dumps([row]) + "\n")


if __name__ == "__main__":
    main()
