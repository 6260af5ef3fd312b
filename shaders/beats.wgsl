// Library: lanes of 51 bits in beats of 512, eight numbers of 64 bits each. A kernel says with
// `lane_value` what lane k of an item is; a thread writes one number of the output.

// 32 bits of a number from bit `offset` on, which is below 51.
fn bits_from(x: vec2<u32>, offset: u32) -> u32 {
    let low_part = (x.x >> (offset & 31u)) | select(0u, x.y << ((32u - offset) & 31u), offset != 0u);
    return select(low_part, x.y >> (offset & 31u), offset >= 32u);
}

// Word `w` of beat `beat` of an item.
fn beat_word(item: u32, beat: u32, w: u32) -> u32 {
    let lane = 32u * w / 51u;
    let offset = 32u * w - 51u * lane;
    let k = 10u * beat + lane;
    var word = bits_from(lane_value(item, k), offset);
    if offset > 19u && lane < 9u {
        word |= lane_value(item, k + 1u).x << (51u - offset);
    }
    return word;
}

// Number `at` of the output, both of whose words are of one beat of `params.beats` an item.
fn beat_number(at: u32) -> vec2<u32> {
    let item = at / (8u * params.beats);
    let beat = at / 8u % params.beats;
    let w = 2u * (at % 8u);
    return vec2<u32>(beat_word(item, beat, w), beat_word(item, beat, w + 1u));
}
