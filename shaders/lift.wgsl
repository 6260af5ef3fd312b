// Integers of `words` numbers of 64 bits to residues, one to a coefficient, by Horner's rule: each
// sum is of two residues below 2q. Word w of integer i is at w · N + i. Where `stages` is 1 they are of two's
// complement: what stands above the top word is 0 or −1.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        let limb = limb_of(at);
        let item = at / (params.limbs << params.log_degree);
        let i = at & ((1u << params.log_degree) - 1u);
        let top = a[item * params.a_stride + ((params.words - 1u) << params.log_degree) + i].y >> 31u;
        let minus_one = unpack(sub(prime(limb), wide(1u)));
        let is_negative = 0u - (top & params.stages);
        var x = pack(minus_one & vec2<u32>(is_negative, is_negative));
        for (var left = params.words; left > 0u; left--) {
            let word = a[item * params.a_stride + ((left - 1u) << params.log_degree) + i];
            x = add(mul_constant(x, limb, RADIX), mul_constant(pack(word), limb, UNIT));
        }
        out[at] = unpack(reduced(x, limb));
    }
}
