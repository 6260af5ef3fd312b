// Prelude: unsigned numbers of 64 bits where the adapter has them (`SHADER_INT64`). Its twin is
// wide_split.wgsl; a kernel is written over either. `add`, `sub` and `mad` are modulo 2^64.

alias Wide = u64;

fn wide(x: u32) -> Wide {
    return u64(x);
}

fn pack(x: vec2<u32>) -> Wide {
    return (u64(x.y) << 32u) | u64(x.x);
}

fn unpack(x: Wide) -> vec2<u32> {
    return vec2<u32>(u32(x & 0xfffffffflu), u32(x >> 32u));
}

fn low(x: Wide) -> u32 {
    return u32(x & 0xfffffffflu);
}

fn add(a: Wide, b: Wide) -> Wide {
    return a + b;
}

fn sub(a: Wide, b: Wide) -> Wide {
    return a - b;
}

// acc + a · b.
fn mad(acc: Wide, a: u32, b: u32) -> Wide {
    return acc + u64(a) * u64(b);
}

// For 0 < bits < 32.
fn shift_right(x: Wide, bits: u32) -> Wide {
    return x >> bits;
}

// 1 where a < b, else 0. No branch.
fn less(a: Wide, b: Wide) -> u32 {
    return u32(a < b);
}

// The low 64 bits of a · b.
fn mul_low(a: Wide, b: Wide) -> Wide {
    return a * b;
}

// The high 64 bits of a · b: the sum of the two products in the middle and a carry is at most
// 2·(2^32 − 1) + (2^32 − 1)^2 < 2^64 after one of them is cut to its low half.
fn mul_high(a: Wide, b: Wide) -> Wide {
    let a0 = a & 0xfffffffflu;
    let a1 = a >> 32u;
    let b0 = b & 0xfffffffflu;
    let b1 = b >> 32u;
    let middle = a1 * b0 + ((a0 * b0) >> 32u);
    let rest = a0 * b1 + (middle & 0xfffffffflu);
    return a1 * b1 + (middle >> 32u) + (rest >> 32u);
}
