#!/usr/bin/env python3
"""What NVIDIA's own compiler makes of the GPU kernels for a Hopper card (sm_90). No card is needed.

    python3 benches/sass.py --tools DIR --install              # once: puts the tools into DIR, 3 minutes
    python3 benches/sass.py --tools DIR                        # the kernels that matter most, 45 seconds
    python3 benches/sass.py --tools DIR pair_pow mont_mul:4x18 # some, or one of another shape (TEAM x LIMBS)
    python3 benches/sass.py --tools DIR --all                  # each kernel once: does each compile?

For each kernel: registers, spills, and the instructions (SASS) of its hot loop, the one with the most products to
64 bits; loops inside a loop are no part of it. naga makes Metal of a shader, regular expressions CUDA of that, nvcc PTX
and ptxas SASS; `--keep DIR` leaves all of these there. Installing takes cargo, pip and venv, compiling g++.

It does not show what a card runs. The Vulkan driver has a compiler of its own, from SPIR-V. As far as is known both
share their back end, so this shows what such compilers do with our text, and where they stumble: registers that
spill, arrays that go to memory, products of 64 bits that are not seen to be of numbers of 32 bits. It measures nothing,
and moves, of which there are more or fewer for a word in the text, shift its rates by some per cent.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# naga as the engine has it, and one version of all parts of the compiler.
NAGA = "30.0.1"
CUDA = "13.5.37"
PACKAGES = ["cuda-nvcc", "cuda-crt", "nvvm", "cuda-nvdisasm", "cuda-cuobjdump", "cuda-runtime"]
CARD = "sm_90"

# An H200 by its maker's tables: multiprocessors, cycles a second, and how many instructions of a warp one of them takes
# a cycle: of any kind, products to 64 bits (IMAD.WIDE), and other IMAD. The tables do not tell the second from the
# third: that a product to 64 bits takes the place of two is taken for granted.
MULTIPROCESSORS = 132
CLOCK = 1.98e9
ISSUED = 4
WIDE_PRODUCTS = 1
OTHER_PRODUCTS = 2
# Threads of a workgroup over big numbers: one warp.
WARP = 32
# Limbs of one factor that a round of the loop takes.
LIMBS_A_ROUND = 2
# By kernel: rounds beside those, and products to 64 bits that a round takes for each limb. Of pairs those of a product,
# though the loop has squares as well.
EXTRA_ROUNDS = {"mont_mul": 0, "pair_pow": 1}
PRODUCTS_A_LIMB = {"mont_mul": 4, "pair_pow": 10}

DEFAULT_ROWS = """
    mont_mul:2x18 mont_mul:4x18 mont_mul:8x14 mont_mul:8x18 mont_mul:16x14 mont_mul:16x18
    pair_pow:2x14 pair_pow:2x18 pair_pow:4x14 pair_pow:4x18 pair_pow:8x14 pair_pow:8x18
    ntt intt poly_mul pow:8x18 reduce:8x18 pair_table:4x18 invert:16x18""".split()
# Numbers of 4096 bits, by how many digits a residue has.
USUAL_SHAPES = {1: "8x18", 2: "4x18"}

# What naga's Metal takes for granted, in CUDA. Vectors have a default constructor that does nothing: what is in
# memory of a workgroup must not have another.
SHIM = """\
#define INLINE __device__ __forceinline__
#define naga_div(a, b) ((a) / (b))
#define naga_mod(a, b) ((a) % (b))
template <class T, class U> INLINE T as_type(U x) { return reinterpret_cast<T&>(x); }
namespace metal {
typedef unsigned int uint;
template <class T> struct alignas(2 * sizeof(T)) vec2 {
    typedef T part; T x, y;
    vec2() = default;
    INLINE vec2(T x, T y) : x(x), y(y) {}
    INLINE vec2(T a) : vec2(a, a) {}
    template <class U> INLINE explicit vec2(vec2<U> a) : vec2(T(a.x), T(a.y)) {}
};
template <class T> struct vec3 {
    typedef T part; T x, y, z;
    vec3() = default;
    INLINE vec3(T x, T y, T z) : x(x), y(y), z(z) {}
    INLINE vec3(T a) : vec3(a, a, a) {}
    INLINE vec3(vec2<T> a, T z) : vec3(a.x, a.y, z) {}
    template <class U> INLINE explicit vec3(vec3<U> a) : vec3(T(a.x), T(a.y), T(a.z)) {}
};
template <class T> struct alignas(4 * sizeof(T)) vec4 {
    typedef T part; T x, y, z, w;
    vec4() = default;
    INLINE vec4(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
    INLINE vec4(T a) : vec4(a, a, a, a) {}
    INLINE vec4(vec2<T> a, vec2<T> b) : vec4(a.x, a.y, b.x, b.y) {}
    INLINE T operator[](uint i) const { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
};
template <class F, class T, class... V> INLINE auto each(F f, vec2<T> a, V... b)
    { return vec2<decltype(f(a.x, b.x...))>(f(a.x, b.x...), f(a.y, b.y...)); }
template <class F, class T, class... V> INLINE auto each(F f, vec3<T> a, V... b)
    { return vec3<decltype(f(a.x, b.x...))>(f(a.x, b.x...), f(a.y, b.y...), f(a.z, b.z...)); }
template <class F, class T, class... V> INLINE auto each(F f, vec4<T> a, V... b)
    { return vec4<decltype(f(a.x, b.x...))>(f(a.x, b.x...), f(a.y, b.y...), f(a.z, b.z...), f(a.w, b.w...)); }
// The second operand may be a number, which becomes a vector.
template <class V> struct Same { typedef V type; };
#define OPERATOR(op) template <class V, class = typename V::part> \\
    INLINE auto operator op(V a, typename Same<V>::type b) { return each([](auto p, auto q) { return p op q; }, a, b); }
OPERATOR(+) OPERATOR(-) OPERATOR(*) OPERATOR(&) OPERATOR(|) OPERATOR(^) OPERATOR(<<) OPERATOR(>>)
OPERATOR(<) OPERATOR(>) OPERATOR(<=) OPERATOR(>=) OPERATOR(==) OPERATOR(!=)
template <class V, class = typename V::part> INLINE V operator-(V a) { return V(0) - a; }
template <class T> INLINE T select(T a, T b, bool c) { return c ? b : a; }
template <class V, class B, class = typename B::part> INLINE V select(V a, V b, B c)
    { return each([](auto p, auto q, bool c) { return c ? q : p; }, a, b, c); }
template <class T> INLINE T min(T a, T b) { return a < b ? a : b; }
template <class T> INLINE T max(T a, T b) { return a > b ? a : b; }
INLINE uint clz(uint x) { return __clz(x); }
INLINE uint popcount(uint x) { return __popc(x); }
INLINE uint reverse_bits(uint x) { return __brev(x); }
typedef uint atomic_uint;
enum { memory_order_relaxed };
INLINE uint atomic_load_explicit(const volatile uint* at, int) { return *at; }
INLINE void atomic_store_explicit(volatile uint* at, uint x, int) { *at = x; }
INLINE uint atomic_fetch_or_explicit(uint* at, uint x, int) { return atomicOr(at, x); }
enum mem_flags { mem_device, mem_threadgroup };
INLINE void threadgroup_barrier(mem_flags) { __syncthreads(); }
typedef vec2<uint> uint2; typedef vec3<uint> uint3; typedef vec4<uint> uint4;
typedef vec2<int> int2; typedef vec3<int> int3; typedef vec4<int> int4;
typedef vec2<bool> bool2; typedef vec3<bool> bool3; typedef vec4<bool> bool4;
}
"""

# What Metal hands to a kernel, by attributes of parameters.
BUILTINS = {
    "thread_index_in_threadgroup": "threadIdx.x",
    "threadgroup_position_in_grid": "metal::uint3(blockIdx.x, blockIdx.y, blockIdx.z)",
    "threadgroups_per_grid": "metal::uint3(gridDim.x, gridDim.y, gridDim.z)",
}


class Failed(Exception):
    """A tool did not do its work: what it said."""


class Kernel(NamedTuple):
    file: str
    libraries: list[str]

    def has_teams(self) -> bool:
        return "montgomery" in self.libraries

    def digits(self) -> int:
        return 1 + ("pair" in self.libraries)

    def text(self, limbs: str) -> str:
        """As `Kernel::text` of the engine, over integers of 64 bits."""
        parts = [shader("wide_native")] if self.libraries else []
        if self.has_teams():
            parts.append(f"const LIMBS: u32 = {limbs}u;\nconst DIGITS: u32 = {self.digits()}u;\n")
        return "\n".join(parts + [shader(file) for file in (*self.libraries, self.file)])


class Instruction(NamedTuple):
    address: int
    opcode: str
    operands: str


class Result(NamedTuple):
    registers: int
    spilled: int
    loop: Counter[str]
    remarks: list[str]


def shader(file: str) -> str:
    return (ROOT / "shaders" / f"{file}.wgsl").read_text()


def kernels() -> dict[str, Kernel]:
    """The kernels and what stands before each, out of the engine's own table."""
    source = (ROOT / "accel/src/gpu/shaders.rs").read_text()
    files = dict(re.findall(r'Self::(\w+) => include_str!\(".*/(\w+)\.wgsl"\)', source))
    found = {}
    for name, file, libraries in re.findall(r'(\w+) = "(\w+)" after &\[(.*?)\]', source, re.S):
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        found[snake] = Kernel(file, [files[library] for library in re.findall(r"Library::(\w+)", libraries)])
    return found


def cuda(metal: str) -> str:
    """naga's Metal as CUDA, without what the engine tells wgpu to leave out."""
    text = re.sub(r"#include.*\n|using metal::uint;\n", "", metal)
    # Bounds of loops; zeros in memory of the workgroup; functions that check divisors, for which there are macros.
    text = re.sub(r".*\bloop_bound.*\n", "", text)
    zeros = r"    if \(index == 0u\) \{\n {8}(?:\w+ = \{\};|for \(int __i0 .*)\n(?: {8}.*\n)*    \}\n.*barrier.*\n"
    text = re.sub(zeros, "", text)
    text = re.sub(r"^\w+ naga_(div|mod)\(.*?^\}\n", "", text, flags=re.M | re.S)
    # What a loop does after each round goes where compilers look for it.
    steps = r" *bool (loop_init\w*) = true;\n( *)while\(true\) \{\n *if \(!\1\) \{\n(.*?)\n\2    \}\n *\1 = false;\n"
    text = re.sub(steps, lambda loop: f"{loop[2]}for (;; [&] {{ {' '.join(loop[3].split())} }}()) {{\n", text,
                  flags=re.S)
    # Buffers are pointers: of an array of one element nobody reads a second.
    text = re.sub(r"typedef ([\w:]+) (\w+)\[1\];", r"typedef \1* __restrict__ \2;", text)
    text = re.sub(r"\b(\w+)\.(xy|zw)\b",
                  lambda of: f"metal::vec2<decltype({of[1]}.x)>({of[1]}.{of[2][0]}, {of[1]}.{of[2][1]})", text)
    text = re.sub(r"^([\w:]+ \w+\()", r"INLINE \1", text, flags=re.M)
    # A reference of CUDA is to whatever memory.
    text = re.sub(r"\b(thread|device|threadgroup) ", "", kernel_head(text))
    return SHIM + re.sub(r"\bconstant ", "const ", text)


def kernel_head(text: str) -> str:
    """Built-in values and memory of the workgroup become variables, all else stay parameters."""
    head = re.search(r"\[\[max_total_threads_per_threadgroup\((\d+)\)\]\] kernel void (\w+)\((.*?)\n\) \{\n", text, re.S)
    if not head:
        raise Failed("naga's Metal has a kernel of an unknown form")
    parameters, variables = [], []
    for line in re.split(r"\n[ ,]*", head[3].strip()):
        declared, attribute = line.rstrip("]").split(" [[") if "[[" in line else (line, "")
        kind, name = declared.replace("&", "").rsplit(" ", 1)
        if attribute in BUILTINS:
            variables.append(f"    {declared} = {BUILTINS[attribute]};\n")
        elif kind.startswith("threadgroup "):
            variables.append(f"    __shared__ {kind} {name};\n")
        else:
            parameters.append(f"{kind} {name}")
    # One block a multiprocessor at least, that is any: else ptxas spills to have twelve.
    start = f'extern "C" __global__ void __launch_bounds__({head[1]}, 1) {head[2]}({", ".join(parameters)}) {{\n'
    return text[:head.start()] + start + "".join(variables) + text[head.end():]


def instructions(sass: str) -> list[Instruction]:
    lines = re.findall(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@\S+ )?([^\s;]+) *([^;\n]*);", sass, re.M)
    return [Instruction(int(address, 16), opcode, operands) for address, opcode, operands in lines]


def loops(code: list[Instruction]) -> list[list[Instruction]]:
    """Each loop, without the loops inside it. Where there is none, all of the code."""
    place = {instruction.address: i for i, instruction in enumerate(code)}
    # From where a branch goes back to, up to the last branch that goes there.
    spans: dict[int, range] = {}
    for i, (_, opcode, operands) in enumerate(code):
        if opcode.startswith("BRA"):
            start = place[int(operands.split("0x")[-1], 16)]
            # Behind its end the code has a branch to itself.
            if start < i:
                spans[start] = range(start, i + 1)
    found = []
    for span in spans.values():
        inside = [other for start, other in spans.items() if start in span and start != span.start]
        found.append([code[i] for i in span if not any(i in other for other in inside)])
    return found or [code]


def count(code: list[Instruction]) -> Counter[str]:
    """Instructions, as the table tells them apart."""
    def kind(opcode: str) -> str:
        if opcode.startswith("IMAD"):
            return "wide" if "WIDE" in opcode else "narrow"
        return "shared" if opcode.startswith(("LDS", "STS")) else "other"
    return Counter(kind(instruction.opcode) for instruction in code if instruction.opcode != "NOP")


def long_products(ptx: str, source: str) -> list[str]:
    """Where PTX multiplies numbers of 64 bits: functions, and what called them."""
    owners, owner = [""], ""
    for line in source.splitlines():
        if head := re.match(r"INLINE .*?(\w+)\(|extern .* (\w+)\(const", line):
            owner = head[1] or head[2]
        owners.append(owner)
    found: Counter[str] = Counter()
    for line in ptx.splitlines():
        if at := re.match(r"\s*\.loc\s+1 (\d+) \d+(?:.*inlined_at \d+ (\d+))?", line):
            where = owners[int(at[1])] + (f" of {owners[int(at[2])]}" if at[2] else "")
        elif re.search(r"\bmul\.lo\.[su]64", line):
            found[where] += 1
    places = ", ".join(f"{times} in {where}" for where, times in found.most_common())
    return [f"in PTX mul.lo.s64, {places}"] * bool(found)


def run(*words: str | Path) -> str:
    """What a command says. Those of the compiler call each other."""
    path = f"{Path(words[0]).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PATH": path})
    if ran.returncode:
        raise Failed(f"{Path(words[0]).name}: {ran.stderr.strip() or f'exit code {ran.returncode}'}")
    return ran.stdout + ran.stderr


