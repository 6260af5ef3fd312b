//! Jobs: what clients agree on once, before any round, and hold the aggregator to.
//!
//! A job names its key, how many clients it has, the fewest whose sum is opened, and the largest weight and
//! range; it may settle tensors, and their ranges. It is made by one party and given to all by means of their
//! own, as the key is. Its id is a hash over all of it. What is sealed in a round is sealed under the
//! round's [`Statement`], of which the job is a part: a sum of contributions that were sealed under other terms
//! does not open.

mod json;
mod limits;
mod private_ranges;

use std::{path::Path, sync::Arc};

use ciphergram_accel::random::StreamRng;
pub use limits::{AllowedNode, Budget, Limits, NoiseLimits, SettledTensor, usual_min_clients};
pub use private_ranges::PrivateRanges;

use crate::{
    Agreement, Error, Parameters, PublicKey, Quantised, TensorSpec, Update,
    bytes::Writer,
    codec::{MOST, Precision, TensorBits, check_layout},
    dp::Noise,
    files::{beside, read_text, write_new},
    ids::{JobId, KeyId, Statement},
    random,
    tensors::Dtype,
    threshold::Openers,
};

/// A job: see the [module](self).
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Drawn for it, so that no two jobs are the same.
    nonce: [u8; 16],
    key: KeyId,
    limits: Limits,
    /// The fewest contributors that this party opens a sum of.
    min_clients: u16,
    /// The fewest that it may ask for.
    fewest: u16,
    noise: Option<Noise>,
}

impl Job {
    /// Makes a job under a key.
    ///
    /// # Errors
    /// [`Error::Limits`], or no randomness.
    pub fn new(key: &PublicKey, limits: Limits) -> Result<Self, Error> {
        Self::of_parts(*random::bytes()?, key.id(), limits, key)
    }

    fn of_parts(
        nonce: [u8; 16],
        own: KeyId,
        limits: Limits,
        key: &PublicKey,
    ) -> Result<Self, Error> {
        let (min_clients, noise) = (limits.min_clients, limits.noise()?);
        let fewest = key.parameters().fewest_contributors(limits.clients) as u16;
        let job = Self { nonce, key: own, limits, min_clients, fewest, noise };
        job.check_key(key)?;
        job.limits.check(key)?;
        Ok(job)
    }

    /// Reads a job's file.
    ///
    /// # Errors
    /// It is missing, no job, or of another key.
    pub fn load(path: &Path, key: &PublicKey) -> Result<Self, Error> {
        let read = || Self::from_json(&read_text("job file", path)?, key);
        read().map_err(|e| e.within(path.display()))
    }

    /// Reads the job that a key is used under: the one named, or else `job.json` beside the key's file or, for a key in
    /// `clients/`, in the folder above.
    ///
    /// # Errors
    /// No update is summed under the key; [`Error::NoJob`]; those of [`load`](Self::load).
    pub fn of_key(key_path: &Path, key: &PublicKey, named: Option<&Path>) -> Result<Self, Error> {
        key.check_sums().map_err(|e| e.within(key_path.display()))?;
        let path = named.map_or_else(|| beside(key_path, "job.json"), Path::to_path_buf);
        if named.is_none() && !path.exists() {
            return Err(Error::NoJob.within(path.display()));
        }
        Self::load(&path, key)
    }

