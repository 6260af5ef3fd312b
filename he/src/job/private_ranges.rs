//! Private ranges of a job: how clients agree on them, propose theirs and open what is agreed.

use std::iter;

use zeroize::Zeroizing;

use super::Job;
use crate::{
    Agreement, Error, Update,
    codec::{Policy, Precision, RangesFile, norm},
    ids::KeyId,
    private_ranges::{
        EncryptedRanges, Levels, MAX_LEVELS, Proposal, RangesEvaluationKey, RangesSecret, Rank,
    },
};

/// How clients agree on ranges without showing theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateRanges {
    /// The rank of the range that is agreed on, among those of a round's clients.
    pub rank: Rank,
    /// The number of levels that ranges are told apart in, from the largest range down.
    pub levels: u8,
    /// The number of rounds that ranges hold for, from the one that they are agreed for: at least 1.
    pub agree_every: u32,
    /// The rank of the L2 norm that every client clips its update to, if they do.
    pub clip_norm: Option<Rank>,
    /// The name of the secret that clients share for it.
    pub key: KeyId,
}

impl PrivateRanges {
    /// Returns how ranges of a rank are agreed on unless more is asked for: in all levels, every round, and no norm.
    #[must_use]
    pub fn new(rank: Rank, key: KeyId) -> Self {
        Self { rank, levels: MAX_LEVELS, agree_every: 1, clip_norm: None, key }
    }

    /// Checks them, of a job of so many clients whose sums are of no fewer than `min_clients`.
    ///
    /// # Errors
    /// [`Error::Limits`].
    pub(super) fn check(&self, clients: u16, min_clients: u16) -> Result<(), Error> {
        let Self { rank, levels, agree_every, clip_norm, .. } = *self;
        let bad = |why: String| Err(Error::Limits { why });
        if !(1..=MAX_LEVELS).contains(&levels) {
            return bad(format!("{levels} levels of ranges; choose 1 to {MAX_LEVELS}"));
        }
        if agree_every == 0 {
            return bad("ranges that hold for 0 rounds; choose 1 or more".into());
        }
        for (what, rank) in [("range", Some(rank)), ("norm", clip_norm)] {
            let Some(Rank::Largest(k)) = rank else { continue };
            if !(1..=clients).contains(&k) {
                return bad(format!("the {what} of rank {k} among {clients} clients"));
            }
            if k > min_clients {
                return bad(format!(
                    "the {what} of rank {k}, where a round may have {min_clients} clients only: ask for more, or for \
                     a lower rank"
                ));
            }
        }
        Ok(())
    }

    /// Refuses another ranges key than the job's.
    ///
    /// # Errors
    /// [`Error::KeyMismatch`].
    pub fn check_key(&self, found: KeyId) -> Result<(), Error> {
        if found == self.key {
            return Ok(());
        }
        Err(Error::other_key("it is of ranges key", found, self.key))
    }

    /// Returns the secret that a key has, if it is the job's.
    ///
    /// # Errors
    /// There is none, or it is another.
    fn secret<'a>(&self, found: Option<&'a RangesSecret>) -> Result<&'a RangesSecret, Error> {
        let secret = found.ok_or(Error::NoRangesSecret)?;
        self.check_key(secret.id())?;
        Ok(secret)
    }

    /// Refuses a proposal of other levels than the job's, or of more or fewer rows than tensors need.
    ///
    /// # Errors
    /// [`Error::BeyondJob`].
    pub(crate) fn check_proposal(&self, proposal: &Proposal, tensors: usize) -> Result<(), Error> {
        let (found, admitted) = (proposal.levels(), self.levels);
        if found != admitted {
            let why = format!("ranges in {found} levels, the job's are {admitted}");
            return Err(Error::BeyondJob { why });
        }
        self.check_rows(proposal.rows(), tensors)
    }

    /// Returns the number of levels to find for this many tensors, which progress counts up to.
    #[must_use]
    pub fn total_levels(&self, tensors: usize) -> usize {
        self.rows(tensors) * usize::from(self.levels)
    }

    /// Returns the number of rows for this many tensors, and the norm.
    fn rows(&self, tensors: usize) -> usize {
        tensors + usize::from(self.clip_norm.is_some())
    }

    /// Refuses more or fewer rows than tensors need, and the norm.
    fn check_rows(&self, found: usize, tensors: usize) -> Result<(), Error> {
        let needed = self.rows(tensors);
        if found == needed {
            return Ok(());
        }
        let why = format!("{found} encrypted rows for {tensors} tensors, the job has {needed}");
        Err(Error::BeyondJob { why })
    }

    /// Refuses fewer proposals than a rank needs.
    ///
    /// # Errors
    /// [`Error::TooFewProposals`].
    pub fn check_count(&self, proposals: usize) -> Result<(), Error> {
        let ranks = iter::once(self.rank).chain(self.clip_norm);
        for rank in ranks.map(|rank| rank.among(proposals)) {
            if !(1..=proposals).contains(&rank) {
                return Err(Error::TooFewProposals { found: proposals, rank });
            }
        }
        Ok(())
    }

    /// Finds what is agreed among proposals for this many tensors that the job admits, on all cores. Calls `progress`
    /// with the number of levels found since its last call.
    ///
    /// # Errors
    /// An evaluation key of another job; fewer proposals than a rank needs.
    pub(crate) fn find(
        &self,
        key: &RangesEvaluationKey,
        tensors: usize,
        proposals: &[&Proposal],
        progress: &(dyn Fn(u32) + Sync),
    ) -> Result<EncryptedRanges, Error> {
        self.check_key(key.id())?;
        self.check_count(proposals.len())?;
        let ranks = iter::repeat_n(self.rank, tensors).chain(self.clip_norm);
        let ranks: Vec<_> = ranks.map(|rank| rank.among(proposals.len())).collect();
        Ok(key.find(proposals, &ranks, self.levels, progress))
    }
}

