//! The exchange before a round: each client's announcement, and the round terms that answer them.
//!
//! A client proposes what the job leaves open: for each tensor whose range is not settled the largest magnitude,
//! rounded up to a power of two, and, unless all ranges are settled, its weight. **A proposal reveals just that**
//! to the aggregator and to the other clients, beside the tensors' names, types and shapes; under a job with
//! ranges nothing of a single client is revealed. It also says the lowest number that the round may have for it.
//! The terms take the largest of all, and each client checks them against the job and its own proposal.
//!
//! Under a job with private ranges a client proposes them encrypted, and the terms carry those that are agreed,
//! encrypted too: in clear both have the largest range of the job for every tensor, until a client opens them.

use std::{cmp::Reverse, collections::BTreeMap};

use super::frame::{self, Header, Kind};
use crate::{
    Agreement, Error, KeyRef, PublicKey, Scheme, Update,
    bytes::Reader,
    codec::{OpenedRound, Policy, Precision, round_up_to_power_of_two},
    contributors::{Contributor, Distinct},
    error::FrameError,
    ids::{JobId, Seed},
    job::Job,
    private_ranges::{EncryptedRanges, Proposal, RangesEvaluationKey, RangesSecret},
    threshold::Prekey,
};

/// The most that a client's lowest round may be above that of all others.
const MAX_ROUNDS_AHEAD: u64 = 64;
/// The factor from which on ranges that others proposed are worth a word: ten bits of sixteen, say.
const COARSE: f64 = 1024.0;
/// The most that a round may be above a client's lowest: nobody's lie takes all numbers that there are.
const MAX_ROUNDS_SKIPPED: u64 = 1 << 32;

/// A client's announcement when it joins.
#[derive(Debug, Clone, PartialEq)]
pub struct Announcement {
    /// The contribution that is coming.
    pub seed: Seed,
    /// The job.
    pub job: JobId,
    /// The lowest number of a round that the client still contributes to.
    pub lowest_round: u64,
    /// Tensors, ranges and the largest weight.
    pub agreement: Agreement,
    /// The client's ranges, encrypted, under a job with private ones.
    pub proposal: Option<Proposal>,
}

impl Announcement {
    /// Makes a client's own proposal, within the job; of private ranges with the secret beside its key. From the ledger
    /// come the lowest round that it still contributes to and the last that it opened.
    ///
    /// # Errors
    /// A value is not finite or, unless ranges are private, beyond the largest range of the job; the weight is not from
    /// 1 to the job's largest; other tensors than the job settles; private ranges, and no secret of them or another
    /// than the job's.
    pub fn propose(
        seed: Seed,
        job: &Job,
        (lowest_round, opened): (u64, Option<OpenedRound>),
        update: &Update,
        weight: u64,
        secret: Option<&RangesSecret>,
    ) -> Result<Self, Error> {
        let own = job.measure(update, Policy::Max, weight)?;
        let is_private = job.private_ranges().is_ok();
        let proposal = is_private.then(|| job.propose_ranges(secret, &own)).transpose()?;
        let largest = job.largest_ranges(&own);
        // What is beyond the job stays so, and is refused below.
        let told =
            |(&own, largest): (&f64, f64)| own.max(round_up_to_power_of_two(own).min(largest));
        let ranges = match is_private {
            true => largest,
            false => own.ranges().iter().zip(largest).map(told).collect(),
        };
        let max_weight = if is_private { job.limits().max_weight } else { own.max_weight() };
        let announced =
            own.with(own.precisions().to_vec(), ranges, max_weight)?.with_clip_norm(None)?;
        let agreement = job.settle(&announced)?;
        agreement.check_weight(weight)?;
        job.check_announced(&agreement)?;
        agreement.check_covers(&own)?;
        let agreement = agreement.with_opened(opened);
        Ok(Self { seed, job: job.id(), lowest_round, agreement, proposal })
    }

    /// Makes it one of the terms that this client seals under: it asks for no others from then on. Private ranges are
    /// proposed anew, as those that were agreed, so that clients who all sealed under them agree on them again.
    ///
    /// # Errors
    /// Private ranges, and no secret of them; no randomness.
    pub fn seal_under(
        &mut self,
        terms: &RoundTerms,
        job: &Job,
        secret: Option<&RangesSecret>,
    ) -> Result<(), Error> {
        if self.proposal.is_some() {
            self.proposal = Some(job.propose_ranges(secret, &terms.agreement)?);
        }
        self.lowest_round = terms.round;
        self.agreement = terms.agreement.clone();
        Ok(())
    }

