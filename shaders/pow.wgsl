// The product over `rows` of table[row][digit], window by window from the top with `width` squarings
// before each but the first: the first round is number `width`, the last, number windows · (width + rows),
// takes the radix away. a: exponents of a_words words; digit `window` of row `row` is bits
// `row · row_bits + window · width ..` of the exponent at `row · shift` words from the item's first. b: a table
// made by table.wgsl, `flag` bases for each item (0: all items share it).
//
// So it is the power of an own base (rows = 1), simultaneous powers of shared bases (a row and an
// exponent each), and the power of a fixed base (a row for each digit, one window).
//
// Every entry of a table is read for every digit, and the digit only makes masks of it. Digits have 1 to 7 bits, of an
// own base at most 5, by the cost of limbs touched (`digit_cost` in accel/src/gpu/constants.rs).

// What is b elsewhere: four limbs of a thread at once.
@group(0) @binding(3) var<storage, read> entries: array<vec4<u32>>;

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    let each = params.width + params.rows;
    let last = params.windows * each;
    var x: Residue;
    if params.from_round == params.width {
        x = residue_constant(0u);
    } else {
        x = load_state();
    }
    for (var round = params.from_round; round < params.to_round; round++) {
        let window = params.windows - 1u - round / each;
        let step = round % each;
        let is_square = round != last && step < params.width;
        if round == last {
            var plain_one: Residue;
            plain_one[0] = unit();
            set_factor(plain_one);
        } else if is_square {
            set_factor(x);
        } else {
            set_factor(entry(step - params.width, window));
        }
        multiply(&x, is_square);
    }
    if params.to_round > last {
        finish(&x);
        store_residue(x);
    } else {
        save_state(x);
    }
}

fn entry(row: u32, window: u32) -> Residue {
    let digit = digit_of(row, window);
    let base = clamped() * params.flag + row;
    var fours: array<vec4<u32>, DIGITS * FOURS>;
    for (var e = 0u; e < (1u << params.width); e++) {
        // All ones where e is the digit: only then 1 is taken from 0.
        let mask = vec4<u32>(0u - (((e ^ digit) - 1u) >> 31u));
        let start = ((base << params.width) + e) * DIGITS * FOURS;
        for (var k = 0u; k < DIGITS * FOURS; k++) {
            fours[k] |= entries[(start + k) * TEAM + rank] & mask;
        }
    }
    var x: Residue;
    for (var k = 0u; k < DIGITS; k++) {
        for (var j = 0u; j < LIMBS; j++) {
            x[k][j] = fours[k * FOURS + j / 4u][j % 4u];
        }
    }
    return x;
}

fn digit_of(row: u32, window: u32) -> u32 {
    let bit = row * params.row_bits + window * params.width;
    let start = a_item() + row * params.shift;
    let word = i32(bit >> 5u);
    let offset = bit & 31u;
    let above = select(0u, a_word(start, word + 1) << ((32u - offset) & 31u), offset != 0u);
    return ((a_word(start, word) >> offset) | above) & ((1u << params.width) - 1u);
}
