// The powers 0 .. 2^width − 1 of every base of a, in Montgomery form: entry `e` of item `i` is residue
// `i · 2^width + e` of the output, its numbers at their `place`, not reduced. Where `flag` is 1, those of item 0 are times
// the residue b.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    var base: Residue;
    // The base into Montgomery form, the start; then one power after the other.
    var x: Residue;
    for (var k = 0u; k < DIGITS; k++) {
        x[k] = load_a(a_item() + k * params.a_words, 0u, 0u);
    }
    let with_factor = 0u - (params.flag & u32(clamped() == 0u));
    for (var round = 0u; round < 1u + (1u << params.width); round++) {
        if round < 2u {
            set_factor(residue_constant(1u));
        } else {
            set_factor(base);
        }
        multiply(&x, false);
        if round == 0u {
            base = x;
            for (var k = 0u; k < DIGITS; k++) {
                var factor = load_b(b_item() + k * params.b_words, 0u, 0u);
                let one = unit();
                for (var j = 0u; j < LIMBS; j++) {
                    x[k][j] = (factor[j] & with_factor) | select(0u, one[j] & ~with_factor, k == 0u);
                }
            }
        } else {
            write_entry(round - 1u, x);
        }
    }
}

fn write_entry(entry: u32, x: Residue) {
    var y = x;
    if item < params.count {
        let number = ((item << params.width) + entry) * DIGITS;
        for (var k = 0u; k < DIGITS; k++) {
            for (var j = 0u; j < LIMBS; j++) {
                out[place(number + k, j)] = y[k][j];
            }
        }
    }
}
