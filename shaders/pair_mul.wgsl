// The product of two pairs modulo s², over the radix of pairs: the factor b is taken times 2^shift, so that
// R' takes away what the programs' radix does. m is s, and digits are below s.
//
// With W = 2^(64 · words of s) the high digit is below (x₀·y₁ + x₁·y₀) / W + 1 + s + (s − 1): of that the products are
// at most 2s − 4 if s > W / 2, and s − 1 if not.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    var x: Residue;
    var y: Residue;
    x[0] = load_a(a_item(), 0u, 0u);
    x[1] = load_a(a_item() + params.a_words, 0u, 0u);
    y[0] = load_b(b_item(), 0u, params.shift);
    y[1] = load_b(b_item() + params.b_words, 0u, params.shift);
    set_factor(y);
    pair_mont(&x, false, TEAM * LIMBS / 2u);
    finish(&x);
    store_residue(x);
}
