"""FLARE's rounds under keys that nobody holds: the sites are the openers."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.apis.dxo import MetaKey
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.abstract.fl_model import FLModel
from test_filters import Site, context

import ciphergram as cg
from ciphergram._answers import check_openers
from ciphergram.flare import Aggregator, Decrypt, Encrypt
from ciphergram.flare._openers import OPEN, PREKEYS
from ciphergram.flare._sites import SiteKey

CLIENTS = 4


class Engine:
    """What of FLARE's engines brings auxiliary messages, from one party to the others that are there."""

    def __init__(self, name: str, net: dict[str, Engine]) -> None:
        self.name = name
        self.net = net
        self.handlers: dict[str, Callable[..., Shareable]] = {}
        self.asked: list[str] = []
        self.spoil: Callable[[str, Shareable], None] = lambda site, reply: None

    def context(self) -> FLContext:
        manager = FLContextManager(engine=self, identity_name=self.name, job_id="job")
        fl_ctx = manager.new_context()
        fl_ctx.set_prop(FLContextKey.TASK_NAME, "train", private=True, sticky=False)
        return fl_ctx

    def get_clients(self) -> list[Engine]:
        return [engine for name, engine in self.net.items() if name != "server"]

    def register_aux_message_handler(self, topic: str, handler: Callable[..., Shareable]) -> None:
        assert topic not in self.handlers
        self.handlers[topic] = handler

    def send_aux_request(
        self, targets: list[str] | None, topic: str, request: Shareable, timeout: float, fl_ctx: FLContext
    ) -> dict[str, Shareable]:
        """Brings a request to a site, or to the server."""
        name = "server" if targets is None else targets[0]
        self.asked.append(name)
        if name not in self.net:
            return {name: make_reply(ReturnCode.TIMEOUT)}
        request.set_peer_props({ReservedKey.IDENTITY_NAME: self.name})
        other = self.net[name]
        reply = other.handlers[topic](topic=topic, request=request, fl_ctx=other.context())
        self.spoil(name, reply)
        return {name: reply}


class MemberSite(Site):
    """A site of a folder of members, of which it takes its own file."""

    def __init__(self, keys: Path, number: int, net: dict[str, Engine], first_round: int) -> None:
        super().__init__(keys, number)
        self.decrypt = Decrypt(str(keys))
        self.encrypt = Encrypt(str(keys), ranges=4.0, max_weight=1, first_round=first_round)
        self.engine = net[self.name] = Engine(self.name, net)

    def context(self) -> FLContext:
        return self.engine.context()


class World:
    """A server and the sites of a job, any three of which open a sum."""

    def __init__(self, keys: Path) -> None:
        self.keys = keys
        if not keys.exists():
            cg.keygen_members(keys, clients=CLIENTS)
        net: dict[str, Engine] = {}
        self.engine = net["server"] = Engine("server", net)
        now = time.time_ns() // 1_000_000
        self.sites = [MemberSite(keys, number, net, now) for number in range(CLIENTS)]
        self.net = net
        self.aggregator = Aggregator(str(keys / "public.json"))
        self.aggregator.handle_event(EventType.START_RUN, self.engine.context())
        self.model: dict[str, Any] = {"w": np.zeros(5, np.float32)}
        self.meta: dict[str, Any] = {}

    def train(self, number: int, site: MemberSite) -> FLModel:
        given, fl_ctx = site.task(self.model, self.meta, number)
        step = np.float32(0.25 * (self.sites.index(site) + 1))
        steps = {MetaKey.NUM_STEPS_CURRENT_ROUND: 1}
        return site.reply(fl_ctx, {name: value + step for name, value in given.items()}, steps)

    def round(self, number: int, contributing: list[int]) -> FLModel:
        """Has sites train one step, side by side; they move by their numbers."""
        self.aggregator.reset_stats()
        with ThreadPoolExecutor(CLIENTS) as pool:
            replies = list(pool.map(lambda i: self.train(number, self.sites[i]), contributing))
        for reply in replies:
            self.aggregator.accept_model(reply)
        total = self.aggregator.aggregate_model()
        self.model, self.meta = total.params, total.meta
        return total

    def opened(self, number: int) -> float:
        """Returns the value that the mean has, as a member opens it."""
        (frame,) = [value for value in self.model.values() if value]
        mean = cg.flare.open(frame, self.keys / "clients" / f"{number}.json")["w"]
        assert np.ptp(mean) < 1e-3
        return float(mean[0])


def moved(contributing: list[int]) -> float:
    return float(np.mean([0.25 * (number + 1) for number in contributing]))


