"""The client's part: opens what comes in, seals what goes out."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp.typing import ClientAppCallable

import ciphergram as cg

from .._answers import answer as answer_of
from .._answers import decrypt, learn, opening_key, own_file, prekey
from .._rounds import next_ranges
from ..errors import (
    BadFrame,
    CiphergramError,
    ClientNumberError,
    FileError,
    LayoutError,
    NoJob,
    ParameterError,
    RoundOver,
    WeightError,
)
from ._models import join, sealed_sum
from ._records import (
    ANNOUNCEMENT,
    ANSWER,
    CLIPPED,
    CONTRIBUTION,
    LOG,
    PREKEYS,
    SEALED,
    SECAGG,
    SECAGG_KEY,
    SERVER,
    SUM,
    SUM_NAME,
    TALK,
    WEIGHT,
    SumName,
    digest,
    only_record,
    split,
    sum_name,
    tensors,
    wrap,
)
from ._store import Store

# Records that stay on a client's node.
_UPDATE = "ciphergram.update"
_KEPT = "ciphergram.kept"
_STATE = "ciphergram.state"
_SUM = "ciphergram.sum"

# A round whose ranges clip more of a tensor asks for new ones.
_MOST_CLIPPED = 0.01

_NODE_KEY = re.compile(r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]")

# Seconds: that a client looks for the server of datagrams, and that a round takes of which nobody says how long.
_SEARCH = 30.0
_DAY = 86_400.0

# Flower's code of an app that raised an exception.
_FAILED = 2


def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Decrypt TRAIN and EVALUATE on their way in, and encrypt the reply to TRAIN.

    The node's configuration has ``ciphergram-key``, the path of a secret key, or of a member's; ``ciphergram-client``,
    the client's number (else ``partition-id``, which a simulation gives); and, if the job is not beside the key,
    ``ciphergram-job``, its path; and for ``transport="datagram"`` between machines ``ciphergram-identity``, the path of
    the node's own key. A simulation has no configuration of nodes: there the run's has the paths, of members that of
    the folder that has all of them in ``clients/``.

    A reply to TRAIN has one record of arrays and one of metrics, with a whole number ``num-examples``: the weight,
    which is encrypted, and 1 in its place. The metric ``ciphergram-clipped`` is added: how many values were out of
    range. Tensors of whole numbers stay with the client.

    What fails here or in the app is told in the node's log; the server learns the error's type only.
    """
    category = message.metadata.message_type.partition(".")[0]
    if category not in ("train", "evaluate"):
        return call_next(message, context)
    try:
        return _handle(message, context, call_next, training=category == "train")
    except Exception as error:
        # Words may tell of a weight, a value or a path, and an app's of its data: none of the server's business.
        expected = isinstance(error, CiphergramError)
        LOG.error("ciphergram: %s: %s", type(error).__name__, error, exc_info=None if expected else error)
        reason = f"ciphergram: {type(error).__name__}; the node's log says more"
        return Message(Error(code=_FAILED, reason=reason), reply_to=message)


def _handle(message: Message, context: Context, call_next: ClientAppCallable, *, training: bool) -> Message:
    begun = time.monotonic()
    client = _Client.of(context)
    asked = message.content.config_records.get(TALK, ConfigRecord())
    client.learn(message, asked)
    if training and TALK in message.content and SERVER not in asked:
        return client.answer(message, asked)
    if SERVER in asked:
        _check_slots(asked.get("clients"))
    opened = client.open(message, training=training)
    try:
        reply = call_next(message, context)
    except KeyError as error:
        if SECAGG_KEY in error.args:
            raise ParameterError(SECAGG) from None
        raise
    if not training or reply.has_error():
        return reply
    if SERVER in asked:
        return client.contribute(reply, asked, begun)
    return client.seal(reply, opened)


