//! Jobs: what clients agree on once, before any round, and hold the aggregator to.
//!
//! A job names its key, how many clients it has, the fewest whose sum is opened, and the largest weight and
//! range; it may settle tensors, and their ranges. It is made by one party and given to all by means of their
//! own, as the key is. Its id is a hash over all of it. What is sealed in a round is sealed under the
//! round's [`Statement`], of which the job is a part: a sum of contributions that were sealed under other terms
//! does not open.

mod json;
mod private_ranges;

use std::path::Path;

use ciphergram_accel::random::StreamRng;
use serde::{Deserialize, Serialize};

pub use private_ranges::PrivateRanges;

use crate::{
    Agreement, Error, Parameters, PublicKey, Quantised, TensorSpec, Update,
    bytes::Writer,
    codec::{MOST, Precision, TensorBits, check_layout, write_specs},
    dp::{self, Mechanism, Noise, Release},
    ids::{JobId, KeyId, Statement, derive16},
    keys::write_new,
    random,
    tensors::Dtype,
    text,
};

/// The limits that a job sets.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// The number of clients, which are numbered from 0.
    pub clients: u16,
    /// The fewest contributors whose sum is opened.
    pub min_clients: u16,
    /// The most clients that are assumed to work together against the others. Of every sum at least two contributors
    /// are none of them, if it is of two: from the sum of one other they would read its update. Jobs of earlier
    /// versions assume nothing.
    pub colluders: Option<u16>,
    /// The largest weight of a client.
    pub max_weight: u32,
    /// The largest clipping range of a tensor. Integers that are summed exactly may have larger ones, which coarsen
    /// nothing, unless ranges are private.
    pub max_range: f64,
    /// The tensors, ascending by name, if they are settled.
    pub tensors: Option<Vec<SettledTensor>>,
    /// The noise of sums, if clients add any: all tensors then have [its range](Noise::range), and all weights are
    /// 1.
    pub noise: Option<NoiseLimits>,
    /// The nodes that may take part in rounds over the network, and the one client that each may be, in the
    /// order of their keys; if they are settled.
    pub allow: Option<Vec<AllowedNode>>,
    /// How clients agree on ranges without showing theirs, if they do: none is settled then.
    pub private_ranges: Option<PrivateRanges>,
    /// Bits of tensors of floats that are other than the key's; of several patterns that name one, the last counts.
    pub bits: Vec<TensorBits>,
}

/// The noise that clients add together: the rest of [`Noise`] follows from the job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseLimits {
    /// Standard deviation of the noise of a sum of the fewest contributors, in multiples of the clip.
    pub sigma: f64,
    /// The L2 norm that a client's whole update is clipped to.
    pub clip: f64,
    /// What all rounds together may give away, if the job bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
}

/// A bound on privacy over all rounds of a job, against as many colluders as it assumes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The most that ε may be once all rounds are over.
    pub epsilon: f64,
    /// The probability that more is given away.
    pub delta: f64,
    /// Rounds that it is for, numbered from 0: a client contributes to none beyond, and to each once, by its ledger.
    pub rounds: u32,
}

/// A tensor that a job settles.
#[derive(Debug, Clone, PartialEq)]
pub struct SettledTensor {
    /// Name, type and shape.
    pub spec: TensorSpec,
    /// Its clipping range, if that is settled too.
    pub range: Option<f64>,
}

/// A node that may take part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedNode {
    /// Its public node key, as text.
    pub node: String,
    /// The client that it may be; any if it is not bound to one.
    pub client: Option<u16>,
}

/// The fewest contributors to a sum by default, unless there are fewer clients: a sum of fewer comes close to telling
/// each one's update.
const FEW: u32 = 3;

/// Returns the fewest contributors to a sum by default: two thirds of the clients, at least three, or all if they are
/// fewer.
#[must_use]
pub fn usual_min_clients(clients: u32) -> u32 {
    (2 * clients).div_ceil(3).max(FEW).min(clients)
}

