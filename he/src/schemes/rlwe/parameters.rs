//! The rings of `ckks-sum`, within the security table, and the room of a coefficient.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use ciphergram_accel::{Ring, beats};
use crypto_bigint::U1024;

use super::range::RangeCheck;
use crate::{
    error::faults::ParameterError,
    params::{
        geometry::{CHUNK_BYTES, Geometry},
        head::{Head, bit_length},
        scheme::{Literal, Scheme},
        security::{MAX_TRIES, check_security, security_limit},
    },
};

/// The bound on one coefficient of noise as it is drawn: see the `noise` step of programs.
pub const NOISE_BOUND: u64 = 21;

/// A bound on the chance of the likeliest value of the noise of m contributors, times √m: `1 / √(21·π)`, which
/// `C(42m, 21m) / 2^(42m)` comes up to.
const LIKELIEST_NOISE: f64 = 0.123_118;

/// The most primes of a ring whose heads have coefficients to themselves. With more, one would be up to a tenth of
/// a chunk.
const MOST_APART: usize = 4;

/// The most words of the coefficients of a tile: 64 KB.
const TILE_WORDS: usize = 8192;

/// The degree of the smallest ring.
const SMALLEST_DEGREE: usize = 4096;
/// The most clients under `ckks-sum` that the smallest ring is for: with more, what their failures in one round may
/// tell leaves less than 128 bits of a statement's secret (`he/docs/verifiable-sums.md`).
const MAX_CLIENTS_OF_SMALLEST: u32 = 512;

/// Where shares of a secret travel with an update: below this many values, those of a larger ring's secret take more
/// bytes than that ring saves.
const FEWEST_OF_LARGE: usize = 100_000;

/// Ring, noise and margin of a `ckks-sum` set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RlweParameters {
    /// The ring: N = 4096 with two primes of 50 bits, or N = 8192 with four; of large updates N = 16384 with eight, or
    /// N = 32768 with sixteen.
    pub ring: Arc<Ring>,
    /// The most that a coefficient of the noise of a whole sum is away from zero.
    pub noise_bound: u64,
    /// Bits below the fields that the summed noise cannot leave.
    pub margin_bits: u32,
    pub(crate) geometry: Geometry,
    /// The check of beats over the ring.
    pub(super) range: RangeCheck,
}

impl RlweParameters {
    /// Returns `log₂ Q`.
    #[must_use]
    pub fn log_q(&self) -> f64 {
        self.ring.primes().iter().map(|&q| (q as f64).log2()).sum()
    }

    /// Returns the most bits of Q at 128-bit security: the row of the table that the ring was checked by.
    #[must_use]
    pub fn security_limit(&self) -> u32 {
        security_limit(self.ring.degree())
    }

    /// Returns the fewest contributors of a sum under `ckks-sum` that leave 128 bits of a statement's secret, whatever
    /// the failures of all `clients` in its round tell: an equation for each coefficient of the noise that can be named
    /// with a chance of 2^-128, of those that Q has to spare. See `he/docs/verifiable-sums.md`.
    pub(crate) fn fewest_contributors(&self, clients: u16) -> u32 {
        let needed = self.log_q() / f64::from(self.security_limit());
        let spare = self.ring.degree() as f64 * (1.0 - needed);
        let answers = ((MAX_TRIES + 1) as f64).log2() * f64::from(clients);
        let surprise = (answers + 128.0) / spare;
        (surprise.exp2() * LIKELIEST_NOISE).powi(2).ceil() as u32
    }

