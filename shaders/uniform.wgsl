// The sum over seeds of the uniform polynomials that each names with a stream number b: `words` seeds of a from
// `first_seed` on, added to what is there unless the first is seed 0. Draws come in runs of sixteen blocks: draw
// 16·k + j is lane k of block j. A draw that is not below its prime is left out, which moves all after it.
// A workgroup an item, one prime after the other: few polynomials leave a large GPU idle. Public: rejection takes
// variable time.
//
// A run is taken limb by limb, nearly always in one step: all draws from `taken` on are held against the prime
// of the next place; each that is below goes to that place plus the number of those before it, if that is still
// of this limb.
//
// A dispatch takes limbs `first_limb` to `end_limb`. Where these are not all, `state` keeps how many draws of an item
// are used up.

@group(0) @binding(5) var<storage, read_write> state: array<u32>;

const BLOCKS: u32 = 16u;
const RUN: u32 = 160u;
const WORDS: u32 = RUN / 32u;

var<workgroup> draws: array<vec2<u32>, RUN>;
// Which draws of a run are accepted, a bit each.
var<workgroup> accepted: array<atomic<u32>, WORDS>;
// The place of the next residue, and how many draws of the run are used up.
var<workgroup> next: u32;
var<workgroup> taken: u32;

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let item = group.y * groups.x + group.x;
    if item >= params.count {
        return;
    }
    let total = params.limbs << params.log_degree;
    let start = params.first_limb << params.log_degree;
    let stop = params.end_limb << params.log_degree;
    for (var seed = params.first_seed; seed < params.first_seed + params.words; seed++) {
        // Before residues are added to, all threads have written them.
        storageBarrier();
        workgroupBarrier();
        if index == 0u {
            next = start;
            taken = RUN;
        }
        // Runs that the limbs before have used up, and draws of the next.
        var run = 0u;
        var skipped = 0u;
        if params.first_limb > 0u {
            run = state[item] / RUN;
            skipped = state[item] % RUN;
        }
        while workgroupUniformLoad(&next) < stop {
            let place = workgroupUniformLoad(&next);
            var used = workgroupUniformLoad(&taken);
            if used == RUN {
                if index < BLOCKS {
                    let key = item * params.a_stride + 4u * seed;
                    set_lanes(index, block(key, b[item * params.b_stride], BLOCKS * run + index));
                }
                run++;
                used = skipped;
                skipped = 0u;
            }
            if index < WORDS {
                atomicStore(&accepted[index], 0u);
            }
            workgroupBarrier();
            let limb = place >> params.log_degree;
            let end = (limb + 1u) << params.log_degree;
            let q = prime(limb);
            for (var d = index; d < RUN; d += GROUP) {
                if d >= used && less(masked(draws[d], q), q) == 1u {
                    atomicOr(&accepted[d / 32u], 1u << (d % 32u));
                }
            }
            workgroupBarrier();
            for (var d = index; d < RUN; d += GROUP) {
                let at = place + accepted_before(d);
                let bit = (atomicLoad(&accepted[d / 32u]) >> (d % 32u)) & 1u;
                if bit == 1u && at < end {
                    let residue = masked(draws[d], q);
                    let to = item * total + at;
                    if seed == 0u {
                        out[to] = unpack(residue);
                    } else {
                        out[to] = unpack(add_mod(pack(out[to]), residue, q));
                    }
                    if at + 1u == end {
                        next = end;
                        taken = d + 1u;
                    }
                }
            }
            let all = accepted_before(RUN);
            if index == 0u && place + all < end {
                next = place + all;
                taken = RUN;
            }
        }
        let left = RUN - workgroupUniformLoad(&taken);
        if index == 0u && params.end_limb < params.limbs {
            state[item] = run * RUN - left;
        }
    }
}

// How many draws before draw `d` are accepted.
fn accepted_before(d: u32) -> u32 {
    var sum = 0u;
    for (var w = 0u; w < WORDS; w++) {
        let bits = min(max(d, 32u * w) - 32u * w, 32u);
        let mask = select((1u << (bits & 31u)) - 1u, 0xffffffffu, bits == 32u);
        sum += countOneBits(atomicLoad(&accepted[w]) & mask);
    }
    return sum;
}

// As many low bits of a draw as the prime has.
fn masked(draw: vec2<u32>, modulus: Wide) -> Wide {
    let q = unpack(modulus);
    let high_mask = select(0xffffffffu >> (countLeadingZeros(q.y) & 31u), 0u, q.y == 0u);
    let low_mask = select(0xffffffffu, 0xffffffffu >> (countLeadingZeros(q.x) & 31u), q.y == 0u);
    return pack(draw & vec2<u32>(low_mask, high_mask));
}

fn set_lanes(j: u32, block_words: array<u32, 16>) {
    var words = block_words;
    for (var k = 0u; k < 10u; k++) {
        let bit = 51u * k;
        let w = bit / 32u;
        let above = select(words[min(w + 2u, 15u)], 0u, w + 2u > 15u);
        draws[16u * k + j] = lane_bits(vec3<u32>(words[w], words[w + 1u], above), bit % 32u);
    }
}
