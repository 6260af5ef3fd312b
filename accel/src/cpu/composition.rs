//! Integers of their residues, by the Chinese remainder theorem, on processors with vectors.
//!
//! A residue modulo q times `(Q/q)⁻¹` is y of `Σ y·Q/q`, which is the integer and `⌊Σ y/q⌋` times Q, the product of the
//! primes. Digits in mixed radix would take fewer products, but half of them modulo a prime, and each digit waits for
//! the one before.

/// More than what roundings of doubles add to a sum of fractions, at most 2^-47 each: so its whole part is never too
/// large.
pub(super) const SHORT: f64 = 1.0 / (1u64 << 40) as f64;

/// Defines `compose`, of whatever is in scope: the loops of `limbs`, `Prime`, which makes factors of residues and adds
/// up their fractions, `whole` and `column`.
macro_rules! compose {
    ($features:literal) => {
        /// Vectors of integers that are computed with side by side. Degrees of rings are multiples of sixteen.
        const WIDE: usize = 2;

        /// See [`Rns::compose`](crate::cpu::rns::Rns::compose).
        #[target_feature(enable = $features)]
        pub(super) fn compose(out: &mut [u64], poly: &[u64], tables: &Tables) {
            match tables.limbs().len() {
                1 => out.copy_from_slice(poly),
                2 => compose_by::<2>(out, poly, tables),
                3 => compose_by::<3>(out, poly, tables),
                4 => compose_by::<4>(out, poly, tables),
                _ => compose_by::<MAX_PRIMES>(out, poly, tables),
            }
        }

        /// Composes integers of at most `MOST` primes: of a few loops are unrolled, for as many as that alone.
        ///
        /// # Bound
        /// The whole part of the fractions is theirs or one less: what is left is below 2Q. A limb is the sum of halves
        /// of at most 25 products, within ± 2^58.
        #[target_feature(enable = $features)]
        fn compose_by<const MOST: usize>(out: &mut [u64], poly: &[u64], tables: &Tables) {
            let count = if MOST < MAX_PRIMES { MOST } else { tables.limbs().len() };
            let n = poly.len() / count;
            let cofactors = tables.cofactors(BITS, constant);
            // Past the last there is no residue.
            let primes: [Prime; MAX_PRIMES] = std::array::from_fn(|i| {
                let i = i.min(count - 1);
                Prime::new(&tables.limbs()[i], cofactors.inverses[i])
            });
            let mut factors = [[no_factor(); WIDE]; MAX_PRIMES + 1];
            let mut sums = [[limbs::zero(); MAX_PRIMES]; WIDE];
            let mut integer = [limbs::zero(); MAX_PRIMES];
            for first in (0..n).step_by(LANES * WIDE) {
                let mut fractions = [splat(-SHORT); WIDE];
                for ((factors, residues), prime) in
                    factors.iter_mut().zip(poly.chunks_exact(n)).zip(&primes)
                {
                    let residues = residues[first..].as_chunks::<LANES>().0;
                    for c in 0..WIDE {
                        factors[c] = prime.factor(limbs::group(&residues[c]));
                        fractions[c] = prime.add_fraction(fractions[c], factors[c]);
                    }
                }
                factors[count] = fractions.map(|sum| whole(sum));
                let mut before = [limbs::zero(); WIDE];
                let rows = cofactors.limbs.chunks_exact(count + 1);
                for (k, constants) in (0..count).zip(rows) {
                    // Q/q has one limb less than Q.
                    let from = if k + 1 == count { count } else { 0 };
                    let [low, high] = column(&factors[from..=count], &constants[from..=count]);
                    for c in 0..WIDE {
                        sums[c][k] = limbs::add(low[c], before[c]);
                    }
                    before = high;
                }
                for (c, sums) in sums.iter().enumerate() {
                    let integer = &mut integer[..count];
                    limbs::normalise(integer, &sums[..count]);
                    limbs::reduce_once(&cofactors.product, integer);
                    for (w, out) in out.chunks_exact_mut(n).enumerate() {
                        let out = &mut out[first..].as_chunks_mut::<LANES>().0[c];
                        *out = limbs::words(limbs::word(integer, w));
                    }
                }
            }
            factors.fill([no_factor(); WIDE]);
            sums.fill([limbs::zero(); MAX_PRIMES]);
            integer.fill(limbs::zero());
            optimization_barrier(&factors);
            optimization_barrier(&sums);
            optimization_barrier(&integer);
        }
    };
}

pub(super) use compose;
