//! Packed Shamir shares of a one-time secret, and what they add up to.
//!
//! A polynomial of degree below τ over a field of p elements has ρ = τ − f coefficients of the secret as its values at
//! −1, …, −ρ, and random values at the points of the first f openers; its value at j + 1 is the share of opener j. So f
//! openers together learn nothing, τ of them all, and shares add up to shares of the sum. The secret's coefficients lie
//! in ρ rows: polynomial m has coefficient m of each row.
//!
//! Behind these polynomials are some random ones, the *masks*. To prove the degree of all, a contributor tells one
//! combination of all polynomials for each mask, added to it: so it says nothing of the secret. An opener compares it
//! with the combination of its own numbers. Combinations follow from what was sealed to openers; of shares that are of
//! no such polynomials one fits with chance 1/p. Masks are never summed.
//!
//! # Sources
//! A. Shamir, "How to share a secret", 1979. M. Franklin, M. Yung, "Communication complexity of secure computation",
//! 1992, of packing. I. Cascudo, B. David, "SCRAPE: scalable randomness attested by public entities", 2017, of the
//! proof.

use zeroize::Zeroizing;

use crate::{Error, random, schemes::rlwe::NOISE_BOUND};

/// The most openers of a job.
pub const MAX_OPENERS: usize = 32;
/// Bits of the chance that a proof of shares that do not fit passes.
const SOUNDNESS: u32 = 128;
/// By Hoeffding's inequality a sum of n centred binomials of 2 × 21 bits is beyond ±√(990·n) with less than 2^-67: of
/// all coefficients of the largest ring, 2^15, one is with 2^-52.
const TAIL: u32 = 990;

/// Returns how far the coefficients of a sum of so many secrets lie from zero at most, but with 2^-52: a sum beyond
/// does not open.
fn sum_range(secrets: u32) -> u32 {
    (secrets * NOISE_BOUND as u32).min((TAIL * secrets).isqrt() + 1)
}

/// How many openers there are, how many open, and how many of them may work against the contributors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quorum {
    /// c, the openers of the job.
    pub openers: u8,
    /// τ, as many as open a sum.
    pub open: u8,
    /// f, as many as learn nothing together.
    pub faulty: u8,
}

impl Quorum {
    /// Returns the quorum of c openers, τ of whom open: by default as few as keep a third of them from learning
    /// anything. f is the largest for which no two sets of τ answers are of different sums, `2τ > c + f`: together they
    /// would have 2τ, of which only f openers give two.
    ///
    /// # Errors
    /// [`Error::Limits`]: there are not so many; two sums of a round could open; an opener alone would learn something
    /// of contributions, though others are there.
    pub fn new(openers: usize, open: Option<usize>) -> Result<Self, Error> {
        let invalid = |why: String| Err(Error::Limits { why });
        if !(1..=MAX_OPENERS).contains(&openers) {
            return invalid(format!("{openers} openers; choose 1 to {MAX_OPENERS}"));
        }
        let open = open.unwrap_or((openers + 1 + openers / 3).div_ceil(2));
        if !(1..=openers).contains(&open) {
            return invalid(format!("{open} of {openers} openers; choose 1 to {openers}"));
        }
        let faulty = (2 * open).saturating_sub(openers + 1).min(open - 1);
        if faulty == 0 && openers > 1 {
            let least = openers / 2 + 1 + openers % 2;
            return invalid(format!(
                "{open} of {openers} openers open a sum: two sums of a round could open, or one opener learn of updates; \
                 choose at least {least}"
            ));
        }
        Ok(Self { openers: openers as u8, open: open as u8, faulty: faulty as u8 })
    }

    /// Returns how many openers may be silent.
    #[must_use]
    pub fn silent(self) -> u8 {
        self.openers - self.open
    }
}

/// The field of shares: of the smallest prime that tells apart the coefficients of a sum, and the points that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    p: u64,
    /// `⌊2^64 / p⌋`.
    reciprocal: u64,
}

