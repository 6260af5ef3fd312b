// The inverses mod m of public numbers a; 0 where there is none. By division steps, which decide by the lowest
// bits alone: 29 of them give a matrix of small numbers whose product with (f, g) is a multiple of 2^29, one limb.
// `rows` is how often that is done: as often as numbers of this size ever need, so that teams go together. That is 408
// times for 4096 bits and 815 for 8192, of twelve mads a limb each: f, g, d and e.
//
// Source: D. J. Bernstein and B.-Y. Yang, "Fast constant-time gcd computation and modular inversion", 2019.
//
// Numbers are two's complement modulo R', which is at least 2^32 · m here, every limb below 2^29. f and g are
// within ±m, d and e in [−m, 2m), with d·a ≡ f and e·a ≡ g mod m. Of the constants only m is read, and its inverse.

@compute @workgroup_size(GROUP)
fn main(@builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>) {
    begin(index, group.y * groups.x + group.x);
    let one = unit();
    var f = m;
    var g = load_a(a_item(), 0u, 0u);
    var d: Number;
    for (var j = 0u; j < LIMBS; j++) {
        d[j] = 0u;
    }
    var e = one;
    var delta = 1i;
    for (var round = 0u; round < params.rows; round++) {
        let low_fg = lowest(f, g);
        let low_de = lowest(d, e);
        let signs = vec2<i32>(non_negative(d), non_negative(e));
        let steps = division_steps(delta, low_fg);
        delta = steps.delta;
        let old_f = f;
        f = down(combine(f, g, steps.to_f, 0i));
        g = down(combine(old_f, g, steps.to_g, 0i));
        let old_d = d;
        d = down(combine(d, e, steps.to_f, of_m(steps.to_f, low_de, signs)));
        e = down(combine(old_d, e, steps.to_g, of_m(steps.to_g, low_de, signs)));
    }
    // g is 0 and f the greatest common divisor or its negative.
    let sign = vec2<i32>(2i * non_negative(f) - 1i, 0i);
    let divisor = combine(f, f, sign, 0i);
    var differs = 0u;
    for (var j = 0u; j < LIMBS; j++) {
        differs |= divisor[j] ^ one[j];
    }
    let exists = 1u - look_ahead(u32(differs != 0u), 1u).y;
    // In (−2m, 2m).
    var x = combine(d, d, sign, 0i);
    x = combine(x, x, vec2<i32>(1i, 0i), 2i - 2i * non_negative(x));
    _ = reduce(&x);
    for (var j = 0u; j < LIMBS; j++) {
        x[j] *= exists;
    }
    store(x);
}

// 2^29 · f' = to_f.x · f + to_f.y · g, and g' likewise. The sizes of a pair sum to 2^29 at most.
struct Steps {
    delta: i32,
    to_f: vec2<i32>,
    to_g: vec2<i32>,
}

fn division_steps(delta: i32, low_fg: vec2<u32>) -> Steps {
    var s = Steps(delta, vec2<i32>(1i, 0i), vec2<i32>(0i, 1i));
    var f = low_fg.x;
    var g = low_fg.y;
    for (var i = 0u; i < LIMB_BITS; i++) {
        let odd = (g & 1u) == 1u;
        if odd && s.delta > 0i {
            let old_f = f;
            let old_to_f = s.to_f;
            f = g;
            g = 0u - old_f;
            s = Steps(-s.delta, s.to_g, -old_to_f);
        }
        if odd {
            g += f;
            s.to_g += s.to_f;
        }
        g >>= 1u;
        s.to_f *= 2i;
        s.delta += 1i;
    }
    return s;
}

// The multiple of m that makes c.x · d + c.y · e one of 2^29, and takes m from each of d and e that is not
// negative: both are within ±m then, the sum over 2^29 in [−m, 2m).
fn of_m(c: vec2<i32>, low_de: vec2<u32>, signs: vec2<i32>) -> i32 {
    let taken = -(c.x * signs.x + c.y * signs.y);
    // Modulo 2^32.
    let lowest = u32(c.x) * low_de.x + u32(c.y) * low_de.y + u32(taken) * constants[8];
    return taken + i32(((lowest & MASK) * m_inverse) & MASK);
}

// c.x · x + c.y · y + of_m · m modulo R'. A factor below zero is its size times the number's negative, which is
// all its bits turned over, plus 1. A column takes three products below 2^59.
fn combine(x: Number, y: Number, c: vec2<i32>, of_m: i32) -> Number {
    var p = x;
    var q = y;
    let factors = vec3<i32>(c, of_m);
    let sizes = vec3<u32>(abs(factors));
    let below_zero = factors < vec3<i32>(0i);
    let turned = select(vec3<u32>(0u), vec3<u32>(MASK), below_zero);
    let ones = select(vec3<u32>(0u), sizes, below_zero);
    var carry = wide(select(0u, ones.x + ones.y + ones.z, rank == 0u));
    for (var j = 0u; j < LIMBS; j++) {
        var column = mad(carry, p[j] ^ turned.x, sizes.x);
        column = mad(column, q[j] ^ turned.y, sizes.y);
        column = mad(column, m[j] ^ turned.z, sizes.z);
        p[j] = low(column) & MASK;
        carry = shift_right(column, LIMB_BITS);
    }
    finish_carries(&p, carry);
    resolve(&p);
    return p;
}

// x / 2^29 for a multiple of it.
fn down(x: Number) -> Number {
    var y = x;
    workgroupBarrier();
    columns[lane] = vec2<u32>(y[0], 0u);
    workgroupBarrier();
    let above = columns[min(lane + 1u, GROUP - 1u)].x;
    let extension = select(0u, MASK, is_negative(y[LIMBS - 1u]));
    for (var j = 0u; j + 1u < LIMBS; j++) {
        y[j] = y[j + 1u];
    }
    y[LIMBS - 1u] = select(above, extension, rank == TEAM - 1u);
    return y;
}

// The lowest limbs of two numbers.
fn lowest(x: Number, y: Number) -> vec2<u32> {
    workgroupBarrier();
    if rank == 0u {
        columns[lane] = vec2<u32>(x[0], y[0]);
    }
    workgroupBarrier();
    return columns[first];
}

// 1 for a number that is not negative, else 0.
fn non_negative(x: Number) -> i32 {
    workgroupBarrier();
    columns[lane] = vec2<u32>(x[LIMBS - 1u], 0u);
    workgroupBarrier();
    return select(1i, 0i, is_negative(columns[first + TEAM - 1u].x));
}

// Of a number with this highest limb.
fn is_negative(top: u32) -> bool {
    return (top >> (LIMB_BITS - 1u)) == 1u;
}
