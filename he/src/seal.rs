//! One contribution, encrypted chunk by chunk.

use std::sync::Arc;

use ciphergram_accel::Engine;
use zeroize::Zeroizing;

use crate::{
    Error, Parameters, PublicKey, Quantised, SecretKey,
    bytes::to_bytes,
    ckks_sum::{self, chunks_per_polynomial},
    codec::set_field,
    keys::AnyKey,
    paillier::{self, Plaintexts},
    params::Chunks,
    random,
};

/// What is public about a contribution from the start: its name, and the seed of its `a`s.
///
/// A ticket serves one update, once: two messages under one seed tell their difference. Draw it
/// fresh, or read it back from where that same update's already sealed chunks are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Sixteen random bytes that tell contributions apart.
    pub id: [u8; 16],
    /// The seed of the uniform polynomials; unused by Paillier.
    pub seed: [u8; 32],
}

impl Ticket {
    /// A fresh ticket.
    ///
    /// # Errors
    /// No randomness.
    pub fn draw() -> Result<Self, Error> {
        Ok(Self { id: *random::bytes::<16>()?, seed: *random::bytes::<32>()? })
    }
}

enum Encryptor {
    Paillier(paillier::Encryptor),
    Lattice(ckks_sum::Encryptor),
}

/// Encrypts one update, each chunk exactly once, in order.
pub struct Sealer {
    engine: Arc<dyn Engine>,
    encryptor: Encryptor,
    parameters: Parameters,
    chunks: Chunks,
    update: Quantised,
    ticket: Ticket,
    next: u32,
}

/// Polynomials of one batch: enough to keep a few cores busy, little enough to start sending soon.
const POLYNOMIALS_PER_BATCH: usize = 4;
/// Paillier chunks of one batch.
const CIPHERTEXT_CHUNKS_PER_BATCH: u32 = 16;
/// Paillier chunks that a file is sealed by: nothing waits for the first, and a table of masks serves
/// all that are sealed at once.
const CIPHERTEXT_CHUNKS_PER_RUN: u32 = 512;

impl Sealer {
    /// A sealer of a whole update under a fresh ticket.
    ///
    /// # Errors
    /// A public `ckks-sum` key cannot encrypt; otherwise the engine's, or no randomness.
    pub fn new(key: &AnyKey, engine: Arc<dyn Engine>, update: Quantised) -> Result<Self, Error> {
        match key {
            AnyKey::Public(key) => Self::with_public(key, engine, update, Ticket::draw()?),
            AnyKey::Secret(key, _) => Self::resume(key, engine, update, Ticket::draw()?, 0),
        }
    }

    fn with_public(
        key: &PublicKey,
        engine: Arc<dyn Engine>,
        update: Quantised,
        ticket: Ticket,
    ) -> Result<Self, Error> {
        let modulus = key.paillier().ok_or(Error::KeyKind {
            found: "public",
            needed: "encrypting under ckks-sum without the secret needs a key made by keygen \
                     --public-encrypt, which is not there yet: use keys/secret.json",
        })?;
        let encryptor = Encryptor::Paillier(paillier::Encryptor::new(modulus, &*engine)?);
        Self::assemble(key, engine, encryptor, update, ticket, 0)
    }

    /// A sealer of the chunks from `next` on, of the update that `ticket` was drawn for. No chunk from
    /// `next` on may ever have been sealed under that ticket and sent.
    ///
    /// # Errors
    /// The engine's, or no randomness.
    pub fn resume(
        key: &SecretKey,
        engine: Arc<dyn Engine>,
        update: Quantised,
        ticket: Ticket,
        next: u32,
    ) -> Result<Self, Error> {
        let parameters = key.public().parameters();
        let encryptor = match (key.paillier(), key.lattice()) {
            (Some(secret), _) => {
                Encryptor::Paillier(paillier::Encryptor::for_owner(secret, &*engine)?)
            }
            (None, Some(secret)) => {
                Encryptor::Lattice(ckks_sum::Encryptor::new(secret, parameters, &ticket.seed)?)
            }
            (None, None) => unreachable!("a key is of one scheme"),
        };
        Self::assemble(key.public(), engine, encryptor, update, ticket, next)
    }

    /// What is packed must fit its fields: a value too large would spill into its neighbours, in
    /// everyone's sum.
    fn assemble(
        key: &PublicKey,
        engine: Arc<dyn Engine>,
        encryptor: Encryptor,
        update: Quantised,
        ticket: Ticket,
        next: u32,
    ) -> Result<Self, Error> {
        let parameters = key.parameters().clone();
        let most = 2 * parameters.half_steps();
        if update.weight() == 0 || update.fields().iter().any(|&f| f > most) {
            return Err(Error::NotQuantised { bits: parameters.bits() });
        }
        let chunks = parameters.chunks(update.fields().len());
        Ok(Self { engine, encryptor, parameters, chunks, update, ticket, next })
    }