impl Field {
    fn above(least: u64) -> Self {
        let is_prime = |n: u64| (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
        let mut p = least + 1;
        while !is_prime(p) {
            p += 1;
        }
        Self { p, reciprocal: u64::MAX / p }
    }

    /// Returns `x mod p`, in constant time.
    fn reduce(self, x: u64) -> u64 {
        let quotient = (u128::from(x) * u128::from(self.reciprocal)) >> 64;
        let rest = x - quotient as u64 * self.p;
        // Below zero it wraps, and is the larger of the two.
        rest.min(rest.wrapping_sub(self.p))
    }

    /// Returns the inverse of a public number that is not 0.
    fn invert(self, x: u64) -> u64 {
        let (mut power, mut base, mut exponent) = (1, x, self.p - 2);
        while exponent > 0 {
            if exponent & 1 == 1 {
                power = power * base % self.p;
            }
            base = base * base % self.p;
            exponent >>= 1;
        }
        power
    }

    /// Returns the factors of the values at `known` points in the value at `point`, by Lagrange's formula.
    fn factors(self, known: &[u64], point: u64) -> Vec<u64> {
        let minus = |a: u64, b: u64| (a + self.p - b) % self.p;
        let factor = |(i, &own): (usize, &u64)| {
            let others = known.iter().enumerate().filter(|&(k, _)| k != i);
            others.fold(1, |acc, (_, &other)| {
                let (above, below) = (minus(point, other), minus(own, other));
                acc * above % self.p * self.invert(below) % self.p
            })
        };
        known.iter().enumerate().map(factor).collect()
    }

    /// Returns the sum of products of numbers below p.
    fn dot(self, a: &[u16], b: &[u16]) -> u64 {
        // So many products stay below 2^32.
        let run = (u64::from(u32::MAX) / (self.p * self.p)) as usize;
        let runs = a.chunks(run).zip(b.chunks(run)).map(|(a, b)| {
            // Numbers are below 2^15: processors multiply and add pairs of such at once.
            let product = |(&a, &b): (&u16, &u16)| i32::from(a as i16) * i32::from(b as i16);
            let sum = a.iter().zip(b).map(product).fold(0i32, i32::wrapping_add);
            u64::from(sum as u32)
        });
        runs.sum()
    }

    /// Returns the sum of rows times public factors, place by place.
    fn combine<'a>(self, factors: &[u64], rows: impl Iterator<Item = &'a [u16]>, out: &mut [u16]) {
        let mut sums = Zeroizing::new(vec![0u64; out.len()]);
        for (&factor, row) in factors.iter().zip(rows) {
            // At most 32 products below 2^32.
            sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += factor * u64::from(x));
        }
        out.iter_mut().zip(&*sums).for_each(|(out, &sum)| *out = self.reduce(sum) as u16);
    }
}

/// A share, or a sum of some: a number below p for each polynomial.
pub(crate) type Share = Zeroizing<Vec<u16>>;

/// The polynomials that shares are values of.
pub(crate) struct SecretPolynomials {
    sharing: Sharing,
    /// Their values at each of the points at which they are given.
    values: Share,
}

impl SecretPolynomials {
    /// Returns the share of an opener.
    pub(crate) fn share(&self, opener: usize) -> Share {
        let mut share = Zeroizing::new(vec![0; self.sharing.len_with_masks()]);
        let factors = self.sharing.field.factors(&self.sharing.points(), opener as u64 + 1);
        self.sharing.field.combine(&factors, self.rows(), &mut share);
        share
    }

    /// Proves their degree.
    pub(crate) fn prove(&self, challenge: &[u8; 32]) -> Vec<u8> {
        let factors = self.sharing.challenge(challenge);
        let rows = self.rows().map(|row| self.sharing.combinations(&factors, row).to_vec());
        // Masked: it is for everyone.
        self.sharing.pack(&rows.flatten().collect::<Vec<_>>()).to_vec()
    }

    fn rows(&self) -> impl Iterator<Item = &[u16]> {
        self.values.chunks_exact(self.sharing.len_with_masks())
    }
}

/// How the secrets of a ring are shared among a job's openers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sharing {
    quorum: Quorum,
    field: Field,
    degree: usize,
}

impl Sharing {
    /// Makes the sharing of secrets over a ring of this degree, of which up to `clients` are summed.
    pub(crate) fn new(quorum: Quorum, clients: u32, degree: usize) -> Self {
        let points = u64::from(quorum.openers) + u64::from(quorum.open - quorum.faulty);
        let field = Field::above(u64::from(2 * sum_range(clients)).max(points));
        Self { quorum, field, degree }
    }

    /// Returns ρ, the rows that the coefficients lie in.
    fn rows(&self) -> usize {
        usize::from(self.quorum.open - self.quorum.faulty)
    }

    /// Returns the polynomials of a secret, and the numbers of a sum of shares.
    pub(crate) fn len(&self) -> usize {
        self.degree.div_ceil(self.rows())
    }

