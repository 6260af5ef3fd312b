// A pass of the number-theoretic transform of a into out: natural order to bit-reversed, the first
// stages first. Residues come in below q and grow by 3q a stage. They stay so from one pass to the next: after 16
// stages they are below 49q < 2^56. The last pass, which has no columns, reduces them.

const TABLE: u32 = 0u;

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let number = group.y * groups.x + group.x;
    if number >= params.count {
        return;
    }
    let t = tile_of(number);
    set_prime(t.limb);
    let is_last = params.log_columns == 0u;
    var stage = 0u;
    while stage < params.stages {
        let taken = select(ROUND, 1u + (params.stages - 1u) % ROUND, stage == 0u);
        let after = stage + taken;
        if has_eight(index) {
            let r = round_of(t, index, stage);
            let at = slots(r);
            var x: Eight;
            if stage == 0u {
                x = load(places(t, r));
            } else {
                x = take(at);
            }
            x = far(x, r.factor);
            if taken > 1u {
                x = middle(x, 2u * r.factor);
            }
            if taken > 2u {
                x = near(x, 4u * r.factor);
            }
            if after < params.stages || is_last {
                put(at, x);
            } else {
                store(places(t, r), x);
            }
        }
        workgroupBarrier();
        stage = after;
    }
    if is_last {
        for (var e = index; e < tile_size(); e += THREADS) {
            out[t.start | place(e)] = unpack(reduced(pack(tile[slot(e)]), t.limb));
        }
    }
}

// u + w·v and u − w·v.
fn butterfly(u: Wide, v: Wide, w: Factor) -> Butterfly {
    let x = times(v, w);
    return Butterfly(add(u, x), sub(add(u, three_q), x));
}
