// a + b mod q, residue by residue.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        let limb = limb_of(at);
        let q = prime(limb);
        let x = pack(a[in_a(at)]);
        let y = pack(b[in_b(at)]);
        out[at] = unpack(add_mod(x, y, q));
    }
}
