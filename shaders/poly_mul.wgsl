// a · b mod q, residue by residue: the Montgomery product with radix 2^64, which is below q²/2^64 + q < 2q,
// times the radix. Where `words` is 1, added to what is there.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        let limb = limb_of(at);
        let q = prime(limb);
        let x = pack(a[in_a(at)]);
        let y = pack(b[in_b(at)]);
        let before = select(vec2<u32>(0u), out[at], params.words == 1u);
        out[at] = unpack(add_mod(product(x, y, limb, q), pack(before), q));
    }
}

fn product(x: Wide, y: Wide, limb: u32, q: Wide) -> Wide {
    let low_half = mul_low(x, y);
    let digit = mul_low(low_half, pack(constants[8u * limb + 1u]));
    // The low halves sum to 0 modulo 2^64, with a carry unless both are 0.
    let carry = less(wide(0u), low_half);
    let reduced_product = add(add(mul_high(x, y), mul_high(digit, q)), wide(carry));
    return subtract_once(mul_constant(reduced_product, limb, RADIX), q);
}