class Tools:
    def __init__(self, place: Path):
        self.naga = place / "bin/naga"
        self.compiler = next(place.glob("lib/python*/site-packages/nvidia/cu*/bin"), place / "bin")

    def missing(self) -> list[str]:
        wanted = [self.naga, *(self.compiler / name for name in ("nvcc", "ptxas", "cuobjdump", "nvdisasm"))]
        return [path.name for path in wanted if not path.exists()] + ["g++"] * (not shutil.which("g++"))

    def compiled(self, kernel: Kernel, shape: str, stem: Path) -> Result:
        """`stem` is what files are called there, but for what they end in."""
        file = {kind: stem.with_suffix(f".{kind}") for kind in ("wgsl", "metal", "cu", "ptx", "cubin", "sass")}
        team, _, limbs = shape.partition("x")
        file["wgsl"].write_text(kernel.text(limbs))
        sizes = ["--override", f"TEAM={team}"] if kernel.has_teams() else []
        run(self.naga, "--metal-version", "2.4", *sizes, file["wgsl"], file["metal"])
        source = cuda(file["metal"].read_text())
        file["cu"].write_text(source)
        # Lines in PTX tell where products come from, and change nothing.
        run(self.compiler / "nvcc", f"-arch={CARD}", "-w", "-lineinfo", "-ptx", "-o", file["ptx"], file["cu"])
        told = run(self.compiler / "ptxas", f"-arch={CARD}", "-v", "-o", file["cubin"], file["ptx"])
        sass = run(self.compiler / "cuobjdump", "-sass", file["cubin"])
        file["sass"].write_text(sass)
        loop = max(loops(instructions(sass)), key=lambda loop: count(loop)["wide"])
        registers, stack, *spilled = (sum(map(int, re.findall(rf"(\d+) {what}", told))) for what in (
            "registers", "bytes stack", "bytes spill stores", "bytes spill loads"))
        remarks = [f"{stack} bytes of stack"] * bool(stack)
        for opcodes, what in (("LDL|STL", "accesses to local memory"), (r"MUFU\.RCP|CALL", "divisions or calls"),
                              (r"IMAD\.HI", "IMAD.HI among other IMAD")):
            times = sum(bool(re.match(opcodes, instruction.opcode)) for instruction in loop)
            remarks += [f"{times} {what}"] * bool(times)
        remarks += long_products(file["ptx"].read_text(), source)
        return Result(registers, sum(spilled), count(loop), remarks)


