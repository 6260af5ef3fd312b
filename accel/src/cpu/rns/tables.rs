//! The constants of a ring, derived once; those of a prime once for all rings that have it.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use crate::{
    modulus::inverse_mod_word,
    program::ExtensionRow,
    ring::{MAX_PRIMES, Ring, mul_mod_vartime, pow_mod_vartime, subtract_once},
    words,
};

/// A constant factor `w` modulo q with `⌊w · 2^B / q⌋`, B being the backend's `QUOTIENT_BITS`, or 64
/// for those that tables are made with, so that multiplying by it needs no division: for any x below
/// `2^B`, `x·w − ⌊x·quotient / 2^B⌋·q` is below 2q.
///
/// # Source
/// D. Harvey, "Faster arithmetic for number-theoretic transforms", 2014, section 3.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Factor {
    pub(in crate::cpu) w: u64,
    pub(in crate::cpu) quotient: u64,
}

impl Factor {
    fn new(w: u64, q: u64, quotient_bits: u32) -> Self {
        Self { w, quotient: ((u128::from(w) << quotient_bits) / u128::from(q)) as u64 }
    }
}

/// Returns `x · w`, below 2q, for any x and a factor whose B is 64.
#[inline(always)]
pub(in crate::cpu) fn mul_lazy(x: u64, factor: Factor, q: u64) -> u64 {
    let estimate = ((u128::from(factor.quotient) * u128::from(x)) >> 64) as u64;
    x.wrapping_mul(factor.w).wrapping_sub(estimate.wrapping_mul(q))
}

/// Returns `root^brv(i)` for all i below `degree`, `brv` over `log2 degree` bits. A division for each would take longer
/// than the rest of a short command.
fn bit_reversed_powers(root: u64, q: u64, degree: usize) -> Vec<u64> {
    let (bits, root) = (degree.trailing_zeros(), Factor::new(root, q, u64::BITS));
    let next = |&x: &u64| Some(subtract_once(mul_lazy(x, root, q), q));
    let powers: Vec<u64> = std::iter::successors(Some(1), next).take(degree).collect();
    (0..degree).map(|i| powers[i.reverse_bits() >> (usize::BITS - bits)]).collect()
}

/// Many constant factors.
pub(in crate::cpu) struct IntegerFactors {
    w: Vec<u64>,
    quotients: Vec<u64>,
}

impl IntegerFactors {
    /// Makes the factors of numbers below an odd q, without divisions: `w · 2^B` less its residue modulo q is a
    /// multiple of q, so the quotient is that difference times `q⁻¹ mod 2^64`.
    fn new(w: Vec<u64>, q: u64, quotient_bits: u32) -> Self {
        let radix = Factor::new(pow_mod_vartime(2, quotient_bits.into(), q), q, u64::BITS);
        let q_inverse = inverse_mod_word(q);
        let quotient = |&w: &u64| {
            let dividend = (u128::from(w) << quotient_bits) as u64;
            let residue = subtract_once(mul_lazy(w, radix, q), q);
            dividend.wrapping_sub(residue).wrapping_mul(q_inverse)
        };
        Self { quotients: w.iter().map(quotient).collect(), w }
    }

    pub(in crate::cpu) fn get(&self, index: usize) -> Factor {
        Factor { w: self.w[index], quotient: self.quotients[index] }
    }

    /// `COUNT` neighbours, and their quotients.
    pub(in crate::cpu) fn run<const COUNT: usize>(&self, first: usize) -> [&[u64; COUNT]; 2] {
        [&self.w, &self.quotients].map(|list| words::run(list, first))
    }
}

/// A constant factor modulo q as doubles: within ± q / 2, and its ratio to q.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct DoubleFactor {
    pub(in crate::cpu) w: f64,
    pub(in crate::cpu) ratio: f64,
}

