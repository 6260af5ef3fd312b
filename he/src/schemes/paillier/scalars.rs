//! Signed integers in clear: one for each ciphertext, or a matrix of them.

use std::marker::PhantomData;

use ciphergram_accel::{Operand, Public, Secrecy, Secret, exponents::bit_length};
use zeroize::Zeroizing;

use super::{
    PaillierModulus, fixed_point,
    words::{first_not_below, sign},
};
use crate::{Error, error::OperandFault};

/// Returns `words` as an input of secrecy `S`.
pub(super) fn operand<S: Secrecy>(words: &[u64]) -> Operand<'_> {
    if S::SECRET { Operand::SecretIn(words) } else { Operand::In(words) }
}

/// Signed integers, one for each ciphertext of a batch, or fixed-point numbers of one
/// [scale](super::Ciphertexts::scale). Zeroized on drop, without `Debug`.
///
/// [`Secret`] ones influence neither time nor memory access, signs included; [`Public`] ones cost
/// only what their own bits ask for.
pub struct Scalars<S: Secrecy> {
    bits: u32,
    magnitudes: Zeroizing<Vec<u64>>,
    /// A word of 1 for each negative one and 0 for the rest, if there are signs.
    negative: Option<Zeroizing<Vec<u64>>>,
    scale: u32,
    secrecy: PhantomData<S>,
}

fn fault(operand: &'static str, fault: OperandFault) -> Error {
    Error::Operand { operation: "scalars", operand, fault }
}

impl<S: Secrecy> Scalars<S> {
    fn new(bits: u32, magnitudes: Zeroizing<Vec<u64>>, negative: Option<Vec<u64>>) -> Self {
        let negative = negative.map(Zeroizing::new);
        Self { bits, magnitudes, negative, scale: 0, secrecy: PhantomData }
    }

    /// Scalars of one word, none negative.
    #[must_use]
    pub fn from_u64(values: &[u64]) -> Self {
        Self::new(64, values.to_vec().into(), None)
    }

    /// Signed scalars of one word. Constant time.
    #[must_use]
    pub fn from_i64(values: &[i64]) -> Self {
        let magnitudes: Vec<_> = values.iter().map(|v| v.unsigned_abs()).collect();
        Self::new(64, magnitudes.into(), Some(values.iter().map(|&v| sign(v)).collect()))
    }

    /// Rounds numbers to integers k that stand for `k / 2^scale`, ties to even: each is off by
    /// `2^-(scale + 1)` at most. Constant time unless one is refused.
    ///
    /// # Errors
    /// A scale above [`MAX_SCALE`](super::MAX_SCALE); a number that is not finite, or whose integer
    /// is not below n, by its index.
    pub fn from_f64(modulus: &PaillierModulus, values: &[f64], scale: u32) -> Result<Self, Error> {
        let integers = fixed_point::integral("scalars", values, scale)?;
        let mut words = Zeroizing::new(vec![0; integers.len() * fixed_point::WORDS]);
        let items = words.chunks_mut(fixed_point::WORDS).zip(integers.iter());
        items.for_each(|(item, &y)| fixed_point::magnitude(y, item));
        let negative = integers.iter().map(|&y| u64::from(y < 0.0)).collect();
        let magnitudes = narrowed(modulus, &words, fixed_point::WORDS)?;
        Ok(Self { scale, ..Self::new(modulus.n().bits(), magnitudes, Some(negative)) })
    }

    /// Takes integers of `each` words in two's complement, the lowest word first. Constant time
    /// unless one is refused.
    ///
    /// # Errors
    /// An incomplete item; one whose magnitude is not below n, by its index.
    pub fn from_twos_complement(
        modulus: &PaillierModulus,
        words: &[u64],
        each: usize,
    ) -> Result<Self, Error> {
        if each == 0 || !words.len().is_multiple_of(each) {
            return Err(fault("words", OperandFault::Words { found: words.len(), each }));
        }
        if each == 1 {
            let values: Vec<_> = words.iter().map(|&word| word as i64).collect();
            return Ok(Self::from_i64(&Zeroizing::new(values)));
        }
        let mut magnitudes = Zeroizing::new(words.to_vec());
        let mut negative = Vec::with_capacity(words.len() / each);
        for item in magnitudes.chunks_mut(each) {
            let sign = sign(item[each - 1] as i64);
            let mut carry = sign != 0;
            for word in item {
                (*word, carry) = (*word ^ sign.wrapping_neg()).carrying_add(0, carry);
            }
            negative.push(sign);
        }
        let magnitudes = narrowed(modulus, &magnitudes, each)?;
        Ok(Self::new(modulus.n().bits(), magnitudes, Some(negative)))
    }

