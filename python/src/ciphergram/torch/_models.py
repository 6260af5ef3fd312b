"""Which wrappers of models can be protected, and why others cannot."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DataParallel, DistributedDataParallel

from ..errors import ParameterError

Protectable: TypeAlias = DistributedDataParallel | FSDPModule

_OPACUS = (
    "Opacus averages gradients after its own noise, in clear; train the model inside a Flower client instead, where "
    "encryption comes after its clipping and noise"
)
_INSTEAD: tuple[tuple[type[nn.Module], str], ...] = (
    (DataParallel, "it is one process, which has all gradients anyway: use DistributedDataParallel"),
    (FullyShardedDataParallel, "FSDP1 has no hook for it: use fully_shard (FSDP2) or DistributedDataParallel"),
)


def check_model(model: object) -> Protectable:
    """Return the model, if it is one whose gradients can be averaged under encryption.

    Raises:
        ParameterError: It is wrapped in something else, or has gradients that cannot be summed.
    """
    if not isinstance(model, nn.Module):
        raise ParameterError(f"a {_name(model)} is no model")
    # What wraps gradients inside a wrapper defeats it as much as one outside.
    for module in model.modules():
        if _is_of(module, "opacus"):
            raise ParameterError(f"{_name(module)} cannot be protected: {_OPACUS}")
        for wrapper, instead in _INSTEAD:
            if isinstance(module, wrapper):
                raise ParameterError(f"{_name(module)} cannot be protected: {instead}")
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            raise ParameterError("sparse gradients cannot be summed: make embeddings with sparse=False")
    if not isinstance(model, DistributedDataParallel | FSDPModule):
        raise ParameterError(f"{_name(model)} cannot be protected: {_wrap(model)}")
    if isinstance(model, DistributedDataParallel):
        _check_ddp(model)
    for name, unit in fsdp_units(model):
        _check_fsdp(name, unit)
    return model


def _check_ddp(model: DistributedDataParallel) -> None:
    if model._comm_hooks:
        raise ParameterError("this model has a communication hook: protect one that has none")
    if any(isinstance(module, FSDPModule) for module in model.modules()):
        raise ParameterError("DistributedDataParallel around FSDP2 cannot be protected: use one of them")


def _check_fsdp(name: str, unit: FSDPModule) -> None:
    state: Any = unit._get_fsdp_state()
    # A list in later releases of torch, where the one is an error if there are several.
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [state._fsdp_param_group]
    if any(group is not None and group.mesh_info.replicate_mesh_dim is not None for group in groups):
        raise ParameterError(
            f"{name or 'the model'} has replicas (HSDP or replicate), which are averaged in clear before any round: "
            "shard over a mesh of one dimension, one for each silo"
        )
    if len(groups) > 1:
        raise ParameterError(f"{name or 'the model'} has parameters on several meshes: fully_shard them on one")


def _wrap(model: nn.Module) -> str:
    if hasattr(model, "_orig_mod"):
        return "protect the model before torch.compile wraps it"
    if any(isinstance(module, DistributedDataParallel | FSDPModule) for module in model.modules()):
        return "protect the DistributedDataParallel or FSDP2 model inside it"
    return "wrap it in DistributedDataParallel, or fully_shard (FSDP2), first"


def _is_of(module: nn.Module, package: str) -> bool:
    return any(kind.__module__.partition(".")[0] == package for kind in type(module).__mro__) and (
        "GradSample" in type(module).__name__ or "DistributedDataParallel" in type(module).__name__
    )


def _name(value: object) -> str:
    return f"{type(value).__module__.partition('.')[0]}'s {type(value).__name__}"


def sends_buffers(model: DistributedDataParallel) -> bool:
    """Return whether the first rank's buffers travel to all ranks in clear at each step."""
    floats = any(buffer.is_floating_point() for buffer in model.module.buffers())
    return floats and bool(model.broadcast_buffers)


def fsdp_units(model: Any) -> list[tuple[str, FSDPModule]]:
    """Return the modules of an FSDP2 model whose gradients are reduced together, by their names."""
    return [(name, module) for name, module in model.named_modules() if isinstance(module, FSDPModule)]

