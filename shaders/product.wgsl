// The product of all `rows` numbers of an item of a, mod m. b is R'^rows mod m, which makes up for
// as many Montgomery products: one for each row after the first, and the one by b itself, in round `rows`.
//
// Many rows of few items, below 4,096, are multiplied in groups of 16 first, and the products likewise: see `product`
// in accel/src/gpu/residues.rs.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    var x: Number;
    if params.from_round == 1u {
        x = load_a(a_item(), 0u, 0u);
    } else {
        x = load_state()[0];
    }
    for (var row = params.from_round; row < params.to_round; row++) {
        if row < params.rows {
            set_operand(load_a(a_item() + row * params.a_words, 0u, 0u));
        } else {
            set_operand(load_b(b_item(), 0u, 0u));
        }
        mont(&x);
    }
    if params.to_round > params.rows {
        _ = reduce(&x);
        store(x);
    } else {
        save_state(Residue(x));
    }
}