impl DoubleFactor {
    /// Of w below q, q below 2^50.
    pub(in crate::cpu) fn new(w: u64, q: u64) -> Self {
        let w = if w > q / 2 { -((q - w) as f64) } else { w as f64 };
        Self { w, ratio: w / q as f64 }
    }
}

/// Many of them.
pub(in crate::cpu) struct DoubleFactors {
    w: Vec<f64>,
    ratios: Vec<f64>,
}

impl DoubleFactors {
    /// Makes the factors of numbers below q, q below 2^50.
    fn new(w: &[u64], q: u64) -> Self {
        let doubles = || w.iter().map(|&w| DoubleFactor::new(w, q));
        Self {
            w: doubles().map(|of| of.w).collect(),
            ratios: doubles().map(|of| of.ratio).collect(),
        }
    }

    pub(in crate::cpu) fn get(&self, index: usize) -> DoubleFactor {
        DoubleFactor { w: self.w[index], ratio: self.ratios[index] }
    }

    /// `COUNT` neighbours, and their ratios.
    pub(in crate::cpu) fn run<const COUNT: usize>(&self, first: usize) -> [&[f64; COUNT]; 2] {
        [&self.w, &self.ratios].map(|list| words::run(list, first))
    }
}

/// The constants of a prime in rings of one degree, whichever other primes they have.
pub(in crate::cpu) struct Prime {
    degree: usize,
    q: u64,
    /// ψ and its inverse.
    roots: [u64; 2],
    quotient_bits: u32,
    /// Bits of q, and `⌊2^(2·bits) / q⌋`.
    pub(in crate::cpu) bits: u32,
    pub(in crate::cpu) mu: u64,
    /// N⁻¹.
    pub(in crate::cpu) n_inverse: Factor,
    /// Powers of the radix of digits; the first, 1, is to reduce by.
    pub(in crate::cpu) radix_powers: Vec<Factor>,
    /// `2^(64·i)`, for the signs of integers of i words.
    pub(in crate::cpu) word_powers: Vec<u64>,
    /// Twiddle factors: ψ^brv(i), from natural to bit-reversed order, and ψ^(−brv(i)). A processor takes them as
    /// integers or as doubles, and only those are made: of a long ring they are most of what a short command touches.
    integers: OnceLock<[IntegerFactors; 2]>,
    doubles: OnceLock<[DoubleFactors; 2]>,
}

impl Prime {
    fn new(degree: usize, q: u64, root: u64, quotient_bits: u32) -> Self {
        let factor = |w| Factor::new(w, q, quotient_bits);
        let bits = u64::BITS - q.leading_zeros();
        Self {
            degree,
            q,
            roots: [root, inverse(root, q)],
            quotient_bits,
            bits,
            mu: ((1u128 << (2 * bits)) / u128::from(q)) as u64,
            n_inverse: factor(inverse(degree as u64, q)),
            radix_powers: (0..)
                .map(|i| factor(pow_mod_vartime(2, i * u64::from(quotient_bits), q)))
                .take((64 * MAX_PRIMES).div_ceil(quotient_bits as usize))
                .collect(),
            word_powers: (0..=MAX_PRIMES as u64).map(|i| pow_mod_vartime(2, 64 * i, q)).collect(),
            integers: OnceLock::new(),
            doubles: OnceLock::new(),
        }
    }

    pub(in crate::cpu) fn q(&self) -> u64 {
        self.q
    }

    /// Returns the twiddle factors as integers, forward and inverse: made when they are first asked for.
    pub(in crate::cpu) fn integers(&self) -> &[IntegerFactors; 2] {
        let factors = |w| IntegerFactors::new(w, self.q, self.quotient_bits);
        self.integers.get_or_init(|| self.twiddles().map(factors))
    }

    /// Returns the same as doubles.
    pub(in crate::cpu) fn doubles(&self) -> &[DoubleFactors; 2] {
        let doubles = |w: Vec<u64>| DoubleFactors::new(&w, self.q);
        self.doubles.get_or_init(|| self.twiddles().map(doubles))
    }

