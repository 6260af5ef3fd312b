//! The negacyclic number-theoretic transform.

use crate::ring::{Ring, mul_mod_vartime, pow_mod_vartime, subtract_once};

/// Twiddle factors of every limb of a ring.
pub(super) struct Tables {
    limbs: Vec<LimbTables>,
    degree: usize,
}

struct LimbTables {
    q: u64,
    /// ψ^brv(i), for butterflies from natural to bit-reversed order.
    forward: Vec<Shoup>,
    /// ψ^(−brv(i)).
    inverse: Vec<Shoup>,
    /// N⁻¹ mod q.
    n_inverse: Shoup,
}

/// A constant factor `w` with `⌊w·2^64 / q⌋`, so that multiplying by it needs no division.
#[derive(Clone, Copy)]
struct Shoup {
    w: u64,
    quotient: u64,
}

impl Shoup {
    fn new(w: u64, q: u64) -> Self {
        Self { w, quotient: ((u128::from(w) << 64) / u128::from(q)) as u64 }
    }

    /// `x·w mod q`, below 2q, for any `x` below 2^64.
    ///
    /// # Source
    /// D. Harvey, "Faster arithmetic for number-theoretic transforms", 2014, section 3.
    #[inline(always)]
    fn mul_lazy(self, x: u64, q: u64) -> u64 {
        let estimate = ((u128::from(self.quotient) * u128::from(x)) >> 64) as u64;
        x.wrapping_mul(self.w).wrapping_sub(estimate.wrapping_mul(q))
    }
}

impl Tables {
    pub(super) fn new(ring: &Ring) -> Self {
        let degree = ring.degree();
        let limbs = ring
            .primes()
            .iter()
            .zip(ring.roots())
            .map(|(&q, &root)| LimbTables {
                q,
                forward: twiddles(degree, root, q),
                inverse: twiddles(degree, pow_mod_vartime(root, q - 2, q), q),
                n_inverse: Shoup::new(pow_mod_vartime(degree as u64, q - 2, q), q),
            })
            .collect();
        Self { limbs, degree }
    }

    /// To NTT form, in place, every limb of one polynomial. Constant time.
    pub(super) fn forward(&self, poly: &mut [u64]) {
        for (a, limb) in poly.chunks_exact_mut(self.degree).zip(&self.limbs) {
            limb.forward(a);
        }
    }

    /// From NTT form, in place. Constant time.
    pub(super) fn inverse(&self, poly: &mut [u64]) {
        for (a, limb) in poly.chunks_exact_mut(self.degree).zip(&self.limbs) {
            limb.inverse(a);
        }
    }
}

impl LimbTables {
    /// Cooley–Tukey butterflies.
    ///
    /// # Bound
    /// Values stay below 4q < 2^52: `u` is brought below 2q, the product is below 2q, so `u + v`
    /// and `u − v + 2q` are below 4q.
    fn forward(&self, a: &mut [u64]) {
        let (q, n) = (self.q, a.len());
        let mut half = n / 2;
        while half > 0 {
            let first = n / (2 * half);
            for (block, twiddle) in a.chunks_exact_mut(2 * half).zip(&self.forward[first..]) {
                let (low, high) = block.split_at_mut(half);
                for (x, y) in low.iter_mut().zip(high) {
                    let (u, v) = (subtract_once(*x, 2 * q), twiddle.mul_lazy(*y, q));
                    (*x, *y) = (u + v, u + 2 * q - v);
                }
            }
            half /= 2;
        }
        a.iter_mut().for_each(|x| *x = subtract_once(subtract_once(*x, 2 * q), q));
    }

    /// Gentleman–Sande butterflies.
    ///
    /// # Bound
    /// Values stay below 2q: the sum is brought below 2q, the lazy product is.
    fn inverse(&self, a: &mut [u64]) {
        let (q, n) = (self.q, a.len());
        let mut half = 1;
        while half < n {
            let first = n / (2 * half);
            for (block, twiddle) in a.chunks_exact_mut(2 * half).zip(&self.inverse[first..]) {
                let (low, high) = block.split_at_mut(half);
                for (x, y) in low.iter_mut().zip(high) {
                    let (u, v) = (*x, *y);
                    *x = subtract_once(u + v, 2 * q);
                    *y = twiddle.mul_lazy(u + 2 * q - v, q);
                }
            }
            half *= 2;
        }
        a.iter_mut().for_each(|x| *x = subtract_once(self.n_inverse.mul_lazy(*x, q), q));
    }
}

/// `root^brv(i)` for `i` in `0..degree`, `brv` over `log2 degree` bits.
fn twiddles(degree: usize, root: u64, q: u64) -> Vec<Shoup> {
    let bits = degree.trailing_zeros();
    let powers: Vec<u64> = std::iter::successors(Some(1), |&x| Some(mul_mod_vartime(x, root, q)))
        .take(degree)
        .collect();
    (0..degree).map(|i| Shoup::new(powers[i.reverse_bits() >> (usize::BITS - bits)], q)).collect()
}
