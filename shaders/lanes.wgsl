// Library: lanes of 51 bits, ten to a beat of eight numbers of 64 bits.

// The 51 bits from bit `offset` of three words on.
fn lane_bits(words: vec3<u32>, offset: u32) -> vec2<u32> {
    let above = (32u - offset) & 31u;
    let some = 0u - u32(offset != 0u);
    return vec2<u32>(
        (words.x >> offset) | ((words.y << above) & some),
        ((words.y >> offset) | ((words.z << above) & some)) & 0x7ffffu,
    );
}

fn a_word32(at: u32) -> u32 {
    let pair = a[at / 2u];
    return select(pair.x, pair.y, at % 2u == 1u);
}

fn b_word32(at: u32) -> u32 {
    let pair = b[at / 2u];
    return select(pair.x, pair.y, at % 2u == 1u);
}

// Lane k of an item of beats in a; what the last lane's third word is does not matter.
fn a_lane(item: u32, k: u32) -> vec2<u32> {
    let bit = 51u * (k % 10u);
    let at = 2u * (item * params.a_stride + 8u * (k / 10u)) + bit / 32u;
    return lane_bits(vec3<u32>(a_word32(at), a_word32(at + 1u), a_word32(at + 2u)), bit % 32u);
}

fn b_lane(item: u32, k: u32) -> vec2<u32> {
    let bit = 51u * (k % 10u);
    let at = 2u * (item * params.b_stride + 8u * (k / 10u)) + bit / 32u;
    return lane_bits(vec3<u32>(b_word32(at), b_word32(at + 1u), b_word32(at + 2u)), bit % 32u);
}