@dataclass
class _Client:
    """A client: its key, its number, and what it keeps from message to message."""

    key: Any
    job: Any
    number: int
    state: RecordDict
    store: Store
    key_path: str
    identity: str | None

    @classmethod
    def of(cls, context: Context) -> _Client:
        path = _setting(context, "ciphergram-key")
        if path is None:
            raise ParameterError(
                "the node's configuration has no ciphergram-key, the path of a secret key or a member's"
            )
        number = context.node_config.get(
            "ciphergram-client", context.node_config.get("partition-id")
        )
        # A simulation gives all nodes one path: the folder of all members.
        path = str(own_file(Path(path), number))
        key = opening_key(path)
        if isinstance(key, cg.Member) and number is None:
            number = key.number
        if not isinstance(number, int) or isinstance(number, bool):
            raise ParameterError(f"ciphergram-client={number!r}: it must be the client's number")
        job_path = _setting(context, "ciphergram-job")
        job = key.job if job_path is None else cg.Job.load(job_path, key.public)
        if job is None:
            raise NoJob("no job.json is beside the key: say ciphergram-job, its path")
        if not 0 <= number < job.clients:
            raise ClientNumberError(
                f"ciphergram-client={number}: the job has {job.clients} clients"
            )
        identity = _setting(context, "ciphergram-identity")
        return cls(key, job, number, context.state, Store(context), path, identity)

    def learn(self, message: Message, asked: ConfigRecord) -> None:
        """Take the prekeys of openers out of a message: the next contribution is sealed under them."""
        told = message.content.config_records.get(PREKEYS, asked).get(PREKEYS)
        if PREKEYS in message.content:
            message.content = RecordDict({n: r for n, r in message.content.items() if n != PREKEYS})
        learn(self.key, told, self.job)

    def _talk(self) -> ConfigRecord:
        talk = ConfigRecord({"client": self.number})
        own = prekey(self.key, self.job)
        if own is not None:
            talk[PREKEYS] = own
        return talk

    def open(self, message: Message, *, training: bool) -> cg.Opened | None:
        """Put the opened model in place of the sum in a message; return it, None if the model is plain."""
        if training:
            self.forget()
        name, record = only_record(message.content)
        named = sum_name(record)
        if named is not None:
            record = self._held(named)
        data = sealed_sum(record)
        if data is None:
            self._admit_plain(record)
            return None
        opened = decrypt(self.key, data, self.job)
        self._admit(opened.round)
        if named is not None:
            self._drop_before(named.round)
        integers = {name: array for name, array in record.items() if name != SEALED}
        integers.update(self._kept())
        model = join(opened, integers)
        message.content = RecordDict({**message.content, name: model})
        return opened

    def _admit_plain(self, record: ArrayRecord) -> None:
        # A model of the server's own making may be made to tell of the data it is trained on: the first one is public
        # and everyone can look at it; until there is a sum it is sent again, and later ones are sums.
        if "last-opened" in self._memory():
            raise BadFrame("the server sent a plain model after sums of this run")
        own = digest(record)
        if "initial" not in self._memory():
            self._memory()["initial"] = own
            LOG.info("ciphergram: the initial model came in plain: it is public")
        elif self._memory()["initial"] != own:
            raise BadFrame("the server sent another plain model than the first of this run")

    def _admit(self, number: int) -> None:
        last = self._memory().get("last-opened")
        if isinstance(last, int) and number < last:
            raise BadFrame(f"the server sent the sum of round {number} again, after that of {last}")
        self._memory()["last-opened"] = number

    def _held(self, named: SumName) -> ArrayRecord:
        number = named.round
        held = self.store.get(f"{_SUM}-{number}") if number in self._rounds_held() else None
        if held is None or SumName.of(number, held[SEALED]) != named:
            raise BadFrame(f"the server names a sum of round {number} that is not here")
        return held

    def _rounds_held(self) -> list[int]:
        held = self._memory().get("held")
        return [number for number in held if isinstance(number, int)] if isinstance(held, list) else []

    def _hold(self, total: cg.Sum) -> SumName:
        # Beside those from the last one on that the server named: it may have lost this round, and name that again.
        sealed = wrap(total, SUM)
        self.store.put(f"{_SUM}-{total.round}", ArrayRecord({SEALED: sealed}))
        self._memory()["held"] = sorted({*self._rounds_held(), total.round})
        return SumName.of(total.round, sealed)

    def _drop_before(self, number: int) -> None:
        rounds = self._rounds_held()
        for old in rounds:
            if old < number:
                self.store.drop(f"{_SUM}-{old}")
        self._memory()["held"] = [held for held in rounds if held >= number]

    def contribute(self, reply: Message, asked: ConfigRecord, begun: float) -> Message:
        """Take part in a round of the server's over datagrams, and put the name of its sum in a reply."""
        _, record = only_record(reply.content)
        weight = _weight(_metrics(reply.content)[1])
        sealed, kept = split(record)
        self._keep(kept)
        values = tensors(sealed)
        address, node = asked.get(SERVER), asked.get("server-key")
        # A `Client` takes the path of a file as well, and no server may choose a file of this node.
        if node is not None and not (isinstance(node, str) and _NODE_KEY.fullmatch(node)):
            raise BadFrame("the server's node key is none")
        # What was trained for too long is of a round that is over, and would take this client's place in the next.
        seconds = asked.get("seconds")
        left = (seconds if isinstance(seconds, float) else _DAY) - (time.monotonic() - begun)
        if left <= 0:
            raise RoundOver("the update took longer than its round")
        # A key by its path has its node keys beside it, on loopback, and reserves rounds by the block, which this
        # process ends too early to use.
        key = self.key_path if self.identity is None else self.key
        with cg.Client(
            str(address),
            key,
            number=self.number,
            identity=self.identity,
            server_key=node,
            job=self.job,
            timeout=min(left, _SEARCH),
        ) as client:
            total = client.sum(values, weight=weight)
        named = self._hold(total)
        return self._replaced(reply, wrap(named.to_bytes(), SUM_NAME), _count(total))

    def seal(self, reply: Message, opened: cg.Opened | None) -> Message:
        """Put a contribution in place of the update in a reply, or an announcement if there are no ranges that fit."""
        _, record = only_record(reply.content)
        weight = _weight(_metrics(reply.content)[1])
        sealed, kept = split(record)
        self._keep(kept)
        self.store.put(_UPDATE, ArrayRecord(sealed))
        self._memory()["weight"] = weight
        contribution = None if opened is None else self._by_last_mean(opened, sealed, weight)
        if contribution is None:
            array, clipped = self._announce(), 0
        else:
            array, clipped = wrap(contribution, CONTRIBUTION), _count(contribution)
        return self._replaced(reply, array, clipped)

    def _replaced(self, reply: Message, array: Array, clipped: int) -> Message:
        """Return a reply with one array in place of the update, and nothing of the weight."""
        metrics_name, metrics = _metrics(reply.content)
        content = {
            **reply.content,
            only_record(reply.content)[0]: ArrayRecord({SEALED: array}),
            metrics_name: MetricRecord({**metrics, WEIGHT: 1, CLIPPED: clipped}),
            TALK: self._talk(),
        }
        reply.content = RecordDict(content)
        return reply

    def _by_last_mean(
        self, opened: cg.Opened, sealed: dict[str, Any], weight: int
    ) -> cg.Contribution | None:
        """Seal an update to the round after the last mean's, under ranges that the mean gives; None if it does not fit.

        All clients opened the same mean, so they find the same ranges: nobody needs to tell, and nobody learns more. A
        norm to clip to is not to be found there, and is agreed in every round.
        """
        if opened.ranges.clip_norm is not None:
            return None
        ranges = None
        if not self.job.settles_ranges:
            ranges = opened.ranges.replace(next_ranges(opened, self.job.max_range))
        values = tensors(sealed)
        try:
            contribution: cg.Contribution = self.key.encrypt(
                values,
                **self._who(),
                ranges=ranges,
                weight=weight,
                round=opened.round + 1,
                job=self.job,
            )
        except (RoundOver, LayoutError, WeightError):
            # What the job does not admit either is refused when it is announced.
            return None
        counts = contribution.clipped or {}
        fits = all(counts.get(name, 0) <= _MOST_CLIPPED * values[name].size for name in values)
        return contribution if fits else None

    def _announce(self) -> Any:
        update, weight = self._update()
        own = self.key.propose(tensors(update), **self._who(), weight=weight, job=self.job)
        self._memory()["announcement"] = bytes(own)
        return wrap(own, ANNOUNCEMENT)

    def answer(self, message: Message, asked: ConfigRecord) -> Message:
        """Answer the server's question: for the sum that waits here, about the update that waits, or to an opener.

        An update is announced, or sealed under the terms of the round.
        """
        terms = asked.get("terms")
        held = asked.get("held")
        request = asked.get("request")
        if request is not None:
            array, clipped = self._as_opener(request), 0
        elif held is not None:
            array, clipped = self._held(SumName.from_bytes(held))[SEALED], 0
        elif terms is None:
            array, clipped = self._announce(), 0
        elif isinstance(terms, bytes):
            contribution = self._under(terms)
            array, clipped = wrap(contribution, CONTRIBUTION), _count(contribution)
        else:
            raise BadFrame("the terms of the round are not bytes")
        content = RecordDict(
            {
                "arrays": ArrayRecord({SEALED: array}),
                "metrics": MetricRecord({WEIGHT: 1, CLIPPED: clipped}),
                TALK: self._talk(),
            }
        )
        return Message(content, reply_to=message)

    def _as_opener(self, request: object) -> Array:
        return wrap(answer_of(self.key, request, self.job), ANSWER)

    def _who(self) -> dict[str, int]:
        # A member's key has its number.
        return {} if isinstance(self.key, cg.Member) else {"client": self.number}

    def _under(self, terms: bytes) -> cg.Contribution:
        update, weight = self._update()
        announced = self._memory().get("announcement")
        if not isinstance(announced, bytes):
            raise BadFrame("the server sent the terms of a round that this client did not announce")
        public = self.key.public
        # Whatever becomes of this attempt, the same update is not sealed under other terms.
        self.forget()
        contribution: cg.Contribution = self.key.encrypt(
            tensors(update),
            **self._who(),
            weight=weight,
            terms=cg.RoundTerms.from_bytes(terms, public),
            announcement=cg.Announcement.from_bytes(announced, public, self.number),
            job=self.job,
        )
        return contribution

    def _update(self) -> tuple[ArrayRecord, int]:
        update, weight = self.store.get(_UPDATE), self._memory().get("weight")
        if update is None or not isinstance(weight, int):
            raise BadFrame("the server asks for an update, and none waits")
        return update, weight

    def forget(self) -> None:
        """Drop the update that waits, and what was announced of it."""
        self.store.drop(_UPDATE)
        for name in ("announcement", "weight"):
            self._memory().pop(name, None)

    def _kept(self) -> dict[str, Any]:
        kept = self.store.get(_KEPT)
        return {} if kept is None else dict(kept)

    def _keep(self, integers: dict[str, Any]) -> None:
        if integers and self.store.get(_KEPT) is None:
            LOG.info("ciphergram: whole numbers stay with this client: %s", ", ".join(integers))
        if integers:
            self.store.put(_KEPT, ArrayRecord(integers))

    def _memory(self) -> ConfigRecord:
        memory = self.state.get(_STATE)
        if not isinstance(memory, ConfigRecord):
            memory = ConfigRecord()
            self.state[_STATE] = memory
        return memory


