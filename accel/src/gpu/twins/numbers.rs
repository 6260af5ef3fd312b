//! Kernels over big numbers, and over words. R' is 2^(29 · limbs), R'' = 2^58 · R' the radix of
//! pairs.

use num_bigint::BigUint;

use super::Grid;
use crate::gpu::shaders::{CONSTANTS_HEAD, LIMB_BITS, Params, Shape, WordParams};

/// The constants of a modulus.
pub(super) struct Numbers<'g> {
    shape: Shape,
    /// Numbers of a residue: in base m, if there are two, modulo its square.
    digits: usize,
    constants: &'g [u32],
    m: BigUint,
    /// The modulus of residues.
    modulus: BigUint,
    /// The radix of products, and one over it modulo that.
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
    pub(super) fn of(shape: Shape, digits: u32, constants: &'g [u32]) -> Self {
        let bits = if digits == 1 { shape.radix_bits() } else { shape.pair_radix_bits() };
        let radix = BigUint::from(1u8) << bits;
        let digits = digits as usize;
        let mut numbers =
            Self { shape, digits, constants, m: ZERO, modulus: ZERO, radix, inverse: ZERO };
        numbers.m = numbers.constant(0);
        numbers.modulus = numbers.m.pow(digits as u32);
        numbers.inverse = (&numbers.radix % &numbers.modulus).modinv(&numbers.modulus).unwrap();
        let base = 1u64 << LIMB_BITS;
        let low = (&numbers.m % base).to_u64_digits()[0];
        assert_eq!((low * u64::from(constants[0]) + 1) % base, 0, "−1/m");
        assert!(numbers.m < numbers.radix);
        numbers
    }

    /// Returns a number as threads take it, each limb at most 2^29.
    fn spread(&self, limbs: &[u32]) -> BigUint {
        let (mut words, mut sum, mut bits) = (vec![], 0u128, 0);
        for index in 0..self.shape.total() {
            sum += u128::from(limbs[self.shape.place(index) as usize]) << bits;
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
        let mask = (1u64 << LIMB_BITS) - 1;
        let words = x.to_u32_digits();
        let word = |i: usize| words.get(i).map_or(0, |&w| u64::from(w));
        for index in 0..self.shape.total() {
            let bit = (index * LIMB_BITS) as usize;
            let two = word(bit / 32) | word(bit / 32 + 1) << 32;
            to[self.shape.place(index) as usize] = (two >> (bit % 32) & mask) as u32;
        }
    }

    /// Returns the words of a number.
    fn words(&self) -> usize {
        self.shape.words() as usize
    }

    fn constant(&self, index: usize) -> BigUint {
        self.spread(&self.constants[CONSTANTS_HEAD + index * self.words()..][..self.words()])
    }

    /// Returns the words of a residue.
    fn each(&self) -> usize {
        self.digits * self.words()
    }

    /// Returns a residue whose digits are `words`.
    fn residue(&self, words: &[u32]) -> BigUint {
        let digits = words.chunks(self.words()).rev();
        digits.fold(ZERO, |high, digit| high * &self.m + self.spread(digit))
    }

    fn put_residue(&self, to: &mut [u32], x: &BigUint) {
        let mut rest = x.clone();
        for digit in to.chunks_mut(self.words()) {
            self.put_spread(digit, &(&rest % &self.m));
            rest /= &self.m;
        }
    }

    /// `x` over the radix.
    fn mont(&self, x: BigUint) -> BigUint {
        x * &self.inverse % &self.modulus
    }

    /// The constants by which kernels get into the form `x · radix`.
    fn check_powers(&self) {
        let residue = |index: usize| {
            let first = CONSTANTS_HEAD + self.words() + index * self.each();
            self.residue(&self.constants[first..][..self.each()])
        };
        let one = &self.radix % &self.modulus;
        assert_eq!(residue(1), &one * &one % &self.modulus, "the radix squared");
        assert_eq!(residue(0), one, "the radix");
    }

    /// Returns whether all of these are the same residues, and what follows the last is the same.
    pub(super) fn are_same(&self, x: &[u32], y: &[u32]) -> bool {
        let rest = x.len() / self.each() * self.each();
        let residues = x.chunks_exact(self.each()).zip(y.chunks_exact(self.each()));
        x[rest..] == y[rest..]
            && residues.into_iter().all(|(x, y)| {
                // What a kernel did not write is anything, and the same.
                x == y || (self.residue(x) % &self.modulus == self.residue(y) % &self.modulus)
            })
    }

    /// Returns the residue with these digits.
    fn digits_of(&self, digit: impl Fn(u32) -> BigUint) -> BigUint {
        (0..self.digits as u32).rev().fold(ZERO, |high, k| high * &self.m + digit(k))
    }

    /// Writes a residue of an item, each digit as words.
    fn store(&self, grid: &mut Grid<'_>, p: &Params, item: u32, x: &BigUint) {
        match self.digits {
            1 => store(grid, p, item, 0, x),
            _ => {
                store(grid, p, item, 0, &(x % &self.m));
                store(grid, p, item, 1, &(x / &self.m));
            }
        }
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

/// Returns the place of an operand of an item, or of the one `more` numbers after it.
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
    let (numbers, p) =
        (Numbers::of(grid.shape.unwrap(), grid.digits, grid.constants), params(grid));
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

/// Runs a kernel in rounds: each makes a residue of the one before, from `first` to before `last`,
/// and what is then is kept in the state or, the last time, written.
fn rounds(
    grid: &mut Grid<'_>,
    [first, last]: [u32; 2],
    start: impl Fn(&Numbers<'_>, &Grid<'_>, &Params, u32) -> BigUint,
    round: impl Fn(&Numbers<'_>, &Grid<'_>, &Params, u32, u32, BigUint) -> BigUint,
) {
    let (m, p) = (Numbers::of(grid.shape.unwrap(), grid.digits, grid.constants), params(grid));
    m.check_powers();
    for item in 0..p.count {
        let kept = item as usize * m.each()..(item as usize + 1) * m.each();
        let mut x = match p.from_round == first {
            true => start(&m, grid, &p, item),
            false => m.residue(&grid.state[kept.clone()]),
        };
        for index in p.from_round..p.to_round {
            x = round(&m, grid, &p, item, index, x) % &m.modulus;
        }
        match p.to_round == last {
            true => m.store(grid, &p, item, &x),
            false => m.put_residue(&mut grid.state[kept], &x),
        }
    }
}

/// The product of all rows of a: a row a round, each over R', then b over R', which makes up for
/// them.
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

/// `a^e` times the radix for every e below 2^width, of item 0 with a flag that times b.
pub(super) fn table(grid: &mut Grid<'_>) {
    let (m, p) = (Numbers::of(grid.shape.unwrap(), grid.digits, grid.constants), params(grid));
    m.check_powers();
    for item in 0..p.count {
        let base = m.digits_of(|k| a_of(grid, &p, item, k));
        let mut power = match p.flag == 1 && item == 0 {
            true => m.digits_of(|k| b_of(grid, &p, 0, k)),
            false => BigUint::from(1u8),
        };
        for entry in 0..1 << p.width {
            let place = ((item << p.width) + entry) as usize * m.each();
            let entry = &power * &m.radix % &m.modulus;
            m.put_residue(&mut grid.out[place..][..m.each()], &entry);
            power = power * &base % &m.modulus;
        }
    }
}

/// The product over all rows of the power that the row's exponent in a names, by windows from the
/// top: squares, then an entry of each row's table in b, in the end over the radix.
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
            let entry = (((item * p.flag + row) << p.width) + digit) as usize * m.each();
            m.mont(x * m.residue(&grid.b[entry..][..m.each()]))
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
    let (m, p) = (Numbers::of(grid.shape.unwrap(), grid.digits, grid.constants), params(grid));
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
    let (m, p) = (Numbers::of(grid.shape.unwrap(), grid.digits, grid.constants), params(grid));
    // Over R', not over the radix of powers.
    let radix = BigUint::from(1u8) << m.shape.radix_bits();
    let inverse = (radix % &m.modulus).modinv(&m.modulus).unwrap();
    for item in 0..p.count {
        let a = m.digits_of(|k| a_of(grid, &p, item, k));
        let b = m.digits_of(|k| b_of(grid, &p, item, k));
        let product = ((a * b) << p.shift) * &inverse % &m.modulus;
        m.store(grid, &p, item, &product);
    }
}

/// The inverse of a modulo m, or 0.
pub(super) fn invert(grid: &mut Grid<'_>) {
    let (m, p) = (Numbers::of(grid.shape.unwrap(), 1, grid.constants), params(grid));
    assert!(m.m.bits() + 32 <= u64::from(m.shape.radix_bits()));
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
