//! The steps over RNS polynomials and beats, but transforms.

use super::sampling;
use crate::{
    beats,
    program::{Kind, Step},
    ring::{Ring, subtract_once},
};

/// Any step that makes polynomials or beats, and [`Step::Compose`].
pub(super) fn step(step: &Step, out_kind: &Kind, out: &mut [u64], args: &[(&Kind, &[u64])]) {
    let a = args[0].1;
    let b = args.get(1).map_or(&[][..], |arg| arg.1);
    let ring = match (out_kind, args[0].0) {
        (Kind::Polys { ring, .. } | Kind::Beats { ring, .. }, _)
        | (_, Kind::Polys { ring, .. }) => ring,
        _ => unreachable!("{} has a polynomial on one side", step.name()),
    };
    match step {
        Step::PolyAdd => pointwise(ring, out, a, b, |x, y, q| subtract_once(x + y, q)),
        Step::PolySub => pointwise(ring, out, a, b, |x, y, q| subtract_once(x + q - y, q)),
        Step::PolyMul => poly_mul(ring, out, a, b),
        Step::Uniform => sampling::uniform(ring, out, a, b[0]),
        Step::Noise => sampling::noise(ring, out, a, b[0]),
        Step::Lift { words_each } => lift(ring, out, a, *words_each),
        Step::Compose => compose(ring, out, a),
        Step::Pack => pack(ring, out, a),
        Step::Unpack => unpack(ring, out, a),
        Step::AddBeats => add_beats(ring, out, a, b),
        _ => unreachable!("{} is no polynomial step", step.name()),
    }
}

fn pointwise(ring: &Ring, out: &mut [u64], a: &[u64], b: &[u64], f: impl Fn(u64, u64, u64) -> u64) {
    let n = ring.degree();
    for (limb, &q) in ring.primes().iter().enumerate() {
        let at = limb * n..(limb + 1) * n;
        let (a, b) = (&a[at.clone()], &b[at.clone()]);
        out[at].iter_mut().zip(a).zip(b).for_each(|((o, &x), &y)| *o = f(x, y, q));
    }
}

/// Barrett reduction by a prime `q` of `bits` bits: no division, no branch.
///
/// # Bound
/// For `x < 2^(2·bits)`, `mu = ⌊2^(2·bits) / q⌋`, the estimate `⌊⌊x / 2^(bits−1)⌋·mu / 2^(bits+1)⌋`
/// is the quotient or at most 2 less, so two conditional subtractions finish. With `bits ≤ 50` the
/// estimate's product is below 2^102.
///
/// # Source
/// A. Menezes et al., "Handbook of Applied Cryptography", algorithm 14.42.
#[derive(Clone, Copy)]
struct Barrett {
    q: u64,
    mu: u64,
    bits: u32,
}

impl Barrett {
    fn new(q: u64) -> Self {
        let bits = 64 - q.leading_zeros();
        Self { q, mu: ((1u128 << (2 * bits)) / u128::from(q)) as u64, bits }
    }

    #[inline(always)]
    fn reduce(self, x: u128) -> u64 {
        let estimate = (((x >> (self.bits - 1)) * u128::from(self.mu)) >> (self.bits + 1)) as u64;
        let rest = (x as u64).wrapping_sub(estimate.wrapping_mul(self.q));
        subtract_once(subtract_once(rest, self.q), self.q)
    }

    #[inline(always)]
    fn mul(self, a: u64, b: u64) -> u64 {
        self.reduce(u128::from(a) * u128::from(b))
    }

    /// Any word mod q.
    #[inline(always)]
    fn reduce_word(self, x: u64) -> u64 {
        // A prime of 32 bits or more has 2^64 ≤ 2^(2·bits). Smaller ones have no secure use.
        if self.bits >= 32 { self.reduce(u128::from(x)) } else { x % self.q }
    }
}

