// A pass of the number-theoretic transform of a into out: natural order to bit-reversed, the first
// stages first. Residues come in below q and grow by 2q a stage, at most 10 of them, to 21q < 2^55.

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let number = group.y * groups.x + group.x;
    if number >= params.count {
        return;
    }
    let t = tile_of(number);
    let q = prime(t.limb);
    let two_q = add(q, q);
    for (var e = index; e < tile_size(); e += THREADS) {
        tile[e] = a[place(t, e)];
    }
    for (var stage = 0u; stage < params.stages; stage++) {
        workgroupBarrier();
        for (var p = index; p < tile_size() / 2u; p += THREADS) {
            let pair = butterfly(t, p, stage);
            let u = pack(tile[pair.upper]);
            let v = twiddled(pack(tile[pair.lower]), t.limb, 0u, pair.twiddle);
            tile[pair.upper] = unpack(add(u, v));
            tile[pair.lower] = unpack(sub(add(u, two_q), v));
        }
    }
    workgroupBarrier();
    write_tile(t, index);
}
