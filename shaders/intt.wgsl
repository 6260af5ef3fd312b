// A pass of the inverse transform of a into out: bit-reversed order to natural, the last stages first.
// Residues come in below q and at most double a stage: before the one that is j-th they are below 2^j · q.
// With 10 stages at most that is below 2^60. The last pass has N⁻¹ as its factor.

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let number = group.y * groups.x + group.x;
    if number >= params.count {
        return;
    }
    let t = tile_of(number);
    var bound = prime(t.limb);
    for (var e = index; e < tile_size(); e += THREADS) {
        tile[e] = a[place(t, e)];
    }
    for (var left = params.stages; left > 0u; left--) {
        workgroupBarrier();
        for (var p = index; p < tile_size() / 2u; p += THREADS) {
            let pair = butterfly(t, p, left - 1u);
            let u = pack(tile[pair.upper]);
            let v = pack(tile[pair.lower]);
            tile[pair.upper] = unpack(add(u, v));
            let difference = sub(add(u, bound), v);
            tile[pair.lower] = unpack(twiddled(difference, t.limb, 1u, pair.twiddle));
        }
        bound = add(bound, bound);
    }
    workgroupBarrier();
    write_tile(t, index);
}
