"""The card by its definition: each operation in Python's integers, over the bytes of its memory."""

from __future__ import annotations

import tomllib
from pathlib import Path

MAP = tomllib.loads((Path(__file__).parent.parent / "registers.toml").read_text())
REGISTERS = {register["name"]: register["at"] for register in MAP["register"]}
FIELDS = {field["name"]: (32 * field["word"] + field["bits"][1], field["bits"][0] - field["bits"][1] + 1)
          for field in MAP["field"]}
FLAGS = {flag["name"]: 1 << flag["bit"] for flag in MAP["flag"]}
OPERATIONS = {operation["name"]: operation["code"] for operation in MAP["operation"]}
STATUSES = {status["name"]: status["code"] for status in MAP["status"]}
BEAT = 64
DIGIT = 17


def descriptor(operation: str, flags: tuple[str, ...] = (), **fields: int) -> int:
    """Return a descriptor as a number."""
    value = OPERATIONS[operation]
    fields = {"count": 1, **fields, "flags": sum(FLAGS[flag] for flag in flags)}
    for name, field in fields.items():
        low, bits = FIELDS[name]
        if not 0 <= field < 1 << bits:
            raise ValueError(f"{name}={field}")
        value |= field << low
    return value


def field(value: int, name: str) -> int:
    """Return a field of a descriptor."""
    low, bits = FIELDS[name]
    return value >> low & ((1 << bits) - 1)


class Model:
    """Memory, and what descriptors do to it."""

    def __init__(self, beats: int, rows: int):
        self.memory = bytearray(BEAT * beats)
        self.rows = rows

    def read(self, at: int, length: int) -> int:
        """Return the number in `length` beats."""
        return int.from_bytes(self.memory[BEAT * at : BEAT * (at + length)], "little")

    def write(self, at: int, length: int, number: int) -> None:
        """Write a number, cut to `length` beats."""
        size = BEAT * length
        self.memory[BEAT * at : BEAT * at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")

    def run(self, value: int) -> None:
        """Do what a descriptor that can be done says."""
        code = field(value, "operation")
        operation = next(name for name, of in OPERATIONS.items() if of == code)
        flags = {name for name, bit in FLAGS.items() if field(value, "flags") & bit}
        for item in range(field(value, "count")):
            at = {n: field(value, f"{n}_at") + item * field(value, f"{n}_stride") for n in "abcmd"}
            length = {n: field(value, f"{n}_length") for n in "abcmd"}
            getattr(self, operation)(value, flags, at, length)

    def multiply(self, value: int, flags: set[str], at: dict[str, int], length: dict[str, int]) -> None:
        """`a · b · 2^shift + c = 2^N · T − Q · M′`."""
        rows = self.rows * field(value, "passes")
        n = DIGIT * (rows - 1)
        words = 1 << 26 * field(value, "words")
        a = self.read(at["a"], length["a"]) % words
        b = (self.read(at["b"], length["b"]) << field(value, "shift")) % (1 << DIGIT * rows)
        c = self.read(at["c"], length["c"]) if "with_c" in flags else 0
        m = self.read(at["m"], length["m"]) % words if "with_m" in flags else 0
        modulus = (m << DIGIT) - 1
        x = a * b + c
        # The digits of the last row do not reduce: x + Q · M′ is a multiple of 2^N, for a Q below that.
        q = -x * pow(modulus, -1, 1 << n) % (1 << n)
        t = (x + q * modulus) >> n
        if {"high", "low"} <= flags:
            q |= t << (-(-n // 512) * 512 if "with_m" in flags else n)
        self.write(at["d"], length["d"], q if "low" in flags else t)

    def reduce(self, value: int, flags: set[str], at: dict[str, int], length: dict[str, int]) -> None:
        """`a mod m` or `⌊a / m⌋`."""
        quotient, rest = divmod(self.read(at["a"], length["a"]), self.read(at["m"], length["m"]))
        self.write(at["d"], length["d"], quotient if "high" in flags else rest)

    def linear(self, value: int, flags: set[str], at: dict[str, int], length: dict[str, int]) -> None:
        """`a ± b · c`."""
        a, b = self.read(at["a"], length["a"]), self.read(at["b"], length["b"])
        c = self.read(at["c"], length["c"]) % (1 << 24) if "with_c" in flags else 1
        self.write(at["d"], length["d"], a - b * c if "minus" in flags else a + b * c)

    def select(self, value: int, flags: set[str], at: dict[str, int], length: dict[str, int]) -> None:
        """Entry `b >> shift mod 2^width` of the table a."""
        digit = self.read(at["b"], length["b"]) >> field(value, "shift") & ((1 << field(value, "width")) - 1)
        self.write(at["d"], length["d"], self.read(at["a"] + digit * length["a"], length["a"]))

    def add_beats(self, value: int, flags: set[str], at: dict[str, int], length: dict[str, int]) -> None:
        """`a + b` lane by lane."""
        for beat in range(length["a"]):
            a, b = self.read(at["a"] + beat, 1), self.read(at["b"] + beat, 1)
            primes = self.read(at["c"] + beat % length["c"], 1)
            lanes = [(x >> 51 * i & ((1 << 51) - 1)) for x in (a, b, primes) for i in range(10)]
            total = sum((lanes[i] + lanes[10 + i]) % lanes[20 + i] << 51 * i for i in range(10))
            self.write(at["d"] + beat, 1, total)

    def wipe(self, value: int, flags: set[str], at: dict[str, int], length: dict[str, int]) -> None:
        """Zeros."""
        self.write(at["d"], length["d"], 0)