fn poly_mul(ring: &Ring, out: &mut [u64], a: &[u64], b: &[u64]) {
    let n = ring.degree();
    for (limb, &q) in ring.primes().iter().enumerate() {
        let barrett = Barrett::new(q);
        for i in limb * n..(limb + 1) * n {
            out[i] = barrett.mul(a[i], b[i]);
        }
    }
}

/// Horner's rule over the words of each integer.
fn lift(ring: &Ring, out: &mut [u64], integers: &[u64], words_each: usize) {
    let limbs = out.chunks_exact_mut(ring.degree()).zip(ring.primes());
    for (limb, &q) in limbs {
        let barrett = Barrett::new(q);
        let radix = ((1u128 << 64) % u128::from(q)) as u64;
        for (o, words) in limb.iter_mut().zip(integers.chunks_exact(words_each)) {
            *o = words.iter().rev().fold(0, |acc, &w| {
                let word = barrett.reduce_word(w);
                subtract_once(barrett.mul(acc, radix) + word, q)
            });
        }
    }
}

/// `r₀ + q₀ · ((r₁ − r₀) · q₀⁻¹ mod q₁)`.
fn compose(ring: &Ring, out: &mut [u64], poly: &[u64]) {
    let (n, q0, q1) = (ring.degree(), ring.primes()[0], ring.primes()[1]);
    let barrett = Barrett::new(q1);
    let inverse = crate::ring::pow_mod_vartime(q0 % q1, q1 - 2, q1);
    let (low, high) = poly.split_at(n);
    for ((pair, &r0), &r1) in out.chunks_exact_mut(2).zip(low).zip(high) {
        let difference = subtract_once(r1 + q1 - barrett.reduce_word(r0), q1);
        let h = barrett.mul(difference, inverse);
        let x = u128::from(r0) + u128::from(q0) * u128::from(h);
        pair.copy_from_slice(&[x as u64, (x >> 64) as u64]);
    }
}

/// The ten lanes of a beat.
fn lanes(beat: &[u64]) -> [u64; beats::LANES] {
    std::array::from_fn(|i| beats::lane(beat, i))
}

fn pack(ring: &Ring, out: &mut [u64], poly: &[u64]) {
    let (n, limbs) = (ring.degree(), ring.primes().len());
    out.fill(0);
    let mut place = (0, 0);
    for beat in out.chunks_exact_mut(beats::WORDS) {
        for lane in 0..beats::LANES {
            beats::set_lane(beat, lane, poly[place.0 * n + place.1]);
            place = if place.0 + 1 == limbs { (0, place.1 + 1) } else { (place.0 + 1, place.1) };
        }
    }
}

fn unpack(ring: &Ring, out: &mut [u64], words: &[u64]) {
    let (n, limbs) = (ring.degree(), ring.primes().len());
    out.fill(0);
    let mut place = (0, 0);
    for beat in words.chunks_exact(beats::WORDS) {
        for residue in lanes(beat) {
            out[place.0 * n + place.1] = residue;
            place = if place.0 + 1 == limbs { (0, place.1 + 1) } else { (place.0 + 1, place.1) };
        }
    }
}

/// Every lane holds a residue below 2^50, so a sum fits its 51 bits before it is reduced.
fn add_beats(ring: &Ring, out: &mut [u64], a: &[u64], b: &[u64]) {
    let primes = ring.primes();
    out.fill(0);
    let mut limb = 0;
    let pairs = a.chunks_exact(beats::WORDS).zip(b.chunks_exact(beats::WORDS));
    for (out, (a, b)) in out.chunks_exact_mut(beats::WORDS).zip(pairs) {
        for (lane, (x, y)) in lanes(a).into_iter().zip(lanes(b)).enumerate() {
            beats::set_lane(out, lane, subtract_once(x + y, primes[limb]));
            limb = if limb + 1 == primes.len() { 0 } else { limb + 1 };
        }
    }
}
