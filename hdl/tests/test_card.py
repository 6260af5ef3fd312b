"""The card in its shell: descriptors in memory, judged by `card_model`, with idle and back-pressure on every bus."""

from __future__ import annotations

import itertools
import os
import random
from typing import Any

import cocotb
from card_model import BEAT, DIGIT, OPERATIONS, REGISTERS, STATUSES, Model, descriptor
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
MEMORY = 4096
RING, ENTRIES = 16, 12
FREE = RING + ENTRIES


class Card:
    """A card with memory, and the model beside it."""

    def __init__(self, dut: Any, seed: int):
        self.dut = dut
        self.random = random.Random(seed)
        self.ram = AxiRam(AxiBus.from_prefix(dut, "axi"), dut.clk, dut.reset, size=BEAT * MEMORY)
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "axil"), dut.clk, dut.reset)
        self.model = Model(MEMORY, int(dut.ROWS.value))
        self.tail = 0
        self.next = FREE

    async def start(self, busy: float) -> None:
        """Reset, and hinder the buses: each waits in so many of its cycles."""
        cocotb.start_soon(Clock(self.dut.clk, 10, "ns").start())
        self.dut.reset.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.reset.value = 0
        await ClockCycles(self.dut.clk, 2)
        if busy:
            read, write = self.ram.read_if, self.ram.write_if
            for channel in (read.ar_channel, read.r_channel, write.aw_channel, write.w_channel, write.b_channel):
                seeded = random.Random(self.random.random())
                channel.set_pause_generator(seeded.random() < busy for _ in itertools.count())
        await self.ready()

    async def ready(self) -> None:
        """Tell the card of its ring."""
        self.tail = 0
        await self.set("ring", RING)
        await self.set("entries", ENTRIES)

    async def restart(self) -> None:
        """Have the card reset itself, and tell it of its ring again."""
        await self.set("control", 1)
        while await self.get("tail"):
            pass
        await self.ready()

    async def set(self, register: str, value: int) -> None:
        """Write a register."""
        await self.registers.write_dword(REGISTERS[register], value)

    async def get(self, register: str) -> int:
        """Read a register."""
        return await self.registers.read_dword(REGISTERS[register])

    def room(self, beats: int) -> int:
        """Return the first of so many beats that nothing else uses."""
        self.next += beats
        assert self.next <= MEMORY
        return self.next - beats

    def put(self, numbers: list[int], length: int) -> int:
        """Put numbers into memory, one after the other; return where."""
        at = self.room(length * len(numbers))
        for item, number in enumerate(numbers):
            self.model.write(at + item * length, length, number)
            data = number.to_bytes(BEAT * length, "little")
            self.ram.write(BEAT * (at + item * length), data)
        return at

    async def run(self, descriptors: list[int]) -> list[int]:
        """Have descriptors done; return their statuses."""
        statuses = []
        for some in itertools.batched(descriptors, ENTRIES) if hasattr(itertools, "batched") else [
            descriptors[i : i + ENTRIES] for i in range(0, len(descriptors), ENTRIES)
        ]:
            places = [RING + (self.tail + i) % ENTRIES for i in range(len(some))]
            for place, value in zip(places, some, strict=True):
                self.ram.write(BEAT * place, value.to_bytes(BEAT, "little"))
            self.tail += len(some)
            await self.set("tail", self.tail)
            while not int(self.dut.irq.value):
                await RisingEdge(self.dut.clk)
            assert await self.get("head") == self.tail and await self.get("status") == 1
            for place in places:
                statuses.append(int.from_bytes(self.ram.read(BEAT * place + 60, 4), "little"))
        return statuses

    def check(self) -> None:
        """Compare memory with the model's, but for the ring."""
        mine, theirs = self.ram.read(BEAT * FREE, BEAT * (MEMORY - FREE)), self.model.memory[BEAT * FREE :]
        for beat in range(MEMORY - FREE):
            here = slice(BEAT * beat, BEAT * (beat + 1))
            assert mine[here] == theirs[here], f"beat {FREE + beat}: {mine[here].hex()} for {theirs[here].hex()}"

    async def judge(self, descriptors: list[int]) -> None:
        """Have descriptors done here and by the model, and compare."""
        for value in descriptors:
            self.model.run(value)
        assert await self.run(descriptors) == [STATUSES["done"]] * len(descriptors)
        self.check()


