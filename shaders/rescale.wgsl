// round(x / p), p being the last prime, a thread a residue of the result. With h = (p − 1) / 2 and y the
// residue of x + h modulo p this is (x + h − y) / p.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        let last = params.limbs - 1u;
        let poly = at >> params.log_degree;
        let limb = poly % last;
        let i = at & ((1u << params.log_degree) - 1u);
        let start = poly / last * params.a_stride + i;
        let p = prime(last);
        let x = pack(a[start + (limb << params.log_degree)]);
        let y = add_mod(pack(a[start + (last << params.log_degree)]), half(p), p);
        out[at] = unpack(subtract_once(divided(add(x, half(p)), y, last, limb), prime(limb)));
    }
}
