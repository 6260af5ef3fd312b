// Beats a as a polynomial; coefficients that they do not hold are zero.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        let item = at / (params.limbs << params.log_degree);
        let k = (at & ((1u << params.log_degree) - 1u)) * params.limbs + limb_of(at);
        let inside = k < 10u * params.beats;
        out[at] = select(vec2<u32>(0u, 0u), a_lane(item, select(0u, k, inside)), inside);
    }
}
