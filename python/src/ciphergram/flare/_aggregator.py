"""The server's part: adds what it cannot read, and hands it on."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from nvflare.apis.dxo import MetaKey
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

import ciphergram as cg

from .._answers import check_openers, pack
from ._openers import OpenerSites
from ._sites import (
    CONTRIBUTION,
    LOG,
    SUM,
    data_of,
    frame_of,
    load_job,
    may_train,
    meta_of,
    path_texts,
    resolve,
    short,
    site_name,
)

_NUMBERS: Any = (float, int, np.floating, np.integer)
_FILTERS_FAILED = (ReturnCode.TASK_DATA_FILTER_ERROR, ReturnCode.TASK_RESULT_FILTER_ERROR)


class _Summed(NamedTuple):
    """A sum, and its bytes with the answers that open it."""

    total: cg.Sum
    frame: bytes


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
        self.key, self.job = path_texts(key, job)
        self.clients = clients
        self.min_clients = min_clients
        self.engine = engine
        self._public: cg.PublicKey | None = None
        self._job: cg.Job | None = None
        self._numbers: dict[str, int] = dict(clients or {})
        self._groups: dict[tuple[int, str], _Group] = {}
        # The last two sums, and the sites that could not open the model of this round.
        self._last_sums: deque[_Summed] = deque(maxlen=2)
        self._unopened: set[str] = set()
        self._openers = OpenerSites()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Drops the trained replies of sites whose filters failed, for which FLARE would end the job."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.START_RUN:
            self._openers.listen(fl_ctx)
        if event_type != EventType.BEFORE_PROCESS_SUBMISSION or not may_train(fl_ctx):
            return
        reply = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
        if isinstance(reply, Shareable) and reply.get_return_code() in _FILTERS_FAILED:
            peer = fl_ctx.get_peer_context()
            site = "?" if peer is None else site_name(peer)
            LOG.warning(
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
            LOG.warning("reply of %s dropped: %s", site, error)
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
            ciphergram.TooFew: The group is of fewer clients than the job's minimum, or too few openers answered, and
                there is no earlier sum.
        """
        groups = sorted(self._groups.values(), key=lambda group: len(group.sites), reverse=True)
        last = self._last_sums[-1].total.contributors if self._last_sums else []
        unopened = {self._numbers.get(site) for site in self._unopened} & set(last)
        self.reset_stats()
        for group in groups[1:]:
            LOG.warning(
                "replies of %s dropped: others agree on another round or ranges",
                sorted(group.sites),
            )
        _, job = self._load()
        found = len(groups[0].sites) if groups else 0
        if found < job.min_clients:
            # One contribution can spoil a sum, which nobody opens then; and one liar may say that of any.
            if self._last_sums and 2 * len(unopened) >= len(self._last_sums[-1].total.contributors):
                self._last_sums.pop()
            text = f"{found} replies can be summed, and a sum is of at least {job.min_clients}"
            return self._again(cg.TooFew(text, found=found, min_clients=job.min_clients))
        group = groups[0]
        answers = self._openers.answers(group.summing, job, self._numbers, set(group.sites), self.fl_ctx)
        if len(answers) < job.open:
            text = f"{len(answers)} openers answered, and {job.open} open a sum"
            return self._again(cg.TooFew(text, found=len(answers)))
        total = group.summing.finish()
        self._last_sums.append(_Summed(total, pack(total, answers)))
        return self._model(_mean_of_metrics(group.sites.values()))

    def _again(self, lost: cg.TooFew) -> FLModel:
        """Returns the last sum, where a round is lost."""
        if not self._last_sums:
            raise lost
        LOG.error("the round is lost: %s; the sum of round %d is sent again", lost, self._last_sums[-1].total.round)
        return self._model(None)

    def _model(self, metrics: dict[str, float] | None) -> FLModel:
        total, frame = self._last_sums[-1]
        names = list(total.ranges)
        params, meta = data_of(frame, names), meta_of(SUM, names)
        return FLModel(params_type=ParamsType.FULL, params=params, metrics=metrics, meta=meta)

    def reset_stats(self) -> None:
        """Forgets the contributions of a round that ended; which site has which number stays."""
        self._groups = {}
        self._unopened.clear()

    def _accept(self, site: str, model: FLModel) -> None:
        algorithm = (model.meta or {}).get(MetaKey.PROCESSED_ALGORITHM)
        if algorithm != CONTRIBUTION:
            said = "in plain" if algorithm is None else short(algorithm)
            raise cg.CiphergramError(f"it is {said}, where {CONTRIBUTION} belongs")
        public, job = self._load()
        contribution = cg.loads(frame_of(model.params), key=public)
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
            path = resolve(self.key, self.fl_ctx)
            key = cg.load_keys(path)
            if not isinstance(key, cg.PublicKey):
                raise cg.KeyKind(
                    f"{path}: a server holds a public key alone, not a {type(key).__name__}"
                )
            job = load_job(key, self.job, self.fl_ctx)
            check_openers(job)
            self._public = key
            self._job = job if self.min_clients is None else job.requiring(self.min_clients)
        return self._public, self._job


@dataclass
class _Group:
    """Contributions that agree, as they are summed, and the metrics of the sites that sent them."""

    summing: cg.Summing
    sites: dict[str, dict[str, Any] | None] = field(default_factory=dict)


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
