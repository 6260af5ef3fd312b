"""FLARE's filters and aggregator in one process: what is sealed, added, opened and refused."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

import ciphergram as cg
from ciphergram.flare import Aggregator, Decrypt, Encrypt
from ciphergram.flare._sites import CONTRIBUTION, SUM

LARGEST_WEIGHT = 40
STEPS = 2**15 - 1
Model = dict[str, Any]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Returns a folder of keys for four clients, three to a sum."""
    cg.keygen("ckks-sum", clients=4, min_clients=3).save(tmp_path / "keys")
    return tmp_path / "keys"


def context(site: str, task: str = "train") -> FLContext:
    fl_ctx = FLContextManager(identity_name=site, job_id="job").new_context()
    fl_ctx.set_prop(FLContextKey.TASK_NAME, task, private=True, sticky=False)
    return fl_ctx


class Site:
    """A site, with the filters that FLARE would build for it."""

    def __init__(self, keys: Path, number: int, **options: Any) -> None:
        self.name = f"site-{number + 1}"
        key = str(keys / "secret.json")
        self.decrypt = Decrypt(key)
        settings: dict[str, Any] = {"ranges": 4.0, "max_weight": LARGEST_WEIGHT, "first_round": 10}
        self.encrypt = Encrypt(key, **(settings | options))

    def context(self) -> FLContext:
        return context(self.name)

    def task(self, model: Model, meta: Model, round: int) -> tuple[Model, FLContext]:
        """Returns what the trainer is given."""
        fl_ctx = self.context()
        task = DXO(DataKind.WEIGHTS, data=copy.deepcopy(model), meta=dict(meta)).to_shareable()
        task.set_header(AppConstants.CURRENT_ROUND, round)
        return FLModelUtils.from_shareable(self.decrypt.process(task, fl_ctx)).params, fl_ctx

    def reply(
        self, fl_ctx: FLContext, model: Model, meta: Model, kind: str = DataKind.WEIGHTS
    ) -> FLModel:
        """Returns what reaches the server."""
        sealed = self.encrypt.process(DXO(kind, data=model, meta=meta).to_shareable(), fl_ctx)
        received = FLModelUtils.from_shareable(sealed)
        received.meta["client_name"] = self.name
        return received

    def contribute(self, model: Model, steps: int = 1, round: int = 0) -> FLModel:
        """Returns the reply to a first model in plain."""
        _, fl_ctx = self.task({name: np.zeros(1) for name in model}, {}, round)
        return self.reply(fl_ctx, model, {MetaKey.NUM_STEPS_CURRENT_ROUND: steps})


def open_sum(keys: Path, model: FLModel) -> cg.Opened:
    secret = cg.load_keys(keys / "secret.json")
    (frame,) = [value for value in model.params.values() if value]
    return secret.decrypt(cg.loads(frame, key=secret.public))


def initial() -> Model:
    return {
        "layer.weight": np.full((3, 5), 0.5, np.float32),
        "layer.bias": np.full(5, -0.5, np.float64),
        "half": np.full((2, 1, 3), 0.25, np.float16),
        "scale": np.array(0.5, np.float32),
    }


