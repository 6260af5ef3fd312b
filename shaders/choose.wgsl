// Word by word of 32 bits, b where the bit a of the item is 1, else `c`, which is in binding 1.

struct Params {
    // Words in all, words of an item.
    words: u32,
    item_words: u32,
    // From one item to the next, 0 where all share one: of the bits, of b, of c.
    a_stride: u32,
    b_stride: u32,
    c_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> c: array<u32>;
@group(0) @binding(2) var<storage, read> a: array<u32>;
@group(0) @binding(3) var<storage, read> b: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = (group.y * groups.x + group.x) * 64u + index;
    if at < params.words {
        let item = at / params.item_words;
        let word = at % params.item_words;
        let mask = 0u - a[item * params.a_stride];
        out[at] = (b[item * params.b_stride + word] & mask) | (c[item * params.c_stride + word] & ~mask);
    }
}
