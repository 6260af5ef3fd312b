// Library: a part of a transform that fits workgroup memory.
//
// Stage s of a transform of N = 2^n joins residues that differ in bit n − 1 − s of their place. A pass
// is `stages` stages from `first_stage` on. What belongs together has the same places but for `stages`
// bits; a tile is 2^log_columns neighbours of those, so that memory is read in runs. Whole tiles
// have at most 1024 residues, so every transform takes one pass up to 2^10, else two.

const TILE: u32 = 1024u;
const THREADS: u32 = 256u;

var<workgroup> tile: array<vec2<u32>, TILE>;

// A tile: the polynomial's limb, the place of its first residue in memory, the place without the bits
// of its stages and below.
struct Tile {
    limb: u32,
    start: u32,
    block: u32,
}

fn tile_of(group: u32) -> Tile {
    let below = params.log_degree - params.first_stage - params.stages;
    let log_tiles = params.log_degree - params.stages - params.log_columns;
    let poly = group >> log_tiles;
    let index = group & ((1u << log_tiles) - 1u);
    let log_runs = below - params.log_columns;
    let block = index >> log_runs;
    let run = index & ((1u << log_runs) - 1u);
    let start = (poly << params.log_degree) + (block << (params.log_degree - params.first_stage))
        + (run << params.log_columns);
    return Tile(poly % params.limbs, start, block);
}

fn tile_size() -> u32 {
    return 1u << (params.stages + params.log_columns);
}

// Where residue `e` of a tile is in memory.
fn place(t: Tile, e: u32) -> u32 {
    let below = params.log_degree - params.first_stage - params.stages;
    return t.start + ((e >> params.log_columns) << below) + (e & ((1u << params.log_columns) - 1u));
}

// Of butterfly `p` of the stage with `stage` stages of the pass before it: the places of its two residues in
// the tile, and the index of its twiddle factor, 2^s + the block of the stage.
struct Butterfly {
    upper: u32,
    lower: u32,
    twiddle: u32,
}

fn butterfly(t: Tile, p: u32, stage: u32) -> Butterfly {
    let log_half = params.stages - 1u - stage + params.log_columns;
    let block = p >> log_half;
    let upper = (block << (log_half + 1u)) | (p & ((1u << log_half) - 1u));
    let twiddle = (1u << (params.first_stage + stage)) + (t.block << stage) + block;
    return Butterfly(upper, upper + (1u << log_half), twiddle);
}

// Table 0 of a limb is ψ^brv(i), 1 its inverses.
fn twiddled(x: Wide, limb: u32, table: u32, index: u32) -> Wide {
    let at = 8u * params.limbs + (((4u * limb + 2u * table) << params.log_degree) | index);
    let w = pack(constants[at]);
    let quotient = pack(constants[at + (1u << params.log_degree)]);
    return mul_factor(x, w, quotient, prime(limb));
}

// Writes the tile, each residue times a constant factor and reduced.
fn write_tile(t: Tile, index: u32) {
    for (var e = index; e < tile_size(); e += THREADS) {
        let x = mul_constant(pack(tile[e]), t.limb, params.factor);
        out[place(t, e)] = unpack(subtract_once(x, prime(t.limb)));
    }
}
