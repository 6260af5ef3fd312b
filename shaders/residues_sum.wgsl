// (a · c + b · d) / R' mod m, c and d the constants EXTRA and EXTRA + 1. a and b may be any numbers
// below R'.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    var x = load_a(a_item(), 0u, 0u);
    var total: Number;
    for (var half = 0u; half < 2u; half++) {
        set_operand(constant(EXTRA + half));
        mont(&x);
        // Below m, so that the sum is below 2m.
        _ = reduce(&x);
        if half == 0u {
            total = x;
            x = load_b(b_item(), 0u, 0u);
        }
    }
    x = sum(total, x);
    _ = reduce(&x);
    store(x);
}
