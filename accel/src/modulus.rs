//! One odd modulus.

use std::{hint::black_box, sync::Arc};

use crypto_bigint::{
    BoxedUint, ConcatenatingSquare, Odd,
    modular::{BoxedMontyForm, BoxedMontyParams},
};
use zeroize::{Zeroize, Zeroizing};

/// The largest modulus in bits: n² of a 4096-bit Paillier key.
pub const MAX_MODULUS_BITS: u32 = 8192;

/// An odd modulus `m` of 2 to [`MAX_MODULUS_BITS`] bits, in `ceil(bits / 64)` words.
///
/// It carries a name for the text form of programs and no `Debug`, since p² of a Paillier key is a
/// modulus too. All words are zeroized on drop.
pub struct Modulus {
    name: String,
    words: Vec<u64>,
    bits: u32,
    root: Option<Arc<Self>>,
}

/// Why a number cannot be a modulus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModulusError {
    /// Montgomery arithmetic needs an odd modulus.
    #[error("the modulus is even")]
    Even,
    /// A modulus below 3 has no arithmetic worth the name.
    #[error("the modulus is below 3")]
    TooSmall,
    /// Larger than any key that is supported.
    #[error("the modulus has {bits} bits, at most {MAX_MODULUS_BITS} are supported")]
    TooLarge {
        /// The number of bits found.
        bits: u32,
    },
}

impl Modulus {
    /// Checks `words`: little-endian, leading zeros allowed.
    ///
    /// # Errors
    /// Even, below 3, or above [`MAX_MODULUS_BITS`].
    pub fn new(name: impl Into<String>, words: &[u64]) -> Result<Self, ModulusError> {
        let used = words.iter().rposition(|&w| w != 0).map_or(0, |i| i + 1);
        let words = words[..used].to_vec();
        let Some(&top) = words.last() else { return Err(ModulusError::TooSmall) };
        let bits = used as u32 * 64 - top.leading_zeros();
        if words[0] & 1 == 0 {
            return Err(ModulusError::Even);
        }
        if bits < 2 {
            return Err(ModulusError::TooSmall);
        }
        if bits > MAX_MODULUS_BITS {
            return Err(ModulusError::TooLarge { bits });
        }
        Ok(Self { name: name.into(), words, bits, root: None })
    }

    /// Makes the square of `root`. Engines compute powers modulo it faster than modulo any other
    /// number of its size.
    ///
    /// # Errors
    /// The square is above [`MAX_MODULUS_BITS`].
    pub fn square(name: impl Into<String>, root: &Arc<Self>) -> Result<Self, ModulusError> {
        let big = Zeroizing::new(BoxedUint::from_words(root.words.iter().copied()));
        let square = Zeroizing::new(big.concatenating_square());
        let mut square = Self::new(name, square.as_words())?;
        square.root = Some(root.clone());
        Ok(square)
    }

    /// Returns the number that this is the square of, if it was made as one.
    pub(crate) fn root(&self) -> Option<&Arc<Self>> {
        self.root.as_ref()
    }

    /// Returns the name that programs print, such as `n²`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the size of `m` in bits.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns `m`, least significant word first; the highest word is not zero.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns the number of words of every residue.
    #[must_use]
    pub fn len_words(&self) -> usize {
        self.words.len()
    }

    /// Returns `R^power mod m` with `R = 2^(64 · len_words)`, the factor that `power` Montgomery
    /// products by ordinary numbers take away. Variable time in `power`.
    #[must_use]
    pub fn radix_power(&self, power: u32) -> Vec<u64> {
        self.power_of_two(64 * self.words.len() as u32, power)
    }

    /// Returns the factor for products of pairs, whose R is `2^(64 · words of the root)`.
    ///
    /// # Panics
    /// If this was not made as a square.
    #[must_use]
    pub fn pair_radix_power(&self, power: u32) -> Vec<u64> {
        let Some(root) = &self.root else { panic!("{} is not made as a square", self.name) };
        self.power_of_two(64 * root.words.len() as u32, power)
    }

    /// `2^(bits · power) mod m`. Variable time in both.
    pub(crate) fn power_of_two(&self, bits: u32, power: u32) -> Vec<u64> {
        let radix = power_of_two_mod(bits, &self.words);
        let odd = odd(&BoxedUint::from_words(self.words.iter().copied())).clone();
        let form = BoxedMontyForm::new(BoxedUint::from_words(radix), &BoxedMontyParams::new(odd));
        form.pow(&BoxedUint::from(power)).retrieve().as_words().to_vec()
    }

    /// Returns whether `words` is a number below `m`. Variable time: for public values only.
    #[must_use]
    pub fn contains_vartime(&self, words: &[u64]) -> bool {
        words.len() == self.words.len() && words.iter().rev().lt(self.words.iter().rev())
    }
}

