"""What frameworks have in common where openers open sums."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import ciphergram as cg

# Begins a sum that has answers; no frame begins so.
_ANSWERED = b"CGANSWER"
# Bytes of a prekey that are passed on: its own has 1,304.
_MOST_PREKEY_BYTES = 4096

Node = TypeVar("Node")


def pack(total: Any, answers: list[bytes]) -> bytes:
    """Return a sum, with the answers of openers before it if it opens by such."""
    if not answers:
        return bytes(total)
    each = (len(answer).to_bytes(4, "little") + answer for answer in answers)
    return _ANSWERED + bytes([len(answers)]) + b"".join(each) + bytes(total)


def unpack(data: bytes) -> tuple[bytes, list[bytes]]:
    """Return the sum that `pack` packed, and the answers.

    Raises:
        BadFrame: It is cut.
    """
    if not data.startswith(_ANSWERED):
        return data, []
    at, answers = len(_ANSWERED), []
    count, at = data[at : at + 1], at + 1
    for _ in range(int.from_bytes(count, "little")):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        if end > len(data):
            raise cg.BadFrame("the answers of openers are cut")
        answers.append(data[at + 4 : end])
        at = end
    return data[at:], answers


def own_file(path: Path, number: object) -> Path:
    """Return the file of a client's key: the path, or of the folder of all members that which a client has."""
    own = path / "clients" / f"{number}.json"
    return own if own.is_file() and not (path / "secret.json").exists() else path


def opening_key(key: Any) -> cg.SecretKey | cg.Member:
    """Return a key that seals and opens, given as one or as the path of its file.

    Raises:
        KeyKind: It is a public or a client's key.
    """
    if isinstance(key, str | os.PathLike):
        key = cg.load_keys(key)
    if not isinstance(key, cg.SecretKey | cg.Member):
        raise cg.KeyKind(
            f"a {type(key).__name__} opens no sums, and every round begins with the last one's: give a secret key, or "
            "a member's"
        )
    return key


def decrypt(key: cg.SecretKey | cg.Member, data: bytes, job: Any) -> cg.Opened:
    """Open the mean of a sum, by the answers that are with it if it opens by such.

    Raises:
        BadFrame: It is no sum.
    """
    sealed, answers = unpack(data)
    total = cg.loads(sealed)
    if not isinstance(total, cg.Sum):
        raise cg.BadFrame(f"a {type(total).__name__} is where a sum belongs")
    if isinstance(key, cg.Member):
        return key.decrypt(total, answers, job=job)
    return key.decrypt(total, job=job)


def answer(key: Any, request: object, job: Any) -> bytes:
    """Answer a server that asks an opener.

    Raises:
        BadFrame: It is no request, or no opener is here.
        OpenerError: As `Member.answer`.
    """
    if not isinstance(key, cg.Member) or not isinstance(request, bytes):
        raise cg.BadFrame("the server asks for an opener's answer, and no opener is here")
    return key.answer(request, job=job)


def prekey(key: Any, job: Any) -> bytes | None:
    """Return the prekey of the next answer of a client that is an opener as well."""
    return key.prekey(job=job) if isinstance(key, cg.Member) else None


def learn(key: Any, told: object, job: Any) -> None:
    """Take prekeys that a server hands on: the next contribution is sealed for them."""
    if isinstance(key, cg.Member) and isinstance(told, list):
        key.learn([each for each in told if isinstance(each, bytes)], job=job)


def check_openers(job: cg.Job) -> None:
    """Refuse a job that its clients do not open among themselves.

    Raises:
        ParameterError: So many openers are no clients that the others are too few.
    """
    clients = sum(client is not None for client in job.openers)
    if clients < job.open:
        raise cg.ParameterError(
            f"{job.open} openers open a sum, and only {clients} of the job's are clients, whom a server of a "
            "framework can ask: name clients as openers, or hold rounds over datagrams"
        )


def opener_requests(summing: cg.Summing, job: cg.Job, clients: dict[Node, int]) -> dict[Node, bytes]:
    """Return the request for each node whose client is an opener.

    Where these are too few to open the sum nobody is asked: whoever answers in vain has one answer less.
    """
    requests = dict(zip(job.openers, summing.requests(), strict=False))
    asked = {node: requests[client] for node, client in clients.items() if client in requests}
    return asked if len(asked) >= job.open else {}


class Prekeys(dict[Node, bytes]):
    """The latest prekey that each node told. Clients look at the signatures: who lies is one opener less."""

    def note(self, node: Node, told: object) -> None:
        """Keep what a node told, if it may be a prekey."""
        if isinstance(told, bytes) and len(told) <= _MOST_PREKEY_BYTES:
            self[node] = told
