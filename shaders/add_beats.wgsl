// Lane by lane a + b mod q.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        out[at] = beat_number(at);
    }
}

fn lane_value(item: u32, k: u32) -> vec2<u32> {
    let q = prime(k % params.limbs);
    return unpack(add_mod(pack(a_lane(item, k)), pack(b_lane(item, k)), q));
}
