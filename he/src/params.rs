//! Parameter sets: what a scheme, a number of contributors and a precision imply.
//!
//! A [`Literal`] is what anyone can write down; [`Parameters`] can only be had from its constructor,
//! which derives every size and checks the security table and the headroom. Overflow of a field is
//! impossible from then on: it would take more contributors than [`Parameters::clients`], and those
//! are refused when they ask to take part.

mod lattice;

use std::{fmt, ops::Range, str::FromStr};

pub use lattice::Lattice;

use crate::bytes::Writer;
use lattice::head_bits;

/// The largest number of contributors of any parameter set.
pub const MAX_CLIENTS: u32 = 1024;
/// The fewest and the most bits of a quantised value.
pub const BITS: std::ops::RangeInclusive<u32> = 8..=24;
/// The bound on one coefficient of noise as it is drawn: see the `noise` step of programs.
pub const NOISE_BOUND: u64 = 21;
/// The most bytes of a chunk on the wire, the unit of summing.
pub const CHUNK_BYTES: usize = 1280;

/// An additively homomorphic encryption scheme at one security level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// RLWE with coefficient encoding, for sums: symmetric, seeded, 128-bit.
    CkksSum,
    /// Paillier with a 2048-bit modulus: about 112-bit security.
    Paillier2048,
    /// Paillier with a 3072-bit modulus: about 128-bit security.
    Paillier3072,
    /// Paillier with a 4096-bit modulus.
    Paillier4096,
    /// `ckks-sum` whose public key encrypts, for clients who must not hold the secret: 128-bit.
    CkksSumPublic,
}

impl Scheme {
    /// Every scheme, in the order of their numbers in frames.
    pub const ALL: [Self; 5] = [
        Self::CkksSum,
        Self::Paillier2048,
        Self::Paillier3072,
        Self::Paillier4096,
        Self::CkksSumPublic,
    ];

    /// The name on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CkksSum => "ckks-sum",
            Self::Paillier2048 => "paillier-2048",
            Self::Paillier3072 => "paillier-3072",
            Self::Paillier4096 => "paillier-4096",
            Self::CkksSumPublic => "ckks-sum-public",
        }
    }

    /// The bits of the Paillier modulus n, if it is Paillier.
    #[must_use]
    pub fn modulus_bits(self) -> Option<u32> {
        match self {
            Self::CkksSum | Self::CkksSumPublic => None,
            Self::Paillier2048 => Some(2048),
            Self::Paillier3072 => Some(3072),
            Self::Paillier4096 => Some(4096),
        }
    }

    /// The same with a public key that encrypts: what Paillier always is.
    #[must_use]
    pub fn with_public_encryption(self) -> Self {
        match self {
            Self::CkksSum => Self::CkksSumPublic,
            other => other,
        }
    }

    /// The scheme's number in frames.
    pub(crate) fn code(self) -> u8 {
        Self::ALL.iter().position(|&s| s == self).map_or(0, |i| i as u8 + 1)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scheme {
    type Err = ParameterError;

    fn from_str(name: &str) -> Result<Self, ParameterError> {
        let unknown = || ParameterError::Scheme { name: name.into() };
        Self::ALL.into_iter().find(|s| s.name() == name).ok_or_else(unknown)
    }
}

/// Why parameters are refused, and what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// No scheme of that name.
    #[error(
        "no scheme {name:?}; there are ckks-sum, ckks-sum-public, paillier-2048, paillier-3072, \
         paillier-4096"
    )]
    Scheme {
        /// The name given.
        name: String,
    },
    /// From one to [`MAX_CLIENTS`].
    #[error("{clients} clients; choose 1 to {MAX_CLIENTS}")]
    Clients {
        /// The number given.
        clients: u32,
    },
    /// Within [`BITS`].
    #[error("{bits} bits a value; choose 8 to 24")]
    Bits {
        /// The number given.
        bits: u32,
    },
    /// More modulus than the ring degree can hide.
    #[error(
        "a modulus of {log_q} bits at N = {degree} is not 128-bit secure, at most {limit} are; take \
         fewer primes or a larger N"
    )]
    Insecure {
        /// The ring degree.
        degree: usize,
        /// Bits of the product of the primes.
        log_q: u32,
        /// The table's bound.
        limit: u32,
    },
    /// No room for a chunk's head beside the noise.
    #[error("{clients} clients at {bits} bits leave no room in a coefficient; use fewer of either")]
    NoRoom {
        /// The number of clients.
        clients: u32,
        /// The number of bits.
        bits: u32,
    },
}