    /// Returns the chunks of a tile of a polynomial, and a ring of the same primes that has as many coefficients as
    /// they fill, or some more: all that is computed with them but transforms stays in the second level of cache.
    ///
    /// Noise is drawn by tiles: if these change, the names that its keys are derived by must.
    pub(crate) fn tile(&self) -> (Arc<Ring>, usize) {
        /// Those that were made: to find roots takes a while.
        static TILES: Mutex<Vec<Arc<Ring>>> = Mutex::new(vec![]);
        let (ring, g) = (&self.ring, &self.geometry);
        let degree = ring.degree().min(1 << (TILE_WORDS / ring.primes().len()).ilog2());
        let chunks = (degree / g.slots_per_chunk).min(g.group_chunks);
        if degree == ring.degree() {
            return (ring.clone(), chunks);
        }
        let mut tiles = TILES.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |tile: &&Arc<Ring>| (tile.degree(), tile.primes()) == (degree, ring.primes());
        let known = tiles.iter().find(is_same).cloned();
        let tile = known.unwrap_or_else(|| match Ring::new(degree, ring.primes()) {
            Ok(tile) => {
                tiles.push(Arc::new(tile));
                tiles[tiles.len() - 1].clone()
            }
            Err(_) => unreachable!("primes of a ring are those of a smaller one"),
        });
        (tile, chunks)
    }

    /// Returns the number of beats of the chunks of one polynomial.
    pub(crate) fn polynomial_beats(&self) -> usize {
        self.geometry.group_chunks * self.geometry.chunk_beats()
    }

    /// Returns the words of a coefficient of a message: as many as hold anything modulo Q.
    pub(crate) fn message_words(&self) -> usize {
        let bits: u32 = self.ring.primes().iter().map(|&q| u64::BITS - q.leading_zeros()).sum();
        (bits as usize).div_ceil(64)
    }
}

/// Derives the set of the small ring with the fewest bytes a value; of equals, and where shares of a secret travel with
/// an update, that of the smaller ring.
///
/// # Errors
/// No ring has room for a chunk's head.
pub(crate) fn choose(literal: Literal, field_bits: u32) -> Result<RlweParameters, ParameterError> {
    let mut all = of_rings(literal, field_bits);
    if literal.scheme == Scheme::CkksSumThreshold {
        let none = || Err(ParameterError::no_room(literal.clients, literal.bits));
        return all.find(Result::is_ok).unwrap_or_else(none);
    }
    let bytes = |set: &RlweParameters| set.geometry.bytes_per_value();
    let best = all.reduce(|best, next| match (&best, &next) {
        (Ok(a), Ok(b)) if bytes(b) < bytes(a) => next,
        (Ok(_), _) => best,
        (Err(_), _) => next,
    });
    best.unwrap_or_else(|| Err(ParameterError::no_room(literal.clients, literal.bits)))
}

/// Derives the sets of large updates, the smallest first, each with the fewest values that it is for: as many as fill
/// half of a polynomial, so that none is computed with in vain. A secret of one update takes as long as a polynomial,
/// and its shares travel: where there is one, as many as fill a whole polynomial, and at least [`FEWEST_OF_LARGE`]. A
/// set that takes no fewer bytes a value than the one before it, `chosen` to begin with, is left out.
pub(crate) fn larger(
    literal: Literal,
    field_bits: u32,
    chosen: &RlweParameters,
) -> Vec<(usize, RlweParameters)> {
    let mut fewest = chosen.geometry.bytes_per_value();
    let mut sets = vec![];
    let has_shares = literal.scheme == Scheme::CkksSumThreshold;
    let between = if has_shares { &rings()[1..] } else { &[] };
    let larger = between.iter().chain(large_rings());
    for set in larger.filter_map(|ring| derive(ring, literal, field_bits).ok()) {
        let g = set.geometry;
        if g.bytes_per_value() < fewest {
            fewest = g.bytes_per_value();
            let per_polynomial = g.group_chunks * g.values_per_chunk();
            sets.push((
                if has_shares { per_polynomial.max(FEWEST_OF_LARGE) } else { per_polynomial / 2 },
                set,
            ));
        }
    }
    sets
}

/// Derives the set of each small ring, the smaller first.
pub(crate) fn of_rings(
    literal: Literal,
    field_bits: u32,
) -> impl Iterator<Item = Result<RlweParameters, ParameterError>> {
    rings().iter().map(move |ring| derive(ring, literal, field_bits))
}

