"""The server's part: asks, adds what it cannot read, and hands it on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy

import ciphergram as cg

from .._answers import Prekeys, check_openers, opener_requests, pack
from ..errors import (
    BadFrame,
    CiphergramError,
    ClientNumberError,
    EngineError,
    KeyKind,
    ParameterError,
    TooFew,
)
from ._datagrams import Datagrams
from ._models import job_of, ranges_key_of, sealed_sum
from ._records import (
    ANNOUNCEMENT,
    ANSWER,
    CONTRIBUTION,
    LOG,
    PREKEYS,
    SEALED,
    SECAGG,
    SECAGG_KEY,
    SUM,
    SUM_NAME,
    TALK,
    WEIGHT,
    OpenerAnswer,
    SumName,
    only_record,
    split,
    sum_name,
    wrap,
)

_DAY = 86_400.0
# Seconds that a node has to hand out a sum while others wait for their round.
_FETCH_SECONDS = 300.0


Part = TypeVar("Part")


@dataclass(frozen=True)
class _Answer(Generic[Part]):
    """What one client answered to TRAIN."""

    node: int
    client: int
    # A contribution, an announcement, an opener's answer, a sum, or the name of one that was made over datagrams.
    part: Part
    metrics: MetricRecord


class Encrypted(Strategy):
    """A strategy that averages what it cannot read: `FedAvg` or `FedProx` over clients that have the mod.

    `Result.arrays`, and what the wrapped strategy sends to clients after the first round, is an encrypted sum, which
    `ciphergram.flower.open` opens for a holder of the key. Metrics of training are plain means over clients, as their
    weights are encrypted.

    A reply that is not what it should be is named in the log as an error and dropped; the round goes on with the others
    if they are enough, and else is lost: the next one begins with the same model. A run of lost rounds alone fails.

    Where the wrapped strategy may sample fewer nodes than a sum is of, its `min_train_nodes` is raised to that.

    Args:
        strategy: The strategy that samples clients and sends them the model.
        key: The public key, or the path of its file. A secret key is refused: the server has no use for one.
        min_clients: The fewest contributions to a sum; None for the job's own minimum, below which clients open none.
        job: The job, or the path of its file; None for the one beside the key.
        transport: "message", in which ciphertexts travel in Flower's messages; or "datagram", in which they travel
            over a `Server` of this process, for updates of 100 MB and more. Then every round asks clients for their
            ranges, and Flower's messages have the name of a sum in its place.
        listen: The address that the server of datagrams listens at, "HOST:PORT".
        advertise: The address that clients are told; None for the one that it listens at.
        identity: The file of the server's node key; None, on loopback, for the one beside the key.
        allow: The file that lists the nodes that may take part; None for the job's, or, on loopback, for the one
            beside the key.
        engine: "cpu", "gpu" or "auto".
        ranges_key: The key that the job's private ranges are found with, if it has such, or the path of its file; None
            for the one beside the key.

    Raises:
        ParameterError: The strategy needs plain arrays, or weighs by something else than ``num-examples``; or
            `min_clients` is below the job's.
        KeyKind: The key is not public.
        NoJob: No job is known.
        NoRangesKey: The job agrees on private ranges, and there is no key to find them with.
    """

    def __init__(
        self,
        strategy: FedAvg,
        *,
        key: str | os.PathLike[str] | cg.PublicKey,
        min_clients: int | None = None,
        job: str | os.PathLike[str] | cg.Job | None = None,
        transport: Literal["message", "datagram"] = "message",
        listen: str = "127.0.0.1:0",
        advertise: str | None = None,
        identity: str | os.PathLike[str] | None = None,
        allow: str | os.PathLike[str] | None = None,
        engine: str = "cpu",
        ranges_key: str | os.PathLike[str] | cg.RangesKey | None = None,
    ) -> None:
        _check_strategy(strategy)
        if transport not in ("message", "datagram"):
            raise ParameterError(f"transport={transport!r}: there are message and datagram")
        self.strategy = strategy
        self._public = _public_key(key)
        self._job = job_of(job, self._public)
        check_openers(self._job)
        self._ranges_key = ranges_key_of(ranges_key, key, self._job)
        self._engine = engine
        least = self._job.min_clients
        self.min_clients = least if min_clients is None else min_clients
        if self.min_clients < least:
            raise ParameterError(
                f"min_clients={min_clients}: clients open no sum of fewer than {least}, the job's minimum"
            )
        needed = max(self.min_clients, self._job.open)
        if strategy.min_train_nodes < needed:
            # A smaller sample would lose its round, whoever answers.
            text = "ciphergram: min_train_nodes=%d is raised to %d, of which a sum is at least"
            LOG.warning(text, strategy.min_train_nodes, needed)
            strategy.min_train_nodes = needed
        # Whether a round began, and one ended with a sum.
        self._began, self._summed = False, False
        self._integers: dict[str, Any] = {}
        self._nodes: dict[int, int] = {}
        self._prekeys: Prekeys[int] = Prekeys()
        # What is sent to clients, and what was before it; the nodes that the last sum is of.
        self._sent: ArrayRecord | None = None
        self._before: ArrayRecord | None = None
        self._contributors: set[int] = set()
        # Of the last two sums that were made over datagrams, who has them; and the last one that was fetched.
        self._holders: dict[SumName, list[int]] = {}
        self._fetched: tuple[SumName, ArrayRecord] | None = None
        self._grid: Grid | None = None
        self._timeout = _DAY
        self._datagrams: Datagrams | None = None
        if transport == "datagram":
            if self._job.openers:
                raise ParameterError('transport="datagram": openers answer in Flower\'s messages: take "message"')
            settings = {
                "listen": listen,
                "identity": identity,
                "allow": allow,
                "engine": engine,
                "ranges_key": self._ranges_key,
            }
            self._datagrams = Datagrams(key, self._job, self.min_clients, advertise, settings)

    def summary(self) -> None:
        """Log the settings of this strategy and of the one that it wraps."""
        LOG.info("\t├──> Encrypted under key %s, job %s:", self._public.id, self._job.id)
        LOG.info("\t│\t└──Sums of at least %d of %d clients", self.min_clients, self._job.clients)
        self.strategy.summary()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds: see `flwr.serverapp.strategy.Strategy.start`.

        Raises:
            ParameterError: `evaluate_fn` is given: the server cannot read the model.
            TooFew: Rounds were trained, and none of them ended with a sum.
        """
        if evaluate_fn is not None:
            raise ParameterError(
                "evaluate_fn= needs the model in plain, which no server has here: let clients evaluate it"
            )
        if sealed_sum(initial_arrays) is None:
            LOG.info("ciphergram: the initial model is sent in plain: it is public")
            self._integers = split(initial_arrays)[1]
        else:
            self._integers = {n: a for n, a in initial_arrays.items() if n != SEALED}
        self._timeout = timeout
        self._began, self._summed = False, False
        try:
            result = super().start(
                grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config
            )
            result.arrays = self._fetch(result.arrays, timeout)
        finally:
            if self._datagrams is not None:
                self._datagrams.close()
        if self._began and not self._summed:
            text = f"all rounds are lost: none had {self.min_clients} clients; the log names replies that were dropped"
            raise TooFew(text, min_clients=self.min_clients)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the wrapped strategy make the messages of a round."""
        self._grid = grid
        if arrays is not self._sent:
            self._before, self._sent = self._sent, arrays
        made = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._began = self._began or bool(made)
        if self._prekeys:
            prekeys = ConfigRecord({PREKEYS: list(self._prekeys.values())})
            for message in made:
                message.content = RecordDict({**message.content, PREKEYS: prekeys})
        if self._datagrams is not None and made:
            self._datagrams.close()
            self._complete(made, arrays)
            talk = ConfigRecord(self._datagrams.begin(len(made), self._timeout))
            for message in made:
                message.content = RecordDict({**message.content, TALK: talk})
        return made

    def _complete(self, messages: list[Message], arrays: ArrayRecord) -> None:
        """Put the sum itself into messages to nodes that have its name alone."""
        named = sum_name(arrays)
        if named is None:
            return
        holders = self._holders.get(named, [])
        without = [message for message in messages if message.metadata.dst_node_id not in holders]
        whole = self._fetch(arrays, min(self._timeout, _FETCH_SECONDS)) if without else arrays
        for message in without:
            name, _ = only_record(message.content)
            message.content = RecordDict({**message.content, name: whole})

    def _fetch(self, arrays: ArrayRecord, timeout: float) -> ArrayRecord:
        """Return the sum that a name stands for, from a node that has it; the name itself if none hands it out."""
        named = sum_name(arrays)
        if named is None:
            return arrays
        if self._fetched is None or self._fetched[0] != named:
            found = self._from_holders(named, timeout)
            if found is None:
                LOG.error("ciphergram: no node hands out the sum of round %d", named.round)
                return arrays
            self._fetched = named, ArrayRecord({SEALED: found, **self._integers})
        return self._fetched[1]

    def _from_holders(self, named: SumName, timeout: float) -> Array | None:
        for node in self._holders.get(named, []):
            asked = ConfigRecord({"held": named.to_bytes()})
            for answer in self._ask([node], asked, cg.Sum, timeout):
                sealed = wrap(answer.part, SUM)
                if SumName.of(answer.part.round, sealed) == named:
                    return sealed
                _drop(node, "it hands out another sum than it named")
        return None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the wrapped strategy make the messages of an evaluation."""
        made = list(self.strategy.configure_evaluate(server_round, arrays, config, grid))
        self._complete(made, arrays)
        return made

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Let the wrapped strategy join the metrics of an evaluation."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add what clients sealed, after a second exchange if some of them need other ranges.

        Returns:
            The record of the sum, and the plain means of the metrics; None of both if the round is lost. If half of
            those whose values the last sum is of, or more, cannot open it, the record of what was before it, and None.
        """
        if self._datagrams is not None:
            self._datagrams.close()
        replies = list(replies)
        if self._before is not None and self._is_unopened(replies):
            LOG.error("ciphergram: clients cannot open the last sum: the model of before it is sent again")
            before, self._before, self._sent = self._before, None, None
            return before, None
        first = self._answers(replies)
        if self._datagrams is not None:
            return self._over_datagrams(server_round, first)
        metrics = {answer.node: answer.metrics for answer in first}
        sealed = _of_kind(first, cg.Contribution)
        announced = _of_kind(first, cg.Announcement)
        if announced:
            sealed = self._exchange(announced, [answer.node for answer in sealed])
        sealed_sum, added = self._add(sealed)
        if sealed_sum is None:
            LOG.error("ciphergram: round %d is lost: see above", server_round)
            return None, None
        clients = sorted(answer.client for answer in added)
        LOG.info("ciphergram: round %d is the sum of clients %s", server_round, clients)
        self._contributors, self._summed = {answer.node for answer in added}, True
        arrays = ArrayRecord({SEALED: sealed_sum, **self._integers})
        return arrays, self._mean([metrics[answer.node] for answer in added])

    def _is_unopened(self, replies: list[Message]) -> bool:
        """Return whether half of the last sum's contributors, or more, say that it is none of theirs.

        One contribution can spoil a sum, which nobody opens then; and one liar may say that of any.
        """
        failed = [reply for reply in replies if reply.has_error() and "SumMismatch" in (reply.error.reason or "")]
        nodes = {reply.metadata.src_node_id for reply in failed} & self._contributors
        return 2 * len(nodes) >= max(len(self._contributors), 1)

    def _over_datagrams(
        self, server_round: int, answers: list[_Answer[Any]]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the record of the sum that most clients name."""
        finished = _of_kind(answers, SumName)
        usual = _commonest(answer.part for answer in finished) if finished else None
        ended = [answer for answer in finished if answer.part == usual]
        for answer in answers:
            if answer not in ended:
                _drop(answer.node, "it names another sum than most others")
        if usual is None or len(ended) < self.min_clients:
            LOG.error("ciphergram: %s", self._too_few(len(ended), "finished the round"))
            LOG.error("ciphergram: round %d is lost: see above", server_round)
            return None, None
        clients = sorted(answer.client for answer in ended)
        LOG.info("ciphergram: round %d is the sum of clients %s", server_round, clients)
        last = list(self._holders.items())[-1:]
        self._holders = {**dict(last), usual: [answer.node for answer in ended]}
        self._contributors, self._summed = {answer.node for answer in ended}, True
        name = wrap(usual.to_bytes(), SUM_NAME)
        arrays = ArrayRecord({SEALED: name, **self._integers})
        return arrays, self._mean([answer.metrics for answer in ended])

    def _exchange(
        self, announced: list[_Answer[cg.Announcement]], ready: list[int]
    ) -> list[_Answer[cg.Contribution]]:
        """Agree on the ranges of a round, and return what was sealed under them.

        Nodes that are ready sealed under ranges that do not fit all: what they sealed is thrown away, and their
        updates wait with them.
        """
        announced += self._ask(ready, ConfigRecord({"announce": True}), cg.Announcement)
        if len(announced) < self.min_clients:
            LOG.error("ciphergram: %s", self._too_few(len(announced), "announce an update"))
            return []
        try:
            parts = [a.part for a in announced]
            terms = cg.join_round(
                parts, self._public, job=self._job, ranges_key=self._ranges_key
            )
        except CiphergramError as error:
            LOG.error("ciphergram: no terms for the round: %s", error)
            return []
        for client, why in terms.left_out:
            LOG.warning("ciphergram: client %d cannot take part: %s", client, why)
        nodes = [a.node for a in announced if a.client in terms.participants]
        talk = ConfigRecord({"terms": bytes(terms)})
        if self._prekeys:
            talk[PREKEYS] = list(self._prekeys.values())
        return self._ask(nodes, talk, cg.Contribution)

    def _ask(
        self, nodes: list[int], talk: ConfigRecord, kind: type[Part], timeout: float | None = None
    ) -> list[_Answer[Part]]:
        """Send nodes a question about the update that waits with them, or for a sum that they have."""
        return self._ask_each(dict.fromkeys(nodes, talk), kind, timeout)

    def _ask_each(
        self, asked: dict[int, ConfigRecord], kind: type[Part], timeout: float | None = None
    ) -> list[_Answer[Part]]:
        """Send each node a question of its own, likewise."""
        if self._grid is None or not asked:
            return []
        messages = [
            Message(RecordDict({TALK: talk}), dst_node_id=node, message_type="train")
            for node, talk in asked.items()
        ]
        replies = self._grid.send_and_receive(messages, timeout=self._timeout if timeout is None else timeout)
        answers = self._answers(replies)
        for answer in answers:
            if not isinstance(answer.part, kind):
                _drop(answer.node, f"it sent a {type(answer.part).__name__}, not a {kind.__name__}")
        return _of_kind(answers, kind)

    def _answers(self, replies: Iterable[Message]) -> list[_Answer[Any]]:
        """Read replies; drop those that are not what they should be."""
        answers: list[_Answer[Any]] = []
        for reply in replies:
            node = reply.metadata.src_node_id
            if reply.has_error():
                hint = f" ({SECAGG})" if SECAGG_KEY in (reply.error.reason or "") else ""
                _drop(node, f"it failed: {reply.error.reason}{hint}")
                continue
            try:
                answer = self._read(node, reply.content)
                self._bind(answer, {other.client for other in answers})
                self._prekeys.note(node, reply.content.config_records.get(TALK, ConfigRecord()).get(PREKEYS))
            except CiphergramError as error:
                _drop(node, str(error))
                continue
            answers.append(answer)
        return answers

    def _read(self, node: int, content: RecordDict) -> _Answer[Any]:
        _, record = only_record(content)
        if len(content.metric_records) != 1:
            raise BadFrame(f"it has {len(content.metric_records)} records of metrics, not one")
        metrics = next(iter(content.metric_records.values()))
        array = record.get(SEALED)
        if array is None or len(record) != 1:
            raise BadFrame(f"its arrays are not encrypted: {', '.join(sorted(record)[:3])}")
        if array.stype == CONTRIBUTION:
            part = cg.loads(array.data, self._public)
            if not isinstance(part, cg.Contribution):
                raise BadFrame("a sum is where a contribution belongs")
            return _Answer(node, part.client, part, metrics)
        client = self._client_of(content)
        if array.stype == ANSWER:
            return _Answer(node, client, OpenerAnswer(array.data), metrics)
        if array.stype == ANNOUNCEMENT:
            announced = cg.Announcement.from_bytes(array.data, self._public, client)
            return _Answer(node, client, announced, metrics)
        if self._datagrams is not None and array.stype == SUM:
            held = cg.loads(array.data, self._public)
            if not isinstance(held, cg.Sum):
                raise BadFrame("a contribution is where a sum belongs")
            return _Answer(node, client, held, metrics)
        named = sum_name(record)
        if self._datagrams is not None and named is not None:
            return _Answer(node, client, named, metrics)
        raise BadFrame(f"its array is a {array.stype!r}, not a contribution")

    def _client_of(self, content: RecordDict) -> int:
        client = content.config_records.get(TALK, ConfigRecord()).get("client")
        if not isinstance(client, int) or isinstance(client, bool):
            raise ClientNumberError(f"its client number is {client!r}")
        if not 0 <= client < self._job.clients:
            raise ClientNumberError(f"client {client} is none of the job's {self._job.clients}")
        return client

    def _bind(self, answer: _Answer[Any], answered: set[int]) -> None:
        """Hold every node to the client that it was first, and every client to its node."""
        if answer.client in answered:
            raise ClientNumberError(
                f"client {answer.client} has answered already, from another node"
            )
        known = self._nodes.setdefault(answer.node, answer.client)
        if known != answer.client:
            raise ClientNumberError(f"it was client {known} before, and now is {answer.client}")
        others = [n for n, c in self._nodes.items() if c == answer.client and n != answer.node]
        connected = set(self._grid.get_node_ids()) if others and self._grid else set()
        for other in others:
            if other in connected:
                del self._nodes[answer.node]
                raise ClientNumberError(f"client {answer.client} is node {other}")
            # A node that was started anew has another id.
            del self._nodes[other]

    def _add(
        self, answers: list[_Answer[cg.Contribution]]
    ) -> tuple[Array | None, list[_Answer[cg.Contribution]]]:
        """Add the contributions of one round under the same ranges; return the sum and whose it is of.

        The sum has the answers that open it, where openers give such.
        """
        summing = cg.Summing(self._public, job=self._job, engine=self._engine)
        added: list[_Answer[cg.Contribution]] = []
        for answer in _of_one_round(answers):
            try:
                summing.add(answer.part)
                added.append(answer)
            except EngineError:
                # Half of it may be in the sum, which is worth nothing then.
                LOG.exception("ciphergram: the sum cannot go on")
                return None, []
            except CiphergramError as error:
                _drop(answer.node, str(error))
        if len(added) < self.min_clients:
            LOG.error("ciphergram: %s", self._too_few(len(added), "contributed"))
            return None, []
        opening = self._ask_openers(summing)
        if len(opening) < self._job.open:
            text = "ciphergram: nobody opens the sum: %d of %d openers answered"
            LOG.error(text, len(opening), self._job.open)
            return None, []
        return wrap(pack(summing.finish(), opening), SUM), added

    def _ask_openers(self, summing: cg.Summing) -> list[bytes]:
        """Return what openers, who are clients as well, answer about a sum; nothing where a key opens it."""
        requests = opener_requests(summing, self._job, self._nodes)
        asked = {node: ConfigRecord({"request": request}) for node, request in requests.items()}
        found: dict[int, bytes] = {}
        for answer in self._ask_each(asked, OpenerAnswer):
            try:
                found[summing.check_answer(answer.part)] = answer.part
            except CiphergramError as error:
                _drop(answer.node, str(error))
        return list(found.values())

    def _too_few(self, found: int, did: str) -> str:
        return f"{found} clients {did}, and a sum is of at least {self.min_clients}"

    def _mean(self, metrics: list[MetricRecord]) -> MetricRecord:
        # One client's odd metrics must not cost the round.
        forms = [_form(record) for record in metrics]
        usual = _commonest(forms)
        whole = [record for record, form in zip(metrics, forms, strict=True) if form == usual]
        contents = [RecordDict({"metrics": MetricRecord({**m, WEIGHT: 1})}) for m in whole]
        return self.strategy.train_metrics_aggr_fn(contents, WEIGHT)