def test_sites_open_what_they_sum_though_one_is_gone(tmp_path: Path) -> None:
    world, everyone = World(tmp_path / "keys"), [0, 1, 2, 3]
    world.round(0, everyone)
    first = moved(everyone)
    assert world.opened(1) == pytest.approx(first, abs=1e-3)
    # It has contributed, and is gone when it is asked to open.
    gone = world.net.pop("site-4")
    world.round(1, everyone)
    assert world.opened(2) == pytest.approx(first + moved(everyone), abs=1e-3)
    assert sorted(world.engine.asked) == sorted(2 * [f"site-{n + 1}" for n in everyone])
    # Those who contributed are enough: nobody waits for one that did not.
    world.round(2, [0, 1, 2])
    assert sorted(world.engine.asked[8:]) == ["site-1", "site-2", "site-3"]
    assert world.opened(0) == pytest.approx(first + moved(everyone) + moved([0, 1, 2]), abs=1e-3)
    # It is back, an answer behind the others, of whom another is gone.
    world.net["site-4"] = gone
    world.net.pop("site-1")
    world.round(3, [1, 2, 3])
    assert sorted(world.engine.asked[11:]) == ["site-2", "site-3", "site-4"]
    with pytest.raises(cg.KeyKind):
        cg.flare.open(world.model["w"], world.keys / "public.json")


def test_another_run_under_the_same_keys_opens(tmp_path: Path) -> None:
    for _ in range(2):
        world = World(tmp_path / "keys")
        for number in range(2):
            world.round(number, [0, 1, 2, 3])
        assert world.opened(0) == pytest.approx(2 * moved([0, 1, 2, 3]), abs=1e-3)


def test_lost_rounds_cost_no_later_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world, everyone = World(tmp_path / "keys"), [0, 1, 2, 3]
    world.round(0, everyone)
    first = world.model

    def spoil(site: str, reply: Shareable) -> None:
        if site == "site-1":
            reply[OPEN] = reply[OPEN][:300] + bytes([reply[OPEN][300] ^ 1]) + reply[OPEN][301:]
        elif site == "site-2":
            reply["__headers__"] = "none"
            del reply[OPEN]

    world.engine.spoil = spoil
    # Another one does not hear of it, and stays an answer behind.
    unheard = world.net.pop("site-3")
    world.round(1, everyone)
    assert world.model == first
    assert "answer of site-1 dropped" in caplog.text and "answer of site-2 dropped" in caplog.text
    assert "the round is lost: 1 openers answered, and 3 open a sum" in caplog.text
    world.net["site-3"] = unheard
    world.engine.spoil = lambda site, reply: None
    world.round(2, everyone)
    assert world.opened(3) == pytest.approx(2 * moved(everyone), abs=1e-3)


def test_a_job_ends_whose_first_sum_nobody_opens(tmp_path: Path) -> None:
    world = World(tmp_path / "keys")
    world.engine.spoil = lambda site, reply: reply.clear()
    with pytest.raises(cg.TooFew, match="0 openers answered, and 3 open a sum"):
        world.round(0, [0, 1, 2, 3])


def test_what_is_no_request_is_not_answered(tmp_path: Path) -> None:
    world = World(tmp_path / "keys")
    world.round(0, [0, 1, 2, 3])
    for request in [Shareable(), Shareable({OPEN: b"request"}), Shareable({OPEN: 3})]:
        reply = world.engine.send_aux_request(["site-1"], OPEN, request, 1, world.engine.context())["site-1"]
        assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION and OPEN not in reply
    # Prekeys that are none leave those that are known.
    site = world.net["site-2"]
    for told in [b"prekey", bytes(5000), "text", 3]:
        request = Shareable({PREKEYS: told})
        site.send_aux_request(None, PREKEYS, request, timeout=1, fl_ctx=site.context())
    world.round(1, [0, 1, 2, 3])
    assert world.opened(0) == pytest.approx(2 * moved([0, 1, 2, 3]), abs=1e-3)


def test_a_site_with_a_shared_key_is_no_opener(tmp_path: Path) -> None:
    cg.keygen("ckks-sum", clients=3, min_clients=3).save(tmp_path / "keys")
    key = SiteKey(str(tmp_path / "keys" / "secret.json"), None, context("site-1"))
    with pytest.raises(cg.BadFrame, match="no opener is here"):
        key.answer(b"request")
    assert key.prekey() is None


def test_openers_that_no_server_reaches_are_refused() -> None:
    check_openers(SimpleNamespace(openers=[0, None, 1, 2], open=3))
    with pytest.raises(cg.ParameterError, match="only 2 of the job's are clients"):
        check_openers(SimpleNamespace(openers=[0, None, None, 2], open=3))
