//! Products, squares and Montgomery reductions of numbers of any length in 64-bit words, least
//! significant first, in portable safe Rust and in constant time: what is branched on and indexed
//! by is lengths alone. (That the machine's multiplication takes the same time for all words is
//! taken for granted.)
//!
//! All but the diagonal of a square is done by one kernel, [`rows`]: it adds up to nine words'
//! multiples of a number to an accumulator, column by column, so that a column's products are
//! summed in registers and the accumulator is read and written once for all of them. In a reduction
//! those words are the next quotient digits, each found at the foot of its own column.
//!
//! Below B = 2^64, and h is the length of the modulus.

/// `$body` for each `$c` below `$n`, at most nine, as straight code: the compiler gives up on
/// unrolling loops as large as these, whose inner loops have a length that depends on `$c`.
macro_rules! unroll {
    ($c:ident < $n:expr, $body:block) => { unroll!($c, $n, $body, 0 1 2 3 4 5 6 7 8) };
    ($c:ident, $n:expr, $body:block, $($i:literal)*) => {
        $(if $i < $n {
            let $c: usize = $i;
            $body
        })*
    };
}

/// Rows that are added at once.
pub(super) const ROWS: usize = 8;

/// Returns the rows to add at once of `left` that are left: eight, or all nine rather than leave a
/// single one, which is slow by itself.
fn width(left: usize) -> usize {
    match left {
        9 => 9,
        ROWS.. => ROWS,
        4.. => 4,
        _ => 1,
    }
}

/// Calls a function of as many rows as [`width`] says.
macro_rules! by_width {
    ($left:expr, $f:ident($($arg:expr),*)) => {
        match width($left) {
            9 => $f::<9>($($arg),*),
            ROWS => $f::<ROWS>($($arg),*),
            4 => $f::<4>($($arg),*),
            _ => $f::<1>($($arg),*),
        }
    };
}

/// The sum of a column: a word of it, and what it carries to the next columns.
#[derive(Clone, Copy)]
struct ColumnSum {
    low: u64,
    high: u128,
}

impl ColumnSum {
    /// # Bound
    /// `carry` is far below 2^127.
    #[inline(always)]
    fn new(carry: u128, word: u64) -> Self {
        let sum = carry + u128::from(word);
        Self { low: sum as u64, high: sum >> 64 }
    }

    /// Compiles to a multiplication, an addition and two additions with carry.
    ///
    /// # Bound
    /// (B − 1)² + (B − 1) < B², and `high` grows by less than B a time.
    #[inline(always)]
    fn add(&mut self, x: u64, y: u64) {
        let sum = u128::from(x) * u128::from(y) + u128::from(self.low);
        self.low = sum as u64;
        self.high += sum >> 64;
    }
}

/// `acc += x · b + carry · B^b.len()` over `W + b.len()` words of `acc`, giving the carry out of
/// them. To `REDUCE`, `x` is rather found such that the `W` lowest words vanish, and is left in
/// their place; `n0` is −b⁻¹ mod B.
///
/// Two columns are summed at a time, in two chains of additions that do not wait for each other.
///
/// # Bound
/// `b` has `W` words at least. A column is of at most W + 2 terms, so `high` is below 12·B.
#[inline(always)]
fn rows<const W: usize, const REDUCE: bool>(
    acc: &mut [u64],
    mut x: [u64; W],
    b: &[u64],
    n0: u64,
    carry: u64,
) -> u64 {
    let (head, rest) = acc[..W + b.len()].split_at_mut(W);
    let (body, tail) = rest.split_at_mut(b.len() - W);
    let (first, last) = (&b[..W], &b[b.len() - W..]);
    let mut high = 0;
    unroll!(c < W, {
        let mut s = ColumnSum::new(high, head[c]);
        for r in 0..c {
            s.add(x[r], first[c - r]);
        }
        if REDUCE {
            x[c] = s.low.wrapping_mul(n0);
        }
        s.add(x[c], first[0]);
        head[c] = if REDUCE { x[c] } else { s.low };
        high = s.high;
    });
    let mut windows = b[1..].array_windows::<W>();
    let (twos, odd) = body.as_chunks_mut::<2>();
    for [d, e] in twos {
        let (Some(v), Some(w)) = (windows.next(), windows.next()) else { break };
        let (mut s, mut t) = (ColumnSum::new(high, *d), ColumnSum::new(0, *e));
        for r in 0..W {
            s.add(x[r], v[W - 1 - r]);
            t.add(x[r], w[W - 1 - r]);
        }
        let u = ColumnSum::new(s.high, t.low);
        (*d, *e, high) = (s.low, u.low, u.high + t.high);
    }
    for (d, v) in odd.iter_mut().zip(windows) {
        let mut s = ColumnSum::new(high, *d);
        for r in 0..W {
            s.add(x[r], v[W - 1 - r]);
        }
        (*d, high) = (s.low, s.high);
    }
    high += u128::from(carry);
    unroll!(c < W, {
        let mut s = ColumnSum::new(high, tail[c]);
        for r in c + 1..W {
            s.add(x[r], last[W + c - r]);
        }
        (tail[c], high) = (s.low, s.high);
    });
    high as u64
}

