//! Parameter sets: what a scheme, a number of contributors and a precision imply.
//!
//! A [`Literal`] is what anyone can write down; [`Parameters`] can only be had from its constructor,
//! which derives every size and checks the security table and the headroom. Overflow of a field is
//! impossible from then on: it would take more contributors than [`Parameters::clients`], and those
//! are refused when they ask to take part.

pub(crate) mod geometry;
pub(crate) mod head;
pub(crate) mod scheme;
pub(crate) mod security;

use std::sync::Arc;

pub use geometry::{CHUNK_BYTES, Chunks, Geometry};
pub use head::{COEFFICIENT_BITS, Head, PAD_BITS};
pub use scheme::{Literal, Scheme};

use crate::{
    bytes::Writer,
    error::faults::ParameterError,
    schemes::{
        paillier,
        rlwe::parameters::{self as rlwe, RlweParameters},
    },
};
use head::bit_length;
use scheme::Family;

/// The largest number of contributors of any parameter set.
pub const MAX_CLIENTS: u32 = 1024;
/// The fewest and the most bits of a quantised value.
pub const BITS: std::ops::RangeInclusive<u32> = 8..=24;

/// A checked parameter set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    literal: Literal,
    geometry: Geometry,
    rlwe: Option<Arc<RlweParameters>>,
    /// The sets of large updates, the smallest first.
    larger: Arc<[Larger]>,
}

/// A set of large updates.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Larger {
    /// The fewest values that it is for.
    from: usize,
    set: Parameters,
}

impl Parameters {
    /// Derives and checks a set.
    ///
    /// Fields are as wide as the largest sum of all contributors, `clients · (2^bits − 2)`. The
    /// head holds the count of all clients, `clients · (2^32 − 1)` and the sum of their tags.
    ///
    /// Under `ckks-sum` large updates have sets of their own, over larger rings ([`of_values`](Self::of_values)).
    ///
    /// # Errors
    /// See [`ParameterError`].
    pub fn new(literal: Literal) -> Result<Self, ParameterError> {
        let Literal { scheme, clients, bits } = literal;
        if !(1..=MAX_CLIENTS).contains(&clients) {
            return Err(ParameterError(format!("{clients} clients; choose 1 to {MAX_CLIENTS}")));
        }
        if !BITS.contains(&bits) {
            let (least, most) = (BITS.start(), BITS.end());
            let why = format!("{bits} bits a value; choose {least} to {most}");
            return Err(ParameterError(why));
        }
        let field_bits = bit_length(u128::from(clients) * ((1 << bits) - 2));
        let mut larger = vec![];
        let (geometry, rlwe) = match scheme.family() {
            Family::Paillier { modulus_bits } => {
                (paillier::geometry(modulus_bits, literal, field_bits)?, None)
            }
            Family::CkksSum => {
                let rlwe = rlwe::choose(literal, field_bits)?;
                larger = rlwe::larger(literal, field_bits, &rlwe);
                (rlwe.geometry, Some(rlwe.into()))
            }
            #[cfg(test)]
            Family::Plain => (crate::schemes::plain::geometry(literal, field_bits)?, None),
        };
        let set = Self { literal, geometry, rlwe, larger: Arc::new([]) };
        let larger =
            larger.into_iter().map(|(from, rlwe)| Larger { from, set: set.with_rlwe(rlwe) });
        Ok(Self { larger: larger.collect(), ..set })
    }

    /// Returns the set that updates of `values` values travel under: itself, or one of [`larger`](Self::larger), which
    /// take fewer bytes a value. All parties know how many values an update has, so they choose alike; a frame names
    /// the set that was chosen.
    #[must_use]
    pub fn of_values(&self, values: usize) -> &Self {
        self.larger
            .iter()
            .rev()
            .find(|larger| larger.from <= values)
            .map_or(self, |larger| &larger.set)
    }

    /// Returns the sets that large updates travel under, each with the fewest values that it is for, the smallest
    /// first.
    pub fn larger(&self) -> impl Iterator<Item = (usize, &Self)> {
        self.larger.iter().map(|larger| (larger.from, &larger.set))
    }

    /// Returns the set of this id: itself, or one of large updates.
    #[must_use]
    pub(crate) fn of_id(&self, id: [u8; 8]) -> Option<&Self> {
        let larger = self.larger.iter().map(|larger| &larger.set);
        larger.chain([self]).find(|set| set.id() == id)
    }

