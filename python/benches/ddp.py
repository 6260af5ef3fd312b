"""Measures a step of DistributedDataParallel, three ranks on this machine: encrypted rounds against gloo.

``python python/benches/ddp.py`` prints a line for each size, and last the rows for ``bench.py``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ciphergram as cg
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 3
BATCH = 32
TARGETS = {19_000: 3.0, 10_000_000: 2.5}
_SHAPES = {19_000: (64, 160, 54), 10_000_000: (1024, 3000, 2300)}


def measure(parameters: int, steps: int, bits: int = 16) -> dict[str, Any]:
    """Measures steps of a model of two layers, on three ranks of one thread each.

    Encrypted and plain steps of the same shape take turns in the same processes, so that whatever else the machine does
    slows both. A step is forward, backward and optimizer.

    Args:
        parameters: 19,000 or 10,000,000.
        steps: Steps of each kind, after three to warm up.
        bits: The bits of the key.

    Returns:
        Medians over steps, in milliseconds, of the slowest rank: of steps, and of what averages gradients alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        key, results = str(Path(folder) / "keys"), str(Path(folder) / "rank")
        cg.keygen("ckks-sum", clients=WORLD, bits=bits, min_clients=WORLD).save(key)
        with cg.Server(key, clients=WORLD) as server:
            arguments = (server.address, key, folder, parameters, steps)
            torch.multiprocessing.spawn(_rank, arguments, nprocs=WORLD)
        ranks = [torch.load(f"{results}.{rank}") for rank in range(WORLD)]
    slowest = {name: max(rank[name] for rank in ranks) for name in ranks[0]}
    return {
        "parameters": sum(a * b + b for a, b in zip(_SHAPES[parameters], _SHAPES[parameters][1:], strict=False)),
        "gloo_step_ms": slowest["plain"],
        "encrypted_step_ms": slowest["ours"],
        "ratio": slowest["ours"] / slowest["plain"],
        "target": TARGETS[parameters],
        "gloo_all_reduce_ms": slowest["all_reduce"],
        "round_ms": slowest["round"],
    }


def _rank(rank: int, address: str, key: str, folder: str, parameters: int, steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    timeout = datetime.timedelta(seconds=300)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD, timeout=timeout)
    inputs, hidden, outputs = _SHAPES[parameters]
    batch = torch.randn(BATCH, inputs), torch.randn(BATCH, outputs)
    flat = torch.randn(sum(p.numel() for p in _model(inputs, hidden, outputs).parameters())) * 0.01
    with cg.Client(address, key, number=rank) as client:
        plain, ours = (DistributedDataParallel(_model(inputs, hidden, outputs)) for _ in range(2))
        with cg.torch.protect(ours, client):
            acts: dict[str, Callable[[], object]] = {"plain": _step(plain, batch), "ours": _step(ours, batch)}
            acts["all_reduce"] = lambda: dist.all_reduce(flat.clone())
            acts["round"] = lambda: client.mean({"flat": flat})
            medians = _medians(acts, steps)
        torch.save(medians, f"{folder}/rank.{rank}")
        dist.barrier()
    dist.destroy_process_group()


def _model(inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def _step(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
        optimizer.step()

    return step


def _medians(acts: dict[str, Callable[[], object]], count: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in acts}
    for turn in range(3 + count):
        for name, act in acts.items():
            dist.barrier()
            since = time.perf_counter()
            act()
            if turn >= 3:
                times[name].append(1e3 * (time.perf_counter() - since))
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    """Measures both sizes, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, choices=list(_SHAPES), nargs="*", default=list(_SHAPES))
    parser.add_argument("--steps", type=int, help="steps of each kind (default: 200, or 10 of the large model)")
    parser.add_argument("--bits", type=int, default=16)
    options = parser.parse_args()
    rows = []
    for parameters in options.parameters:
        steps = options.steps or (200 if parameters < 1_000_000 else 10)
        figures = measure(parameters, steps, options.bits)
        sys.stdout.write(json.dumps(figures) + "\n")
        rows.append(_row(figures))
    sys.stdout.write(json.dumps(rows) + "\n")


def _row(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        "what": f"DDP step, three ranks, {figures['parameters']:,} parameters",
        "ours": f"{figures['encrypted_step_ms']:.1f} ms",
        "peer": f"gloo {figures['gloo_step_ms']:.1f} ms",
        "ratio": round(figures["ratio"], 2),
        "target": f"<= {figures['target']:g}",
        "met": figures["ratio"] <= figures["target"],
    }


if __name__ == "__main__":
    main()
