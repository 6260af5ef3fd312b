"""The register map of the card: the Verilog and Rust that follow from `registers.toml`.

Without a word it checks that they do; with `write` it writes them.
"""

from __future__ import annotations

import sys
import textwrap
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "hdl/registers.toml"
VERILOG = "hdl/rtl/registers.svh"
RUST = "accel/src/fpga/registers.rs"
# The lists of the map.
KINDS = ("register", "field", "flag", "operation", "status")

FIELD = """
/// A field of a descriptor: its word, its lowest bit there, and its bits.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) word: usize,
    pub(super) low: u32,
    pub(super) bits: u32,
}
"""


def declared(kind: str, entry: dict) -> tuple[str, str]:
    """Return the constant of an entry in Verilog and in Rust."""
    name = f"{kind}_{entry['name']}".upper()
    if kind == "register":
        at = entry["at"]
        return f"[15:0] {name} = 16'h{at:04x}", f"{name}: u32 = {at:#05x}"
    if kind == "field":
        word, (high, low) = entry["word"], entry["bits"]
        field = f"Field {{ word: {word}, low: {low}, bits: {high - low + 1} }}"
        return f"{name}_LOW = {32 * word + low}", f"{name}: Field = {field}"
    if kind == "flag":
        bit = entry["bit"]
        return f"{name} = {bit}", f"{name}: u32 = 1 << {bit}"
    code = entry["code"]
    return f"[7:0] {name} = {code}", f"{name}: u32 = {code}"


def constant(about: str, line: str) -> str:
    """Return a constant of Rust with its documentation."""
    about = textwrap.fill(
        f"{about[:1].upper()}{about[1:]}.",
        width=100,
        initial_indent="/// ",
        subsequent_indent="/// ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"\n{about}\npub(super) const {line};\n"


def files() -> dict[str, str]:
    """Return all files as they follow from the map."""
    about = tomllib.loads((ROOT / SOURCE).read_text())
    verilog = [f"[31:0] ID = 32'h{about['id']:08x}", f"[31:0] VERSION = {about['version']}"]
    rust = f"//! The register map of the card, written by `cargo xtask hdl registers` from `{SOURCE}`.\n"
    rust += constant("the number that a card answers with", f"ID: u32 = {about['id']:#010x}")
    rust += constant("the version of this map", f"VERSION: u32 = {about['version']}")
    for kind in KINDS:
        for entry in about[kind]:
            in_verilog, in_rust = declared(kind, entry)
            verilog.append(in_verilog)
            rust += constant(entry["text"], in_rust)
    verilog += [f"[1:0] UNIT_{unit.upper()} = {code}" for code, unit in enumerate(about["units"])]
    return {
        VERILOG: "// Written by `cargo xtask hdl registers` from registers.toml; included in the modules that use it.\n"
        "// verilator lint_off UNUSEDPARAM\n"
        + "".join(f"localparam {line};\n" for line in verilog)
        + "// verilator lint_on UNUSEDPARAM\n",
        RUST: rust + FIELD,
    }


def main() -> None:
    """Write the files, or name the first that is another."""
    for name, text in files().items():
        if sys.argv[1:] == ["write"]:
            (ROOT / name).write_text(text)
        elif (ROOT / name).read_text() != text:
            sys.exit(f"{name} is not what {SOURCE} says: run `cargo xtask hdl registers`")


if __name__ == "__main__":
    main()
