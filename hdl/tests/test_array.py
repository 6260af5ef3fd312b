"""The array with a memory beside it, judged by the formula of `array.sv`: `a · B + c = 2^N · T − Q · M′`."""

from __future__ import annotations

import os
import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, Event, FallingEdge, RisingEdge, ValueChange
from cocotb.utils import get_sim_time

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
BEAT, WORD, DIGIT = 512, 26, 17
CYCLE = 10


def product(job: dict[str, int], rows: int) -> int:
    """Return what a job is to write."""
    n = rows * job["passes"]
    shift = DIGIT * (n - 1)
    a = job["a"] % (1 << WORD * job["words"])
    b = (job["b"] << job["shift"]) % (1 << DIGIT * n)
    modulus = (job["m"] % (1 << WORD * job["words"]) << DIGIT) - 1 if job["with_m"] else -1
    total = a * b + (job["c"] if job["with_c"] else 0)
    quotient = -total * pow(modulus, -1, 1 << shift) % (1 << shift)
    top, rest = divmod(total + quotient * modulus, 1 << shift)
    assert rest == 0 and top < 1 << (WORD * job["words"] + 1)
    if job["high"] and job["low"]:
        return quotient + (top << (-(-shift // BEAT) * BEAT if job["with_m"] else shift))
    return top if job["high"] else quotient


class Card:
    """Memory, and jobs that read and write it. All signals are read and driven at falling edges."""

    def __init__(self, dut: Any, hinder: bool, slow_writes: float = 0.6):
        self.dut = dut
        self.random = random.Random(SEED)
        self.hinder = hinder
        self.slow_writes = slow_writes
        self.rows = int(dut.ROWS.value)
        self.memory: dict[int, int] = {}
        self.next = 1
        self.expected: dict[int, tuple[int, bool, int]] = {}
        self.left = 0
        self.tasks: list[Any] = []
        self.busy = 0
        self.done_at = 0
        dut._log.warning("SEED=%d", SEED)

    async def start(self, cycles: int = 2) -> None:
        """Reset for some cycles, and serve the ports."""
        for task in self.tasks:
            task.cancel()
        dut = self.dut
        if not self.tasks:
            cocotb.start_soon(Clock(dut.clk, CYCLE, "ns").start())
        await FallingEdge(dut.clk)
        dut.reset.value = 1
        dut.job_valid.value = dut.read_ready.value = dut.write_ready.value = dut.beat_valid.value = 0
        self.pending: list[tuple[int, int, int]] = []
        self.asked, self.done = Event(), Event()
        self.expected, self.left = {}, 0
        for _ in range(cycles):
            await FallingEdge(dut.clk)
        dut.reset.value = 0
        self.tasks = [cocotb.start_soon(port) for port in (self.reads(), self.beats(), self.writes())]

    async def idle(self, chance: float) -> None:
        """Let some cycles go by if this run hinders the ports."""
        while self.hinder and self.random.random() < chance:
            await FallingEdge(self.dut.clk)

    async def until(self, signal: Any) -> None:
        """Go to the first falling edge at which a signal is high; if it is now, stay."""
        while not int(signal.value):
            await RisingEdge(signal)
            await FallingEdge(self.dut.clk)

    async def reads(self) -> None:
        dut = self.dut
        while True:
            await self.until(dut.read_valid)
            await self.idle(0.5)
            latency = self.random.choice([1, 5, 100, self.random.randrange(300)]) if self.hinder else 100
            dut.read_ready.value = 1
            self.pending.append((cycles() + latency, int(dut.read_at.value), int(dut.read_length.value)))
            self.asked.set()
            await FallingEdge(dut.clk)
            dut.read_ready.value = 0

    async def beats(self) -> None:
        dut = self.dut
        while True:
            if not self.pending:
                self.asked.clear()
                await self.asked.wait()
                await FallingEdge(dut.clk)
            due, at, length = self.pending.pop(0)
            if due > cycles():
                await ClockCycles(dut.clk, due - cycles(), FallingEdge)
            for beat in range(length):
                await self.idle(0.3)
                dut.beat_data.value = self.memory[at + beat]
                dut.beat_valid.value = 1
                await FallingEdge(dut.clk)
                dut.beat_valid.value = 0

    async def writes(self) -> None:
        dut = self.dut
        while True:
            await self.until(dut.write_valid)
            await self.idle(self.slow_writes)
            at, last, tag = int(dut.write_at.value), bool(int(dut.write_last.value)), int(dut.write_tag.value)
            data, is_last, of = self.expected.pop(at)
            assert int(dut.write_data.value) == data, f"beat {at}: {int(dut.write_data.value):x} for {data:x}"
            assert (last, not last or tag) == (is_last, not is_last or of)
            dut.write_ready.value = 1
            await FallingEdge(dut.clk)
            dut.write_ready.value = 0
            if last:
                self.left -= 1
                self.done_at = cycles()
                self.done.set()

    def put(self, number: int, length: int) -> int:
        """Put a number into memory; return where."""
        at, self.next = self.next, self.next + length
        assert number < 1 << BEAT * length
        for beat in range(length):
            self.memory[at + beat] = number >> BEAT * beat & ((1 << BEAT) - 1)
        return at

    async def give(self, job: dict[str, int]) -> None:
        """Give a job to the array, and expect what it is to write."""
        dut, rng = self.dut, self.random
        result, tag = product(job, self.rows), rng.randrange(1 << 4)
        fields = {name: job[name] for name in ("words", "passes", "shift", "with_c", "with_m", "high", "low")}
        for name in "abcm":
            fields[f"{name}_length"], fields[f"{name}_at"] = rng.randrange(256), rng.getrandbits(32)
            if name in "ab" or job[f"with_{name}"]:
                length = job.get(f"{name}_length") or max(1, -(-job[name].bit_length() // BEAT))
                fields[f"{name}_length"], fields[f"{name}_at"] = length, self.put(job[name], length)
        length = job["d_length"]
        fields.update(d_at=self.next, d_length=length, tag=tag)
        for beat in range(length):
            part = result >> BEAT * beat & ((1 << BEAT) - 1)
            self.expected[self.next + beat] = part, beat == length - 1, tag
        self.next += length
        self.left += 1
        await self.until(dut.job_ready)
        await self.idle(0.3)
        for name, field in fields.items():
            getattr(dut, f"job_{name}").value = field
        dut.job_valid.value = 1
        await FallingEdge(dut.clk)
        dut.job_valid.value = 0

    async def finish(self) -> None:
        """Wait until all jobs are done, and see that nothing follows."""
        while self.left:
            self.done.clear()
            await self.done.wait()
        assert not self.expected
        # Quotients may be written while the last words of their number are still in the rows.
        await ClockCycles(self.dut.clk, 500, FallingEdge)
        assert not int(self.dut.write_valid.value) and not int(self.dut.busy.value)

    async def watch(self) -> None:
        """Sum up the busy rows of all cycles."""
        then, rows = cycles(), int(self.dut.busy.value)
        while True:
            await ValueChange(self.dut.busy)
            now = cycles()
            self.busy += rows * (now - then)
            then, rows = now, int(self.dut.busy.value)


def cycles() -> int:
    """Return the number of this cycle."""
    return int(get_sim_time("ns")) // CYCLE


def in_time(bits: int, rows: int) -> bool:
    """Return whether 64 passes are enough for a product modulo a number of so many bits."""
    return DIGIT * (64 * rows - 1) >= bits + 20


def montgomery(rng: random.Random, bits: int, rows: int, **fields: int) -> dict[str, int]:
    """Return a product modulo a number of so many bits, of a and b below 2 · M′."""
    m = rng.choice([(1 << bits) - 1, (1 << (bits - 1)) + 1, rng.getrandbits(bits)]) | 1 | 1 << (bits - 1)
    k = -pow(m, -1, 1 << DIGIT) % (1 << DIGIT)
    top = 2 * k * m - 1
    job = {
        "a": rng.choice([0, 1, top, *[rng.randrange(top + 1)] * 5]),
        "b": rng.choice([0, 1, top, *[rng.randrange(top + 1)] * 5]),
        "m": (k * m + 1) >> DIGIT,
        "c": 0, "with_c": 0, "with_m": 1, "high": 1, "low": 0, "shift": 0,
        "words": -(-(bits + 35) // WORD),
        "passes": -(-(-(-(bits + 20) // DIGIT) + 1) // rows),
        "d_length": -(-(bits + 18) // BEAT),
        **fields,
    }
    if job["high"] and not job["low"] and not job["with_c"] and not job["shift"]:
        assert product(job, rows) < 2 * k * m
    return job


def anything(rng: random.Random, rows: int, words: int, passes: int) -> dict[str, int]:
    """Return a job of one of all kinds whose numbers fit."""
    most = 1 << (WORD * words - 16)
    digits = DIGIT * rows * passes
    with_m, with_c = rng.randrange(2), rng.randrange(2)
    high, low = rng.choice([(1, 0), (0, 1), (1, 1)])
    number = lambda top: rng.choice([0, 1, top, *[rng.randrange(top + 1)] * 4])  # noqa: E731
    m = number(most // 2) if with_m else 0
    shift = rng.choice([0, 0, rng.randrange(64), rng.randrange(digits + 100), rng.choice([64, 8704, 65535])])
    job = {
        "a": number(most - 1 - m), "b": number((1 << min(digits, 32 * BEAT)) - 1), "c": number(most - 1),
        "m": m,
        "with_m": with_m, "with_c": with_c, "high": high, "low": low, "words": words, "passes": passes,
        "shift": shift, "d_length": rng.randint(1, min(32, 2 + (digits + WORD * words) // BEAT)),
    }
    # Beats above an operand, with something in them that does not count; of b, what is shifted out does not.
    for name in "abcm":
        length = max(1, -(-job[name].bit_length() // BEAT))
        job[f"{name}_length"] = length = min(32, length + rng.choice([0, 0, 1, 3]))
        if name in "am" and BEAT * length > WORD * words and rng.random() < 0.3:
            job[name] |= rng.getrandbits(BEAT * length - WORD * words) << WORD * words
        if name == "b" and BEAT * length > digits and rng.random() < 0.3:
            job[name] |= rng.getrandbits(BEAT * length - digits) << digits
    return job


async def run(card: Card, jobs: list[dict[str, int]]) -> None:
    """Have jobs done."""
    for job in jobs:
        await card.give(job)
    await card.finish()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def products_of_all_sizes(dut: Any) -> None:
    card = Card(dut, hinder=True)
    await card.start()
    for bits, number in ((64, 24), (520, 8), (1024, 6), (2048, 4), (4096, 2)):
        if in_time(bits, card.rows):
            await run(card, [montgomery(card.random, bits, card.rows) for _ in range(number)])
    jobs = [montgomery(card.random, bits, card.rows) for bits in (64, 520, 1024, 2048) for _ in range(4)]
    if in_time(8192, card.rows):
        jobs += [montgomery(card.random, 8192, card.rows, shift=shift) for shift in (0, 64)]
    card.random.shuffle(jobs)
    await run(card, jobs)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def the_largest_values(dut: Any) -> None:
    card = Card(dut, hinder=True)
    await card.start()
    jobs = []
    for bits in (64, 520, 1024):
        job = montgomery(card.random, bits, card.rows)
        top = 2 * ((job["m"] << DIGIT) - 1) - 1
        jobs += [{**job, "a": x, "b": y} for x in (0, top) for y in (0, top)]
    for words, passes in ((2, 1), (22, 3), (60, 9)):
        digits = DIGIT * card.rows * passes
        ones = (1 << (WORD * words - 16)) - 1
        plain = {"a": ones, "b": (1 << digits) - 1, "c": ones, "m": 0, "with_c": 1, "with_m": 0, "shift": 0,
                 "words": words, "passes": passes, "d_length": 1 + (digits + WORD * words) // BEAT}
        jobs += [{**plain, "high": high, "low": low} for high, low in ((1, 0), (0, 1), (1, 1))]
        half = ones // 2
        jobs += [{**plain, "with_m": 1, "a": half, "m": half, "high": 1, "low": 1}]
    await run(card, jobs)


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def all_kinds_of_jobs_mixed(dut: Any) -> None:
    card = Card(dut, hinder=True)
    await card.start()
    rng = card.random
    sizes = [(rng.randint(2, 12), rng.randint(1, 4)) for _ in range(120)]
    sizes += [(rng.randint(2, 60), rng.randint(1, 9)) for _ in range(50)]
    sizes += [(rng.randint(2, 320), rng.randint(1, 6)) for _ in range(12)]
    sizes += [(320, 2), (320, 1), (2, 64), (2, 1), (320, 1)]
    rng.shuffle(sizes)
    await run(card, [anything(rng, card.rows, *size) for size in sizes])
    # The largest size of all, every part of it written.
    job = anything(rng, card.rows, 320, 64)
    await run(card, [{**job, "high": 1, "low": 1, "d_length": 32}])


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def results_wait_for_a_slow_memory(dut: Any) -> None:
    card = Card(dut, hinder=True, slow_writes=0.995)
    await card.start()
    rng = card.random
    sizes = [(rng.choice([320, 319, 200]), rng.choice([1, 1, 2])) for _ in range(16)] + [(4, 1)] * 40
    jobs = [anything(rng, card.rows, *size) for size in sizes]
    await run(card, [{**job, "high": 1, "d_length": rng.randint(1, 10)} for job in jobs])


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def operands_of_the_most_beats_wait_for_room(dut: Any) -> None:
    card = Card(dut, hinder=True)
    await card.start()
    rng = card.random
    longest = {"a_length": 32, "b_length": 32, "c_length": 32, "m_length": 32}
    await run(card, [anything(rng, card.rows, rng.randint(2, 320), 1) | longest for _ in range(12)])


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def a_reset_amid_work_leaves_an_array_that_works(dut: Any) -> None:
    card = Card(dut, hinder=True)
    await card.start()
    rng = card.random
    for turn in range(40):
        # Short numbers, so that one begins every few cycles.
        words = 50 if turn < 6 else 4
        jobs = [anything(rng, card.rows, rng.randint(2, words), 4) for _ in range(20)]
        given = cocotb.start_soon(give_all(card, jobs))
        await ClockCycles(dut.clk, rng.randint(1, 2500 if turn < 6 else 300))
        given.cancel()
        # One cycle is what the host's reset takes.
        await card.start(1)
        await run(card, [anything(rng, card.rows, rng.randint(2, 50), rng.randint(1, 4)) for _ in range(4)])


async def give_all(card: Card, jobs: list[dict[str, int]]) -> None:
    """Give jobs, and do not wait for them."""
    for job in jobs:
        await card.give(job)


async def count(dut: Any, card: Card, bits: int, jobs: int) -> tuple[float, float]:
    """Return the multiplier-cycles of one product, first job to last beat, and the busy share of multipliers."""
    begun, busy = cycles(), card.busy
    await run(card, [montgomery(card.random, bits, card.rows) for _ in range(jobs)])
    took = card.done_at - begun
    cost = 2 * card.rows * took / jobs
    share = 100 * (card.busy - busy) / (card.rows * took)
    dut._log.warning("COUNT %d products of %d bits: %.1f cycles and %.0f multiplier-cycles each, %.2f %% of"
                     " multipliers busy", jobs, bits, took / jobs, cost, share)
    return cost, share


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def cycles_of_a_product(dut: Any) -> None:
    """Memory answers after 100 cycles."""
    card = Card(dut, hinder=False)
    await card.start()
    watch = cocotb.start_soon(card.watch())
    costs = {bits: await count(dut, card, bits, jobs)
             for bits, jobs in ((64, 100), (520, 100), (1024, 100), (2048, 100), (4096, 40), (8192, 10))
             if in_time(bits, card.rows)}
    watch.cancel()
    if card.rows == 8:
        assert costs[2048][0] <= 21_500 and costs[4096][0] <= 80_000, costs
        assert costs[520][1] > 95 and all(costs[bits][1] > 98 for bits in (1024, 2048, 4096, 8192)), costs
