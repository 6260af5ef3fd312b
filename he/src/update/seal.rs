//! One contribution, encrypted chunk by chunk.

use std::{borrow::Cow, io::Write, ops::Range, sync::Arc};

use ciphergram_accel::Engine;

use super::SealPermit;
use crate::{
    Contribution, Error, PublicKey, Quantised,
    codec::Packing,
    contributors::Contributor,
    job::Terms,
    keys::KeyRef,
    params::Chunks,
    schemes::{Pace, UpdateEncryptor},
    tag::Tags,
    threshold::{KeyMessage, KeySealer},
};

/// Encrypts one update, each chunk exactly once, in order.
pub struct Sealer {
    engine: Arc<dyn Engine>,
    encryptor: Box<dyn UpdateEncryptor>,
    tags: Tags,
    /// Where the contribution is under a secret of its own.
    keys: Option<KeySealer>,
    /// What is sealed, without its stream.
    contribution: Contribution<'static>,
    chunks: Chunks,
    update: Quantised,
    key: PublicKey,
    permit: SealPermit,
    next: u32,
}

impl Sealer {
    /// Makes a sealer of an update under a permit: of the whole update if the permit was drawn, of the
    /// chunks that are left if it was resumed. Who holds the secret key encrypts with it, where that is
    /// quicker.
    ///
    /// A value too large for its field would spill into its neighbours, in everyone's sum, and is refused.
    ///
    /// # Errors
    /// A key without a sum key, or of another job; a number that is no client's; integers of other
    /// parameters, or not as many as agreed; chunks that this process has sealed already; the engine's, or no
    /// randomness.
    pub fn new<'a>(
        key: impl Into<KeyRef<'a>>,
        engine: Arc<dyn Engine>,
        update: Quantised,
        mut permit: SealPermit,
        terms: &Terms<'_>,
    ) -> Result<Self, Error> {
        let key = key.into();
        let (tag_key, contributor) =
            (key.tag_key()?, Contributor { number: key.number(), seed: permit.seed() });
        terms.job().check_key(key.public())?;
        terms.job().check_number(contributor.number)?;
        let statement = terms.statement();
        let parameters = key.public().parameters();
        let most = 2 * parameters.half_steps();
        let is_agreed = (1..=terms.agreement().max_weight()).contains(&update.weight())
            && update.count() == terms.agreement().fields(parameters);
        if !is_agreed || !update.is_within(most) {
            return Err(Error::NotQuantised { bits: parameters.bits() });
        }
        let chunks = parameters.chunks(update.count());
        let (public, next) = (key.public().clone(), permit.next());
        let (encryptor, keys) = match key {
            KeyRef::Client(key) => (key.public().encryption()?.encryptor(&*engine)?, None),
            KeyRef::Secret(key, _) => {
                let scheme = key.scheme(update.count());
                (scheme.encryptor(&*engine, &statement, &permit.seed())?, None)
            }
            KeyRef::Member(key) => {
                let (encryptor, keys) =
                    key.begin(terms, (&contributor, permit.secret()), &update)?;
                (encryptor, Some(keys))
            }
        };
        // Nothing is spent yet; chunks that were spent are refused here, before any work.
        permit.spend(public.id(), next)?;
        let tags = Tags::new(&tag_key, &statement, &contributor, &chunks, update.weight());
        let contribution = Contribution {
            contributor,
            job: terms.job().id(),
            round: terms.round(),
            agreement: terms.agreement().clone(),
            stream: Cow::Borrowed(&[]),
            keys: None,
        };
        let key = public;
        Ok(Self { engine, encryptor, tags, keys, contribution, chunks, update, key, permit, next })
    }

    /// Returns the contribution's public record.
    #[must_use]
    pub fn contributor(&self) -> Contributor {
        self.contribution.contributor
    }

    /// Returns the number of the round that it is sealed to.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.contribution.round
    }

    /// Returns how many values of each tensor were outside its range.
    #[must_use]
    pub fn clipped(&self) -> &[usize] {
        self.update.clipped()
    }

    /// Returns how the update is cut.
    #[must_use]
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Seals the next chunks and returns their wire bytes, or nothing when all are sealed.
    ///
    /// # Errors
    /// The engine's, or another sealer was resumed under the same seed and came first.
    pub fn next_batch(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.batch(Pace::Soon)
    }

    /// Takes the chunks before the first that is sealed here, if some were sealed before: a contribution with shares
    /// signs all of them.
    pub fn after(&mut self, sealed: &[u8]) {
        if let Some(keys) = &mut self.keys {
            keys.update(sealed);
        }
    }

    /// Seals the shares that the contribution opens by, once all of its chunks are sealed; nothing if it has none.
    ///
    /// # Errors
    /// [`Error::Opener`]: the prekey of an opener is none.
    ///
    /// # Panics
    /// Chunks are left, or those that were sealed [before](Self::after) were not given.
    pub fn key_message(&self) -> Result<Option<KeyMessage>, Error> {
        let Some(keys) = &self.keys else { return Ok(None) };
        assert_eq!(keys.hashed(), self.chunks.total_bytes() as u64);
        keys.seal().map(Some)
    }

    /// Seals the next chunks, as many as the pace says.
    fn batch(&mut self, pace: Pace) -> Result<Option<Vec<u8>>, Error> {
        let own = self.next_chunks(pace);
        if own.is_empty() {
            return Ok(None);
        }
        let mut bytes = vec![0; self.chunks.range_of(&own).len()];
        self.seal(own, &mut bytes)?;
        self.permit.spend(self.key.id(), self.next)?;
        Ok(Some(bytes))
    }

    /// Seals all chunks and writes them as a contribution's file, while they are sealed. Returns how many bytes of
    /// ciphertext it has.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch); some are sealed already; it cannot be written.
    pub fn write_to(mut self, out: &mut impl Write) -> Result<usize, Error> {
        self.check_fresh()?;
        let mut hasher = blake3::Hasher::new();
        let mut put = |bytes: &[u8]| {
            hasher.update(bytes);
            out.write_all(bytes)
        };
        let bytes = self.chunks.total_bytes();
        let keys = self.keys.as_ref().map(KeySealer::bytes);
        put(&self.contribution.head(&self.key, bytes, keys))?;
        while let Some(sealed) = self.batch(Pace::Bulk)? {
            put(&sealed)?;
        }
        if let Some(keys) = self.key_message()? {
            put(&keys.to_bytes())?;
        }
        out.write_all(hasher.finalize().as_bytes())?;
        Ok(bytes)
    }

    /// Seals all chunks to a contribution in memory.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch); some are sealed already.
    pub fn into_contribution(self) -> Result<Contribution<'static>, Error> {
        self.check_fresh()?;
        let mut stream = vec![0; self.chunks.total_bytes()];
        let contribution = self.contribution.clone();
        let keys = self.seal_into(&mut stream)?;
        Ok(Contribution { stream: stream.into(), keys, ..contribution })
    }

    /// Seals all chunks at once, as the stream of a file.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch); a member's key, whose contributions have shares besides.
    pub fn seal_all(self) -> Result<Vec<u8>, Error> {
        if self.keys.is_some() {
            let needed = "a stream alone lacks the shares that it opens by";
            return Err(Error::KeyKind { found: "member's", needed });
        }
        let mut stream = vec![0; self.chunks.range_of(&(self.next..self.chunks.count())).len()];
        self.seal_into(&mut stream)?;
        Ok(stream)
    }

    /// Refuses to make a whole of what is left.
    fn check_fresh(&self) -> Result<(), Error> {
        if self.next == 0 { Ok(()) } else { Err(Error::SeedReused { sealed: self.next }) }
    }

    /// Seals all chunks at once into memory of their length, and what the contribution has beside them.
    fn seal_into(mut self, mut rest: &mut [u8]) -> Result<Option<KeyMessage>, Error> {
        while self.next < self.chunks.count() {
            let own = self.next_chunks(Pace::Bulk);
            let (bytes, after) = rest.split_at_mut(self.chunks.range_of(&own).len());
            self.seal(own, bytes)?;
            rest = after;
        }
        self.permit.spend(self.key.id(), self.next)?;
        self.key_message()
    }

    /// Returns the chunks to seal next.
    fn next_chunks(&self, pace: Pace) -> Range<u32> {
        self.next..self.chunks.count().min(self.encryptor.batch_end(self.next, pace)).max(self.next)
    }

    /// Seals the next chunks, which count as sealed only when they are.
    fn seal(&mut self, own: Range<u32>, out: &mut [u8]) -> Result<(), Error> {
        let packing = Packing::new(&self.update, &self.chunks, &self.tags);
        let end = own.end;
        self.encryptor.seal(&*self.engine, &packing, own, out)?;
        if let Some(keys) = &mut self.keys {
            keys.update(out);
        }
        self.next = end;
        Ok(())
    }
}
