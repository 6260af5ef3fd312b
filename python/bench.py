#!/usr/bin/env python3
"""The targets of the Python package: one run, one table, each row beside its peer.

    python python/bench.py
    python python/bench.py --only sums,overhead --rounds 5
    python python/bench.py --python flower=PATH --python torch=PATH --json rows.json

Sums stand beside TenSEAL with the parameters and the symmetric context that NVFlare provisions, and the cost of Python
beside the same operations timed in Rust by `ciphergram bench`: in pairs, one right after the other, on one core and
one thread; by processor time, which a busy machine does not spoil, but for Rust's side, which goes by the clock and is
skipped where other work had the core. Rows that need a framework are scripts in
`python/benches/`, run by the interpreter of the environment that `cargo xtask test --flower` or `--torch` made, unless
`--python` names another. What cannot run here is skipped, by name and with the reason.

Needs this package, tenseal for its row and phe for those of integers. The exit code is 1 if a target that was measured
is missed, or a part failed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / os.environ.get("CARGO_TARGET_DIR", "target")
# The samples of a measurement: the median of at least so many counts.
MIN_SAMPLES = 5
# How much longer than asked for a measurement waits for quiet samples, at most.
PATIENCE = 5
# The share of its core that a side has to have had, for its time to be comparable.
QUIET_SHARE = 0.95
SCRIPT_TIMEOUT_S = 1800


class Skipped(Exception):
    """A row that cannot be measured here, and why."""


class Failed(Exception):
    """A part that ran and has no figures."""


@dataclass(frozen=True)
class Result:
    """A line of the table. `ratio` is the number that the target is about."""

    what: str
    ours: str
    peer: str
    ratio: float
    target: str
    met: bool


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    rounds: int
    seconds: float
    core: int
    binary: Path
    pythons: dict[str, Path]


def at_least(what: str, ours: str, peer: str, ratio: float, target: float) -> Result:
    """Makes the line of a target that is a least number of times."""
    return Result(what, ours, peer, ratio, f">= {target:g}x", ratio >= target)


def at_most(what: str, ours: str, peer: str, ratio: float, target: float, unit: str) -> Result:
    """Makes the line of a target that is a most."""
    return Result(what, ours, peer, ratio, f"<= {target:g}{unit}", ratio <= target)


@contextlib.contextmanager
def one_core(core: int) -> Iterator[None]:
    """Keeps this process, and threads and processes that it starts, on one core; ours compute on one thread."""
    import ciphergram as cg

    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    cg.set_threads(1)
    try:
        yield
    finally:
        cg.set_threads(None)
        os.sched_setaffinity(0, before)


def timed(call: Callable[[], object], seconds: float) -> float:
    """Returns the median processor time of a call, in seconds, over samples in which nothing else had the core.

    As `ciphergram bench` does it, which waits for them too. Where they are too few, all samples count.
    """
    samples: list[float] = []
    quiet: list[float] = []
    call()
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < PATIENCE * seconds:
        if len(samples) >= MIN_SAMPLES and len(quiet) >= MIN_SAMPLES and spent >= seconds:
            break
        clock, processor = time.perf_counter(), time.process_time()
        call()
        processor, clock = time.process_time() - processor, time.perf_counter() - clock
        samples.append(processor)
        if processor >= QUIET_SHARE * clock:
            quiet.append(processor)
    gc.enable()
    return statistics.median(quiet if len(quiet) >= MIN_SAMPLES else samples)


def milliseconds(seconds: float) -> str:
    """Returns a time in three digits."""
    return f"{1000 * seconds:.{1 if seconds < 0.1 else 0}f} ms"


class Round:
    """A round of ten clients with 1,000,000 float32 each, through the package: from arrays to arrays."""

    VALUES, CLIENTS = 1_000_000, 10

    def __init__(self) -> None:
        import ciphergram as cg
        import numpy as np

        generator = np.random.default_rng()
        self.updates = [
            {"g": generator.uniform(-1, 1, self.VALUES).astype(np.float32)} for _ in range(self.CLIENTS)
        ]
        self.keys = cg.keygen("ckks-sum", clients=self.CLIENTS)
        frames = [self.encrypt(client) for client in range(self.CLIENTS)]
        # As they come from a network.
        self.frames = [bytes(frame) for frame in frames]
        self.sum = bytes(self.aggregate())
        mean = np.mean([update["g"] for update in self.updates], axis=0, dtype=np.float64)
        error = np.abs(self.decrypt()["g"] - mean).max()
        if not error < 2**-14:
            raise AssertionError(f"the mean is off by {error}")
        # Contributions to later rounds than the first, whose sum is opened again and again.
        self.operations: dict[str, Callable[[], object]] = {
            "encrypt": lambda: self.encrypt(0),
            "aggregate": self.aggregate,
            "decrypt": self.decrypt,
        }

    def encrypt(self, client: int) -> memoryview:
        """From a client's array to the bytes of its contribution."""
        return memoryview(self.keys.encrypt(self.updates[client], ranges=1.0, client=client))

    def aggregate(self) -> memoryview:
        """From the bytes of all contributions to those of their sum."""
        import ciphergram as cg

        return memoryview(cg.aggregate(self.frames, self.keys.public))

    def decrypt(self) -> Any:
        """From the bytes of the sum to an array."""
        return self.keys.decrypt(self.sum)


