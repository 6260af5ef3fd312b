//! The aggregator's side of a scheme: who may join, and the running sums.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use ciphergram_accel::Engine;
use ciphergram_he::{
    Accumulator, Error, PublicKey,
    exchange::{Announcement, RoundTerms},
    params::{Chunks, MAX_CLIENTS},
};

use crate::{
    proto::{Geometry, Refusal, Stretch, Summer},
    round::{ContributionId, Job, Opened},
};

/// Bytes that all chunk sums of a round, each with its bitmap, may come to: one memory region.
const MAX_SUM_BYTES: usize = u32::MAX as usize;
/// Accumulators of a round, of about as many chunks each: so many pipelines may add at once.
const STRETCHES: u32 = 16;

/// Sums updates encrypted under one key: the [`Job`] of a [`Server`](super::Server), also for
/// callers that drive an [`Aggregator`](crate::round::Aggregator) themselves.
pub struct SumJob {
    key: PublicKey,
    engine: Arc<dyn Engine>,
}

impl SumJob {
    /// A job under `key` whose sums `engine` adds.
    #[must_use]
    pub fn new(key: PublicKey, engine: Arc<dyn Engine>) -> Self {
        Self { key, engine }
    }

    fn terms<'a>(
        &self,
        hellos: impl Iterator<Item = (u16, &'a [u8])>,
    ) -> Result<RoundTerms, String> {
        let terms = self.join(hellos).map_err(|e| e.to_string())?;
        let values = terms.agreement.values();
        let chunks = self.key.parameters().chunks(values);
        let each = chunks.geometry().chunk_bytes() + MAX_CLIENTS as usize / 8;
        // Checked before anything is allocated: a hello can claim any number of values.
        if (chunks.count() as usize).saturating_mul(each) > MAX_SUM_BYTES {
            return Err(format!("{values} values are more than one round carries"));
        }
        Ok(terms)
    }

    fn join<'a>(&self, hellos: impl Iterator<Item = (u16, &'a [u8])>) -> Result<RoundTerms, Error> {
        let announcements = hellos.map(|(number, hello)| {
            let announcement = Announcement::from_bytes(hello, &self.key);
            Ok((number, announcement.map_err(|e| e.within(format!("client {number}")))?))
        });
        RoundTerms::join(&announcements.collect::<Result<Vec<_>, Error>>()?)
    }
}

impl Job for SumJob {
    /// A client may join if it can be in one round with those who did: the same key and
    /// parameters, the same tensors, no other settled ranges, a seed of its own. Its id is its
    /// seed's, so that whoever takes its place later has announced the same seed (PROTOCOL §7.9).
    fn admit(
        &mut self,
        contributor: u16,
        contribution: &ContributionId,
        hello: &[u8],
        joined: &BTreeMap<u16, Vec<u8>>,
    ) -> Result<(), String> {
        let others = joined.iter().map(|(&number, hello)| (number, hello.as_slice()));
        let all = others.chain([(contributor, hello)]);
        let terms = self.terms(all)?;
        let own = terms.participants.iter().find(|(number, _)| *number == contributor);
        if own.is_some_and(|(_, seed)| seed.id() == *contribution) {
            Ok(())
        } else {
            Err(format!("client {contributor}: its contribution id is not that of its seed"))
        }
    }

    fn open(&mut self, _round: u32, joined: &BTreeMap<u16, Vec<u8>>) -> Result<Opened, String> {
        let all = joined.iter().map(|(&number, hello)| (number, hello.as_slice()));
        let terms = self.terms(all)?;
        let values = terms.agreement.values();
        let chunks = self.key.parameters().chunks(values);
        let stretches = stretches(&chunks).into_iter().map(|own| {
            let (key, engine) = (&self.key, self.engine.clone());
            let accumulator = Accumulator::of_stretch(key, engine, values, own.clone());
            Stretch { chunks: own, summer: Box::new(RunningSum { accumulator, broken: None }) }
        });
        let stretches = stretches.collect();
        Ok(Opened { terms: terms.to_bytes(&self.key), geometry: Box::new(chunks), stretches })
    }
}

/// All chunks in stretches of about the same length, none of which parts companions.
fn stretches(chunks: &Chunks) -> Vec<Range<u32>> {
    let (count, mut all, mut start) = (chunks.count(), vec![], 0);
    let each = count.div_ceil(STRETCHES).max(1);
    while start < count {
        let last = (start + each).min(count) - 1;
        let end = chunks.opening_with(last).end;
        all.push(start..end);
        start = end;
    }
    all
}

impl Geometry for Chunks {
    fn chunk_count(&self) -> u32 {
        self.count()
    }

    fn chunk_bytes(&self, chunk: u32) -> usize {
        self.bytes_of(chunk)
    }

    fn chunk_offset(&self, chunk: u32) -> u64 {
        self.offset_of(chunk) as u64
    }

    fn companions(&self, chunk: u32) -> Range<u32> {
        self.opening_with(chunk)
    }
}

/// The accumulator of a stretch of a round.
struct RunningSum {
    accumulator: Accumulator,
    /// The first failure of the engine; no sum leaves after it.
    broken: Option<String>,
}

impl Summer for RunningSum {
    fn check(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        self.accumulator.check(chunks, payload).map_err(|_| Refusal::InvalidCiphertext)
    }

    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) {
        if let Err(error) = self.accumulator.add(chunks, payload) {
            self.broken.get_or_insert(error.to_string());
        }
    }

    fn finish(&mut self, chunk: u32) -> Result<Vec<u8>, String> {
        match &self.broken {
            Some(why) => Err(why.clone()),
            None => self.accumulator.finish(chunk).map_err(|e| e.to_string()),
        }
    }
}