    /// Returns the same announcement as others may see it, whatever it was sealed under: under a job with private
    /// ranges every one is the largest of the job.
    ///
    /// # Errors
    /// As [`Agreement::new`], of the job's largest range.
    pub fn without_private_ranges(&self, job: &Job) -> Result<Self, Error> {
        let mut shown = self.clone();
        if self.proposal.is_some() {
            let ranges = job.largest_ranges(&self.agreement);
            shown.agreement = self.agreement.with_ranges(ranges)?.with_clip_norm(None)?;
        }
        Ok(shown)
    }

    /// Returns the frame.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        let header =
            Header::of_sums(Kind::Announcement, key, self.agreement.fields(key.parameters()));
        frame::seal(&header, 1024, |w| {
            self.seed.write(w);
            self.job.write(w);
            w.u64(self.lowest_round);
            self.agreement.write(w);
            self.proposal.iter().for_each(|proposal| proposal.write(w));
        })
    }

    /// Reads a frame made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be.
    pub fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, Error> {
        let frame = frame::open(bytes, Kind::Announcement, key)?;
        let mut r = Reader(frame.body);
        let seed = Seed::read(&mut r)?;
        let (job, lowest_round) = (JobId::read(&mut r)?, r.u64()?);
        let agreement = Agreement::read(&mut r)?;
        let proposal = (!r.0.is_empty()).then(|| Proposal::read(&mut r)).transpose()?;
        r.end()?;
        frame.chunks_of(&agreement)?;
        Ok(Self { seed, job, lowest_round, agreement, proposal })
    }

    /// Refuses an announcement that the job does not admit, whoever else takes part.
    ///
    /// # Errors
    /// Of another job, or beyond it.
    pub fn check(&self, number: u16, job: &Job) -> Result<(), Error> {
        job.check_id(self.job)?;
        job.check_number(number)?;
        job.check_announced(&self.agreement)?;
        if self.agreement.opened().is_some_and(|opened| opened.round >= self.lowest_round) {
            let why = "a sum that was opened of a round that is still to come".into();
            return Err(Error::BeyondJob { why });
        }
        match (job.private_ranges(), &self.proposal) {
            (Ok(private), Some(proposal)) => {
                if self.agreement.ranges() != job.largest_ranges(&self.agreement) {
                    let why = "ranges in clear, where the job has private ones".into();
                    return Err(Error::BeyondJob { why });
                }
                private.check_proposal(proposal, self.agreement.specs().len())
            }
            (Ok(_), None) => {
                let why = "no proposal of private ranges, which the job agrees on".into();
                Err(Error::BeyondJob { why })
            }
            (Err(not_private), Some(_)) => Err(not_private),
            (Err(_), None) => Ok(()),
        }
    }
}

/// An aggregator's answer when a round opens.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundTerms {
    /// The round's number.
    pub round: u64,
    /// The agreement that everyone quantises by.
    pub agreement: Agreement,
    /// The contributors, ascending by number.
    pub participants: Vec<Contributor>,
    /// The ranges that are agreed, encrypted, under a job with private ones, until a client opens them.
    pub private_ranges: Option<EncryptedRanges>,
    /// The latest prekey known of each opener of the job, if it has openers.
    pub prekeys: Vec<Prekey>,
}

/// Round terms, and who is left out of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// The terms of all others.
    pub terms: RoundTerms,
    /// The clients that cannot take part, each with the reason.
    pub left_out: Vec<(u16, Error)>,
}

/// Returns the agreement whose layout most have, on a tie the first: one liar does not set the measure.
fn commonest_layout<'a>(agreements: &[&'a Agreement]) -> Option<&'a Agreement> {
    let mut found: Vec<(&Agreement, usize)> = vec![];
    for agreement in agreements {
        match found.iter_mut().find(|(first, _)| first.check_same_layout(agreement).is_ok()) {
            Some((_, count)) => *count += 1,
            None => found.push((agreement, 1)),
        }
    }
    found.into_iter().rev().max_by_key(|(_, count)| *count).map(|(agreement, _)| agreement)
}

