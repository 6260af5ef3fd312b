"""The mod of `ciphergram.flower`, message by message."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

flwr = pytest.importorskip("flwr", "1.41")

from flower_world import make_keys, record, to_arrays  # noqa: E402
from flwr.app import (  # noqa: E402
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)

import ciphergram as cg  # noqa: E402
import ciphergram.flower  # noqa: E402
from ciphergram.flower import _store  # noqa: E402


class Node:
    """One client's mod, called by hand."""

    def __init__(self, folder: Path, number: int = 0, **config: Any):
        self.config = {
            "ciphergram-key": str(folder / str(number) / "secret.json"),
            "ciphergram-client": number,
            **config,
        }
        self.context = Context(1, 7, self.config, RecordDict(), {})
        self.calls = 0

    def __call__(self, content: RecordDict, kind: str = "train") -> Message:
        def train(message: Message, _: Context) -> Message:
            self.calls += 1
            arrays = record({"w": np.ones(4, np.float32)})
            metrics = MetricRecord({"num-examples": 5})
            return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

        message = Message(content, dst_node_id=7, message_type=kind)
        return cg.flower.mod(message, self.context, train)


def plain() -> RecordDict:
    return RecordDict({"arrays": record({"w": np.zeros(4, np.float32)})})


def terms_for(first: Message, keys: cg.Keys) -> RecordDict:
    data = first.content["arrays"]["ciphergram"].data
    own = cg.Announcement.from_bytes(data, keys.public, 0)
    terms = cg.join_round([own], keys.public, job=keys.job)
    return RecordDict({"ciphergram": ConfigRecord({"terms": bytes(terms)})})


def test_terms_are_answered_once(tmp_path: Path, stored: Path) -> None:
    keys = make_keys(tmp_path)
    node = Node(tmp_path)
    terms = terms_for(node(plain()), keys)
    assert node(terms).content["arrays"]["ciphergram"].stype == "ciphergram.contribution/1"
    assert node.calls == 1
    again = node(terms)
    assert again.has_error() and "BadFrame" in again.error.reason
    assert "ciphergram.update" not in node.context.state
    assert not stored.exists() or not list(stored.iterdir())


def test_what_a_context_cannot_hold_is_in_files_of_the_nodes_own(
    tmp_path: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_store, "_LARGE", 8)
    values = {"w": np.arange(6, dtype=np.float16).reshape(2, 3), "e": np.zeros((0, 4), np.float32)}
    context = Node(make_keys(tmp_path) and tmp_path).context
    store = _store.Store(context)
    for update in (values, {"x": np.ones(9, np.float32)}, values):
        store.put("update", record(update))
        kept = to_arrays(_store.Store(context).get("update"))
        assert list(kept) == list(update)
        assert all(kept[name].dtype == update[name].dtype for name in update)
        assert all(np.array_equal(kept[name], update[name]) for name in update)
    (path,) = stored.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(stored.stat().st_mode) == 0o700
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(cg.BadFrame, match="is cut"):
        store.get("update")
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(cg.BadFrame):
        store.get("update")
    path.unlink()
    with pytest.raises(cg.FileError):
        store.get("update")
    store.drop("update")
    assert store.get("update") is None
    left = stored / "left"
    left.touch()
    os.utime(left, (0, 0))
    store.put("update", record(values))
    assert not left.exists()