/// A parameter set as anyone can write it; [`Parameters::new`] checks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Literal {
    /// The scheme.
    pub scheme: Scheme,
    /// The most contributors that may ever be summed.
    pub clients: u32,
    /// Bits of a quantised value.
    pub bits: u32,
}

/// How values lie in a chunk and a chunk on the wire.
///
/// A chunk is a run of *slots*; a slot is one plaintext integer (of a Paillier ciphertext, or a
/// coefficient) of [`Geometry::fields_per_slot`] fields. The first fields of a chunk are its
/// *head*: the number 1 in the lowest [`Parameters::count_bits`] bits, so that a sum tells how many
/// it is of, and the contributor's weight above. On the wire slots travel in *units*: a ciphertext,
/// or the fewest beats of whole coefficients, one beat or two of five. The last chunk is cut to the
/// units that it needs.
///
/// Chunks come in *groups*: those of one polynomial, or one of a Paillier ciphertext alone. Under
/// `ckks-sum-public` the first of a group are its *mask*: the second polynomial of its ciphertext,
/// whole, without head or values. All values of the group need all of it, so a group opens only if
/// all of its chunks are of the same contributors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bits of a field: a value and the headroom of all contributors.
    pub field_bits: u32,
    /// Fields of one slot.
    pub fields_per_slot: usize,
    /// Slots of a whole chunk.
    pub slots_per_chunk: usize,
    /// Fields at the start of every chunk that hold its head.
    pub head_fields: usize,
    /// Slots of one unit.
    pub slots_per_unit: usize,
    /// Bytes of one unit.
    pub unit_bytes: usize,
    /// Chunks of a group that are its mask.
    pub mask_chunks: usize,
    /// Chunks of a whole group that carry values; the last group is cut to those that it needs.
    pub value_chunks: usize,
}

impl Geometry {
    /// Values of a whole chunk that carries values.
    #[must_use]
    pub fn values_per_chunk(&self) -> usize {
        self.slots_per_chunk * self.fields_per_slot - self.head_fields
    }

    /// Bytes of a whole chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> usize {
        self.slots_per_chunk / self.slots_per_unit * self.unit_bytes
    }

    /// Chunks of a whole group.
    #[must_use]
    pub fn group_chunks(&self) -> usize {
        self.mask_chunks + self.value_chunks
    }

    /// Bytes a value in whole groups.
    #[must_use]
    pub fn bytes_per_value(&self) -> f64 {
        let values = self.value_chunks * self.values_per_chunk();
        (self.group_chunks() * self.chunk_bytes()) as f64 / values as f64
    }
}

/// How one stream of `values` values is cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    geometry: Geometry,
    values: usize,
}

impl Chunks {
    /// The number of chunks: at least one, which then carries its head alone.
    #[must_use]
    pub fn count(&self) -> u32 {
        let g = &self.geometry;
        let carrying = self.values.div_ceil(g.values_per_chunk()).max(1);
        (carrying + carrying.div_ceil(g.value_chunks) * g.mask_chunks) as u32
    }

