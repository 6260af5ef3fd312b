"""What ranks do in the tests: models, inputs, and training with and without protection."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import ciphergram as cg
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BITS = 16


def make_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    """Returns a small model, the same everywhere."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, 33), nn.Tanh(), nn.Linear(33, 3)).to(dtype)


class Branches(nn.Module):
    """A model of which each input takes one of two branches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.trunk = nn.Linear(8, 5)
        self.branches = nn.ModuleList([nn.Linear(5, 3), nn.Linear(5, 3)])

    def forward(self, inputs: torch.Tensor, branch: int) -> torch.Tensor:
        """Returns the outputs of one branch."""
        output: torch.Tensor = self.branches[branch](self.trunk(inputs))
        return output


def inputs_of(rank: int, step: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a rank's own inputs and targets of a step."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(16, 8, generator=generator)
    targets = torch.tanh(inputs[:, :3] - 0.5 * inputs[:, 3:6])
    return inputs.to(dtype), targets.to(dtype)


def backward(model: nn.Module, rank: int, step: int, dtype: torch.dtype = torch.float32) -> float:
    """Computes the gradients of a step, and returns the loss."""
    inputs, targets = inputs_of(rank, step, dtype)
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return float(loss)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """Returns copies of a model's gradients."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@contextlib.contextmanager
def joined(address: str, key: str, rank: int) -> Any:
    """Is a client of a server."""
    with cg.Client(address, key, number=rank, timeout=10) as client:
        yield client


def compare(rank: int, address: str, key: str, options: dict[str, Any], dtype: torch.dtype) -> list[Any]:
    """Returns for each of three steps the encrypted gradients and gloo's, of the same parameters."""
    # Else the first bucket has room for all of a small model.
    dist._DEFAULT_FIRST_BUCKET_BYTES = 200 if "bucket_cap_mb" in options else 1 << 20
    plain = DistributedDataParallel(make_model(dtype), **options)
    ours = DistributedDataParallel(make_model(dtype), **options)
    steps = []
    with joined(address, key, rank) as client, cg.torch.protect(ours, client) as protection:
        for step in range(3):
            for model in (plain, ours):
                model.zero_grad()
                backward(model, rank, step, dtype)
            steps.append((gradients(ours), gradients(plain)))
        rounds = protection.rounds
    return [steps, rounds]


def train(rank: int, address: str | None, key: str, count: int) -> tuple[list[float], list[torch.Tensor]]:
    """Trains a model, encrypted if an address is given; returns the losses over all ranks, and the parameters."""
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    with contextlib.ExitStack() as stack:
        if address is not None:
            client = stack.enter_context(joined(address, key, rank))
            stack.enter_context(cg.torch.protect(model, client))
        for step in range(count):
            optimizer.zero_grad()
            loss = torch.tensor(backward(model, rank, step))
            optimizer.step()
            dist.all_reduce(loss)
            losses.append(float(loss) / dist.get_world_size())
    return losses, [p.detach().clone() for p in model.parameters()]


def accumulate(rank: int, address: str, key: str) -> list[Any]:
    """Returns gradients over two batches of which only the second is averaged, and gloo's; and the rounds."""
    both = []
    with joined(address, key, rank) as client:
        for protected in (True, False):
            model = DistributedDataParallel(make_model())
            protection = cg.torch.protect(model, client) if protected else None
            with model.no_sync():
                backward(model, rank, 0)
            backward(model, rank, 1)
            both.append(gradients(model))
            if protection:
                rounds = protection.rounds
                protection.close()
    return [*both, rounds]


def branches(rank: int, address: str, key: str) -> list[Any]:
    """Returns, for three steps in which ranks take different branches, gradients and gloo's."""
    steps: list[list[Any]] = []
    with joined(address, key, rank) as client:
        for protected in (True, False):
            model = DistributedDataParallel(Branches(), find_unused_parameters=True)
            protection = cg.torch.protect(model, client) if protected else None
            steps.append([])
            for step in range(3):
                model.zero_grad()
                inputs, targets = inputs_of(rank, step)
                nn.functional.mse_loss(model(inputs, int(rank == step)), targets).backward()
                steps[-1].append(gradients(model))
            if protection:
                protection.close()
    return steps


def feed_back(rank: int, address: str, key: str, clip: float, steps: int) -> list[Any]:
    """Returns the sums of a gradient over steps, as averaged and exact, and the state, pickled midway."""
    model = DistributedDataParallel(nn.Linear(4, 1, bias=False))
    inputs = torch.tensor([[0.01, 0.5, -0.25, 0.02]])
    total = torch.zeros(1, 4)
    with joined(address, key, rank) as client:
        protection = cg.torch.protect(model, client, clip=clip)
        for step in range(steps):
            model.zero_grad()
            # Large at first, then nothing, so that what was cut off can follow.
            (model(inputs * (step == 0)).sum()).backward()
            total += model.module.weight.grad
            if step == 0:
                stored = pickle.dumps(protection)
        protection.close()
    return [total, inputs, stored, protection.clipped, model.module.weight.grad]


def weigh(rank: int, address: str, key: str) -> torch.Tensor:
    """Returns the mean of gradients 0, 1 and 2, weighted 1, 2 and 4."""
    model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    with joined(address, key, rank) as client, cg.torch.protect(model, client) as protection:
        protection.weight = 2**rank
        model(torch.tensor([[float(rank)]])).sum().backward()
    mean: torch.Tensor = model.module.weight.grad
    return mean


def poison(rank: int, address: str, key: str) -> list[str]:
    """Has one rank bring NaN; returns the errors of this step and of the next."""
    model = DistributedDataParallel(make_model())
    errors = []
    with joined(address, key, rank) as client, cg.torch.protect(model, client):
        for _ in range(2):
            try:
                (model(torch.ones(1, 8)).sum() * (float("nan") if rank == 1 else 1.0)).backward()
                errors.append("none")
            except cg.CiphergramError as error:
                errors.append(f"{type(error).__name__}: {error}")
    return errors


def until_killed(rank: int, address: str, key: str, victim: int, at: int) -> str:
    """Trains until a rank ends itself in mid-step; returns the error that the others meet."""
    import os
    import signal

    model = DistributedDataParallel(make_model(), broadcast_buffers=False)
    with joined(address, key, rank) as client, cg.torch.protect(model, client):
        for step in range(at + 1):
            if (rank, step) == (victim, at):
                os.kill(os.getpid(), signal.SIGKILL)
            model.zero_grad()
            try:
                backward(model, rank, step)
            except cg.CiphergramError as error:
                return f"{type(error).__name__}: {error}"
    return "none"



def shard(rank: int, silo: int, address: str, key: str) -> tuple[list[torch.Tensor], list[torch.Tensor], int]:
    """Returns a silo's own gradients, those that silos averaged, and the rounds that this took."""
    from torch.distributed.fsdp import fully_shard

    own = make_model()
    backward(own, silo, 0)
    model = make_model()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    with joined(address, key, silo) as client, cg.torch.protect(model, client) as protection:
        backward(model, silo, 0)
        averaged = [p.grad.full_tensor() for p in model.parameters()]
        return [p.grad for p in own.parameters()], averaged, protection.rounds
