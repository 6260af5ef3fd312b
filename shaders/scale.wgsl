// a · w mod q, residue by residue, with a factor w for each prime: at b, with its quotient.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let at = thread(index, group, groups);
    if at < params.count {
        let limb = limb_of(at);
        let q = prime(limb);
        let scaled = mul_factor(pack(a[in_a(at)]), pack(b[2u * limb]), pack(b[2u * limb + 1u]), q);
        out[at] = unpack(subtract_once(scaled, q));
    }
}
