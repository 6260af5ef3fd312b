"""The targets, and what a full device would do: tables of what the other steps and `ciphergram bench` have measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import synth

MHZ = 300
# LUTs, DSP48E2 and RAMB36 of devices, and 512-bit ports at `MHZ` that the memory of a usual board feeds: four
# channels of DDR4-2400, or the 460 GB/s of HBM2.
DEVICES = {
    "VU9P": (1_182_240, 6_840, 2_160, 4),
    "U55C": (1_303_680, 9_024, 2_016, 24),
    "VU13P": (1_728_000, 12_288, 2_688, 4),
}
FILLED = 0.8
OPERATIONS = (
    "encrypt", "encrypt_owner", "decrypt", "add", "add_plain", "mul_plain", "sum", "matvec", "mod_exp",
)  # fmt: skip


def counts(folder: Path) -> dict[int, float]:
    """Return the multiplier-cycles of products by their bits, as the array's bench has counted them."""
    log = (folder / "test_array" / "test_array.log").read_text()
    found = re.findall(r"products of (\d+) bits: [\d.]+ cycles and (\d+) multiplier-cycles", log)
    return {int(bits): float(cycles) for bits, cycles in found}


def rows(folder: Path, engine: str) -> dict[str, dict]:
    """Return the rows of an engine in the report of `ciphergram bench`."""
    report = json.loads((folder / "bench.json").read_text())
    return {row["operation"]: row for row in report["rows"] if row["engine"] == engine}


def show(folder: Path) -> None:
    """Print the targets that are reached and missed, and the projections."""
    products, card, cpu = counts(folder), rows(folder, "fpga"), rows(folder, "cpu")
    row, whole = (synth.resources(folder, top) for top in ("row", "card"))
    frequency = synth.frequency(folder, "row")
    # A card's rows are batches one after the other.
    spent = {name: row["cycles"] * row["batch"] for name, row in card.items()}
    busy = sum(spent[name] * row["limit_fraction"] for name, row in card.items()) / sum(spent.values())
    targets = [
        ("2048-bit product, multiplier-cycles", products[2048], 21_500, False),
        ("4096-bit product, multiplier-cycles", products[4096], 80_000, False),
        ("row, LUT of an UltraScale+", row["LUT"], 250, False),
        ("row, DSP48E2", row["DSP48E2"], 2, False),
        ("row on an ECP5, MHz", frequency, 120, True),
        ("busy multipliers, all operations, %", 100 * busy, 90, True),
        ("encryption simulated, s", card["encrypt"]["median_s"], 0.3, False),
        ("decryption simulated, s", card["decrypt"]["median_s"], 1.5, False),
    ]
    print(f"   {'target':40} {'seen':>10} {'limit':>10}")
    for name, seen, limit, least in targets:
        met = seen >= limit if least else seen <= limit
        print(f"   {name:40} {seen:10,.6g} {'>=' if least else '<='} {limit:7,} {'' if met else 'MISSED'}")
    project(whole, card, cpu)


def project(of: dict[str, float], card: dict[str, dict], cpu: dict[str, dict]) -> None:
    """Print the operations a second of devices filled with cards as measured, which share the ports of the memory.

    Nobody has measured such a device, nor its clock.
    """
    fits = {
        name: (int(FILLED * min(luts / of["LUT"], dsps / of["DSP48E2"], rams / of["RAMB36"])), ports)
        for name, (luts, dsps, rams, ports) in DEVICES.items()
    }
    print(f"   projected at {MHZ} MHz, operations a second; in brackets where memory is the limit")
    heads = [f"{name}: {cards} cards" for name, (cards, _) in fits.items()]
    print(f"   {'':14} {'one core':>10} " + " ".join(f"{head:>20}" for head in heads))
    for name in (name for name in OPERATIONS if name in card and name in cpu):
        row, core = card[name], 1 / cpu[name]["median_s"]
        cells = []
        for cards, ports in fits.values():
            computing = 1e6 * MHZ * cards / row["cycles"]
            moving = 1e6 * MHZ * ports / row["beats"]
            rate = min(computing, moving)
            text = f"{rate:,.0f}" if computing <= moving else f"({rate:,.0f})"
            cells.append(f"{text} {rate / core:5.1f}x")
        print(f"   {name:14} {core:10,.0f} " + " ".join(f"{cell:>20}" for cell in cells))