    /// Returns the number of masks: what fits all combinations by chance does so with 2^-128.
    fn masks(&self) -> usize {
        SOUNDNESS.div_ceil(self.field.p.ilog2()) as usize
    }

    /// Returns the numbers of a share: those of masks are the last.
    fn len_with_masks(&self) -> usize {
        self.len() + self.masks()
    }

    /// Returns the bits of a number of a share.
    pub(crate) fn bits(&self) -> u32 {
        u64::BITS - self.field.p.leading_zeros()
    }

    /// Returns the bytes of so many numbers.
    fn bytes_of(&self, count: usize) -> usize {
        (count * self.bits() as usize).div_ceil(8)
    }

    /// Returns the bytes of a share.
    pub(super) fn share_bytes(&self) -> usize {
        self.bytes_of(self.len_with_masks())
    }

    /// Returns the bytes of a sum of shares.
    pub(super) fn sum_bytes(&self) -> usize {
        self.bytes_of(self.len())
    }

    /// Returns the bytes of a proof.
    pub(super) fn proof_bytes(&self) -> usize {
        self.bytes_of(self.needed() * self.masks())
    }

    /// Returns τ, as many as open a sum.
    pub(super) fn needed(&self) -> usize {
        self.quorum.open.into()
    }

    /// Returns c, the number of openers.
    pub(super) fn openers(&self) -> usize {
        self.quorum.openers.into()
    }

    /// Returns the number of openers whose shares seeds name: the first ones.
    pub(super) fn drawn(&self) -> usize {
        self.quorum.faulty.into()
    }