def sums(settings: Settings) -> list[Result]:
    """One client's encryption, the sum of ten and its opening, beside TenSEAL."""
    sys.path.insert(0, str(HERE.parent / "benches" / "peers"))
    try:
        from rivals import tenseal_sums
    except ImportError as error:
        raise Skipped(f"{error}: pip install tenseal") from error
    with one_core(settings.core):
        ours = Round()
        theirs, facts = tenseal_sums.setup_8192(16)
        calls = {name: operation.call for name, operation in theirs.items()}
        # NVFlare's context is symmetric.
        calls["encrypt"] = calls.pop("encrypt_symmetric")
        pairs = [
            tuple(
                sum(timed(side[name], settings.seconds) for name in ours.operations)
                for side in (ours.operations, calls)
            )
            for _ in range(settings.rounds)
        ]
    size = len(ours.frames[0]) / Round.VALUES
    return [
        at_least(
            "1 M float32 to bytes, sum of 10, to numpy; peer: TenSEAL as NVFlare has it",
            *(milliseconds(statistics.median(times)) for times in zip(*pairs, strict=True)),
            statistics.median(peer / own for own, peer in pairs),
            20,
        ),
        at_least(
            "bytes a value of that",
            f"{size:.2f}",
            f"{facts['bytes_per_value']:.1f}",
            facts["bytes_per_value"] / size,
            15,
        ),
    ]


def overhead(settings: Settings) -> list[Result]:
    """Each operation of the package beside the same in Rust."""
    sys.path.insert(0, str(HERE.parent / "benches" / "peers"))
    from support.ours import Ours

    if not settings.binary.exists():
        raise Skipped(f"{settings.binary} is not built: cargo build --release")
    rust = Ours(settings.binary)
    results = []
    with one_core(settings.core):
        python = Round()
        for name, call in python.operations.items():
            pairs = []
            # Many and short: a core is a tenth faster at one time than a few seconds later.
            seconds = settings.seconds / 4
            for _ in range(4 * settings.rounds):
                own = timed(call, seconds)
                beneath = rust.measure(f"ckks-sum/{name}", 16, seconds)
                if beneath is None:
                    raise Skipped(next(iter(rust.failures.values())))
                if rust.shares[-1] < QUIET_SHARE:
                    # It goes by the clock, and counts what others used the core for.
                    raise Skipped("other work had the core meanwhile: again on a quiet machine, or with --core")
                pairs.append((own, beneath))
            results.append(
                at_most(
                    f"{name}, 1 M values, in Python; peer: in Rust, both by 1 thread",
                    *(milliseconds(statistics.median(times)) for times in zip(*pairs, strict=True)),
                    100 * (statistics.median(own / beneath for own, beneath in pairs) - 1),
                    5,
                    " % more",
                )
            )
    return results


