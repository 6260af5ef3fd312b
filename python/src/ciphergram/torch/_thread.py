"""A thread that takes part in rounds, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import torch

_LOOK = 0.05
"""Seconds between two looks at whether a round that was stopped is over."""


class RoundThread:
    """A thread that does what it is given, in that order, until it is ended or the process is."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[tuple[Callable[[], torch.Tensor], Future[torch.Tensor]] | None] = SimpleQueue()
        # Not one that the interpreter waits for at its end: a round may wait long for others.
        self._thread = threading.Thread(target=self._run, name="ciphergram-rounds", daemon=True)
        self._thread.start()

    def submit(self, task: Callable[[], torch.Tensor]) -> Future[torch.Tensor]:
        """Put a task into the queue."""
        future: Future[torch.Tensor] = Future()
        self._tasks.put((task, future))
        return future

    def end(self, stop: Callable[[], Any]) -> None:
        """End the thread after what is in the queue; `stop` ends what it may wait in."""
        self._tasks.put(None)
        while self._thread.is_alive():
            # More than once: it may have come just before the wait.
            stop()
            self._thread.join(_LOOK)

    def _run(self) -> None:
        while (entry := self._tasks.get()) is not None:
            task, future = entry
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)
