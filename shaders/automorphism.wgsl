// a(X^g), residue by residue. Coefficient i of the result is coefficient i/g of a, all modulo 2N, or its
// negative, since X^N = −1: `words` is 1/g, and `stages` 0. In NTT form what stands at i is the value at
// ψ^(2·brv(i) + 1), for the result that of a at the g-th power: `words` is g, and `stages` log2 N. A thread writes its
// own place, and reads from anywhere.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        let q = prime(limb_of(at));
        let n = 1u << params.log_degree;
        let i = at & (n - 1u);
        let is_ntt = params.stages > 0u;
        let exponent = select(i, 2u * reversed(i) + 1u, is_ntt);
        // 2N divides 2^32.
        let turned = (exponent * params.words) & (2u * n - 1u);
        let place = select(turned & (n - 1u), reversed(turned >> 1u), is_ntt);
        let x = pack(a[in_a(at - i + place)]);
        let minus = subtract_once(sub(q, x), q);
        out[at] = select(unpack(x), unpack(minus), !is_ntt && turned >= n);
    }
}

fn reversed(i: u32) -> u32 {
    return reverseBits(i) >> (32u - params.log_degree);
}
