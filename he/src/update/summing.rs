//! Sums of whole contributions, one after the other.

use std::sync::Arc;

use ciphergram_accel::Engine;

use super::Accumulator;
use crate::{
    Agreement, Contribution, Error, JobId, PublicKey, Sum,
    contributors::{Contributor, ContributorSet, Distinct},
    error::{CiphertextFault, FrameError},
    job::Job,
    threshold::{KeyMessages, OpenAnswer, OpenRequest},
};

/// A sum of contributions, and of sums of others, that are given one by one, so that only one need be in memory.
///
/// What it refuses leaves it as it was: a round goes on without whoever sent that.
pub struct Summing {
    key: PublicKey,
    job: Job,
    engine: Arc<dyn Engine>,
    begun: Option<Begun>,
    contributors: Vec<Contributor>,
    distinct: Distinct,
}

/// What the first part settles for all others, and what they add up to.
struct Begun {
    round: u64,
    agreement: Agreement,
    accumulator: Accumulator,
    parts: Vec<SummedPart>,
    /// Where contributions are under secrets of their own.
    keys: Option<KeyMessages>,
}

/// Some that were added together: contributors in their order, all of them in each chunk, or in each chunk these.
struct SummedPart {
    count: usize,
    sets: Option<Vec<ContributorSet>>,
}

impl Summing {
    /// Makes the sum of nothing.
    ///
    /// # Errors
    /// A key that nothing can be summed under, or of another job.
    pub fn new(key: &PublicKey, job: &Job, engine: Arc<dyn Engine>) -> Result<Self, Error> {
        key.check_sums()?;
        job.check_key(key)?;
        let (key, job) = (key.clone(), job.clone());
        Ok(Self {
            key,
            job,
            engine,
            begun: None,
            contributors: vec![],
            distinct: Distinct::default(),
        })
    }

    /// Makes the sum of whole contributions given one by one. `name` says which one an error is about.
    ///
    /// # Errors
    /// Those of [`new`](Self::new) and [`add`](Self::add). The offender is named.
    pub fn of<'a, N: ToString>(
        key: &PublicKey,
        job: &Job,
        engine: Arc<dyn Engine>,
        contributions: impl IntoIterator<Item = (N, Result<Contribution<'a>, Error>)>,
    ) -> Result<Self, Error> {
        let mut summing = Self::new(key, job, engine)?;
        for (name, contribution) in contributions {
            contribution.and_then(|c| summing.add(&c)).map_err(|e| e.within(name))?;
        }
        Ok(summing)
    }

    /// Returns those whose contributions are in it.
    #[must_use]
    pub fn contributors(&self) -> &[Contributor] {
        &self.contributors
    }

    /// Adds a contribution.
    ///
    /// # Errors
    /// Another job's or round's, of a client that is in the sum or that the job has not, of other tensors or ranges
    /// than the first, or what is no ciphertext; the engine's, after which the sum is worth nothing.
    pub fn add(&mut self, contribution: &Contribution<'_>) -> Result<(), Error> {
        let Contribution { contributor, job, round, agreement, stream, keys } = contribution;
        let part = Given {
            job: *job,
            round: *round,
            agreement,
            contributors: std::slice::from_ref(contributor),
            sets: None,
            stream,
        };
        self.check_part(&part)?;
        let mut first = None;
        if self.job.openers().is_ok() {
            let messages = match self.begun.as_ref().and_then(|begun| begun.keys.as_ref()) {
                Some(messages) => messages,
                None => first.insert(KeyMessages::new(&self.key, &self.job, *round, agreement)?),
            };
            let (number, why) = (contributor.number, "it has no shares for openers");
            let message = keys.as_ref().ok_or(Error::Contributor { number, why })?;
            messages.check(contributor, message)?;
            let upload = blake3::hash(stream);
            KeyMessages::check_upload(contributor, message, upload.as_bytes())?;
        }
        self.add_part(part)?;
        if let (Some(begun), Some(message)) = (&mut self.begun, keys) {
            begun.keys = begun.keys.take().or(first);
            begun.keys.iter_mut().for_each(|known| known.take(*contributor, message.clone()));
        }
        Ok(())
    }

    /// Returns the request to each opener of the job for the sum of all that was added; none if the job has no openers.
    #[must_use]
    pub fn requests(&self) -> Vec<OpenRequest> {
        let keys = self.begun.as_ref().and_then(|begun| begun.keys.as_ref());
        keys.map_or_else(Vec::new, KeyMessages::requests)
    }

    /// Refuses an answer that its opener did not give about the sum of all that was added.
    ///
    /// # Errors
    /// [`Error::Opener`]; the job has no openers, or nothing was added.
    pub fn check_answer(&self, answer: &OpenAnswer) -> Result<(), Error> {
        let keys = self.begun.as_ref().and_then(|begun| begun.keys.as_ref());
        keys.ok_or(Error::NoOpeners)?.check_answer(answer)
    }