def bound(name: str, shape: str, loop: Counter[str]) -> str:
    """Millions of products a second at most, of an H200 with this loop: derived from its instructions, not measured."""
    if name not in EXTRA_ROUNDS:
        return ""
    team, limbs = map(int, shape.split("x"))
    # Compilers may put several rounds into one turn of the loop.
    rounds_a_turn = max(1, round(loop["wide"] / (PRODUCTS_A_LIMB[name] * limbs)))
    turns = (team * limbs / LIMBS_A_ROUND + EXTRA_ROUNDS[name]) / rounds_a_turn
    cycles = max(loop.total() / ISSUED, loop["wide"] / WIDE_PRODUCTS + loop["narrow"] / OTHER_PRODUCTS)
    return f"{MULTIPROCESSORS * CLOCK * (WARP // team) / (turns * cycles) / 1e6:.0f}"


def install(place: Path) -> None:
    commands: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", place],
        [place / "bin/pip", "install", *(f"nvidia-{package}=={CUDA}" for package in PACKAGES)],
        [shutil.which("cargo") or sys.exit("cargo: not found"),
         "install", "naga-cli", "--version", NAGA, "--locked", "--root", place],
    ]
    for command in commands:
        if subprocess.run(command).returncode:
            sys.exit(f"{Path(command[0]).name}: failed")