    /// Writes the job's file.
    ///
    /// # Errors
    /// The path exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        write_new(path, self.to_json()?.as_bytes(), 0o644)
    }

    /// Returns the same job, of which this party opens no sum of fewer than `min_clients`, whatever the job says; but
    /// with noise, which is sized for the job's minimum, no fewer than that, and never fewer than leave a sum's secret
    /// its 128 bits.
    #[must_use]
    pub fn requiring(self, min_clients: u16) -> Self {
        let fewest = if self.noise.is_some() { self.limits.min_clients } else { self.fewest };
        Self { min_clients: min_clients.max(fewest), ..self }
    }

    /// Returns its name, a hash over all that it says.
    #[must_use]
    pub fn id(&self) -> JobId {
        name(&self.nonce, &self.key, &self.limits)
    }

    /// Returns what it limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the fewest contributors that this party opens a sum of.
    #[must_use]
    pub fn min_clients(&self) -> u16 {
        self.min_clients
    }

    /// Refuses another key than the job's.
    ///
    /// # Errors
    /// [`Error::JobMismatch`].
    pub fn check_key(&self, key: &PublicKey) -> Result<(), Error> {
        if self.key == key.id() {
            return Ok(());
        }
        let (found, expected) = (self.key.to_string(), key.id().to_string());
        Err(Error::JobMismatch { what: "the job is of key", found, expected })
    }

    /// Refuses another job.
    ///
    /// # Errors
    /// [`Error::JobMismatch`].
    pub fn check_id(&self, found: JobId) -> Result<(), Error> {
        let expected = self.id();
        if found == expected {
            return Ok(());
        }
        let (found, expected) = (found.to_string(), expected.to_string());
        Err(Error::JobMismatch { what: "it is of job", found, expected })
    }

    /// Refuses a number that is no client's.
    ///
    /// # Errors
    /// [`Error::Number`].
    pub fn check_number(&self, number: u16) -> Result<(), Error> {
        let clients = self.limits.clients.into();
        if u32::from(number) < clients { Ok(()) } else { Err(Error::Number { number, clients }) }
    }

    /// Refuses tensors that are not those that the job settles.
    ///
    /// # Errors
    /// [`Error::Layout`], of which "here" is in `specs` and "there" in the job.
    pub fn check_layout(&self, specs: &[TensorSpec]) -> Result<(), Error> {
        let Some(tensors) = &self.limits.tensors else { return Ok(()) };
        let settled: Vec<_> = tensors.iter().map(|t| t.spec.clone()).collect();
        check_layout(specs, &settled)
    }

    /// Returns who opens its sums.
    ///
    /// # Errors
    /// [`Error::NoOpeners`].
    pub fn openers(&self) -> Result<&Arc<Openers>, Error> {
        self.limits.openers.as_ref().ok_or(Error::NoOpeners)
    }

    /// Returns the noise that every client adds its share of, if there is any.
    #[must_use]
    pub fn noise(&self) -> Option<&Noise> {
        self.noise.as_ref()
    }

    /// Returns the range of a tensor, by its place, that the job settles.
    #[must_use]
    pub fn settled_range(&self, tensor: usize) -> Option<f64> {
        if let Some(noise) = &self.noise {
            return Some(noise.range());
        }
        self.limits.tensors.as_ref().and_then(|tensors| tensors.get(tensor)?.range)
    }

    /// Returns the largest range that each tensor may have: of exact integers as far as they and the largest weight
    /// admit, but of private ones no more than the job's, as nobody tells them.
    pub(crate) fn largest_ranges(&self, agreement: &Agreement) -> Vec<f64> {
        let Limits { max_range, max_weight, .. } = self.limits;
        let is_private = self.limits.private_ranges.is_some();
        let each = agreement.specs().iter().zip(agreement.precisions());
        let largest = |(spec, precision): (&TensorSpec, &Precision)| match precision {
            Precision::Key | Precision::Bits(_) => max_range,
            Precision::Exact => {
                let exact = largest_exact(spec.dtype, max_weight);
                if is_private { exact.min(max_range) } else { exact }
            }
        };
        each.map(largest).collect()
    }

    /// Returns the precision of a tensor in this job, found in another: integers are exact, unless there is noise, but
    /// in what earlier versions made.
    fn precision(&self, spec: &TensorSpec, found: Precision) -> Precision {
        let bits = self.limits.bits.iter().rev().find(|bits| bits.names(spec));
        match bits {
            Some(TensorBits { bits, .. }) => Precision::Bits(*bits),
            None if spec.dtype.is_integer() && self.noise.is_none() => found,
            None => Precision::Key,
        }
    }

    /// Returns the same agreement in the precisions of this job.
    ///
    /// # Errors
    /// [`Error::Bits`]: the job has bits of a tensor that is not there.
    pub fn at_precision(&self, agreement: &Agreement) -> Result<Agreement, Error> {
        self.limits.bits.iter().try_for_each(|bits| bits.check_names(agreement.specs()))?;
        let each = agreement.specs().iter().zip(agreement.precisions());
        let precisions = each.map(|(spec, &found)| self.precision(spec, found)).collect();
        agreement.with(precisions, agreement.ranges().to_vec(), agreement.max_weight())
    }

    /// Returns what a client has with all that the job settles: precisions, the ranges that are settled and, if all
    /// are, the largest weight.
    ///
    /// # Errors
    /// [`Error::Layout`]: the job settles other tensors, "there"; as [`at_precision`](Self::at_precision).
    pub fn settle(&self, own: &Agreement) -> Result<Agreement, Error> {
        self.check_layout(own.specs())?;
        let own = self.at_precision(own)?;
        let ranges = own.ranges().iter().enumerate();
        let ranges = ranges.map(|(i, &own)| self.settled_range(i).unwrap_or(own)).collect();
        let largest = if self.settles_ranges() { self.limits.max_weight } else { own.max_weight() };
        own.with(own.precisions().to_vec(), ranges, largest)
    }

    /// Returns whether the job settles the range of every tensor.
    #[must_use]
    pub fn settles_ranges(&self) -> bool {
        let all_have_one = |all: &Vec<SettledTensor>| all.iter().all(|t| t.range.is_some());
        self.noise.is_some() || self.limits.tensors.as_ref().is_some_and(all_have_one)
    }

    /// Refuses an agreement that the job does not admit.
    ///
    /// # Errors
    /// Other tensors, a range or a largest weight above the job's, another range than the one that is settled; no norm
    /// that updates are clipped to, or one, as the job has it the other way.
    pub fn check_agreement(&self, agreement: &Agreement) -> Result<(), Error> {
        self.check_bounds(agreement)?;
        self.check_clip_norm(agreement)
    }

    /// Refuses what one client announces, if the job does not admit it.
    ///
    /// # Errors
    /// As [`check_agreement`](Self::check_agreement), but every norm is refused: none is agreed yet.
    pub(crate) fn check_announced(&self, agreement: &Agreement) -> Result<(), Error> {
        self.check_bounds(agreement)?;
        // Whatever weights others have: what they announce is joined.
        agreement.check_exact(self.limits.max_weight)?;
        // All clients send what the largest range takes, so nobody proposes more than a type holds.
        for (i, (spec, &range)) in agreement.specs().iter().zip(agreement.ranges()).enumerate() {
            let is_exact = agreement.precisions()[i] == Precision::Exact;
            if is_exact && self.settled_range(i).is_none() && range > largest_exact(spec.dtype, 1) {
                let (name, dtype) = (&spec.name, spec.dtype.name());
                let why = format!("tensor {name:?} has range {range}, which {dtype} does not hold");
                return Err(Error::BeyondJob { why });
            }
        }
        let Some(norm) = agreement.clip_norm() else { return Ok(()) };
        let why = format!("a norm of {norm} to clip to, which no client announces");
        Err(Error::BeyondJob { why })
    }

    fn check_bounds(&self, agreement: &Agreement) -> Result<(), Error> {
        self.check_layout(agreement.specs())?;
        check_ranges(agreement, self.limits.max_range)?;
        for (i, (spec, &range)) in agreement.specs().iter().zip(agreement.ranges()).enumerate() {
            if let Some(settled) = self.settled_range(i).filter(|&settled| settled != range) {
                let name = &spec.name;
                let why = format!("tensor {name:?} has range {range}, the job's is {settled}");
                return Err(Error::BeyondJob { why });
            }
            let found = agreement.precisions()[i];
            let expected = self.precision(spec, found);
            if found != expected {
                let (name, found, expected) = (&spec.name, found.words(), expected.words());
                let why =
                    format!("tensor {name:?} is summed in {found}, the job's is in {expected}");
                return Err(Error::BeyondJob { why });
            }
        }
        let (found, largest) = (agreement.max_weight(), self.limits.max_weight);
        if found > largest {
            let why = format!("a largest weight of {found}, the job's is {largest}");
            return Err(Error::BeyondJob { why });
        }
        Ok(())
    }

    /// Returns the terms of one round.
    ///
    /// # Errors
    /// As [`check_agreement`](Self::check_agreement); [`Error::BeyondJob`].
    pub fn terms<'a>(&'a self, round: u64, agreement: &'a Agreement) -> Result<Terms<'a>, Error> {
        self.check_agreement(agreement)?;
        if let Some(Budget { rounds, .. }) = self.limits.budget()
            && round >= rounds.into()
        {
            let why = format!(
                "round {round} is beyond the {rounds} rounds that its privacy budget is for: make another job"
            );
            return Err(Error::BeyondJob { why });
        }
        Ok(Terms { job: self, round, agreement })
    }
}

