// Residues of primes of two polynomials, as one: limb j of the result is limb `constants[j].y` of b where
// `constants[j].x` is 1, else of a. `limbs` are those of the result.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        let item = at / (params.limbs << params.log_degree);
        let source = constants[limb_of(at)];
        let place = (source.y << params.log_degree) + (at & ((1u << params.log_degree) - 1u));
        if source.x == 1u {
            out[at] = b[item * params.b_stride + place];
        } else {
            out[at] = a[item * params.a_stride + place];
        }
    }
}