    /// Returns the sets of the small rings that were not chosen, to compare with. Nothing else is made of them.
    #[must_use]
    pub fn others(&self) -> Vec<Self> {
        let Some(chosen) = self.rlwe() else { return vec![] };
        rlwe::of_rings(self.literal, self.geometry.field_bits)
            .filter_map(Result::ok)
            .filter(|set| set.ring != chosen.ring)
            .map(|set| self.with_rlwe(set))
            .collect()
    }

    /// Replaces ring and geometry.
    fn with_rlwe(&self, rlwe: RlweParameters) -> Self {
        let geometry = rlwe.geometry;
        Self { literal: self.literal, geometry, rlwe: Some(rlwe.into()), larger: Arc::new([]) }
    }

    /// Returns the literal that it was made from.
    #[must_use]
    pub fn literal(&self) -> Literal {
        self.literal
    }

    /// Returns the scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.literal.scheme
    }

    /// Returns the most contributors to a sum.
    #[must_use]
    pub fn clients(&self) -> u32 {
        self.literal.clients
    }

    /// Returns the bits of a quantised value.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.literal.bits
    }

    /// Returns the steps on either side of zero: values are quantised to `−L ..= L`, `L = 2^(bits−1) − 1`, and
    /// travel as `v + L`.
    #[must_use]
    pub fn half_steps(&self) -> u32 {
        half_steps(self.literal.bits) as u32
    }

    /// Returns the fewest contributors of a sum in a job of so many clients, whose failures may tell of its secret.
    pub(crate) fn fewest_contributors(&self, clients: u16) -> u32 {
        let sets = std::iter::once(self).chain(self.larger.iter().map(|larger| &larger.set));
        sets.filter_map(Self::rlwe).map(|rlwe| rlwe.fewest_contributors(clients)).max().unwrap_or(1)
    }

    /// Returns how values lie in a chunk of an update that is not large.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Cuts a stream of `values` values.
    #[must_use]
    pub fn chunks(&self, values: usize) -> Chunks {
        self.of_values(values).geometry.chunks(values)
    }

    /// Returns ring, noise and margin, if the set is of a `ckks-sum` scheme.
    #[must_use]
    pub fn rlwe(&self) -> Option<&Arc<RlweParameters>> {
        self.rlwe.as_ref()
    }

    /// Returns the same over another ring.
    #[cfg(test)]
    pub(crate) fn over_ring(&self, ring: &Arc<ciphergram_accel::Ring>) -> Self {
        self.with_rlwe(rlwe::lay_out(ring, self.literal, self.geometry.field_bits).unwrap())
    }

    /// Returns the same over a ring that protects nothing, of one chunk of values, which the reference engine has
    /// time for.
    #[cfg(test)]
    pub(crate) fn over_small_ring(&self) -> Self {
        let chosen = self.rlwe().unwrap();
        let degree = self.geometry.slots_per_chunk.next_power_of_two();
        let ring = ciphergram_accel::Ring::new(degree, chosen.ring.primes()).unwrap();
        self.over_ring(&ring.into())
    }

    /// Returns the id that frames carry: eight bytes of a hash over everything that must agree.
    #[must_use]
    pub fn id(&self) -> [u8; 8] {
        let mut w = Writer::default();
        w.bytes(b"ciphergram parameters 2");
        w.u8(self.scheme().code());
        for x in [self.clients(), self.bits(), self.geometry.field_bits] {
            w.u32(x);
        }
        let g = &self.geometry;
        for x in [g.fields_per_slot, g.slots_per_chunk, g.head_fields, g.unit_bytes] {
            w.u32(x as u32);
        }
        g.head.tag_parts().for_each(|part| w.u32(part.bits));
        // Formerly the chunks of a guard, which `ckks-sum-public` had: ids stay.
        w.u32(0);
        if let Some(rlwe) = self.rlwe() {
            w.u32(rlwe.margin_bits);
            w.u32(rlwe.ring.degree() as u32);
            rlwe.ring.primes().iter().for_each(|&q| w.u64(q));
        }
        let mut id = [0; 8];
        id.copy_from_slice(&blake3::hash(&w.0).as_bytes()[..8]);
        id
    }
}