def _setting(context: Context, name: str) -> str | None:
    # A node that has a key of its own takes nothing from whoever starts the run.
    own = context.node_config
    value = (own if "ciphergram-key" in own else context.run_config).get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ParameterError(f"{name}={value!r}: it must be a path")
    path = os.path.expanduser(value)
    if not os.path.exists(path):
        raise FileError(f"{name}={value!r}: there is no such file")
    return path


def _check_slots(clients: object) -> None:
    """Refuse a round over datagrams, whose clients wait for each other, in a simulation that runs them in turn."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or not isinstance(clients, int):
        return
    own = ray.get_runtime_context().get_assigned_resources()
    total = ray.cluster_resources()
    slots = min((int(total.get(kind, 0) // share) for kind, share in own.items() if share), default=clients)
    if slots < clients:
        raise ParameterError(
            f"this simulation runs {slots} of {clients} clients at a time, and a round over datagrams needs all at "
            'once: take transport="message", or less of client-resources for each'
        )


def _metrics(content: RecordDict) -> tuple[str, MetricRecord]:
    records = list(content.metric_records.items())
    if len(records) != 1:
        raise BadFrame(f"a reply to TRAIN has one record of metrics, not {len(records)}")
    return records[0]


def _weight(metrics: MetricRecord) -> int:
    weight = metrics.get(WEIGHT)
    if weight is None:
        raise WeightError(f"the metrics have no {WEIGHT}, the weight of this client")
    if not isinstance(weight, int) or isinstance(weight, bool):
        raise WeightError(f"{WEIGHT}={weight!r}: a weight is a whole number, from 1", weight=weight)
    if weight < 1:
        raise WeightError(f"{WEIGHT}={weight}: a weight is from 1", weight=weight)
    return weight


def _count(sealed: cg.Contribution | cg.Sum) -> int:
    return sum((sealed.clipped or {}).values())