/// Derives a job's name: the first bytes of its digest.
fn name(nonce: &[u8; 16], key: &KeyId, limits: &Limits) -> JobId {
    let mut id = [0; 16];
    id.copy_from_slice(&digest(nonce, key, limits)[..16]);
    JobId(id)
}

fn digest(nonce: &[u8; 16], key: &KeyId, limits: &Limits) -> [u8; 32] {
    let mut w = Writer::default();
    w.bytes(nonce);
    w.bytes(&key.0);
    limits.write(&mut w);
    blake3::derive_key("ciphergram 2026 job", &w.0)
}

/// Returns the largest magnitude of integers of a type whose sums under weights up to this one are exact.
fn largest_exact(dtype: Dtype, max_weight: u32) -> f64 {
    let (least, greatest) = dtype.bounds();
    greatest.max(-least).min((MOST / u64::from(max_weight)) as f64)
}

/// Refuses a range of rounded values above `most`: those of exact integers coarsen nothing.
fn check_ranges(agreement: &Agreement, most: f64) -> Result<(), Error> {
    let tensors = agreement.specs().iter().zip(agreement.ranges()).zip(agreement.precisions());
    let mut rounded = tensors.filter(|&(_, &precision)| precision != Precision::Exact);
    match rounded.find(|&((_, &range), _)| range > most) {
        None => Ok(()),
        Some(((TensorSpec { name, .. }, &range), _)) => {
            Err(Error::RangeBeyondJob { tensor: name.clone(), range, most })
        }
    }
}