@pytest.mark.parametrize("kind", [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF])
def test_rounds_give_the_weighted_mean(keys: Path, kind: str) -> None:
    sites = [Site(keys, number) for number in range(3)]
    aggregator = Aggregator(str(keys / "public.json"))
    generator = np.random.default_rng(1)
    weights = [7, 20, LARGEST_WEIGHT]
    model, meta = initial(), {}
    for round in range(3):
        aggregator.reset_stats()
        expected: Model = dict.fromkeys(model, 0.0)
        for site, weight in zip(sites, weights, strict=True):
            given, fl_ctx = site.task(model, meta, round)
            moves = {
                n: (generator.uniform(-0.1, 0.1, np.shape(v))).astype(v.dtype)
                for n, v in given.items()
            }
            trained = {
                name: np.asarray(given[name] + move, given[name].dtype)
                for name, move in moves.items()
            }
            for name, value in trained.items():
                expected[name] = expected[name] + weight * np.asarray(value, np.float64) / sum(
                    weights
                )
            for value in given.values():
                value.fill(np.nan)  # trainers write into what they are given
            sent = trained if kind == DataKind.WEIGHTS else moves
            metrics = {"accuracy": weight / 10, "note": "text", "huge": 10**400}
            reply = site.reply(
                fl_ctx,
                sent,
                {MetaKey.NUM_STEPS_CURRENT_ROUND: weight, MetaKey.INITIAL_METRICS: metrics},
                kind,
            )
            assert reply.meta[MetaKey.NUM_STEPS_CURRENT_ROUND] == 1
            assert reply.meta[MetaKey.PROCESSED_ALGORITHM] == CONTRIBUTION
            assert all(isinstance(value, bytes) for value in reply.params.values())
            aggregator.accept_model(reply)
        total = aggregator.aggregate_model()
        assert total.metrics == {"accuracy": pytest.approx(sum(weights) / 30)}
        model, meta = total.params, total.meta
        assert model.keys() == initial().keys()
        mean = open_sum(keys, total)
        assert mean.round == 10 + round
        for name, value in mean.items():
            assert (value.dtype, value.shape) == (initial()[name].dtype, initial()[name].shape)
            bound = 3 * LARGEST_WEIGHT / sum(weights) * mean.ranges[name] / STEPS
            rounding = np.finfo(value.dtype).eps * 4
            np.testing.assert_allclose(
                value.astype(np.float64), expected[name], rtol=rounding, atol=bound + rounding
            )
        if round > 0:
            assert max(mean.ranges.values()) < 4.0  # they follow from the mean


