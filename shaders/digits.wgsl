// Library: residues to digits in mixed radix.

// (x − y) / (prime k) modulo prime j, below 2 q_j, for x below 2^63 and any y.
fn divided(x: Wide, y: Wide, k: u32, j: u32) -> Wide {
    let q = prime(j);
    let difference = sub(add(x, add(q, q)), mul_constant(y, j, UNIT));
    let inverses = 8u * params.limbs + ((4u * params.limbs) << params.log_degree);
    let at = inverses + 2u * (params.limbs * j + k);
    return mul_factor(difference, pack(constants[at]), pack(constants[at + 1u]), q);
}

// One for each prime, of which a ring has 24 at most.
alias Digits = array<vec2<u32>, 24>;

// The residues of a number in [0, Q) to its digits v in the mixed radix 1, q₀, q₀q₁, .. (H. L. Garner, 1959).
fn to_digits(x: ptr<function, Digits>) {
    for (var j = 0u; j < params.limbs; j++) {
        var digit = pack((*x)[j]);
        for (var k = 0u; k < j; k++) {
            digit = divided(digit, pack((*x)[k]), k, j);
        }
        (*x)[j] = unpack(subtract_once(digit, prime(j)));
    }
}

// (q − 1) / 2 of an odd q.
fn half(q: Wide) -> Wide {
    return shift_right(q, 1u);
}
