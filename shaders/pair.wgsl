// Library: residues modulo the square s² as pairs x₀ + x₁·s, in Montgomery form. m is s. Its twin is residue.wgsl.
//
// x₀·y₀ + q·s = u·2^(27 · rounds) gives x₀·y₀ / 2^(27 · rounds) = u − s·q / 2^(27 · rounds). So the digits of the
// product are u, and x₀·y₁ + x₁·y₀ − q over 2^(27 · rounds) modulo s. Digit i of q is known when column i of
// the upper sum is the lowest, and takes its complement; all these are 2^(27 · rounds) − q, so they leave 1 too
// much, and s − 1 makes up for it. Both sums take one loop, whose rounds are half as many as those of a product
// modulo s² as a number, with half as many threads.
//
// Ranges. Powers take TEAM · LIMBS + 1 rounds, a digit more than y has, over R'' = 2^27 · R'. Of low digits below 2s and
// high ones below 2.1s they leave (x₀·y₀) / R'' + s and (x₀·y₁ + x₁·y₀) / R'' + 1 + s + (s − 1): less than 2s and
// 2.1s, for R'' is at least 2^29 · s. Over R' alone, which may be 4s, high digits would grow.

fn set_factor(y: Residue) {
    set_operand(y[0]);
    var high_digit = y[1];
    for (var j = 0u; j < LIMBS; j++) {
        operand[(GROUP + lane) * LIMBS + j] = high_digit[j];
    }
}

// x := x · factor / 2^(27 · rounds) mod s². Of a square the factor's high digit is not read.
fn pair_mont(x: ptr<function, Residue>, is_square: bool, rounds: u32) {
    var x_low = (*x)[0];
    var x_high = (*x)[1];
    var low_sum: Columns;
    var high_sum: Columns;
    for (var j = 0u; j < LIMBS; j++) {
        // x₀·x₁ + x₁·x₀ is one product.
        x_high[j] <<= u32(is_square);
        low_sum[j] = wide(0u);
        high_sum[j] = wide(0u);
    }
    columns[GROUP + lane] = vec2<u32>(0u, 0u);
    columns[3u * GROUP + lane] = vec2<u32>(0u, 0u);
    workgroupBarrier();
    for (var i = 0u; i < rounds; i++) {
        let at = first * LIMBS + i;
        let inside = 0u - u32(i < TEAM * LIMBS);
        let y = operand[at] & inside;
        accumulate(&low_sum, &x_low, y);
        accumulate(&high_sum, &x_high, y);
        if !is_square {
            accumulate(&high_sum, &x_low, operand[GROUP * LIMBS + at] & inside);
        }
        let slot = (i & 1u) * GROUP;
        if rank == 0u {
            let digit = digit_for(low_sum[0]);
            high_sum[0] = add(high_sum[0], wide((MASK - digit) + u32(i == 0u)));
            digits[slot + lane] = digit;
            digits[2u * GROUP + slot + lane] = digit_for(high_sum[0]);
        }
        workgroupBarrier();
        fold(&low_sum, digits[slot + first], slot, GROUP - slot);
        fold(&high_sum, digits[2u * GROUP + slot + first], 2u * GROUP + slot, 3u * GROUP - slot);
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
    pair_mont(x, is_square, TEAM * LIMBS + 1u);
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
