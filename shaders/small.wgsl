// Library: polynomials with small coefficients, eight to a block of a stream. A kernel says with `draw`
// what a number of the stream gives, as a signed integer of few bits. a is the key, b the stream numbers; a thread
// makes eight coefficients.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        let blocks = 1u << (params.log_degree - 3u);
        let item = at / blocks;
        let words = block(item * params.a_stride, b[item * params.b_stride], vec2<u32>(at % blocks, 0u), SECRET_ROUNDS);
        for (var j = 0u; j < 8u; j++) {
            let value = draw(words[2u * j], words[2u * j + 1u]);
            // q is added where the value is negative.
            let negative = u32(value >> 31u);
            for (var limb = 0u; limb < params.limbs; limb++) {
                let q = unpack(prime(limb)) & vec2<u32>(negative, negative);
                let residue = add(pack(q), pack(vec2<u32>(u32(value), negative)));
                let place = ((item * params.limbs + limb) << params.log_degree) + 8u * (at % blocks) + j;
                out[place] = unpack(residue);
            }
        }
    }
}
