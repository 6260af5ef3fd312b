"""The digits example under FLARE's simulator: three sites as processes, encrypted and in plain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ciphergram as cg

JOB = Path(__file__).resolve().parents[2] / "examples" / "flare-digits" / "job.py"
ROUNDS = 3
STEPS = 2**15 - 1
# The weights of the sites are 300, 600 and 600, and the largest is said to be 600.
CONTRIBUTORS_BY_WEIGHT = 3 * 600 / 1500
FIRST_RANGE = 4.0


@pytest.fixture(autouse=True)
def no_hang() -> None:
    """Lets simulations take longer than other tests: each has an end of its own."""


def run(folder: Path, *options: str) -> Path:
    """Runs the example; returns the folder of the simulated parties."""
    command = [
        sys.executable,
        str(JOB),
        "--rounds",
        str(ROUNDS),
        "--workspace",
        str(folder),
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return next(path for path in folder.iterdir() if path.is_dir())


def saved(job: Path) -> np.ndarray:
    """Returns what the server saved as its model."""
    return np.load(job / "server" / "simulate_job" / "models" / "server.npy")


@pytest.mark.parametrize("key", ["clients/0.json", "secret.json"])
def test_sites_learn_what_plain_averaging_learns(tmp_path: Path, key: str) -> None:
    plain = saved(run(tmp_path / "plain", "--plain"))
    if key == "secret.json":
        # Else the example makes members, who open together.
        cg.keygen("ckks-sum", clients=3, min_clients=3).save(tmp_path / "keys")
    job = run(tmp_path / "encrypted", "--keys", str(tmp_path / "keys"))
    opened = cg.flare.open(saved(job).tobytes(), tmp_path / "keys" / key)
    assert list(opened.contributors) == [0, 1, 2]
    mean = opened["numpy_key"]
    assert (mean.dtype, mean.shape) == (np.float32, (65, 10))
    # A round's step of gradient descent on a convex loss brings models no further apart, so errors
    # of rounds add up.
    later = max(opened.ranges["numpy_key"], 2.0)
    bound = CONTRIBUTORS_BY_WEIGHT * (FIRST_RANGE + (ROUNDS - 1) * later) / STEPS
    np.testing.assert_allclose(mean, plain, atol=bound, rtol=1e-5)

    logs = "".join(path.read_text(errors="replace") for path in job.rglob("log.txt"))
    assert logs.count("opened the mean of 3 clients") == 3 * (ROUNDS - 1)
    assert "clipped" not in logs

    assert logs.count("answered as an opener") == (0 if key == "secret.json" else 3 * ROUNDS)
    secrets = secret_texts(tmp_path / "keys", key)
    values = [mean[row].tobytes() for row in range(len(mean)) if mean[row].any()]
    for path in (path for path in (job / "server").rglob("*") if path.is_file()):
        content = path.read_bytes()
        assert not any(text in content for text in secrets), f"{path} has a secret key"
        assert not any(row in content for row in values), f"{path} has the mean in plain"


def test_rounds_go_on_without_a_site_of_another_key(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="sums of 2"):
        cg.keygen("ckks-sum", clients=3, min_clients=2).save(tmp_path / "keys")
    cg.keygen("ckks-sum", clients=3, min_clients=3).save(tmp_path / "others")
    for party in ("simulator_server", "site-1", "site-2", "site-3"):
        (tmp_path / party).symlink_to(tmp_path / ("others" if party == "site-3" else "keys"))
    program = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(JOB.parent)!r})
from job import SimEnv, recipe
workspace = SimEnv(num_clients=3, workspace_root={str(tmp_path / "workspace")!r})
recipe({ROUNDS}, Path({str(tmp_path)!r}) / "{{site}}").run(workspace)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    key = cg.load_keys(tmp_path / "keys" / "secret.json")
    opened = key.decrypt(cg.loads(saved(tmp_path / "workspace" / "digits").tobytes(), key=key))
    assert opened.contributors == [0, 1]
    log = (tmp_path / "workspace" / "digits" / "server" / "log.txt").read_text()
    assert log.count("reply of site-3 dropped") == ROUNDS


def secret_texts(keys: Path, file: str) -> list[bytes]:
    """Returns the long texts of a key's file that the public one lacks."""
    public = (keys / "public.json").read_text()
    words = (keys / file).read_text().replace('"', " ").split()
    found = [word.encode() for word in words if len(word) > 24 and word not in public]
    assert found
    return found