/// The largest weight by default, where clients tell theirs.
const MAX_WEIGHT: u32 = 100_000;

/// The largest range of a tensor by default, where clients tell theirs. It refuses only what float16 does not hold
/// either: the variance of a batch norm passes.
const MAX_RANGE: f64 = 65_536.0;

/// The same where clients agree on private ones, whose levels reach no further down than 2^-31 of it.
const MAX_PRIVATE_RANGE: f64 = 1024.0;

/// The fewest contributors of a sum who are assumed not to collude.
const MIN_HONEST: u16 = 2;

impl Limits {
    /// Returns the limits of a job by default: all clients of the key, two thirds of them to a sum and at least three
    /// or all if they are fewer, less than a third of them colluding, weights up to 100,000 and ranges up to 65,536.
    #[must_use]
    pub fn of_key(key: &PublicKey) -> Self {
        let clients = key.parameters().clients() as u16;
        Self {
            clients,
            min_clients: 0,
            colluders: None,
            max_weight: MAX_WEIGHT,
            max_range: MAX_RANGE,
            tensors: None,
            noise: None,
            allow: None,
            private_ranges: None,
            bits: vec![],
        }
        .of_clients(clients, None)
    }

    /// Returns the same limits for a number of clients: the fewest to a sum, two thirds of them by default, and less
    /// than a third colluding. So by default, of any two sums of a round, some contributor is in both and colludes with
    /// nobody.
    #[must_use]
    pub fn of_clients(self, clients: u16, min_clients: Option<u16>) -> Self {
        let usual = usual_min_clients(clients.into()) as u16;
        let min_clients = min_clients.unwrap_or(usual);
        let colluders = (clients.saturating_sub(1) / 3).min(min_clients.saturating_sub(MIN_HONEST));
        Self { clients, min_clients, colluders: Some(colluders), ..self }
    }

    /// Returns the same limits with the largest weight and range; by default those that fit noise and private ranges,
    /// if there are any: of what clients do not tell, the job's own is what all of them use.
    ///
    /// # Errors
    /// As [`Noise::new`].
    pub fn up_to(self, max_weight: Option<u32>, max_range: Option<f64>) -> Result<Self, Error> {
        let (usual_weight, usual_range) = match (self.noise()?, self.private_ranges) {
            (Some(noise), _) => (1, MAX_RANGE.max(noise.range())),
            (None, Some(_)) => (1, MAX_PRIVATE_RANGE),
            (None, None) => (MAX_WEIGHT, MAX_RANGE),
        };
        let max_weight = max_weight.unwrap_or(usual_weight);
        Ok(Self { max_weight, max_range: max_range.unwrap_or(usual_range), ..self })
    }