impl Drop for Modulus {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

/// Returns a modulus as a divisor, with no copy of it.
pub(crate) fn odd(m: &BoxedUint) -> &Odd<BoxedUint> {
    match m.as_odd_vartime() {
        Some(odd) => odd,
        None => unreachable!("a modulus is odd, and so is a prime of a ring"),
    }
}

/// `x⁻¹ mod 2^64` for odd `x`: four Newton steps double the 5 correct bits of 3x ⊕ 2 past 64.
pub(crate) fn inverse_mod_word(x: u64) -> u64 {
    let start = x.wrapping_mul(3) ^ 2;
    (0..4).fold(start, |y, _| y.wrapping_mul(2u64.wrapping_sub(x.wrapping_mul(y))))
}

/// `2^exponent mod m`. Constant time: `m` may be secret.
pub(crate) fn power_of_two_mod(exponent: u32, m: &[u64]) -> Vec<u64> {
    let (_quotient, mut remainder) = divide_power_of_two(exponent, m);
    std::mem::take(&mut *remainder)
}

/// Returns the quotient and the remainder of `2^exponent` by m, whose highest word is not zero. The remainder
/// has the words of m, the quotient as many as the power. Constant time: `m` may be secret, and nothing
/// branches on it.
pub(crate) fn divide_power_of_two(
    exponent: u32,
    m: &[u64],
) -> (Zeroizing<Vec<u64>>, Zeroizing<Vec<u64>>) {
    // The quotient is as secret as m: it gives m away.
    let mut quotient = Zeroizing::new(vec![0u64; exponent as usize / 64 + 1]);
    let [mut remainder, mut less] = [(); 2].map(|()| Zeroizing::new(vec![0u64; m.len()]));
    // The largest power that is below m whatever its highest word.
    let below = exponent.min(64 * (m.len() as u32 - 1));
    remainder[below as usize / 64] = 1 << (below % 64);
    for place in (0..exponent - below).rev() {
        let (mut carry, mut borrow) = (0, false);
        for ((x, less), &m) in remainder.iter_mut().zip(less.iter_mut()).zip(m) {
            (*x, carry) = (*x << 1 | carry, *x >> 63);
            (*less, borrow) = x.borrowing_sub(m, borrow);
        }
        // Less than 2m is left of m at most once. Out of the compiler's sight the mask becomes no branch.
        let bit = black_box(carry | u64::from(!borrow));
        let mask = bit.wrapping_neg();
        for (x, less) in remainder.iter_mut().zip(less.iter()) {
            *x ^= (*x ^ less) & mask;
        }
        quotient[place as usize / 64] |= bit << (place % 64);
    }
    (quotient, remainder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;

    #[test]
    fn constants_satisfy_their_definitions() {
        for words in [vec![3u64], vec![u64::MAX], vec![0x1234_5677, 9], vec![1, 0, 0, 1 << 63]] {
            let m = Modulus::new("m", &words).unwrap();
            assert_eq!(words[0].wrapping_mul(inverse_mod_word(words[0])), 1);
            let big = |w: &[u64]| {
                w.iter().rev().fold(BigUint::ZERO, |acc, &w| (acc << 64) + BigUint::from(w))
            };
            for power in [0, 1, 2, 17] {
                let r = BigUint::from(1u8) << (64 * m.len_words() * power as usize);
                assert_eq!(big(&m.radix_power(power)), r % big(&words));
            }
            for exponent in [0, 1, 63, 64, 65, 127, 128, 191, 300, 512] {
                let (quotient, remainder) = divide_power_of_two(exponent, &words);
                assert_eq!(quotient.len(), exponent as usize / 64 + 1);
                assert_eq!(remainder.len(), words.len());
                let power = BigUint::from(1u8) << exponent;
                assert_eq!(big(&quotient), &power / big(&words));
                assert_eq!(big(&remainder), power % big(&words));
            }
            let root = Arc::new(m);
            let square = Modulus::square("m²", &root).unwrap();
            assert_eq!(big(square.words()), big(&words) * big(&words));
        }
    }

    #[test]
    fn refuses_what_is_no_modulus() {
        assert_eq!(Modulus::new("m", &[4]).err(), Some(ModulusError::Even));
        assert_eq!(Modulus::new("m", &[1]).err(), Some(ModulusError::TooSmall));
        assert_eq!(Modulus::new("m", &[]).err(), Some(ModulusError::TooSmall));
        let mut large = vec![1u64; 129];
        large[128] = 1;
        assert_eq!(Modulus::new("m", &large).err(), Some(ModulusError::TooLarge { bits: 8193 }));
    }

    #[test]
    fn membership_compares_from_the_top() {
        let m = Modulus::new("m", &[5, 7]).unwrap();
        assert!(m.contains_vartime(&[4, 7]) && m.contains_vartime(&[u64::MAX, 6]));
        assert!(!m.contains_vartime(&[5, 7]) && !m.contains_vartime(&[0, 8]));
        assert!(!m.contains_vartime(&[1]));
    }
}
