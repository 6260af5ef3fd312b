// The pair of digits 1 and a, of the same length each.

struct Params {
    // Words of 32 bits in all, words of an item of the output; the rest: from one item of a to the next (0: all
    // share one), and of what is not bound here.
    words: u32,
    item_words: u32,
    a_stride: u32,
    b_stride: u32,
    c_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> a: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = (group.y * groups.x + group.x) * 64u + index;
    if at < params.words {
        let item = at / params.item_words;
        let word = at % params.item_words;
        let half = params.item_words / 2u;
        if word < half {
            out[at] = select(0u, 1u, word == 0u);
        } else {
            out[at] = a[item * params.a_stride + word - half];
        }
    }
}
