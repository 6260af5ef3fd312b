//! Kernels over big numbers, and over words. R' is 2^(27 · limbs).

use num_bigint::BigUint;

use super::Grid;
use crate::gpu::shaders::{CONSTANTS_HEAD, LIMB_BITS, Params, Shape, WordParams};

/// The constants of a modulus.
pub(super) struct Numbers<'g> {
    shape: Shape,
    constants: &'g [u32],
    m: BigUint,
    /// R', and 1 / R' mod m.
    radix: BigUint,
    inverse: BigUint,
}

const ZERO: BigUint = BigUint::ZERO;

fn number(words: &[u32]) -> BigUint {
    BigUint::new(words.to_vec())
}

/// Writes a number that fits.
fn put(to: &mut [u32], x: &BigUint) {
    let digits = x.to_u32_digits();
    assert!(digits.len() <= to.len(), "a result fits");
    to.fill(0);
    to[..digits.len()].copy_from_slice(&digits);
}

impl<'g> Numbers<'g> {
    pub(super) fn of(shape: Shape, constants: &'g [u32]) -> Self {
        let radix = BigUint::from(1u8) << shape.radix_bits();
        let mut numbers = Self { shape, constants, m: ZERO, radix, inverse: ZERO };
        numbers.m = numbers.constant(0);
        numbers.inverse = (&numbers.radix % &numbers.m).modinv(&numbers.m).unwrap();
        let base = 1u64 << LIMB_BITS;
        let low = (&numbers.m % base).to_u64_digits()[0];
        assert_eq!((low * u64::from(constants[0]) + 1) % base, 0, "−1/m");
        assert!(numbers.m < numbers.radix);
        numbers
    }

    /// Limb `j` of rank `r` at `j · team + r`, each at most 2^27.
    fn spread(&self, limbs: &[u32]) -> BigUint {
        let Shape { team, limbs: each } = self.shape;
        let order = (0..team).flat_map(|rank| (0..each).map(move |j| (j * team + rank) as usize));
        let (mut words, mut sum, mut bits) = (vec![], 0u128, 0);
        for place in order {
            sum += u128::from(limbs[place]) << bits;
            bits += LIMB_BITS;
            while bits >= 32 {
                words.push(sum as u32);
                sum >>= 32;
                bits -= 32;
            }
        }
        words.extend([sum as u32, (sum >> 32) as u32]);
        BigUint::new(words)
    }

    fn put_spread(&self, to: &mut [u32], x: &BigUint) {
        let Shape { team, limbs: each } = self.shape;
        let mask = (1u64 << LIMB_BITS) - 1;
        let words = x.to_u32_digits();
        let word = |i: usize| words.get(i).map_or(0, |&w| u64::from(w));
        for limb in 0..team * each {
            let bit = (limb * LIMB_BITS) as usize;
            let two = word(bit / 32) | word(bit / 32 + 1) << 32;
            to[(limb % each * team + limb / each) as usize] = (two >> (bit % 32) & mask) as u32;
        }
    }

    fn total(&self) -> usize {
        self.shape.total() as usize
    }

    fn constant(&self, index: usize) -> BigUint {
        self.spread(&self.constants[CONSTANTS_HEAD + index * self.total()..][..self.total()])
    }

    /// `x / R' mod m`.
    fn mont(&self, x: BigUint) -> BigUint {
        x * &self.inverse % &self.m
    }

    /// What kernels use to get into and out of the form `x · R'`.
    fn check_powers(&self) {
        let one = &self.radix % &self.m;
        assert_eq!(self.constant(2), &one * &one % &self.m, "R'² mod m");
        assert_eq!(self.constant(1), one, "R' mod m");
    }

    /// Whether all of these are the same modulo m, and what follows the last is the same.
    pub(super) fn are_same(&self, x: &[u32], y: &[u32]) -> bool {
        let rest = x.len() / self.total() * self.total();
        let numbers = x.chunks_exact(self.total()).zip(y.chunks_exact(self.total()));
        x[rest..] == y[rest..]
            && numbers.into_iter().all(|(x, y)| {
                // What a kernel did not write is anything, and the same.
                x == y || (self.spread(x) % &self.m == self.spread(y) % &self.m)
            })
    }
}

fn params(grid: &Grid<'_>) -> Params {
    let words: [u32; 18] = grid.params.try_into().unwrap();
    let [count, a_words, a_stride, a_start, b_words, b_stride, b_start, rest @ ..] = words;
    let [out_words, out_stride, out_start, shift, rows, windows, width, rest @ ..] = rest;
    let [row_bits, flag, from_round, to_round] = rest;
    Params {
        count,
        a_words,
        a_stride,
        a_start,
        b_words,
        b_stride,
        b_start,
        out_words,
        out_stride,
        out_start,
        shift,
        rows,
        windows,
        width,
        row_bits,
        flag,
        from_round,
        to_round,
    }
}

