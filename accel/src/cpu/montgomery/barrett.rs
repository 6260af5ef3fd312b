//! Products of ordinary numbers, by Barrett's method: no power of R comes in or goes out.
//!
//! With β = `2^LIMB_BITS`, m of n limbs and its reciprocal `μ = ⌊β^(2n) / m⌋`, the quotient by m of
//! `T = a·b` is nearly `⌊T / β^(n−1)⌋ · μ / β^(n+1)`. Of that product only the upper half is
//! computed, and only the lower half of the quotient times m, since what T has beyond it is small.
//! The two halves take as many multiplies as one product of limbs, T as many as another, or fewer
//! where Karatsuba's method pays: about half of what two Montgomery products take; less from 3072
//! bits on, on the portable path.
//!
//! # Bound
//! The quotient may be too small, by less than the sum of
//! - `β^(n−1) / m` for the limbs of T that are left out, and `T / β^(2n) < (m / β^n)²` for what is
//!   left out of μ. Together this is convex in m, which is between `β^(n−1)` and `β^n`, so at most
//!   what it is at either end, `1 + 1/β`;
//! - `n / β` for the columns of the product below `n − 1`, whose products are below β² times their
//!   place, no more than `n − 1` of them in one: all together below `n·β^n`.
//!
//! That is less than 2, so that after rounding down the quotient is too small by 2 at most, and
//! never too large: what T has beyond it times m is below 3m, hence below R, and one subtraction
//! makes it lazy.

use std::ops::Range;

use zeroize::Zeroizing;

use super::{Backend, Canonical, Group, Lazy, Modulus, Montgomery, Number, Numbers, split_limbs};

/// The reciprocal of a modulus.
pub(super) struct Barrett<B: Backend> {
    /// μ, in n + 1 limbs, the same in every lane.
    reciprocal: Group<B>,
}

/// Memory for the intermediates of ordinary products.
pub(in crate::cpu) struct Space<B: Backend> {
    /// T.
    product: Group<B>,
    /// T times μ, without its lower half.
    quotient: Group<B>,
    /// The quotient times m, without its upper half; before, memory for Karatsuba's method.
    multiple: Group<B>,
}

impl<B: Backend> Barrett<B> {
    /// From the quotient of `R²` by m, for `R = 2^radix`: its upper limbs are the quotient of a
    /// smaller power.
    pub(super) fn new(backend: B, m: &Modulus, radix: u32, quotient: &[u64]) -> Self {
        let n = m.bits().div_ceil(B::LIMB_BITS) as usize;
        let above = 2 * ((radix / B::LIMB_BITS) as usize - n);
        let limbs = Zeroizing::new(split_limbs(quotient, B::LIMB_BITS, above + n + 1));
        Self { reciprocal: super::in_lanes(backend, &limbs[above..]) }
    }

    /// n, the limbs that m needs.
    fn len(&self) -> usize {
        self.reciprocal.len() - 1
    }
}

impl<B: Backend> Montgomery<B> {
    /// Makes memory for products modulo this number.
    pub(in crate::cpu) fn space(&self) -> Space<B> {
        let n = self.barrett.len();
        let group = |limbs| Zeroizing::new(vec![self.backend.zero(); limbs]);
        let multiple = group((2 * n).max(scratch_len::<B>(n)));
        Space { product: group(2 * n), quotient: group(2 * n + 2), multiple }
    }

