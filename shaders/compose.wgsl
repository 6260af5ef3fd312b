// Residues to the integer in [0, Q) of each coefficient, by Horner's rule over its digits in mixed radix. A
// thread a coefficient; word w of integer i goes to w · N + i.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at >= params.count {
        return;
    }
    let item = at >> params.log_degree;
    let i = at & ((1u << params.log_degree) - 1u);
    var digits: Digits;
    for (var j = 0u; j < params.limbs; j++) {
        digits[j] = a[item * params.a_stride + (j << params.log_degree) + i];
    }
    to_digits(&digits);
    // sum := sum · q + digit, in words of 32 bits: a product by each half of q, each with its own carry.
    var sum: array<u32, 48>;
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
