"""Our own binary: building it, and asking its `bench` for one operation at a time."""

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from .places import EXECUTABLE_SUFFIX, ROOT, TARGET, one_line

# Makes the CPU engine run without any instruction that is not in every processor of its kind.
PORTABLE = {"CIPHERGRAM_CPU": "portable"}


class OursFailed(Exception):
    """Our binary did not do its work: what no run may pass over."""


def build():
    """Builds the binary, in sight, and returns its path."""
    done = subprocess.run(["cargo", "build", "--release", "--bin", "ciphergram"], cwd=ROOT)
    if done.returncode != 0:
        raise OursFailed("the binary does not build")
    return TARGET / "release" / f"ciphergram{EXECUTABLE_SUFFIX}"


class Ours:
    """The binary at `path`.

    `machine` and `commit` are what its last report said. `failures` are the operations that it
    failed at and why, by name and key size. `shares` are the shares of the core that its commands
    had.
    """

    def __init__(self, path):
        self.path = path
        self.machine, self.commit, self.failures, self.shares = None, None, {}, []

    def run(self, *words, environment=()):
        """Runs one command of the binary, unseen, and returns the seconds it took by the clock."""
        command = [str(self.path), *map(str, words)]
        environment = {**os.environ, **dict(environment)}
        start, processor_start = time.perf_counter(), processor_time_of_children()
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
        except OSError as error:
            raise OursFailed(str(error)) from error
        if done.returncode != 0:
            complaint = one_line(done.stderr) or f"exit code {done.returncode}"
            raise OursFailed(f"`ciphergram {words[0]}`: {complaint}")
        seconds = time.perf_counter() - start
        self.shares.append((processor_time_of_children() - processor_start) / seconds)
        return seconds

    def measure(self, operation, bits, seconds, portable=False):
        """Returns the median time of one `operation`, in seconds.

        `bits` are those of the key, or for a sum, `ckks-sum/encrypt` say, of a quantised value.

        None if it fails, now or before: it is asked only once.
        """
        name = f"{operation} portable" if portable else operation
        if (name, bits) in self.failures:
            return None
        try:
            return self._bench(operation, bits, seconds, PORTABLE if portable else ())
        except OursFailed as error:
            self.failures[name, bits] = str(error)
            return None

    def _bench(self, operation, bits, seconds, environment):
        with tempfile.TemporaryDirectory(prefix="ciphergram-peers-") as folder:
            report = Path(folder) / "bench.json"
            sizes = [] if "/" in operation else ["--bits", bits]
            self.run("bench", "--json", report, "--ops", operation, "--engine", "cpu",
                     "--threads", 1, "--seconds", seconds, *sizes, environment=environment)
            try:
                document = json.loads(report.read_text())
                self.machine, self.commit = document["machine"], document["commit"]
                row = row_of(document["rows"], operation, bits)
                if row["disturbed"] is not None:
                    # It waits for quiet spells: what else went on meanwhile does not matter.
                    self.shares[-1] = 1 - row["disturbed"]
                if row["median_s"] is None:
                    raise ValueError(f"{operation} has no time")
                return row["median_s"]
            except (OSError, ValueError, KeyError, TypeError) as error:
                why = f"its report cannot be used: {type(error).__name__}: {error}"
                raise OursFailed(f"`ciphergram bench`: {why}") from error


def processor_time_of_children():
    """Returns seconds that all processes had which this one started and which have ended."""
    times = os.times()
    return times.children_user + times.children_system


def row_of(rows, operation, bits):
    """Returns the one row that is about `operation`, on one thread of the CPU."""
    scheme, _, name = operation.rpartition("/")
    about = {"operation": name, "scheme": scheme or "paillier", "bits": bits, "threads": 1}
    found = [row for row in rows if all(row[field] == about[field] for field in about)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows are about {about}")
    if not found[0]["engine"].startswith("cpu"):
        raise ValueError(f"{operation} ran on the engine {found[0]['engine']}")
    return found[0]