impl Job {
    /// Returns how clients agree on ranges without showing theirs.
    ///
    /// # Errors
    /// They show them: [`Error::RangesNotPrivate`].
    pub fn private_ranges(&self) -> Result<&PrivateRanges, Error> {
        self.limits.private_ranges.as_ref().ok_or(Error::RangesNotPrivate)
    }

    /// Measures an update: its ranges, as `policy` finds them, and its norm, if updates are clipped to a common one.
    ///
    /// # Errors
    /// As [`RangesFile::measure`]; the tensors make no agreement.
    pub(crate) fn measure(
        &self,
        update: &Update,
        policy: Policy,
        weight: u64,
    ) -> Result<Agreement, Error> {
        let own = RangesFile::measure(update, policy, weight)?.agreement()?;
        match self.limits.private_ranges {
            // No norm is below the largest value, so that what no double holds is beyond all levels.
            Some(PrivateRanges { clip_norm: Some(_), .. }) => {
                own.with_clip_norm(Some(norm(update)?.min(f64::MAX)))
            }
            _ => Ok(own),
        }
    }

    /// Encrypts ranges, and the norm beside them if there is one. What is beyond the highest level is proposed as that.
    ///
    /// # Errors
    /// Ranges are not private; no secret of them, or another than the job's; no randomness.
    pub(crate) fn propose_ranges(
        &self,
        secret: Option<&RangesSecret>,
        own: &Agreement,
    ) -> Result<Proposal, Error> {
        let private = self.private_ranges()?;
        let secret = private.secret(secret)?;
        let levels = self.levels(private);
        let ranges = own.ranges().iter().map(|&range| levels.level(range));
        let norm = own.clip_norm().map(|norm| self.norm_levels(private, own.values()).level(norm));
        let mut rows = Zeroizing::new(Vec::with_capacity(own.ranges().len() + 1));
        rows.extend(ranges.chain(norm));
        Proposal::new(secret, private.levels, &rows)
    }

    /// Opens ranges that were found for the tensors of an agreement, and the norm beside them: all are those of levels,
    /// whatever was found, but those of exact integers, which are the [largest](Self::largest_ranges).
    ///
    /// # Errors
    /// Ranges are not private; no secret of them, or another than the job's; more or fewer than the tensors.
    pub(crate) fn open_ranges(
        &self,
        secret: Option<&RangesSecret>,
        found: &EncryptedRanges,
        agreement: &Agreement,
    ) -> Result<Agreement, Error> {
        let private = self.private_ranges()?;
        let secret = private.secret(secret)?;
        private.check_rows(found.rows(), agreement.specs().len())?;
        let mut rows = found.open(secret);
        let norm = private.clip_norm.and_then(|_| rows.pop());
        let levels = self.levels(private);
        let range = |(level, (largest, &precision)): (usize, (f64, &Precision))| match precision {
            // The number of their fields, which whoever adds them has to know, would tell of it.
            Precision::Exact => largest,
            Precision::Key | Precision::Bits(_) => levels.range(level),
        };
        let tensors = self.largest_ranges(agreement).into_iter().zip(agreement.precisions());
        let ranges = rows.into_iter().zip(tensors).map(range).collect();
        let agreement = agreement.with_ranges(ranges)?;
        let norm = norm.map(|level| self.norm_levels(private, agreement.values()).range(level));
        agreement.with_clip_norm(norm)
    }

    /// Returns the levels of ranges.
    fn levels(&self, private: &PrivateRanges) -> Levels {
        Levels::new(private.levels, self.limits.max_range)
    }

    /// Returns the levels of norms: the highest is that of an update whose values are all of the largest range.
    fn norm_levels(&self, private: &PrivateRanges, values: usize) -> Levels {
        let largest = self.limits.max_range * (values.max(1) as f64).sqrt();
        Levels::new(private.levels, largest.min(f64::MAX))
    }

    /// Refuses an agreement without the norm that the job has, or with one that it has not.
    ///
    /// # Errors
    /// [`Error::BeyondJob`].
    pub(super) fn check_clip_norm(&self, agreement: &Agreement) -> Result<(), Error> {
        let has_one = self.limits.private_ranges.is_some_and(|private| private.clip_norm.is_some());
        let why = match (has_one, agreement.clip_norm()) {
            (true, None) => "no norm that updates are clipped to, which the job has".into(),
            (false, Some(norm)) => {
                format!("updates clipped to a norm of {norm}, which the job has not")
            }
            _ => return Ok(()),
        };
        Err(Error::BeyondJob { why })
    }
}
