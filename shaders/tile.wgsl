// Library: a part of a transform that fits workgroup memory. A kernel says with `butterfly` what becomes of two residues,
// and with TABLE by which factors.
//
// Stage s of a transform of N = 2^n joins residues that differ in bit n − 1 − s of their place. A pass
// is `stages` stages from `first_stage` on. What belongs together has the same places but for `stages`
// bits; a tile is 2^log_columns neighbours of those, so that memory is read in runs. Whole tiles
// have at most 1024 residues (8 KiB), so every transform takes one pass up to 2^10, else two: the outer stages with
// columns, at least 16 (128 bytes) up to 2^16, the inner ones without. A pass reads and writes each residue once.
//
// A round is three stages (radix 8), in registers: a thread takes eight residues whose places in the tile differ in three
// neighbouring bits, and puts what it makes of them at the same places. So one barrier a round is enough, and
// workgroup memory is read and written a third as often as stages are: ten stages are four rounds, 64 bytes a residue
// in place of 160. The round with stage 0 takes what is left of them, one to three. A pass of columns of one round, as
// for N = 8192, does without workgroup memory. A pass loads its first round from a and stores its last one, unless they
// are of neighbours: those go through workgroup memory, for threads side by side to have neighbours of their own.

const TILE: u32 = 1024u;
const THREADS: u32 = 128u;
const ROUND: u32 = 3u;
const PIECE_BITS: u32 = 30u;
const PIECE: u32 = 0x3fffffffu;

var<workgroup> tile: array<vec2<u32>, TILE>;

// The prime of a tile, three times that, its pieces, and −q⁻¹ mod 2^30.
var<private> q: Wide;
var<private> three_q: Wide;
var<private> q_pieces: vec2<u32>;
var<private> minus_inverse: u32;
// Where its factors begin.
var<private> factors: u32;

// A tile: the polynomial's limb, the place of its first residue in memory, the place without the bits
// of its stages and below.
struct Tile {
    limb: u32,
    start: u32,
    block: u32,
}

// Tiles that run at once are neighbours where there are columns, else of one block of all polynomials: those have their
// factors in common, which are twice as many bytes as their residues.
fn tile_of(group: u32) -> Tile {
    let below = params.log_degree - params.first_stage - params.stages;
    let log_tiles = params.log_degree - params.stages - params.log_columns;
    let polys = params.count >> log_tiles;
    var poly = group >> log_tiles;
    var index = group & ((1u << log_tiles) - 1u);
    if params.log_columns == 0u {
        index = group / polys;
        poly = group - index * polys;
    }
    let log_runs = below - params.log_columns;
    let block = index >> log_runs;
    let run = index & ((1u << log_runs) - 1u);
    let start = (poly << params.log_degree) + (block << (params.log_degree - params.first_stage))
        + (run << params.log_columns);
    return Tile(poly % params.limbs, start, block);
}

fn set_prime(limb: u32) {
    q = prime(limb);
    three_q = add(q, add(q, q));
    q_pieces = vec2<u32>(low(q) & PIECE, low(shift_right(q, PIECE_BITS)));
    minus_inverse = constants[8u * limb + 1u].x & PIECE;
    factors = 8u * params.limbs + ((4u * limb + 2u * TABLE) << params.log_degree);
}

fn tile_size() -> u32 {
    return 1u << (params.stages + params.log_columns);
}

// Whether a thread has residues: of a small tile not every one has.
fn has_eight(index: u32) -> bool {
    return index < tile_size() / 8u;
}

// Where residue `e` of a tile is in memory, from the first on. It goes bit by bit.
fn place(e: u32) -> u32 {
    let below = params.log_degree - params.first_stage - params.stages;
    return ((e >> params.log_columns) << below) | (e & ((1u << params.log_columns) - 1u));
}

// Where it is in workgroup memory, whose banks hold sixteen residues side by side. Sixteen threads at once would be
// eight at a bank in a round over bits 0 to 2 of the place, and two in one over bits 3 to 5. So bits 4 to 6 are added
// to bits 0 to 2, and bit 6 to bit 3 as well: then each thread has a bank of its own, in all rounds of a whole tile. By
// exclusive or, so bit by bit as well.
fn slot(e: u32) -> u32 {
    return e ^ ((e >> 4u) & 7u) ^ ((e >> 3u) & 8u);
}

// What a thread does in the round from stage `stage` of the pass on: the place of its first residue in the tile, log2
// of the distance from one to the next, and the index of the factor of that stage, 2^s + the block of the stage.
// Each later stage has twice as many factors, from twice that index on.
struct Round {
    first: u32,
    shift: u32,
    factor: u32,
}

alias Eight = array<Wide, 8>;

fn round_of(t: Tile, index: u32, stage: u32) -> Round {
    let shift = params.stages + params.log_columns - ROUND - stage;
    let block = index >> shift;
    let first = (block << (shift + ROUND)) | (index & ((1u << shift) - 1u));
    return Round(first, shift, (1u << (params.first_stage + stage)) + (t.block << stage) + block);
}

// The places of a thread's residues in workgroup memory, and in memory: of places without common bits each is that
// of their sum.
fn slots(r: Round) -> array<u32, 8> {
    return eight(slot(r.first), slot(1u << r.shift), slot(2u << r.shift), slot(4u << r.shift));
}