/// Returns the rings of updates of any size, the smaller first. A coefficient of the larger one spends one
/// margin, and one rounding down to whole fields, on 200 bits instead of on 100.
fn rings() -> &'static [Arc<Ring>] {
    static RINGS: LazyLock<[Arc<Ring>; 2]> =
        LazyLock::new(|| [(4096, 2), (8192, 4)].map(|(degree, primes)| ring(degree, primes)));
    &*RINGS
}

/// Returns the rings of large updates, the smaller first: one margin and one rounding for 400 and 800 bits.
fn large_rings() -> &'static [Arc<Ring>] {
    static RINGS: LazyLock<[Arc<Ring>; 2]> =
        LazyLock::new(|| [(16384, 8), (32768, 16)].map(|(degree, primes)| ring(degree, primes)));
    &*RINGS
}

/// Returns all rings, the smallest first.
#[cfg(test)]
pub(super) fn all_rings() -> impl Iterator<Item = &'static Arc<Ring>> {
    rings().iter().chain(large_rings())
}

/// Returns the ring of the largest primes of 50 bits.
fn ring(degree: usize, primes: usize) -> Arc<Ring> {
    Arc::new(Ring::largest(50, degree, primes))
}

/// Derives the set of a ring: a coefficient is `fields · 2^margin + noise` modulo Q.
///
/// # Bound
/// Noise is drawn as a centred binomial of 2 × 21 bits, so no coefficient of it is more than 21 away
/// from zero, ever. Each contribution has one such draw; nothing here depends on the ring. The noise of a sum is at
/// most `noise_bound = clients · 21 < 2^(margin − 1)`.
///
/// The fields of a sum are at most `Σ_f clients · (2^bits − 2) · 2^(f · field_bits)`. Shifted by
/// the margin, and with `noise_bound + 2^margin` on top, that is at most Q: this is checked with
/// the exact integers, since Q is a little less than a power of two. So a sum `x` of fields and
/// noise has `−2^(margin − 1) < x` and `x + 2^(margin − 1) < Q`: it never wraps but for negative
/// noise around zero, which shows as just below Q. Adding `2^(margin − 1)` modulo Q and dropping
/// the margin recovers the fields always: the probability that decryption fails is zero, over
/// any ring. A slot of a head is less than `2^h`, where `h + margin` is one bit less than Q has, and Q is more
/// than `2^(h + margin)` by more than all noise and half of the margin. Where values stand above a head in one slot,
/// as they do over large rings, whose coefficients are too large for a head alone, all fields have at most `h` bits.
///
/// # Errors
/// The ring is not secure, also by what its clients may tell, or has no room for a chunk's head in a coefficient.
fn derive(
    ring: &Arc<Ring>,
    literal: Literal,
    field_bits: u32,
) -> Result<RlweParameters, ParameterError> {
    let prime_bits = ring.primes().iter().map(|&q| bit_length(u128::from(q))).sum();
    check_security(ring.degree(), prime_bits)?;
    if ring.degree() == SMALLEST_DEGREE && literal.clients > MAX_CLIENTS_OF_SMALLEST {
        return Err(ParameterError::no_room(literal.clients, literal.bits));
    }
    lay_out(ring, literal, field_bits)
}

