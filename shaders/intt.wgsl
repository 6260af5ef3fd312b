// A pass of the inverse transform of a into out: bit-reversed order to natural, the last stages first.
// Residues come in below q. After j stages they are below 2^(j + 1) · q: sums double, and products are below 4q, of the
// first stage below 3q. With 10 stages at most all stay below 2^61. A pass reduces them in the end. The last stage of
// all is times N⁻¹: its factor has it in it, and its sums are multiplied by it.

const TABLE: u32 = 1u;

// A multiple of q that no residue is above.
var<private> bound: Wide;

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let number = group.y * groups.x + group.x;
    if number >= params.count {
        return;
    }
    let t = tile_of(number);
    set_prime(t.limb);
    bound = q;
    let is_first = params.log_columns == 0u;
    if is_first {
        for (var e = index; e < tile_size(); e += THREADS) {
            tile[slot(e)] = a[t.start | place(e)];
        }
        workgroupBarrier();
    }
    var left = params.stages;
    while left > 0u {
        let stage = max(left, ROUND) - ROUND;
        let taken = left - stage;
        if has_eight(index) {
            let r = round_of(t, index, stage);
            let at = slots(r);
            var x: Eight;
            if left == params.stages && !is_first {
                x = load(places(t, r));
            } else {
                x = take(at);
            }
            if taken > 2u {
                grow();
                x = near(x, 4u * r.factor);
            }
            if taken > 1u {
                grow();
                x = middle(x, 2u * r.factor);
            }
            grow();
            x = far(x, r.factor);
            if stage > 0u {
                put(at, x);
            } else {
                store(places(t, r), finished(x, t.limb));
            }
        }
        workgroupBarrier();
        left = stage;
    }
}

fn grow() {
    bound = add(bound, bound);
}

// u + v and (u − v) / w.
fn butterfly(u: Wide, v: Wide, w: Factor) -> Butterfly {
    return Butterfly(add(u, v), times(sub(add(u, bound), v), w));
}

// What a pass leaves, reduced.
fn finished(x: Eight, limb: u32) -> Eight {
    if params.first_stage > 0u {
        return Eight(reduced(x[0], limb), reduced(x[1], limb), reduced(x[2], limb), reduced(x[3], limb),
            reduced(x[4], limb), reduced(x[5], limb), reduced(x[6], limb), reduced(x[7], limb));
    }
    let n = degree_inverse(limb);
    return Eight(least(times(x[0], n)), least(times(x[1], n)), least(times(x[2], n)), least(times(x[3], n)),
        least(x[4]), least(x[5]), least(x[6]), least(x[7]));
}

// The residue itself, below q, of x below 4q.
fn least(x: Wide) -> Wide {
    return subtract_once(subtract_once(x, add(q, q)), q);
}
