// Library: Montgomery arithmetic of big numbers, several threads a number.
//
// A number is TEAM · LIMBS limbs of 29 bits, limb 0 least significant. The TEAM threads of a team
// hold LIMBS limbs each, an even number, in registers; rank 0 holds the lowest. A workgroup of 32 threads is 32 / TEAM
// teams; on NVIDIA it is one warp, so a barrier is of one warp. With R' = 2^(29 · TEAM · LIMBS) the host chooses sizes
// such that R' ≥ 4m.
//
// Ranges. "Settled" is: every limb at most 2^29, and the number below R'. `mont` takes settled
// numbers and gives a settled one: x·y/R' + m, which is below 2m for x, y < 2m, and for x < R', y < m. `reduce`
// takes a settled number below 2m and gives the one below m, every limb below 2^29.
//
// Columns. A column is with a thread for as many limbs of y as the thread has itself; what then goes to the rank below
// is 29 bits of it. So it takes at most 2 · 18 products of at most 2^58, in pair.wgsl 3 · 18, and carries below 2^36:
// less than 2^63.8, and nothing is carried from column to column inside the loop but what leaves the lowest two. With
// limbs of 30 bits columns would overflow; with 32 bits each product would need carries.
//
// No branch, no address and no loop depends on a number.

struct Params {
    // Items of the batch, at least 1.
    count: u32,
    // Of a: words of 32 bits in a number; from one item to the next (0: all items share one); where the
    // first starts. The same of b, and of the output.
    a_words: u32,
    a_stride: u32,
    a_start: u32,
    b_words: u32,
    b_stride: u32,
    b_start: u32,
    out_words: u32,
    out_stride: u32,
    out_start: u32,
    // The rest as each kernel says.
    shift: u32,
    rows: u32,
    windows: u32,
    width: u32,
    row_bits: u32,
    flag: u32,
    // Rounds of this dispatch: a long kernel takes several, with its numbers in `state` between them.
    from_round: u32,
    to_round: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// -m⁻¹ mod 2^29 in word 0; from word 8 on numbers at their `place`: m, R' mod m, R'² mod m, and more where a kernel
// says so. Over pairs s, then the digits of R'' and of R''² mod s².
@group(0) @binding(1) var<storage, read> constants: array<u32>;
@group(0) @binding(2) var<storage, read> a: array<u32>;
@group(0) @binding(3) var<storage, read> b: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<u32>;
// For each item the numbers of a residue at their `place`.
@group(0) @binding(5) var<storage, read_write> state: array<u32>;

const GROUP: u32 = 32u;
const LIMB_BITS: u32 = 29u;
const MASK: u32 = 0x1fffffffu;
// Words that hold the limbs of a thread wherever the first begins, and one more.
const NEIGHBOURS: u32 = (LIMBS * LIMB_BITS + 31u) / 32u + 1u;
// Four limbs lie together in numbers that stay on the device.
const FOURS: u32 = (LIMBS + 3u) / 4u;
// Places of numbers among the constants.
const ONE: u32 = 1u;
const R_SQUARED: u32 = 2u;
const EXTRA: u32 = 3u;

// Threads a number: a power of two up to a workgroup.
override TEAM: u32 = 1u;

alias Number = array<u32, LIMBS>;
// Sums of products before carries, a limb each, and one above those of this thread, 0 but within a round.
alias Columns = array<Wide, LIMBS + 1u>;
// Numbers of a residue: two in kernels over pairs. What follows has room for as many.
alias Residue = array<Number, DIGITS>;

// The second factor of `mont` of each team; afterwards the digits of the quotient q, for which
// x·y + q·m = x'·R'. Of a pair all low digits, then all high ones, and two words that nobody writes nor uses.
var<workgroup> operand: array<u32, DIGITS * GROUP * LIMBS + 2u>;
// The two digits of the quotient of this round and the last: what each thread would take. Rank 0's are right.
var<workgroup> digits: array<vec2<u32>, DIGITS * 2u * GROUP>;
// What threads of a team hand to their neighbours, in this round and the last.
var<workgroup> columns: array<vec2<u32>, DIGITS * 2u * GROUP>;

var<private> lane: u32;
var<private> rank: u32;
// The lane of rank 0.
var<private> first: u32;
var<private> item: u32;
var<private> m: Number;
var<private> m_inverse: u32;

// The place of a thread, and its limbs of m. Teams past the last item compute the last one once more.
fn begin(index: u32, group: u32) {
    lane = index;
    rank = lane % TEAM;
    first = lane - rank;
    item = group * (GROUP / TEAM) + lane / TEAM;
    m = constant(0u);
    m_inverse = constants[0];
}

fn clamped() -> u32 {
    return min(item, params.count - 1u);
}

// Where limb `j` of this thread is, of number `index` of those that lie as threads take them: four limbs of rank 0, of
// rank 1 and so on, then the next four of each: neighbouring threads read neighbouring 16 bytes, each with one
// instruction and one address. Of the last four there may be places that nobody uses.
fn place(index: u32, j: u32) -> u32 {
    return 4u * ((index * FOURS + j / 4u) * TEAM + rank) + j % 4u;
}

// Number `index` of the constants, and residue `index` of those after m.
fn constant(index: u32) -> Number {
    var x: Number;
    for (var j = 0u; j < LIMBS; j++) {
        x[j] = constants[8u + place(index, j)];
    }
    return x;
}

fn residue_constant(index: u32) -> Residue {
    var x: Residue;
    for (var k = 0u; k < DIGITS; k++) {
        x[k] = constant(1u + index * DIGITS + k);
    }
    return x;
}

// 29 bits from bit `offset` of `lower` on.
fn limb_of(lower: u32, upper: u32, offset: u32) -> u32 {
    let above = select(0u, upper << ((32u - offset) & 31u), offset != 0u);
    return ((lower >> offset) | above) & MASK;
}

fn a_word(start: u32, index: i32) -> u32 {
    let inside = index >= 0 && u32(index) < params.a_words;
    return select(0u, a[select(0u, start + u32(index), inside)], inside);
}

fn b_word(start: u32, index: i32) -> u32 {
    let inside = index >= 0 && u32(index) < params.b_words;
    return select(0u, b[select(0u, start + u32(index), inside)], inside);
}

// Where an item of a begins, and one of b.
fn a_item() -> u32 {
    return params.a_start + clamped() * params.a_stride;
}

fn b_item() -> u32 {
    return params.b_start + clamped() * params.b_stride;
}

// Limbs of 29 bits from bit `offset` of neighbouring words on. First these are shifted down, so that every
// limb is at a place known beforehand.
fn limbs_of(neighbours: array<u32, NEIGHBOURS>, offset: u32) -> Number {
    var words = neighbours;
    for (var k = 0u; k + 1u < NEIGHBOURS; k++) {
        words[k] = (words[k] >> offset) | select(0u, words[k + 1u] << ((32u - offset) & 31u), offset != 0u);
    }
    var x: Number;
    for (var j = 0u; j < LIMBS; j++) {
        let bit = LIMB_BITS * j;
        x[j] = limb_of(words[bit / 32u], words[bit / 32u + 1u], bit % 32u);
    }
    return x;
}

// Limbs `skip ..` of the number of a at `start`, times 2^shift; words past its end are zero.
fn load_a(start: u32, skip: u32, shift: u32) -> Number {
    let bit = i32(LIMB_BITS * (skip + rank * LIMBS)) - i32(shift);
    var words: array<u32, NEIGHBOURS>;
    for (var k = 0u; k < NEIGHBOURS; k++) {
        words[k] = a_word(start, (bit >> 5u) + i32(k));
    }
    return limbs_of(words, u32(bit) & 31u);
}

fn load_b(start: u32, skip: u32, shift: u32) -> Number {
    let bit = i32(LIMB_BITS * (skip + rank * LIMBS)) - i32(shift);
    var words: array<u32, NEIGHBOURS>;
    for (var k = 0u; k < NEIGHBOURS; k++) {
        words[k] = b_word(start, (bit >> 5u) + i32(k));
    }
    return limbs_of(words, u32(bit) & 31u);
}

// The number 1.
fn unit() -> Number {
    var x: Number;
    for (var j = 0u; j < LIMBS; j++) {
        x[j] = select(0u, 1u, rank + j == 0u);
    }
    return x;
}

fn set_operand(x: Number) {
    var y = x;
    for (var j = 0u; j < LIMBS; j++) {
        operand[lane * LIMBS + j] = y[j];
    }
}

// This thread's digits of the quotient that the last `mont` left.
fn quotient() -> Number {
    var x: Number;
    for (var j = 0u; j < LIMBS; j++) {
        x[j] = operand[lane * LIMBS + j];
    }
    return x;
}

// What the next lower rank gave; 0 for rank 0.
fn from_below(x: Wide) -> Wide {
    workgroupBarrier();
    columns[lane] = unpack(x);
    workgroupBarrier();
    let below = columns[max(lane, 1u) - 1u];
    return pack(select(below, vec2<u32>(0u, 0u), rank == 0u));
}

// Adds a carry at this thread's lowest limb; gives the carry out of its highest.
fn ripple(x: ptr<function, Number>, carry_in: Wide) -> Wide {
    var carry = carry_in;
    for (var j = 0u; j < LIMBS; j++) {
        let sum = add(carry, wide((*x)[j]));
        (*x)[j] = low(sum) & MASK;
        carry = shift_right(sum, LIMB_BITS);
    }
    return carry;
}

// Hands on what left the top of each thread's limbs, then what leaves it in turn, at most 1.
fn finish_carries(x: ptr<function, Number>, carry: Wide) {
    let second = ripple(x, from_below(carry));
    let last = low(from_below(second));
    (*x)[0] += last;
}

// Settles limbs of up to 32 bits, adding `carry_in` below each thread's: then the carries between
// threads are below 2^4, and after the second round at most 1. What leaves the top is dropped.
fn settle(x: ptr<function, Number>, carry_in: Wide) {
    finish_carries(x, ripple(x, carry_in));
}

// For carries of one bit: whether each thread makes one, and whether it passes one on. Gives what
// comes into this thread and what leaves the team.
fn look_ahead(makes: u32, passes: u32) -> vec2<u32> {
    workgroupBarrier();
    columns[lane] = vec2<u32>(makes, passes);
    workgroupBarrier();
    var carry = 0u;
    var into = 0u;
    for (var r = 0u; r < TEAM; r++) {
        into = select(into, carry, r == rank);
        let other = columns[first + r];
        carry = other.x | (other.y & carry);
    }
    return vec2<u32>(into, carry);
}

// 0, which compilers cannot know, of what changes in each round and has at most 31 bits. It is added to limbs that stay
// what they are: else compilers widen those to 64 bits once, before the loop, and no longer see in the loop that
// products are of 32 bits. NVIDIA's then takes more than two instructions for each in place of one.
fn unknown_zero(x: u32) -> u32 {
    return x >> 31u;
}

// acc + x · (y.x + y.y · 2^29).
fn accumulate(acc: ptr<function, Columns>, x: ptr<function, Number>, y: vec2<u32>, zero: u32) {
    for (var j = 0u; j < LIMBS; j++) {
        let limb = (*x)[j] + zero;
        (*acc)[j] = mad((*acc)[j], limb, y.x);
        (*acc)[j + 1u] = mad((*acc)[j + 1u], limb, y.y);
    }
}

// The digit of the quotient that makes a column a multiple of 2^29.
fn digit_for(column: u32) -> u32 {
    return (column * m_inverse) & MASK;
}

// The two that make the lowest columns of a number multiples of 2^29.
fn digits_for(acc: ptr<function, Columns>) -> vec2<u32> {
    let q = digit_for(low((*acc)[0]));
    let carry = low(shift_right(mad((*acc)[0], m[0], q), LIMB_BITS));
    return vec2<u32>(q, digit_for(low((*acc)[1]) + m[1] * q + carry));
}

// Adds what the rank above left in a slot of `columns`. Above the highest is rank 0 of a team, which leaves 0.
fn take_in(acc: ptr<function, Columns>, slot: u32) {
    let above = columns[slot + (lane + 1u) % GROUP];
    (*acc)[LIMBS - 2u] = add((*acc)[LIMBS - 2u], wide(above.x));
    (*acc)[LIMBS - 1u] = add((*acc)[LIMBS - 1u], wide(above.y));
}

// (acc + (q.x + q.y · 2^29) · modulus) / 2^58: every column goes two down, 29 bits of the lowest two to the rank below, which
// takes them in a round later; what is above goes up. Rounds write the slots `to` and `before` in turn: one barrier a
// round is enough. No branch: what is widened before one is not seen to be narrow after it either.
fn fold(acc: ptr<function, Columns>, modulus: ptr<function, Number>, q: vec2<u32>, zero: u32, to: u32, before: u32) {
    take_in(acc, before);
    accumulate(acc, modulus, q, zero);
    (*acc)[1] = add((*acc)[1], shift_right((*acc)[0], LIMB_BITS));
    (*acc)[2] = add((*acc)[2], shift_right((*acc)[1], LIMB_BITS));
    columns[to + lane] = vec2<u32>(low((*acc)[0]), low((*acc)[1])) & vec2<u32>(MASK, MASK);
    for (var j = 0u; j + 1u < LIMBS; j++) {
        (*acc)[j] = (*acc)[j + 2u];
    }
    (*acc)[LIMBS - 1u] = wide(0u);
    (*acc)[LIMBS] = wide(0u);
}

// Columns to a settled number.
fn carried(acc: ptr<function, Columns>) -> Number {
    var x: Number;
    var carry = wide(0u);
    for (var j = 0u; j < LIMBS; j++) {
        let sum = add((*acc)[j], carry);
        x[j] = low(sum) & MASK;
        carry = shift_right(sum, LIMB_BITS);
    }
    finish_carries(&x, carry);
    return x;
}

fn zeros() -> Columns {
    var acc: Columns;
    for (var j = 0u; j <= LIMBS; j++) {
        acc[j] = wide(0u);
    }
    return acc;
}

// x := x · operand / R' mod m, two limbs of the operand a round. It becomes the quotient.
fn mont(x: ptr<function, Number>) {
    let rounds = TEAM * LIMBS / 2u;
    var modulus = m;
    var acc = zeros();
    // Before the first round nothing was handed down.
    columns[GROUP + lane] = vec2<u32>(0u, 0u);
    workgroupBarrier();
    for (var round = 0u; round < rounds; round++) {
        let at = first * LIMBS + 2u * round;
        let y = vec2<u32>(operand[at], operand[at + 1u]);
        let zero = unknown_zero(y.x);
        accumulate(&acc, x, y, zero);
        let slot = (round & 1u) * GROUP;
        digits[slot + lane] = digits_for(&acc);
        workgroupBarrier();
        let q = digits[slot + first];
        fold(&acc, &modulus, q, zero, slot, GROUP - slot);
        if rank == 0u {
            operand[at] = q.x;
            operand[at + 1u] = q.y;
        }
    }
    workgroupBarrier();
    take_in(&acc, ((rounds - 1u) & 1u) * GROUP);
    *x = carried(&acc);
}

// x + y, settled.
fn sum(x: Number, y: Number) -> Number {
    var p = x;
    var q = y;
    for (var j = 0u; j < LIMBS; j++) {
        p[j] += q[j];
    }
    settle(&p, wide(0u));
    return p;
}

// Settled to exact: every limb below 2^29.
fn resolve(x: ptr<function, Number>) {
    let makes = low(ripple(x, wide(0u)));
    var passes = 1u;
    for (var j = 0u; j < LIMBS; j++) {
        passes &= u32((*x)[j] == MASK);
    }
    let into = look_ahead(makes, passes).x;
    _ = ripple(x, wide(into));
}

// x mod m for a settled x < 2m; gives 1 where x was at least m, else 0.
fn reduce(x: ptr<function, Number>) -> u32 {
    resolve(x);
    // x − m: a limb that borrows has its top bit set.
    var rest: Number;
    var borrow = 0u;
    var passes = 1u;
    for (var j = 0u; j < LIMBS; j++) {
        let difference = (*x)[j] - m[j] - borrow;
        borrow = difference >> 31u;
        rest[j] = difference & MASK;
        passes &= u32(rest[j] == 0u);
    }
    let borrows = look_ahead(borrow, passes);
    var into = borrows.x;
    let keep = 0u - borrows.y;
    for (var j = 0u; j < LIMBS; j++) {
        let difference = rest[j] - into;
        into = difference >> 31u;
        (*x)[j] = ((*x)[j] & keep) | (difference & MASK & ~keep);
    }
    return 1u - borrows.y;
}

fn load_state() -> Residue {
    var x: Residue;
    for (var k = 0u; k < DIGITS; k++) {
        for (var j = 0u; j < LIMBS; j++) {
            x[k][j] = state[place(clamped() * DIGITS + k, j)];
        }
    }
    return x;
}

fn save_state(x: Residue) {
    var y = x;
    if item < params.count {
        for (var k = 0u; k < DIGITS; k++) {
            for (var j = 0u; j < LIMBS; j++) {
                state[place(item * DIGITS + k, j)] = y[k][j];
            }
        }
    }
}

// Writes an exact number as words of 32 bits, where the item's output begins.
fn store(x: Number) {
    store_at(x, 0u);
}

fn store_residue(x: Residue) {
    var y = x;
    for (var k = 0u; k < DIGITS; k++) {
        store_at(y[k], k * params.out_words);
    }
}

fn store_at(x: Number, skip: u32) {
    workgroupBarrier();
    set_operand(x);
    workgroupBarrier();
    if item < params.count {
        let start = params.out_start + skip + item * params.out_stride;
        for (var w = rank; w < params.out_words; w += TEAM) {
            let limb = (32u * w) / LIMB_BITS;
            let offset = 32u * w - LIMB_BITS * limb;
            out[start + w] = (exact_limb(limb) >> offset)
                | (exact_limb(limb + 1u) << (LIMB_BITS - offset))
                | select(0u, exact_limb(limb + 2u) << ((2u * LIMB_BITS - offset) & 31u), offset > 2u * LIMB_BITS - 32u);
        }
    }
}

fn exact_limb(index: u32) -> u32 {
    let inside = index < TEAM * LIMBS;
    return select(0u, operand[first * LIMBS + select(0u, index, inside)], inside);
}
