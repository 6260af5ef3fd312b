// Library: residues of the primes of a ring, one thread a residue (or what a kernel says).
//
// Residues are below primes of at most 50 bits. A polynomial is `[limb][coefficient]`, a number of 64
// bits is a pair (low, high). Nothing here branches on a residue.

struct Params {
    // Threads, or workgroups, that have work: residues, coefficients, words, tiles or items, as each kernel says.
    count: u32,
    // log2 of the degree N, and the number of primes L.
    log_degree: u32,
    limbs: u32,
    // Numbers of 64 bits from one item to the next (0: all items share one), of a and of b.
    a_stride: u32,
    b_stride: u32,
    // The rest as each kernel says.
    first_stage: u32,
    stages: u32,
    log_columns: u32,
    beats: u32,
    words: u32,
    first_seed: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// Eight numbers for each prime: q; -q⁻¹ mod 2^64; then factors: 2^64 and 1, each with its quotient, and N⁻¹, as
// transforms take it. After those of all primes, for each prime in turn 4N numbers, of the factors of transforms: all
// ψ^brv(i), a factor's second number N after its first, then all ψ^(−brv(i)), of which that at 1 is times N⁻¹. See
// tile.wgsl. Then the inverses of the primes, with quotients: that of prime i modulo prime j at 2(L·j + i).
// The quotient of w is ⌊w · 2^64 / q⌋.
@group(0) @binding(1) var<storage, read> constants: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> a: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> b: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> out: array<vec2<u32>>;

const GROUP: u32 = 64u;
const RADIX: u32 = 2u;
const UNIT: u32 = 4u;
const DEGREE_INVERSE: u32 = 6u;

fn prime(limb: u32) -> Wide {
    return pack(constants[8u * limb]);
}

fn thread(index: u32, group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return (group.y * groups.x + group.x) * GROUP + index;
}

// x · w mod q below 2q, for any x below 2^64 (D. Harvey, 2014): x·w − ⌊x·w'/2^64⌋·q.
fn mul_factor(x: Wide, w: Wide, quotient: Wide, q: Wide) -> Wide {
    return sub(mul_low(x, w), mul_low(mul_high(x, quotient), q));
}

// x · (factor `index` of a prime), below 2q.
fn mul_constant(x: Wide, limb: u32, index: u32) -> Wide {
    let at = 8u * limb + index;
    return mul_factor(x, pack(constants[at]), pack(constants[at + 1u]), prime(limb));
}

// x − q where that is not negative, else x.
fn subtract_once(x: Wide, q: Wide) -> Wide {
    let keep = 0u - less(x, q);
    return sub(x, pack(unpack(q) & vec2<u32>(~keep, ~keep)));
}

// Any x below 2^64, mod q: as its product by 1.
fn reduced(x: Wide, limb: u32) -> Wide {
    let q = prime(limb);
    let quotient = mul_high(x, pack(constants[8u * limb + UNIT + 1u]));
    return subtract_once(sub(x, mul_low(quotient, q)), q);
}

fn add_mod(x: Wide, y: Wide, q: Wide) -> Wide {
    return subtract_once(add(x, y), q);
}

// The limb of residue `at` of a batch of polynomials.
fn limb_of(at: u32) -> u32 {
    return (at >> params.log_degree) % params.limbs;
}

// Where residue `at` of a batch is in a, and in b.
fn in_a(at: u32) -> u32 {
    let each = params.limbs << params.log_degree;
    return at / each * params.a_stride + at % each;
}

fn in_b(at: u32) -> u32 {
    let each = params.limbs << params.log_degree;
    return at / each * params.b_stride + at % each;
}
