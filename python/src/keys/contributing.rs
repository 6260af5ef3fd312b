//! An update that is encrypted or proposed, and under what terms.

use ciphergram_he::{self as he, KeyRef};
use pyo3::prelude::*;

use super::{PyPublicKey, Use};
use crate::{
    arrays,
    contribution::PyContribution,
    engines::engine,
    errors::{Error, Result, warn, warn_clipped},
    exchange::{PyAnnouncement, PyRoundTerms},
    job::PyJob,
    pool::run,
    ranges::{self, PyRanges},
};

/// What is encrypted, and under what terms.
pub(super) struct Contributing<'a, 'py> {
    pub(super) tensors: &'a Bound<'py, PyAny>,
    pub(super) ranges: Option<&'a Bound<'py, PyAny>>,
    pub(super) weight: Option<u64>,
    pub(super) round: Option<u64>,
    pub(super) max_weight: Option<u32>,
    pub(super) clip: Option<f64>,
    pub(super) integers: &'a str,
    pub(super) terms: Option<&'a PyRoundTerms>,
    pub(super) announcement: Option<&'a PyAnnouncement>,
    pub(super) job: Option<&'a PyJob>,
    pub(super) engine: &'a str,
}

impl Contributing<'_, '_> {
    /// Takes the tensors, which are not clipped yet.
    fn update(&self) -> Result<he::Update> {
        arrays::check_clip(self.clip)?;
        arrays::take(self.tensors, arrays::integers(self.integers)?)
    }

    /// Returns the number of the round, if it is not the next one, and the agreement that it is sealed under.
    fn settle(
        &self,
        job: &he::Job,
        key: KeyRef<'_>,
        update: &he::Update,
    ) -> Result<(Option<u64>, he::Agreement)> {
        match (self.terms, self.announcement) {
            (Some(terms), Some(own)) => {
                let terms = terms.terms.clone().opened(job, key.ranges_secret(), None)?;
                terms.check(key, &own.announcement, job)?;
                Ok((Some(terms.round), terms.agreement))
            }
            (None, None) => {
                let ranges = (self.ranges, self.max_weight);
                Ok((
                    self.round,
                    ranges::agreement(ranges, self.weight.is_some(), job, &update.specs())?,
                ))
            }
            _ => Err(Error::parameter("terms= and announcement= belong together")),
        }
    }

    pub(super) fn encrypt(
        &self,
        py: Python<'_>,
        key: KeyRef<'_>,
        used: &Use,
    ) -> Result<PyContribution> {
        let (job, mut update) = (used.job(self.job)?, self.update()?);
        let (engine, ledger) = (engine(self.engine)?, used.ledger()?);
        let member = he::Member::new(key, &job, &ledger, engine);
        let (weight, clip) = (self.weight.unwrap_or(1), self.clip);
        let (round, agreement) = self.settle(&job, key, &update)?;
        // Who said a largest weight, here or in ranges that are shared, meant it.
        let is_shared = self.ranges.is_some_and(|ranges| ranges.is_instance_of::<PyRanges>());
        if self.max_weight.is_none() && self.terms.is_none() && !is_shared {
            let bits = key.public().parameters().bits();
            warn(py, coarse(weight, agreement.max_weight(), bits).as_deref())?;
        }
        let public = PyPublicKey { key: key.public().clone(), job: Some(job.clone()) };
        let (contribution, clipped) = run(py, || {
            let outside = clip.map(|limit| update.clip(limit)).transpose()?;
            let sealer = member.seal(&update, weight, &agreement, round)?;
            let (round, clipped) = (sealer.round(), sealer.clipped().to_vec());
            let mut bytes = Vec::with_capacity(sealer.chunks().total_bytes() + 4096);
            sealer.write_to(&mut bytes)?;
            let most = he::codec::most_clipped(&outside.unwrap_or_default(), &clipped);
            Ok((PyContribution::encrypted(bytes, &member, round, agreement, most, public), clipped))
        })?;
        warn_clipped(py, &clipped);
        Ok(contribution)
    }

    pub(super) fn propose(
        &self,
        py: Python<'_>,
        key: KeyRef<'_>,
        used: &Use,
    ) -> Result<PyAnnouncement> {
        let (job, mut update) = (used.job(self.job)?, self.update()?);
        let ledger = used.ledger()?;
        let member = he::Member::new(key, &job, &ledger, engine(self.engine)?);
        // The exact weight stays with the client.
        let largest = u64::from(job.limits().max_weight);
        let exact = self.weight.unwrap_or(1);
        let weight = exact.checked_next_power_of_two().unwrap_or(exact);
        let weight = if exact <= largest { weight.min(largest) } else { exact };
        let clip = self.clip;
        let announcement = run(py, || {
            clip.map(|limit| update.clip(limit)).transpose()?;
            Ok(member.propose(he::Seed::draw()?, &update, weight)?)
        })?;
        Ok(PyAnnouncement::new(announcement, key.number(), key.public()))
    }
}

/// Returns what to warn of where a weight is so far below the largest that values lose more than four bits.
fn coarse(weight: u64, max_weight: u32, bits: u32) -> Option<String> {
    let lost = (f64::from(max_weight) / weight as f64).log2();
    (lost > 4.0).then(|| {
        let left = (f64::from(bits) - lost).max(0.0);
        format!(
            "weights up to {max_weight} leave {left:.0} of {bits} bits of a value of this weight: say max_weight=, the \
             largest of any client, of the job or here"
        )
    })
}

impl<'a, 'py> Contributing<'a, 'py> {
    /// Returns what a proposal is made of.
    pub(super) fn proposed(
        tensors: &'a Bound<'py, PyAny>,
        weight: u64,
        clip: Option<f64>,
        integers: &'a str,
        job: Option<&'a PyJob>,
    ) -> Self {
        Self {
            tensors,
            ranges: None,
            weight: Some(weight),
            round: None,
            max_weight: None,
            clip,
            integers,
            terms: None,
            announcement: None,
            job,
            engine: "cpu",
        }
    }
}
