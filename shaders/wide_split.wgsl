// Prelude: unsigned numbers of 64 bits as (low, high) halves, multiplied in pieces of 16 bits, for
// adapters that have none. Its twin is wide_native.wgsl. `add`, `sub` and `mad` are modulo 2^64.

alias Wide = vec2<u32>;

fn wide(x: u32) -> Wide {
    return vec2<u32>(x, 0u);
}

fn pack(x: vec2<u32>) -> Wide {
    return x;
}

fn unpack(x: Wide) -> vec2<u32> {
    return x;
}

fn low(x: Wide) -> u32 {
    return x.x;
}

fn add(a: Wide, b: Wide) -> Wide {
    let sum = a.x + b.x;
    return vec2<u32>(sum, a.y + b.y + u32(sum < a.x));
}

fn sub(a: Wide, b: Wide) -> Wide {
    return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}

// a · b: the three terms of 16 bits in the middle sum to less than 2^18.
fn mul_full(a: u32, b: u32) -> Wide {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let p00 = a0 * b0;
    let p01 = a0 * b1;
    let p10 = a1 * b0;
    let middle = (p00 >> 16u) + (p01 & 0xffffu) + (p10 & 0xffffu);
    let high = a1 * b1 + (p01 >> 16u) + (p10 >> 16u) + (middle >> 16u);
    return vec2<u32>((p00 & 0xffffu) | (middle << 16u), high);
}

// acc + a · b.
fn mad(acc: Wide, a: u32, b: u32) -> Wide {
    return add(acc, mul_full(a, b));
}

// For 0 < bits < 32.
fn shift_right(x: Wide, bits: u32) -> Wide {
    return vec2<u32>((x.x >> bits) | (x.y << (32u - bits)), x.y >> bits);
}

// 1 where a < b, else 0. No branch.
fn less(a: Wide, b: Wide) -> u32 {
    return u32(a.y < b.y) | (u32(a.y == b.y) & u32(a.x < b.x));
}

// The low 64 bits of a · b.
fn mul_low(a: Wide, b: Wide) -> Wide {
    let p = mul_full(a.x, b.x);
    return vec2<u32>(p.x, p.y + a.x * b.y + a.y * b.x);
}

// The high 64 bits of a · b; no sum exceeds 64 bits, as in the twin.
fn mul_high(a: Wide, b: Wide) -> Wide {
    let middle = add(mul_full(a.y, b.x), wide(mul_full(a.x, b.x).y));
    let rest = add(mul_full(a.x, b.y), wide(middle.x));
    return add(mul_full(a.y, b.y), add(wide(middle.y), wide(rest.y)));
}