    fn check(&self, key: &PublicKey) -> Result<(), Error> {
        let bad = |why: String| Err(Error::Limits { why });
        let Self { clients, min_clients, max_weight, max_range, .. } = *self;
        let admitted = key.parameters().clients();
        if clients == 0 || u32::from(clients) > admitted {
            return bad(format!("{clients} clients; the key admits 1 to {admitted}"));
        }
        if !(1..=clients).contains(&min_clients) {
            return bad(format!(
                "at least {min_clients} contributors of {clients} clients; choose 1 to {clients}"
            ));
        }
        let fewest = key.parameters().fewest_contributors(clients);
        if u32::from(min_clients) < fewest {
            return bad(format!(
                "sums of {min_clients} of {clients} clients: what failures of so many tell could leave less than 128 bits \
                 of a sum's secret; choose at least {fewest}"
            ));
        }
        if let Some(colluders) =
            self.colluders.filter(|&c| c > min_clients.saturating_sub(MIN_HONEST))
        {
            return bad(format!(
                "{colluders} colluding clients, who would read the update of the one other in a sum of {min_clients}; \
                 choose more contributors, or fewer colluders"
            ));
        }
        if max_weight == 0 {
            return bad("the largest weight is 0".into());
        }
        if !max_range.is_finite() || max_range <= 0.0 {
            return bad(format!("the largest range is {max_range}; it must be a positive number"));
        }
        let mut nodes: Vec<_> = self.allow.iter().flatten().map(|allowed| &allowed.node).collect();
        if self.allow.is_some() && nodes.is_empty() {
            return bad("no node is allowed: none could take part".into());
        }
        for AllowedNode { node, client } in self.allow.iter().flatten() {
            if let Some(client) = client.filter(|&client| client >= clients) {
                return bad(format!(
                    "node {node} is allowed as client {client} of {clients}, which are numbered from 0"
                ));
            }
        }
        nodes.sort_unstable();
        if let Some(twice) = nodes.windows(2).find(|pair| pair[0] == pair[1]) {
            return bad(format!("node {} is allowed twice", twice[0]));
        }
        if let Some(noise) = self.noise()? {
            let range = noise.range();
            if max_weight != 1 {
                return bad(format!(
                    "a largest weight of {max_weight} beside noise, which needs weights of 1"
                ));
            }
            // For a single value, which takes the least: an update of many may still be refused.
            self.check_budget(noise, key.parameters().half_steps(), 1)?;
            if self.tensors.iter().flatten().any(|tensor| tensor.range.is_some()) {
                return bad("ranges of tensors beside noise, which has one for all".into());
            }
            if range > max_range {
                return bad(format!(
                    "the noise needs a range of {range}, but the largest is {max_range}: allow that, or choose less \
                     noise"
                ));
            }
        }
        self.check_private_ranges()?;
        self.bits.iter().try_for_each(TensorBits::check)?;
        if self.noise.is_some() && !self.bits.is_empty() {
            return bad("bits of tensors beside noise, which has one step for all".into());
        }
        let Some(tensors) = &self.tensors else { return Ok(()) };
        let specs: Vec<_> = tensors.iter().map(|t| t.spec.clone()).collect();
        let ranges = tensors.iter().map(|t| t.range.unwrap_or(0.0)).collect();
        let agreement = Agreement::new(specs, ranges, max_weight)?;
        self.bits.iter().try_for_each(|bits| bits.check_names(agreement.specs()))?;
        check_ranges(&agreement, max_range)
    }

    /// Refuses updates of `values` values whose rounds give away more than the budget, if there is one.
    fn check_budget(&self, noise: Noise, half_steps: u32, values: usize) -> Result<(), Error> {
        let mechanism = Mechanism::new(noise, noise.range(), half_steps, values)?;
        let Some(Budget { epsilon, delta, rounds }) = self.budget() else { return Ok(()) };
        let colluders = self.colluders.unwrap_or(0).into();
        let found = mechanism.epsilon(Release { rounds, colluders }, delta)?.epsilon;
        // A budget that is no number admits nothing.
        if found <= epsilon {
            return Ok(());
        }
        let why = format!(
            "{rounds} rounds of this noise, {colluders} clients colluding, come to an epsilon of {found:.3} at a delta of \
             {delta}, and the budget is {epsilon}: choose more noise, or fewer rounds"
        );
        Err(Error::Limits { why })
    }

    /// Returns the privacy budget, if there is one.
    fn budget(&self) -> Option<Budget> {
        self.noise.and_then(|noise| noise.budget)
    }

    /// Returns the noise that the clients add together, if there is any.
    ///
    /// # Errors
    /// As [`Noise::new`].
    pub fn noise(&self) -> Result<Option<Noise>, Error> {
        let noise = |NoiseLimits { sigma, clip, .. }: NoiseLimits| {
            let [clients, min_clients] = [self.clients, self.min_clients].map(u32::from);
            Noise::new(dp::Literal { sigma, clip, clients, min_clients })
        };
        Ok(self.noise.map(noise).transpose()?)
    }

