// The powers 0 .. 2^width − 1 of every base of a, in Montgomery form: entry `e` of item `i` is number
// `i · 2^width + e` of the output, limb `j` of rank `r` at `j · TEAM + r`, below 2m. Where `flag` is 1,
// those of item 0 are times the number b.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    var base: Number;
    var start: Number;
    // The start, the base into Montgomery form; then one power after the other.
    var x = load_b(b_item(), 0u, 0u);
    let one = unit();
    let with_factor = 0u - (params.flag & u32(clamped() == 0u));
    for (var j = 0u; j < LIMBS; j++) {
        x[j] = (x[j] & with_factor) | (one[j] & ~with_factor);
    }
    for (var round = 0u; round < 1u + (1u << params.width); round++) {
        if round < 2u {
            set_operand(constant(R_SQUARED));
        } else {
            set_operand(base);
        }
        mont(&x);
        if round == 0u {
            start = x;
            x = load_a(a_item(), 0u, 0u);
        } else {
            if round == 1u {
                base = x;
                x = start;
                write_entry(0u, x);
            } else {
                write_entry(round - 1u, x);
            }
        }
    }
}

fn write_entry(entry: u32, x: Number) {
    var y = x;
    if item < params.count {
        let number = (item << params.width) + entry;
        for (var j = 0u; j < LIMBS; j++) {
            out[(number * LIMBS + j) * TEAM + rank] = y[j];
        }
    }
}