    /// Packs numbers one after the other, from the lowest bit on.
    pub(super) fn pack(&self, numbers: &[u16]) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.bytes_of(numbers.len())));
        let (mut waiting, mut count) = (0u32, 0);
        for &number in numbers {
            waiting |= u32::from(number) << count;
            count += self.bits();
            while count >= 8 {
                bytes.push(waiting as u8);
                waiting >>= 8;
                count -= 8;
            }
        }
        if count > 0 {
            bytes.push(waiting as u8);
        }
        bytes
    }

    /// Takes the numbers of a share, with masks, that were packed.
    pub(super) fn unpack_share(&self, bytes: &[u8]) -> Option<Share> {
        self.unpack(bytes, self.len_with_masks())
    }

    /// Takes the numbers of a sum of shares that were packed.
    pub(super) fn unpack_sum(&self, bytes: &[u8]) -> Option<Share> {
        self.unpack(bytes, self.len())
    }

    /// Takes so many numbers; nothing if one is not below p, or bits are left over that are not zero.
    fn unpack(&self, bytes: &[u8], total: usize) -> Option<Share> {
        if bytes.len() != self.bytes_of(total) {
            return None;
        }
        let mut numbers = Zeroizing::new(Vec::with_capacity(total));
        let (mut waiting, mut count) = (0u32, 0);
        for &byte in bytes {
            waiting |= u32::from(byte) << count;
            count += 8;
            while count >= self.bits() && numbers.len() < total {
                numbers.push((waiting & ((1 << self.bits()) - 1)) as u16);
                waiting >>= self.bits();
                count -= self.bits();
            }
        }
        let are_below = numbers.iter().all(|&x| u64::from(x) < self.field.p);
        (waiting == 0 && are_below && numbers.len() == total).then_some(numbers)
    }

    /// Expands the share that a seed names.
    pub(crate) fn draw(&self, seed: &[u8; 32]) -> Share {
        self.uniform(seed, self.len_with_masks())
    }

    /// Expands numbers of a seed, each uniform to within 2^-112.
    fn uniform(&self, seed: &[u8; 32], count: usize) -> Share {
        let words = random::keystream(seed, 2 * count);
        let number = |&[low, high]: &[u64; 2]| {
            let part = |word: u64| u128::from(word) * u128::from(self.field.p);
            ((part(high) + (part(low) >> 64)) >> 64) as u16
        };
        Zeroizing::new(words.as_chunks().0.iter().map(number).collect())
    }

    /// Makes the polynomials of a secret, with masks that a seed names and the shares of the first openers, which are
    /// drawn.
    ///
    /// # Panics
    /// Not as many coefficients as the ring has, or not as many drawn shares as the quorum has faulty openers.
    pub(crate) fn polynomials(
        &self,
        secret: &[i8],
        masks: &[u8; 32],
        drawn: &[Share],
    ) -> SecretPolynomials {
        assert!(secret.len() == self.degree && drawn.len() == self.drawn());
        let (len, p) = (self.len_with_masks(), self.field.p as i32);
        let masks = self.uniform(masks, self.rows() * self.masks());
        let mut values = Zeroizing::new(vec![0u16; self.needed() * len]);
        let rows = values.chunks_exact_mut(len);
        let given = secret.chunks(self.len()).zip(masks.chunks_exact(self.masks()));
        for (row, (secret, masks)) in rows.zip(given) {
            for (x, &c) in row.iter_mut().zip(secret) {
                let c = i32::from(c);
                *x = (c + ((c >> 31) & p)) as u16;
            }
            row[self.len()..].copy_from_slice(masks);
        }
        let rows = values.chunks_exact_mut(len).skip(self.rows());
        rows.zip(drawn).for_each(|(row, share)| row.copy_from_slice(share));
        SecretPolynomials { sharing: *self, values }
    }

    /// Returns the points at which polynomials are given: those of the secret, and of drawn shares.
    fn points(&self) -> Vec<u64> {
        self.secret_points().chain(1..=self.drawn() as u64).collect()
    }

    /// Returns the public factors of combinations, uniform but for 2^-16 of each chance: those of the first begin with
    /// the first, of the second with the second, and so on. Each has a last factor of a wrong polynomial that those
    /// before lack, so that all combinations of what is wrong are uniform, and independent.
    fn challenge(&self, seed: &[u8; 32]) -> Vec<u16> {
        let count = self.len() + self.masks() - 1;
        let words = random::keystream(seed, count.div_ceil(2));
        let factor = |half: u64| ((half * self.field.p) >> 32) as u16;
        let mut factors = vec![0; 2 * words.len()];
        for ([low, high], &word) in factors.as_chunks_mut().0.iter_mut().zip(&*words) {
            (*low, *high) = (factor(word & u64::from(u32::MAX)), factor(word >> 32));
        }
        factors.truncate(count);
        factors
    }

    /// Returns the combinations of numbers, one of each polynomial, each with its mask added.
    fn combinations(&self, factors: &[u16], numbers: &[u16]) -> Share {
        let (own, masks) = numbers.split_at(self.len());
        let combination = |(factors, &mask): (&[u16], &u16)| {
            self.field.reduce(self.field.dot(factors, own) + u64::from(mask)) as u16
        };
        let each = factors.windows(self.len()).zip(masks);
        Zeroizing::new(each.map(combination).collect())
    }

    /// Returns whether an opener's share is one of polynomials of which this was proved. It takes the masks off then.
    pub(super) fn fits(
        &self,
        opener: usize,
        share: &mut Share,
        (challenge, proof): (&[u8; 32], &[u8]),
    ) -> bool {
        let Some(proof) = self.unpack(proof, self.needed() * self.masks()) else { return false };
        let factors = self.field.factors(&self.points(), opener as u64 + 1);
        let mut expected = Zeroizing::new(vec![0; self.masks()]);
        self.field.combine(&factors, proof.chunks_exact(self.masks()), &mut expected);
        let found = self.combinations(&self.challenge(challenge), share);
        share.truncate(self.len());
        *found == *expected
    }

    /// Adds shares of one opener.
    pub(crate) fn add(&self, sum: &mut Share, share: &[u16]) {
        for (sum, &x) in sum.iter_mut().zip(share) {
            *sum = self.field.reduce(u64::from(*sum) + u64::from(x)) as u16;
        }
    }

    /// Recovers a sum of `contributors` secrets from sums of shares of τ openers; nothing if it is none: some of them
    /// are not what their openers were given.
    ///
    /// # Panics
    /// Not as many as open a sum.
    pub(crate) fn recover(
        &self,
        sums: &[(usize, &[u16])],
        contributors: usize,
    ) -> Option<Zeroizing<Vec<i32>>> {
        assert_eq!(sums.len(), usize::from(self.quorum.open));
        let points: Vec<u64> = sums.iter().map(|&(opener, _)| opener as u64 + 1).collect();
        let mut secret = Zeroizing::new(Vec::with_capacity(self.rows() * self.len()));
        let mut row = Zeroizing::new(vec![0; self.len()]);
        for point in self.secret_points() {
            let factors = self.field.factors(&points, point);
            self.field.combine(&factors, sums.iter().map(|&(_, sum)| sum), &mut row);
            secret.extend(row.iter().map(|&x| self.centred(x)));
        }
        let padding = secret[self.degree..].iter().all(|&c| c == 0);
        secret.truncate(self.degree);
        let bound = sum_range(contributors as u32) as i32;
        (padding && secret.iter().all(|c| (-bound..=bound).contains(c))).then_some(secret)
    }

    fn secret_points(&self) -> impl Iterator<Item = u64> + use<> {
        let p = self.field.p;
        (1..=self.rows() as u64).map(move |k| p - k)
    }

    fn centred(&self, x: u16) -> i32 {
        let (x, p) = (i32::from(x), self.field.p as i32);
        if x > p / 2 { x - p } else { x }
    }
}

