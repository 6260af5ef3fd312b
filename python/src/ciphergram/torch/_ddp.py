"""The hook of DistributedDataParallel."""

# No `from __future__ import annotations`: DistributedDataParallel reads this hook's annotations, as types.

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import torch
from torch.autograd import Variable
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # not in its stubs
from torch.nn.parallel import DistributedDataParallel

from ._protection import Protection

Hook = Callable[[Protection, GradBucket], torch.futures.Future[torch.Tensor]]


def hook_of(model: DistributedDataParallel) -> Hook:
    """Return the hook that averages the buckets of a model in encrypted rounds."""
    names = {parameter: name for name, parameter in model.module.named_parameters()}

    def average(protection: Protection, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        # Buckets come in the order of their places on all ranks, whatever parameters they are of from step to step.
        parts = [(names[parameter], parameter.numel()) for parameter in bucket.parameters()]
        buffer = bucket.buffer()
        averaged: torch.futures.Future[torch.Tensor] = torch.futures.Future(
            devices=[buffer.device] if buffer.is_cuda else []
        )
        is_backward = _wait_at_the_end(protection)
        mean = protection.submit(f"bucket.{bucket.index()}", buffer, parts)
        mean.add_done_callback(partial(_hand_over, averaged, buffer if is_backward else None))
        return averaged

    return average


def _hand_over(
    averaged: torch.futures.Future[torch.Tensor], buffer: torch.Tensor | None, mean: Future[torch.Tensor]
) -> None:
    error = mean.exception()
    if error is None:
        averaged.set_result(mean.result())
    elif buffer is not None:
        # The backward pass raises the error, after the model is in order for another one. Whoever goes on
        # all the same must not do so with gradients of this rank alone.
        averaged.set_result(torch.full_like(buffer, torch.nan))
    else:
        averaged.set_exception(error)  # type: ignore[arg-type]  # torch's own annotation says Tensor


def _wait_at_the_end(protection: Protection) -> bool:
    """Have the backward pass wait for rounds at its end and raise their errors; return whether there is one."""
    try:
        Variable._execution_engine.queue_callback(partial(_wait, protection))
    except RuntimeError:
        # A rank that ran out of inputs runs its hooks outside of a backward pass, and waits for the future itself.
        return False
    return True


def _wait(protection: Protection) -> None:
    # Not in the future's wait, which would leave the backward pass as a RuntimeError, and heed no Ctrl-C.
    try:
        protection.wait()
    except BaseException as error:
        Variable._execution_engine.queue_callback(partial(_raise, error))


def _raise(error: BaseException) -> None:
    raise error