/// Derives the same without the security table.
pub(crate) fn lay_out(
    ring: &Arc<Ring>,
    literal: Literal,
    field_bits: u32,
) -> Result<RlweParameters, ParameterError> {
    let Literal { clients, bits, .. } = literal;
    let limbs = ring.primes().len();
    let noise_bound = u64::from(clients) * NOISE_BOUND;
    let margin_bits = bit_length(u128::from(noise_bound)) + 1;
    // At degrees up to 32768 a secure Q has at most 868 bits.
    let q = ring.primes().iter().fold(U1024::ONE, |q, &prime| q.wrapping_mul(&U1024::from(prime)));
    let largest_field = U1024::from(u64::from(clients) * ((1 << bits) - 2));
    let slack = U1024::from(noise_bound + (1 << margin_bits));
    let fits = |fields: &u32| {
        let shifts = (0..*fields).map(|field| margin_bits + field * field_bits);
        shifts.fold(slack, |sum, shift| sum.wrapping_add(&largest_field.shl(shift))) <= q
    };
    // What has more bits than Q does not fit, and would not fit the integers here either.
    let (room, head_bits) = (q.bits().saturating_sub(margin_bits), q.bits() - 1 - margin_bits);
    let shares_slots = limbs > MOST_APART;
    let most = if shares_slots { head_bits } else { room } / field_bits;
    let fields = (1..=most).rev().find(fits);
    let fields_per_slot =
        fields.ok_or_else(|| ParameterError::no_room(literal.clients, literal.bits))? as usize;
    let beats_per_unit = beats::beats_per_unit(limbs);
    let unit_bytes = beats_per_unit * beats::BYTES;
    let slots_per_unit = beats_per_unit * beats::LANES / limbs;
    let slots_per_chunk = CHUNK_BYTES / unit_bytes * slots_per_unit;
    let geometry = Geometry {
        field_bits,
        fields_per_slot,
        slots_per_chunk,
        head_fields: 0,
        head: Head::EMPTY,
        slots_per_unit,
        unit_bytes,
        // No chunk spans two polynomials: the few coefficients left over carry nothing.
        group_chunks: ring.degree() / slots_per_chunk,
    };
    // The largest head is more than the largest fields where these fill what Q leaves above the margin.
    let granularity = if shares_slots { 1 } else { fields_per_slot };
    let geometry = geometry.with_head(literal, granularity, head_bits)?;
    let (ring, range) = (ring.clone(), RangeCheck::new(ring));
    Ok(RlweParameters { ring, noise_bound, margin_bits, geometry, range })
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;

    use super::*;
    use crate::{
        job::usual_min_clients,
        params::{BITS, MAX_CLIENTS, Parameters},
    };

    /// Returns the rows of 128-bit security once more.
    fn allowed(degree: usize) -> u64 {
        match degree {
            4096 => 106,
            8192 => 214,
            16384 => 430,
            32768 => 868,
            _ => panic!("a ring of degree {degree}"),
        }
    }

    /// Checks the set, computed another way than [`derive`] does.
    fn check(p: &Parameters, clients: u32, bits: u32) {
        let (g, rlwe) = (p.geometry(), p.rlwe().unwrap());
        let primes = rlwe.ring.primes();
        let q: BigUint = primes.iter().map(|&q| BigUint::from(q)).product();
        assert!(q.bits() <= allowed(rlwe.ring.degree()));
        assert!(primes.iter().all(|q| q % (2 * rlwe.ring.degree() as u64) == 1));
        // Noise never reaches half of the margin: of a contribution it is one draw.
        let noise = u64::from(clients) * 21;
        assert_eq!(rlwe.noise_bound, noise);
        assert!(2 * noise < 1 << rlwe.margin_bits && 4 * noise >= 1 << rlwe.margin_bits);
        // A field holds the largest sum, and no bit more.
        let largest = u64::from(clients) * ((1 << bits) - 2);
        assert_eq!(u64::from(g.field_bits), BigUint::from(largest).bits());
        // All fields at their largest and all noise leave half of the margin below Q; one field
        // more does not.
        let top = |fields: usize| {
            let all = (0..fields).fold(BigUint::ZERO, |sum, _| (sum << g.field_bits) + largest);
            (all << rlwe.margin_bits) + noise + (1u64 << (rlwe.margin_bits - 1))
        };
        assert!(top(g.fields_per_slot) < q);
        // But a head with values above it may take all bits of all fields.
        let more = top(g.fields_per_slot + 1) + (1u64 << (rlwe.margin_bits - 1));
        let bits_of_more = (g.fields_per_slot as u64 + 1) * u64::from(g.field_bits);
        let full = primes.len() > 4 && bits_of_more + u64::from(rlwe.margin_bits) >= q.bits();
        assert!(more > q || full);
        check_head(p, clients, bits, &q);
        // Chunks are of whole units, units of whole coefficients and whole beats.
        assert_eq!(g.unit_bytes * 10, g.slots_per_unit * primes.len() * 64);
        assert!(g.slots_per_chunk.is_multiple_of(g.slots_per_unit));
        assert!((1..=CHUNK_BYTES).contains(&g.chunk_bytes()) && g.values_per_chunk() > 0);
        // A polynomial's chunks are within it.
        let degree = rlwe.ring.degree();
        assert!(g.group_chunks > 0 && g.group_chunks * g.slots_per_chunk <= degree);
        assert!((g.group_chunks + 1) * g.slots_per_chunk > degree);
    }

    /// Checks that the head of all clients, at the largest count, weight and tag, is within its slots, and that no
    /// slot of it wraps modulo `q`.
    fn check_head(p: &Parameters, clients: u32, bits: u32, q: &BigUint) {
        let (g, rlwe) = (p.geometry(), p.rlwe().unwrap());
        let (slot_bits, count_bits) =
            (g.field_bits * g.fields_per_slot as u32, g.head.count_bits());
        assert!(clients < 1 << count_bits);
        let own = (u64::from(u32::MAX) + 1) + g.values_per_chunk() as u64 * ((1u64 << bits) - 2);
        let tag = BigUint::from((1u64 << 52) - 1) * own + u64::MAX;
        assert_eq!(u64::from(g.head.tag_bits()), tag.bits());
        let weights = BigUint::from(clients) * u32::MAX;
        let mut first = BigUint::from(clients) + (weights << count_bits);
        for part in g.head.tag_parts() {
            let all = BigUint::from(clients) * ((1u128 << part.bits) - 1);
            assert!(all.bits() <= part.sum_bits.into());
            let slot = std::mem::take(&mut first) + (all << part.at);
            assert!(slot.bits() <= slot_bits.into(), "{clients} clients, {bits} bits");
            let top = (slot << rlwe.margin_bits) + rlwe.noise_bound;
            assert!(top + (1u64 << (rlwe.margin_bits - 1)) < *q, "{clients} clients, {bits} bits");
        }
        if rlwe.ring.primes().len() > 4 {
            // Fields to the end of the head and none more, and whatever is in all of them does not wrap.
            let bits =
                (g.head_fields - (g.head.slots() - 1) * g.fields_per_slot) as u32 * g.field_bits;
            let last = g.head.bits_of(g.head.slots() - 1);
            assert!((bits - g.field_bits + 1..=bits).contains(&last));
            let full = BigUint::from(1u32) << slot_bits;
            let top = (full << rlwe.margin_bits) + rlwe.noise_bound;
            assert!(top + (1u64 << (rlwe.margin_bits - 1)) < *q, "{clients} clients, {bits} bits");
        } else {
            // No slot beside those that are checked for what they hold.
            assert_eq!(g.head_fields, g.head.slots() * g.fields_per_slot);
        }
    }

    /// Checks the sets of large updates: that each takes fewer bytes than the one before, and from where on it is
    /// taken.
    fn check_larger(p: &Parameters, clients: u32, bits: u32) {
        let mut before = p;
        for (from, set) in p.larger() {
            check(set, clients, bits);
            let (g, set_before) = (set.geometry(), p.of_values(from - 1));
            let per_polynomial = g.group_chunks * g.values_per_chunk();
            let expected = match p.scheme() {
                Scheme::CkksSumThreshold => per_polynomial.max(100_000),
                _ => per_polynomial / 2,
            };
            assert_eq!(from, expected);
            assert_eq!((set_before, p.of_values(from)), (before, set));
            assert!(g.bytes_per_value() < before.geometry().bytes_per_value());
            assert_eq!(p.chunks(from), g.chunks(from));
            // But for a last chunk that carries little.
            let most = before.chunks(from).total_bytes() + CHUNK_BYTES;
            assert!(p.chunks(from).total_bytes() < most);
            before = set;
        }
        assert_eq!(p.of_values(usize::MAX), before);
    }

    #[test]
    fn every_combination_has_a_set_within_table_and_headroom() {
        let (mut chosen, mut alone) = ([0, 0], [0, 0]);
        for clients in 1..=MAX_CLIENTS {
            for bits in BITS {
                let of = |scheme| Parameters::new(Literal { scheme, clients, bits }).unwrap();
                check_larger(&of(Scheme::CkksSumThreshold), clients, bits);
                let p = of(Scheme::CkksSum);
                check(&p, clients, bits);
                check_larger(&p, clients, bits);
                let others = p.others();
                assert!(others.len() <= 1);
                let degree = |p: &Parameters| p.rlwe().unwrap().ring.degree();
                let bytes = |p: &Parameters| p.geometry().bytes_per_value();
                for other in &others {
                    check(other, clients, bits);
                    assert!(bytes(&p) < bytes(other) || degree(&p) < degree(other));
                    assert!(bytes(&p) <= bytes(other) && p.id() != other.id());
                }
                let larger = usize::from(degree(&p) == 8192);
                chosen[larger] += 1;
                alone[larger] += usize::from(others.is_empty());
            }
        }
        assert!(chosen.iter().all(|&count| count > 1000), "each ring has its use: {chosen:?}");
        assert_eq!(alone, [0, 512 * 17], "either ring has room, up to 512 clients");
    }

    /// Returns the chance of the likeliest value of the noise of `contributors`: `C(2k, k) / 4^k`, k their coins by
    /// half.
    fn likeliest_noise(contributors: u32) -> f64 {
        (1..=21 * contributors).map(|i| 1.0 - 0.5 / f64::from(i)).product()
    }

    /// Clients' answers to sums that do not open tell equations in a statement's secret: as many as there are beyond
    /// the dimensions that Q needs at 128 bits, but for a chance of 2^-128. See `he/docs/verifiable-sums.md`.
    #[test]
    fn failures_of_a_round_leave_128_bits() {
        for clients in 3..=MAX_CLIENTS {
            for bits in BITS {
                let p =
                    Parameters::new(Literal { scheme: Scheme::CkksSum, clients, bits }).unwrap();
                let fewest = p.fewest_contributors(clients as u16);
                assert!(
                    fewest <= usual_min_clients(clients),
                    "{clients} clients, {bits} bits: {fewest}"
                );
                for set in std::iter::once(&p).chain(p.larger().map(|(_, set)| set)) {
                    let rlwe = set.rlwe().unwrap();
                    let (degree, log_q) = (rlwe.ring.degree(), rlwe.log_q());
                    let needed = log_q / allowed(degree) as f64 * degree as f64;
                    // A coefficient of the noise of so many, named right, and all answers of all clients.
                    let named = likeliest_noise(fewest).log2();
                    let answers = f64::from(clients) * 5f64.log2();
                    let chance = answers + (degree as f64 - needed) * named;
                    assert!(chance <= -128.0, "{clients} clients, {bits} bits: 2^{chance}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_secure_or_has_no_room_is_refused() {
        let derive = |degree, primes, clients, bits: u32| {
            let literal = Literal { scheme: Scheme::CkksSum, clients, bits };
            let field_bits = bit_length(u128::from(clients) * ((1 << bits) - 2));
            let set = super::derive(&ring(degree, primes), literal, field_bits);
            set.map(|_| ()).map_err(|error| error.to_string())
        };
        for (degree, primes, log_q, limit) in
            [(4096, 3, 150, 106), (2048, 2, 100, 53), (8192, 5, 250, 214), (1024, 1, 50, 0)]
        {
            let refused = derive(degree, primes, 4, 16).unwrap_err();
            let why = format!(
                "a modulus of {log_q} bits at N = {degree} is not 128-bit secure, at most {limit} are"
            );
            assert!(refused.starts_with(&why), "{refused}");
        }
        assert!(derive(8192, 3, 1024, 24).is_ok());
        // One prime holds few fields, and no head beside the noise of a thousand.
        assert!(derive(4096, 1, 1, 8).is_ok());
        let refused = derive(4096, 1, 1024, 24).unwrap_err();
        assert!(refused.starts_with("1024 clients at 24 bits leave no room"), "{refused}");
        assert_eq!(check_security(4096, 106), Ok(()));
        let reported = check_security(4096, 107).unwrap_err().to_string();
        assert!(reported.contains("take fewer primes or a larger N"), "{reported}");
    }
}
