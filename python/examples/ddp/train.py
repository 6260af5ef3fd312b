"""Trains a classifier of digits on three ranks whose gradients are averaged under encryption.

``python train.py`` runs the server and the ranks on this machine. ``--plain`` uses gloo's all-reduce.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

import ciphergram as cg
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 3

logger = logging.getLogger("ciphergram")


def train(rank: int, folder: str, address: str | None, epochs: int) -> None:
    """Trains on every third image."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images[rank::WORLD] / 16, dtype=torch.float32)[:576]
    y = torch.tensor(labels[rank::WORLD])[:576]
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)))
    if address is not None:
        # The two lines that encryption takes.
        client = cg.Client(address, f"{folder}/keys", number=rank)
        cg.torch.protect(model, client)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        for i in range(0, len(x), 64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[i : i + 64]), y[i : i + 64])
            loss.backward()
            optimizer.step()
        right = (model(x).argmax(1) == y).float().mean()
        if rank == 0:
            logger.info("epoch %d: loss %.3f, %.1f %% right", epoch + 1, loss.item(), 100 * right.item())
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Makes keys, and runs a server and three ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="average gradients in clear, to compare")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.plain:
            torch.multiprocessing.spawn(train, (folder, None, options.epochs), nprocs=WORLD)
            return
        key = Path(folder) / "keys"
        cg.keygen("ckks-sum", clients=WORLD, bits=16, min_clients=WORLD).save(key)
        with cg.Server(key, clients=WORLD) as server:
            torch.multiprocessing.spawn(train, (folder, server.address, options.epochs), nprocs=WORLD)


if __name__ == "__main__":
    main()