/// The terms of one round, which the job admits: all that its contributions have in common.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    job: &'a Job,
    round: u64,
    agreement: &'a Agreement,
}

impl<'a> Terms<'a> {
    /// Returns the job.
    #[must_use]
    pub fn job(&self) -> &'a Job {
        self.job
    }

    /// Returns the round's number, which clients count.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Returns tensors, ranges and the largest weight.
    #[must_use]
    pub fn agreement(&self) -> &'a Agreement {
        self.agreement
    }

    /// Turns an update into the integers that are sealed: clipped and rounded under a seed, and with this client's
    /// share of the noise, if the job has any.
    ///
    /// # Errors
    /// As [`Quantised::new`] and [`Quantised::noised`].
    pub fn quantise(
        &self,
        update: &Update,
        weight: u64,
        parameters: &Parameters,
        seed: &[u8; 32],
    ) -> Result<Quantised, Error> {
        let Some(noise) = self.job.noise() else {
            return Quantised::new(update, self.agreement, weight, parameters, seed);
        };
        self.agreement.check_weight(weight)?;
        let values = self.agreement.values();
        self.job.limits.check_budget(*noise, parameters.half_steps(), values)?;
        let mut rng = StreamRng::from_seed(seed);
        Quantised::noised(update, self.agreement, parameters, noise, &mut rng)
    }

    /// Returns a hash over the statement and all of the job, its openers and members included: what uniform polynomials
    /// follow from must have no second meaning.
    pub(crate) fn openers_statement(&self) -> [u8; 32] {
        let Job { nonce, key, limits, .. } = self.job;
        let material = [digest(nonce, key, limits), self.statement().0].concat();
        blake3::derive_key("ciphergram 2026 ckks-sum-threshold statement", &material)
    }

    /// Returns the statement that contributions are sealed under.
    #[must_use]
    pub fn statement(&self) -> Statement {
        let mut w = Writer::default();
        w.bytes(&self.job.id().0);
        w.u64(self.round);
        self.agreement.write(&mut w);
        Statement(blake3::derive_key("ciphergram 2026 statement", &w.0))
    }
}
