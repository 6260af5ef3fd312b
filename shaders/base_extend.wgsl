// Residues of x, centred, to those modulo the `words` primes of another ring, a thread a coefficient. y = x + (Q − 1) / 2 is
// not negative, and its digits v tell it modulo any prime: a row of 2 (L + 1) numbers at b has the prime,
// −(Q − 1) / 2, and the weights of the digits, each with its quotient. Nothing is compared with Q / 2, and the result
// is exact. b goes up with a program; the constants of rings stay on the device.

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
        let q = prime(j);
        let x = pack(a[item * params.a_stride + (j << params.log_degree) + i]);
        // (Q − 1) / 2 and (q − 1) / 2 are both −1/2 modulo q.
        digits[j] = unpack(add_mod(x, half(q), q));
    }
    to_digits(&digits);
    for (var k = 0u; k < params.words; k++) {
        let row = 2u * (params.limbs + 1u) * k;
        let q = pack(b[row]);
        // Below 2q.
        var sum = pack(b[row + 1u]);
        for (var j = 0u; j < params.limbs; j++) {
            let weight = row + 2u + 2u * j;
            let term = mul_factor(pack(digits[j]), pack(b[weight]), pack(b[weight + 1u]), q);
            sum = subtract_once(add(sum, term), add(q, q));
        }
        out[((item * params.words + k) << params.log_degree) + i] = unpack(subtract_once(sum, q));
    }
}