def test_terms_of_another_announcement_are_refused(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    node = Node(tmp_path)
    terms = terms_for(node(plain()), keys)
    node(plain())
    answer = node(terms)
    assert answer.has_error() and "BadTerms" in answer.error.reason
    assert "ciphergram.update" not in node.context.state
    for odd in (b"", b"x" * 50, 7):
        node(plain())
        assert node(RecordDict({"ciphergram": ConfigRecord({"terms": odd})})).has_error()


def test_a_plain_model_after_a_sum_is_refused(tmp_path: Path) -> None:
    keys = make_keys(tmp_path)
    node = Node(tmp_path)

    def total(number: int) -> RecordDict:
        parts = [
            keys.encrypt({"w": np.ones(4, np.float32)}, ranges=2.0, client=c, round=number)
            for c in (1, 2, 3)
        ]
        data = bytes(cg.aggregate(parts, keys.public))
        array = Array("uint8", (len(data),), "ciphergram.sum/1", data)
        return RecordDict({"arrays": ArrayRecord({"ciphergram": array})})

    first, second = total(5), total(6)
    assert not node(first).has_error()
    assert not node(first, "evaluate").has_error()
    assert not node(second).has_error()
    assert "BadFrame" in node(first).error.reason
    assert "BadFrame" in node(plain()).error.reason
    assert "BadFrame" in node(plain(), "evaluate").error.reason
    assert node.calls == 3
    mixed = RecordDict({"arrays": ArrayRecord({**second["arrays"], "w": Array(np.ones(4))})})
    assert "LayoutError" in node(mixed).error.reason


def test_another_plain_model_than_the_first_is_refused(tmp_path: Path) -> None:
    make_keys(tmp_path)
    node = Node(tmp_path)
    for kind in ("train", "evaluate", "train"):
        assert not node(plain(), kind).has_error()
    for values in ({"w": np.full(4, 0.5, np.float32)}, {"v": np.zeros(4, np.float32)}, {"w": np.zeros(4)}):
        for kind in ("train", "evaluate"):
            answer = node(RecordDict({"arrays": record(values)}), kind)
            assert "BadFrame" in answer.error.reason
    assert node.calls == 3


def test_what_an_app_raises_is_told_by_its_type_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_keys(tmp_path)
    node = Node(tmp_path)

    def fail(_: Message, __: Context) -> Message:
        raise ValueError("patient 17 is not a number")

    reply = cg.flower.mod(Message(plain(), dst_node_id=7, message_type="train"), node.context, fail)
    assert reply.has_error() and "ValueError" in reply.error.reason
    assert "patient" not in reply.error.reason and "patient 17" in caplog.text


def test_configuration_is_checked(tmp_path: Path) -> None:
    make_keys(tmp_path)
    for config, error in [
        ({"ciphergram-key": ""}, "ParameterError"),
        ({"ciphergram-key": 7}, "ParameterError"),
        ({"ciphergram-key": str(tmp_path / "missing.json")}, "FileError"),
        ({"ciphergram-key": str(tmp_path / "server" / "public.json")}, "KeyKind"),
        ({"ciphergram-client": "0"}, "ParameterError"),
        ({"ciphergram-client": 9}, "ClientNumberError"),
    ]:
        answer = Node(tmp_path, **config)(plain())
        assert error in answer.error.reason, config
    assert str(tmp_path) not in answer.error.reason


def test_a_simulation_gives_numbers_as_partitions(tmp_path: Path) -> None:
    make_keys(tmp_path)
    node = Node(tmp_path)
    node.context = Context(
        1,
        7,
        {"partition-id": 2, "num-partitions": 3},
        RecordDict(),
        {"ciphergram-key": str(tmp_path / "0" / "secret.json")},
    )
    assert node(plain()).content["ciphergram"]["client"] == 2


def test_other_messages_pass(tmp_path: Path) -> None:
    seen = []
    context = Context(1, 7, {}, RecordDict(), {})
    message = Message(plain(), dst_node_id=7, message_type="query")

    def answer(asked: Message, _: Context) -> Message:
        seen.append(asked)
        return Message(asked.content, reply_to=asked)

    reply = cg.flower.mod(message, context, answer)
    assert seen == [message] and "w" in reply.content["arrays"]


def test_an_app_that_fails_fails_as_it_is(tmp_path: Path) -> None:
    make_keys(tmp_path)
    node = Node(tmp_path)
    message = Message(plain(), dst_node_id=7, message_type="train")
    error = Error(code=201, reason="mine")
    reply = cg.flower.mod(message, node.context, lambda m, _: Message(error, reply_to=m))
    assert reply.has_error() and reply.error.reason == "mine"


def test_a_server_names_no_file_of_a_node(tmp_path: Path) -> None:
    make_keys(tmp_path)
    node = Node(tmp_path)
    for odd in ("/dev/zero", "", 7, "A" * 44, "/" * 43):
        talk = ConfigRecord({"server": "127.0.0.1:1", "server-key": odd})
        answer = node(RecordDict({**plain(), "ciphergram": talk}))
        assert answer.has_error() and "BadFrame" in answer.error.reason, odd