    /// The contribution's public part.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// How the update is cut.
    #[must_use]
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// The wire bytes of the next chunks, or none when all are sealed.
    ///
    /// # Errors
    /// The engine's.
    pub fn next_batch(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.seal_next(CIPHERTEXT_CHUNKS_PER_BATCH)
    }

    fn seal_next(&mut self, ciphertext_chunks: u32) -> Result<Option<Vec<u8>>, Error> {
        let (first, count) = (self.next, self.chunks.count());
        if first >= count {
            return Ok(None);
        }
        let bytes = match &self.encryptor {
            Encryptor::Paillier(_) => {
                self.next = count.min(first + ciphertext_chunks);
                self.seal_ciphertexts(first..self.next)?
            }
            Encryptor::Lattice(_) => {
                let each = self.chunks_per_polynomial() as u32;
                let first_polynomial = u64::from(first / each);
                self.next = count.min((first / each + POLYNOMIALS_PER_BATCH as u32) * each);
                self.seal_polynomials(first_polynomial, first..self.next)?
            }
        };
        Ok(Some(bytes))
    }

    /// All chunks at once, as the stream of a file.
    ///
    /// # Errors
    /// The engine's.
    pub fn seal_all(mut self) -> Result<Vec<u8>, Error> {
        let mut stream = Vec::with_capacity(self.chunks.total_bytes());
        while let Some(batch) = self.seal_next(CIPHERTEXT_CHUNKS_PER_RUN)? {
            stream.extend(batch);
        }
        Ok(stream)
    }

    fn chunks_per_polynomial(&self) -> usize {
        self.parameters.lattice().map_or(1, |l| chunks_per_polynomial(&self.parameters, &l.ring))
    }

    fn seal_ciphertexts(&mut self, chunks: std::ops::Range<u32>) -> Result<Vec<u8>, Error> {
        // A plaintext has half a ciphertext's bytes, in words of eight.
        let words_each = self.parameters.geometry().unit_bytes / 16;
        let units = chunks.clone().map(|c| self.chunks.units_of(c)).sum::<usize>();
        let mut plain = Zeroizing::new(vec![0; units * words_each]);
        let mut at = 0;
        for chunk in chunks {
            let words = self.chunks.units_of(chunk) * words_each;
            self.pack(chunk, &mut plain[at..at + words], words_each, 0);
            at += words;
        }
        let Encryptor::Paillier(encryptor) = &mut self.encryptor else {
            unreachable!("the caller looked")
        };
        // The fields of a slot have fewer bits than n.
        let plain = Plaintexts::from_reduced(encryptor.modulus(), plain);
        Ok(to_bytes(&encryptor.encrypt(&*self.engine, &plain)?.into_words(&*self.engine)?))
    }

    /// Chunks start at a polynomial, or where a resumed stream goes on inside one.
    fn seal_polynomials(&self, first: u64, chunks: std::ops::Range<u32>) -> Result<Vec<u8>, Error> {
        let (Some(lattice), Encryptor::Lattice(encryptor)) =
            (self.parameters.lattice(), &self.encryptor)
        else {
            unreachable!("the caller looked")
        };
        let (degree, words_each) = (lattice.ring.degree(), lattice.ring.primes().len());
        let each = self.chunks_per_polynomial();
        let slots = self.parameters.geometry().slots_per_chunk;
        let count = (chunks.end as usize).div_ceil(each) - first as usize;
        let mut message = Zeroizing::new(vec![0; count * degree * words_each]);
        for chunk in chunks.clone() {
            let (poly, place) = (chunk as usize / each - first as usize, chunk as usize % each);
            let start = (poly * degree + place * slots) * words_each;
            let out = &mut message[start..start + slots * words_each];
            self.pack(chunk, out, words_each, lattice.margin_bits);
        }
        let words = encryptor.encrypt(&*self.engine, first, &message, count)?;
        let chunk_words = self.parameters.geometry().chunk_bytes() / 8;
        let skipped = chunks.start as usize - first as usize * each;
        let from = skipped * chunk_words;
        let length: usize = chunks.map(|c| self.chunks.bytes_of(c) / 8).sum();
        Ok(to_bytes(&words[from..from + length]))
    }

    /// Lays the head and the values of `chunk` into slots of `words_each` words.
    fn pack(&self, chunk: u32, out: &mut [u64], words_each: usize, shift: u32) {
        let g = self.parameters.geometry();
        let bits = g.field_bits as usize;
        let head = 1 | u64::from(self.update.weight()) << self.parameters.count_bits();
        set_field(&mut out[..words_each], shift as usize, head);
        let values = &self.update.fields()[self.chunks.values_of(chunk)];
        for (i, &value) in values.iter().enumerate() {
            let place = g.head_fields + i;
            let slot = &mut out[place / g.fields_per_slot * words_each..][..words_each];
            let at = shift as usize + place % g.fields_per_slot * bits;
            set_field(slot, at, u64::from(value));
        }
    }
}