    fn twiddles(&self) -> [Vec<u64>; 2] {
        self.roots.map(|root| bit_reversed_powers(root, self.q, self.degree))
    }

    /// N⁻¹ as doubles.
    pub(in crate::cpu) fn n_inverse_double(&self) -> DoubleFactor {
        DoubleFactor::new(self.n_inverse.w, self.q)
    }

    /// 1, to reduce by.
    pub(in crate::cpu) fn one(&self) -> Factor {
        self.radix_powers[0]
    }

    /// Returns the constant factor `w`, which may be any number.
    pub(in crate::cpu) fn factor(&self, w: u64) -> Factor {
        Factor::new(w % self.q, self.q, self.quotient_bits)
    }
}

/// Returns `x⁻¹ mod q`; x is public.
fn inverse(x: u64, q: u64) -> u64 {
    pow_mod_vartime(x % q, q - 2, q)
}

/// A degree and a prime, and their constants.
type KnownPrime = ((usize, u64), Weak<Prime>);

/// The constants of primes that some ring has.
#[derive(Default)]
pub(super) struct Primes(Mutex<Vec<KnownPrime>>);

impl Primes {
    /// Returns the constants of a prime, made if no ring has them. They are made without the lock;
    /// of two that are made at once the first stays.
    fn get(&self, degree: usize, q: u64, root: u64, quotient_bits: u32) -> Arc<Prime> {
        let find = |list: &[KnownPrime]| {
            list.iter().find(|(key, _)| *key == (degree, q)).and_then(|(_, prime)| prime.upgrade())
        };
        if let Some(prime) = find(&self.list()) {
            return prime;
        }
        let made = Arc::new(Prime::new(degree, q, root, quotient_bits));
        let mut list = self.list();
        find(&list).unwrap_or_else(|| {
            list.retain(|(_, prime)| prime.strong_count() > 0);
            list.push(((degree, q), Arc::downgrade(&made)));
            made
        })
    }

    fn list(&self) -> MutexGuard<'_, Vec<KnownPrime>> {
        // Nothing that can panic happens under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A prime of a ring, and what the ring's other primes are to it.
pub(in crate::cpu) struct Limb {
    prime: Arc<Prime>,
    /// The inverse of each prime; 0 of this one.
    pub(in crate::cpu) prime_inverses: Vec<Factor>,
}

impl Deref for Limb {
    type Target = Prime;

