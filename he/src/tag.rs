//! Tags: a linearly homomorphic authenticator over the integers of a chunk.
//!
//! The integers `x_j` of a chunk are its count of contributors, 1, their weight, and its values as fields. Under
//! numbers `r_j` of 52 bits that are the same for all contributors, and a pad of 64 bits that nobody else
//! has, contributor i tags a chunk with `tag_i = Σ_j r_j · x_ij + pad_i`: over the integers, never reduced.
//! Tags add up as the integers do, so a sum's tag is `Σ_j r_j · X_j + Σ_i pad_i`, and who opens a sum checks
//! that over exactly the contributors listed. A tag leaves its client only encrypted.
//!
//! `he/docs/verifiable-sums.md` has the proof, and why tags modulo a prime or by powers of one number are wrong.
//!
//! # Sources
//! S. Agrawal, D. Boneh, "Homomorphic MACs: MAC-based integrity for network coding", 2009. D. Catalano, D. Fiore,
//! "Practical homomorphic MACs for arithmetic circuits", 2013. X. Guo and others, "VeriFL: communication-efficient and
//! fast verifiable aggregation for federated learning", 2021.

#[cfg(test)]
mod tests;

use ciphergram_accel::{Dot, cpu::fastest_dot};
use zeroize::Zeroizing;

use crate::{
    Error,
    codec::OpenedRound,
    contributors::{Contributor, ContributorSet},
    ids::{Statement, derive16},
    params::{Chunks, head::COEFFICIENT_BITS},
    random,
};

/// The secret that sums are proved under: whoever opens sums has it, and whoever adds them lacks everything
/// that is derived from it.
pub(crate) struct SumKey(Zeroizing<[u8; 32]>);

/// The part of a sum key that one client has: the key of all coefficients, and that of its own pads.
#[derive(Clone)]
pub(crate) struct TagKey {
    pub(crate) number: u16,
    pub(crate) coefficients: Zeroizing<[u8; 32]>,
    /// None where a contribution is under a secret of its own: other sums than that of the contributors are noise then.
    pub(crate) pads: Option<Zeroizing<[u8; 32]>>,
}

impl SumKey {
    /// Draws a fresh key.
    ///
    /// # Errors
    /// No randomness.
    pub(crate) fn draw() -> Result<Self, Error> {
        Ok(Self(random::bytes()?))
    }

    /// Takes the key of a file.
    pub(crate) fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// Derives the key of a scheme whose clients share a secret seed.
    pub(crate) fn of_seed(seed: &[u8; 32]) -> Self {
        Self(Zeroizing::new(blake3::derive_key("ciphergram 2026 sum key", seed)))
    }

    /// Returns the bytes, for the key file.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns sixteen bytes that name it and tell nothing of it.
    pub(crate) fn id(&self) -> [u8; 16] {
        derive16("ciphergram 2026 sum key id", &*self.0)
    }

    /// Derives what client `number` tags with.
    pub(crate) fn tag_key(&self, number: u16) -> TagKey {
        let derive = |context, key: &[u8]| Zeroizing::new(blake3::derive_key(context, key));
        let own = Zeroizing::new([&self.0[..], &number.to_le_bytes()].concat());
        TagKey {
            number,
            coefficients: derive("ciphergram 2026 tag coefficients", &*self.0),
            pads: Some(derive("ciphergram 2026 tag pads", &own)),
        }
    }
}

impl TagKey {
    /// Names a sum that was opened of a round by its digest, to those who tag under the same key. Others must not be
    /// able to: the digest covers ranges that clients alone may know, and are few enough to be tried.
    pub(crate) fn name_sum(&self, round: u64, digest: &[u8; 32]) -> OpenedRound {
        let material = [&b"ciphergram 2026 opened sum"[..], digest].concat();
        let name = blake3::keyed_hash(&self.coefficients, &material);
        self.vouch(round, &name.as_bytes()[..16])
    }

    /// Puts behind a name, of sixteen bytes, as many that vouch for it and the round.
    fn vouch(&self, round: u64, name: &[u8]) -> OpenedRound {
        let material = [&b"ciphergram 2026 opened round"[..], &round.to_le_bytes(), name].concat();
        let proof = blake3::keyed_hash(&self.coefficients, &material);
        let mut sum = [0; 32];
        sum[..16].copy_from_slice(name);
        sum[16..].copy_from_slice(&proof.as_bytes()[..16]);
        OpenedRound { round, sum }
    }

    /// Returns whether a client says that it opened this.
    pub(crate) fn vouches_for(&self, opened: &OpenedRound) -> bool {
        let expected = self.vouch(opened.round, &opened.sum[..16]);
        // These compare in constant time.
        blake3::Hash::from_bytes(expected.sum) == blake3::Hash::from_bytes(opened.sum)
    }

