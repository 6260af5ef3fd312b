//! The aggregator's side of a scheme: who may join, and the running sums.

mod openers;
mod private_ranges;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    ops::Range,
    sync::Arc,
};

use ciphergram_accel::Engine;
use ciphergram_he::{
    Accumulator, Error, Job, PublicKey,
    exchange::{Announcement, RoundTerms},
    params::{Chunks, MAX_CLIENTS},
    private_ranges::{EncryptedRanges, RangesEvaluationKey},
};

use openers::JobOpeners;
use private_ranges::RangesFinder;
pub use private_ranges::RangesProgress;

use crate::{
    proto::{ChunkAdder, ChunkLayout, Refusal, Shard},
    round::{
        Application, ContributionId, OpenerApplication, Readiness, ReadyRound,
        message::MAX_ROUND_MESSAGE_BYTES,
    },
};

/// The most bytes of all chunk sums of a round, each with its bitmap: one memory region.
const MAX_SUM_BYTES: usize = u32::MAX as usize;
/// Shards of a round, of about as many chunks each: the pipelines that may add at once.
const SHARDS: u32 = 16;

/// Sums updates encrypted under one key: the [`Application`] of a [`FederationServer`](super::FederationServer), also
/// for callers that drive an [`Aggregator`](crate::round::Aggregator) themselves. It finds private ranges on rayon's
/// current threads: a caller that runs on one of them needs another beside it.
pub struct SumApplication {
    parts: RoundParts,
    /// Present if the job has private ranges.
    private: Option<RangesFinder>,
    /// Present if the job has openers.
    openers: Option<JobOpeners>,
}

/// The parts that all rounds are made of.
struct RoundParts {
    key: PublicKey,
    job: Job,
    engine: Arc<dyn Engine>,
}

impl SumApplication {
    /// Returns an application under `key` and a job of it, whose sums `engine` adds. A job with private ranges takes
    /// the key that they are found with, which others leave aside.
    ///
    /// # Errors
    ///
    /// A key that nothing can be summed under, or not the job's; private ranges, and no key that they are found with,
    /// or another than the job's.
    pub fn new(
        key: PublicKey,
        job: Job,
        engine: Arc<dyn Engine>,
        ranges_key: Option<Arc<RangesEvaluationKey>>,
    ) -> Result<Self, Error> {
        key.check_sums()?;
        job.check_key(&key)?;
        let private = match job.private_ranges() {
            Ok(private) => Some(RangesFinder::new(*private, ranges_key)?),
            Err(_) => None,
        };
        let openers = job.openers().ok().map(|openers| JobOpeners::new(&key, openers));
        Ok(Self { parts: RoundParts { key, job, engine }, private, openers })
    }

    /// Returns the progress of private ranges, while they are found.
    #[must_use]
    pub fn ranges_progress(&self) -> Option<RangesProgress> {
        self.private.as_ref()?.progress()
    }
}

impl RoundParts {
    /// Joins those who fit together.
    fn join(&self, joined: &BTreeMap<u16, Vec<u8>>) -> Result<Fitting, String> {
        let (mut announcements, mut left_out) = (vec![], vec![]);
        for (&number, hello) in joined {
            match Announcement::from_bytes(hello, &self.key) {
                Ok(announcement) => announcements.push((number, announcement)),
                Err(error) => left_out.push((number, error)),
            }
        }
        let joined = RoundTerms::join(&self.job, &announcements).map_err(|e| e.to_string())?;
        left_out.extend(joined.left_out);
        let named = |(number, error): (u16, Error)| (number, of_client(number, error));
        let left_out: LeftOut = left_out.into_iter().map(named).collect();
        Ok(Fitting { terms: joined.terms, announcements, left_out })
    }

    /// Opens a round over those who fit, with private ranges if the job has such.
    fn open_over(
        &self,
        Fitting { mut terms, left_out, .. }: Fitting,
        ranges: Option<EncryptedRanges>,
        late: BTreeSet<u16>,
    ) -> Readiness {
        terms.private_ranges = ranges;
        let values = terms.agreement.fields(self.key.parameters());
        let chunks = self.key.parameters().chunks(values);
        let shards = shards(&chunks).into_iter().map(|own| {
            let (key, engine) = (&self.key, self.engine.clone());
            let sum = Accumulator::of_chunks(key, engine, values, own.clone());
            Shard { chunks: own, adder: Box::new(sum) }
        });
        let shards = shards.collect();
        let terms = terms.to_bytes(&self.key);
        Readiness::Ready(ReadyRound { terms, layout: layout(&chunks), shards, left_out, late })
    }
}

