"""Hooks of DistributedDataParallel and FSDP2 that average gradients in encrypted rounds."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from ..errors import ParameterError
from ._ddp import hook_of
from ._models import check_model, fsdp_units, sends_buffers
from ._protection import Client, Protection

logger = logging.getLogger("ciphergram")

_FEWEST = 3


def protect(
    model: Any,
    client: Client,
    *,
    weight: int = 1,
    clip: float | None = None,
    error_feedback: bool = True,
    state: Protection | Mapping[str, Any] | None = None,
) -> Protection:
    """Average the gradients of a model in encrypted rounds from now on.

    A ``DistributedDataParallel`` model's ranks are the members: each bucket of gradients takes one round, on a thread
    beside the backward pass, and the process group carries gradients no longer. An FSDP2 model is reduced in clear
    inside its own process group, the silo, and then with the same shard of the other silos: every process of a silo has
    a client, and the clients of one shard a key and a server of their own.

    The mean differs from the exact one by less than ``R / (2**(bits - 1) - 1)`` for each value, where `R` is the range
    of the bucket, the largest magnitude in it of any member, rounded up to a power of two. Rounding is random and right
    on average, so that nothing is fed back of it; what clipping cuts off is added to the next gradients.

    Args:
        model: A ``DistributedDataParallel`` or FSDP2 model, before its first backward pass.
        client: A ``Client`` with the secret key, whose job is for as many clients as there are members.
        weight: The weight of this rank's gradients, from 1: an attribute of the result, to be changed between steps.
        clip: The largest magnitude that is sent; None for the largest range of the job.
        error_feedback: Adds what clipping cut off a value to the next step's.
        state: The state of an earlier `Protection`, or that itself.

    Returns:
        The rounds, with their counts and their state.

    Raises:
        ParameterError: The model is wrapped in something else, or an argument cannot be meant.

    Warns:
        UserWarning: There are fewer than three members: each learns the other's gradients from the mean.
    """
    checked = check_model(model)
    if not isinstance(weight, int) or isinstance(weight, bool) or weight < 1:
        raise ParameterError(f"weight={weight!r}: it is an integer from 1")
    if clip is not None and not 0 < clip < float("inf"):
        raise ParameterError(f"clip={clip}: it is a positive number")
    members = _members(checked, client)
    protection = Protection(client, members, weight=weight, clip=clip, error_feedback=error_feedback)
    if state is not None:
        protection.load_state_dict(state.state_dict() if isinstance(state, Protection) else state)
    if isinstance(checked, DistributedDataParallel):
        _protect_ddp(checked, protection)
    else:
        _protect_fsdp(checked, protection)
    return protection


def _members(model: DistributedDataParallel | FSDPModule, client: Client) -> int:
    clients = int(client.job.clients)
    members = clients
    if isinstance(model, DistributedDataParallel):
        members = dist.get_world_size(model.process_group)
        if members > clients:
            raise ParameterError(f"the group has {members} ranks, the client's job {clients} clients")
    if members < _FEWEST:
        warnings.warn(
            f"a group of {members}: each member can take its own gradients from the mean and has the other's; three "
            "members hide them",
            UserWarning,
            stacklevel=3,
        )
    return members


def _protect_ddp(model: DistributedDataParallel, protection: Protection) -> None:
    if sends_buffers(model):
        logger.warning(
            "the first rank's buffers, such as the statistics of batch norm, travel to all ranks in clear: wrap the "
            "model with broadcast_buffers=False if they are private"
        )
    protection.expect(name for name, _ in model.module.named_parameters())
    model.register_comm_hook(protection, hook_of(model))


def _protect_fsdp(model: FSDPModule, protection: Protection) -> None:
    units = {f"shard.{name}": unit for name, unit in fsdp_units(model)}
    protection.expect(units)
    for name, unit in units.items():
        unit.set_all_reduce_hook(_shard_hook(protection, name))


def _shard_hook(protection: Protection, name: str) -> Callable[[torch.Tensor], None]:
    def average(reduce_output: torch.Tensor) -> None:
        future = protection.submit(name, reduce_output, [(name, reduce_output.numel())])
        protection.wait()
        reduce_output.copy_(future.result())

    return average
