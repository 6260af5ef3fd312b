"""Encrypted aggregation for NVIDIA FLARE: two filters for clients and an aggregator for the server.

    recipe = NumpyFedAvgRecipe(..., aggregator=cg.flare.Aggregator("/keys/public.json"))
    key = "/keys/{site}/secret.json"
    recipe.add_client_input_filter(cg.flare.Decrypt(key), tasks=["train"])
    recipe.add_client_output_filter(
        cg.flare.Encrypt(key, max_weight=600, ranges=4.0), tasks=["train"])

The server adds ciphertexts and keeps what it cannot read; clients open the sum of the last round,
train, and seal their models. Arguments are plain JSON, for they travel in the job's configuration:
paths of keys, never keys.

A message carries one frame in its DXO's data, under the name of the first tensor; those of the
others hold nothing, so that persistors find the names that they know. The DXO's meta says what the
frame is, in FLARE's own fields.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

import ciphergram as cg
from ciphergram._arrays import to_torch
from ciphergram._rounds import next_ranges

__all__ = ["Aggregator", "Decrypt", "Encrypt"]

CONTRIBUTION = "ciphergram.contribution/1"
SUM = "ciphergram.sum/1"

_log = logging.getLogger("ciphergram.flare")
_NUMBERS: Any = (float, int, np.floating, np.integer)
_MODELS = [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF]
# The server names the round, and each number that is passed over is lost: at most these, which the
# start of a later run, in milliseconds, passes in 17 minutes.
_MOST_ROUNDS = 1 << 20
_FILTERS_FAILED = (ReturnCode.TASK_DATA_FILTER_ERROR, ReturnCode.TASK_RESULT_FILTER_ERROR)
# Properties of a task's context, which stay with the client: what Decrypt tells Encrypt of the
# task, and the tensors that never leave.
_TASK = "ciphergram.task"
_KEPT = "ciphergram.kept"


class Decrypt(DXOFilter):
    """Opens the global model on its way to a client's trainer, where it is a sum under encryption.

    The model of the first round is the initial one, which is in plain: everyone may read it. Until there is a sum it
    may come again, and no other model in plain.

    Args:
        key: The file of the secret key at a site, or the folder that it is in. ``{site}`` stands
            for the site's name; a relative path starts at the ``local`` folder of the site's
            workspace.
        job: The file of the job, with the same rules; by default ``job.json`` beside the key.
        tensors: ``"numpy"``, or ``"torch"`` for recipes that exchange torch tensors.
    """

    def __init__(self, key: str, job: str | None = None, tensors: str = "numpy") -> None:
        super().__init__(list(_MODELS), list(_MODELS))
        if tensors not in ("numpy", "torch"):
            raise ValueError(f"tensors: it is 'numpy' or 'torch', not {tensors!r}")
        self.key = _path_text("key", key)
        self.job = None if job is None else _path_text("job", job)
        self.tensors = tensors
        self._holder: _Holder | None = None
        self._last_round: int | None = None
        self._initial: bytes | None = None

    def process_dxo(self, dxo: DXO, shareable: Shareable, fl_ctx: FLContext) -> DXO | None:
        """Opens the sum that a task carries.

        Raises:
            ciphergram.CiphergramError: It is no sum, not under this key, or of too few clients.
        """
        current_round = shareable.get_header(AppConstants.CURRENT_ROUND)
        if isinstance(current_round, int) and current_round >= _MOST_ROUNDS:
            raise cg.CiphergramError(
                f"the task's round is {_short(current_round)}: a job has at most {_MOST_ROUNDS}"
            )
        algorithm = dxo.get_meta_prop(MetaKey.PROCESSED_ALGORITHM)
        if algorithm is None:
            self._check_plain(dxo, fl_ctx)
            _remember(fl_ctx, _Task(current_round, copy.deepcopy(dxo.data), None))
            return None
        if algorithm != SUM:
            raise cg.CiphergramError(f"a task's model is {_short(algorithm)}, where {SUM} belongs")
        self._holder = self._holder or _Holder(self.key, self.job, fl_ctx)
        opened = self._holder.open(_frame(dxo.data))
        self._check_order(opened.round, fl_ctx)
        model: dict[str, Any] = dict(opened)
        if self.tensors == "torch":
            model = {name: to_torch(array) for name, array in model.items()}
        model.update(fl_ctx.get_prop(_KEPT) or {})
        ranges = next_ranges(opened, self._holder.job.max_range)
        # A copy, for the trainer may write into what it is given.
        _remember(fl_ctx, _Task(current_round, copy.deepcopy(model), ranges))
        _log.info("%s opened the mean of %d clients", _site(fl_ctx), len(opened.contributors))
        meta = {
            k: v
            for k, v in dxo.meta.items()
            if k not in (MetaKey.PROCESSED_ALGORITHM, MetaKey.PROCESSED_KEYS)
        }
        return DXO(dxo.data_kind, data=model, meta=meta)

    def _check_order(self, round: int, fl_ctx: FLContext) -> None:
        last = self._last_round
        if last is not None and round < last and _may_train(fl_ctx):
            raise cg.CiphergramError(f"a sum is of round {round}, and that of {last} came before")
        self._last_round = round if last is None else max(round, last)

    def _check_plain(self, dxo: DXO, fl_ctx: FLContext) -> None:
        if any(isinstance(value, (bytes, bytearray, memoryview)) for value in dxo.data.values()):
            raise cg.CiphergramError(
                "a task's model has bytes in it and does not say what they are"
            )
        if not _may_train(fl_ctx):
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
        _log.info("%s received a model in plain: everyone may read it", _site(fl_ctx))


class Encrypt(DXOFilter):
    """Seals a client's model on its way to the server. What it cannot seal does not leave.

    The client's ``NUM_STEPS_CURRENT_ROUND`` becomes the weight under encryption, and the reply says
    1 in its place. A difference (``TransferType.DIFF``) is added to the model that it is one of.
    Tensors of integers stay with the client.

    Args:
        key: The file of the key at a site, or the folder that it is in. ``{site}`` stands for the
            site's name; a relative path starts at the ``local`` folder of the site's workspace.
        job: The file of the job, with the same rules; by default ``job.json`` beside the key.
        clients: The client number of each site. By default that of a client's own key, or N - 1 for
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
        super().__init__(list(_MODELS), list(_MODELS))
        self.key = _path_text("key", key)
        self.job = None if job is None else _path_text("job", job)
        self.clients = clients
        self.weight = weight
        self.max_weight = _largest_weight(weight, max_weight)
        self.ranges = ranges
        self.follow_mean = follow_mean
        self.first_round = time.time_ns() // 1_000_000 if first_round is None else first_round
        self.engine = engine
        self._holder: _Holder | None = None
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
                f"a reply is {_short(kind)}, where WEIGHTS or WEIGHT_DIFF belongs"
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
        site = _site(fl_ctx)
        model = _full_model(dxo, task)
        model = self._keep_integers(model, fl_ctx)
        self._holder = self._holder or _Holder(self.key, self.job, fl_ctx)
        try:
            contribution = self._holder.seal(
                model,
                ranges=task.ranges if self.follow_mean and task.ranges is not None else self.ranges,
                weight=self._weight_of(dxo, site),
                max_weight=self.max_weight,
                number=_number(self.clients, site, self._holder.key),
                round=self.first_round + task.number(),
                engine=self.engine,
            )
        except cg.RoundOver:
            _log.error("%s has sealed this round before: make the job anew for another run", site)
            raise
        clipped = {name: count for name, count in (contribution.clipped or {}).items() if count}
        if clipped:
            _log.warning("%s clipped values that lie outside their ranges: %s", site, clipped)
        meta = {**dxo.meta, MetaKey.NUM_STEPS_CURRENT_ROUND: 1, **_meta(CONTRIBUTION, model)}
        return DXO(DataKind.WEIGHTS, data=_data(contribution, model), meta=meta)

    def _weight_of(self, dxo: DXO, site: str) -> int:
        weight: Any = self.weight.get(site) if isinstance(self.weight, Mapping) else self.weight
        if weight is None:
            weight = dxo.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND, 1)
        if isinstance(weight, bool) or not isinstance(weight, (int, np.integer)):
            raise cg.WeightError(
                f"the weight of {site} is {_short(weight)}, and a weight is a whole number"
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
                _log.info("%s keeps tensors of integers: %s", _site(fl_ctx), sorted(unnamed))
                self._named |= unnamed
        return {name: value for name, value in model.items() if name not in kept}


class Aggregator(ModelAggregator):
    """Adds the contributions of a round under the public key. It holds nothing that opens one.

    A reply that does not fit is named in the log and dropped, and so is a site that could not open
    or seal, and the round goes on. With fewer than the job's minimum it is lost, and the last sum is
    sent again; or the one before it, where half of those whose values the last one is of, or more,
    cannot open that. Before there is a sum, a lost round ends the job. Replies that agree on round
    and ranges are added; of several such groups the largest counts. Metrics are plain means over
    its replies.

    Args:
        key: The file of the public key, which alone it reads: a secret one is refused. A relative
            path starts at the ``local`` folder of the server's workspace.
        job: The file of the job, with the same rule; by default ``job.json`` beside the key.
        clients: The client number of each site. By default a site has the number that it came with
            first.
        min_clients: The fewest contributions of a sum, if that is more than the job's.
        engine: ``"cpu"``, ``"gpu"`` or ``"auto"``.
    """

    def __init__(
        self,
        key: str,
        job: str | None = None,
        clients: dict[str, int] | None = None,
        min_clients: int | None = None,
        engine: str = "cpu",
    ) -> None:
        super().__init__()
        self.key = _path_text("key", key)
        self.job = None if job is None else _path_text("job", job)
        self.clients = clients
        self.min_clients = min_clients
        self.engine = engine
        self._public: cg.PublicKey | None = None
        self._job: cg.Job | None = None
        self._numbers: dict[str, int] = dict(clients or {})
        self._groups: dict[tuple[int, str], _Group] = {}
        # The last two sums, and the sites that could not open the model of this round.
        self._last_sums: deque[cg.Sum] = deque(maxlen=2)
        self._unopened: set[str] = set()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Drops the trained replies of sites whose filters failed, for which FLARE would end the job."""
        super().handle_event(event_type, fl_ctx)
        if event_type != EventType.BEFORE_PROCESS_SUBMISSION or not _may_train(fl_ctx):
            return
        reply = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
        if isinstance(reply, Shareable) and reply.get_return_code() in _FILTERS_FAILED:
            peer = fl_ctx.get_peer_context()
            site = "?" if peer is None else _site(peer)
            _log.warning(
                "reply of %s dropped: it could not open the model, or not seal its own", site
            )
            if reply.get_return_code() == ReturnCode.TASK_DATA_FILTER_ERROR:
                self._unopened.add(site)
            # A reply of nothing is passed over, and the round goes on.
            reply.set_return_code(ReturnCode.OK)

    def accept_model(self, model: FLModel) -> None:
        """Adds the contribution of one site to those of its group.

        Raises:
            ciphergram.CiphergramError: The reply does not fit; everything is as it was.
        """
        site = str((model.meta or {}).get("client_name", "?"))
        try:
            self._accept(site, model)
        except Exception as error:
            _log.warning("reply of %s dropped: %s", site, error)
            raise

    def accept(self, shareable: Shareable, fl_ctx: FLContext) -> bool:
        """Adds the contribution of a reply (for ``ScatterAndGather``); False if it does not fit."""
        self.fl_ctx = fl_ctx
        try:
            model = FLModelUtils.from_shareable(shareable, fl_ctx)
            # Never the name that the reply itself gives.
            peer = shareable.get_peer_prop(ReservedKey.IDENTITY_NAME, "?")
            model.meta["client_name"] = peer
            self.accept_model(model)
        except cg.EngineError:
            # Not this reply is lost, but the sum.
            raise
        except Exception:
            return False
        return True

    def aggregate_model(self) -> FLModel:
        """Returns the sum of the largest group, as a model of the tensors that it is of, or an earlier sum.

        Raises:
            ciphergram.TooFew: The group is of fewer clients than the job's minimum, and there is no earlier sum.
        """
        groups = sorted(self._groups.values(), key=lambda group: len(group.sites), reverse=True)
        unopened = len(self._unopened)
        self.reset_stats()
        for group in groups[1:]:
            _log.warning(
                "replies of %s dropped: others agree on another round or ranges",
                sorted(group.sites),
            )
        _, job = self._load()
        found = len(groups[0].sites) if groups else 0
        if found < job.min_clients:
            text = f"{found} replies can be summed, and a sum is of at least {job.min_clients}"
            # One contribution can spoil a sum, which nobody opens then; and one liar may say that of any.
            if self._last_sums and 2 * unopened >= len(self._last_sums[-1].contributors):
                self._last_sums.pop()
            if not self._last_sums:
                raise cg.TooFew(text, found=found, min_clients=job.min_clients)
            again = self._last_sums[-1]
            _log.error("the round is lost: %s; the sum of round %d is sent again", text, again.round)
            return _model(again, None)
        total = groups[0].summing.finish()
        self._last_sums.append(total)
        return _model(total, _mean_of_metrics(groups[0].sites.values()))

    def reset_stats(self) -> None:
        """Forgets the contributions of a round that ended; which site has which number stays."""
        self._groups = {}
        self._unopened.clear()

    def _accept(self, site: str, model: FLModel) -> None:
        algorithm = (model.meta or {}).get(MetaKey.PROCESSED_ALGORITHM)
        if algorithm != CONTRIBUTION:
            said = "in plain" if algorithm is None else _short(algorithm)
            raise cg.CiphergramError(f"it is {said}, where {CONTRIBUTION} belongs")
        public, job = self._load()
        contribution = cg.loads(_frame(model.params), key=public)
        if not isinstance(contribution, cg.Contribution):
            raise cg.CiphergramError(
                f"it holds a {type(contribution).__name__}, where a contribution belongs"
            )
        self._check_number(site, contribution.client)
        place = (contribution.round, contribution.ranges.to_json())
        group = self._groups.get(place)
        if group is None:
            group = _Group(cg.Summing(public, job=job, engine=self.engine))
        group.summing.add(contribution)
        group.sites[site] = model.metrics
        self._groups[place] = group
        self._numbers[site] = contribution.client

    def _check_number(self, site: str, number: int) -> None:
        if site not in self._numbers and self.clients is not None:
            raise cg.CiphergramError("clients= has no number for it")
        if self._numbers.get(site, number) != number:
            raise cg.CiphergramError(
                f"it is client {self._numbers[site]}, and its contribution is of client {number}"
            )
        owner = next((name for name, known in self._numbers.items() if known == number), site)
        if owner != site:
            raise cg.CiphergramError(f"its contribution is of client {number}, which is {owner}")
        if any(site in group.sites for group in self._groups.values()):
            raise cg.CiphergramError("it contributed to this round already")

    def _load(self) -> tuple[cg.PublicKey, cg.Job]:
        if self._public is None or self._job is None:
            path = _resolve(self.key, self.fl_ctx)
            key = cg.load_keys(path)
            if not isinstance(key, cg.PublicKey):
                raise cg.KeyKind(
                    f"{path}: a server holds a public key alone, not a {type(key).__name__}"
                )
            job = _job(key, self.job, self.fl_ctx)
            self._public = key
            self._job = job if self.min_clients is None else job.requiring(self.min_clients)
        return self._public, self._job


class _Task:
    """A task that a client is at: its round, its model, and the ranges that follow from it."""

    def __init__(
        self, current_round: object, model: dict[str, Any], ranges: Mapping[str, float] | None
    ) -> None:
        self.current_round = current_round
        self.model = model
        self.ranges = ranges

    def number(self) -> int:
        number = self.current_round
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise cg.CiphergramError(
                f"the task's round is {_short(number)}, where a whole number belongs"
            )
        return number


class _Group:
    """Contributions that agree, as they are summed, and the metrics of the sites that sent them."""

    def __init__(self, summing: cg.Summing) -> None:
        self.summing = summing
        self.sites: dict[str, dict[str, Any] | None] = {}


class _Holder:
    """A site's key and job, read from where the site has them."""

    def __init__(self, key: str, job: str | None, fl_ctx: FLContext) -> None:
        path = _resolve(key, fl_ctx)
        loaded = cg.load_keys(path)
        if isinstance(loaded, cg.PublicKey):
            raise cg.KeyKind(
                f"{path}: a public key opens and seals nothing for a site: give its secret one"
            )
        if isinstance(loaded, cg.Member):
            raise cg.KeyKind(f"{path}: openers are not asked in rounds of this framework yet")
        self.key = loaded
        self.job = _job(self.key.public, job, fl_ctx)

    def open(self, frame: bytes) -> cg.Opened:
        """Opens the mean of a sum."""
        if isinstance(self.key, cg.ClientKey):
            raise cg.KeyKind(
                "a client's own key opens no sum, and sites train on the mean: give the secret key"
            )
        total = cg.loads(frame, key=self.key)
        if not isinstance(total, cg.Sum):
            raise cg.CiphergramError(
                f"a task's model is a {type(total).__name__}, where a sum belongs"
            )
        opened: cg.Opened = self.key.decrypt(total, job=self.job)
        return opened

    def seal(
        self,
        model: dict[str, Any],
        *,
        ranges: float | Mapping[str, float] | None,
        weight: int,
        max_weight: int,
        number: int,
        round: int,
        engine: str,
    ) -> cg.Contribution:
        """Seals a model as the contribution of a client."""
        options: dict[str, Any] = {
            "ranges": ranges,
            "weight": weight,
            "round": round,
            "engine": engine,
        }
        options |= {"max_weight": max_weight, "job": self.job}
        if isinstance(self.key, cg.ClientKey):
            return self.key.encrypt(model, **options)
        return self.key.encrypt(model, client=number, **options)


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


def _job(key: cg.PublicKey, path: str | None, fl_ctx: FLContext | None) -> cg.Job:
    """Returns the job in a file, or the key's own."""
    job = key.job if path is None else cg.Job.load(_resolve(path, fl_ctx), key)
    if job is None:
        raise cg.NoJob("the key has no job.json beside it: give its path as job=")
    return job


def _number(clients: Mapping[str, int] | None, site: str, key: Any) -> int:
    """Returns the client number of a site: by `clients`, of its own key, or by its name."""
    if clients is not None:
        if site not in clients:
            raise cg.ParameterError(f"clients= has no number for {site}")
        return clients[site]
    if isinstance(key, cg.ClientKey):
        number: int = key.number
        return number
    match = re.fullmatch(r"site-([1-9][0-9]{0,4})", site)
    if match is None:
        raise cg.ParameterError(
            f"{site}: only of site-N is N - 1 the client number; say clients={{{site!r}: …}}"
        )
    return int(match[1]) - 1


def _model(total: cg.Sum, metrics: dict[str, float] | None) -> FLModel:
    names = list(total.ranges)
    return FLModel(
        params_type=ParamsType.FULL, params=_data(total, names), metrics=metrics, meta=_meta(SUM, names)
    )


def _data(frame: cg.Contribution | cg.Sum, names: Iterable[str]) -> dict[str, bytes]:
    first, *others = names
    return {first: bytes(frame), **dict.fromkeys(others, b"")}


def _meta(algorithm: str, names: Iterable[str]) -> dict[str, Any]:
    return {
        MetaKey.PROCESSED_ALGORITHM: algorithm,
        MetaKey.PROCESSED_KEYS: dict.fromkeys(names, True),
    }


def _frame(data: object) -> bytes:
    """Returns the one frame of a message's data."""
    values = list(data.values()) if isinstance(data, Mapping) else []
    if not values or not all(isinstance(value, (bytes, bytearray, memoryview)) for value in values):
        raise cg.BadFrame("its data are not the bytes of one frame")
    frames = [bytes(value) for value in values if len(value)]
    if len(frames) != 1:
        raise cg.BadFrame(f"it holds {len(frames)} frames, where one belongs")
    return frames[0]


def _mean_of_metrics(sites: Iterable[dict[str, Any] | None]) -> dict[str, float] | None:
    """Returns plain means of the metrics that are numbers, or None where a site sent none."""
    values: dict[str, list[float]] = {}
    for metrics in sites:
        if metrics is None:
            return None
        for name, value in metrics.items():
            if isinstance(value, _NUMBERS) and abs(value) <= sys.float_info.max:
                values.setdefault(str(name), []).append(float(value))
    return {name: sum(each) / len(each) for name, each in values.items()} or None


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


def _may_train(fl_ctx: FLContext) -> bool:
    # The server names the task, and a trainer may heed no name.
    name = fl_ctx.get_prop(FLContextKey.TASK_NAME)
    return name not in (AppConstants.TASK_VALIDATION, AppConstants.TASK_SUBMIT_MODEL)


def _is_integer(value: Any) -> bool:
    if hasattr(value, "is_floating_point"):
        return not value.is_floating_point() and not value.is_complex()
    return np.asarray(value).dtype.kind in "biu"


def _site(fl_ctx: FLContext) -> str:
    return str(fl_ctx.get_identity_name(default="?"))


def _path_text(option: str, path: object) -> str:
    if not isinstance(path, (str, Path)) or not str(path):
        raise TypeError(
            f"{option}: it is the path of a file, not {type(path).__name__}; keys stay out of a job"
        )
    return str(path)


def _resolve(path: str, fl_ctx: FLContext | None) -> Path:
    """Returns the path of a site's file, which may be relative to its ``local`` folder."""
    if "{site}" in path:
        site = "" if fl_ctx is None else _site(fl_ctx)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", site):
            raise cg.ParameterError(f"{path}: the site's name {site!r} makes no file name")
        path = path.replace("{site}", site)
    place = Path(path)
    engine = None if fl_ctx is None else fl_ctx.get_engine()
    if place.is_absolute() or engine is None:
        return place
    return Path(engine.get_workspace().get_site_config_dir()) / place


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
