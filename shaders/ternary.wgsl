// Ternary polynomials: ⌊3w / 2^64⌋ − 1 for a number w.

fn draw(low_word: u32, high_word: u32) -> i32 {
    // What leaves the top of 3 · low; 3 · high takes it in.
    let carry = u32(low_word > 0x55555555u) + u32(low_word > 0xaaaaaaaau);
    let top = u32(high_word > 0x55555555u) + u32(high_word > 0xaaaaaaaau);
    let sum = 3u * high_word + carry;
    return i32(top + u32(sum < carry)) - 1;
}
