"""Sites that are openers: what they and the server tell each other, in auxiliary messages."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

import ciphergram as cg

from .._answers import Prekeys, opener_requests
from ._sites import LOG, SiteKey, short, site_name

# The topics of requests to openers and of prekeys, and their names in messages.
OPEN = "ciphergram.open/1"
PREKEYS = "ciphergram.prekeys/1"
_COMPLETE = "ciphergram.complete"

# Seconds that openers have to answer, and sites to tell their prekeys before the first round.
ANSWER_SECONDS = 60.0
MEET_SECONDS = 20.0
_ASK_AGAIN_SECONDS = 0.2


class OpenerSite:
    """What a site tells the server, and learns of others, where sites are openers."""

    def __init__(self) -> None:
        self._listens = False
        self._met = False

    def meet(self, key: SiteKey, fl_ctx: FLContext) -> None:
        """Tells the server this site's prekey, and learns those of others: in the first round of all that are there.

        Without them shares would be sealed for answers that were given in an earlier run.
        """
        engine = fl_ctx.get_engine()
        if not isinstance(key.key, cg.Member) or engine is None:
            return
        if not self._listens:
            self._listens = True
            # Where the filter of another task answers already, that one does.
            with contextlib.suppress(ValueError):
                engine.register_aux_message_handler(OPEN, lambda topic, request, fl_ctx: answer(key, request, fl_ctx))
        end = time.monotonic() + (0.0 if self._met else MEET_SECONDS)
        while True:
            request = Shareable({PREKEYS: key.prekey()})
            replies = engine.send_aux_request(
                targets=None, topic=PREKEYS, request=request, timeout=ANSWER_SECONDS, fl_ctx=fl_ctx
            )
            reply = next(iter((replies or {}).values()), Shareable())
            if reply.get(_COMPLETE) or reply.get_return_code() != ReturnCode.OK or time.monotonic() >= end:
                break
            time.sleep(_ASK_AGAIN_SECONDS)
        self._met = True
        key.learn(reply.get(PREKEYS))


def answer(key: SiteKey, request: Shareable, fl_ctx: FLContext) -> Shareable:
    """Answers the server as an opener, and tells the prekey of the next answer."""
    reply = make_reply(ReturnCode.OK)
    try:
        reply[OPEN] = key.answer(request.get(OPEN))
        LOG.info("%s answered as an opener", site_name(fl_ctx))
    except cg.CiphergramError as error:
        LOG.warning("%s does not answer as an opener: %s", site_name(fl_ctx), error)
        reply = make_reply(ReturnCode.EXECUTION_EXCEPTION)
        reply["reason"] = str(error)
    reply[PREKEYS] = key.prekey()
    return reply


class OpenerSites:
    """The server's side: the sites' prekeys, and what those that are openers answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prekeys: Prekeys[str] = Prekeys()
        self._heard: set[str] = set()

    def listen(self, fl_ctx: FLContext) -> None:
        """Lets sites tell their prekeys."""
        engine = fl_ctx.get_engine()
        if engine is not None:
            engine.register_aux_message_handler(PREKEYS, self._hear)

    def _hear(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        assert topic == PREKEYS
        # Never a name that the request itself gives.
        site = str(request.get_peer_prop(ReservedKey.IDENTITY_NAME, "?"))
        expected = {client.name for client in fl_ctx.get_engine().get_clients()}
        with self._lock:
            self._prekeys.note(site, request.get(PREKEYS))
            self._heard.add(site)
            reply = make_reply(ReturnCode.OK)
            reply[PREKEYS] = list(self._prekeys.values())
            reply[_COMPLETE] = expected <= self._heard
        return reply

    def answers(
        self, summing: cg.Summing, job: cg.Job, numbers: dict[str, int], there: set[str], fl_ctx: FLContext
    ) -> list[bytes]:
        """Returns what openers, who are sites as well, answer about a sum; nothing where a key opens it.

        Those of `there`, who contributed, are asked first; others if those are too few, for they may be gone.
        """
        requests = opener_requests(summing, job, numbers)
        answers: dict[int, bytes] = {}
        for contributed in (True, False):
            asked = {site: request for site, request in requests.items() if (site in there) == contributed}
            if asked and len(answers) < job.open:
                answers |= self._ask(asked, summing, fl_ctx)
        return list(answers.values())

    def _ask(self, asked: dict[str, bytes], summing: cg.Summing, fl_ctx: FLContext) -> dict[int, bytes]:
        def ask(site: str) -> Shareable:
            # One by one, at once: FLARE 2.9.0 fails to send several requests together.
            request = Shareable({OPEN: asked[site]})
            replies = fl_ctx.get_engine().send_aux_request([site], OPEN, request, ANSWER_SECONDS, fl_ctx)
            return (replies or {}).get(site) or make_reply(ReturnCode.COMMUNICATION_ERROR)

        with ThreadPoolExecutor(len(asked)) as pool:
            replies = list(pool.map(ask, asked))
        answers: dict[int, bytes] = {}
        for site, reply in zip(asked, replies, strict=True):
            try:
                with self._lock:
                    self._prekeys.note(site, reply.get(PREKEYS))
                answer = reply.get(OPEN)
                if not isinstance(answer, bytes):
                    reason = reply.get("reason") or reply.get_return_code()
                    raise cg.BadFrame(f"it gives none: {short(reason)}")
                answers[summing.check_answer(answer)] = answer
            except Exception as error:
                # Whatever a site sends costs its own answer alone.
                LOG.warning("answer of %s dropped: %s", site, error)
        return answers
