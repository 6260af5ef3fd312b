"""Flower's rounds under keys that nobody holds: the clients are the openers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import ciphergram as cg
import numpy as np
import pytest
from flower_world import SHAPES, Arrays, World, fedavg, record, start_model, step, to_arrays
from flwr.app import ArrayRecord, Message, RecordDict

CLIENTS = 4
ANSWER = "ciphergram.answer/1"


class Members(World):
    """Nodes that have one folder of identities, of which each takes its own."""

    @staticmethod
    def _config(keys: Path, number: int) -> dict[str, Any]:
        return {"ciphergram-key": str(keys), "partition-id": number}


def begin(folder: Path, caplog: Any) -> tuple[Members, cg.flower.Encrypted]:
    caplog.set_level(logging.INFO, "flwr.ciphergram")
    cg.keygen_members(folder / "keys", clients=CLIENTS, bits=20)
    strategy = cg.flower.Encrypted(fedavg(), key=folder / "keys" / "public.json")
    return Members(folder / "keys", CLIENTS, step), strategy


def mean_of(server_round: int, model: Arrays, clients: list[int]) -> Arrays:
    news = [step(number, server_round, model) for number in clients]
    weights = [10.0 * (number + 1) for number in clients]
    mean = {name: np.average([new[name] for new in news], axis=0, weights=weights) for name in model}
    return {name: value.astype(np.float32) for name, value in mean.items()}


def is_answer(reply: Message) -> bool:
    return not reply.has_error() and any(
        array.stype == ANSWER for held in reply.content.array_records.values() for array in held.values()
    )


def test_rounds_go_on_though_an_opener_drops_out_in_the_middle(tmp_path: Path, caplog: Any) -> None:
    world, strategy = begin(tmp_path, caplog)

    def leave(asked: Message, reply: Message) -> Message:
        # It has contributed, and is gone when it is asked to open.
        trained = asked.content.config_records.get("config", {}).get("server-round")
        if trained == 2 and asked.metadata.dst_node_id == 103:
            world.down.add(103)
        return reply

    world.tamper = leave
    result = strategy.start(world, record(start_model()), num_rounds=3, timeout=5)
    model = start_model()
    for server_round, clients in [(1, [0, 1, 2, 3]), (2, [0, 1, 2, 3]), (3, [0, 1, 2])]:
        model = mean_of(server_round, model, clients)
    opened = to_arrays(cg.flower.open(result.arrays, tmp_path / "keys" / "clients" / "1.json"))
    assert list(opened) == list(SHAPES)
    for name, values in model.items():
        np.testing.assert_allclose(opened[name], values, atol=1e-3, rtol=0)
    answers = [asked.metadata.dst_node_id for asked, reply in world.seen if is_answer(reply)]
    assert sorted(answers) == sorted([100, 101, 102, 103] + 2 * [100, 101, 102])
    # What the server has opens by no key: nobody holds one.
    with pytest.raises(cg.KeyKind):
        cg.flower.open(result.arrays, tmp_path / "keys" / "public.json")


def test_a_false_answer_is_dropped_and_too_few_lose_one_round(tmp_path: Path, caplog: Any) -> None:
    world, strategy = begin(tmp_path, caplog)
    spoiled = {100}

    def spoil(asked: Message, reply: Message) -> Message:
        if is_answer(reply) and asked.metadata.dst_node_id in spoiled:
            name, held = next(iter(reply.content.array_records.items()))
            array = held["ciphergram"]
            array.data = array.data[:300] + bytes([array.data[300] ^ 1]) + array.data[301:]
            reply.content = RecordDict({**reply.content, name: ArrayRecord({"ciphergram": array})})
        trained = asked.content.config_records.get("config", {}).get("server-round")
        if trained == 2:
            spoiled.add(101)
        elif trained == 3:
            spoiled.clear()
        return reply

    world.tamper = spoil
    result = strategy.start(world, record(start_model()), num_rounds=3, timeout=5)
    assert "the reply of node 100 is dropped" in caplog.text
    assert "nobody opens the sum: 2 of 3 openers answered" in caplog.text
    assert caplog.text.count("is lost") == 1
    # Those whose answers were in vain open the next round: clients learn what they told with other messages.
    mean = mean_of(3, mean_of(1, start_model(), [0, 1, 2, 3]), [0, 1, 2, 3])
    opened = to_arrays(cg.flower.open(result.arrays, tmp_path / "keys" / "clients" / "3.json"))
    np.testing.assert_allclose(opened["w"], mean["w"], atol=1e-3, rtol=0)


def test_what_does_not_fit_is_refused(tmp_path: Path, caplog: Any) -> None:
    world, strategy = begin(tmp_path, caplog)
    result = strategy.start(world, record(start_model()), num_rounds=1, timeout=5)
    keys = tmp_path / "keys"
    with pytest.raises(cg.ParameterError, match="openers answer in Flower's messages"):
        cg.flower.Encrypted(fedavg(), key=keys / "public.json", transport="datagram")
    with pytest.raises(cg.KeyKind, match="members have none"):
        cg.flower.seal(record(start_model()), keys / "clients" / "0.json", tmp_path / "sealed.npz")
    with pytest.raises(cg.KeyKind, match="takes the public key alone"):
        cg.flower.Encrypted(fedavg(), key=keys / "clients" / "0.json")
    # It is saved with the answers that open it, and read back.
    cg.flower.save(result.arrays, tmp_path / "model.npz")
    again = cg.flower.initial(tmp_path / "model.npz")
    opened = [cg.flower.open(arrays, keys / "clients" / "2.json") for arrays in (result.arrays, again)]
    assert to_arrays(opened[0])["b"].tolist() == to_arrays(opened[1])["b"].tolist()