def test_integers_stay_with_the_client(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ciphergram")
    manager = FLContextManager(identity_name="site-1", job_id="job")
    site = Site(keys, 0)

    def at_work() -> FLContext:
        fl_ctx = manager.new_context()
        fl_ctx.set_prop(FLContextKey.TASK_NAME, "train", private=True, sticky=False)
        return fl_ctx

    def give(model: Model, meta: Model, fl_ctx: FLContext, round: int) -> Model:
        task = DXO(DataKind.WEIGHTS, data=copy.deepcopy(model), meta=dict(meta)).to_shareable()
        task.set_header(AppConstants.CURRENT_ROUND, round)
        return FLModelUtils.from_shareable(site.decrypt.process(task, fl_ctx)).params

    fl_ctx = at_work()
    give({"w": np.zeros(2, np.float32), "seen": np.array(0)}, {}, fl_ctx, 0)
    own = site.reply(fl_ctx, {"w": np.ones(2, np.float32), "seen": np.array(12)}, {})
    assert set(own.params) == {"w"}
    aggregator = Aggregator(str(keys / "public.json"))
    for reply in [own, *(Site(keys, n).contribute({"w": np.ones(2, np.float32)}) for n in (1, 2))]:
        aggregator.accept_model(reply)
    total = aggregator.aggregate_model()
    given = give(total.params, total.meta, at_work(), 1)
    assert given["seen"] == 12
    assert [r.message for r in caplog.records if "integers" in r.message] == [
        "site-1 keeps tensors of integers: ['seen']"
    ]


def in_plain(good: FLModel, keys: Path) -> FLModel:
    return FLModel(params={"w": np.ones(4, np.float32)}, meta={"client_name": "site-4"})


def in_plain_by_another_name(good: FLModel, keys: Path) -> FLModel:
    return FLModel(params={"w": np.ones(4, np.float32)}, meta=good.meta)


def under_another_key(good: FLModel, keys: Path) -> FLModel:
    cg.keygen("ckks-sum", clients=4, min_clients=3).save(keys.parent / "others")
    return Site(keys.parent / "others", 3).contribute({"w": np.ones(4, np.float32)})


def of_another_job(good: FLModel, keys: Path) -> FLModel:
    secret = cg.load_keys(keys / "secret.json")
    job = cg.Job(secret.public, clients=4, min_clients=3, max_weight=41)
    job.save(keys.parent / "job.json")
    return Site(keys, 3, job=str(keys.parent / "job.json")).contribute(
        {"w": np.ones(4, np.float32)}
    )


def cut(good: FLModel, keys: Path) -> FLModel:
    return FLModel(params={"w": good.params["w"][:-1]}, meta=good.meta)


def empty(good: FLModel, keys: Path) -> FLModel:
    return FLModel(params={"w": b"", "b": b""}, meta=good.meta)


def two_frames(good: FLModel, keys: Path) -> FLModel:
    return FLModel(params={"w": good.params["w"], "b": good.params["w"]}, meta=good.meta)


def flipped(good: FLModel, keys: Path) -> FLModel:
    frame = bytearray(good.params["w"])
    frame[len(frame) // 2] ^= 0x10
    return FLModel(params={"w": bytes(frame)}, meta=good.meta)


def a_sum(good: FLModel, keys: Path) -> FLModel:
    public = cg.load_keys(keys / "public.json")
    total = cg.aggregate([good.params["w"]], public)
    return FLModel(params={"w": bytes(total)}, meta=good.meta)


def said_to_be_a_sum(good: FLModel, keys: Path) -> FLModel:
    return FLModel(params=good.params, meta={**good.meta, MetaKey.PROCESSED_ALGORITHM: SUM})


def of_another_site(good: FLModel, keys: Path) -> FLModel:
    reply = Site(keys, 0, first_round=11).contribute({"w": np.ones(4, np.float32)})
    reply.meta["client_name"] = "site-4"
    return reply


def of_another_round(good: FLModel, keys: Path) -> FLModel:
    return Site(keys, 3, first_round=11).contribute({"w": np.ones(4, np.float32)})


def of_other_ranges(good: FLModel, keys: Path) -> FLModel:
    return Site(keys, 3, ranges=2.0, first_round=11).contribute({"w": np.ones(4, np.float32)})


def of_other_tensors(good: FLModel, keys: Path) -> FLModel:
    return Site(keys, 3, first_round=11).contribute({"w": np.ones(5, np.float32)})


BAD: list[Callable[[FLModel, Path], FLModel]] = [
    in_plain,
    in_plain_by_another_name,
    under_another_key,
    of_another_job,
    cut,
    empty,
    two_frames,
    flipped,
    a_sum,
    said_to_be_a_sum,
    of_another_site,
    of_another_round,
    of_other_ranges,
    of_other_tensors,
]


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_a_bad_reply_is_named_and_dropped(
    keys: Path,
    spoil: Callable[[FLModel, Path], FLModel],
    first: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    aggregator = Aggregator(str(keys / "public.json"))
    good = [
        Site(keys, number).contribute({"w": np.full(4, number, np.float32)}) for number in range(3)
    ]
    bad = spoil(Site(keys, 3).contribute({"w": np.ones(4, np.float32)}), keys)
    if spoil is of_another_site:
        for reply in good:  # a round in which each site showed its number
            aggregator.accept_model(reply)
        aggregator.reset_stats()
    for reply in [bad, *good] if first else [*good, bad]:
        if reply is bad and spoil not in (of_another_round, of_other_ranges, of_other_tensors):
            with pytest.raises(cg.CiphergramError):
                aggregator.accept_model(reply)
        else:
            aggregator.accept_model(reply)
    mean = open_sum(keys, aggregator.aggregate_model())
    assert mean.contributors == [0, 1, 2]
    np.testing.assert_allclose(mean["w"], 1.0, atol=3 * LARGEST_WEIGHT / 3 * 4.0 / STEPS)
    assert any(
        "site-4" in record.message and "dropped" in record.message for record in caplog.records
    )


def test_a_site_contributes_once_and_keeps_its_number(keys: Path) -> None:
    aggregator = Aggregator(str(keys / "public.json"))
    reply = Site(keys, 0).contribute({"w": np.ones(4)})
    aggregator.accept_model(reply)
    with pytest.raises(cg.CiphergramError, match="already"):
        aggregator.accept_model(reply)
    other = Site(keys, 1).contribute({"w": np.ones(4)})
    other.meta["client_name"] = "site-1"
    with pytest.raises(
        cg.CiphergramError, match="it is client 0, and its contribution is of client 1"
    ):
        aggregator.accept_model(other)
    listed = Aggregator(str(keys / "public.json"), clients={"site-1": 3})
    for bad in (reply, Site(keys, 2).contribute({"w": np.ones(4)})):
        with pytest.raises(cg.CiphergramError):
            listed.accept_model(bad)


def test_too_few_are_no_sum(keys: Path) -> None:
    replies = [Site(keys, number).contribute({"w": np.ones(4)}) for number in range(3)]
    aggregator = Aggregator(str(keys / "public.json"))
    for found in range(3):
        for reply in replies[:found]:
            aggregator.accept_model(reply)
        with pytest.raises(cg.TooFew) as error:
            aggregator.aggregate_model()
        assert (error.value.found, error.value.min_clients) == (found, 3)
    stricter = Aggregator(str(keys / "public.json"), min_clients=4)
    for reply in replies:
        stricter.accept_model(reply)
    with pytest.raises(cg.TooFew):
        stricter.aggregate_model()


def failed(aggregator: Aggregator, code: str, *sites: int) -> None:
    for site in sites:
        fail_one(aggregator, code, f"site-{site}")


def fail_one(aggregator: Aggregator, code: str, site: str) -> None:
    fl_ctx, reply = context("server"), make_reply(code)
    fl_ctx.set_peer_context(context(site))
    fl_ctx.set_prop(FLContextKey.TASK_RESULT, reply, private=True, sticky=False)
    aggregator.handle_event(EventType.BEFORE_PROCESS_SUBMISSION, fl_ctx)


def test_a_round_that_is_lost_costs_no_job(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    sites = [Site(keys, number) for number in range(3)]
    aggregator = Aggregator(str(keys / "public.json"))

    def round(number: int, found: int) -> FLModel:
        for site in sites[:found]:
            aggregator.accept_model(site.contribute({"w": np.full(4, float(number))}, round=number))
        return aggregator.aggregate_model()

    def is_of(model: FLModel) -> int:
        return open_sum(keys, model).round - 10

    with pytest.raises(cg.TooFew):
        round(0, 2)
    assert [is_of(round(number, 3)) for number in (1, 2)] == [1, 2]
    assert is_of(round(3, 2)) == 2
    assert "the round is lost: 2 replies" in caplog.text
    # One site's word is not enough to go back, and neither is that it could not seal.
    failed(aggregator, ReturnCode.TASK_DATA_FILTER_ERROR, 2, 2)
    assert is_of(round(4, 0)) == 2
    failed(aggregator, ReturnCode.TASK_RESULT_FILTER_ERROR, 1, 2, 3)
    assert is_of(round(5, 0)) == 2
    # Nor does the one who spoiled a sum hold it up by a good reply.
    failed(aggregator, ReturnCode.TASK_DATA_FILTER_ERROR, 2, 3)
    assert is_of(round(6, 1)) == 1
    assert is_of(round(7, 3)) == 7
    failed(aggregator, ReturnCode.TASK_DATA_FILTER_ERROR, 1, 2, 3)
    assert is_of(round(8, 0)) == 1
    failed(aggregator, ReturnCode.TASK_DATA_FILTER_ERROR, 1, 2, 3)
    with pytest.raises(cg.TooFew):
        round(9, 0)


def test_other_tasks_fail_as_they_are(keys: Path) -> None:
    fl_ctx, reply = context("server", "validate"), make_reply(ReturnCode.TASK_DATA_FILTER_ERROR)
    fl_ctx.set_prop(FLContextKey.TASK_RESULT, reply, private=True, sticky=False)
    Aggregator(str(keys / "public.json")).handle_event(EventType.BEFORE_PROCESS_SUBMISSION, fl_ctx)
    assert reply.get_return_code() == ReturnCode.TASK_DATA_FILTER_ERROR


def test_a_server_picks_no_model_and_no_round_of_its_own(keys: Path) -> None:
    site = Site(keys, 0)
    for _ in range(2):
        site.task({"w": np.zeros(4, np.float32)}, {}, 0)
    for other in ({"w": np.ones(4, np.float32)}, {"w": np.zeros(4)}, {"v": np.zeros(4, np.float32)}):
        with pytest.raises(cg.CiphergramError, match="another than the first"):
            site.task(other, {}, 1)
    for number in (2**62, 1 << 20):
        with pytest.raises(cg.CiphergramError, match="the task's round"):
            site.task({"w": np.zeros(4, np.float32)}, {}, number)


def test_scatter_and_gather_is_told(keys: Path) -> None:
    aggregator = Aggregator(str(keys / "public.json"))
    site = Site(keys, 0)
    _, fl_ctx = site.task({"w": np.zeros(4)}, {}, 0)
    sealed = site.encrypt.process(DXO(DataKind.WEIGHTS, {"w": np.ones(4)}).to_shareable(), fl_ctx)
    assert aggregator.accept(sealed, context("server"))
    assert not aggregator.accept(
        DXO(DataKind.WEIGHTS, {"w": np.ones(4)}).to_shareable(), context("server")
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ReturnCode.TASK_DATA_FILTER_ERROR, ReturnCode.OK),
        (ReturnCode.TASK_RESULT_FILTER_ERROR, ReturnCode.OK),
        (ReturnCode.EXECUTION_EXCEPTION, ReturnCode.EXECUTION_EXCEPTION),
    ],
)
def test_a_site_whose_filter_failed_is_dropped(
    keys: Path, code: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    fl_ctx, reply = context("server"), make_reply(code)
    fl_ctx.set_peer_context(context("site-2"))
    fl_ctx.set_prop(FLContextKey.TASK_RESULT, reply, private=True, sticky=False)
    Aggregator(str(keys / "public.json")).handle_event(EventType.BEFORE_PROCESS_SUBMISSION, fl_ctx)
    assert reply.get_return_code() == expected
    assert ("reply of site-2 dropped" in caplog.text) == (expected == ReturnCode.OK)


@pytest.mark.parametrize("name", ["secret.json", "."])
def test_the_server_takes_no_secret_key(keys: Path, name: str) -> None:
    aggregator = Aggregator(str(keys / name))
    with pytest.raises(cg.KeyKind):
        aggregator.accept_model(Site(keys, 0).contribute({"w": np.ones(4)}))


@pytest.mark.parametrize(
    "reply",
    [
        Shareable(),
        DXO(DataKind.FL_MODEL, {"params": {"w": np.ones(2)}}).to_shareable(),
        DXO(DataKind.APP_DEFINED, {"w": np.ones(2)}).to_shareable(),
        DXO(DataKind.COLLECTION, {"a": DXO(DataKind.WEIGHTS, {"w": np.ones(2)})}).to_shareable(),
        DXO(DataKind.WEIGHTS, {"w": np.array([1.0, np.nan])}).to_shareable(),
        DXO(DataKind.WEIGHTS, {"w": np.array([1.0 + 2j])}).to_shareable(),
        DXO(DataKind.WEIGHTS, {"w": np.array([None])}).to_shareable(),
        DXO(DataKind.WEIGHTS, {"w": {"deeper": np.ones(2)}}).to_shareable(),
        DXO(DataKind.WEIGHTS, {"w": "text"}).to_shareable(),
        DXO(DataKind.WEIGHTS, {"only": np.array([1, 2])}).to_shareable(),
        DXO(DataKind.WEIGHT_DIFF, {"other": np.ones(2)}).to_shareable(),
    ],
    ids=lambda reply: str(reply.get("DXO", {}).get("kind")),
)
def test_what_cannot_be_sealed_does_not_leave(keys: Path, reply: Shareable) -> None:
    site = Site(keys, 0)
    _, fl_ctx = site.task({"w": np.zeros(2)}, {}, 0)
    with pytest.raises((cg.CiphergramError, ValueError, TypeError)):
        site.encrypt.process(reply, fl_ctx)


@pytest.mark.parametrize("steps", [0, -1, 1.5, 3.0, True, "3", LARGEST_WEIGHT + 1, np.float32(2)])
def test_weights_are_whole_numbers_up_to_the_largest(keys: Path, steps: Any) -> None:
    with pytest.raises((cg.WeightError, OverflowError)):
        Site(keys, 0).contribute({"w": np.ones(2)}, steps)


def test_metrics_and_errors_pass_and_a_single_model_does_not(keys: Path) -> None:
    site = Site(keys, 0)
    metrics = DXO(DataKind.METRICS, {"accuracy": 0.5}).to_shareable()
    assert site.encrypt.process(metrics, context("site-1", "validate")) is metrics
    failed = DXO(DataKind.WEIGHTS, {"w": np.ones(2)}).update_shareable(
        make_reply(ReturnCode.EXECUTION_EXCEPTION)
    )
    assert "DXO" not in site.encrypt.process(failed, context("site-1"))
    model = DXO(DataKind.WEIGHTS, {"w": np.ones(2)}).to_shareable()
    with pytest.raises(cg.CiphergramError, match="one client"):
        site.encrypt.process(model, context("site-1", AppConstants.TASK_SUBMIT_MODEL))
    with pytest.raises(cg.CiphergramError, match="Decrypt"):
        site.encrypt.process(model, context("site-1"))


def test_what_is_no_sum_is_not_opened(keys: Path) -> None:
    aggregator = Aggregator(str(keys / "public.json"))
    replies = [Site(keys, number).contribute({"w": np.ones(4)}) for number in range(3)]
    for reply in replies:
        aggregator.accept_model(reply)
    total = aggregator.aggregate_model()
    site = Site(keys, 0)
    contribution = replies[0].params
    for params, meta in [
        (contribution, replies[0].meta),
        (contribution, total.meta),
        ({"w": total.params["w"][:-3]}, total.meta),
        ({"w": np.ones(4)}, total.meta),
        (total.params, {}),
        (total.params, {**total.meta, MetaKey.PROCESSED_ALGORITHM: "something"}),
    ]:
        with pytest.raises(cg.CiphergramError):
            site.task(params, meta, 1)
    given, _ = site.task(total.params, total.meta, 1)
    np.testing.assert_allclose(given["w"], 1.0, atol=0.01)
    with pytest.raises(cg.CiphergramError, match="in their place"):
        site.task({"w": np.ones(4)}, {}, 2)


def test_a_sum_of_an_earlier_round_is_refused(keys: Path) -> None:
    sums = []
    for first_round in (10, 11):
        aggregator = Aggregator(str(keys / "public.json"))
        for number in range(3):
            site = Site(keys, number, first_round=first_round)
            aggregator.accept_model(site.contribute({"w": np.ones(4)}))
        sums.append(aggregator.aggregate_model())
    site = Site(keys, 0)
    for total in (sums[0], sums[0], sums[1], sums[1]):
        site.task(total.params, total.meta, 1)
    with pytest.raises(cg.CiphergramError, match="of round 10, and that of 11 came before"):
        site.task(sums[0].params, sums[0].meta, 2)


def test_a_round_is_sealed_once(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    Site(keys, 0).contribute({"w": np.ones(2)})
    with pytest.raises(cg.RoundOver):
        Site(keys, 0).contribute({"w": np.ones(2)})
    assert "site-1 has sealed this round before: make the job anew" in caplog.text


def test_numbers_of_sites(keys: Path) -> None:
    odd = Site(keys, 0)
    odd.name = "hospital"
    with pytest.raises(cg.ParameterError, match="clients="):
        odd.contribute({"w": np.ones(2)})
    odd.encrypt.clients = {"clinic": 1}
    with pytest.raises(cg.ParameterError, match="hospital"):
        odd.contribute({"w": np.ones(2)})
    odd.encrypt.clients = {"hospital": 2}
    reply = odd.contribute({"w": np.ones(2)})
    assert cg.loads(reply.params["w"]).client == 2


def test_weights_by_argument(keys: Path) -> None:
    key = str(keys / "secret.json")
    with pytest.raises(cg.ParameterError, match="max_weight"):
        Encrypt(key)
    assert Encrypt(key, weight={"site-1": 3, "site-2": 9}).max_weight == 9
    sites = [
        Site(keys, n, weight={"site-1": 3, "site-2": 9, "site-3": 12}, max_weight=None)
        for n in range(3)
    ]
    aggregator = Aggregator(str(keys / "public.json"))
    for number, site in enumerate(sites):
        aggregator.accept_model(site.contribute({"w": np.full(2, number / 2)}, steps=1))
    mean = open_sum(keys, aggregator.aggregate_model())
    np.testing.assert_allclose(mean["w"], (9 / 2 + 12) / 24, atol=3 * 12 / 24 * 4.0 / STEPS)


def test_paths_of_sites(keys: Path, tmp_path: Path) -> None:
    (tmp_path / "site-1").symlink_to(keys)
    site = Site(keys, 0)
    site.encrypt.key = str(tmp_path / "{site}" / "secret.json")
    site.contribute({"w": np.ones(2)})
    for name in ("../keys", "a/b", "", ".."):
        bad = Site(keys, 0)
        bad.name, bad.encrypt.key = name, site.encrypt.key
        bad.encrypt.clients = {name: 1}
        with pytest.raises(cg.ParameterError, match="no file name"):
            bad.contribute({"w": np.ones(2)})
    with pytest.raises(TypeError):
        Encrypt(cg.load_keys(keys / "secret.json"), weight=1)  # type: ignore[arg-type]


def test_a_job_has_paths_and_no_keys(keys: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    recipe = NumpyFedAvgRecipe(
        model=[0.0], min_clients=3, num_rounds=1, train_script=str(script),
        aggregator=Aggregator(str(keys / "public.json"), min_clients=3, clients={"site-1": 0}),
    )  # fmt: skip
    recipe.add_client_input_filter(
        Decrypt(str(keys / "secret.json"), tensors="torch"), tasks=["train"]
    )
    encrypt = Encrypt(str(keys / "secret.json"), weight={"site-1": 2}, ranges={"w": 1.5})
    recipe.add_client_output_filter(encrypt, tasks=["train"])
    recipe.export(str(tmp_path / "exported"))
    secret = json.loads((keys / "secret.json").read_text())
    written = [path for path in (tmp_path / "exported").rglob("*") if path.is_file()]
    assert len(written) > 3
    for text in (path.read_text() for path in written):
        assert not any(len(str(value)) > 20 and str(value) in text for value in secret.values())
    (config,) = [
        json.loads(path.read_text()) for path in written if path.name == "config_fed_client.json"
    ]
    (entry,) = config["task_result_filters"][0]["filters"]
    assert entry["path"] == "ciphergram.flare.Encrypt"
    built = Encrypt(**entry["args"])
    names = ("key", "weight", "max_weight", "ranges", "first_round", "clients", "job")
    assert [getattr(built, name) for name in names] == [getattr(encrypt, name) for name in names]


def test_ranges_may_stay(keys: Path) -> None:
    aggregator = Aggregator(str(keys / "public.json"))
    for number in range(3):
        aggregator.accept_model(Site(keys, number).contribute({"w": np.full(2, 0.2)}))
    total = aggregator.aggregate_model()
    for follow_mean, expected in ((True, 0.5), (False, 4.0)):
        site = Site(keys, 0, follow_mean=follow_mean, first_round=12 - int(follow_mean))
        given, fl_ctx = site.task(total.params, total.meta, 2)
        sealed = cg.loads(site.reply(fl_ctx, given, {}).params["w"])
        assert dict(sealed.ranges.items()) == {"w": expected}