def arguments(known: dict[str, Kernel]) -> argparse.Namespace:
    summary, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=summary, epilog=more,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, required=True, metavar="DIR", help="where the tools are")
    parser.add_argument("--install", action="store_true", help="put them there first")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave all texts there")
    parser.add_argument("--all", action="store_true", help="each kernel once, at its usual shape")
    parser.add_argument("rows", nargs="*", metavar="KERNEL[:TEAMxLIMBS]", help=", ".join(known))
    args = parser.parse_args()
    for row in args.rows:
        name, _, shape = row.partition(":")
        if name not in known or ":" in row and not (known[name].has_teams() and re.fullmatch(r"\d+x\d+", shape)):
            parser.error(f"there is no kernel {row}")
    return args


def wanted(args: argparse.Namespace, known: dict[str, Kernel]) -> list[str]:
    """Kernels, those over big numbers with shapes. A name alone stands for its default rows, or has the usual shape."""
    def rows(name: str, defaults: list[str]) -> list[str]:
        if ":" in name or not known[name].has_teams():
            return [name]
        return [row for row in defaults if row.startswith(f"{name}:")] or [f"{name}:{USUAL_SHAPES[known[name].digits()]}"]
    names, defaults = (known, []) if args.all else (args.rows, DEFAULT_ROWS)
    return [row for name in names for row in rows(name, defaults)] or DEFAULT_ROWS


