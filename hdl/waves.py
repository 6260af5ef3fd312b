"""Pictures of signals, cycle by cycle: a product in an array, and a descriptor in the card.

`run.py waves` runs this as a bench over both models. Nothing in it is random: a picture changes with the hardware only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from html import escape
from itertools import accumulate, count, groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import cocotb
import test_array
import test_card
from card_model import BEAT, REGISTERS, descriptor
from cocotb.triggers import ClockCycles, FallingEdge, ReadOnly, RisingEdge

PICTURES = Path(__file__).resolve().parent / "pictures"
# A product modulo a number of so many bits, and the seed of its operands.
BITS, SEED = 512, 1

# Pixels: of the picture and its margins, of signals, and of letters, which are at most so wide in most fonts.
WIDTH, NAMES, RIGHT, BREAK = 1200, 160, 16, 30
ROW, WAVE, HEAD, LANE, LETTER, SMALL = 23, 15, 21, 17, 6.6, 5.9
# Cycles that are shown before and after a change, and the fewest that are worth leaving out.
BEFORE, AFTER, FEWEST = 3, 11, 14
STYLE = """
    svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; font-size: 12px }
    .paper { fill: #ffffff; stroke: #d0d7de }  .room { fill: #f3f5f7 }  .cut { fill: #ffffff }  .high { fill: #ccfbf1 }
    .band { fill: #ccfbf1; stroke: #0f766e }  .idle { stroke: #b6bec6 }  .grid { stroke: #e3e7eb }
    text { fill: #1f2328 }
    .line { fill: none; stroke: #1f2328; stroke-width: 1.3 }  .edge { fill: none; stroke: #8c959f }
    .mark { stroke: #b3261e; stroke-dasharray: 4 3 }  .caption { fill: #b3261e }  .head { font-weight: 600 }
    .value, .beside, .quiet { font-size: 11px }  .quiet { fill: #57606a }  .value, .middle { text-anchor: middle }"""


class Row(NamedTuple):
    """A signal as it is drawn: a line of one bit, or bands with labels, which are empty where there is nothing."""

    name: str
    values: list[Any]


class Trace(dict[str, list[int]]):
    """What signals are in each cycle, by their paths in the design."""

    def __init__(self, dut: Any, paths: str):
        super().__init__((path, []) for path in paths.split())
        cocotb.start_soon(self.take(dut))

    async def take(self, dut: Any) -> None:
        """Note all signals of each cycle, once what a bench drives at the falling edge is there."""
        signals = {path: dut for path in self}
        for path in self:
            for name in re.findall(r"\w+", path):
                signals[path] = signals[path][int(name)] if name.isdigit() else getattr(signals[path], name)
        while True:
            await FallingEdge(dut.clk)
            await ReadOnly()
            for path, signal in signals.items():
                self[path].append(int(signal.value))

    def both(self, paths: str) -> list[bool]:
        """Return in which cycles all of these are high."""
        return [all(values) for values in zip(*(self[path] for path in paths.split()), strict=True)]

    def lines(self, names: str, module: str = "") -> list[Row]:
        """Return signals of one bit."""
        return [Row(name, [bool(value) for value in self[module + name]]) for name in names.split()]

    def bands(self, name: str, valid: str, show: Callable[[int], str] = str) -> Row:
        """Return a signal of many bits where it is valid."""
        return Row(name, [show(n) if ok else "" for ok, n in zip(self.both(valid), self[name], strict=True)])


class Wave(NamedTuple):
    """A picture: groups of signals, what happens at which cycles, and cycles to leave out whatever changes there."""

    name: str
    title: str
    groups: dict[str, list[Row]]
    marks: list[tuple[int, str]]
    cut: range

    def parts(self, after: int) -> list[range]:
        """Return the cycles that are shown: those beside a change, from the first mark to so many after the last."""
        begin, end = self.marks[0][0] - BEFORE, self.marks[-1][0] + after
        rows = [row.values for of in self.groups.values() for row in of]
        news = {at for at in range(begin, end) if any(values[at] != values[at - 1] for values in rows)}
        news = news - set(self.cut) | {self.cut.stop}
        parts = [range(begin, begin + 1)]
        for at in [*sorted(news), end]:
            near = range(at - BEFORE, min(at + AFTER, end))
            if at == end or near.start - parts[-1].stop < FEWEST:
                near = range(parts.pop().start, near.stop)
            parts.append(near)
        return parts


def begins(values: list[Any]) -> list[int]:
    """Return the cycles in which something begins."""
    return [i for i in range(1, len(values)) if values[i] and not values[i - 1]]


def numbered(name: str, valid: list[int], show: Callable[[int], str]) -> Row:
    """Return a row of runs, the first one of which is 1."""
    starts = begins(valid)
    return Row(name, [show(sum(start <= i for start in starts)) if ok else "" for i, ok in enumerate(valid)])


def arrivals(name: str, asked: list[str], lengths: list[int], came: list[int]) -> Row:
    """Return whose beats come: they do in the order in which they were asked for."""
    beats = (owner for owner, length in zip(asked, lengths, strict=True) if owner for _ in range(length))
    return Row(name, [next(beats) if is_here else "" for is_here in came])


def words(kind: str, x: float, y: float, of: object, more: str = "") -> str:
    """Return words at a place."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{more}>{escape(str(of))}</text>'


class Drawing:
    """The SVG of a picture."""

    def __init__(self, wave: Wave):
        self.wave = wave
        self.zero = wave.marks[0][0]
        self.captions = [(at, f"{caption} · {at - self.zero}") for at, caption in wave.marks]
        # The last caption is to the right of its mark, in cycles in which nothing happens any more.
        for after in count(AFTER):
            self.parts = wave.parts(after)
            room = WIDTH - NAMES - RIGHT - BREAK * (len(self.parts) - 1)
            self.scale = room / sum(len(part) for part in self.parts)
            if after * self.scale >= LETTER * len(self.captions[-1][1]):
                break
        widths = (len(part) * self.scale + BREAK for part in self.parts[:-1])
        self.lefts = list(accumulate(widths, initial=float(NAMES)))

    def x(self, cycle: int) -> float:
        """Return where a cycle begins."""
        return next(left + (cycle - part.start) * self.scale
                    for part, left in zip(self.parts, self.lefts, strict=True) if part.start <= cycle <= part.stop)

    def svg(self) -> str:
        """Return the picture."""
        lanes = self.lanes()
        top = 40 + LANE * (1 + max(lanes))
        y = top + 24
        rooms, waves = [], []
        for name, rows in self.wave.groups.items():
            tall = HEAD + ROW * len(rows)
            rooms.append(f'<rect class="room" x="8" y="{y}" width="{WIDTH - 16}" height="{tall}" rx="5"/>')
            rooms.append(words("head", 16, y + 15, name))
            for i, row in enumerate(rows):
                base = y + HEAD + ROW * i + WAVE + 2
                rooms.append(words("", 24, base - 3, row.name))
                waves += self.row(row, base)
            y += tall + 6
        marks, captions = [], []
        for (cycle, caption), lane in zip(self.captions, lanes, strict=True):
            x, base = self.x(cycle), top - 6 - LANE * lane
            marks.append(f'<path class="mark" d="M{x:.1f} {base - 11}V{top + 2}M{x:.1f} {top + 20}V{y - 6}"/>')
            captions.append(words("caption", x + 4, base, caption))
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 2}" role="img"'
            f' aria-labelledby="title">\n<title id="title">{escape(self.wave.title)}</title>\n<style>{STYLE}\n</style>',
            f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{y + 1}" rx="10"/>', *rooms,
            words("head", 16, 26, self.wave.title), words("quiet", 16, top + 16, "cycle"), *self.ruler(top, y - 6),
            *marks, f'<clipPath id="shown"><path d="M{NAMES} 0H{WIDTH - RIGHT}V{y}H{NAMES}z"/></clipPath>',
            '<g clip-path="url(#shown)">', *waves, "</g>", *self.breaks(top, y - 6), *captions, "</svg>\n",
        ])

    def lanes(self) -> list[int]:
        """Return how high each caption is: above the marks that begin below it, so that none crosses it."""
        lanes: list[int] = []
        for cycle, caption in reversed(self.captions):
            end = self.x(cycle) + LETTER * len(caption) + 8
            under = zip(reversed(self.captions), lanes, strict=False)
            lanes.append(max((lane + 1 for (at, _), lane in under if self.x(at) < end), default=0))
        return lanes[::-1]

    def ruler(self, top: int, bottom: int) -> Iterator[str]:
        """Yield the numbers of cycles, and a grid."""
        for part in self.parts:
            for cycle in range(part.start + (self.zero - part.start) % 10, part.stop, 10):
                x = self.x(cycle)
                yield f'<path class="grid" d="M{x:.1f} {top + 20}V{bottom}"/>'
                # Not where it would reach into a break.
                if min(x - self.x(part.start), self.x(part.stop) - x) > 9:
                    yield words("quiet middle", x, top + 16, cycle - self.zero)

    def breaks(self, top: int, bottom: int) -> Iterator[str]:
        """Yield the gaps between parts, each with the number of cycles that it stands for."""
        for (before, after), right in zip(pairwise(self.parts), self.lefts[1:], strict=True):
            left_out = f"{after.start - before.stop} cycles left out"
            left, middle = right - BREAK + 1, right - BREAK / 2 + 4
            teeth = (bottom - top) // 16
            down = f"l3 {(bottom - top) / 2 / teeth:.2f}l-3 {(bottom - top) / 2 / teeth:.2f}" * teeth
            yield f'<path class="cut" d="M{left:.1f} {top + 2}{down}h{BREAK - 5}{down.replace(" ", " -")}z"/>'
            yield from (f'<path class="edge" d="M{x:.1f} {top + 2}{down}"/>' for x in (left, left + BREAK - 5))
            for y in (top + 0.3 * (bottom - top), top + 0.75 * (bottom - top)):
                yield words("quiet middle", middle, y, left_out, f' transform="rotate(-90 {middle:.1f} {y:.1f})"')

    def row(self, row: Row, base: int) -> Iterator[str]:
        """Yield a signal."""
        for part in self.parts:
            # Each value with where it begins and ends: outside of the part if it does.
            runs = []
            for value, same in groupby(part, key=row.values.__getitem__):
                cycles = list(same)
                begin, end = self.x(cycles[0]), self.x(cycles[-1] + 1)
                runs.append((value, begin - 5 * (cycles[0] == part.start), end + 5 * (cycles[-1] + 1 == part.stop)))
            yield from self.bits(runs, base) if isinstance(row.values[0], bool) else self.bands(runs, base)

    def bits(self, runs: list[tuple[bool, float, float]], base: int) -> Iterator[str]:
        """Yield a line of one bit."""
        yield from (f'<path class="high" d="M{begin:.1f} {base}v{-WAVE}H{end:.1f}v{WAVE}z"/>'
                    for value, begin, end in runs if value)
        path = "L".join(f"{begin:.1f} {base - WAVE * value}H{end:.1f}" for value, begin, end in runs)
        yield f'<path class="line" d="M{path}"/>'

    def bands(self, runs: list[tuple[str, float, float]], base: int) -> Iterator[str]:
        """Yield bands with labels in them, or beside them if there is no room."""
        y = base - WAVE / 2
        beside: list[str] = []
        for value, begin, end in runs:
            width, label = end - begin, " ".join(beside)
            if value:
                slant = min(3.0, width / 3)
                yield (f'<path class="band" d="M{begin:.1f} {y}l{slant:.1f} {-WAVE / 2}h{width - 2 * slant:.1f}'
                       f'l{slant:.1f} {WAVE / 2}l{-slant:.1f} {WAVE / 2}h{2 * slant - width:.1f}z"/>')
                fits = SMALL * len(value) + 6 <= width
                beside = [] if fits else [*beside, value]
                if fits:
                    yield words("value", (begin + end) / 2, base - 3.5, value)
                continue
            yield f'<path class="idle" d="M{begin:.1f} {y}H{end:.1f}"/>'
            room = SMALL * len(label) + 3
            if label and room + 2 <= width:
                box = f'x="{begin + 1:.1f}" y="{base - WAVE}" width="{room:.1f}" height="{WAVE}"'
                yield f'<rect class="room" {box}/>{words("beside", begin + 3, base - 3.5, label)}'
                beside = []


async def product(dut: Any) -> Wave:
    """Return a product in an array."""
    card = test_array.Card(dut, hinder=False)
    card.random = random.Random(SEED)
    await card.start()
    job = test_array.montgomery(random.Random(SEED), BITS, card.rows)
    job |= {f"{name}_length": job["d_length"] for name in "abm"}
    rows = [f"rows[{r}].valid" for r in range(card.rows)]
    trace = Trace(dut, """job_valid job_ready job_a_at job_b_at job_m_at read_valid read_ready read_at read_length
        beat_valid store.gearbox.symbol_valid ring.new_valid ring.new_taken ring.new_read ring.word_valid write_valid
        write_ready """ + " ".join(f"ring.{row}" for row in rows))
    await ClockCycles(dut.clk, 20, FallingEdge)
    await test_array.run(card, [job])

    taken = trace.both("job_valid job_ready").index(True)
    places = {trace[f"job_{name}_at"][taken]: name for name in "abm"}
    reads = trace.bands("read_at", "read_valid read_ready", places.__getitem__)
    cut = numbered("symbol", trace["store.gearbox.symbol_valid"], " amb".__getitem__)
    starts, written = begins(trace[f"ring.{rows[0]}"]), begins(trace["write_valid"])
    groups = {
        "job": trace.lines("job_valid job_ready"),
        "operands": [*trace.lines("read_valid"), reads,
                     arrivals("beat_data", reads.values, trace["read_length"], trace["beat_valid"]), cut],
        "into the ring": trace.lines("new_valid new_taken new_read", "ring."),
        "at each row": [numbered(row, trace[f"ring.{row}"], "pass {}".format) for row in rows],
        "result": [*trace.lines("word_valid", "ring."), *trace.lines("write_valid"),
                   numbered("write_data", trace["write_valid"], lambda n: f"d[{n - 1}]")],
    }
    marks = [
        (taken, "job"), (trace["beat_valid"].index(1), "operands come"), (starts[0], "pass 1"), (starts[1], "pass 2"),
        (starts[-1], f"pass {len(starts)}, the last"), (trace["ring.word_valid"].index(1), "words of the result"),
        (written[0], "its first beat"), (written[-1], "its last beat"),
    ]
    title = f"A product modulo a number of {BITS} bits: {job['words']} words, {len(starts)} passes of {card.rows} rows"
    return Wave("product", title, groups, marks, range(starts[1] + 14, starts[-1] - 2))


async def command(dut: Any) -> Wave:
    """Return a descriptor in the card."""
    card = test_card.Card(dut, SEED)
    await card.start(0)
    job = test_array.montgomery(random.Random(SEED), BITS, card.model.rows)
    length = job["d_length"]
    at = {name: card.put([job[name]], length) for name in "abm"} | {"d": card.room(length)}
    fields = {f"{name}_at": place for name, place in at.items()} | {f"{name}_length": length for name in at}
    value = descriptor("multiply", ("with_m", "high"), words=job["words"], passes=job["passes"], **fields)
    card.ram.write(BEAT * test_card.RING, value.to_bytes(BEAT, "little"))
    rows = ["ring.rows[0].valid", f"ring.rows[{card.model.rows - 1}].valid"]
    arrays = [f"arrays[{i}].array_i." for i in range(int(dut.ARRAYS.value))]
    trace = Trace(dut, """irq axil_awvalid axil_awaddr axil_wvalid axil_wdata axil_bvalid axil_arvalid axil_araddr
        axil_rvalid axil_rdata axi_arvalid axi_arready axi_araddr axi_arlen axi_rvalid axi_awvalid axi_awaddr axi_wvalid
        axi_bvalid registers.tail registers.head front.read_valid front.insert_valid scoreboard.insert_ready
        scoreboard.start scoreboard.done_valid scoreboard.retire_valid """ + " ".join(
            array + name for array in arrays for name in ("job_valid", "read_valid", "write_valid", *rows)))
    await ClockCycles(dut.clk, 20)
    await card.set("tail", 1)
    await RisingEdge(dut.irq)
    assert await card.get("head") == 1
    await ClockCycles(dut.clk, 100)

    array = next(array for array in arrays if any(trace[array + "job_valid"]))
    places = {BEAT * (at[name] + i): name for name in "abm" for i in range(length)}
    places |= {BEAT * (at["d"] + i): f"d[{i}]" for i in range(length)}
    registers = {place: name for name, place in REGISTERS.items()}
    ring = BEAT * test_card.RING
    reads = trace.bands("axi_araddr", "axi_arvalid axi_arready", (places | {ring: "descriptor"}).__getitem__)
    passes = [numbered(row[5:], trace[array + row], "pass {}".format) for row in rows]
    over = begins([not label for label in passes[1].values])[-1]
    groups = {
        "AXI4-Lite: the host": [
            trace.bands("axil_awaddr", "axil_awvalid", registers.__getitem__), trace.bands("axil_wdata", "axil_wvalid"),
            *trace.lines("axil_bvalid"),
            trace.bands("axil_araddr", "axil_arvalid", registers.__getitem__), trace.bands("axil_rdata", "axil_rvalid"),
        ],
        "registers": [*(Row(name, [str(n) for n in trace[f"registers.{name}"]]) for name in ("tail", "head")),
                      *trace.lines("irq")],
        "front": trace.lines("read_valid insert_valid", "front."),
        "scoreboard": trace.lines("insert_ready start done_valid retire_valid", "scoreboard."),
        "array": [*trace.lines("job_valid read_valid", array), *passes, *trace.lines("write_valid", array)],
        "AXI4: card memory": [
            reads, arrivals("axi_rdata", reads.values, [n + 1 for n in trace["axi_arlen"]], trace["axi_rvalid"]),
            trace.bands("axi_awaddr", "axi_awvalid", (places | {ring: "status"}).__getitem__),
            *trace.lines("axi_wvalid axi_bvalid"),
        ],
    }
    events = {
        "axil_awvalid": "the host writes the tail", "front.read_valid": "the front reads the descriptor",
        "front.insert_valid": "the scoreboard looks for hazards", "scoreboard.start": "it starts the descriptor",
        array + rows[0]: "pass 1", f"{array}write_valid": "the result", "scoreboard.done_valid": "it is in memory",
        "irq": "interrupt", "axil_arvalid": "the host reads the head",
    }
    marks = [(begins(trace[path])[0], caption) for path, caption in events.items()]
    title = f"A descriptor: one product modulo a number of {BITS} bits"
    return Wave("descriptor", title, groups, marks, range(trace[array + rows[0]].index(1) + 8, over - 6))


@cocotb.test()
async def picture(dut: Any) -> None:
    """Draw what this design does."""
    wave = await {"array": product, "card": command}[dut._name](dut)
    (PICTURES / f"{wave.name}.svg").write_text(Drawing(wave).svg(), encoding="utf-8")
