//! One contribution, encrypted chunk by chunk.

use std::{borrow::Cow, io::Write, ops::Range, sync::Arc};

use ciphergram_accel::Engine;

use super::Ticket;
use crate::{
    Agreement, Contribution, Error, Job, Ledger, Quantised, Update,
    codec::Packing,
    contributors::Contributor,
    ids::KeyId,
    job::Terms,
    keys::KeyRef,
    params::Chunks,
    random,
    schemes::{Encryptor, Pace},
    tag::Tags,
};

/// A whole contribution, as [`encrypt`] makes it.
pub struct Encrypted {
    /// The contribution.
    pub contribution: Contribution<'static>,
    /// The number of values of each tensor that were outside its range.
    pub clipped: Vec<usize>,
}

/// Encrypts a client's update: clips and rounds it over the ranges of the round, and seals it under a fresh seed.
///
/// That a client seals one contribution to a round is the caller's duty: see [`Ledger`](crate::Ledger).
///
/// # Errors
/// A key that seals no updates, or not under this job; an update that is not laid out as agreed, or has a value
/// that is not finite; a weight that is not from 1 to the agreed largest; the engine's, or no randomness.
pub fn encrypt<'a>(
    key: impl Into<KeyRef<'a>>,
    engine: Arc<dyn Engine>,
    update: &Update,
    terms: &Terms<'_>,
    weight: u64,
) -> Result<Encrypted, Error> {
    let (sealer, contribution, clipped) = begin(key.into(), engine, (update, weight), terms)?;
    let stream = sealer.seal_all()?.into();
    Ok(Encrypted { contribution: Contribution { stream, ..contribution }, clipped })
}

/// When others can have the bytes of a contribution that [`encrypt_to`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// While they are written, as through a pipe: the round is in the ledger before the first of them.
    Written,
    /// When all of them are in place: the caller calls [`Ledger::seal`] for the round just before. Until then it is
    /// not used, so a contribution that was cut short costs none. To seal the round again is safe then: nothing of the
    /// first attempt left, and another one draws a seed anew, from which masks and noise follow.
    InPlace,
}

/// A contribution as [`encrypt_to`] wrote it.
pub struct Written {
    /// The bytes of ciphertext.
    pub bytes: usize,
    /// The number of values of each tensor that were outside its range.
    pub clipped: Vec<usize>,
    /// The round's number.
    pub round: u64,
}

/// Encrypts a client's update of a weight as [`encrypt`] does, and writes the contribution's file while it is sealed.
/// That the client contributes to this round, or to the next one if none is given, is in the ledger before anything is
/// sealed, and after everything was checked, or by the caller.
///
/// # Errors
/// Those of [`encrypt`] and of [`Job::terms`]; the ledger's; the file cannot be written.
pub fn encrypt_to<'a>(
    key: impl Into<KeyRef<'a>>,
    engine: Arc<dyn Engine>,
    update: (&Update, u64),
    agreed: (&Job, &Agreement),
    (ledger, round): (&Ledger, Option<u64>),
    out: &mut impl Write,
    leaves: Leaves,
) -> Result<Written, Error> {
    let (key, (job, agreement)) = (key.into(), agreed);
    let (mut sealer, contribution, clipped) = match leaves {
        Leaves::Written => enter(key, engine, update, agreed, (ledger, round))?,
        Leaves::InPlace => {
            let round = ledger.open_round(job, key.number(), round)?;
            begin(key, engine, update, &job.terms(round, agreement)?)?
        }
    };
    let mut hasher = blake3::Hasher::new();
    let mut put = |bytes: &[u8]| {
        hasher.update(bytes);
        out.write_all(bytes)
    };
    let bytes = sealer.chunks.total_bytes();
    put(&contribution.head(key.public(), bytes))?;
    while let Some(sealed) = sealer.batch(Pace::Bulk)? {
        put(&sealed)?;
    }
    out.write_all(hasher.finalize().as_bytes())?;
    Ok(Written { bytes, clipped, round: contribution.round })
}

/// Begins a contribution, and enters the round that it is to, or the next one, in the ledger: after all was checked, as
/// what is refused takes no round.
fn enter(
    key: KeyRef<'_>,
    engine: Arc<dyn Engine>,
    update: (&Update, u64),
    (job, agreement): (&Job, &Agreement),
    (ledger, round): (&Ledger, Option<u64>),
) -> Result<(Sealer, Contribution<'static>, Vec<usize>), Error> {
    // Masks, noise and tags are all of the round's statement: what has begun cannot change to another round.
    let begin = |round| begin(key, engine.clone(), update, &job.terms(round, agreement)?);
    let Some(round) = round else { return ledger.seal_next(job, key.number(), begin) };
    let begun = begin(round)?;
    ledger.seal(job, key.number(), round)?;
    Ok(begun)
}

/// Returns a sealer of an update of a weight, its contribution without a stream, and how many values of each tensor
/// were outside its range.
fn begin(
    key: KeyRef<'_>,
    engine: Arc<dyn Engine>,
    (update, weight): (&Update, u64),
    terms: &Terms<'_>,
) -> Result<(Sealer, Contribution<'static>, Vec<usize>), Error> {
    let seed = random::bytes()?;
    let update = terms.quantise(update, weight, key.public().parameters(), &seed)?;
    let clipped = update.clipped().to_vec();
    let sealer = Sealer::new(key, engine, update, Ticket::draw()?, terms)?;
    let contribution = Contribution {
        contributor: sealer.contributor(),
        job: terms.job().id(),
        round: terms.round(),
        agreement: terms.agreement().clone(),
        stream: Cow::Borrowed(&[]),
    };
    Ok((sealer, contribution, clipped))
}

