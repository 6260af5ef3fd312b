"""A row alone: what leaves it is the number that its formula gives, for words at the ends of their ranges too."""

from __future__ import annotations

import os
import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
WORD, DIGIT = 26, 17


def value(words: list[int]) -> int:
    """Return the number that has these words."""
    return sum(word << WORD * j for j, word in enumerate(words))


def number(rng: random.Random) -> dict[str, Any]:
    """Return words of t, a and m and a digit, such that the result fits."""
    while True:
        count = rng.choice([1, 2, 2, 3, 5, 20])
        most = rng.random() < 0.3
        word = lambda top: top if most or rng.random() < 0.1 else rng.randrange(top + 1)  # noqa: E731
        one = {
            # A word that a row made is below 2^26 + 2^18, the last one below 2^27.
            "t": [word((1 << WORD) + (1 << 18) - 1) for _ in range(count - 1)] + [word((1 << 27) - 1)],
            "a": [word((1 << WORD) - 1) for _ in range(count - 1)] + [word(600)],
            "m": [word((1 << WORD) - 1) for _ in range(count - 1)] + [word(600)],
            "digit": word((1 << DIGIT) - 1),
        }
        t = value(one["t"])
        one["result"] = (t >> DIGIT) + value(one["a"]) * one["digit"] + t % (1 << DIGIT) * value(one["m"])
        if one["result"] < 1 << (WORD * count + 1):
            return one


@cocotb.test()
async def a_row_makes_what_its_formula_says(dut: Any) -> None:
    dut._log.warning("SEED=%d", SEED)
    rng = random.Random(SEED)
    numbers = [number(rng) for _ in range(400)]
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    dut.in_valid.value = 0
    dut.reset.value = 1
    for _ in range(8):
        await FallingEdge(dut.clk)
    dut.reset.value = 0

    outputs: list[tuple[int, ...]] = []

    async def step() -> None:
        await FallingEdge(dut.clk)
        if int(dut.out_valid.value):
            names = ("out_first", "out_last", "out_t", "out_a", "out_m")
            outputs.append(tuple(int(getattr(dut, name).value) for name in names))

    for one in numbers:
        count = len(one["t"])
        for j in range(count):
            dut.in_valid.value = 1
            dut.in_first.value = j == 0
            dut.in_last.value = j == count - 1
            dut.in_t.value, dut.in_a.value, dut.in_m.value = one["t"][j], one["a"][j], one["m"][j]
            dut.in_digit.value = one["digit"] if j == 0 else rng.getrandbits(DIGIT)
            await step()
        while rng.random() < 0.3:
            dut.in_valid.value = dut.in_first.value = dut.in_last.value = 0
            dut.in_t.value, dut.in_a.value = rng.getrandbits(27), rng.getrandbits(WORD)
            await step()
    dut.in_valid.value = dut.in_first.value = dut.in_last.value = 0
    for _ in range(6):
        await step()

    for one in numbers:
        count = len(one["t"])
        mine, outputs[:count] = outputs[:count], []
        assert [(first, last) for first, last, *_ in mine] == [(j == 0, j == count - 1) for j in range(count)]
        assert [words[3] for words in mine] == one["a"] and [words[4] for words in mine] == one["m"]
        words = [words[2] for words in mine]
        assert value(words) == one["result"]
        assert all(word < (1 << WORD) + (1 << 18) for word in words[:-1])
    assert not outputs
