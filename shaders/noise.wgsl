// Centred binomial polynomials: the ones among bits 0–20 of a number less those among bits 21–41.

fn draw(low_word: u32, high_word: u32) -> i32 {
    let half = 0x1fffffu;
    let second = ((low_word >> 21u) | (high_word << 11u)) & half;
    return i32(countOneBits(low_word & half)) - i32(countOneBits(second));
}