    fn write(&self, w: &mut Writer) {
        w.u16(self.clients);
        w.u16(self.min_clients);
        w.u32(self.max_weight);
        w.u64(self.max_range.to_bits());
        w.u8(self.tensors.is_some().into());
        if let Some(tensors) = &self.tensors {
            write_specs(w, &tensors.iter().map(|t| t.spec.clone()).collect::<Vec<_>>());
            // No range is NaN.
            let range = |t: &SettledTensor| t.range.unwrap_or(f64::NAN).to_bits();
            tensors.iter().for_each(|t| w.u64(range(t)));
        }
        w.u8(self.noise.is_some().into());
        if let Some(NoiseLimits { sigma, clip, .. }) = self.noise {
            w.u64(sigma.to_bits());
            w.u64(clip.to_bits());
        }
        w.u8(self.allow.is_some().into());
        let allow = self.allow.as_deref().unwrap_or_default();
        w.u32(allow.len() as u32);
        for AllowedNode { node, client } in allow {
            w.prefixed(node.as_bytes());
            w.u8(client.is_some().into());
            w.u16(client.unwrap_or(0));
        }
        // Names of jobs of earlier versions cover nothing more.
        if let Some(private) = self.private_ranges {
            let PrivateRanges { rank, levels, agree_every, clip_norm, key } = private;
            w.prefixed(rank.to_string().as_bytes());
            w.u8(levels);
            w.u32(agree_every);
            w.prefixed(clip_norm.map_or_else(String::new, |rank| rank.to_string()).as_bytes());
            w.bytes(&key.0);
        }
        if let Some(colluders) = self.colluders {
            w.prefixed(b"colluders");
            w.u16(colluders);
        }
        if let Some(Budget { epsilon, delta, rounds }) = self.budget() {
            w.prefixed(b"budget");
            w.u64(epsilon.to_bits());
            w.u64(delta.to_bits());
            w.u32(rounds);
        }
        for TensorBits { name, bits } in &self.bits {
            w.prefixed(b"bits");
            w.prefixed(name.as_bytes());
            w.u32(*bits);
        }
    }
}

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
        let read = || Self::from_json(&text::read("job file", path)?, key);
        read().map_err(|e| e.within(path.display()))
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
    /// [`Error::JobKey`].
    pub fn check_key(&self, key: &PublicKey) -> Result<(), Error> {
        if self.key == key.id() {
            return Ok(());
        }
        Err(Error::JobKey { found: self.key.to_string(), expected: key.id().to_string() })
    }

    /// Refuses another job.
    ///
    /// # Errors
    /// [`Error::AnotherJob`].
    pub fn check_id(&self, found: JobId) -> Result<(), Error> {
        let expected = self.id();
        if found == expected {
            return Ok(());
        }
        Err(Error::AnotherJob { found: found.to_string(), expected: expected.to_string() })
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
    /// As [`check_agreement`](Self::check_agreement); [`Error::BudgetSpent`].
    pub fn terms<'a>(&'a self, round: u64, agreement: &'a Agreement) -> Result<Terms<'a>, Error> {
        self.check_agreement(agreement)?;
        if let Some(Budget { rounds, .. }) = self.limits.budget()
            && round >= rounds.into()
        {
            return Err(Error::BudgetSpent { round, rounds });
        }
        Ok(Terms { job: self, round, agreement })
    }
}

/// Derives a job's name.
fn name(nonce: &[u8; 16], key: &KeyId, limits: &Limits) -> JobId {
    let mut w = Writer::default();
    w.bytes(nonce);
    w.bytes(&key.0);
    limits.write(&mut w);
    JobId(derive16("ciphergram 2026 job", &w.0))
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
        Some(((TensorSpec { name, .. }, range), _)) => {
            let why = format!(
                "tensor {name:?} has range {range}, the job admits {most} at most: measure it from values clipped to \
                 that (`ranges --policy fixed:{most}`; without a ranges file --clip {most} does), or make a job with a \
                 larger --max-range"
            );
            Err(Error::BeyondJob { why })
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
