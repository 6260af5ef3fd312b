//! Private ranges of an aggregator's rounds: found while it goes on, and held for as many rounds as the job says.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver, TryRecvError},
    },
};

use ciphergram_he::{
    Error, TensorSpec,
    exchange::RoundTerms,
    job::PrivateRanges,
    private_ranges::{EncryptedRanges, RangesEvaluationKey},
};

use super::{Fitting, RoundParts};
use crate::round::Readiness;

/// Finds private ranges, and remembers those that hold.
pub(super) struct RangesFinder {
    private: PrivateRanges,
    key: Arc<RangesEvaluationKey>,
    finding: Option<Finding>,
    held: Option<HeldRanges>,
}

/// Ranges of those who joined, which take some seconds.
struct Finding {
    joined: BTreeMap<u16, Vec<u8>>,
    /// Levels found so far.
    done: Arc<AtomicU32>,
    /// Levels to find.
    levels: u32,
    found: Receiver<Result<EncryptedRanges, Error>>,
}

/// Progress of private ranges that are being found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangesProgress {
    /// Levels found so far, of all rows.
    pub done: u32,
    /// Levels to find.
    pub levels: u32,
}

/// Ranges that hold for some rounds.
struct HeldRanges {
    ranges: EncryptedRanges,
    specs: Vec<TensorSpec>,
    /// The round that they were found for, by the number in its terms.
    first_round: u64,
}

impl HeldRanges {
    /// Returns whether a round of these terms takes them as they are.
    fn hold_for(&self, terms: &RoundTerms, private: &PrivateRanges) -> bool {
        let end = self.first_round.saturating_add(private.agree_every.into());
        (self.first_round..end).contains(&terms.round) && self.specs == terms.agreement.specs()
    }
}

impl RangesFinder {
    /// Returns one that has found none yet.
    ///
    /// # Errors
    /// No key, or another than the job's.
    pub(super) fn new(
        private: PrivateRanges,
        key: Option<Arc<RangesEvaluationKey>>,
    ) -> Result<Self, Error> {
        let key = key.ok_or(Error::NoRangesKey)?;
        private.check_key(key.id())?;
        Ok(Self { private, key, finding: None, held: None })
    }

    /// Returns the progress of ranges, while they are found.
    pub(super) fn progress(&self) -> Option<RangesProgress> {
        let &Finding { ref done, levels, .. } = self.finding.as_ref()?;
        let done = done.load(Ordering::Relaxed);
        // Those that are all found may wait for clients.
        (done < levels).then_some(RangesProgress { done, levels })
    }

    /// Opens a round once its ranges are there. Whoever leaves before is not in it, though its range may be the one
    /// that was found; whoever joins meanwhile is late.
    ///
    /// # Errors
    /// Nobody fits; ranges could not be found.
    pub(super) fn open(
        &mut self,
        parts: &RoundParts,
        joined: &BTreeMap<u16, Vec<u8>>,
    ) -> Result<Readiness, String> {
        let Some(finding) = self.finding.take() else {
            return self.open_held_or_find(parts, joined);
        };
        let ranges = match finding.found.try_recv() {
            Err(TryRecvError::Empty) => {
                self.finding = Some(finding);
                return Ok(Readiness::Preparing { left_out: vec![] });
            }
            Err(TryRecvError::Disconnected) => Err("private ranges could not be found".into()),
            Ok(found) => found.map_err(|e| e.to_string()),
        }?;
        let (in_time, late): (BTreeMap<_, _>, BTreeMap<_, _>) = joined
            .clone()
            .into_iter()
            .partition(|(number, hello)| finding.joined.get(number) == Some(hello));
        if in_time.is_empty() {
            return self.open_held_or_find(parts, joined);
        }
        let fitting = parts.join(&in_time)?;
        self.held = Some(HeldRanges {
            ranges: ranges.clone(),
            specs: fitting.terms.agreement.specs().to_vec(),
            first_round: fitting.terms.round,
        });
        Ok(parts.open_over(fitting, Some(ranges), late.into_keys().collect()))
    }

    /// Opens a round with ranges that hold still, or begins to find those of the clients who joined and fit together,
    /// if they are as many as their rank.
    fn open_held_or_find(
        &mut self,
        parts: &RoundParts,
        joined: &BTreeMap<u16, Vec<u8>>,
    ) -> Result<Readiness, String> {
        let fitting = parts.join(joined)?;
        if let Some(held) = &self.held
            && held.hold_for(&fitting.terms, &self.private)
        {
            let ranges = held.ranges.clone();
            return Ok(parts.open_over(fitting, Some(ranges), BTreeSet::new()));
        }
        let Fitting { terms, announcements, left_out } = fitting;
        if self.private.check_count(terms.participants.len()).is_ok() {
            let mut joined = joined.clone();
            joined.retain(|number, _| left_out.iter().all(|(left, _)| left != number));
            let levels = self.private.total_levels(terms.agreement.specs().len()) as u32;
            let done = Arc::new(AtomicU32::new(0));
            let (sender, found) = mpsc::channel();
            let (key, job, counter) = (self.key.clone(), parts.job.clone(), done.clone());
            let find = move || {
                let count = |more| {
                    counter.fetch_add(more, Ordering::Relaxed);
                };
                // Fails only if nobody waits for it any more.
                let _ = sender.send(terms.find_ranges(&key, &job, &announcements, &count));
            };
            // On the threads that the caller computes on, as all else. A panic would end the process there: caught, it
            // leaves the receiver without a sender.
            rayon::spawn(|| drop(panic::catch_unwind(AssertUnwindSafe(find))));
            self.finding = Some(Finding { joined, done, levels, found });
        }
        Ok(Readiness::Preparing { left_out })
    }
}