    /// `out = a·b`.
    pub(in crate::cpu) fn ordinary(
        &self,
        out: &mut Numbers<Lazy, B>,
        factors: [Number<'_, Canonical, B>; 2],
        space: &mut Space<B>,
    ) {
        let Self { backend, modulus, lanes, barrett, .. } = self;
        let (n, zero) = (barrett.len(), backend.zero());
        let Space { product, quotient, multiple } = space;
        let [a, b] = factors.map(|x| &x.limbs()[..n]);
        multiply(*backend, product, [a, b], multiple);

        quotient.fill(zero);
        let high = &product[n - 1..];
        add_columns(*backend, quotient, [high, &barrett.reciprocal], n - 1..2 * n + 2);
        backend.normalise(quotient);

        // The quotient is below m, and what is wanted below R.
        let kept = out.limbs_mut();
        let multiple = &mut multiple[..2 * n];
        multiple.fill(zero);
        let factors = [&quotient[n + 1..2 * n + 1], &lanes[..n]];
        add_columns(*backend, multiple, factors, 0..kept.len());
        kept.copy_from_slice(&product[..kept.len()]);
        backend.sub_assign(kept, &multiple[..kept.len()]);
        backend.reduce_once(&modulus.m, kept);
    }
}

/// `acc += a·b` in some columns, those of the products of limbs whose places sum to one of them;
/// the others get a part of what is theirs. At first `acc` is zero.
///
/// # Bound
/// Before the rows from `at` on, `acc` has those before them, below `β^at · b`: from `at + from` on
/// this is below `β^(b.len() − from)`, as [`Backend::add_product`] wants it. Where columns end
/// earlier, only limbs past their end are wrong.
fn add_columns<B: Backend>(
    backend: B,
    acc: &mut [B::Word],
    [a, b]: [&[B::Word]; 2],
    columns: Range<usize>,
) {
    // The odd rows first, which in upper columns are the shortest.
    let (odd, even) = a.split_at(a.len() % B::ROWS);
    let mut at = 0;
    for rows in odd.chunks(B::ROWS).chain(even.chunks(B::ROWS)) {
        // From where the last of the rows needs it to where the first does.
        let from = columns.start.saturating_sub(at + rows.len() - 1).min(b.len());
        let to = columns.end.saturating_sub(at).min(b.len());
        backend.add_product(&mut acc[at + from..at + to + rows.len()], rows, &b[from..to]);
        at += rows.len();
    }
}

/// `out = a·b`, for factors of as many limbs each: Karatsuba's method where it pays.
///
/// It multiplies sums of halves, whose carries have a limb of their own, not differences, whose
/// signs would have to be hidden.
fn multiply<B: Backend>(
    backend: B,
    out: &mut [B::Word],
    [a, b]: [&[B::Word]; 2],
    scratch: &mut [B::Word],
) {
    // With fewer limbs the middle product would go past the end, and sums of halves get no shorter.
    const { assert!(B::KARATSUBA >= 8) };
    if a.len() < B::KARATSUBA {
        out.fill(backend.zero());
        backend.add_product(out, a, b);
        return backend.normalise(out);
    }
    let half = a.len().div_ceil(2);
    let (sums, scratch) = scratch.split_at_mut(2 * (half + 1));
    let (middle, scratch) = scratch.split_at_mut(2 * (half + 1));
    let ((a0, a1), (b0, b1)) = (a.split_at(half), b.split_at(half));
    let (x, y) = sums.split_at_mut(half + 1);
    for (sum, low, high) in [(&mut *x, a0, a1), (&mut *y, b0, b1)] {
        sum[..half].copy_from_slice(low);
        sum[half] = backend.zero();
        backend.add_assign(sum, high);
    }
    multiply(backend, middle, [x, y], scratch);
    let (low, high) = out.split_at_mut(2 * half);
    multiply(backend, low, [a0, b0], scratch);
    multiply(backend, high, [a1, b1], scratch);
    backend.sub_assign(middle, low);
    backend.sub_assign(middle, high);
    backend.add_assign(&mut out[half..], middle);
}

/// Returns the limbs that [`multiply`] needs beside its result.
fn scratch_len<B: Backend>(len: usize) -> usize {
    if len < B::KARATSUBA {
        return 0;
    }
    let sum = len.div_ceil(2) + 1;
    4 * sum + scratch_len::<B>(sum)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use num_bigint::BigInt;
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::cpu::{avx2::Avx2, ifma::Ifma};
    use crate::cpu::{portable::Portable, tally::Tally};

    /// Returns the limbs of all ones, of one bit, or random ones: a group of the same number in
    /// every lane.
    fn factors<B: Backend>(backend: B, len: usize, rng: &mut ChaCha20Rng) -> Vec<Group<B>> {
        let ones = u64::MAX >> (64 - B::LIMB_BITS);
        let mut top = vec![0; len];
        top[len - 1] = 1 << (B::LIMB_BITS - 1);
        let random: Vec<u64> = (0..len).map(|_| rng.next_u64() & ones).collect();
        [vec![ones; len], top, random].map(|limbs| super::super::in_lanes(backend, &limbs)).into()
    }

    /// Returns the number in one lane, whether or not its limbs are redundant: those of less than a word may be signed.
    fn value<B: Backend>(group: &[B::Word]) -> BigInt {
        let limb = |word| match (B::LIMB_BITS, B::lane(word, B::LANES - 1)) {
            (64, limb) => i128::from(limb),
            (_, limb) => i128::from(limb as i64),
        };
        let limbs = group.iter().rev();
        limbs.fold(BigInt::ZERO, |sum, &word| (sum << B::LIMB_BITS) + limb(word))
    }

    fn products_of_every_length<B: Backend>(backend: B) {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        for len in 1..=130 {
            let group = |limbs: usize| vec![backend.zero(); limbs];
            let (mut whole, mut scratch) = (group(2 * len), group(scratch_len::<B>(len)));
            let unit = |limbs: usize| BigInt::from(1u8) << (B::LIMB_BITS as usize * limbs);
            let factors = factors(backend, len, &mut rng);
            for (a, b) in factors.iter().flat_map(|a| factors.iter().map(move |b| (a, b))) {
                let expected = value::<B>(a) * value::<B>(b);
                multiply(backend, &mut whole, [a, b], &mut scratch);
                assert!(value::<B>(&whole) == expected, "{len} limbs");

                let lower = len + 1;
                let mut part = group(2 * len);
                add_columns(backend, &mut part, [a, b], 0..lower);
                let missing = value::<B>(&part[..lower]) - &expected;
                assert!(missing % unit(lower) == BigInt::ZERO, "lower columns of {len} limbs");

                // What is missing is at most the columns below, products and all.
                let from = len - 1;
                let mut part = group(2 * len);
                add_columns(backend, &mut part, [a, b], from..2 * len);
                let found = value::<B>(&part);
                let missing = unit(from + 1) * BigInt::from(len);
                assert!(found <= expected && expected < found + missing, "upper, {len} limbs");
            }
        }
    }

    #[test]
    fn products_of_every_length_are_exact() {
        products_of_every_length(Portable);
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = Ifma::detect() {
            products_of_every_length(token);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = Avx2::detect() {
            products_of_every_length(token);
        }
    }

    /// By what the tally counts, on either path: the arithmetic of numbers that are empty.
    fn multiplies<B: Backend>(bits: u32) -> [u64; 2] {
        let total = AtomicU64::new(0);
        let words = vec![u64::MAX; (bits / 64) as usize];
        let m = Modulus::new("m", &words).unwrap();
        let m = Montgomery::new(Tally::<B>::new(&total), &m);
        let (mut space, mut room) = (m.space(), m.room());
        let (x, mut y) = (m.number::<Canonical>(), m.number());
        total.store(0, Relaxed);
        m.ordinary(&mut y, [x.view(), x.view()], &mut space);
        let ordinary = total.swap(0, Relaxed);
        m.mont(&mut y, x.view().lazy(), x.view().lazy(), &mut room);
        [ordinary, 2 * total.load(Relaxed)]
    }

    #[test]
    fn a_product_costs_less_than_two_montgomery_products() {
        for bits in [512, 2048, 4096, 6144, 8192] {
            for [ordinary, two] in [
                multiplies::<Portable>(bits),
                #[cfg(target_arch = "x86_64")]
                multiplies::<Ifma>(bits),
                #[cfg(target_arch = "x86_64")]
                multiplies::<Avx2>(bits),
            ] {
                assert!(3 * ordinary < 2 * two, "{ordinary} beside {two} at {bits} bits");
            }
        }
    }
}
