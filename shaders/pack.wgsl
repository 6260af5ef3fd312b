// The first coefficients of a polynomial a as beats, all limbs of a coefficient side by side; lanes past
// its end are zero.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        out[at] = beat_number(at);
    }
}

fn lane_value(item: u32, k: u32) -> vec2<u32> {
    let inside = k < (params.limbs << params.log_degree);
    let place = ((k % params.limbs) << params.log_degree) + k / params.limbs;
    return select(vec2<u32>(0u, 0u), a[item * params.a_stride + select(0u, place, inside)], inside);
}
