"""Starting the binary, alone or several at once."""

import socket
import subprocess
import sys
import time

TIMEOUT_S = 120


def fail(message):
    """Ends the check: one line on stderr, exit code 1."""
    sys.exit(f"FAILED: {message}")


def run(binary, *words):
    """Runs `ciphergram WORDS` to its end and returns its standard output."""
    command = [str(word) for word in (binary, *words)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        fail(f"`ciphergram {' '.join(command[1:])}` took more than {TIMEOUT_S} s")
    if done.returncode != 0:
        fail(f"`ciphergram {' '.join(command[1:])}` exits {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Process:
    """One `ciphergram WORDS` in the background, with its output in files of `folder`."""

    def __init__(self, binary, folder, name, *words):
        self.name = name
        self.log = folder / f"{name}.log"
        command = [str(word) for word in (binary, *words)]
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def finish(self, deadline):
        """Waits for its end and fails if it does not come in time or is not a success."""
        try:
            code = self.child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            fail(f"{self.name} is still running after {TIMEOUT_S} s; it said:\n{self.said()}")
        if code != 0:
            fail(f"{self.name} exits {code}; it said:\n{self.said()}")

    def said(self):
        return self.log.read_text(errors="replace").strip()


def run_together(binary, folder, server, port, clients):
    """Runs a server, then all clients at once when it listens; each given as its words."""
    deadline = time.monotonic() + TIMEOUT_S
    processes = [Process(binary, folder, "serve", *server)]
    try:
        wait_until_listening(port, processes[0], deadline)
        for index, words in enumerate(clients):
            processes.append(Process(binary, folder, f"join-{index}", *words))
        # Clients first: what a client says is usually nearer to the cause.
        for process in reversed(processes):
            process.finish(deadline)
    finally:
        for process in processes:
            if process.child.poll() is None:
                process.child.kill()
                process.child.wait()


def free_port():
    """A UDP port of the loopback interface that nobody has now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_listening(port, server, deadline):
    """Sends single bytes until the system no longer refuses them.

    The server must throw such a datagram away in any case, so this disturbs nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("127.0.0.1", port))
        probe.settimeout(0.1)
        while time.monotonic() < deadline:
            if server.child.poll() is not None:
                fail(f"serve ended before it listened; it said:\n{server.said()}")
            try:
                probe.send(b"?")
                probe.recv(1)
            except ConnectionRefusedError:
                time.sleep(0.05)
            except TimeoutError:
                return
    fail(f"nobody listens on port {port}; serve said:\n{server.said()}")