/// [`rows`] of the first `W` words of `a`.
#[inline(never)]
fn mul_rows<const W: usize>(acc: &mut [u64], a: &[u64], b: &[u64]) -> u64 {
    let mut x = [0; W];
    x.copy_from_slice(&a[..W]);
    rows::<W, false>(acc, x, b, 0, 0)
}

/// [`rows`] of the next `W` quotient digits.
#[inline(never)]
fn reduce_rows<const W: usize>(acc: &mut [u64], m: &[u64], n0: u64, carry: u64) -> u64 {
    rows::<W, true>(acc, [0; W], m, n0, carry)
}

/// With T = `acc` + the sum of the products a·b, leaves Q, the Montgomery quotient of T, in
/// `acc[..h]`, and (T + Q·m) / R in `acc[h..]`. `acc` has 2h words, all the others h; R = B^h, and
/// `n0` is −m⁻¹ mod B.
///
/// # Bound
/// T + Q·m < R², which is the caller's to know. Where R ≥ 64m and T < R·m, as for `acc` = 0 and
/// two products of numbers below 2m, the result is below 2m again: (T + Q·m) / R < m + m.
///
/// The carry out of a block of W rows belongs in the word above them, which is column h of the
/// next block and the first that is new there. It is at most P + 1: if it was before, the block's
/// W + h words with all that is added to them are below
/// B^(W+h) + (P+1)·(B^W − 1)·(B^h − 1) + (P+1)·B^h < (P+2)·B^(W+h). The last carry belongs in word
/// 2h, so it is zero.
pub(super) fn mul_redc<const P: usize>(
    m: &[u64],
    n0: u64,
    acc: &mut [u64],
    products: [(&[u64], &[u64]); P],
) {
    let (mut done, mut carry) = (0, 0);
    while done < m.len() {
        let (acc, left) = (&mut acc[done..], m.len() - done);
        let mut next = 0;
        for (a, b) in products {
            next += by_width!(left, mul_rows(acc, &a[done..], b));
        }
        carry = next + by_width!(left, reduce_rows(acc, m, n0, carry));
        done += width(left);
    }
}

/// `acc += a · b`, over `a.len() + b.len()` words.
///
/// # Bound
/// `acc` is below B^l at first, for l words in the longer factor, whose multiples are added: after
/// j rows it is below B^l + (B^j − 1)·(B^l − 1) ≤ B^(j+l), so no block of rows has a carry out.
pub(super) fn add_product(mut acc: &mut [u64], a: &[u64], b: &[u64]) {
    let (mut a, b) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    while !a.is_empty() {
        by_width!(a.len(), mul_rows(acc, a, b));
        let w = width(a.len());
        (acc, a) = (&mut acc[w..], &a[w..]);
    }
}

/// For the first `W` words x of `a`: doubles 2W words of `acc` and adds x² and `carry` to them.
/// `carry` becomes the carry out.
///
/// # Bound
/// A column is of at most W / 2 products, doubled, and a square, so `high` is below 12·B.
#[inline(never)]
fn diagonal<const W: usize>(acc: &mut [u64], a: &[u64], carry: &mut u128) {
    let (acc, a) = (&mut acc[..2 * W], &a[..W]);
    unroll!(i < W, {
        for c in [2 * i, 2 * i + 1] {
            let mut s = ColumnSum::new(0, acc[c]);
            for r in (c + 1).saturating_sub(W)..c.div_ceil(2) {
                s.add(a[r], a[c - r]);
            }
            s = ColumnSum { low: s.low << 1, high: s.high << 1 | u128::from(s.low >> 63) };
            if c == 2 * i {
                s.add(a[i], a[i]);
            }
            let t = ColumnSum::new(*carry, s.low);
            (acc[c], *carry) = (t.low, t.high + s.high);
        }
    });
}

/// `acc = a²`, in 2·`a.len()` words: each block of words times all above it, and then the double
/// of that and the blocks' own squares.
///
/// # Bound
/// The blocks below word i, times all above each, sum to less than B^(i + h), h being the length
/// of `a`. So a block of w words, whose product with the h − i − w above it is added from word
/// 2i + w on, finds `acc` below B^(h − i − w) there, as [`add_product`] needs. The last carry of
/// the diagonal belongs in word 2h, so it is zero.
pub(super) fn square(acc: &mut [u64], a: &[u64]) {
    acc.fill(0);
    let mut i = 0;
    while i < a.len() {
        let w = width(a.len() - i);
        let (block, above) = a[i..].split_at(w);
        add_product(&mut acc[2 * i + w..], block, above);
        i += w;
    }
    let (mut i, mut carry) = (0, 0);
    while i < a.len() {
        by_width!(a.len() - i, diagonal(&mut acc[2 * i..], &a[i..], &mut carry));
        i += width(a.len() - i);
    }
}
