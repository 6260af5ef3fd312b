// Library: residues modulo the square s² as pairs x₀ + x₁·s, in Montgomery form. m is s. Its twin is residue.wgsl.
//
// x₀·y₀ + q·s = u·2^(58 · rounds) gives x₀·y₀ / 2^(58 · rounds) = u − s·q / 2^(58 · rounds). So the digits of the
// product are u, and x₀·y₁ + x₁·y₀ − q over 2^(58 · rounds) modulo s. Digit i of q is known when column i of
// the upper sum is the lowest, and takes its complement; all these are 2^(58 · rounds) − q, so they leave 1 too
// much, and s − 1 makes up for it. Both sums take one loop, with one barrier a round, which keeps no digit of q. Its
// rounds are half as many as those of a product modulo s² as a number, with half as many threads. A limb costs a thread
// five mads, of a square four: 5/8 and 1/2 of those as a number. Around powers, bases are split and results joined: six
// products modulo s, one modulo s² as a number.
//
// Ranges. Powers take a round more than y has limbs for, over R'' = 2^58 · R'. Of low digits below 2s and
// high ones below 2.1s they leave (x₀·y₀) / R'' + s and (x₀·y₁ + x₁·y₀) / R'' + 1 + s + (s − 1): less than 2s and
// 2.1s, for R'' is at least 2^60 · s. Over R' alone, which may be 4s, high digits would grow.

fn set_factor(y: Residue) {
    set_operand(y[0]);
    var high_digit = y[1];
    for (var j = 0u; j < LIMBS; j++) {
        operand[(GROUP + lane) * LIMBS + j] = high_digit[j];
    }
}

// x := x · factor / 2^(58 · rounds) mod s². Of a square the factor's high digit is not read.
fn pair_mont(x: ptr<function, Residue>, is_square: bool, rounds: u32) {
    var x_low = (*x)[0];
    var x_high = (*x)[1];
    for (var j = 0u; j < LIMBS; j++) {
        // x₀·x₁ + x₁·x₀ is one product.
        x_high[j] <<= u32(is_square);
    }
    var modulus = m;
    let at_rank_0 = 0u - u32(rank == 0u);
    var low_sum = zeros();
    var high_sum = zeros();
    columns[GROUP + lane] = vec2<u32>(0u, 0u);
    columns[3u * GROUP + lane] = vec2<u32>(0u, 0u);
    workgroupBarrier();
    for (var round = 0u; round < rounds; round++) {
        let at = first * LIMBS + 2u * round;
        let inside = 0u - u32(2u * round < TEAM * LIMBS);
        // First, with a zero of its own: what is widened before a branch is not seen to be narrow after it.
        if !is_square {
            let high_at = GROUP * LIMBS + at;
            let y_high = vec2<u32>(operand[high_at] & inside, operand[high_at + 1u] & inside);
            accumulate(&high_sum, &x_low, y_high, unknown_zero(y_high.x));
        }
        let y = vec2<u32>(operand[at] & inside, operand[at + 1u] & inside);
        let zero = unknown_zero(y.x);
        accumulate(&low_sum, &x_low, y, zero);
        accumulate(&high_sum, &x_high, y, zero);
        let slot = (round & 1u) * GROUP;
        let q = digits_for(&low_sum);
        high_sum[0] = add(high_sum[0], wide(((MASK - q.x) + u32(round == 0u)) & at_rank_0));
        high_sum[1] = add(high_sum[1], wide((MASK - q.y) & at_rank_0));
        digits[slot + lane] = q;
        digits[2u * GROUP + slot + lane] = digits_for(&high_sum);
        workgroupBarrier();
        fold(&low_sum, &modulus, digits[slot + first], zero, slot, GROUP - slot);
        fold(&high_sum, &modulus, digits[2u * GROUP + slot + first], zero, 2u * GROUP + slot, 3u * GROUP - slot);
    }
    workgroupBarrier();
    let last = ((rounds - 1u) & 1u) * GROUP;
    take_in(&low_sum, last);
    take_in(&high_sum, 2u * GROUP + last);
    for (var j = 0u; j < LIMBS; j++) {
        // s is odd.
        high_sum[j] = add(high_sum[j], wide(m[j] - u32(rank + j == 0u)));
    }
    (*x)[0] = carried(&low_sum);
    (*x)[1] = carried(&high_sum);
}

// x := x · factor / R'' mod s².
fn multiply(x: ptr<function, Residue>, is_square: bool) {
    pair_mont(x, is_square, TEAM * LIMBS / 2u + 1u);
}

// The digits of a pair of numbers below 2s and 4s − 1: what is taken from the low one goes to the high one, which
// still is below R'.
fn finish(x: ptr<function, Residue>) {
    var low_digit = (*x)[0];
    var high_digit = (*x)[1];
    let excess = reduce(&low_digit);
    high_digit[0] += select(0u, excess, rank == 0u);
    for (var time = 0u; time < 3u; time++) {
        _ = reduce(&high_digit);
    }
    (*x)[0] = low_digit;
    (*x)[1] = high_digit;
}