/// Where an operand of an item lies, and the next `more` after it.
fn at(start: u32, stride: u32, item: u32, words: u32, more: u32) -> std::ops::Range<usize> {
    let first = (start + item * stride + more * words) as usize;
    first..first + words as usize
}

fn a_of(grid: &Grid<'_>, p: &Params, item: u32, more: u32) -> BigUint {
    number(&grid.a[at(p.a_start, p.a_stride, item, p.a_words, more)])
}

fn b_of(grid: &Grid<'_>, p: &Params, item: u32, more: u32) -> BigUint {
    number(&grid.b[at(p.b_start, p.b_stride, item, p.b_words, more)])
}

fn store(grid: &mut Grid<'_>, p: &Params, item: u32, more: u32, x: &BigUint) {
    put(&mut grid.out[at(p.out_start, p.out_stride, item, p.out_words, more)], x);
}

/// For each item what it is.
fn each(grid: &mut Grid<'_>, f: impl Fn(&Numbers<'_>, &Grid<'_>, &Params, u32) -> BigUint) {
    let (numbers, p) = (Numbers::of(grid.shape.unwrap(), grid.constants), params(grid));
    for item in 0..p.count {
        let x = f(&numbers, grid, &p, item);
        store(grid, &p, item, 0, &x);
    }
}

/// `a · b · 2^shift / R'`, and with a flag that times R'.
pub(super) fn mont_mul(grid: &mut Grid<'_>) {
    each(grid, |m, grid, p, item| {
        let b = b_of(grid, p, item, 0) << p.shift;
        assert!(b < m.radix);
        let product = a_of(grid, p, item, 0) * b;
        m.check_powers();
        if p.flag == 1 { product % &m.m } else { m.mont(product) }
    });
}

/// A kernel in rounds: each makes a number of the one before, from `first` to before `last`, and what is
/// then is kept as a number of the state or, the last time, written.
fn rounds(
    grid: &mut Grid<'_>,
    [first, last]: [u32; 2],
    start: impl Fn(&Numbers<'_>, &Grid<'_>, &Params, u32) -> BigUint,
    round: impl Fn(&Numbers<'_>, &Grid<'_>, &Params, u32, u32, BigUint) -> BigUint,
) {
    let (m, p) = (Numbers::of(grid.shape.unwrap(), grid.constants), params(grid));
    m.check_powers();
    for item in 0..p.count {
        let kept = item as usize * m.total()..(item as usize + 1) * m.total();
        let mut x = match p.from_round == first {
            true => start(&m, grid, &p, item),
            false => m.spread(&grid.state[kept.clone()]),
        };
        for index in p.from_round..p.to_round {
            x = round(&m, grid, &p, item, index, x) % &m.m;
        }
        match p.to_round == last {
            true => store(grid, &p, item, 0, &x),
            false => m.put_spread(&mut grid.state[kept], &x),
        }
    }
}

/// The product of all rows of a: a row a round, each over R', then b over R', which makes up for them.
pub(super) fn product(grid: &mut Grid<'_>) {
    let p = params(grid);
    rounds(
        grid,
        [1, p.rows + 1],
        |_, grid, p, item| a_of(grid, p, item, 0),
        |m, grid, p, item, row, x| {
            let is_row = row < p.rows;
            m.mont(x * if is_row { a_of(grid, p, item, row) } else { b_of(grid, p, item, 0) })
        },
    );
}

/// `a^e · R'` for every e below 2^width, of item 0 with a flag that times b.
pub(super) fn table(grid: &mut Grid<'_>) {
    let (m, p) = (Numbers::of(grid.shape.unwrap(), grid.constants), params(grid));
    m.check_powers();
    for item in 0..p.count {
        let base = a_of(grid, &p, item, 0);
        let mut power = match p.flag == 1 && item == 0 {
            true => b_of(grid, &p, 0, 0),
            false => BigUint::from(1u8),
        };
        for entry in 0..1 << p.width {
            let place = ((item << p.width) + entry) as usize * m.total();
            m.put_spread(&mut grid.out[place..][..m.total()], &(&power * &m.radix % &m.m));
            power = power * &base % &m.m;
        }
    }
}

/// The product over all rows of the power that the row's exponent in a names, by windows from the top: squares,
/// then an entry of each row's table in b, in the end over R'.
pub(super) fn pow(grid: &mut Grid<'_>) {
    let p = params(grid);
    let each = p.width + p.rows;
    rounds(
        grid,
        [p.width, p.windows * each + 1],
        |m, _, _, _| m.radix.clone(),
        |m, grid, p, item, round, x| {
            if round == p.windows * each {
                return m.mont(x);
            }
            let (window, step) = (p.windows - 1 - round / each, round % each);
            if step < p.width {
                return m.mont(&x * &x);
            }
            let row = step - p.width;
            let start = (p.a_start + item * p.a_stride + row * p.shift) as usize;
            let exponent = number(&grid.a[start..start + p.a_words as usize]);
            let digit = exponent >> (row * p.row_bits + window * p.width);
            let digit = (digit % (1u32 << p.width)).to_u32_digits();
            let digit = digit.first().copied().unwrap_or(0);
            let entry = (((item * p.flag + row) << p.width) + digit) as usize * m.total();
            m.mont(x * m.spread(&grid.b[entry..][..m.total()]))
        },
    );
}

