//! Rounding the noise away from decrypted coefficients.

use crate::params::Lattice;

/// Takes `fields · 2^margin + noise` modulo Q to the fields, in place: one word for each prime.
pub(crate) struct Rounding {
    q: Vec<u64>,
    margin_bits: u32,
}

impl Rounding {
    pub(crate) fn new(lattice: &Lattice) -> Self {
        Self::of(lattice.ring.primes(), lattice.margin_bits)
    }

    fn of(primes: &[u64], margin_bits: u32) -> Self {
        let mut q = vec![0; primes.len()];
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

    /// Words of one coefficient.
    pub(crate) fn words(&self) -> usize {
        self.q.len()
    }

    /// The multiple of `2^margin` nearest to `x` modulo Q, divided by it, for `x` below Q. Noise
    /// just below zero shows as a number just below Q. No branch depends on `x`.
    ///
    /// # Bound
    /// Q has at most 50 bits for each word, and the margin at most 17, so `x + 2^(margin − 1)` is
    /// below `2Q` and has no carry past the last word.
    pub(crate) fn round(&self, x: &mut [u64]) {
        let mut carry = 1 << (self.margin_bits - 1);
        for word in x.iter_mut() {
            let (sum, carried) = word.overflowing_add(carry);
            (*word, carry) = (sum, u64::from(carried));
        }
        let minus = |x: u64, q: u64, borrow: bool| {
            let (difference, first) = x.overflowing_sub(q);
            let (difference, second) = difference.overflowing_sub(u64::from(borrow));
            (difference, first | second)
        };
        let below = x.iter().zip(&self.q).fold(false, |borrow, (&x, &q)| minus(x, q, borrow).1);
        // Q where it is to be taken away, else 0.
        let mask = u64::from(below).wrapping_sub(1);
        let mut borrow = false;
        for (word, &q) in x.iter_mut().zip(&self.q) {
            (*word, borrow) = minus(*word, q & mask, borrow);
        }
        for i in 0..x.len() {
            let above = x.get(i + 1).map_or(0, |&next| next << (64 - self.margin_bits));
            x[i] = x[i] >> self.margin_bits | above;
        }
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

    proptest! {
        /// Over one to eight primes, against another library's integers.
        #[test]
        fn rounds_as_its_definition_says(
            limbs in 1usize..=8,
            margin in 1u32..=17,
            words in prop::collection::vec(any::<u64>(), 8),
            near in any::<bool>(),
        ) {
            let primes = largest_primes(50, 8192, limbs);
            let q: BigUint = primes.iter().map(|&q| BigUint::from(q)).product();
            // Anywhere below Q, or within the margin of its end.
            let x = if near { &q - 1u32 - words[0] % (1 << margin) } else { big(&words) % &q };
            let rounding = Rounding::of(&primes, margin);
            let mut rounded = x.to_u64_digits();
            rounded.resize(limbs, 0);
            rounding.round(&mut rounded);
            let raised = (x + (1u64 << (margin - 1))) % q;
            prop_assert_eq!(big(&rounded), raised >> margin);
        }
    }
}