    /// The values of all chunks.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values
    }

    /// Whether `chunk` is a part of its group's mask.
    #[must_use]
    pub fn is_mask(&self, chunk: u32) -> bool {
        chunk as usize % self.geometry.group_chunks() < self.geometry.mask_chunks
    }

    /// The chunks that `chunk` opens with and never without, itself among them: they must be of the
    /// same contributors.
    #[must_use]
    pub fn opening_with(&self, chunk: u32) -> Range<u32> {
        let each = self.geometry.group_chunks() as u32;
        match self.geometry.mask_chunks {
            0 => chunk..chunk + 1,
            _ => chunk / each * each..self.count().min((chunk / each + 1) * each),
        }
    }

    /// The range of values that `chunk` carries: none if it is of a mask.
    #[must_use]
    pub fn values_of(&self, chunk: u32) -> Range<usize> {
        let g = &self.geometry;
        let (group, place) = (chunk as usize / g.group_chunks(), chunk as usize % g.group_chunks());
        let before = group * g.value_chunks + place.saturating_sub(g.mask_chunks);
        let each = if self.is_mask(chunk) { 0 } else { g.values_per_chunk() };
        let start = (before * g.values_per_chunk()).min(self.values);
        start..(start + each).min(self.values)
    }

    /// Units of `chunk` on the wire.
    #[must_use]
    pub fn units_of(&self, chunk: u32) -> usize {
        let g = &self.geometry;
        if self.is_mask(chunk) {
            return g.slots_per_chunk / g.slots_per_unit;
        }
        let fields = g.head_fields + self.values_of(chunk).len();
        fields.div_ceil(g.fields_per_slot).div_ceil(g.slots_per_unit)
    }

    /// Bytes of `chunk` on the wire.
    #[must_use]
    pub fn bytes_of(&self, chunk: u32) -> usize {
        self.units_of(chunk) * self.geometry.unit_bytes
    }

    /// Where `chunk` starts in the stream, in bytes.
    #[must_use]
    pub fn offset_of(&self, chunk: u32) -> usize {
        chunk as usize * self.geometry.chunk_bytes()
    }

    /// Bytes of the whole stream.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        let last = self.count() - 1;
        self.offset_of(last) + self.bytes_of(last)
    }

    /// How values lie in a chunk.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }
}

/// A checked parameter set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    literal: Literal,
    geometry: Geometry,
    lattice: Option<Lattice>,
}

/// The bits that `x` takes.
fn bit_length(x: u128) -> u32 {
    128 - x.leading_zeros()
}

impl Parameters {
    /// Derives and checks everything.
    ///
    /// Fields are as wide as the largest sum of all contributors, `clients · (2^bits − 2)`. The
    /// head holds the count of all clients and `clients · (2^32 − 1)`.
    ///
    /// # Errors
    /// See [`ParameterError`].
    pub fn new(literal: Literal) -> Result<Self, ParameterError> {
        let Literal { scheme, clients, bits } = literal;
        if !(1..=MAX_CLIENTS).contains(&clients) {
            return Err(ParameterError::Clients { clients });
        }
        if !BITS.contains(&bits) {
            return Err(ParameterError::Bits { bits });
        }
        let field_bits = bit_length(u128::from(clients) * ((1 << bits) - 2));
        match scheme.modulus_bits() {
            None => Self::lattice_set(literal, field_bits),
            Some(modulus_bits) => Ok(Self::paillier_set(literal, field_bits, modulus_bits)),
        }
    }

    /// Packed plaintexts stay below 2^(modulus_bits − 1) < n.
    fn paillier_set(literal: Literal, field_bits: u32, modulus_bits: u32) -> Self {
        let head_bits = head_bits(literal.clients);
        let unit_bytes = modulus_bits as usize / 4;
        let geometry = Geometry {
            field_bits,
            fields_per_slot: ((modulus_bits - 1) / field_bits) as usize,
            slots_per_chunk: CHUNK_BYTES / unit_bytes,
            head_fields: head_bits.div_ceil(field_bits) as usize,
            slots_per_unit: 1,
            unit_bytes,
            mask_chunks: 0,
            value_chunks: 1,
        };
        Self { literal, geometry, lattice: None }
    }

    /// The set of the ring with the fewest bytes a value; of equals, that of the smaller ring.
    fn lattice_set(literal: Literal, field_bits: u32) -> Result<Self, ParameterError> {
        let bytes = |set: &Self| set.geometry.bytes_per_value();
        let sets = Self::lattice_sets(literal, field_bits);
        let best = sets.reduce(|best, next| match (&best, &next) {
            (Ok(a), Ok(b)) if bytes(b) < bytes(a) => next,
            (Ok(_), _) => best,
            (Err(_), _) => next,
        });
        best.unwrap_or(Err(ParameterError::NoRoom { clients: literal.clients, bits: literal.bits }))
    }

    /// What each ring gives, the smallest first.
    fn lattice_sets(
        literal: Literal,
        field_bits: u32,
    ) -> impl Iterator<Item = Result<Self, ParameterError>> {
        lattice::rings().iter().map(move |ring| {
            let (lattice, geometry) = lattice::derive(ring, literal, field_bits)?;
            Ok(Self { literal, geometry, lattice: Some(lattice) })
        })
    }