/// Those of a round who fit together.
struct Fitting {
    terms: RoundTerms,
    /// Theirs, and those of others.
    announcements: Vec<(u16, Announcement)>,
    left_out: LeftOut,
}

/// Returns the words of an error, and of which client it is.
fn of_client(number: u16, error: Error) -> String {
    error.within(format!("client {number}")).to_string()
}

/// Clients that a round opens without, each with the reason.
type LeftOut = Vec<(u16, String)>;

impl Application for SumApplication {
    /// Admits a client of the same key and job, and within it. Its contribution's id is its seed's, so that
    /// a process that takes its place later has announced the same seed (PROTOCOL §7.9).
    fn admit(
        &mut self,
        contributor: u16,
        contribution: &ContributionId,
        hello: &[u8],
    ) -> Result<(), String> {
        let read = || {
            let announcement = Announcement::from_bytes(hello, &self.parts.key)?;
            announcement.check(contributor, &self.parts.job)?;
            Ok(announcement)
        };
        let announcement = read().map_err(|error| of_client(contributor, error))?;
        let parameters = self.parts.key.parameters();
        let values = announcement.agreement.most_fields(parameters);
        let chunks = parameters.chunks(values);
        let each = chunks.geometry().chunk_bytes() + MAX_CLIENTS as usize / 8;
        // Checked before anything is allocated: a hello can claim any number of values.
        if (chunks.count() as usize).saturating_mul(each) > MAX_SUM_BYTES {
            return Err(format!("{values} values are more than one round carries"));
        }
        // And a norm's.
        let terms = 4096 + EncryptedRanges::BYTES * (announcement.agreement.specs().len() + 1);
        if announcement.proposal.is_some() && terms > MAX_ROUND_MESSAGE_BYTES as usize / 2 {
            let tensors = announcement.agreement.specs().len();
            return Err(format!("{tensors} private ranges are more than one round's terms carry"));
        }
        if announcement.seed.id() == *contribution {
            Ok(())
        } else {
            Err(format!("client {contributor}: its contribution id is not that of its seed"))
        }
    }

    /// Opens a round over clients with the same tensors, seeds of their own, and rounds near one another, once private
    /// ranges are there if the job has such.
    fn open(&mut self, _: u32, joined: &BTreeMap<u16, Vec<u8>>) -> Result<Readiness, String> {
        let Self { parts, private, openers } = self;
        if let Some(finder) = private {
            return finder.open(parts, joined);
        }
        let mut fitting = parts.join(joined)?;
        if let Some(openers) = openers {
            openers.begin(&parts.job, &mut fitting.terms)?;
        }
        Ok(parts.open_over(fitting, None, BTreeSet::new()))
    }

    fn openers(&mut self) -> Option<&mut dyn OpenerApplication> {
        self.openers.as_mut().map(|openers| openers as &mut dyn OpenerApplication)
    }
}

/// Returns all chunks in shards of about the same length.
fn shards(chunks: &Chunks) -> Vec<Range<u32>> {
    let count = chunks.count();
    let each = count.div_ceil(SHARDS).max(1);
    (0..count).step_by(each as usize).map(|start| start..count.min(start + each)).collect()
}

/// Returns the layout of contributions of these chunks.
fn layout(chunks: &Chunks) -> ChunkLayout {
    let chunk_bytes = NonZeroU32::new(chunks.geometry().chunk_bytes() as u32);
    ChunkLayout {
        chunk_bytes: chunk_bytes.unwrap_or(NonZeroU32::MIN),
        total_bytes: chunks.total_bytes() as u64,
    }
}

impl ChunkAdder for Accumulator {
    fn check(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        Accumulator::check(self, chunks, payload).map_err(|_| Refusal::InvalidCiphertext)
    }

    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        match Accumulator::add(self, chunks, payload) {
            Err(Error::Ciphertext { .. }) => Err(Refusal::InvalidCiphertext),
            // The contributor is not at fault where the engine fails: the sum is withheld then.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn finish(&mut self, chunk: u32, count: u32) -> Result<Vec<u8>, String> {
        Accumulator::finish(self, chunk, count).map_err(|e| e.to_string())
    }
}
