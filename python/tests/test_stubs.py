"""What types say: the stubs are those of the native module, and the package keeps to them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ciphergram
import pytest

pytest.importorskip("mypy")

# Frameworks that are not installed here, and those that have no types; what is ignored for one that is, is not needed
# then.
CONFIG = """
[mypy]
ignore_missing_imports = True
follow_untyped_imports = False
"""

# What only later versions of Python show of the buffer protocol.
ALLOWED = r"ciphergram\._native\..*\.__buffer__"


def run(module: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a module of mypy on what is installed, outside of the repository."""
    config = folder / "mypy.ini"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", module, *words]
    # Beside what is installed: what mypy knows of numpy and Flower is read once.
    environment = os.environ | {"MYPY_CACHE_DIR": str(Path(sys.prefix) / "mypy_cache")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_stubs_are_those_of_the_native_module(tmp_path: Path) -> None:
    # Without stubs there would be nothing to compare.
    assert (Path(ciphergram.__file__).parent / "_native" / "__init__.pyi").is_file()
    (tmp_path / "allowed.txt").write_text(ALLOWED)
    words = "--mypy-config-file mypy.ini --allowlist allowed.txt --ignore-unused-allowlist ciphergram._native"
    done = run("mypy.stubtest", tmp_path, *words.split())
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_typed(tmp_path: Path) -> None:
    assert (Path(ciphergram.__file__).parent / "py.typed").is_file()
    words = "--config-file mypy.ini --strict --allow-subclassing-any --no-warn-unused-ignores"
    done = run("mypy", tmp_path, *words.split(), "--package", "ciphergram")
    assert done.returncode == 0, done.stdout + done.stderr


# Each line with a comment is refused, and no other.
USES = """
import ciphergram as cg
import numpy as np

keys = cg.keygen(clients=3)
update = {"w": np.ones(3)}
part: cg.Contribution = keys.encrypt(update, client=0, ranges=1.0)
keys.encrypt(update, client=0, rangs=1.0)  # type: ignore[call-arg]
keys.encrypt(update, ranges=1.0)  # type: ignore[call-arg]
keys.encrypt(update, client=0, integers="drop")  # type: ignore[arg-type]
keys.propose(update, client=0, wieght=3)  # type: ignore[call-arg]
mean: cg.Opened = keys.decrypt(cg.aggregate([part], keys.public), like=update)
keys.decrypt(cg.aggregate([part], keys.public), totla=True)  # type: ignore[call-arg]
with cg.Client("127.0.0.1:7700", keys, number=0) as client:
    client.mean(update, clipp=1.0)  # type: ignore[call-arg]
cg.Client("127.0.0.1:7700", keys, client=0)  # type: ignore[call-arg]
loaded: cg.Sum = cg.loads(bytes(part))  # type: ignore[assignment]
cg.load_keys("keys").encrypt(update)  # type: ignore[union-attr, call-arg]
found = cg.load_keys("keys")
if isinstance(found, cg.SecretKey):
    found.encrypt(update, client=0)
job: cg.Job = keys.job
"""


def test_a_wrong_keyword_is_an_error_of_types(tmp_path: Path) -> None:
    (tmp_path / "uses.py").write_text(USES)
    done = run("mypy", tmp_path, "--config-file", "mypy.ini", "--strict", "uses.py")
    assert done.returncode == 0, done.stdout + done.stderr