    /// Returns the same numbers with the other sign. Constant time.
    #[must_use]
    pub fn negated(mut self) -> Self {
        let count = self.count();
        let signs = self.negative.get_or_insert_with(|| vec![0; count].into());
        signs.iter_mut().for_each(|sign| *sign ^= 1);
        self
    }

    /// Scalars of any size below n: magnitudes in as many words each as n has, and whether each is
    /// negative if any may be. Constant time unless one is refused.
    ///
    /// # Errors
    /// An incomplete magnitude; one that is not below n, by its index; another number of signs.
    pub fn try_from_words(
        modulus: &PaillierModulus,
        magnitudes: Zeroizing<Vec<u64>>,
        negative: Option<&[bool]>,
    ) -> Result<Self, Error> {
        let (found, each) = (magnitudes.len(), modulus.n().len_words());
        if !found.is_multiple_of(each) {
            return Err(fault("magnitudes", OperandFault::Words { found, each }));
        }
        if let Some(index) = first_not_below(&magnitudes, modulus.n().words()) {
            return Err(fault(
                "magnitudes",
                OperandFault::TooLarge { index, why: "is not below n".into() },
            ));
        }
        let (signs, expected) = (negative.map(<[bool]>::len), found / each);
        if let Some(found) = signs.filter(|&signs| signs != expected) {
            return Err(fault("signs", OperandFault::Count { found, expected }));
        }
        let negative = negative.map(|signs| signs.iter().map(|&s| u64::from(s)).collect());
        Ok(Self::new(modulus.n().bits(), magnitudes, negative))
    }

    /// Returns the number of scalars.
    #[must_use]
    pub fn count(&self) -> usize {
        self.magnitudes.len() / self.len_words()
    }

    /// Returns the bound on every magnitude, in bits: 64, or those of n.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the binary digits after the point: 0 of integers.
    #[must_use]
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Returns the words of one magnitude.
    pub(super) fn len_words(&self) -> usize {
        self.bits.div_ceil(64) as usize
    }

    /// Returns the magnitudes, item-major.
    pub(super) fn magnitudes(&self) -> &[u64] {
        &self.magnitudes
    }

    /// Returns the signs, if there are any.
    pub(super) fn negative(&self) -> Option<&[u64]> {
        self.negative.as_ref().map(|signs| signs.as_slice())
    }
}

impl Scalars<Public> {
    /// Returns the length of each magnitude, in bits.
    pub(super) fn lengths(&self) -> Vec<usize> {
        self.magnitudes.chunks(self.len_words()).map(bit_length).collect()
    }

    /// Returns some magnitudes in `each` words, which they fit.
    pub(super) fn magnitudes_of(&self, indices: &[usize], each: usize) -> Vec<u64> {
        let own = self.len_words();
        let words_of = |&index: &usize| {
            let item = self.magnitudes[index * own..][..own].iter().copied();
            item.chain(std::iter::repeat(0)).take(each)
        };
        indices.iter().flat_map(words_of).collect()
    }
}

/// Returns magnitudes of `each` words in as many as n has. Constant time unless one is refused.
fn narrowed(
    modulus: &PaillierModulus,
    words: &[u64],
    each: usize,
) -> Result<Zeroizing<Vec<u64>>, Error> {
    // Also where n is longer: what is compared is as long as the longer of both.
    let (n, k) = (modulus.n().words(), modulus.n().len_words());
    let mut out = Zeroizing::new(vec![0; words.len() / each * k]);
    let (mut long, mut bound) = (Zeroizing::new(vec![0; each.max(k)]), vec![0; each.max(k)]);
    bound[..k].copy_from_slice(n);
    for (index, (item, out)) in words.chunks(each).zip(out.chunks_mut(k)).enumerate() {
        long[..each].copy_from_slice(item);
        if first_not_below(&long, &bound).is_some() {
            return Err(fault(
                "values",
                OperandFault::TooLarge { index, why: "is not below n".into() },
            ));
        }
        out.copy_from_slice(&long[..k]);
    }
    Ok(out)
}

