"""The clients' part: opens the model of a task, and seals the reply."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

import ciphergram as cg

from .._arrays import to_torch
from .._rounds import next_ranges
from ._openers import OpenerSite
from ._sites import (
    CONTRIBUTION,
    LOG,
    SUM,
    SiteKey,
    data_of,
    frame_of,
    may_train,
    meta_of,
    number_of,
    path_texts,
    short,
    site_name,
)

_MODELS = [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF]
# The server names the round, and each number that is passed over is lost: at most these, which the
# start of a later run, in milliseconds, passes in 17 minutes.
_MOST_ROUNDS = 1 << 20
# Properties of a task's context, which stay with the client: what Decrypt tells Encrypt of the
# task, and the tensors that never leave.
_TASK = "ciphergram.task"
_KEPT = "ciphergram.kept"


class _KeyFilter(DXOFilter):
    """A filter of models with the key of its site, which is read when it is needed first."""

    def __init__(self, key: str, job: str | None) -> None:
        super().__init__(list(_MODELS), list(_MODELS))
        self.key, self.job = path_texts(key, job)
        self._key: SiteKey | None = None

    def _load(self, fl_ctx: FLContext) -> SiteKey:
        self._key = self._key or SiteKey(self.key, self.job, fl_ctx)
        return self._key


class Decrypt(_KeyFilter):
    """Opens the global model on its way to a client's trainer, where it is a sum under encryption.

    The model of the first round is the initial one, which is in plain: everyone may read it. Until there is a sum it
    may come again, and no other model in plain. A site that is an opener answers the server here.

    Args:
        key: The file of a member's identity or of the secret key at a site, or the folder that it is in; of a folder
            that all members' files are in, ``site-N`` takes that of member N - 1. ``{site}`` stands for the site's
            name; a relative path starts at the ``local`` folder of the site's workspace.
        job: The file of the job, with the same rules; by default ``job.json`` beside the key.
        tensors: ``"numpy"``, or ``"torch"`` for recipes that exchange torch tensors.
    """

    def __init__(self, key: str, job: str | None = None, tensors: str = "numpy") -> None:
        super().__init__(key, job)
        if tensors not in ("numpy", "torch"):
            raise ValueError(f"tensors: it is 'numpy' or 'torch', not {tensors!r}")
        self.tensors = tensors
        self._last_round: int | None = None
        self._initial: bytes | None = None
        self._opener = OpenerSite()

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        """Opens the sum that a task carries.

        Raises:
            ciphergram.CiphergramError: It is no sum, not under this key, or of too few clients.
        """
        current_round = shareable.get_header(AppConstants.CURRENT_ROUND)
        if isinstance(current_round, int) and current_round >= _MOST_ROUNDS:
            raise cg.CiphergramError(
                f"the task's round is {short(current_round)}: a job has at most {_MOST_ROUNDS}"
            )
        algorithm = dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM)
        if algorithm is None:
            self._check_plain(dxo, fl_ctx)
            _remember(fl_ctx, _Task(current_round, copy.deepcopy(dxo.data), None))
            if may_train(fl_ctx):
                self._opener.meet(self._load(fl_ctx), fl_ctx)
            return None
        if algorithm != SUM:
            raise cg.CiphergramError(f"a task's model is {short(algorithm)}, where {SUM} belongs")
        key = self._load(fl_ctx)
        opened = key.open(frame_of(dxo.data))
        if may_train(fl_ctx):
            self._opener.meet(key, fl_ctx)
        self._check_order(opened.round, fl_ctx)
        model: dict[str, Any] = dict(opened)
        if self.tensors == "torch":
            model = {name: to_torch(array) for name, array in model.items()}
        model.update(fl_ctx.get_prop(_KEPT) or {})
        ranges = next_ranges(opened, key.job.max_range)
        # A copy, for the trainer may write into what it is given.
        _remember(fl_ctx, _Task(current_round, copy.deepcopy(model), ranges))
        LOG.info("%s opened the mean of %d clients", site_name(fl_ctx), len(opened.contributors))
        meta = {
            k: v
            for k, v in dxo.meta.items()
            if k not in (MetaKey.PROCESSED_ALGORITHM, MetaKey.PROCESSED_KEYS)
        }
        return DXO(dxo.data_kind, data=model, meta=meta)

    def _check_order(self, round: int, fl_ctx: FLContext) -> None:
        last = self._last_round
        if last is not None and round < last and may_train(fl_ctx):
            raise cg.CiphergramError(f"a sum is of round {round}, and that of {last} came before")
        self._last_round = round if last is None else max(round, last)

    def _check_plain(self, dxo: DXO, fl_ctx: FLContext) -> None:
        if any(isinstance(value, (bytes, bytearray, memoryview)) for value in dxo.data.values()):
            raise cg.CiphergramError(
                "a task's model has bytes in it and does not say what they are"
            )
        if not may_train(fl_ctx):
            return
        if self._last_round is not None:
            raise cg.CiphergramError(
                "a model is in plain, where sums were before: the server put it in their place"
            )
        # A server that picks each model may pick ones that tell of the data they are trained on.
        digest = _digest(dxo.data)
        if self._initial not in (None, digest):
            raise cg.CiphergramError("a model in plain is another than the first one, and no sum came between")
        self._initial = digest
        LOG.info("%s received a model in plain: everyone may read it", site_name(fl_ctx))


class Encrypt(_KeyFilter):
    """Seals a client's model on its way to the server. What it cannot seal does not leave.

    The client's ``NUM_STEPS_CURRENT_ROUND`` becomes the weight under encryption, and the reply says
    1 in its place. A difference (``TransferType.DIFF``) is added to the model that it is one of.
    Tensors of integers stay with the client.

    Args:
        key: As of `Decrypt`; also a client's own key, under Paillier.
        job: The file of the job, with the same rules; by default ``job.json`` beside the key.
        clients: The client number of each site. By default that of a client's own key or a member's, or N - 1 for
            ``site-N``.
        weight: A weight for all sites, or one for each by its name, in place of the number of
            steps.
        max_weight: The largest weight of any site, which all of them agree on. Values are as exact
            as it is close: the mean of n sites is within n * max_weight / (sum of weights) steps of
            range / (2^(bits-1) - 1). By default the largest of `weight`.
        ranges: The range of all tensors, or of each by its name, in rounds that follow a model in
            plain; by default the job's.
        follow_mean: In rounds that follow a mean, ranges are twice its largest magnitudes. False
            keeps `ranges`, for models that change by more than that in a round: a warning tells how
            many values were clipped.
        first_round: The number of the job's first round, above all earlier ones under this key. By
            default the milliseconds since 1970 when this was made: make one filter for all sites,
            and one for each run.
        engine: ``"cpu"``, ``"gpu"`` or ``"auto"``.
    """

    def __init__(
        self,
        key: str,
        job: str | None = None,
        clients: dict[str, int] | None = None,
        weight: int | dict[str, int] | None = None,
        max_weight: int | None = None,
        ranges: float | dict[str, float] | None = None,
        follow_mean: bool = True,
        first_round: int | None = None,
        engine: str = "cpu",
    ) -> None:
        super().__init__(key, job)
        self.clients = clients
        self.weight = weight
        self.max_weight = _largest_weight(weight, max_weight)
        self.ranges = ranges
        self.follow_mean = follow_mean
        self.first_round = time.time_ns() // 1_000_000 if first_round is None else first_round
        self.engine = engine
        self._named: set[str] = set()

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Seals the model of a reply. Metrics and errors pass; what else it holds is refused.

        Raises:
            ciphergram.CiphergramError: The reply cannot be sealed; nothing of it leaves.
        """
        if shareable.get_return_code() != ReturnCode.OK:
            shareable.pop("DXO", None)
            return shareable
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) == AppConstants.TASK_SUBMIT_MODEL:
            raise cg.CiphergramError(
                "submit_model would show others the model of one client: it is not sealed"
            )
        kind = from_shareable(shareable).data_kind
        if kind == DataKind.METRICS:
            return shareable
        if kind not in _MODELS:
            raise cg.CiphergramError(
                f"a reply is {short(kind)}, where WEIGHTS or WEIGHT_DIFF belongs"
            )
        return super().process(shareable, fl_ctx)

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO:
        """Seals a model.

        Raises:
            ciphergram.CiphergramError: As `ciphergram.SecretKey.encrypt`.
        """
        task = fl_ctx.get_prop(_TASK)
        if not isinstance(task, _Task):
            raise cg.CiphergramError(
                "Encrypt needs ciphergram.flare.Decrypt as the input filter of the same task"
            )
        site = site_name(fl_ctx)
        model = _full_model(dxo, task)
        model = self._keep_integers(model, fl_ctx)
        key = self._load(fl_ctx)
        try:
            contribution = key.seal(
                model,
                ranges=task.ranges if self.follow_mean and task.ranges is not None else self.ranges,
                weight=self._weight_of(dxo, site),
                max_weight=self.max_weight,
                number=number_of(self.clients, site) if isinstance(key.key, cg.SecretKey) else None,
                round=self.first_round + task.number(),
                engine=self.engine,
            )
        except cg.RoundOver:
            LOG.error("%s has sealed this round before: make the job anew for another run", site)
            raise
        clipped = {name: count for name, count in (contribution.clipped or {}).items() if count}
        if clipped:
            LOG.warning("%s clipped values that lie outside their ranges: %s", site, clipped)
        meta = {**dxo.meta, MetaKey.NUM_STEPS_CURRENT_ROUND: 1, **meta_of(CONTRIBUTION, model)}
        return DXO(DataKind.WEIGHTS, data=data_of(bytes(contribution), model), meta=meta)

    def _weight_of(self, dxo: DXO, site: str) -> int:
        weight: Any = self.weight.get(site) if isinstance(self.weight, Mapping) else self.weight
        if weight is None:
            weight = dxo.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND, 1)
        if isinstance(weight, bool) or not isinstance(weight, (int, np.integer)):
            raise cg.WeightError(
                f"the weight of {site} is {short(weight)}, and a weight is a whole number"
            )
        return int(weight)

    def _keep_integers(self, model: dict[str, Any], fl_ctx: FLContext) -> dict[str, Any]:
        nested = [name for name, value in model.items() if isinstance(value, Mapping)]
        if nested:
            raise cg.LayoutError(f"{nested[0]!r} is a dictionary, and a model of FLARE's has arrays by name")
        kept = {name: value for name, value in model.items() if _is_integer(value)}
        if kept:
            fl_ctx.set_prop(_KEPT, kept, private=True, sticky=True)
            unnamed = kept.keys() - self._named
            if unnamed:
                LOG.info("%s keeps tensors of integers: %s", site_name(fl_ctx), sorted(unnamed))
                self._named |= unnamed
        return {name: value for name, value in model.items() if name not in kept}


