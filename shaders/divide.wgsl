// (a − b) / m, for b ≡ a mod m and a quotient below R': the digits q of the Montgomery reduction of
// t = b − a mod R' satisfy t + q·m ≡ 0, so q ≡ (a − b) / m mod R', and both are below R'. Where
// `flag` is 1 b is written before the quotient, so that both are a pair.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    var x = load_a(a_item(), 0u, 0u);
    var t = load_b(b_item(), 0u, 0u);
    let one = unit();
    for (var j = 0u; j < LIMBS; j++) {
        t[j] += (MASK - x[j]) + one[j];
    }
    settle(&t, wide(0u));
    set_operand(one);
    mont(&t);
    let high_digit = quotient();
    if params.flag == 1u {
        store(load_b(b_item(), 0u, 0u));
        store_at(high_digit, params.out_words);
    } else {
        store(high_digit);
    }
}