/// Returns the steps on either side of zero in some bits.
pub(crate) fn half_steps(bits: u32) -> u64 {
    (1 << (bits - 1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(scheme: Scheme, clients: u32, bits: u32) -> Result<Parameters, ParameterError> {
        Parameters::new(Literal { scheme, clients, bits })
    }

    #[test]
    fn every_combination_has_room_for_its_worst_sum() {
        for scheme in Scheme::ALL {
            for clients in [1, 2, 3, 64, 65, 100, 1000, 1024] {
                for bits in BITS {
                    let p = parameters(scheme, clients, bits).unwrap();
                    let g = p.geometry();
                    let most = u128::from(clients) * u128::from(2 * p.half_steps());
                    assert!(most < 1 << g.field_bits && most >= 1 << (g.field_bits - 1));
                    assert!(g.chunk_bytes() <= CHUNK_BYTES && g.values_per_chunk() > 0);
                }
            }
        }
    }

    #[test]
    fn bytes_a_value_are_what_the_project_promises() {
        for (scheme, clients, bits, limit) in [
            (Scheme::CkksSum, 10, 16, 2.93),
            (Scheme::CkksSum, 64, 8, 2.03),
            (Scheme::CkksSum, 64, 16, 3.3),
            (Scheme::CkksSum, 1024, 16, 3.75),
            (Scheme::CkksSum, 1024, 24, 5.3),
            (Scheme::Paillier2048, 64, 16, 6.0),
            (Scheme::Paillier3072, 64, 16, 6.0),
            (Scheme::Paillier4096, 64, 16, 6.0),
        ] {
            let p = parameters(scheme, clients, bits).unwrap();
            for values in [10_000, 10_001, 21_010, 1_000_000] {
                let bytes = p.chunks(values).total_bytes() as f64 / values as f64;
                assert!(bytes <= limit, "{scheme}, {clients}, {bits}: {bytes} bytes at {values}");
            }
        }
        // Of long tensors, with a tag in each chunk.
        for (scheme, clients, limit) in [
            (Scheme::CkksSum, 10, 2.70),
            (Scheme::CkksSum, 64, 3.0),
            (Scheme::CkksSum, 1024, 3.732),
            (Scheme::Paillier2048, 64, 5.73),
        ] {
            let bytes = parameters(scheme, clients, 16).unwrap().chunks(1_000_000).total_bytes();
            let bytes = bytes as f64 / 1e6;
            assert!(bytes <= limit, "{scheme}, {clients}: {bytes} bytes");
        }
        // Up to 1,024 contributors at 16 bits.
        for clients in 1..=MAX_CLIENTS {
            let p = parameters(Scheme::CkksSum, clients, 16).unwrap();
            assert!(p.geometry().bytes_per_value() <= 3.75, "{clients} clients");
        }
    }

    #[test]
    fn chunks_cover_every_value_once() {
        let p = parameters(Scheme::CkksSum, 64, 16).unwrap();
        let each = p.geometry().values_per_chunk();
        assert_eq!(each, 392);
        for values in [0, 1, each - 1, each, each + 1, 5 * each, 1000] {
            let chunks = p.chunks(values);
            let covered: Vec<_> = (0..chunks.count()).flat_map(|c| chunks.values_of(c)).collect();
            assert!(covered.into_iter().eq(0..values));
            let units = |c| chunks.units_of(c) * p.geometry().unit_bytes;
            assert!((0..chunks.count()).all(|c| chunks.bytes_of(c) == units(c)));
            assert_eq!((0..chunks.count()).map(units).sum::<usize>(), chunks.total_bytes());
        }
        assert_eq!(p.chunks(10).total_bytes(), 64, "a ten-value bias costs one beat");
        // Five coefficients of four primes are two beats.
        let p = parameters(Scheme::CkksSum, 1024, 16).unwrap();
        let g = p.geometry();
        assert_eq!((g.slots_per_chunk, g.slots_per_unit, g.chunk_bytes()), (50, 5, 1280));
        assert_eq!((g.fields_per_slot, g.values_per_chunk()), (7, 343));
        assert_eq!((p.chunks(28).total_bytes(), p.chunks(29).total_bytes()), (128, 256));
    }

    #[test]
    fn refuses_what_is_out_of_range() {
        let scheme = Scheme::CkksSum;
        let refused = |clients, bits| parameters(scheme, clients, bits).unwrap_err().to_string();
        assert_eq!(refused(0, 16), "0 clients; choose 1 to 1024");
        assert_eq!(refused(1025, 16), "1025 clients; choose 1 to 1024");
        assert_eq!(refused(4, 7), "7 bits a value; choose 8 to 24");
        assert_eq!(refused(4, 25), "25 bits a value; choose 8 to 24");
    }
}