def _form(metrics: MetricRecord) -> tuple[tuple[str, int], ...]:
    """Return the names of metrics, each with the number of its values, -1 where it is no list."""
    values = ((n, len(v) if isinstance(v, list) else -1) for n, v in metrics.items() if n != WEIGHT)
    return tuple(sorted(values))


def _commonest(keys: Iterable[Any]) -> Any:
    return Counter(keys).most_common(1)[0][0]


def _of_kind(answers: Iterable[_Answer[Any]], kind: type[Part]) -> list[_Answer[Part]]:
    return [answer for answer in answers if isinstance(answer.part, kind)]


def _of_one_round(
    sealed: list[_Answer[cg.Contribution]],
) -> list[_Answer[cg.Contribution]]:
    """Return the contributions to the round and under the ranges that most agree on: one liar is not the measure."""
    if not sealed:
        return []
    keys = [(a.part.round, a.part.ranges.to_json()) for a in sealed]
    usual = _commonest(keys)
    for answer, key in zip(sealed, keys, strict=True):
        if key[0] != usual[0]:
            _drop(answer.node, f"it is of round {key[0]}, and the others of {usual[0]}")
        elif key != usual:
            _drop(answer.node, "its ranges are not those of the others")
    return [answer for answer, key in zip(sealed, keys, strict=True) if key == usual]


def _drop(node: int, why: str) -> None:
    LOG.error("ciphergram: the reply of node %d is dropped: %s", node, why)


def _check_strategy(strategy: object) -> None:
    name = type(strategy).__name__
    if not isinstance(strategy, FedAvg) or (
        type(strategy).aggregate_train is not FedAvg.aggregate_train
    ):
        raise ParameterError(
            f"{name} does more than a weighted mean, which needs updates in plain: Encrypted wraps FedAvg and FedProx, "
            "and an optimiser of the mean runs at clients, which open it"
        )
    if strategy.weighted_by_key != WEIGHT:
        raise ParameterError(
            f"weighted_by_key={strategy.weighted_by_key!r}: clients encrypt the weight named {WEIGHT!r}"
        )


def _public_key(key: Any) -> cg.PublicKey:
    loaded = cg.load_keys(key) if isinstance(key, str | os.PathLike) else key
    if not isinstance(loaded, cg.PublicKey):
        raise KeyKind(
            f"key= is a {type(loaded).__name__}: the server takes the public key alone, public.json"
        )
    return loaded
