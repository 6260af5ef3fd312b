// The product of two pairs x₀ + x₁·s, y₀ + y₁·s modulo s², over the radix of pairs: the factor b is
// taken times 2^shift, so that R' takes away what the programs' radix does. m is s.
//
// x₀·y₀ + q·s = u·R' gives x₀·y₀ / R' = u − s·(q / R'), so the digits are u, and
// (x₀·y₁ + x₁·y₀ − q) / R' modulo s, of which −q / R' is the Montgomery product of q and EXTRA, s − 1.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    let words = params.a_words;
    var low_digit: Number;
    var high_digit: Number;
    for (var j = 0u; j < LIMBS; j++) {
        high_digit[j] = 0u;
    }
    // x₀y₀, −q, x₀y₁, x₁y₀.
    for (var term = 0u; term < 4u; term++) {
        var x: Number;
        if term == 1u {
            x = quotient();
            set_operand(constant(EXTRA));
        } else {
            x = load_a(a_item() + select(0u, words, term == 3u), 0u, 0u);
            set_operand(load_b(b_item() + select(0u, words, term == 2u), 0u, params.shift));
        }
        mont(&x);
        // What is taken from the low digit goes to the high one. The quotient stays where it is.
        let carried = reduce(&x);
        if term == 0u {
            low_digit = x;
            high_digit[0] = select(0u, carried, rank == 0u);
        } else {
            high_digit = sum(high_digit, x);
            _ = reduce(&high_digit);
        }
    }
    for (var half = 0u; half < 2u; half++) {
        if half == 1u {
            low_digit = high_digit;
        }
        store_at(low_digit, half * params.out_words);
    }
}
