"""Ranks of a process group, as processes that do what a test asks of them."""

from __future__ import annotations

import datetime
import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_TIMEOUT_S = 60
_CONTEXT = multiprocessing.get_context("spawn")


class Ranks:
    """Processes of one gloo group."""

    def __init__(self, count: int) -> None:
        store = Path(tempfile.mkdtemp()) / "store"
        self.processes = []
        self._pipes = []
        for rank in range(count):
            ours, theirs = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=_serve, args=(rank, count, str(store), theirs), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self._pipes.append(ours)

    def start(self, act: Callable[..., Any], *args: Any) -> None:
        """Has every rank call a function with its number and these arguments."""
        for pipe in self._pipes:
            pipe.send((act, args))

    def result(self, rank: int) -> Any:
        """Returns what a rank's call returned, or raises what it raised."""
        pipe = self._pipes[rank]
        assert pipe.poll(_TIMEOUT_S), f"rank {rank} does not answer"
        value, error = pipe.recv()
        if error is not None:
            raise error
        return value

    def run(self, act: Callable[..., Any], *args: Any) -> list[Any]:
        """Has every rank call a function, and returns what they returned."""
        self.start(act, *args)
        return [self.result(rank) for rank in range(len(self._pipes))]

    def close(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            process.kill()
            process.join()


def _serve(rank: int, count: int, store: str, pipe: Connection) -> None:
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=_TIMEOUT_S)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count, timeout=timeout)
    while True:
        act, args = pipe.recv()
        try:
            pipe.send((act(rank, *args), None))
        except Exception as error:
            error.add_note(traceback.format_exc())
            pipe.send((None, error))
