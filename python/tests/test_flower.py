"""The mod and the strategy of `ciphergram.flower`, in one process."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import blake3
import numpy as np
import pytest

flwr = pytest.importorskip("flwr", "1.41")

from flower_world import (  # noqa: E402
    Arrays,
    SHAPES,
    bound,
    fedavg,
    make_keys,
    plain_rounds,
    record,
    start_model,
    step,
    to_arrays,
    World,
)
from flwr.app import (  # noqa: E402
    Array,
    ArrayRecord,
    Error,
    Message,
    RecordDict,
)
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import strategy as strategies  # noqa: E402

import ciphergram as cg  # noqa: E402
import ciphergram.flower  # noqa: E402
from ciphergram.flower._records import SUM_NAME, SumName, wrap  # noqa: E402


def run(
    folder: Path,
    rounds: int = 3,
    *,
    update: Any = step,
    model: Arrays | None = None,
    **options: Any,
) -> tuple[World, Any]:
    keys = folder / "keys"
    if not keys.exists():
        keys.mkdir()
        make_keys(keys)
    world = World(keys, 3, update)
    world.extra = options.pop("extra", {})
    prepare = options.pop("prepare", None)
    if prepare:
        prepare(world)
    strategy = cg.flower.Encrypted(
        options.pop("strategy", None) or fedavg(), key=keys / "server" / "public.json", **options
    )
    initial = record(start_model() if model is None else model)
    return world, strategy.start(world, initial, num_rounds=rounds, timeout=5)


def open_result(folder: Path, result: Any) -> Arrays:
    return to_arrays(cg.flower.open(result.arrays, folder / "keys" / "0" / "secret.json"))


def exchanges(world: World) -> int:
    return sum("ciphergram" in asked.content.config_records for asked, _ in world.seen)


def test_equals_plain_fedavg(tmp_path: Path) -> None:
    world, result = run(tmp_path, rounds=4)
    mean, plain = open_result(tmp_path, result), plain_rounds(4)
    assert list(mean) == list(plain)
    for name in plain:
        assert mean[name].dtype == np.float32
        np.testing.assert_allclose(mean[name], plain[name], atol=bound(4), rtol=0)
    # Only the first round asked for ranges: three clients, one question each.
    assert exchanges(world) == 3
    clipped = [m["ciphergram-clipped"] for m in result.train_metrics_clientapp.values()]
    assert clipped == [0, 0, 0, 0]
    # Metrics are plain means, whatever the weights.
    assert [m["loss"] for m in result.train_metrics_clientapp.values()] == [1.0] * 4
    assert len(result.evaluate_metrics_clientapp) == 4


def test_nothing_readable_reaches_the_server(tmp_path: Path) -> None:
    world, result = run(tmp_path, rounds=3)
    secret = np.concatenate(
        [a.ravel() for models in world.models.values() for m in models for a in m.values()]
    )
    for asked, reply in world.seen:
        for record_ in [
            *reply.content.array_records.values(),
            *asked.content.array_records.values(),
        ]:
            for array in record_.values():
                if asked.content.config_records.get("config", {}).get("server-round") == 1 and (
                    array.stype == "numpy.ndarray"
                ):
                    continue
                assert array.stype.startswith("ciphergram.")
                assert secret[-1:].tobytes() * 2 not in array.data
        if asked.metadata.message_type == "train":
            metrics = next(iter(reply.content.metric_records.values()))
            assert metrics["num-examples"] == 1
    assert [array.stype for array in result.arrays.values()] == ["ciphergram.sum/1"]


def test_integers_stay_and_order_is_the_models(tmp_path: Path, caplog: Any, stored: Path) -> None:
    model = {
        "z.w": np.ones((3, 3), np.float32),
        "bn.num_batches_tracked": np.array(0, np.int64),
        "a.b": np.ones(3, np.float64),
        "h": np.ones(2, np.float16),
    }

    def count(number: int, server_round: int, model: Arrays) -> Arrays:
        new = {n: a for n, a in model.items() if a.dtype.kind == "f"}
        new["bn.num_batches_tracked"] = model["bn.num_batches_tracked"] + number + 1
        return {n: new[n] for n in model}

    world, result = run(tmp_path, rounds=3, update=count, model=model)
    for number, models in world.models.items():
        assert all(list(m) == list(model) for m in models)
        assert all(
            m[n].dtype == model[n].dtype and m[n].shape == model[n].shape for m in models for n in m
        )
        # The round's training and evaluation see what the client itself counted.
        counts = [int(m["bn.num_batches_tracked"]) for m in models]
        assert counts == [k * (number + 1) for k in (0, 1, 1, 2, 2, 3)]
    assert caplog.text.count("whole numbers stay with this client") == 3
    assert list(open_result(tmp_path, result)) == list(model)


def test_weights_clipping_and_layout_ask_again(tmp_path: Path) -> None:
    def grow(number: int, server_round: int, model: Arrays) -> Arrays:
        new = step(number, server_round, model)
        return {n: a + (3 if server_round == 2 and number == 1 else 0) for n, a in new.items()}

    world, result = run(tmp_path, rounds=3, update=grow)
    mean, plain = open_result(tmp_path, result), plain_rounds(3, update=grow)
    for name in plain:
        np.testing.assert_allclose(mean[name], plain[name], atol=bound(3, largest=8.0), rtol=0)
    # Round 1: three questions. Round 2: two that had sealed are asked to announce, then three get the terms.
    assert exchanges(world) == 3 + 2 + 3
    rounds = {m["ciphergram-clipped"] for m in result.train_metrics_clientapp.values()}
    assert rounds == {0}


def test_a_larger_weight_asks_again(tmp_path: Path) -> None:
    def heavier(number: int, server_round: int, model: Arrays) -> Arrays:
        world_box[0].weights[number] = 10 * (number + 1) * (40 if server_round == 2 else 1)
        return step(number, server_round, model)

    world_box: list[World] = []
    world, result = run(tmp_path, rounds=3, update=heavier, prepare=world_box.append)
    assert exchanges(world) > 3
    mean = open_result(tmp_path, result)
    for name, value in plain_rounds(3).items():
        np.testing.assert_allclose(mean[name], value, atol=bound(3, max_weight=2048), rtol=0)


def test_a_lost_client_costs_nothing_else(tmp_path: Path, caplog: Any) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    make_keys(keys, min_clients=2)

    def die(world: World) -> None:
        def update(number: int, server_round: int, model: Arrays) -> Arrays:
            if server_round == 2 and number == 2:
                world.down.add(102)
                raise RuntimeError("killed")
            return step(number, server_round, model)

        world.update = update

    _, result = run(tmp_path, rounds=2, prepare=die, min_clients=2, strategy=fedavg(2))
    first = plain_rounds(1)
    news = [step(n, 2, first) for n in (0, 1)]
    mean = open_result(tmp_path, result)
    for name in mean:
        expected = (10.0 * news[0][name] + 20.0 * news[1][name]) / 30
        np.testing.assert_allclose(mean[name], expected, atol=bound(2), rtol=0)
    assert "is dropped: it failed" in caplog.text


def test_too_few_lose_the_round_and_the_next_one_goes_on(tmp_path: Path, caplog: Any) -> None:
    def flaky(number: int, server_round: int, model: Arrays) -> Arrays:
        if server_round == 2 and number == 0:
            raise RuntimeError("no data today")
        return step(number, server_round, model)

    world, result = run(tmp_path, rounds=3, update=flaky)
    assert "round 2 is lost" in caplog.text
    assert sorted(result.train_metrics_clientapp) == [1, 3]
    # The others sealed to round 2's number, so round 3 takes a higher one.
    first = plain_rounds(1)
    weights = np.array([10.0, 20, 30])
    mean = open_result(tmp_path, result)
    for name in mean:
        news = [step(n, 3, first)[name] for n in range(3)]
        expected = sum(w * new for w, new in zip(weights, news, strict=True)) / 60
        np.testing.assert_allclose(mean[name], expected, atol=bound(3), rtol=0)


def other_key(folder: Path) -> cg.Keys:
    (folder / "other").mkdir()
    return make_keys(folder / "other")


@pytest.mark.parametrize(
    "what", ["other key", "sum", "garbage", "cut", "flipped", "plain", "twice", "no metrics"]
)
def test_a_bad_reply_is_named_and_dropped(tmp_path: Path, caplog: Any, what: str) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    make_keys(keys, min_clients=2)
    other = other_key(tmp_path)
    last: dict[int, bytes] = {}

    def damage(asked: Message, reply: Message) -> Message:
        arrays = reply.content.array_records.get("arrays")
        if asked.metadata.message_type != "train" or arrays is None or "ciphergram" not in arrays:
            return reply
        array = arrays["ciphergram"]
        if array.stype != "ciphergram.contribution/1":
            return reply
        node = reply.metadata.src_node_id
        last[node] = array.data
        # The terms ask for round 1; the model of round 2 is a sum.
        if "arrays" not in asked.content.array_records or node != 102:
            return reply
        data, stype = array.data, array.stype
        if what == "other key":
            data = bytes(other.encrypt({"w": np.ones(3, np.float32)}, ranges=1.0, client=2))
        elif what == "sum":
            data = asked.content["arrays"]["ciphergram"].data
        elif what == "garbage":
            data = b"garbage" * 100
        elif what == "cut":
            data = data[:-9]
        elif what == "flipped":
            data = data[:200] + bytes([data[200] ^ 1]) + data[201:]
        elif what == "plain":
            stype = "numpy.ndarray"
        elif what == "twice":
            data = last[101]
        content = dict(reply.content)
        content["arrays"] = ArrayRecord({"ciphergram": Array("uint8", (len(data),), stype, data)})
        if what == "no metrics":
            del content["metrics"]
        return Message(RecordDict(content), reply_to=asked_as_sent(asked))

    def asked_as_sent(asked: Message) -> Message:
        return Message(RecordDict(), dst_node_id=asked.metadata.dst_node_id, message_type="train")

    _, result = run(
        tmp_path,
        rounds=2,
        min_clients=2,
        prepare=lambda world: setattr(world, "tamper", damage),
    )
    assert "the reply of node 102 is dropped" in caplog.text
    assert sorted(result.train_metrics_clientapp) == [1, 2]
    first = plain_rounds(1)
    news = [step(n, 2, first) for n in (0, 1)]
    for name, value in open_result(tmp_path, result).items():
        expected = (10.0 * news[0][name] + 20.0 * news[1][name]) / 30
        np.testing.assert_allclose(value, expected, atol=bound(2), rtol=0)


def lost(folder: Path, **options: Any) -> World:
    """Return the world of a run of which no round ended with a sum: it fails."""
    worlds: list[World] = []
    with pytest.raises(cg.TooFew, match="all rounds are lost: none had 3 clients") as error:
        run(folder, rounds=1, prepare=worlds.append, **options)
    assert error.value.min_clients == 3
    return worlds[0]


def test_a_smaller_sample_than_a_sum_is_of_is_not_taken(tmp_path: Path, caplog: Any) -> None:
    strategy = fedavg(2, fraction_train=0.5)
    _, result = run(tmp_path, rounds=2, strategy=strategy)
    assert strategy.min_train_nodes == 3 and "min_train_nodes=2 is raised to 3" in caplog.text
    assert sorted(result.train_metrics_clientapp) == [1, 2]


def test_secure_aggregation_of_flowers_beside_it_is_named(tmp_path: Path, caplog: Any) -> None:
    from flwr.client.mod import secaggplus_mod

    def with_it(*mods: Any) -> Any:
        def prepare(world: World) -> None:
            app = ClientApp(mods=list(mods))
            app.train()(world._train)
            world.app = app

        return prepare

    for at, mods in enumerate(((cg.flower.mod, secaggplus_mod), (secaggplus_mod, cg.flower.mod))):
        caplog.clear()
        (tmp_path / str(at)).mkdir()
        with pytest.raises(cg.TooFew):
            run(tmp_path / str(at), rounds=1, prepare=with_it(*mods))
        assert "secaggplus_mod cannot stand beside ciphergram's mod" in caplog.text


def test_a_simulation_that_runs_clients_in_turn_is_refused_at_once(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def machine(cores: float, each: float) -> None:
        own = SimpleNamespace(get_assigned_resources=lambda: {"CPU": each})
        ray = SimpleNamespace(
            is_initialized=lambda: True, get_runtime_context=lambda: own, cluster_resources=lambda: {"CPU": cores}
        )
        monkeypatch.setitem(sys.modules, "ray", ray)

    world, strategy = datagram_world(tmp_path)
    machine(2.0, 1.0)
    began = time.monotonic()
    with pytest.raises(cg.TooFew, match="all rounds are lost: none had 2 clients"):
        strategy.start(world, record(start_model()), num_rounds=1)
    assert "runs 2 of 3 clients at a time" in caplog.text and 'transport="message"' in caplog.text
    # None trained in vain: each has but the model that it evaluated.
    assert time.monotonic() - began < 10 and all(len(models) == 1 for models in world.models.values())
    machine(6.0, 2.0)
    assert sorted(strategy.start(world, record(start_model()), num_rounds=1).train_metrics_clientapp) == [1]


@pytest.mark.parametrize(
    ("extra", "error"),
    [
        ({"num-examples": 12.0}, "WeightError"),
        ({"num-examples": 0}, "WeightError"),
        ({"num-examples": 100_001}, "WeightError|BeyondJob"),
    ],
)
def test_odd_weights_are_refused(tmp_path: Path, caplog: Any, extra: Any, error: str) -> None:
    world = lost(tmp_path, extra=extra)
    assert caplog.text.count("is dropped: it failed") == 3
    reasons = [reply.error.reason for _, reply in world.seen if reply.has_error()]
    assert len(reasons) == 3
    assert all(any(f": {name};" in reason for name in error.split("|")) for reason in reasons)
    # The server learns that a weight is odd, not which it is; the node's log has it.
    assert all(str(extra["num-examples"]) not in reason for reason in reasons)


def test_values_that_are_not_finite_are_refused_by_name(tmp_path: Path) -> None:
    def diverge(number: int, server_round: int, model: Arrays) -> Arrays:
        return {n: np.full_like(a, np.nan) for n, a in model.items()}

    world = lost(tmp_path, update=diverge)
    assert {r.error.reason.split(";")[0] for _, r in world.seen if r.has_error()} == {
        "ciphergram: NotFinite"
    }


def test_what_the_server_must_not_have_is_refused(tmp_path: Path) -> None:
    make_keys(tmp_path)
    public = tmp_path / "server" / "public.json"
    with pytest.raises(cg.KeyKind, match="public"):
        cg.flower.Encrypted(fedavg(), key=tmp_path / "0" / "secret.json")
    with pytest.raises(cg.ParameterError, match="fewer than 3"):
        cg.flower.Encrypted(fedavg(), key=public, min_clients=2)
    with pytest.raises(cg.ParameterError, match="samples"):
        cg.flower.Encrypted(fedavg(weighted_by_key="samples"), key=public)
    with pytest.raises(cg.ParameterError, match="evaluate_fn"):
        cg.flower.Encrypted(fedavg(), key=public).start(
            World(tmp_path, 3, step), record(start_model()), evaluate_fn=lambda *_: None
        )


def test_strategies_that_need_plain_arrays_are_refused_by_name(tmp_path: Path) -> None:
    make_keys(tmp_path)
    public = tmp_path / "server" / "public.json"
    refused = []
    for name in strategies.__all__:
        cls = getattr(strategies, name)
        if not isinstance(cls, type) or not issubclass(cls, strategies.Strategy):
            continue
        if name == "Strategy":
            continue
        made = object.__new__(cls)
        made.__dict__.update(weighted_by_key="num-examples", min_train_nodes=2)
        if name in ("FedAvg", "FedProx"):
            cg.flower.Encrypted(made, key=public)
            continue
        with pytest.raises(cg.ParameterError, match=name):
            cg.flower.Encrypted(made, key=public)
        refused.append(name)
    assert {"FedAdam", "FedMedian", "Krum", "FedAvgM", "FedTrimmedAvg"} <= set(refused)


def test_fedprox_sends_its_term(tmp_path: Path) -> None:
    prox = strategies.FedProx(
        min_train_nodes=3, min_evaluate_nodes=3, min_available_nodes=3, proximal_mu=0.5
    )
    world, result = run(tmp_path, rounds=2, strategy=prox)
    trained = [
        m
        for m, _ in world.seen
        if "config" in m.content.config_records and m.metadata.message_type == "train"
    ]
    assert {m.content["config"]["proximal-mu"] for m in trained} == {0.5}
    assert sorted(result.train_metrics_clientapp) == [1, 2]


def test_a_sealed_initial_model(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    make_keys(keys)
    file = tmp_path / "initial.npz"
    model = {**start_model(), "steps": np.array([3, 4])}
    cg.flower.seal(record(model), keys / "3" / "secret.json", file)
    opened = to_arrays(cg.flower.open(file, keys / "0" / "secret.json"))
    assert list(opened) == list(model)
    np.testing.assert_array_equal(opened["steps"], [3, 4])
    world = World(
        keys, 3, lambda n, r, m: {**step(n, r, {k: m[k] for k in SHAPES}), "steps": m["steps"]}
    )
    strategy = cg.flower.Encrypted(fedavg(), key=keys / "server" / "public.json")
    result = strategy.start(world, cg.flower.initial(file), num_rounds=2, timeout=5)
    plain = plain_rounds(2)
    for name, value in plain.items():
        np.testing.assert_allclose(
            open_result(tmp_path, result)[name], value, atol=bound(3), rtol=0
        )
    # Nobody knew the clients' weights, so the first round asked.
    assert exchanges(world) == 3
    assert all(
        array.stype != "numpy.ndarray" for array in result.arrays.values() if array.dtype != "int64"
    )
    cg.flower.save(result.arrays, tmp_path / "result.npz")
    again = to_arrays(cg.flower.open(tmp_path / "result.npz", keys / "1" / "secret.json"))
    np.testing.assert_array_equal(again["w"], open_result(tmp_path, result)["w"])
    with pytest.raises(cg.BadFrame):
        cg.flower.initial(keys / "server" / "public.json")
    with pytest.raises(cg.BadFrame):
        cg.flower.save(record(start_model()), tmp_path / "plain.npz")


def datagram_world(folder: Path, update: Any = step) -> tuple[World, Any]:
    make_keys(folder, min_clients=2)
    world = World(folder, 3, update)
    # On loopback, node keys are found beside the keys.
    for context in world.contexts.values():
        context.node_config["ciphergram-key"] = str(folder / "all" / "secret.json")
    strategy = cg.flower.Encrypted(
        fedavg(), key=folder / "all" / "public.json", min_clients=2, transport="datagram"
    )
    return world, strategy


@pytest.mark.parametrize("named", [False, True])
def test_rounds_over_datagrams(tmp_path: Path, named: bool, stored: Path) -> None:
    world, strategy = datagram_world(tmp_path)
    if named:
        for context in world.contexts.values():
            identity = str(tmp_path / "all" / "client.identity")
            context.node_config["ciphergram-identity"] = identity
    result = strategy.start(world, record(start_model()), num_rounds=3, timeout=20)
    mean = to_arrays(cg.flower.open(result.arrays, tmp_path / "0" / "secret.json"))
    plain = plain_rounds(3)
    assert list(mean) == list(plain)
    for name, value in plain.items():
        np.testing.assert_allclose(mean[name], value, atol=bound(3), rtol=0)
    # Flower's messages have the names of sums alone, until one node hands out the last sum.
    sizes = [
        len(array.data)
        for asked, reply in world.seen
        for content in (asked.content, reply.content)
        for arrays in content.array_records.values()
        for array in arrays.values()
        if array.stype != "numpy.ndarray"
    ]
    assert sorted(sizes)[:-1] == [40] * (len(sizes) - 1) and max(sizes) > 1000
    assert [m["ciphergram-clipped"] for m in result.train_metrics_clientapp.values()] == [0] * 3


def test_over_datagrams_a_node_that_missed_a_round_gets_its_sum(tmp_path: Path) -> None:
    def absent(number: int, server_round: int, model: Arrays) -> Arrays:
        if server_round == 2 and number == 2:
            raise RuntimeError("away")
        return step(number, server_round, model)

    world, strategy = datagram_world(tmp_path, absent)
    result = strategy.start(world, record(start_model()), num_rounds=3, timeout=4)
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3]
    second = world.models[0][-2]
    np.testing.assert_array_equal(world.models[2][-2]["w"], second["w"])
    expected = sum(w * step(n, 3, second)["w"] for n, w in enumerate([10.0, 20, 30])) / 60
    mean = to_arrays(cg.flower.open(result.arrays, tmp_path / "0" / "secret.json"))
    np.testing.assert_allclose(mean["w"], expected, atol=bound(3), rtol=0)


def test_over_datagrams_a_round_that_only_the_server_lost_costs_no_later_one(tmp_path: Path, stored: Path) -> None:
    world, strategy = datagram_world(tmp_path)

    def lose(message: Message, reply: Message) -> Message:
        config = message.content.config_records.get("config", {})
        is_lost = message.metadata.message_type == "train" and config.get("server-round") == 2
        if is_lost and message.metadata.dst_node_id != min(world.contexts):
            return Message(Error(code=3, reason="on its way"), reply_to=message)
        return reply

    world.tamper = lose
    result = strategy.start(world, record(start_model()), num_rounds=3, timeout=20)
    assert sorted(result.train_metrics_clientapp) == [1, 3]
    first = world.models[0][1]
    expected = sum(w * step(n, 3, first)["w"] for n, w in enumerate([10.0, 20, 30])) / 60
    mean = to_arrays(cg.flower.open(result.arrays, tmp_path / "0" / "secret.json"))
    np.testing.assert_allclose(mean["w"], expected, atol=bound(3), rtol=0)
    # Nodes hold nothing older than the last sum that the server named.
    held = [context.state["ciphergram.state"]["held"] for context in world.contexts.values()]
    assert held == [[2]] * 3


def test_over_datagrams_a_node_that_hands_out_another_sum_is_passed_over(tmp_path: Path, caplog: Any) -> None:
    world, strategy = datagram_world(tmp_path)
    earlier: list[bytes] = []

    def lie(asked: Message, reply: Message) -> Message:
        if "held" not in asked.content.config_records.get("ciphergram", {}) or earlier:
            return reply
        # A sum of its own making, of the round that was asked for.
        secret = cg.load_keys(tmp_path / "0" / "secret.json")
        number = cg.loads(reply.content["arrays"]["ciphergram"].data).round
        values = {"w": np.ones(4, np.float32)}
        parts = [secret.encrypt(values, ranges=2.0, client=n, round=number, job=secret.job) for n in range(2)]
        earlier.append(bytes(cg.aggregate(parts, secret.public)))
        content = {**reply.content, "arrays": ArrayRecord({"ciphergram": wrap(earlier[0], "ciphergram.sum/1")})}
        return Message(RecordDict(content), reply_to=asked)

    world.tamper = lie
    result = strategy.start(world, record(start_model()), num_rounds=1, timeout=20)
    assert earlier and "hands out another sum than it named" in caplog.text
    mean = to_arrays(cg.flower.open(result.arrays, tmp_path / "0" / "secret.json"))
    np.testing.assert_allclose(mean["w"], plain_rounds(1)["w"], atol=bound(1), rtol=0)


def test_over_datagrams_who_trains_for_too_long_is_not_taken_into_the_next_round(tmp_path: Path, caplog: Any) -> None:
    def slow(number: int, server_round: int, model: Arrays) -> Arrays:
        if server_round == 1 and number == 2:
            time.sleep(3)
        return step(number, server_round, model)

    world, strategy = datagram_world(tmp_path, slow)
    result = strategy.start(world, record(start_model()), num_rounds=2, timeout=2)
    assert "RoundOver" in caplog.text
    assert sorted(result.train_metrics_clientapp) == [1, 2]


def test_what_is_no_sum_is_not_opened_as_a_plain_model(tmp_path: Path) -> None:
    make_keys(tmp_path)
    with pytest.raises(cg.BadFrame, match="not a sum"):
        name = wrap(SumName(3, bytes(32)).to_bytes(), SUM_NAME)
        cg.flower.open(ArrayRecord({"ciphergram": name}), tmp_path / "0" / "secret.json")


def test_a_contribution_that_spoils_the_sum_costs_a_round_and_not_the_run(tmp_path: Path, caplog: Any) -> None:
    def spoil(asked: Message, reply: Message) -> Message:
        if asked.metadata.message_type != "train" or reply.has_error() or reply.metadata.src_node_id != 102:
            return reply
        array = reply.content["arrays"]["ciphergram"]
        config = asked.content.config_records.get("config", {})
        if array.stype != "ciphergram.contribution/1" or config.get("server-round") != 2:
            return reply
        # As anyone can who changes a ciphertext: what a frame ends with finds damage, not malice.
        body = bytearray(array.data[:-32])
        body[-100] ^= 1
        data = bytes(body) + blake3.blake3(body).digest()
        spoilt = Array("uint8", (len(data),), array.stype, data)
        content = {**reply.content, "arrays": ArrayRecord({"ciphergram": spoilt})}
        return Message(RecordDict(content), reply_to=Message(RecordDict(), dst_node_id=102, message_type="train"))

    world, result = run(tmp_path, rounds=4, prepare=lambda world: setattr(world, "tamper", spoil))
    assert "the model of before it is sent again" in caplog.text
    assert sorted(result.train_metrics_clientapp) == [1, 2, 4]
    # Round 4 begins where round 2 did.
    first = plain_rounds(1)
    expected = sum(w * step(n, 4, first)["w"] for n, w in enumerate([10.0, 20, 30])) / 60
    np.testing.assert_allclose(open_result(tmp_path, result)["w"], expected, atol=1e-3, rtol=0)