/// `a mod m`, of `rows` pieces of R'.
pub(super) fn reduce(grid: &mut Grid<'_>) {
    each(grid, |m, grid, p, item| {
        m.check_powers();
        let a = a_of(grid, p, item, 0);
        assert!(a.bits() <= u64::from(p.rows * m.shape.radix_bits()));
        a % &m.m
    });
}

/// `(a − b) / m`, with a flag after b.
pub(super) fn divide(grid: &mut Grid<'_>) {
    let (m, p) = (Numbers::of(grid.shape.unwrap(), grid.constants), params(grid));
    for item in 0..p.count {
        let (a, b) = (a_of(grid, &p, item, 0), b_of(grid, &p, item, 0));
        let difference = a - &b;
        assert_eq!(&difference % &m.m, ZERO);
        let quotient = difference / &m.m;
        if p.flag == 1 {
            store(grid, &p, item, 0, &b);
        }
        store(grid, &p, item, p.flag, &quotient);
    }
}

/// `a · n + b`.
pub(super) fn linear(grid: &mut Grid<'_>) {
    each(grid, |m, grid, p, item| {
        assert_eq!(m.m.clone() + 1u8, m.radix);
        a_of(grid, p, item, 0) * m.constant(3) + b_of(grid, p, item, 0)
    });
}

/// `(a · c + b · d) / R' mod m`.
pub(super) fn residues_sum(grid: &mut Grid<'_>) {
    each(grid, |m, grid, p, item| {
        let (a, b) = (a_of(grid, p, item, 0), b_of(grid, p, item, 0));
        m.mont(a * m.constant(3) + b * m.constant(4))
    });
}

/// `(a₀ + a₁·m) · (b₀ + b₁·m) · 2^shift / R' mod m²`, as digits.
pub(super) fn pair_mul(grid: &mut Grid<'_>) {
    let (m, p) = (Numbers::of(grid.shape.unwrap(), grid.constants), params(grid));
    assert_eq!(m.constant(3) + 1u8, m.m);
    let square = &m.m * &m.m;
    let inverse = (&m.radix % &square).modinv(&square).unwrap();
    for item in 0..p.count {
        let a = a_of(grid, &p, item, 0) + a_of(grid, &p, item, 1) * &m.m;
        let b = b_of(grid, &p, item, 0) + b_of(grid, &p, item, 1) * &m.m;
        let product = ((a * b) << p.shift) * &inverse % &square;
        store(grid, &p, item, 0, &(&product % &m.m));
        store(grid, &p, item, 1, &(product / &m.m));
    }
}

/// The inverse of a modulo m, or 0.
pub(super) fn invert(grid: &mut Grid<'_>) {
    let (m, p) = (Numbers::of(grid.shape.unwrap(), grid.constants), params(grid));
    assert!(m.m.bits() + 32 <= m.radix.bits());
    for item in 0..p.count {
        let inverse = a_of(grid, &p, item, 0).modinv(&m.m).unwrap_or_default();
        store(grid, &p, item, 0, &inverse);
    }
}

fn word_params(grid: &Grid<'_>) -> WordParams {
    let [words, item_words, a_stride, b_stride, c_stride] = grid.params.try_into().unwrap();
    WordParams { words, item_words, a_stride, b_stride, c_stride }
}

/// b where a is 1, where it is 0 the constants.
pub(super) fn choose(grid: &mut Grid<'_>) {
    let p = word_params(grid);
    for (index, out) in grid.out[..p.words as usize].iter_mut().enumerate() {
        let (item, word) = (index as u32 / p.item_words, index as u32 % p.item_words);
        *out = match grid.a[(item * p.a_stride) as usize] {
            1 => grid.b[(item * p.b_stride + word) as usize],
            _ => grid.constants[(item * p.c_stride + word) as usize],
        };
    }
}

/// The digits 1 and a.
pub(super) fn unit_pair(grid: &mut Grid<'_>) {
    let p = word_params(grid);
    let each = p.item_words as usize;
    for (item, pair) in grid.out[..p.words as usize].chunks_mut(each).enumerate() {
        let (low, high) = pair.split_at_mut(each / 2);
        low.fill(0);
        low[0] = 1;
        high.copy_from_slice(&grid.a[item * p.a_stride as usize..][..each / 2]);
    }
}