def main() -> int:
    known = kernels()
    args = arguments(known)
    if args.install:
        install(args.tools)
    tools = Tools(args.tools.resolve())
    if missing := tools.missing():
        sys.exit(f"{', '.join(missing)}: not found; --install puts all but g++ into {args.tools}")
    print("| kernel | TEAM x LIMBS | registers | spills, bytes | hot loop: instructions | IMAD.WIDE | other IMAD "
          "| LDS and STS | others | M/s at most |\n" + "|---" * 10 + "|")
    remarks: dict[str, list[str]] = {}
    status = 0
    with contextlib.nullcontext(args.keep) if args.keep else tempfile.TemporaryDirectory() as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for row in wanted(args, known):
            name, _, shape = row.partition(":")
            try:
                result = tools.compiled(known[name], shape, Path(folder) / row.replace(":", "-"))
            except Failed as why:
                print(f"{row}: {why}", file=sys.stderr)
                print(f"| {name} | {shape} | does not compile |" + " |" * 7, flush=True)
                status = 1
                continue
            kinds = [result.loop[kind] for kind in ("wide", "narrow", "shared", "other")]
            cells = [name, shape, result.registers, result.spilled, result.loop.total(), *kinds]
            print("|", " | ".join(map(str, cells + [bound(name, shape, result.loop)])), "|", flush=True)
            for remark in result.remarks:
                remarks.setdefault(remark, []).append(row)
    print("\nM/s are upper bounds for an H200, derived from the instructions of the loop, if an IMAD.WIDE takes the place "
          "of two others: nothing was measured. "
          "A kernel with no loop is counted whole. Stack and PTX below are the whole kernel's, all else the loop's.\n")
    for remark, rows in remarks.items():
        print(f"- {remark}: {', '.join(rows)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
