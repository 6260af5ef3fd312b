//! One contribution, encrypted chunk by chunk.

mod ticket;

use std::{ops::Range, sync::Arc};

use ciphergram_accel::Engine;
use zeroize::Zeroizing;

use crate::{
    Error, Parameters, PublicKey, Quantised, SecretKey,
    bytes::append_words,
    ckks_sum,
    codec::{Fields, add_bits},
    keys::{AnyKey, KeyId},
    paillier::{self, Plaintexts},
    params::Chunks,
    spread::spread,
};

pub use ticket::{Seed, Ticket};

enum Encryptor {
    Paillier(paillier::Encryptor),
    Lattice(ckks_sum::Encryptor),
    Public(ckks_sum::PublicEncryptor),
}

/// Encrypts one update, each chunk exactly once, in order.
pub struct Sealer {
    engine: Arc<dyn Engine>,
    encryptor: Encryptor,
    parameters: Parameters,
    chunks: Chunks,
    update: Quantised,
    key: KeyId,
    ticket: Ticket,
    next: u32,
}

/// Room for a polynomial, kept from one to the next.
#[derive(Default)]
struct Room {
    message: Zeroizing<Vec<u64>>,
    slot: Zeroizing<Vec<u64>>,
    /// What is not sent of it would tell of what is.
    sealed: Zeroizing<Vec<u64>>,
}

/// How much is sealed at once.
#[derive(Clone, Copy)]
struct Batch {
    polynomials: u32,
    ciphertext_chunks: u32,
}

/// Enough to keep a few cores busy, little enough to start sending soon.
const SOON: Batch = Batch { polynomials: 4, ciphertext_chunks: 16 };
/// For a file, where nothing waits for the first: a table of masks serves all that are sealed at once.
const MANY: Batch = Batch { polynomials: 1 << 20, ciphertext_chunks: 512 };

impl Sealer {
    /// A sealer of a whole update under a fresh ticket.
    ///
    /// # Errors
    /// A public `ckks-sum` key cannot encrypt; otherwise the engine's, or no randomness.
    pub fn new(key: &AnyKey, engine: Arc<dyn Engine>, update: Quantised) -> Result<Self, Error> {
        match key {
            AnyKey::Public(key) => Self::with_public(key, engine, update, Ticket::draw()?),
            AnyKey::Secret(key, _) => Self::with_secret(key, engine, update, Ticket::draw()?),
        }
    }

    /// The same as [`with_secret`](Self::with_secret) under a public key.
    ///
    /// # Errors
    /// A public `ckks-sum` key cannot encrypt; otherwise as there.
    pub fn with_public(
        key: &PublicKey,
        engine: Arc<dyn Engine>,
        update: Quantised,
        ticket: Ticket,
    ) -> Result<Self, Error> {
        key.check_encrypts()?;
        let encryptor = match (key.paillier(), key.lattice()) {
            (Some(modulus), _) => Encryptor::Paillier(paillier::Encryptor::new(modulus, &*engine)?),
            (None, Some(public)) => {
                Encryptor::Public(ckks_sum::PublicEncryptor::new(public, key.parameters())?)
            }
            (None, None) => unreachable!("a key that encrypts has what to encrypt with"),
        };
        Self::assemble(key, engine, encryptor, update, ticket)
    }

    /// A sealer of an update under a ticket of the caller's: the whole update if it was drawn, the
    /// chunks that are left if it was resumed.
    ///
    /// # Errors
    /// This process has already sealed chunks that are left; under `ckks-sum-public`, a ticket was
    /// resumed within a polynomial; the engine's, or no randomness.
    pub fn with_secret(
        key: &SecretKey,
        engine: Arc<dyn Engine>,
        update: Quantised,
        ticket: Ticket,
    ) -> Result<Self, Error> {
        let parameters = key.public().parameters();
        // What is encrypted by a public key takes no secret.
        if key.public().lattice().is_some() {
            return Self::with_public(key.public(), engine, update, ticket);
        }
        let encryptor = match (key.paillier(), key.lattice()) {
            (Some(secret), _) => {
                Encryptor::Paillier(paillier::Encryptor::for_owner(secret, &*engine)?)
            }
            (None, Some(secret)) => {
                Encryptor::Lattice(ckks_sum::Encryptor::new(secret, parameters, &ticket.seed())?)
            }
            (None, None) => unreachable!("a key is of one scheme"),
        };
        Self::assemble(key.public(), engine, encryptor, update, ticket)
    }