fn places(t: Tile, r: Round) -> array<u32, 8> {
    return eight(t.start | place(r.first), place(1u << r.shift), place(2u << r.shift), place(4u << r.shift));
}

fn eight(p0: u32, first: u32, second: u32, third: u32) -> array<u32, 8> {
    let p1 = p0 ^ first;
    let p2 = p0 ^ second;
    let p3 = p1 ^ second;
    return array<u32, 8>(p0, p1, p2, p3, p0 ^ third, p1 ^ third, p2 ^ third, p3 ^ third);
}

fn take(s: array<u32, 8>) -> Eight {
    return Eight(pack(tile[s[0]]), pack(tile[s[1]]), pack(tile[s[2]]), pack(tile[s[3]]),
        pack(tile[s[4]]), pack(tile[s[5]]), pack(tile[s[6]]), pack(tile[s[7]]));
}

fn put(s: array<u32, 8>, x: Eight) {
    tile[s[0]] = unpack(x[0]);
    tile[s[1]] = unpack(x[1]);
    tile[s[2]] = unpack(x[2]);
    tile[s[3]] = unpack(x[3]);
    tile[s[4]] = unpack(x[4]);
    tile[s[5]] = unpack(x[5]);
    tile[s[6]] = unpack(x[6]);
    tile[s[7]] = unpack(x[7]);
}

fn load(p: array<u32, 8>) -> Eight {
    return Eight(pack(a[p[0]]), pack(a[p[1]]), pack(a[p[2]]), pack(a[p[3]]),
        pack(a[p[4]]), pack(a[p[5]]), pack(a[p[6]]), pack(a[p[7]]));
}

fn store(p: array<u32, 8>, x: Eight) {
    out[p[0]] = unpack(x[0]);
    out[p[1]] = unpack(x[1]);
    out[p[2]] = unpack(x[2]);
    out[p[3]] = unpack(x[3]);
    out[p[4]] = unpack(x[4]);
    out[p[5]] = unpack(x[5]);
    out[p[6]] = unpack(x[6]);
    out[p[7]] = unpack(x[7]);
}

// What becomes of two residues.
struct Butterfly {
    upper: Wide,
    lower: Wide,
}

// The stages of a round: of residues that are four, two and one from another.
fn far(x: Eight, factor: u32) -> Eight {
    let w = twiddle(factor);
    let p0 = butterfly(x[0], x[4], w);
    let p1 = butterfly(x[1], x[5], w);
    let p2 = butterfly(x[2], x[6], w);
    let p3 = butterfly(x[3], x[7], w);
    return Eight(p0.upper, p1.upper, p2.upper, p3.upper, p0.lower, p1.lower, p2.lower, p3.lower);
}

fn middle(x: Eight, factor: u32) -> Eight {
    let w0 = twiddle(factor);
    let w1 = twiddle(factor + 1u);
    let p0 = butterfly(x[0], x[2], w0);
    let p1 = butterfly(x[1], x[3], w0);
    let p2 = butterfly(x[4], x[6], w1);
    let p3 = butterfly(x[5], x[7], w1);
    return Eight(p0.upper, p1.upper, p0.lower, p1.lower, p2.upper, p3.upper, p2.lower, p3.lower);
}

fn near(x: Eight, factor: u32) -> Eight {
    let p0 = butterfly(x[0], x[1], twiddle(factor));
    let p1 = butterfly(x[2], x[3], twiddle(factor + 1u));
    let p2 = butterfly(x[4], x[5], twiddle(factor + 2u));
    let p3 = butterfly(x[6], x[7], twiddle(factor + 3u));
    return Eight(p0.upper, p0.lower, p1.upper, p1.lower, p2.upper, p2.lower, p3.upper, p3.lower);
}

// A factor w: w · 2^30 mod q and w · 2^60 mod q, each in pieces of 30 bits, the low one first.
struct Factor {
    of_low: vec2<u32>,
    of_high: vec2<u32>,
}

// Table 0 of a limb is ψ^brv(i), 1 its inverses.
fn twiddle(index: u32) -> Factor {
    let at = factors + index;
    return Factor(constants[at], constants[at + (1u << params.log_degree)]);
}

// N⁻¹.
fn degree_inverse(limb: u32) -> Factor {
    let at = 8u * limb + DEGREE_INVERSE;
    return Factor(constants[at], constants[at + 1u]);
}

// x · w mod q: each piece of x by what w is there, then a step of P. L. Montgomery's (1985) in base 2^30. For x < 2^61
// that is below (2^30 + 2^31 + 2^30) · q / 2^30 = 4q, for x < 2^56 below (2^30 + 2^26 + 2^30) · q / 2^30 < 3q; both
// columns are below 2^62. That takes 6 wide products and a narrow one. `mul_factor` takes 6 and 4, or with a quotient
// that leaves out its least product 5 and 4; a wide one costs two narrow ones.
fn times(x: Wide, w: Factor) -> Wide {
    let low_piece = low(x) & PIECE;
    let high_piece = low(shift_right(x, PIECE_BITS));
    let column = mad(mad(wide(0u), low_piece, w.of_low.x), high_piece, w.of_high.x);
    let digit = (low(column) * minus_inverse) & PIECE;
    let carry = shift_right(mad(column, digit, q_pieces.x), PIECE_BITS);
    return mad(mad(mad(carry, low_piece, w.of_low.y), high_piece, w.of_high.y), digit, q_pieces.y);
}
