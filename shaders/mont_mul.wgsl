// a · b · 2^shift / R' mod m, and where `flag` is 1 that times R' mod m: with a shift of
// log2(R') − 64 · words the Montgomery product of the programs, with none and the flag the plain one.
// b · 2^shift is below R'.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    var x = load_a(a_item(), 0u, 0u);
    set_operand(load_b(b_item(), 0u, params.shift));
    for (var round = 0u; round <= params.flag; round++) {
        if round == 1u {
            set_operand(constant(R_SQUARED));
        }
        mont(&x);
    }
    _ = reduce(&x);
    store(x);
}