#[cfg(test)]
mod tests {
    use ciphergram_accel::random::centred_binomial;
    use proptest::prelude::*;

    use super::*;

    fn quorums() -> impl Iterator<Item = Quorum> {
        let all = (1..=MAX_OPENERS).flat_map(|c| (1..=c).map(move |open| (c, open)));
        all.filter_map(|(c, open)| Quorum::new(c, Some(open)).ok())
    }

    #[test]
    fn quorums_are_those_of_the_table() {
        let of = |c, open| Quorum::new(c, Some(open)).ok().map(|q| (q.faulty, q.silent()));
        assert_eq!(of(4, 3), Some((1, 1)));
        assert_eq!(of(5, 4), Some((2, 1)));
        assert_eq!(of(16, 11), Some((5, 5)));
        assert_eq!(of(32, 22), Some((11, 10)));
        assert_eq!(of(3, 3), Some((2, 0)));
        assert_eq!(of(1, 1), Some((0, 0)));
        assert_eq!([of(4, 2), of(3, 2), of(33, 30), of(4, 5), of(4, 0), of(0, 0)], [None; 6]);
        let usual = [1, 2, 3, 4, 5, 16, 32].map(|c| Quorum::new(c, None).unwrap().open);
        assert_eq!(usual, [1, 2, 3, 3, 4, 11, 22]);
        for c in 2..=MAX_OPENERS {
            let least = (1..=c).find(|&open| of(c, open).is_some()).unwrap();
            let why = Quorum::new(c, Some(1)).unwrap_err().to_string();
            assert!(why.ends_with(&format!("choose at least {least}")), "{why}");
        }
        for q in quorums() {
            assert!(2 * q.open > q.openers + q.faulty && q.faulty < q.open, "{q:?}");
            assert!(q.faulty > 0 || q.openers == 1, "{q:?}");
        }
    }

    /// Of the ranges by Hoeffding's inequality, beside the exact chance that a sum is beyond.
    #[test]
    fn sums_are_beyond_their_range_almost_never() {
        assert_eq!([1, 2, 4, 10, 64, 1024].map(sum_range), [21, 42, 63, 100, 252, 1007]);
        for secrets in [4, 10, 64] {
            // Of 42 coins a secret, centred: the logarithm of the chance of each sum, by a recurrence.
            let coins = 42 * secrets;
            let (mut log, mut beyond) = (-f64::from(coins), 0.0);
            for heads in 0..coins / 2 - sum_range(secrets) {
                beyond += 2.0 * log.exp2();
                log += (f64::from(coins - heads) / f64::from(heads + 1)).log2();
            }
            assert!(beyond.log2() < -67.0, "{secrets}: 2^{}", beyond.log2());
        }
    }

    #[test]
    fn reduction_is_that_of_division() {
        for least in [2, 42, 430, 2688, 43_008] {
            let field = Field::above(least);
            for x in (0..70).map(|i| 3u64.pow(i % 40)).chain([0, u64::MAX, field.p, field.p - 1]) {
                assert_eq!(field.reduce(x), x % field.p);
            }
        }
    }