async def begun(dut: Any, busy: float = 0.3) -> Card:
    """Return a card that is ready."""
    print(f"SEED={SEED}")
    card = Card(dut, SEED)
    await card.start(busy)
    return card


def number(rng: random.Random, bits: int) -> int:
    """Return a number of so many bits, one in four of them an extreme."""
    return rng.choice([0, (1 << bits) - 1, 1 << (bits - 1), 1]) if rng.random() < 0.25 else rng.getrandbits(bits)


def linear(card: Card, count: int) -> int:
    """Return a random `linear` over new operands."""
    rng = card.random
    lengths = [rng.randint(1, 6) for _ in range(3)]
    a, b = (card.put([number(rng, 512 * n) for _ in range(count)], n) for n in lengths[:2])
    flags = tuple(flag for flag in ("with_c", "minus") if rng.random() < 0.5)
    c = card.put([number(rng, 24)], 1) if "with_c" in flags else 0
    return descriptor(
        "linear", flags, count=count, a_at=a, b_at=b, c_at=c, d_at=card.room(count * lengths[2]),
        a_stride=lengths[0], b_stride=lengths[1], d_stride=lengths[2],
        a_length=lengths[0], b_length=lengths[1], c_length="with_c" in flags, d_length=lengths[2],
    )


def reduce(card: Card, count: int, bits: int) -> int:
    """Return a random `reduce`, of numbers near multiples of m among others."""
    rng = card.random
    m = number(rng, bits) | 1 << (bits - 1) | 1
    near = [min(max(rng.getrandbits(20) * m + rng.randint(-1, 1), 0), (m << 20) - 1) for _ in range(count)]
    values = [v if rng.random() < 0.5 else rng.randrange(m << 20) for v in near]
    values[0] = (m << 20) - 1
    a_length, m_length = -(-(bits + 20) // 512), -(-bits // 512)
    flags = ("high",) if rng.random() < 0.3 else ()
    a, m_at = card.put(values, a_length), card.put([m], m_length)
    return descriptor(
        "reduce", flags, count=count, a_at=a, m_at=m_at, d_at=card.room(count * m_length), a_stride=a_length,
        d_stride=m_length, a_length=a_length, m_length=m_length, d_length=m_length, shift=max(bits - 22, 0),
    )


def select(card: Card, count: int) -> int:
    """Return a random `select`: of one table for all, or one each."""
    rng = card.random
    width, length, shared = rng.choice([0, 1, 2, 4]), rng.randint(1, 5), rng.random() < 0.5
    entries = length << width
    table = card.put([number(rng, 512 * entries) for _ in range(1 if shared else count)], entries)
    b = card.put([number(rng, 1024) for _ in range(count)], 2)
    d_length = rng.randint(1, 6)
    shift = rng.randrange(1024 // max(width, 1)) * max(width, 1)
    return descriptor(
        "select", count=count, a_at=table, b_at=b, d_at=card.room(count * d_length), a_stride=0 if shared else entries,
        b_stride=2, d_stride=d_length, a_length=length, b_length=2, d_length=d_length, shift=shift, width=width,
    )


def add_beats(card: Card, count: int) -> int:
    """Return a random `add_beats`, of items longer than the unit's buffer among others."""
    rng = card.random
    length, period = rng.choice([1, 7, 32, 33, 70]), rng.randint(1, 3)
    primes = [[rng.getrandbits(49) | 1 << 49 | 1 for _ in range(10)] for _ in range(period)]
    beat = lambda lanes: sum(lane << 51 * i for i, lane in enumerate(lanes))  # noqa: E731
    residues = lambda: sum(  # noqa: E731
        beat([rng.choice([0, q - 1, rng.randrange(q)]) for q in primes[i % period]]) << 512 * i for i in range(length)
    )
    a, b = (card.put([residues() for _ in range(count)], length) for _ in range(2))
    c = card.put([beat(lanes) for lanes in primes], 1)
    return descriptor(
        "add_beats", count=count, a_at=a, b_at=b, c_at=c, d_at=card.room(count * length), a_stride=length,
        b_stride=length, d_stride=length, a_length=length, b_length=length, c_length=period, d_length=length,
    )


def modulus(rng: random.Random, bits: int) -> tuple[int, int]:
    """Return an odd number of so many bits, and what the card takes for it."""
    m = number(rng, bits) | 1 << (bits - 1) | 1
    k = -pow(m, -1, 1 << DIGIT) % (1 << DIGIT)
    return m, (k * m + 1) >> DIGIT


def multiply(card: Card, count: int, bits: int) -> int:
    """Return a random `multiply` of numbers modulo one of so many bits, or without a modulus, in any way of writing."""
    rng = card.random
    rows = card.model.rows
    m, scaled = modulus(rng, bits)
    words, passes = -(-(bits + 35) // 26), -(-(-(-(bits + 20) // DIGIT) + 1) // rows)
    most, length = 2 * ((scaled << DIGIT) - 1), -(-(bits + 18) // 512)
    flags = [flag for flag in ("with_c", "with_m") if rng.random() < 0.5]
    flags += rng.choice([["high"], ["low"], ["high", "low"]])
    if "with_m" in flags and rng.random() < 0.5:
        # Residues, and R of their length, as `mont_mul` has it.
        most, shift = m, DIGIT * (rows * passes - 1) - 64 * -(-bits // 64)
        shift = max(shift, 0)
    else:
        shift = 0
    values = [[rng.choice([0, 1, most - 1, rng.randrange(most)]) for _ in range(count)] for _ in range(2)]
    a, b = (card.put(of, length) for of in values)
    c = card.put([rng.getrandbits(min(bits, 512 * length - 20)) for _ in range(count)], length)
    m_at = card.put([scaled], length)
    d_length = rng.randint(length, min(2 * length + 2, 32))
    return descriptor(
        "multiply", tuple(flags), count=count, a_at=a, b_at=b, c_at=c, m_at=m_at, d_at=card.room(count * d_length),
        a_stride=length, b_stride=length, c_stride=length, d_stride=d_length, a_length=length, b_length=length,
        c_length=length, m_length=length, d_length=d_length, words=words, passes=passes, shift=shift,
    )


def wipe(card: Card, count: int) -> int:
    """Return a `wipe` of numbers that are there."""
    length = card.random.randint(1, 40)
    at = card.put([number(card.random, 512 * length) for _ in range(count)], length)
    return descriptor("wipe", count=count, d_at=at, d_stride=length, d_length=length)


@cocotb.test()
async def operations_of_tail_and_lanes(dut: Any) -> None:
    card = await begun(dut)
    program = [linear(card, 3) for _ in range(8)]
    program += [reduce(card, 4, bits) for bits in (2, 3, 21, 22, 23, 24, 64, 500, 513, 1024, 2048, 4096)]
    program += [select(card, 2) for _ in range(6)] + [add_beats(card, 2) for _ in range(4)] + [wipe(card, 2)]
    card.random.shuffle(program)
    await card.judge(program)


@cocotb.test()
async def operations_of_arrays(dut: Any) -> None:
    card = await begun(dut)
    sizes = [64, 100, 520, 1024, 1500, 2048, 4096]
    program = [multiply(card, 2, card.random.choice(sizes)) for _ in range(20)] + [multiply(card, 1, 8192)]
    program += [linear(card, 2) for _ in range(6)] + [reduce(card, 2, 1024) for _ in range(3)]
    card.random.shuffle(program)
    await card.judge(program)
    assert await card.get("products") >= 41


@cocotb.test()
async def descriptors_wait_for_what_they_read(dut: Any) -> None:
    """Chains of all kinds of hazards over a few places, whose units take unlike time."""
    card = await begun(dut, 0.1)
    rng = card.random
    places = [card.put([number(rng, 1024)], 2) for _ in range(4)]
    program = []
    for _ in range(60):
        a, b, d = (rng.choice(places) for _ in range(3))
        lengths = {"a_length": 2, "b_length": 2, "d_length": 2}
        if rng.random() < 0.5:
            program.append(descriptor("linear", ("minus",), a_at=a, b_at=b, d_at=d, **lengths))
        else:
            program.append(descriptor("select", a_at=a, b_at=b, d_at=d, **lengths))
    await card.judge(program)


@cocotb.test()
async def bad_descriptors_are_named_and_change_nothing(dut: Any) -> None:
    card = await begun(dut)
    good = linear(card, 1)
    lengths = {"a_length": 1, "b_length": 1, "d_length": 1}
    array = {"words": 4, "passes": 1, **lengths}
    bad = [
        ("unknown", good & ~0xFF | 9),
        ("unknown", good & ~0xFF),
        ("unknown", good | 1 << 31),
        ("unknown", good | 1 << 511),
        ("unknown", descriptor("linear", ("high",), **lengths)),
        ("unknown", descriptor("linear", shift=1, **lengths)),
        ("empty", descriptor("linear", count=0, **lengths)),
        ("size", descriptor("linear", a_length=33, b_length=1, d_length=1)),
        ("size", descriptor("linear", a_length=1, b_length=0, d_length=1)),
        ("size", descriptor("select", width=3, **lengths)),
        ("size", descriptor("select", width=4, shift=2, **lengths)),
        ("size", descriptor("select", width=4, shift=512, **lengths)),
        ("size", descriptor("multiply", ("high",), **{**array, "words": 1})),
        ("size", descriptor("multiply", ("high",), **{**array, "words": 321})),
        ("size", descriptor("multiply", ("high",), **{**array, "passes": 0})),
        ("size", descriptor("multiply", ("high",), **{**array, "passes": 65})),
        ("size", descriptor("multiply", **array)),
        ("size", descriptor("reduce", a_length=1, m_length=1, d_length=1, shift=512)),
        ("size", descriptor("reduce", a_length=1, m_length=2, d_length=1)),
        ("size", descriptor("add_beats", c_length=1, a_length=2, b_length=1, d_length=2)),
        ("size", descriptor("wipe")),
        ("range", descriptor("linear", a_at=MEMORY, **lengths)),
        ("range", descriptor("linear", d_at=MEMORY - 1, d_stride=1, count=2, **lengths)),
        ("range", descriptor("linear", d_at=FREE, d_stride=0xFFFF, count=0xFFFFFFFF, **lengths)),
        ("range", descriptor("select", a_at=MEMORY - 15, width=4, **lengths)),
        ("range", descriptor("wipe", d_at=0xFFFFFFFF, d_length=255)),
    ]
    names = [name for name, _ in bad]
    statuses = await card.run([value for _, value in bad])
    assert statuses == [STATUSES[name] for name in names]
    assert await card.get("fault") == STATUSES["unknown"]
    card.check()
    await card.judge([good])
    # More than the ring has room for, and less than there is.
    for wrong in (card.tail + ENTRIES + 1, card.tail - 1):
        await card.set("tail", wrong)
        assert await card.get("tail") == card.tail and dut.irq.value == 1
    # What an operation has not is not looked at.
    await card.judge([linear(card, 1), descriptor("wipe", a_at=7, c_length=9, d_at=card.room(1), d_length=1)])
    await card.restart()
    for ring in (MEMORY, MEMORY - ENTRIES + 1):
        await card.set("ring", ring)
        await card.set("tail", 1)
        assert await card.get("tail") == 0
    assert await card.get("fault") & 0xFF == STATUSES["overrun"]
    await card.restart()
    await card.judge([linear(card, 1)])


@cocotb.test()
async def neither_time_nor_addresses_depend_on_numbers(dut: Any) -> None:
    """The same descriptors over zeros, ones, all ones and random numbers: the same cycles, the same reads."""
    card = await begun(dut, 0)
    m, scaled = modulus(random.Random(1), 1024)
    length, entries = 3, 16
    table, x, digits = (card.room(n) for n in (length * entries, length, length))
    m_at, scaled_at, d, e = card.put([m], 2), card.put([scaled], 2), card.room(length), card.room(2)
    program = [
        descriptor("select", a_at=table, b_at=digits, d_at=d, a_length=length, b_length=length, d_length=length,
                   width=4, shift=8),
        descriptor("multiply", ("with_m", "high"), a_at=x, b_at=d, m_at=scaled_at, d_at=d, a_length=length,
                   b_length=length, m_length=2, d_length=length, words=41, passes=8),
        descriptor("reduce", a_at=d, m_at=m_at, d_at=e, a_length=length, m_length=2, d_length=2, shift=1002),
        descriptor("linear", ("minus",), a_at=e, b_at=x, d_at=e, a_length=2, b_length=2, d_length=2),
    ]
    most = 2 * ((scaled << DIGIT) - 1)
    seen = []
    for of in (lambda: 0, lambda: 1, lambda: most - 1, lambda: card.random.randrange(most)):
        for at in [*range(table, table + length * entries, length), x, digits]:
            number_there = of()
            card.model.write(at, length, number_there)
            card.ram.write(BEAT * at, number_there.to_bytes(BEAT * length, "little"))
        # From the same state each time: the scoreboard looks at the units in turn.
        await card.restart()
        reads: list[int] = []
        watch = cocotb.start_soon(addresses(dut, reads))
        await card.judge(program)
        watch.cancel()
        seen.append((await card.get("cycles"), reads))
    assert all(other == seen[0] for other in seen), [cycles for cycles, _ in seen]


async def addresses(dut: Any, reads: list[int]) -> None:
    """Note the beats of all reads."""
    while True:
        await RisingEdge(dut.clk)
        if dut.axi_arvalid.value and dut.axi_arready.value:
            reads.append(int(dut.axi_araddr.value) // BEAT)


@cocotb.test()
async def a_reset_amid_work_leaves_a_card_that_works(dut: Any) -> None:
    card = await begun(dut)
    for _ in range(4):
        program = [linear(card, 8), select(card, 4), add_beats(card, 2)]
        for place, value in enumerate(program):
            card.ram.write(BEAT * (RING + place), value.to_bytes(BEAT, "little"))
        await card.set("tail", len(program))
        await ClockCycles(dut.clk, card.random.randint(1, 600))
        await card.restart()
        assert await card.get("head") == 0 and await card.get("fault") == 0
        # What the work had reached is in memory, or not.
        card.model.memory[:] = card.ram.read(0, BEAT * MEMORY)
        await card.judge([linear(card, 2), select(card, 2)])
        assert await card.get("cycles") > 0


@cocotb.test()
async def registers_say_what_the_card_is(dut: Any) -> None:
    card = await begun(dut)
    assert (await card.get("id")).to_bytes(4, "big") == b"CGFP"
    assert await card.get("version") == 1 and await card.get("memory") == MEMORY
    sizes = await card.get("sizes")
    assert sizes & 0xFF == int(dut.ARRAYS.value) and sizes >> 8 & 0xFF == int(dut.ROWS.value)
    await card.set("head", 7)
    await card.registers.write_dword(0x7F0, 7)
    assert await card.get("head") == 0 and await card.registers.read_dword(0x7F0) == 0
    assert OPERATIONS["multiply"] == 1