    /// Adds a sum of others, of however few.
    ///
    /// # Errors
    /// Those of [`add`](Self::add), and what is wrong with it as a sum.
    pub fn add_sum(&mut self, sum: &Sum) -> Result<(), Error> {
        sum.check_parts(&self.key, &self.job)?;
        if self.job.openers().is_ok() {
            let what = "a sum to be added, where openers ask for each contribution";
            return Err(FrameError::Malformed { what }.into());
        }
        let part = Given {
            job: sum.job,
            round: sum.round,
            agreement: &sum.agreement,
            contributors: &sum.contributors,
            sets: Some(&sum.sets),
            stream: &sum.stream,
        };
        self.check_part(&part)?;
        self.add_part(part)
    }

    /// Refuses a part that does not fit the job, or those before it.
    fn check_part(&self, part: &Given<'_>) -> Result<(), Error> {
        let Given { job, round, agreement, contributors, stream, .. } = *part;
        self.job.check_id(job)?;
        contributors.iter().try_for_each(|c| self.job.check_number(c.number))?;
        self.job.check_agreement(agreement)?;
        let (found, fields) = (stream.len(), agreement.fields(self.key.parameters()));
        let expected = self.key.parameters().chunks(fields).total_bytes();
        // Before anything is allocated: an agreement can claim any number of values.
        if found != expected {
            let fault = CiphertextFault::Length { found, expected };
            return Err(Error::Ciphertext { chunk: 0, fault });
        }
        if let Some(begun) = &self.begun {
            if round != begun.round {
                return Err(Error::AnotherRound { found: round, expected: begun.round });
            }
            agreement.check_same(&begun.agreement)?;
        }
        contributors.iter().try_for_each(|c| self.distinct.check_new(c))
    }

    /// Adds a part that is [checked](Self::check_part).
    fn add_part(&mut self, part: Given<'_>) -> Result<(), Error> {
        let Given { round, agreement, contributors, sets, stream, .. } = part;
        let part = SummedPart { count: contributors.len(), sets: sets.map(<[_]>::to_vec) };
        match &mut self.begun {
            Some(begun) => {
                begun.accumulator.add_stream(stream)?;
                begun.parts.push(part);
            }
            None => {
                let fields = agreement.fields(self.key.parameters());
                let mut accumulator = Accumulator::new(&self.key, self.engine.clone(), fields);
                accumulator.add_stream(stream)?;
                let (agreement, parts) = (agreement.clone(), vec![part]);
                self.begun = Some(Begun { round, agreement, accumulator, parts, keys: None });
            }
        }
        contributors.iter().try_for_each(|c| self.distinct.add(c))?;
        self.contributors.extend(contributors);
        Ok(())
    }

    /// Returns the sum of all that was added.
    ///
    /// # Errors
    /// Nothing was added; the engine's.
    pub fn finish(self) -> Result<Sum, Error> {
        let Begun { round, agreement, accumulator, parts, .. } =
            self.begun.ok_or(Error::NothingToSum)?;
        let (count, chunks) = (self.contributors.len(), accumulator.chunks().count() as usize);
        let sets = merge(&parts, count, chunks);
        let stream = accumulator.into_stream(&vec![parts.len() as u32; chunks])?;
        let (contributors, job) = (self.contributors, self.job.id());
        Ok(Sum { contributors, job, round, agreement, sets, stream })
    }
}

/// A contribution, or a sum, whose sets are of its contributors.
struct Given<'a> {
    job: JobId,
    round: u64,
    agreement: &'a Agreement,
    contributors: &'a [Contributor],
    sets: Option<&'a [ContributorSet]>,
    stream: &'a [u8],
}

/// Returns which of all `count` contributors each chunk is of.
fn merge(parts: &[SummedPart], count: usize, chunks: usize) -> Vec<ContributorSet> {
    if parts.iter().all(|part| part.sets.is_none()) {
        return vec![ContributorSet::all(count); chunks];
    }
    let mut sets = vec![ContributorSet::none(count); chunks];
    let mut first = 0;
    for part in parts {
        let all = ContributorSet::all(part.count);
        for (chunk, set) in sets.iter_mut().enumerate() {
            let own = part.sets.as_ref().map_or(&all, |sets| &sets[chunk]);
            own.iter().for_each(|index| set.insert(first + index));
        }
        first += part.count;
    }
    sets
}

/// Sums whole contributions: [`Summing::of`], and then [`Summing::finish`].
///
/// # Errors
/// Those of both.
pub fn aggregate<'a, N: ToString>(
    key: &PublicKey,
    job: &Job,
    engine: Arc<dyn Engine>,
    contributions: impl IntoIterator<Item = (N, Result<Contribution<'a>, Error>)>,
) -> Result<Sum, Error> {
    Summing::of(key, job, engine, contributions)?.finish()
}