@dataclass
class _Task:
    """A task that a client is at: its round, its model, and the ranges that follow from it."""

    current_round: object
    model: dict[str, Any]
    ranges: Mapping[str, float] | None

    def number(self) -> int:
        number = self.current_round
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise cg.CiphergramError(
                f"the task's round is {short(number)}, where a whole number belongs"
            )
        return number


def _full_model(dxo: DXO, task: _Task) -> dict[str, Any]:
    if dxo.data_kind != DataKind.WEIGHT_DIFF:
        return dict(dxo.data)
    absent = dxo.data.keys() - task.model.keys()
    if absent:
        raise cg.LayoutError(
            f"a difference has tensors that the task's model lacks: {sorted(absent)}"
        )
    return {name: task.model[name] + difference for name, difference in dxo.data.items()}


def _largest_weight(weight: int | dict[str, int] | None, max_weight: int | None) -> int:
    if max_weight is not None:
        return max_weight
    if isinstance(weight, Mapping) and weight:
        return max(weight.values())
    if isinstance(weight, int):
        return weight
    raise cg.ParameterError(
        "max_weight: say the largest NUM_STEPS_CURRENT_ROUND of any site, or weight=1 for all"
    )


def _digest(model: Mapping[str, Any]) -> bytes:
    """Returns the SHA-256 of a model in plain: of its names, types, shapes and values."""
    state = hashlib.sha256()
    for name, value in sorted(model.items()):
        if hasattr(value, "detach"):
            import torch

            array = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        else:
            array = np.ascontiguousarray(value)
        kind = getattr(value, "dtype", array.dtype)
        state.update(repr((name, str(kind), tuple(np.shape(value)), array.nbytes)).encode())
        state.update(array.reshape(-1).view(np.uint8))
    return state.digest()


def _remember(fl_ctx: FLContext, task: _Task) -> None:
    fl_ctx.set_prop(_TASK, task, private=True, sticky=False)


def _is_integer(value: Any) -> bool:
    if hasattr(value, "is_floating_point"):
        return not value.is_floating_point() and not value.is_complex()
    return np.asarray(value).dtype.kind in "biu"