    fn deref(&self) -> &Prime {
        &self.prime
    }
}

/// What integers are [composed](crate::cpu::composition) with, in as many limbs as primes. They hold 2Q: primes have at
/// least a bit less.
pub(in crate::cpu) struct Cofactors {
    /// `(Q/q)⁻¹` modulo each prime q.
    pub(in crate::cpu) inverses: Vec<Factor>,
    /// Of each limb, that of every Q/q, and of −Q modulo the power of two above the last.
    pub(in crate::cpu) limbs: Vec<u64>,
    /// Q.
    pub(in crate::cpu) product: Vec<u64>,
}

impl Cofactors {
    fn new(primes: &[Limb], limb_bits: u32, constant: fn(u64) -> u64) -> Self {
        let (count, mask) = (primes.len(), (1 << limb_bits) - 1);
        // The product of all primes but one, or of all.
        let product = |without: Option<usize>| {
            let mut limbs = vec![0; count];
            limbs[0] = 1;
            for (_, prime) in primes.iter().enumerate().filter(|&(i, _)| Some(i) != without) {
                let mut carry = 0;
                for limb in &mut limbs {
                    let x = u128::from(*limb) * u128::from(prime.q()) + carry;
                    (*limb, carry) = (x as u64 & mask, x >> limb_bits);
                }
            }
            limbs
        };
        let of_all = product(None);
        let mut carry = 1;
        let negated = of_all.iter().map(|limb| {
            let x = (!limb & mask) + carry;
            carry = x >> limb_bits;
            x & mask
        });
        let negated = negated.collect();
        let cofactors: Vec<Vec<u64>> =
            (0..count).map(|i| product(Some(i))).chain([negated]).collect();
        let limbs = (0..count).flat_map(|k| cofactors.iter().map(move |limbs| constant(limbs[k])));
        let inverse = |(i, prime): (usize, &Limb)| {
            let others = prime.prime_inverses.iter().enumerate().filter(|&(j, _)| j != i);
            let product = |x, (_, inverse): (_, &Factor)| mul_mod_vartime(x, inverse.w, prime.q());
            prime.factor(others.fold(1, product))
        };
        Self {
            inverses: primes.iter().enumerate().map(inverse).collect(),
            limbs: limbs.collect(),
            product: of_all,
        }
    }
}

/// The constants of a ring, prime by prime.
pub(in crate::cpu) struct Tables {
    limbs: Vec<Limb>,
    cofactors: OnceLock<Cofactors>,
}

impl Tables {
    pub(super) fn new(ring: &Ring, known: &Primes, quotient_bits: u32) -> Self {
        let primes = ring.primes();
        let limb = |(&q, &root): (&u64, &u64)| {
            let prime = known.get(ring.degree(), q, root, quotient_bits);
            let inverses = primes.iter().map(|&p| prime.factor(inverse(p, q)));
            Limb { prime_inverses: inverses.collect(), prime }
        };
        let limbs = primes.iter().zip(ring.roots()).map(limb).collect();
        Self { limbs, cofactors: OnceLock::new() }
    }

    pub(in crate::cpu) fn limbs(&self) -> &[Limb] {
        &self.limbs
    }

    /// Returns what integers are composed with, derived when it is first asked for: limbs of `limb_bits`, as `constant`
    /// has them, which is one way on each processor.
    pub(in crate::cpu) fn cofactors(&self, limb_bits: u32, constant: fn(u64) -> u64) -> &Cofactors {
        self.cofactors.get_or_init(|| Cofactors::new(&self.limbs, limb_bits, constant))
    }
}

/// How residues of one prime are made of digits in another ring's mixed radix.
pub(in crate::cpu) struct WeightRow {
    pub(in crate::cpu) q: u64,
    pub(in crate::cpu) shift: u64,
    /// Of the digits; the first is 1.
    pub(in crate::cpu) weights: Vec<Factor>,
    /// The radix of quotients.
    pub(in crate::cpu) radix: Factor,
}

impl WeightRow {
    pub(super) fn new(row: &ExtensionRow, quotient_bits: u32) -> Self {
        let q = row.prime;
        let factor = |w| Factor::new(w, q, quotient_bits);
        let weights = row.weights.iter().map(|&w| factor(w)).collect();
        let radix = factor(pow_mod_vartime(2, quotient_bits.into(), q));
        Self { q, shift: row.shift, weights, radix }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twiddles_are_powers_with_their_quotients() {
        let degree = 1 << 10;
        // Any odd modulus will do.
        for q in [3, 12_289, (1 << 40) + 1, (1 << 50) - 1] {
            for root in [1, 2, q - 1, q / 2] {
                for quotient_bits in [50, 52, 64] {
                    let factors =
                        IntegerFactors::new(bit_reversed_powers(root, q, degree), q, quotient_bits);
                    let mut power = 1;
                    for place in 0..degree {
                        let at = place.reverse_bits() >> (usize::BITS - degree.trailing_zeros());
                        let Factor { w, quotient } = factors.get(at);
                        assert_eq!(w, power, "{root}^{place} mod {q}");
                        assert_eq!(quotient, Factor::new(w, q, quotient_bits).quotient, "of {w}");
                        power = mul_mod_vartime(power, root, q);
                    }
                }
            }
        }
    }
}
