//! The aggregator's side of a scheme: who may join, and the running sums.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{
        Arc,
        mpsc::{self, Receiver, TryRecvError},
    },
    thread,
};

use ciphergram_accel::Engine;
use ciphergram_he::{
    Error, Job, PublicKey, TensorSpec,
    exchange::{Announcement, RoundTerms},
    job::PrivateRanges,
    params::{Chunks, MAX_CLIENTS},
    private_ranges::{EncryptedRanges, RangesEvaluationKey},
};

use crate::{
    proto::{Accumulator, ChunkLayout, Refusal, Shard},
    round::{Application, ContributionId, Opened, Readiness, message::MAX_ROUND_MESSAGE_BYTES},
};

/// The most bytes of all chunk sums of a round, each with its bitmap: one memory region.
const MAX_SUM_BYTES: usize = u32::MAX as usize;
/// Shards of a round, of about as many chunks each: the pipelines that may add at once.
const SHARDS: u32 = 16;

/// The note of a client that asks for other private ranges.
pub(super) const ASK_ANEW: &[u8] = &[1];

/// Sums updates encrypted under one key: the [`Application`] of a [`Server`](super::Server), also
/// for callers that drive an [`Aggregator`](crate::round::Aggregator) themselves.
pub struct SumApplication {
    key: PublicKey,
    job: Job,
    engine: Arc<dyn Engine>,
    /// The key that private ranges are found with, if the job has such.
    ranges_key: Option<Arc<RangesEvaluationKey>>,
    /// Private ranges that are being found.
    finding: Option<Finding>,
    /// Those that were found last.
    held: Option<Held>,
}

/// The private ranges of those who joined, which take a thread some seconds.
struct Finding {
    joined: BTreeMap<u16, Vec<u8>>,
    found: Receiver<Result<EncryptedRanges, Error>>,
}

/// Private ranges that hold for some rounds.
struct Held {
    ranges: EncryptedRanges,
    specs: Vec<TensorSpec>,
    /// The number of the first round, as clients count.
    since: u64,
    /// The number of that round here.
    opened: u32,
    /// Clients that ask for others.
    asking: BTreeSet<u16>,
}