def start_up(settings: Settings) -> list[Result]:
    """The processor time of an import beyond numpy's, each in a process of its own."""

    def spent(imports: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", f"import {imports}"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [(spent("numpy, ciphergram"), spent("numpy")) for _ in range(5 * settings.rounds)]
    ours, peer = (statistics.median(times) for times in zip(*pairs, strict=True))
    extra = 1000 * statistics.median(own - other for own, other in pairs)
    return [at_most("import, beyond numpy's", milliseconds(ours), milliseconds(peer), extra, 60, " ms")]


def wheel(_settings: Settings) -> list[Result]:
    """The size of the wheel of a release."""
    found = list((TARGET / "dist" / "python").glob("*.whl"))
    if not found:
        raise Skipped("no wheel is built: cargo xtask dist --python")
    size = found[-1].stat().st_size / 1e6
    return [at_most("wheel", f"{size:.1f} MB", "-", size, 10, " MB")]


def script(name: str, environment: str | None = None) -> Callable[[Settings], list[Result]]:
    """Returns the rows that a script of `python/benches/` prints, by the interpreter of an environment or by this one.

    They are a list in JSON, on its last line.
    """

    def interpreter(settings: Settings) -> Path:
        if environment is None:
            return Path(sys.executable)
        usual = TARGET / f"venv-{environment}" / "bin" / "python"
        python = settings.pythons.get(environment, usual)
        if not python.exists():
            raise Skipped(f"no environment: cargo xtask test --{environment}, or --python {environment}=PATH")
        return python

    def rows(settings: Settings) -> list[Result]:
        path = HERE / "benches" / f"{name}.py"
        if not path.exists():
            raise Skipped(f"there is no {path.name}")
        command = [interpreter(settings), path]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SCRIPT_TIMEOUT_S)
        lines = done.stdout.splitlines()
        if done.returncode != 0 or not lines:
            raise Failed(f"{path.name} failed with exit code {done.returncode}")
        return [Result(**row) for row in json.loads(lines[-1])]

    return rows


PARTS: dict[str, Callable[[Settings], list[Result]]] = {
    "sums": sums,
    "overhead": overhead,
    "ints": script("ints"),
    "flower": script("flower", "flower"),
    "datagram": script("datagram", "flower"),
    "ddp": script("ddp", "torch"),
    "lora": script("lora"),
    "import": start_up,
    "wheel": wheel,
}


def table(rows: list[list[str]]) -> str:
    """Returns columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def shown(result: Result) -> list[str]:
    """Returns the cells of a line."""
    ratio = f"{result.ratio:.3g}"
    return [result.what, result.ours, result.peer, ratio, result.target, "yes" if result.met else "NO"]


def named_path(word: str) -> tuple[str, Path]:
    """Reads `NAME=PATH`; a command without a folder is looked for as a shell does."""
    name, sign, path = word.partition("=")
    found = shutil.which(path)
    if not sign or found is None:
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=PATH of an interpreter")
    return name, Path(found)


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help=f"parts, of {','.join(PARTS)} [all]", metavar="LIST")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of each row [%(default)s]")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement [%(default)s]")
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)), help="[%(default)s]")
    parser.add_argument("--binary", type=Path, default=TARGET / "release" / "ciphergram", help="[%(default)s]")
    parser.add_argument("--python", type=named_path, action="append", default=[], metavar="ENVIRONMENT=PATH")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all rows there")
    options = parser.parse_args()
    chosen = (options.only or ",".join(PARTS)).split(",")
    if unknown := [name for name in chosen if name not in PARTS]:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    options.parts = chosen
    return options


def main() -> int:
    """Measures the parts and prints the table; returns the exit code."""
    options = arguments()
    settings = Settings(
        options.rounds, options.seconds, options.core, options.binary, dict(options.python)
    )
    results: list[Result] = []
    skipped: list[str] = []
    failed: list[str] = []
    for name in options.parts:
        print(f"measuring: {name}", file=sys.stderr)
        try:
            results += PARTS[name](settings)
        except Skipped as error:
            skipped.append(f"skipped {name}: {error}")
        except (Failed, subprocess.TimeoutExpired) as error:
            failed.append(f"FAILED {name}: {error}")
    heads = [field.name for field in fields(Result)]
    print(table([heads, *map(shown, results)]))
    print("\n".join(skipped + failed))
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    return 0 if not failed and all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