    proptest! {
        #[test]
        fn shares_travel(clients in 1u32..=1024, open in 1usize..=4, seed: [u8; 32]) {
            let quorum = Quorum::new(2 * open - 1, Some(2 * open - 1)).unwrap();
            let sharing = Sharing::new(quorum, clients, 80);
            let share = sharing.draw(&seed);
            let mut bytes = sharing.pack(&share).to_vec();
            prop_assert_eq!(bytes.len(), sharing.share_bytes());
            prop_assert_eq!(sharing.unpack_share(&bytes), Some(share));
            prop_assert_eq!(sharing.unpack_share(&bytes[1..]), None);
            bytes.fill(0xff);
            prop_assert_eq!(sharing.unpack_share(&bytes), None, "no number has all bits of a power of two");
        }

        /// Any τ of c recover a sum, one fewer with a share of somebody else's making does not.
        #[test]
        fn any_quorum_recovers_sums(
            index in 0..quorums().count(),
            clients in 1usize..6,
            seed: [u8; 32],
        ) {
            let quorum = quorums().nth(index).unwrap();
            let sharing = Sharing::new(quorum, 5, 64);
            let mut words = random::keystream(&seed, 4096).to_vec().into_iter();
            let mut next = |below: u64| words.next().unwrap() % below;
            let mut expected = vec![0i32; 64];
            let mut sums = vec![Zeroizing::new(vec![0; sharing.len()]); quorum.openers.into()];
            let challenge = [7; 32];
            for client in 0..clients {
                let secret: Vec<i8> = (0..64).map(|_| centred_binomial(next(1 << 42))).collect();
                expected.iter_mut().zip(&secret).for_each(|(sum, &c)| *sum += i32::from(c));
                let seed = |i: u8| [client as u8, i].repeat(16).try_into().unwrap();
                let drawn: Vec<_> = (0..quorum.faulty).map(|i| sharing.draw(&seed(i))).collect();
                let polynomials = sharing.polynomials(&secret, &seed(255), &drawn);
                let proof = polynomials.prove(&challenge);
                prop_assert_eq!(proof.len(), sharing.proof_bytes());
                for (opener, sum) in sums.iter_mut().enumerate() {
                    let mut share = polynomials.share(opener);
                    prop_assert_eq!(drawn.get(opener).unwrap_or(&share), &share);
                    let mut changed = share.clone();
                    let at = next(changed.len() as u64) as usize;
                    changed[at] = sharing.field.reduce(u64::from(changed[at]) + 1) as u16;
                    prop_assert!(!sharing.fits(opener, &mut changed, (&challenge, &proof)));
                    prop_assert!(!sharing.fits(opener, &mut share.clone(), (&[8; 32], &proof)));
                    prop_assert!(sharing.fits(opener, &mut share, (&challenge, &proof)));
                    sharing.add(sum, &share);
                }
            }
            let mut openers: Vec<usize> = (0..quorum.openers.into()).collect();
            while openers.len() > quorum.open.into() {
                openers.swap_remove(next(openers.len() as u64) as usize);
            }
            let answers: Vec<_> = openers.iter().map(|&i| (i, &sums[i][..])).collect();
            prop_assert_eq!(sharing.recover(&answers, clients).unwrap().to_vec(), expected.clone());
            let mut forged = sums[openers[0]].clone();
            forged.iter_mut().for_each(|x| *x = sharing.field.reduce(u64::from(*x) + 1 + next(40)) as u16);
            let mut answers = answers;
            answers[0].1 = &forged;
            prop_assert!(sharing.recover(&answers, clients).is_none_or(|found| *found != expected));
        }

        /// Whatever the secret is, the drawn shares determine those of any f openers, and the other way round: these
        /// say nothing of it.
        #[test]
        fn faulty_openers_learn_nothing(index in 0..quorums().count(), seed: [u8; 32]) {
            let quorum = quorums().nth(index).unwrap();
            let sharing = Sharing::new(quorum, 5, 64);
            let f = usize::from(quorum.faulty);
            let mut words = random::keystream(&seed, 64).to_vec().into_iter();
            let mut openers: Vec<u64> = (1..=quorum.openers.into()).collect();
            while openers.len() > f {
                openers.swap_remove((words.next().unwrap() % openers.len() as u64) as usize);
            }
            // With the secret at its points and any values at theirs, the values at the first f points follow.
            let known: Vec<u64> = sharing.secret_points().chain(openers).collect();
            prop_assert_eq!(known.len(), usize::from(quorum.open));
            let field = sharing.field;
            let rows: Vec<Vec<u64>> = (1..=f as u64).map(|x| field.factors(&known, x)).collect();
            let square: Vec<Vec<u64>> = rows.iter().map(|row| row[sharing.rows()..].to_vec()).collect();
            prop_assert!(is_regular(field, square));
        }
    }

    /// Returns whether a square matrix can be inverted.
    fn is_regular(field: Field, mut rows: Vec<Vec<u64>>) -> bool {
        for k in 0..rows.len() {
            let Some(pivot) = (k..rows.len()).find(|&i| rows[i][k] != 0) else { return false };
            rows.swap(k, pivot);
            let inverse = field.invert(rows[k][k]);
            for i in k + 1..rows.len() {
                let factor = rows[i][k] * inverse % field.p;
                let pivot = rows[k].clone();
                for (x, &above) in rows[i].iter_mut().zip(&pivot) {
                    *x = (*x + (field.p - factor) * above) % field.p;
                }
            }
        }
        true
    }
}