    /// What is packed must fit its fields: a value too large would spill into its neighbours, in
    /// everyone's sum.
    fn assemble(
        key: &PublicKey,
        engine: Arc<dyn Engine>,
        encryptor: Encryptor,
        update: Quantised,
        mut ticket: Ticket,
    ) -> Result<Self, Error> {
        let parameters = key.parameters().clone();
        let most = 2 * parameters.half_steps();
        if update.weight() == 0 || update.fields().iter().any(|&f| f > most) {
            return Err(Error::NotQuantised { bits: parameters.bits() });
        }
        let chunks = parameters.chunks(update.fields().len());
        let (key, next) = (key.id(), ticket.next());
        // The rest of a polynomial would be under another mask than its beginning.
        let group = chunks.opening_with(next.min(chunks.count() - 1));
        if group.start < next && next < group.end {
            return Err(Error::ResumedWithin { next, start: group.start, end: group.end });
        }
        // Nothing is spent yet; what was is refused here, before any work.
        ticket.spend(key, next)?;
        Ok(Self { engine, encryptor, parameters, chunks, update, key, ticket, next })
    }

    /// The contribution's public record.
    #[must_use]
    pub fn seed(&self) -> Seed {
        self.ticket.seed()
    }

    /// How the update is cut.
    #[must_use]
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// The wire bytes of the next chunks, or none when all are sealed.
    ///
    /// # Errors
    /// The engine's, or another sealer was resumed under the same seed and came first.
    pub fn next_batch(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let mut bytes = vec![];
        self.seal_next(SOON, &mut bytes)?;
        self.ticket.spend(self.key, self.next)?;
        Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// Appends the next chunks; nothing when all are sealed.
    fn seal_next(&mut self, batch: Batch, stream: &mut Vec<u8>) -> Result<(), Error> {
        let (first, count) = (self.next, self.chunks.count());
        if first >= count {
            return Ok(());
        }
        // Chunks count as sealed when they are.
        let end = match &self.encryptor {
            Encryptor::Paillier(_) => {
                let end = count.min(first + batch.ciphertext_chunks);
                self.seal_ciphertexts(first..end, stream)?;
                end
            }
            Encryptor::Lattice(_) | Encryptor::Public(_) => {
                let each = self.parameters.geometry().group_chunks() as u32;
                let end = count.min((first / each + batch.polynomials) * each);
                self.seal_polynomials(first..end, stream)?;
                end
            }
        };
        self.next = end;
        Ok(())
    }

    /// All chunks at once, as the stream of a file.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch).
    pub fn seal_all(mut self) -> Result<Vec<u8>, Error> {
        let mut stream = Vec::with_capacity(self.chunks.total_bytes());
        while self.next < self.chunks.count() {
            self.seal_next(MANY, &mut stream)?;
        }
        self.ticket.spend(self.key, self.next)?;
        Ok(stream)
    }

    fn seal_ciphertexts(&mut self, chunks: Range<u32>, stream: &mut Vec<u8>) -> Result<(), Error> {
        // A plaintext has half a ciphertext's bytes, in words of eight.
        let words_each = self.parameters.geometry().unit_bytes / 16;
        let units = chunks.clone().map(|c| self.chunks.units_of(c)).sum::<usize>();
        let mut plain = Zeroizing::new(vec![0; units * words_each]);
        let mut slot_words = Zeroizing::new(vec![0; words_each]);
        let mut at = 0;
        for chunk in chunks {
            self.pack(chunk, 0, &mut slot_words, |slot, words| {
                plain[at + slot * words_each..][..words_each].copy_from_slice(words);
            });
            at += self.chunks.units_of(chunk) * words_each;
        }
        let Encryptor::Paillier(encryptor) = &mut self.encryptor else {
            unreachable!("the caller looked")
        };
        // The fields of a slot have fewer bits than n.
        let plain = Plaintexts::from_reduced(encryptor.modulus(), plain);
        let ciphertexts = encryptor.encrypt(&*self.engine, &plain)?;
        append_words(stream, &ciphertexts.into_words(&*self.engine)?);
        Ok(())
    }

    /// Polynomial by polynomial, each from its values to its bytes while it is in cache. Chunks start at
    /// a polynomial, or where a resumed stream goes on inside one.
    fn seal_polynomials(&self, chunks: Range<u32>, stream: &mut Vec<u8>) -> Result<(), Error> {
        let each = self.parameters.geometry().group_chunks() as u32;
        let bytes = |chunks: Range<u32>| chunks.map(|c| self.chunks.bytes_of(c)).sum::<usize>();
        let start = stream.len();
        stream.resize(start + bytes(chunks.clone()), 0);
        let mut rest = &mut stream[start..];
        let mut polynomials = vec![];
        let mut first = chunks.start;
        while first < chunks.end {
            let own = first..chunks.end.min((first / each + 1) * each);
            first = own.end;
            let (out, after) = rest.split_at_mut(bytes(own.clone()));
            polynomials.push((own, out));
            rest = after;
        }
        let sealed = spread(polynomials, Room::default, |room, (own, out)| {
            self.seal_polynomial(own, room, out)
        });
        sealed.into_iter().collect()
    }

    fn seal_polynomial(
        &self,
        own: Range<u32>,
        room: &mut Room,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let Some(lattice) = self.parameters.lattice() else { unreachable!("the caller looked") };
        let (degree, words_each) = (lattice.ring.degree(), lattice.ring.primes().len());
        let g = self.parameters.geometry();
        let each = g.group_chunks() as u32;
        let index = own.start / each;
        // What is not of these chunks would tell earlier ones, sealed over no message as it is.
        room.message.clear();
        room.message.resize(degree * words_each, 0);
        room.slot.resize(words_each, 0);
        for chunk in own.clone().filter(|&chunk| !self.chunks.is_mask(chunk)) {
            let start = ((chunk % each) as usize - g.mask_chunks) * g.slots_per_chunk;
            // Word by word, as programs have the integers of a polynomial.
            self.pack(chunk, lattice.margin_bits, &mut room.slot, |slot, words| {
                for (w, &word) in words.iter().enumerate() {
                    room.message[w * degree + start + slot] = word;
                }
            });
        }
        let (engine, index_word) = (&*self.engine, u64::from(index));
        match &self.encryptor {
            Encryptor::Lattice(e) => {
                e.encrypt(engine, index_word, &room.message, &mut room.sealed)?
            }
            Encryptor::Public(e) => {
                e.encrypt(engine, index_word, &room.message, &mut room.sealed)?
            }
            Encryptor::Paillier(_) => unreachable!("the caller looked"),
        }
        let skipped = (own.start % each) as usize * g.chunk_bytes() / 8;
        let words = out.as_chunks_mut::<8>().0.iter_mut().zip(&room.sealed[skipped..]);
        words.for_each(|(bytes, word)| *bytes = word.to_le_bytes());
        Ok(())
    }

    /// Lays the head and the values of `chunk` into slots, each above `margin` zero bits, and shows
    /// `put` the words of each, which lie in `words` meanwhile.
    fn pack(&self, chunk: u32, margin: u32, words: &mut [u64], mut put: impl FnMut(usize, &[u64])) {
        let g = self.parameters.geometry();
        let fields = Fields::new(margin, g.field_bits);
        let mut values = &self.update.fields()[self.chunks.values_of(chunk)];
        let mut slot = 0;
        while slot == 0 || !values.is_empty() {
            words.fill(0);
            let first = if slot == 0 { g.head_fields } else { 0 };
            if slot == 0 {
                // The count of contributors is one, and above it is the weight.
                let head = 1 | u64::from(self.update.weight()) << self.parameters.count_bits();
                add_bits(words, margin, head);
            }
            let (own, rest) = values.split_at(values.len().min(g.fields_per_slot - first));
            fields.set(words, first, own);
            put(slot, words);
            (values, slot) = (rest, slot + 1);
        }
    }
}