/// Returns the latest round that any opened, and the sum that most of those opened it to, on a tie the first.
fn usual_sum(agreements: &[&Agreement]) -> Option<OpenedRound> {
    let opened = || agreements.iter().filter_map(|agreement| agreement.opened());
    let latest = opened().map(|opened| opened.round).max()?;
    let mut counts: BTreeMap<[u8; 32], (usize, Reverse<usize>)> = BTreeMap::new();
    for (place, opened) in opened().enumerate().filter(|(_, opened)| opened.round == latest) {
        counts.entry(opened.sum).or_insert((0, Reverse(place))).0 += 1;
    }
    let (sum, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    Some(OpenedRound { round: latest, sum })
}

impl RoundTerms {
    /// Joins announcements, given with their clients' numbers: the largest range of each tensor, the largest
    /// weight, and the largest of the lowest rounds.
    ///
    /// Private ranges are for the caller to [find](Self::find_ranges), and to put in.
    ///
    /// Left out is whoever is beyond the job; whoever has other tensors than the job, or, if it settles none, than
    /// most others, on a tie than the client with the lowest number; whoever announces another's seed; and whoever
    /// is more than 64 rounds above all others, or opened another sum of a round than most.
    ///
    /// # Errors
    /// Nobody is left.
    pub fn join(job: &Job, announcements: &[(u16, Announcement)]) -> Result<Joined, Error> {
        let mut left_out = vec![];
        let mut admitted = BTreeMap::new();
        let (mut distinct, mut proposals) = (Distinct::default(), Distinct::default());
        let mut sorted: Vec<_> = announcements.iter().collect();
        sorted.sort_by_key(|(number, _)| *number);
        sorted.retain(|(number, a)| match a.check(*number, job) {
            Ok(()) => true,
            Err(error) => {
                left_out.push((*number, error));
                false
            }
        });
        let all: Vec<_> = sorted.iter().map(|(_, a)| &a.agreement).collect();
        let (usual, last) = (commonest_layout(&all), usual_sum(&all));
        for (number, a) in sorted {
            let number = *number;
            let mut check = || {
                if let Some(usual) = usual {
                    usual.check_same_layout(&a.agreement)?;
                }
                a.agreement.check_opened(last)?;
                if let Some(proposal) = &a.proposal {
                    proposals.add(&Contributor { number, seed: proposal.seed() })?;
                }
                distinct.add(&Contributor { number, seed: a.seed })
            };
            match check() {
                Ok(()) => {
                    admitted.insert(number, a);
                }
                Err(error) => left_out.push((number, error)),
            }
        }
        // Of two that are far ahead neither is seen: a round's number is theirs to waste.
        let mut rounds: Vec<_> = admitted.iter().map(|(&n, a)| (a.lowest_round, n)).collect();
        rounds.sort_unstable();
        if let [.., (second, _), (round, number)] = rounds[..]
            && round - second > MAX_ROUNDS_AHEAD
        {
            admitted.remove(&number);
            left_out.push((number, Error::RoundAhead { round, others: second }));
        }
        if let (true, Some((number, error))) = (admitted.is_empty(), left_out.first()) {
            return Err(error.clone().within(format!("client {number}")));
        }
        let agreement = Agreement::largest(admitted.values().map(|a| &a.agreement))?;
        let agreement = agreement.with_opened(last);
        let round = admitted.values().map(|a| a.lowest_round).max().unwrap_or(0);
        let participants =
            admitted.iter().map(|(&number, a)| Contributor { number, seed: a.seed }).collect();
        let terms = Self { round, agreement, participants, private_ranges: None, prekeys: vec![] };
        Ok(Joined { terms, left_out })
    }

    /// Finds the private ranges of those who take part, on all cores. Calls `progress` with the number of levels found
    /// since its last call.
    ///
    /// # Errors
    /// The job agrees on no private ranges; an evaluation key of another job; fewer take part than the job's rank.
    pub fn find_ranges(
        &self,
        key: &RangesEvaluationKey,
        job: &Job,
        announcements: &[(u16, Announcement)],
        progress: &(dyn Fn(u32) + Sync),
    ) -> Result<EncryptedRanges, Error> {
        let takes_part =
            |number: u16, seed: Seed| self.participants.contains(&Contributor { number, seed });
        let proposals: Vec<_> = announcements
            .iter()
            .filter(|(number, announcement)| takes_part(*number, announcement.seed))
            .filter_map(|(_, announcement)| announcement.proposal.as_ref())
            .collect();
        job.private_ranges()?.find(key, self.agreement.specs().len(), &proposals, progress)
    }

    /// Opens the ranges, if they are private, with the secret beside the client's key: from then on the agreement is
    /// the one that is sealed under. A client that has `sealed` keeps to that agreement and opens nothing more: from
    /// what it does next whoever made the terms would learn of its secret.
    ///
    /// # Errors
    /// The job's ranges are private and those of the terms are not, or the other way round; no secret of them; other
    /// tensors than were sealed.
    pub fn opened(
        mut self,
        job: &Job,
        secret: Option<&RangesSecret>,
        sealed: Option<&Agreement>,
    ) -> Result<Self, Error> {
        let bad = |why: &str| Err(Error::Terms { why: why.into() });
        match (job.private_ranges(), self.private_ranges.take()) {
            (Ok(_), Some(_)) if let Some(sealed) = sealed => {
                self.agreement.check_same_layout(sealed)?;
                self.agreement = sealed.clone();
                Ok(self)
            }
            (Ok(_), Some(ranges)) => {
                self.agreement = job.open_ranges(secret, &ranges, &self.agreement)?;
                Ok(self)
            }
            (Ok(_), None) => bad("they have no private ranges, which the job agrees on"),
            (Err(_), Some(_)) => bad("they have private ranges, which the job does not agree on"),
            (Err(_), None) => Ok(self),
        }
    }

    /// Refuses terms, with ranges that are [opened](Self::opened), under which a client must not contribute what it
    /// announced: it is not listed with its seed; the round is below its lowest; they are beyond the job, or, unless
    /// ranges are private, a range or weight is below its own proposal; they leave out the sum that it opened last,
    /// name another one of its round, or one that no client opened.
    ///
    /// # Errors
    /// The first of these.
    pub fn check(&self, key: KeyRef<'_>, own: &Announcement, job: &Job) -> Result<(), Error> {
        let bad = |why: &str| Err(Error::Terms { why: why.into() });
        let contributor = Contributor { number: key.number(), seed: own.seed };
        if !self.participants.contains(&contributor) {
            return bad("they do not list this contribution");
        }
        self.participants.iter().try_for_each(|c| job.check_number(c.number))?;
        if self.round < own.lowest_round {
            return bad("the round is one that this client has contributed to");
        }
        if self.round - own.lowest_round > MAX_ROUNDS_SKIPPED {
            return bad("the round is more than 2^32 after this client's last");
        }
        job.terms(self.round, &self.agreement)?;
        self.agreement.check_same_layout(&own.agreement)?;
        let mut ranges = self.agreement.ranges().iter().zip(own.agreement.ranges());
        let is_told = job.private_ranges().is_err();
        if is_told && ranges.any(|(range, own)| range < own)
            || self.agreement.max_weight() < own.agreement.max_weight()
        {
            return bad("a range or the largest weight is below what this client proposed");
        }
        let last = self.agreement.opened();
        if own.agreement.opened().map(|own| own.round) > last.map(|last| last.round) {
            return bad("they leave out the sum that this client opened last");
        }
        if let Some(opened) = last
            && (opened.round >= self.round || !key.tag_key()?.vouches_for(&opened))
        {
            return bad("they name a sum that no client opened");
        }
        own.agreement.check_opened(last)
    }

    /// Returns the tensor that other clients coarsen most, and by what factor its range is above the one that this
    /// client proposed, if by so much that most of its digits may be lost: whoever proposed that may have lied.
    #[must_use]
    pub fn coarsest(&self, own: &Announcement) -> Option<(&str, f64)> {
        let each = self.agreement.specs().iter().zip(self.agreement.precisions());
        let ranges = self.agreement.ranges().iter().zip(own.agreement.ranges());
        let factors = each.zip(ranges).filter_map(|((spec, precision), (agreed, own))| {
            let is_rounded = *precision != Precision::Exact && *own > 0.0;
            is_rounded.then(|| (spec.name.as_str(), agreed / own))
        });
        let most = factors.max_by(|(_, a), (_, b)| a.total_cmp(b));
        most.filter(|(_, factor)| *factor >= COARSE)
    }

    /// Returns the frame.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        let header =
            Header::of_sums(Kind::RoundTerms, key, self.agreement.fields(key.parameters()));
        frame::seal(&header, 4096, |w| {
            w.u64(self.round);
            w.u16(self.participants.len() as u16);
            self.participants.iter().for_each(|participant| participant.write(w));
            self.agreement.write(w);
            self.private_ranges.iter().for_each(|ranges| ranges.write(w));
            self.prekeys.iter().for_each(|prekey| prekey.write(w));
        })
    }

    /// Reads a frame made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be, or it lists more
    /// participants than the key admits.
    pub fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, Error> {
        let frame = frame::open(bytes, Kind::RoundTerms, key)?;
        let mut r = Reader(frame.body);
        let round = r.u64()?;
        let (found, admitted) = (usize::from(r.u16()?), key.parameters().clients() as usize);
        if found > admitted {
            return Err(Error::TooManyContributors { found, admitted });
        }
        let participants =
            (0..found).map(|_| Contributor::read(&mut r)).collect::<Result<Vec<_>, _>>()?;
        if !participants.is_sorted_by(|a, b| a.number < b.number) {
            return Err(FrameError::Malformed { what: "participants out of order" }.into());
        }
        Distinct::check(&participants)?;
        let agreement = Agreement::read(&mut r)?;
        let (mut private_ranges, mut prekeys) = (None, vec![]);
        // No job has both.
        if key.parameters().scheme() == Scheme::CkksSumThreshold {
            while !r.0.is_empty() {
                prekeys.push(Prekey::read(&mut r)?);
            }
        } else if !r.0.is_empty() {
            private_ranges = Some(EncryptedRanges::read(&mut r)?);
        }
        r.end()?;
        frame.chunks_of(&agreement)?;
        Ok(Self { round, agreement, participants, private_ranges, prekeys })
    }
}
