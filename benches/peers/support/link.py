"""Our end of the line to one rival: a process that measures when it is asked to."""

import json
import subprocess
import tempfile
import threading

from .places import HERE, one_line

# Generous: pypaillier looks for safe primes.
SETUP_LIMIT_S = 600
# Beyond the time that a measurement was asked to take: its first call, its last sample, or for what
# is slower than that the few calls that there always are.
MEASURE_LIMIT_S = 240


class RivalFailed(Exception):
    """Why a rival has no figure, in one line."""


class Rival:
    """A library with a key of `bits` bits.

    `version`, `operations`, the names of what it measures, and `facts` are known once it has started;
    `failure` says why it cannot go on, if so. `shares` are the shares of the core that it had while
    it was measured.
    """

    def __init__(self, interpreter, name, bits):
        self.name, self.bits = name, bits
        self.version, self.operations, self.facts, self.failure = None, [], {}, None
        self.shares = []
        self._stderr = tempfile.TemporaryFile()
        self._process = None
        try:
            # -B: leave no compiled files beside the modules.
            self._process = subprocess.Popen(
                [str(interpreter), "-B", "-m", "rivals.serve", name, str(bits)], cwd=HERE,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True)
            introduction = self._read(SETUP_LIMIT_S)
            self.version = introduction["version"]
            self.operations, self.facts = introduction["operations"], introduction["facts"]
        except (OSError, RivalFailed) as error:
            self.failure = str(error)

    def ways(self, operation):
        """Returns names of all ways in which the rival does `operation`: `add` and `add/array`, say."""
        return [name for name in self.operations if name.split("/")[0] == operation]

    def measure(self, operation, seconds):
        """Returns the median processor time of one `operation` in about `seconds`, in seconds."""
        request = {"operation": operation, "seconds": seconds}
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except OSError:
            self._give_up()
        answer = self._read(seconds + MEASURE_LIMIT_S)
        self.shares.append(answer["share"])
        return answer["median_s"]

    def close(self):
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._stderr.close()

    def _read(self, limit_s):
        """Returns the next answer, or the end of a rival that has none within `limit_s` seconds."""
        alarm = threading.Timer(limit_s, self._process.kill)
        alarm.start()
        line = self._process.stdout.readline()
        in_time = alarm.is_alive()
        alarm.cancel()
        if not line:
            self._give_up(None if in_time else f"no answer in {limit_s:.0f} s")
        answer = json.loads(line)
        if "error" in answer:
            raise RivalFailed(one_line(answer["error"]))
        return answer

    def _give_up(self, why=None):
        """Notes that its process is gone: nothing can be asked any more."""
        status = self._process.wait()
        self._stderr.seek(0)
        words = self._stderr.read().decode(errors="replace").strip().splitlines()
        self.failure = why or f"ended with {status}: {one_line(words[-1]) if words else 'no word'}"
        self.operations = []
        raise RivalFailed(self.failure)
