// a mod m for numbers a of any length, by Horner's rule over pieces of R': acc · R' + piece, each taken
// mod m by a Montgomery product, which leaves both below 2m and their sum below 4m ≤ R'.
// `rows` is the number of pieces, the highest first.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    var acc: Number;
    for (var j = 0u; j < LIMBS; j++) {
        acc[j] = 0u;
    }
    // For each piece acc · R'² / R' and piece · R' / R', their sum; in the end acc · R' / R'.
    var times = acc;
    for (var round = 0u; round <= 2u * params.rows; round++) {
        let is_piece = round % 2u == 1u;
        var x = acc;
        if is_piece {
            x = load_a(a_item(), (params.rows - 1u - round / 2u) * TEAM * LIMBS, 0u);
        }
        set_operand(constant(select(ONE, R_SQUARED, !is_piece && round < 2u * params.rows)));
        mont(&x);
        if is_piece {
            acc = sum(times, x);
        } else {
            times = x;
        }
    }
    _ = reduce(&times);
    store(times);
}
