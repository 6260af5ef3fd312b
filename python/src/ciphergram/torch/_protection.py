"""Rounds in the place of collectives: a thread of them, and what clipping cut off."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, Self

import torch

from .._arrays import to_torch
from .._opened import Opened
from ..errors import BadFrame, CiphergramError, LayoutError, Stopped, TooFew
from ._thread import RoundThread

_STATE_VERSION = 1


class Client(Protocol):
    """A client of rounds, as ``ciphergram.Client`` is one."""

    @property
    def job(self) -> Any:
        """The job."""

    def mean(self, tensors: Mapping[str, Any], *, weight: int, clip: float | None) -> Opened:
        """Take part in one round."""

    def stop(self) -> None:
        """End the round that another thread waits in."""


class Protection:
    """The encrypted rounds of one model on one rank, as ``protect`` registers them.

    One thread takes part in the rounds, in the order in which gradients come: the same on all ranks. After a round that
    failed all later ones fail alike, since ranks may no longer hold the same parameters.

    It pickles without its client: what is left is the state, for ``protect(..., state=...)``.

    Attributes:
        weight: The weight of this rank's gradients from the next round on, from 1; ranks with different weights have
            the weighted mean.
        rounds: The rounds that this rank took part in.
        clipped: The values of this rank that were clipped so far.
    """

    weight: int
    rounds: int
    clipped: int

    def __init__(
        self,
        client: Client,
        members: int,
        *,
        weight: int = 1,
        clip: float | None = None,
        error_feedback: bool = True,
    ) -> None:
        self.weight = weight
        self.rounds = 0
        self.clipped = 0
        self._client: Client | None = client
        self._members = members
        self._clip = float(client.job.max_range) if clip is None else clip
        self._feeds_back = error_feedback
        self._residuals: dict[str, torch.Tensor] = {}
        self._failure: BaseException | None = None
        self._pending: list[Future[torch.Tensor]] = []
        self._thread = RoundThread()
        # A round that outlives the interpreter would bring it down.
        atexit.register(self.close)

    def __repr__(self) -> str:
        return f"<Protection of {self._members} members, {self.rounds} rounds>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def submit(self, name: str, values: torch.Tensor, parts: Sequence[tuple[str, int]]) -> Future[torch.Tensor]:
        """Put a round into the queue.

        Args:
            name: The name under which the values travel.
            values: Gradients, contiguous; not to be written until the round is over. What earlier rounds cut off is
                added in place.
            parts: The parameters that they are of, in order, and how many values each has.

        Returns:
            A future of the mean: new memory, with the shape, type and device of `values`.
        """
        client = self._client
        if client is None:
            raise Stopped("this Protection is closed, or was pickled: protect the model again")
        # Here, where the device's stream is the one that computed them.
        sent = values.detach().cpu().flatten()
        mean = partial(self._round, client, name, sent, parts)
        future = self._thread.submit(lambda: mean().view(values.shape).to(values.device))
        self._pending.append(future)
        return future

    def wait(self) -> None:
        """Wait for the rounds in the queue.

        Raises:
            CiphergramError: A round failed, in the words of the first that did.
        """
        pending, self._pending = self._pending, []
        try:
            for future in pending:
                future.result()
        except KeyboardInterrupt:
            self._stop(Stopped("the step was interrupted"))
            raise

    def close(self) -> None:
        """End the thread of rounds, and the round that it is in. The client stays open."""
        self._stop(Stopped("this Protection was closed"))
        atexit.unregister(self.close)

    def expect(self, names: Iterable[str]) -> None:
        """Check that the state is of a model with these parameters or shards.

        Raises:
            LayoutError: It is of another.
        """
        strangers = sorted(self._residuals.keys() - set(names))
        if strangers:
            text = f"the state is of another model: this one has no {strangers[0]!r}"
            raise LayoutError(text, difference=strangers[0])

    def state_dict(self) -> dict[str, Any]:
        """Return what the next step depends on: no key, and nothing that other ranks do not know or this one has not.

        The residuals are as private as this rank's gradients.
        """
        return {
            "version": _STATE_VERSION,
            "rounds": self.rounds,
            "clipped": self.clipped,
            "residuals": {name: residual.clone() for name, residual in self._residuals.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the state of an earlier `Protection`.

        Raises:
            BadFrame: It is no such state, or of a later version.
        """
        if state.get("version") != _STATE_VERSION:
            raise BadFrame(f"a state of version {state.get('version')}; this reads version {_STATE_VERSION}")
        residuals, rounds, clipped = (state.get(name) for name in ("residuals", "rounds", "clipped"))
        if not (isinstance(residuals, dict) and isinstance(rounds, int) and isinstance(clipped, int)):
            raise BadFrame("this is no state of a Protection")
        if not all(isinstance(residual, torch.Tensor) for residual in residuals.values()):
            raise BadFrame("this state has residuals that are no tensors")
        self.rounds, self.clipped = rounds, clipped
        self._residuals = {str(name): residual.detach().cpu().flatten().clone() for name, residual in residuals.items()}

    def __getstate__(self) -> dict[str, Any]:
        return self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.weight = 1
        self._client = None
        self._members = 0
        self.load_state_dict(state)

    def _round(
        self, client: Client, name: str, sent: torch.Tensor, parts: Sequence[tuple[str, int]]
    ) -> torch.Tensor:
        if self._failure is not None:
            raise self._failure
        try:
            return self._mean(client, name, sent, parts)
        except BaseException as error:
            # What waits behind it must not open rounds that other ranks no longer take part in.
            self._failure = error
            raise

    def _mean(
        self, client: Client, name: str, sent: torch.Tensor, parts: Sequence[tuple[str, int]]
    ) -> torch.Tensor:
        if self._feeds_back:
            self._feed(sent, parts)
        opened = client.mean({name: sent}, weight=self.weight, clip=self._clip)
        self._check(opened)
        clipped = (opened.clipped or {}).get(name, 0)
        if self._feeds_back:
            # Spent now, and not if the round failed: a state that is saved then still has them.
            for part, _ in parts:
                self._residuals.pop(part, None)
        if self._feeds_back and clipped:
            self._keep(sent, parts, min(self._clip, opened.ranges[name]))
        self.rounds += 1
        self.clipped += clipped
        mean: torch.Tensor = to_torch(opened[name])
        return mean

    def _check(self, opened: Opened) -> None:
        # Ranks that are left out would go on with other parameters than the rest.
        if opened.fewest < self._members:
            text = (
                f"round {opened.round} has the gradients of {opened.fewest} of {self._members} members in places: one "
                "was too slow, or is gone"
            )
            raise TooFew(text, found=opened.fewest, min_clients=self._members)

    def _feed(self, sent: torch.Tensor, parts: Sequence[tuple[str, int]]) -> None:
        """Add what earlier rounds cut off."""
        start = 0
        for name, count in parts:
            residual = self._residuals.get(name)
            if residual is not None:
                if residual.numel() != count:
                    text = f"the state is of another model: {name!r} has {count} values, not {residual.numel()}"
                    raise LayoutError(text, difference=name)
                sent[start : start + count].add_(residual)
            start += count

    def _keep(self, sent: torch.Tensor, parts: Sequence[tuple[str, int]], most: float) -> None:
        """Keep what is beyond `most` for the next round."""
        start = 0
        for name, count in parts:
            part = sent[start : start + count].float()
            beyond = part - part.clamp(-most, most)
            if beyond.any():
                self._residuals[name] = beyond
            start += count

    def _stop(self, error: CiphergramError) -> None:
        self._failure = self._failure or error
        client, self._client = self._client, None
        if client is not None:
            self._thread.end(client.stop)