    /// The sets of the rings that were not chosen, to compare with. Nothing else is made of them:
    /// keys and frames name a set by what it was made from.
    #[must_use]
    pub fn others(&self) -> Vec<Self> {
        let Some(chosen) = &self.lattice else { return vec![] };
        let is_other = |set: &Self| set.lattice.as_ref().is_some_and(|l| l.ring != chosen.ring);
        Self::lattice_sets(self.literal, self.geometry.field_bits)
            .filter_map(Result::ok)
            .filter(is_other)
            .collect()
    }

    /// What it was made from.
    #[must_use]
    pub fn literal(&self) -> Literal {
        self.literal
    }

    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.literal.scheme
    }

    /// The most contributors to a sum.
    #[must_use]
    pub fn clients(&self) -> u32 {
        self.literal.clients
    }

    /// Bits of a quantised value.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.literal.bits
    }

    /// Steps on either side of zero: values are quantised to `−L ..= L`, `L = 2^(bits−1) − 1`, and
    /// travel as `v + L`.
    #[must_use]
    pub fn half_steps(&self) -> u32 {
        (1 << (self.literal.bits - 1)) - 1
    }

    /// Bits of a chunk's head that count contributors; the sum of weights is above them.
    #[must_use]
    pub fn count_bits(&self) -> u32 {
        bit_length(u128::from(self.literal.clients))
    }

    /// How values lie in a chunk.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// How a stream of `values` values is cut.
    #[must_use]
    pub fn chunks(&self, values: usize) -> Chunks {
        Chunks { geometry: self.geometry, values }
    }

    /// What only `ckks-sum` and `ckks-sum-public` have.
    #[must_use]
    pub fn lattice(&self) -> Option<&Lattice> {
        self.lattice.as_ref()
    }

    /// The same over a ring that protects nothing, of one chunk, which the reference engine has time
    /// for.
    #[cfg(test)]
    pub(crate) fn over_small_ring(&self) -> Self {
        let Some(chosen) = &self.lattice else { panic!("a ring to take the primes of") };
        let degree = self.geometry.slots_per_chunk.next_power_of_two();
        let ring = ciphergram_accel::Ring::new(degree, chosen.ring.primes()).unwrap();
        let field_bits = self.geometry.field_bits;
        let laid = lattice::lay_out(&std::sync::Arc::new(ring), self.literal, field_bits);
        let (lattice, geometry) = laid.unwrap();
        Self { literal: self.literal, geometry, lattice: Some(lattice) }
    }

    /// The id that frames carry: eight bytes of a hash over everything that must agree.
    #[must_use]
    pub fn id(&self) -> [u8; 8] {
        let mut w = Writer::default();
        w.bytes(b"ciphergram parameters 1");
        w.u8(self.scheme().code());
        for x in [self.clients(), self.bits(), self.geometry.field_bits] {
            w.u32(x);
        }
        let g = &self.geometry;
        for x in [g.fields_per_slot, g.slots_per_chunk, g.head_fields, g.unit_bytes] {
            w.u32(x as u32);
        }
        if let Some(lattice) = &self.lattice {
            w.u32(lattice.margin_bits);
            w.u32(lattice.ring.degree() as u32);
            lattice.ring.primes().iter().for_each(|&q| w.u64(q));
        }
        let mut id = [0; 8];
        id.copy_from_slice(&blake3::hash(&w.0).as_bytes()[..8]);
        id
    }
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
        assert_eq!(each, 396);
        for values in [0, 1, each - 1, each, each + 1, 5 * each, 1000] {
            let chunks = p.chunks(values);
            let covered: Vec<_> = (0..chunks.count()).flat_map(|c| chunks.values_of(c)).collect();
            assert!(covered.into_iter().eq(0..values));
            let bytes: usize = (0..chunks.count()).map(|c| chunks.bytes_of(c)).sum();
            assert_eq!(bytes, chunks.total_bytes());
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
        assert_eq!(parameters(scheme, 0, 16), Err(ParameterError::Clients { clients: 0 }));
        assert_eq!(parameters(scheme, 1025, 16), Err(ParameterError::Clients { clients: 1025 }));
        assert_eq!(parameters(scheme, 4, 7), Err(ParameterError::Bits { bits: 7 }));
        assert_eq!(parameters(scheme, 4, 25), Err(ParameterError::Bits { bits: 25 }));
    }
}
