// Residues to the integer in [0, Q) of each coefficient: its digits v in the mixed radix 1, q₀, q₀q₁, ..
// (H. L. Garner, 1959), then their sum by Horner's rule. A thread a coefficient; word w of integer i goes to
// w · N + i.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at >= params.count {
        return;
    }
    let item = at >> params.log_degree;
    let i = at & ((1u << params.log_degree) - 1u);
    let inverses = 8u * params.limbs + ((4u * params.limbs) << params.log_degree);
    var digits: array<vec2<u32>, 8>;
    for (var j = 0u; j < params.limbs; j++) {
        let q = prime(j);
        var digit = pack(a[item * params.a_stride + (j << params.log_degree) + i]);
        for (var k = 0u; k < j; k++) {
            // (digit − v_k) / q_k, with v_k mod q_j below 2 q_j.
            let other = mul_constant(pack(digits[k]), j, UNIT);
            let difference = sub(add(digit, add(q, q)), other);
            let factor = inverses + 2u * (params.limbs * j + k);
            digit = mul_factor(difference, pack(constants[factor]), pack(constants[factor + 1u]), q);
        }
        digits[j] = unpack(subtract_once(digit, q));
    }
    // sum := sum · q + digit, in words of 32 bits: a product by each half of q, each with its own carry.
    var sum: array<u32, 16>;
    for (var left = params.limbs; left > 0u; left--) {
        let q = unpack(prime(left - 1u));
        let digit = digits[left - 1u];
        var first = wide(digit.x);
        var second = wide(0u);
        var before = 0u;
        for (var w = 0u; w < 2u * params.limbs; w++) {
            first = mad(first, sum[w], q.x);
            let parts = unpack(first);
            second = add(mad(second, before, q.y), wide(parts.x));
            second = add(second, wide(select(0u, digit.y, w == 1u)));
            before = sum[w];
            sum[w] = low(second);
            first = wide(parts.y);
            second = wide(unpack(second).y);
        }
    }
    for (var w = 0u; w < params.limbs; w++) {
        out[((item * params.limbs + w) << params.log_degree) + i] = vec2<u32>(sum[2u * w], sum[2u * w + 1u]);
    }
}
