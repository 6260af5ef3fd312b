//! The ring `Z_Q[X] / (X^N + 1)` in residue number system form, `Q = q_0 · … · q_(L−1)`.

use crate::beats;

/// The largest prime, in bits: a residue and the carry of one addition fit a 51-bit lane.
pub const MAX_PRIME_BITS: u32 = 50;
/// The most primes of a ring.
pub const MAX_PRIMES: usize = 24;

/// The primes of the lanes of two beats.
pub(crate) type LanePrimes = [u64; 2 * beats::LANES];

/// The ring degree and its primes, with a canonical root of unity for each.
///
/// # The transform
/// `ψ_j` is the smallest primitive 2N-th root of unity modulo `q_j`. The number-theoretic transform
/// of `a` is `â[i] = a(ψ_j^(2·brv(i) + 1)) mod q_j`, `brv` the reversal of `log2 N` bits. This
/// fixes what a polynomial "in NTT form" is for every engine and on the wire of seeds.
#[derive(Debug, PartialEq, Eq)]
pub struct Ring {
    degree: usize,
    primes: Vec<u64>,
    roots: Vec<u64>,
    lane_primes: Vec<LanePrimes>,
}

/// Why a degree and primes make no ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The degree must be a power of two from 16 to 65,536.
    #[error("the ring degree {degree} is not a power of two from 16 to 65536")]
    Degree {
        /// The degree given.
        degree: usize,
    },
    /// Every modulus must be a prime ≡ 1 mod 2N of at most [`MAX_PRIME_BITS`] bits.
    #[error("{value} is not a prime of at most {MAX_PRIME_BITS} bits that is 1 modulo 2N")]
    Prime {
        /// The number given.
        value: u64,
    },
    /// The same prime twice, or none, or more than [`MAX_PRIMES`].
    #[error("a ring needs one to {MAX_PRIMES} distinct primes")]
    Count,
}

impl Ring {
    /// Checks the parameters and finds the roots.
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn new(degree: usize, primes: &[u64]) -> Result<Self, RingError> {
        if !degree.is_power_of_two() || !(16..=65_536).contains(&degree) {
            return Err(RingError::Degree { degree });
        }
        let distinct = (1..primes.len()).all(|i| !primes[..i].contains(&primes[i]));
        if !distinct || !(1..=MAX_PRIMES).contains(&primes.len()) {
            return Err(RingError::Count);
        }
        let order = 2 * degree as u64;
        let roots = primes
            .iter()
            .map(|&q| {
                let fits = q >> MAX_PRIME_BITS == 0 && q % order == 1 && is_prime(q);
                fits.then(|| smallest_root(order, q)).ok_or(RingError::Prime { value: q })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self::of_primes(degree, primes.to_vec(), roots))
    }

    /// Makes the ring of the `count` largest primes of `bits` bits that are 1 modulo 2N.
    ///
    /// # Panics
    /// If there are not so many, or N or `bits` are out of range.
    #[must_use]
    pub fn largest(bits: u32, degree: usize, count: usize) -> Self {
        let primes = largest_primes(bits, degree, count);
        match Self::new(degree, &primes) {
            Ok(ring) if primes.len() == count => ring,
            _ => panic!("a ring of {count} primes of {bits} bits for N = {degree}"),
        }
    }

    /// Returns the ring of `count` of its primes, from number `first` on, in the same order.
    ///
    /// # Panics
    /// If there are no such primes, or `count` is 0.
    #[must_use]
    pub fn limbs(&self, first: usize, count: usize) -> Self {
        assert!(count > 0, "a ring has primes");
        let [primes, roots] = [&self.primes, &self.roots].map(|all| all[first..][..count].to_vec());
        Self::of_primes(self.degree, primes, roots)
    }

    fn of_primes(degree: usize, primes: Vec<u64>, roots: Vec<u64>) -> Self {
        let row = |beat: usize| {
            std::array::from_fn(|lane| primes[(beat * beats::LANES + lane) % primes.len()])
        };
        let lane_primes = (0..beats::beats_per_unit(primes.len())).map(row).collect();
        Self { degree, primes, roots, lane_primes }
    }

    /// Returns the ring of its primes and of those of `other` behind them.
    ///
    /// # Errors
    /// [`RingError::Count`] where both have a prime, or there are too many;
    /// [`RingError::Degree`] where the degrees differ.
    pub fn join(&self, other: &Self) -> Result<Self, RingError> {
        if self.degree != other.degree {
            return Err(RingError::Degree { degree: other.degree });
        }
        let is_twice = self.primes.iter().any(|q| other.primes.contains(q));
        if is_twice || self.primes.len() + other.primes.len() > MAX_PRIMES {
            return Err(RingError::Count);
        }
        let [primes, roots] = [(&self.primes, &other.primes), (&self.roots, &other.roots)]
            .map(|(first, second)| [&first[..], second].concat());
        Ok(Self::of_primes(self.degree, primes, roots))
    }

    /// Returns N.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// Returns the primes `q_j`, in limb order.
    #[must_use]
    pub fn primes(&self) -> &[u64] {
        &self.primes
    }

    /// Returns, for each beat of a [unit](beats::beats_per_unit), the primes of its lanes and of those of a beat behind
    /// it. Further beats begin anew.
    pub(crate) fn lane_primes(&self) -> &[LanePrimes] {
        &self.lane_primes
    }

    /// Returns the roots of unity `ψ_j`, in limb order.
    #[must_use]
    pub fn roots(&self) -> &[u64] {
        &self.roots
    }

    /// Returns the words of one polynomial: limbs × N.
    #[must_use]
    pub fn len_words(&self) -> usize {
        self.degree * self.primes.len()
    }
}

/// Returns the `count` largest primes of at most `bits` bits that are 1 modulo `2 · degree`,
/// descending.
#[must_use]
pub fn largest_primes(bits: u32, degree: usize, count: usize) -> Vec<u64> {
    let step = 2 * degree as u64;
    let start = ((1u64 << bits) - 1) / step * step + 1;
    (0..start / step).map(|i| start - i * step).filter(|&q| is_prime(q)).take(count).collect()
}

/// `x − q` if that is not negative, else `x`: the smaller of the two as unsigned words, so there is
/// no branch.
#[inline(always)]
pub(crate) fn subtract_once(x: u64, q: u64) -> u64 {
    x.min(x.wrapping_sub(q))
}

/// `a · b mod q`. Public values only: the division takes variable time.
pub(crate) fn mul_mod_vartime(a: u64, b: u64, q: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(q)) as u64
}

