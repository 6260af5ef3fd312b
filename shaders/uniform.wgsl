// The sum over seeds of the uniform polynomial that each names with a stream number b: `words` seeds of a from
// `first_seed` on, added to what is there unless the first is seed 0. A thread makes what one block of the stream
// gives: residues p = 160·run + 16·k + j are lanes k of block 16·run + j, each the low bits of its lane if these are
// below the prime, else 128 bits of block 2^32 + p. Public: the second draw takes variable time.

const LANES: u32 = 10u;
const BLOCKS: u32 = 16u;
const RUN: u32 = 160u;

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at >= params.count {
        return;
    }
    let total = params.limbs << params.log_degree;
    let blocks = (total + RUN - 1u) / RUN * BLOCKS;
    let item = at / blocks;
    let counter = at % blocks;
    let first = counter / BLOCKS * RUN + counter % BLOCKS;
    let stream = b[item * params.b_stride];
    for (var seed = params.first_seed; seed < params.first_seed + params.words; seed++) {
        let key = item * params.a_stride + 4u * seed;
        var words = block(key, stream, vec2<u32>(counter, 0u), PUBLIC_ROUNDS);
        for (var k = 0u; k < LANES; k++) {
            let place = first + BLOCKS * k;
            if place < total {
                let limb = place >> params.log_degree;
                let q = prime(limb);
                var residue = draw(&words, k, q);
                if less(residue, q) == 0u {
                    residue = second_draw(key, stream, place, limb);
                }
                let to = item * total + place;
                if seed > 0u {
                    residue = add_mod(pack(out[to]), residue, q);
                }
                out[to] = unpack(residue);
            }
        }
    }
}

// As many low bits of lane k of a block as the prime has.
fn draw(words: ptr<function, array<u32, 16>>, k: u32, modulus: Wide) -> Wide {
    let bit = 51u * k;
    let w = bit / 32u;
    // What the last lane's third word is does not matter.
    let lane = lane_bits(vec3<u32>((*words)[w], (*words)[w + 1u], (*words)[(w + 2u) % 16u]), bit % 32u);
    let q = unpack(modulus);
    let high_mask = select(0xffffffffu >> (countLeadingZeros(q.y) & 31u), 0u, q.y == 0u);
    let low_mask = select(0xffffffffu, 0xffffffffu >> (countLeadingZeros(q.x) & 31u), q.y == 0u);
    return pack(lane & vec2<u32>(low_mask, high_mask));
}

// The first 128 bits of the block that residue `place` has for a second draw, modulo its prime.
fn second_draw(key: u32, stream: vec2<u32>, place: u32, limb: u32) -> Wide {
    let words = block(key, stream, vec2<u32>(place, 1u), PUBLIC_ROUNDS);
    let high = pack(vec2<u32>(words[2], words[3]));
    let above = subtract_once(mul_constant(high, limb, RADIX), prime(limb));
    return add_mod(above, reduced(pack(vec2<u32>(words[0], words[1])), limb), prime(limb));
}