/// Encrypts one update, each chunk exactly once, in order.
pub struct Sealer {
    engine: Arc<dyn Engine>,
    encryptor: Box<dyn Encryptor>,
    tags: Tags,
    contributor: Contributor,
    chunks: Chunks,
    update: Quantised,
    key: KeyId,
    ticket: Ticket,
    next: u32,
}

impl Sealer {
    /// Makes a sealer of an update under a ticket: of the whole update if the ticket was drawn, of the
    /// chunks that are left if it was resumed. Who holds the secret key encrypts with it, where that is
    /// quicker.
    ///
    /// A value too large for its field would spill into its neighbours, in everyone's sum, and is refused.
    ///
    /// # Errors
    /// A key without a sum key, or of another job; a number that is no client's; integers of other
    /// parameters, or not as many as agreed; chunks that this process has sealed already; under
    /// `ckks-sum-public`, a ticket that was resumed within a polynomial; the engine's, or no randomness.
    pub fn new<'a>(
        key: impl Into<KeyRef<'a>>,
        engine: Arc<dyn Engine>,
        update: Quantised,
        mut ticket: Ticket,
        terms: &Terms<'_>,
    ) -> Result<Self, Error> {
        let key = key.into();
        let (tag_key, contributor) =
            (key.tag_key()?, Contributor { number: key.number(), seed: ticket.seed() });
        terms.job().check_key(key.public())?;
        terms.job().check_number(contributor.number)?;
        let statement = terms.statement();
        let encryptor = match key {
            KeyRef::Client(key) => key.public().encryption()?.encryptor(&*engine)?,
            KeyRef::Secret(key, _) => {
                key.scheme(update.count()).encryptor(&*engine, &statement, &ticket.seed())?
            }
        };
        let parameters = key.public().parameters();
        let most = 2 * parameters.half_steps();
        let is_agreed = (1..=terms.agreement().max_weight()).contains(&update.weight())
            && update.count() == terms.agreement().fields(parameters);
        if !is_agreed || !update.is_within(most) {
            return Err(Error::NotQuantised { bits: parameters.bits() });
        }
        let chunks = parameters.chunks(update.count());
        let (key, next) = (key.public().id(), ticket.next());
        // The rest of a polynomial would be under another mask than its beginning.
        let group = chunks.opening_with(next.min(chunks.count() - 1));
        if group.start < next && next < group.end {
            return Err(Error::ResumedWithin { next, start: group.start, end: group.end });
        }
        // Nothing is spent yet; chunks that were spent are refused here, before any work.
        ticket.spend(key, next)?;
        let tags = Tags::new(&tag_key, &statement, &contributor, &chunks, update.weight());
        Ok(Self { engine, encryptor, tags, contributor, chunks, update, key, ticket, next })
    }

    /// Returns the contribution's public record.
    #[must_use]
    pub fn contributor(&self) -> Contributor {
        self.contributor
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

    /// Seals the next chunks, as many as the pace says.
    fn batch(&mut self, pace: Pace) -> Result<Option<Vec<u8>>, Error> {
        let own = self.next_chunks(pace);
        if own.is_empty() {
            return Ok(None);
        }
        let mut bytes = vec![0; self.chunks.range_of(&own).len()];
        self.seal(own, &mut bytes)?;
        self.ticket.spend(self.key, self.next)?;
        Ok(Some(bytes))
    }

    /// Seals all chunks at once, as the stream of a file.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch).
    pub fn seal_all(self) -> Result<Vec<u8>, Error> {
        let mut stream = vec![0; self.chunks.range_of(&(self.next..self.chunks.count())).len()];
        self.seal_into(&mut stream)?;
        Ok(stream)
    }

    /// Seals all chunks at once into memory of their length.
    fn seal_into(mut self, mut rest: &mut [u8]) -> Result<(), Error> {
        while self.next < self.chunks.count() {
            let own = self.next_chunks(Pace::Bulk);
            let (bytes, after) = rest.split_at_mut(self.chunks.range_of(&own).len());
            self.seal(own, bytes)?;
            rest = after;
        }
        self.ticket.spend(self.key, self.next)
    }

    /// Returns the chunks to seal next, to the end of a group.
    fn next_chunks(&self, pace: Pace) -> Range<u32> {
        let each = self.chunks.geometry().group_chunks() as u32;
        let groups = (self.next / each).saturating_add(self.encryptor.groups_at_once(pace));
        self.next..self.chunks.count().min(groups.saturating_mul(each)).max(self.next)
    }

    /// Seals the next chunks, which count as sealed only when they are.
    fn seal(&mut self, own: Range<u32>, out: &mut [u8]) -> Result<(), Error> {
        let packing = Packing::new(&self.update, &self.chunks, &self.tags);
        let end = own.end;
        self.encryptor.seal(&*self.engine, &packing, own, out)?;
        self.next = end;
        Ok(())
    }
}
