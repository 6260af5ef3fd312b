"""Encrypted federated fine-tuning with Hugging Face's `Trainer`: means of PEFT adapters.

    client = cg.Client("aggregator:4793", "keys/secret.json", number=0, ...)
    Trainer(..., callbacks=[cg.transformers.FederatedCallback(client, every=20)]).train()

Adapters travel, the base model does not. Only the weighted mean is opened, by the sites.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import ciphergram as cg
from ciphergram._arrays import to_torch

__all__ = ["FederatedCallback"]

_log = logging.getLogger("ciphergram.transformers")


class _Averages(Protocol):
    """Whatever gives the weighted mean of all sites, as `ciphergram.Client` does."""

    def mean(self, tensors: Mapping[str, Any], *, weight: int) -> Mapping[str, np.ndarray]: ...


class FederatedCallback(TrainerCallback):
    """Replaces a site's adapter by the weighted mean of all sites' adapters, every few steps.

    The weight of a site is the number of examples (rows of its batches) that it trained on since
    the last mean, accumulated ones and those of short batches included. What is left over at the
    end of training is averaged too. A checkpoint of a step that ends a round holds the mean.

    All sites call it equally often: give them the same `max_steps` and `every`, and stop none of
    them early. They start from the same adapter: call `transformers.set_seed` alike before
    `peft.get_peft_model`, or load one.

    Adam's moments and the schedule are a site's own. By default they go on from where they were, as
    most FedAvg implementations of Adam do; `optimizer_state="reset"` forgets the moments after
    every mean, for sites whose data differ so much that the moments of the way to their own adapter
    mislead at the mean.

    Args:
        client: The site's `ciphergram.Client`, which stays joined; the caller closes it.
        every: Optimiser steps (not micro-batches) between means, at least 1.
        adapter: The name of the adapter.
        optimizer_state: ``"keep"`` or ``"reset"``.

    Attributes:
        rounds: Means that were taken.
        mean: The last mean as it was opened (`ciphergram.Opened`), or None.

    Raises:
        ciphergram.ParameterError: An argument is out of its range; at the start of training, the
            model is not a PEFT model with this adapter, or the site trains in several processes
            (then the first one's adapter would not be that of the others).
        ciphergram.CiphergramError: A round failed. Training ends and the adapter is the site's own.
    """

    def __init__(
        self,
        client: _Averages,
        every: int,
        *,
        adapter: str = "default",
        optimizer_state: str = "keep",
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise cg.ParameterError(f"every: it is a number of steps, at least 1, not {every!r}")
        if optimizer_state not in ("keep", "reset"):
            raise cg.ParameterError(
                f"optimizer_state: it is 'keep' or 'reset', not {optimizer_state!r}"
            )
        self.client = client
        self.every = every
        self.adapter = adapter
        self.optimizer_state = optimizer_state
        self.rounds = 0
        self.mean: Mapping[str, np.ndarray] | None = None
        self._examples = 0
        self._counting: torch.utils.hooks.RemovableHandle | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **others: Any,
    ) -> None:
        """Checks the model and starts to count examples."""
        if args.world_size > 1:
            raise cg.ParameterError(
                f"FederatedCallback: a site is one process, and this one has {args.world_size}"
            )
        if args.n_gpu > 1:
            raise cg.ParameterError(
                f"FederatedCallback: a site is one device, and this one has {args.n_gpu}: say CUDA_VISIBLE_DEVICES=0"
            )
        adapters = model.peft_config if isinstance(model, PeftModel) else None
        if adapters is None:
            raise cg.ParameterError(
                f"FederatedCallback: the model is {type(model).__name__}, not a peft.PeftModel"
            )
        if self.adapter not in adapters:
            raise cg.ParameterError(
                f"FederatedCallback: there is no adapter {self.adapter!r}, but {sorted(adapters)}"
            )
        self._stop_counting()
        self._examples = 0
        self._counting = model.register_forward_pre_hook(self._count, with_kwargs=True)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        **others: Any,
    ) -> None:
        """Takes the mean, if the step ends a round or training."""
        if state.global_step % self.every == 0 or control.should_training_stop:
            self._average(model, optimizer)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        **others: Any,
    ) -> None:
        """Takes the mean of what is left over."""
        self._stop_counting()
        if self._examples:
            self._average(model, optimizer)

    def _count(
        self, module: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        if module.training:
            tensors = (
                value for value in (*named.values(), *inputs) if isinstance(value, torch.Tensor)
            )
            self._examples += next((tensor.shape[0] for tensor in tensors if tensor.dim() > 0), 0)

    def _stop_counting(self) -> None:
        if self._counting is not None:
            self._counting.remove()
            self._counting = None

    def _average(self, model: PeftModel, optimizer: Any) -> None:
        if not self._examples:
            raise cg.ParameterError(
                "FederatedCallback: the model saw no examples since the last mean"
            )
        # Embeddings of the base model are no part of an adapter: to find out would ask the hub.
        own = get_peft_model_state_dict(
            model, adapter_name=self.adapter, save_embedding_layers=False
        )
        update = {name: tensor.detach().cpu().contiguous() for name, tensor in own.items()}
        opened = self.client.mean(update, weight=self._examples)
        mean = {name: to_torch(opened[name]) for name in own}
        set_peft_model_state_dict(model, mean, adapter_name=self.adapter)
        if self.optimizer_state == "reset" and optimizer is not None:
            optimizer.state.clear()
        self.rounds += 1
        self.mean = opened
        self._report(opened)
        self._examples = 0

    def _report(self, opened: Mapping[str, np.ndarray]) -> None:
        contributors = getattr(opened, "contributors", None)
        sites = "all" if contributors is None else len(contributors)
        _log.info(
            "mean %d: of %s sites, %d examples of this one", self.rounds, sites, self._examples
        )
        clipped = {n: c for n, c in (getattr(opened, "clipped", None) or {}).items() if c}
        if clipped:
            _log.warning(
                "mean %d: values that lay outside their ranges were clipped: %s",
                self.rounds,
                clipped,
            )

