"""What a client keeps from message to message: in its context, or in files where that would be too much."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.supercore.utils import get_flwr_home

from ..errors import BadFrame, FileError

# Flower gives a process five seconds at its end to hand its context over, and kills it then.
_LARGE = 32 << 20

_DAYS = 7
_FILES = "ciphergram.files"


class Store:
    """Records of arrays that stay on a client's node: large ones in files under Flower's own folder.

    Only the node's user can read the files. One that a run leaves behind is removed a week later, when another begins.
    """

    def __init__(self, context: Context) -> None:
        self._state: RecordDict = context.state
        self._folder = get_flwr_home() / "ciphergram"
        self._owner = f"{context.run_id}-{context.node_id}"

    def get(self, name: str) -> ArrayRecord | None:
        """Return a record; None if there is none.

        Raises:
            FileError: Its file is gone.
            BadFrame: Its file is not whole.
        """
        path = self._files().get(name)
        if isinstance(path, str):
            return _read(Path(path))
        record = self._state.get(name)
        return record if isinstance(record, ArrayRecord) else None

    def put(self, name: str, record: ArrayRecord) -> None:
        """Keep a record in the place of the last one of this name.

        Raises:
            FileError: Its file cannot be written.
        """
        self.drop(name)
        if sum(len(array.data) for array in record.values()) < _LARGE:
            self._state[name] = record
            return
        if not self._files():
            self._state[_FILES] = ConfigRecord()
        path = self._folder / f"{self._owner}-{name}-{secrets.token_hex(8)}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._remove_old()
            _write(path, record)
        except OSError as error:
            raise FileError(f"{path}: {error.strerror}", errno=error.errno) from None
        self._files()[name] = str(path)

    def drop(self, name: str) -> None:
        """Forget a record, if there is one."""
        self._state.pop(name, None)
        path = self._files().pop(name, None)
        if isinstance(path, str):
            Path(path).unlink(missing_ok=True)

    def _files(self) -> ConfigRecord:
        files = self._state.get(_FILES)
        return files if isinstance(files, ConfigRecord) else ConfigRecord()

    def _remove_old(self) -> None:
        last = time.time() - _DAYS * 86_400
        for path in self._folder.iterdir():
            # Another node of this machine may remove its own meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < last:
                    path.unlink()


def _write(path: Path, record: ArrayRecord) -> None:
    heads = [[name, a.dtype, list(a.shape), a.stype, len(a.data)] for name, a in record.items()]
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(opened, "wb") as file:
        file.write(json.dumps(heads).encode() + b"\n")
        for array in record.values():
            file.write(array.data)


def _read(path: Path) -> ArrayRecord:
    try:
        with path.open("rb") as file:
            heads = json.loads(file.readline())
            arrays = {
                name: Array(dtype=dtype, shape=tuple(shape), stype=stype, data=file.read(length))
                for name, dtype, shape, stype, length in heads
            }
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}", errno=error.errno) from None
    except ValueError:
        raise BadFrame(f"{path} is not what was kept there") from None
    if any(len(arrays[name].data) != length for name, _, _, _, length in heads):
        raise BadFrame(f"{path} is cut")
    return ArrayRecord(arrays)
