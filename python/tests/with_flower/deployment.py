"""Flower as processes on this machine: a SuperLink with TLS and authentication of nodes, and SuperNodes."""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower-digits"

# The two lines of the example that plain Flower does not have, and their plain counterparts.
CHANGED = {
    "client_app.py": ("ClientApp(mods=[cg.flower.mod])", "ClientApp()"),
    "server_app.py": (
        'strategy = cg.flower.Encrypted(strategy, key=str(config["public-key"]))',
        "pass",
    ),
}


def free_port() -> int:
    """Return a port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def plain_example(folder: Path) -> Path:
    """Copy the example without its two lines."""
    copy = folder / "plain-digits"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__", "keys"))
    for name, (private, plain) in CHANGED.items():
        path = copy / "digits" / name
        text = path.read_text()
        assert text.count(private) == 1
        path.write_text(text.replace(private, plain))
    save = copy / "digits" / "server_app.py"
    # A plain result is numpy's own.
    text = save.read_text().replace(
        'cg.flower.save(result.arrays, str(config["result"]))',
        'import numpy\n        numpy.savez(config["result"], **{n: a.numpy() for n, a in result.arrays.items()})',
    )
    save.write_text(text)
    return copy


def make_certificates(folder: Path) -> None:
    """Make `ca.pem`, and `server.pem` and `server.key` for this machine."""
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    begin = until - datetime.timedelta(days=2)

    def build(name: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

        return (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(until)
        )

    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    own = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    ca = build("test authority", "test authority", authority)
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    ca = ca.add_extension(own, critical=False)
    ca = ca.add_extension(
        x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        ),
        critical=True,
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = build("localhost", "test authority", server)
    leaf = leaf.add_extension(x509.SubjectAlternativeName(names), critical=False)
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
    leaf = leaf.add_extension(issued_by, critical=False)
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(ca.sign(authority, hashes.SHA256()).public_bytes(pem))
    (folder / "server.pem").write_bytes(leaf.sign(authority, hashes.SHA256()).public_bytes(pem))
    (folder / "server.key").write_bytes(
        server.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def make_node_key(path: Path) -> Path:
    """Make a node's key for Flower's authentication; the public half is beside it."""
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
    )
    path.chmod(0o600)
    public = path.with_name(path.name + ".pub")
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    )
    return public


class Deployment:
    """A SuperLink and its nodes, each a process with a log."""

    def __init__(self, folder: Path, *, simulation: bool = False) -> None:
        self.folder = folder
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.simulation = simulation
        bin_folder = str(Path(sys.executable).parent)
        self.env = {
            **os.environ,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONUNBUFFERED": "1",
        }
        (folder / "flwr").mkdir(parents=True)
        self._start_superlink()

    def _start_superlink(self) -> None:
        common = [
            "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port),
            "--database", str(self.folder / "state.db"),
            "--disable-runtime-dependency-installation",
        ]  # fmt: skip
        config = (
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
        )
        if self.simulation:
            common += ["--insecure", "--simulation"]
            config += "insecure = true\noptions.num-supernodes = 3\n"
        else:
            make_certificates(self.folder)
            common += [
                "--ssl-ca-certfile", str(self.folder / "ca.pem"),
                "--ssl-certfile", str(self.folder / "server.pem"),
                "--ssl-keyfile", str(self.folder / "server.key"),
                "--enable-supernode-auth",
            ]  # fmt: skip
            config += f'root-certificates = "{self.folder / "ca.pem"}"\n'
        (self.folder / "flwr" / "config.toml").write_text(config)
        self._start("superlink", common)
        self._wait(lambda: _listens(self.port), "the SuperLink")

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            # A group of its own, so that what it starts ends with it.
            self.processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,
                cwd=self.folder,
            )

    def _wait(self, done: object, what: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if done():  # type: ignore[operator]
                return
            time.sleep(0.1)
        raise TimeoutError(f"{what} did not come up within {seconds} s")

    def log(self, name: str) -> str:
        """Return what a process has written."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def node(self, number: int, config: str, *, register: bool = True) -> None:
        """Start a SuperNode; it connects if it is registered."""
        name = f"node{number}"
        public = make_node_key(self.folder / f"{name}.key")
        if register:
            self.flwr("supernode", "register", str(public), "here")
        self._start(
            name,
            [
                "flower-supernode", "--superlink", f"127.0.0.1:{self.port}",
                "--root-certificates", str(self.folder / "ca.pem"),
                "--auth-supernode-private-key", str(self.folder / f"{name}.key"),
                "--host", "127.0.0.1", "--port", str(free_port()),
                "--node-config", config,
            ],
        )  # fmt: skip

    def flwr(self, *arguments: str, timeout: float = 60) -> str:
        """Run Flower's command line, and return what it wrote."""
        done = subprocess.run(
            ["flwr", *arguments], env=self.env, capture_output=True, text=True, timeout=timeout,
            cwd=self.folder, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"flwr {arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def run(self, app: Path, config: dict[str, object], *, timeout: float = 300) -> str:
        """Run an app to its end, and return its log."""
        values = " ".join(
            f"{k}='{v}'" if isinstance(v, str | Path) else f"{k}={v}" for k, v in config.items()
        )
        return self.flwr(
            "run", str(app), "here", "--stream", "--run-config", values, timeout=timeout
        )

    def kill(self, name: str, sent: int = signal.SIGKILL) -> None:
        """Kill a process, and what is left of what it started."""
        process = self.processes.pop(name, None)
        if process is None:
            return
        _signal_group(process.pid, sent)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        _signal_group(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End all processes."""
        for name in reversed(list(self.processes)):
            self.kill(name, signal.SIGTERM)


def _signal_group(group: int, sent: int) -> None:
    try:
        os.killpg(group, sent)
    except ProcessLookupError:
        pass


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def deployed(folder: Path, *, simulation: bool = False) -> Iterator[Deployment]:
    """Run a SuperLink while the block runs."""
    deployment = Deployment(folder, simulation=simulation)
    try:
        yield deployment
    finally:
        deployment.close()


class Watch(threading.Thread):
    """Looks again and again for byte strings in files that change, such as a database and its journal."""

    def __init__(self, files: Iterable[Path], needles: Iterable[bytes]) -> None:
        super().__init__(daemon=True)
        self.files, self.needles = list(files), list(needles)
        self.found: set[tuple[str, int]] = set()
        self.over = threading.Event()

    def look(self) -> None:
        """Look once."""
        for path in self.files:
            data = path.read_bytes() if path.exists() else b""
            self.found |= {(path.name, at) for at, n in enumerate(self.needles) if n in data}

    def run(self) -> None:
        """Look until the block ends."""
        while not self.over.wait(0.05):
            self.look()

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()
        self.look()


__all__ = ["EXAMPLE", "Deployment", "Watch", "deployed", "plain_example"]