impl Held {
    /// Returns whether they are those of another round too.
    fn hold_for(&self, terms: &RoundTerms, private: &PrivateRanges) -> bool {
        let rounds = self.since..self.since.saturating_add(private.agree_every.into());
        rounds.contains(&terms.round)
            && self.specs == terms.agreement.specs()
            && !private.agrees_anew(self.asking.len(), terms.participants.len())
    }
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
        let ranges_key = match job.private_ranges() {
            Ok(private) => {
                let ranges_key = ranges_key.ok_or(Error::NoRangesKey)?;
                private.check_key(ranges_key.id())?;
                Some(ranges_key)
            }
            Err(_) => None,
        };
        Ok(Self { key, job, engine, ranges_key, finding: None, held: None })
    }

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
        let values = terms.agreement.values();
        let chunks = self.key.parameters().chunks(values);
        let shards = shards(&chunks).into_iter().map(|own| {
            let (key, engine) = (&self.key, self.engine.clone());
            let sum = ciphergram_he::Accumulator::of_chunks(key, engine, values, own.clone());
            Shard { chunks: own, accumulator: Box::new(ShardSum { sum, failure: None }) }
        });
        let shards = shards.collect();
        let terms = terms.to_bytes(&self.key);
        Readiness::Ready(Opened { terms, layout: Box::new(chunks), shards, left_out, late })
    }

    /// Opens a round with private ranges that hold still, or begins to find those of the clients who joined and fit
    /// together, if they are as many as their rank.
    fn find_ranges(
        &mut self,
        key: Arc<RangesEvaluationKey>,
        joined: &BTreeMap<u16, Vec<u8>>,
    ) -> Result<Readiness, String> {
        let fitting = self.join(joined)?;
        let private = *self.job.private_ranges().map_err(|e| e.to_string())?;
        if let Some(held) = &self.held
            && held.hold_for(&fitting.terms, &private)
        {
            let ranges = held.ranges.clone();
            return Ok(self.open_over(fitting, Some(ranges), BTreeSet::new()));
        }
        let Fitting { terms, announcements, left_out } = fitting;
        if private.check_count(terms.participants.len()).is_ok() {
            let mut joined = joined.clone();
            joined.retain(|number, _| left_out.iter().all(|(left, _)| left != number));
            let job = self.job.clone();
            let (sender, found) = mpsc::channel();
            thread::spawn(move || {
                // Fails only if nobody waits for it any more.
                let _ = sender.send(terms.find_ranges(&key, &job, &announcements));
            });
            self.finding = Some(Finding { joined, found });
        }
        Ok(Readiness::Preparing { left_out })
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
            let announcement = Announcement::from_bytes(hello, &self.key)?;
            announcement.check(contributor, &self.job)?;
            Ok(announcement)
        };
        let announcement = read().map_err(|error| of_client(contributor, error))?;
        let values = announcement.agreement.values();
        let chunks = self.key.parameters().chunks(values);
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

    /// Opens a round over clients with the same tensors, seeds of their own, and rounds near one
    /// another. Private ranges are found on a thread meanwhile; whoever leaves before they are there is not in the
    /// round, though its range may be the one that was found.
    fn open(&mut self, round: u32, joined: &BTreeMap<u16, Vec<u8>>) -> Result<Readiness, String> {
        let Some(key) = self.ranges_key.clone() else {
            return Ok(self.open_over(self.join(joined)?, None, BTreeSet::new()));
        };
        let Some(finding) = &self.finding else { return self.find_ranges(key, joined) };
        let ranges = match finding.found.try_recv() {
            Err(TryRecvError::Empty) => return Ok(Readiness::Preparing { left_out: vec![] }),
            Err(TryRecvError::Disconnected) => Err("private ranges could not be found".into()),
            Ok(found) => found.map_err(|e| e.to_string()),
        };
        let proposed = self.finding.take().map(|finding| finding.joined).unwrap_or_default();
        let ranges = ranges?;
        let (in_time, late): (BTreeMap<_, _>, BTreeMap<_, _>) = joined
            .clone()
            .into_iter()
            .partition(|(number, hello)| proposed.get(number) == Some(hello));
        if in_time.is_empty() {
            return self.find_ranges(key, joined);
        }
        let fitting = self.join(&in_time)?;
        self.held = Some(Held {
            ranges: ranges.clone(),
            specs: fitting.terms.agreement.specs().to_vec(),
            since: fitting.terms.round,
            opened: round,
            asking: BTreeSet::new(),
        });
        Ok(self.open_over(fitting, Some(ranges), late.into_keys().collect()))
    }

    /// Hears a client that asks for other ranges than those of its round.
    fn take_note(&mut self, round: u32, contributor: u16, note: &[u8]) {
        if let Some(held) = self.held.as_mut().filter(|held| round >= held.opened)
            && note == ASK_ANEW
        {
            held.asking.insert(contributor);
        }
    }
}

/// Returns all chunks in shards of about the same length, none of which parts a group.
fn shards(chunks: &Chunks) -> Vec<Range<u32>> {
    let (count, mut all, mut start) = (chunks.count(), vec![], 0);
    let each = count.div_ceil(SHARDS).max(1);
    while start < count {
        let last = (start + each).min(count) - 1;
        let end = chunks.opening_with(last).end;
        all.push(start..end);
        start = end;
    }
    all
}

impl ChunkLayout for Chunks {
    fn chunk_count(&self) -> u32 {
        self.count()
    }

    fn chunk_bytes(&self, chunk: u32) -> usize {
        self.bytes_of(chunk)
    }

    fn chunk_offset(&self, chunk: u32) -> u64 {
        self.offset_of(chunk) as u64
    }

    fn group(&self, chunk: u32) -> Range<u32> {
        self.opening_with(chunk)
    }
}

/// The sum of one shard of a round.
struct ShardSum {
    sum: ciphergram_he::Accumulator,
    /// The engine's first failure; no sum leaves after it.
    failure: Option<String>,
}

impl Accumulator for ShardSum {
    fn check(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        self.sum.check(chunks, payload).map_err(|_| Refusal::InvalidCiphertext)
    }

    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        self.sum.add(chunks, payload).or_else(|error| match error {
            Error::Ciphertext { .. } => Err(Refusal::InvalidCiphertext),
            // The contributor is not at fault; the sums are withheld.
            error => {
                self.failure.get_or_insert(error.to_string());
                Ok(())
            }
        })
    }

    fn finish(&mut self, chunk: u32) -> Result<Vec<u8>, String> {
        match &self.failure {
            Some(why) => Err(why.clone()),
            None => self.sum.finish(chunk).map_err(|e| e.to_string()),
        }
    }
}
