// a · n + b, a plain number. The modulus of the constants is M = R' − 1, modulo which R' is 1, and the
// result is below M: a · n = x + k·M of x, k ≥ 0 leaves k = 0. Constant `EXTRA` is n.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    var x = load_a(a_item(), 0u, 0u);
    set_operand(constant(EXTRA));
    mont(&x);
    x = sum(x, load_b(b_item(), 0u, 0u));
    resolve(&x);
    store(x);
}