/// `base^exponent mod q`. Public values only.
pub(crate) fn pow_mod_vartime(base: u64, mut exponent: u64, q: u64) -> u64 {
    let (mut result, mut square) = (1 % q, base % q);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = mul_mod_vartime(result, square, q);
        }
        square = mul_mod_vartime(square, square, q);
        exponent >>= 1;
    }
    result
}

/// Miller–Rabin with the first twelve primes as bases, which is exact below 2^64.
///
/// # Source
/// J. Sorenson, J. Webster, "Strong pseudoprimes to twelve prime bases", 2017.
fn is_prime(n: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if n < 2 {
        return false;
    }
    if let Some(p) = BASES.iter().find(|&&p| n.is_multiple_of(p)) {
        return n == *p;
    }
    let twos = (n - 1).trailing_zeros();
    let odd = (n - 1) >> twos;
    BASES.iter().all(|&base| {
        let mut x = pow_mod_vartime(base, odd, n);
        let mut passes = x == 1;
        for _ in 0..twos {
            passes |= x == n - 1;
            x = mul_mod_vartime(x, x, n);
        }
        passes
    })
}

/// Returns the smallest of the primitive `order`-th roots of unity modulo the prime `q`.
fn smallest_root(order: u64, q: u64) -> u64 {
    // x^((q−1)/order) is primitive exactly if its (order/2)-th power is −1, for every other x.
    let any = (2..q)
        .map(|x| pow_mod_vartime(x, (q - 1) / order, q))
        .find(|&r| pow_mod_vartime(r, order / 2, q) == q - 1)
        .unwrap_or(1);
    let square = mul_mod_vartime(any, any, q);
    let odd_powers = std::iter::successors(Some(any), |&r| Some(mul_mod_vartime(r, square, q)));
    odd_powers.take(order as usize / 2).min().unwrap_or(any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_primes_and_the_smallest_roots() {
        let primes = largest_primes(50, 4096, 2);
        let ring = Ring::new(4096, &primes).unwrap();
        for (&q, &root) in ring.primes().iter().zip(ring.roots()) {
            assert!(q >> 49 == 1 && q % 8192 == 1);
            assert_eq!(pow_mod_vartime(root, 4096, q), q - 1);
        }
        // By exhaustion on a ring small enough: 97 ≡ 1 mod 32.
        let small = Ring::new(16, &[97]).unwrap();
        let exhaustive = (2..97).find(|&x| pow_mod_vartime(x, 16, 97) == 96).unwrap();
        assert_eq!(small.roots(), [exhaustive]);
    }

    #[test]
    fn primality_agrees_with_trial_division() {
        let trial =
            |n: u64| n > 1 && (2..n).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
        assert!((0..5000).all(|n| is_prime(n) == trial(n)));
        assert!(!is_prime(3_215_031_751) && !is_prime(3_825_123_056_546_413_051));
    }

    #[test]
    fn refuses_what_is_no_ring() {
        assert_eq!(Ring::new(12, &[97]), Err(RingError::Degree { degree: 12 }));
        assert_eq!(Ring::new(8, &[97]), Err(RingError::Degree { degree: 8 }));
        assert_eq!(Ring::new(16, &[97, 97]), Err(RingError::Count));
        assert_eq!(Ring::new(16, &[]), Err(RingError::Count));
        assert_eq!(Ring::new(16, &[33]), Err(RingError::Prime { value: 33 }));
        assert_eq!(Ring::new(16, &[23]), Err(RingError::Prime { value: 23 }));
    }
}