    /// Expands the coefficients of chunks of up to `values` values under a statement.
    fn coefficients(&self, statement: &Statement, values: usize) -> Coefficients {
        let key = Zeroizing::new(*blake3::keyed_hash(&self.coefficients, &statement.0).as_bytes());
        let mut all = random::keystream(&key, 2 + values);
        all.iter_mut().for_each(|r| *r >>= 64 - COEFFICIENT_BITS);
        Coefficients { all, dot: fastest_dot() }
    }

    /// Expands the pads of a contribution, one for each of `chunks` chunks.
    fn pads(
        &self,
        statement: &Statement,
        contributor: &Contributor,
        chunks: usize,
    ) -> Zeroizing<Vec<u64>> {
        let Some(pads) = &self.pads else { return Zeroizing::new(vec![0; chunks]) };
        let Contributor { number, seed } = contributor;
        let name = [&statement.0[..], &number.to_le_bytes(), seed.bytes()].concat();
        let key = Zeroizing::new(*blake3::keyed_hash(pads, &name).as_bytes());
        random::keystream(&key, chunks)
    }
}

/// The numbers of 52 bits that integers are multiplied by: of the count, of the weight, and of each value of a
/// chunk by its place.
pub(crate) struct Coefficients {
    all: Zeroizing<Vec<u64>>,
    dot: Dot,
}

impl Coefficients {
    /// Returns the product of a head with its coefficients. A sum of weights has up to 42 bits.
    fn of_head(&self, count: u64, weight: u64) -> u128 {
        let mul = |r: u64, x: u64| u128::from(r) * u128::from(x);
        mul(self.all[0], count) + mul(self.all[1], weight)
    }

    /// Returns the coefficients of values.
    fn of_values(&self) -> &[u64] {
        &self.all[2..]
    }
}

/// The tags of one contribution.
pub(crate) struct Tags {
    coefficients: Coefficients,
    pads: Zeroizing<Vec<u64>>,
    weight: u32,
}

impl Tags {
    /// Prepares the tags of all chunks of a contribution of this weight.
    pub(crate) fn new(
        key: &TagKey,
        statement: &Statement,
        contributor: &Contributor,
        chunks: &Chunks,
        weight: u32,
    ) -> Self {
        let values = chunks.geometry().values_per_chunk();
        let coefficients = key.coefficients(statement, values);
        let pads = key.pads(statement, contributor, chunks.count() as usize);
        Self { coefficients, pads, weight }
    }

    /// Returns the tag of `chunk`, which carries `values` as fields.
    pub(crate) fn tag(&self, chunk: u32, values: &[u32]) -> u128 {
        let Coefficients { dot, .. } = self.coefficients;
        let head = self.coefficients.of_head(1, self.weight.into());
        let product = dot.of_u32(self.coefficients.of_values(), values);
        head + product + u128::from(self.pads[chunk as usize])
    }
}

/// The keys that tags of a sum are checked by.
#[derive(Clone, Copy)]
pub(crate) enum SumTags<'a> {
    /// That of all clients' pads.
    Padded(&'a SumKey),
    /// That of tags without pads.
    Plain(&'a TagKey),
}

/// What the tags of a sum must be.
pub(crate) struct ExpectedTags {
    coefficients: Coefficients,
    /// For each chunk the sum of its contributors' pads.
    pads: Zeroizing<Vec<u128>>,
}

impl ExpectedTags {
    /// Prepares the check of a sum of `contributors`, of which each chunk holds those of its set.
    pub(crate) fn new(
        key: SumTags<'_>,
        statement: &Statement,
        contributors: &[Contributor],
        sets: &[ContributorSet],
        chunks: &Chunks,
    ) -> Self {
        let values = chunks.geometry().values_per_chunk();
        let mut pads = Zeroizing::new(vec![0; sets.len()]);
        let key = match key {
            SumTags::Padded(key) => key,
            SumTags::Plain(key) => {
                return Self { coefficients: key.coefficients(statement, values), pads };
            }
        };
        for (place, contributor) in contributors.iter().enumerate() {
            let own = key.tag_key(contributor.number).pads(statement, contributor, sets.len());
            for ((sum, &pad), set) in pads.iter_mut().zip(own.iter()).zip(sets) {
                *sum += if set.contains(place) { pad.into() } else { 0 };
            }
        }
        // The coefficients are the same for every number.
        let coefficients = key.tag_key(0).coefficients(statement, values);
        Self { coefficients, pads }
    }

    /// Returns whether `tag` is that of a chunk with these sums, which are less `offset` each.
    pub(crate) fn is_of(
        &self,
        chunk: u32,
        tag: u128,
        (count, weight): (u64, u64),
        values: &[i64],
        offset: i64,
    ) -> bool {
        let Coefficients { dot, .. } = self.coefficients;
        let head = self.coefficients.of_head(count, weight);
        // Fields have up to 34 bits, whatever they decrypt to.
        let product = dot.of_i64(self.coefficients.of_values(), values, offset);
        head + product + self.pads[chunk as usize] == tag
    }
}
