// Library: a block of the ChaCha stream that a key and a number name: D. J. Bernstein, 2008, with a counter
// and a stream number of 64 bits each. Streams of secrets have twenty rounds, public ones eight.

fn rotate(x: u32, bits: u32) -> u32 {
    return (x << bits) | (x >> (32u - bits));
}

fn quarter(s: ptr<function, array<u32, 16>>, i: u32, j: u32, k: u32, l: u32) {
    (*s)[i] += (*s)[j];
    (*s)[l] = rotate((*s)[l] ^ (*s)[i], 16u);
    (*s)[k] += (*s)[l];
    (*s)[j] = rotate((*s)[j] ^ (*s)[k], 12u);
    (*s)[i] += (*s)[j];
    (*s)[l] = rotate((*s)[l] ^ (*s)[i], 8u);
    (*s)[k] += (*s)[l];
    (*s)[j] = rotate((*s)[j] ^ (*s)[k], 7u);
}

const SECRET_ROUNDS: u32 = 20u;
const PUBLIC_ROUNDS: u32 = 8u;

// Block `counter` of stream `stream` under the four numbers of a from `key` on.
fn block(key: u32, stream: vec2<u32>, counter: vec2<u32>, rounds: u32) -> array<u32, 16> {
    let k0 = a[key];
    let k1 = a[key + 1u];
    let k2 = a[key + 2u];
    let k3 = a[key + 3u];
    let start = array<u32, 16>(
        0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u,
        k0.x, k0.y, k1.x, k1.y, k2.x, k2.y, k3.x, k3.y,
        counter.x, counter.y, stream.x, stream.y,
    );
    var s = start;
    for (var round = 0u; round < rounds; round += 2u) {
        quarter(&s, 0u, 4u, 8u, 12u);
        quarter(&s, 1u, 5u, 9u, 13u);
        quarter(&s, 2u, 6u, 10u, 14u);
        quarter(&s, 3u, 7u, 11u, 15u);
        quarter(&s, 0u, 5u, 10u, 15u);
        quarter(&s, 1u, 6u, 11u, 12u);
        quarter(&s, 2u, 7u, 8u, 13u);
        quarter(&s, 3u, 4u, 9u, 14u);
    }
    var sum = start;
    for (var i = 0u; i < 16u; i++) {
        sum[i] += s[i];
    }
    return sum;
}