/// A matrix of integers, row-major, or of fixed-point numbers. Zeroized on drop, without `Debug`.
///
/// Exponents cannot be negative. A matrix with signs is held as `u = m + 2^(bits − 1)`, and what the
/// products have too much, `2^(bits − 1) · Σ c`, is the same for every row.
pub struct Matrix<S: Secrecy> {
    rows: usize,
    columns: usize,
    bits: u32,
    signed: bool,
    scale: u32,
    exponents: Zeroizing<Vec<u64>>,
    secrecy: PhantomData<S>,
}

impl Matrix<Public> {
    /// Makes a public matrix; the bound on its entries is the tightest one.
    ///
    /// # Errors
    /// Not `rows · columns` entries.
    pub fn public(rows: usize, columns: usize, entries: &[i64]) -> Result<Self, Error> {
        let signed = entries.iter().any(|&e| e < 0);
        // In two's complement: the bits past those that repeat the sign, and the sign.
        let bits = |&e: &i64| 64 - (e ^ (e >> 63)).leading_zeros() + u32::from(signed);
        let bits = entries.iter().map(bits).max().unwrap_or(0).max(1);
        Self::new([rows, columns], bits, signed, entries)
    }

    /// Rounds numbers to integers k that stand for `k / 2^scale`, as [`Scalars::from_f64`] does.
    ///
    /// # Errors
    /// See [`Matrix::public`] and [`Scalars::from_f64`]; an integer beyond 64 bits.
    pub fn public_from_f64(
        rows: usize,
        columns: usize,
        entries: &[f64],
        scale: u32,
    ) -> Result<Self, Error> {
        let integers = fixed_point::integral("matrix", entries, scale)?;
        // Both bounds are floats, and 2^63 itself is no i64.
        let beyond = |y: &f64| *y < -(2f64.powi(63)) || *y >= 2f64.powi(63);
        if let Some(index) = integers.iter().position(beyond) {
            let fault = OperandFault::beyond_bits(index, 64);
            return Err(Error::Operand { operation: "matrix", operand: "values", fault });
        }
        let entries: Vec<_> = integers.iter().map(|&y| y as i64).collect();
        Ok(Self { scale, ..Self::public(rows, columns, &entries)? })
    }
}

impl Matrix<Secret> {
    /// Makes a secret matrix of entries from `−2^(bits − 1)` up to `2^(bits − 1) − 1`. `bits` is
    /// public, from 1 to 64; the fewer, the faster. Constant time unless an entry is refused.
    ///
    /// # Errors
    /// Not `rows · columns` entries; an entry beyond `bits`, by its flat index.
    pub fn secret(rows: usize, columns: usize, entries: &[i64], bits: u32) -> Result<Self, Error> {
        Self::new([rows, columns], bits.clamp(1, 64), true, entries)
    }
}

impl<S: Secrecy> Matrix<S> {
    fn new(
        [rows, columns]: [usize; 2],
        bits: u32,
        signed: bool,
        entries: &[i64],
    ) -> Result<Self, Error> {
        let fault = |fault| Error::Operand { operation: "matrix", operand: "entries", fault };
        let (found, expected) = (entries.len(), rows.saturating_mul(columns));
        if found != expected {
            return Err(fault(OperandFault::Count { found, expected }));
        }
        let offset = u64::from(signed) << (bits - 1);
        let raise = |&e: &i64| (e as u64).wrapping_add(offset);
        let exponents = Zeroizing::new(entries.iter().map(raise).collect::<Vec<_>>());
        if let Some(index) = exponents.iter().position(|&u| u > u64::MAX >> (64 - bits)) {
            return Err(fault(OperandFault::beyond_bits(index, bits)));
        }
        Ok(Self { rows, columns, bits, signed, scale: 0, exponents, secrecy: PhantomData })
    }

    /// Returns the number of rows: ciphertexts of the result.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns: ciphertexts of the vector.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the bound on every entry, in bits; with the sign if there are signs.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the binary digits after the point: 0 of integers.
    #[must_use]
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Returns whether exponents are raised by `2^(bits − 1)`.
    pub(super) fn is_signed(&self) -> bool {
        self.signed
    }

    /// Returns the exponents, row-major.
    pub(super) fn exponents(&self) -> &[u64] {
        &self.exponents
    }
}
