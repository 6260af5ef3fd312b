//! Rounding the noise away from decrypted coefficients.

use super::parameters::RlweParameters;

/// Takes `fields · 2^margin + noise` modulo Q to the fields; `W` words, one for each prime.
pub(crate) struct Rounding<const W: usize> {
    q: [u64; W],
    margin_bits: u32,
}

impl<const W: usize> Rounding<W> {
    /// # Panics
    /// If the ring has not `W` primes.
    pub(crate) fn new(parameters: &RlweParameters) -> Self {
        Self::of(parameters.ring.primes(), parameters.margin_bits)
    }

    fn of(primes: &[u64], margin_bits: u32) -> Self {
        assert_eq!(primes.len(), W, "a word for each prime");
        let mut q = [0; W];
        q[0] = 1;
        for &prime in primes {
            let mut carry = 0;
            for word in &mut q {
                let x = u128::from(*word) * u128::from(prime) + carry;
                (*word, carry) = (x as u64, x >> 64);
            }
        }
        Self { q, margin_bits }
    }

    /// Returns the multiple of `2^margin` nearest to `x` modulo Q, divided by it, for `x` below Q.
    /// Noise just below zero shows as a number just below Q. No branch depends on `x`.
    ///
    /// # Bound
    /// Q has at most 50 bits for each word, and the margin at most 30, so `x + 2^(margin − 1)` is
    /// below `2Q` and has no carry past the last word.
    #[inline]
    pub(crate) fn round(&self, mut x: [u64; W]) -> [u64; W] {
        let mut carry = 1 << (self.margin_bits - 1);
        for word in &mut x {
            let (sum, carried) = word.overflowing_add(carry);
            (*word, carry) = (sum, u64::from(carried));
        }
        let mut borrow = false;
        for (&x, &q) in x.iter().zip(&self.q) {
            borrow = x.borrowing_sub(q, borrow).1;
        }
        // Q where it is to be taken away, else 0.
        let mask = u64::from(borrow).wrapping_sub(1);
        borrow = false;
        for (word, &q) in x.iter_mut().zip(&self.q) {
            (*word, borrow) = word.borrowing_sub(q & mask, borrow);
        }
        for i in 0..W {
            let above = if i + 1 < W { x[i + 1] << (64 - self.margin_bits) } else { 0 };
            x[i] = x[i] >> self.margin_bits | above;
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use ciphergram_accel::ring::largest_primes;
    use num_bigint::BigUint;
    use proptest::prelude::*;

    use super::*;

    fn big(words: &[u64]) -> BigUint {
        words.iter().rev().fold(BigUint::ZERO, |acc, &w| (acc << 64) + BigUint::from(w))
    }

    fn round<const W: usize>(primes: &[u64], margin: u32, x: &[u64]) -> BigUint {
        big(&Rounding::<W>::of(primes, margin).round(*x.first_chunk().unwrap()))
    }

    proptest! {
        /// Over up to sixteen primes, against another library's integers.
        #[test]
        fn rounds_as_its_definition_says(
            limbs in prop::sample::select(vec![1usize, 2, 4, 8, 16]),
            margin in 1u32..=31,
            words in prop::collection::vec(any::<u64>(), 16),
            near in any::<bool>(),
        ) {
            let primes = largest_primes(50, 32768, limbs);
            let q: BigUint = primes.iter().map(|&q| BigUint::from(q)).product();
            // Anywhere below Q, or within the margin of its end.
            let x = if near { &q - 1u32 - words[0] % (1 << margin) } else { big(&words) % &q };
            let mut digits = x.to_u64_digits();
            digits.resize(16, 0);
            let rounded = match limbs {
                1 => round::<1>(&primes, margin, &digits),
                2 => round::<2>(&primes, margin, &digits),
                4 => round::<4>(&primes, margin, &digits),
                8 => round::<8>(&primes, margin, &digits),
                _ => round::<16>(&primes, margin, &digits),
            };
            let raised = (x + (1u64 << (margin - 1))) % q;
            prop_assert_eq!(rounded, raised >> margin);
        }
    }
}
