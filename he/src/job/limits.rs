//! The limits of a job: what they are by default, which make no sense, and what its name covers of them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{PrivateRanges, check_ranges};
use crate::{
    Agreement, Error, PublicKey, TensorSpec,
    bytes::Writer,
    codec::{TensorBits, write_specs},
    dp::{self, Mechanism, Noise, Release},
    params::Scheme,
    threshold::Openers,
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
    /// Who opens sums, where nobody has a key that does.
    pub openers: Option<Arc<Openers>>,
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
            openers: None,
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

    pub(super) fn check(&self, key: &PublicKey) -> Result<(), Error> {
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
        let has_openers = key.parameters().scheme() == Scheme::CkksSumThreshold;
        match &self.openers {
            Some(_) if !has_openers => return bad("openers under a key that opens sums".into()),
            Some(openers) if openers.members().len() != usize::from(clients) => {
                return bad(format!("{} members of {clients} clients", openers.members().len()));
            }
            None if has_openers => return bad("nobody opens its sums: it has no openers".into()),
            Some(_) if self.colluders.is_none() || min_clients < MIN_HONEST.min(clients) => {
                return bad(
                    "sums that openers open need two contributors who do not collude".into()
                );
            }
            Some(_) if self.private_ranges.is_some() => {
                return bad("private ranges beside openers, where clients share no secret".into());
            }
            _ => {}
        }
        if let Some(private) = &self.private_ranges {
            private.check(clients, min_clients)?;
            if self.noise.is_some() {
                return bad(
                    "private ranges beside noise, which has one range for all tensors".into()
                );
            }
            if self.tensors.iter().flatten().any(|tensor| tensor.range.is_some()) {
                return bad("ranges of tensors that are settled beside private ones".into());
            }
        }
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
    pub(super) fn check_budget(
        &self,
        noise: Noise,
        half_steps: u32,
        values: usize,
    ) -> Result<(), Error> {
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
    pub(super) fn budget(&self) -> Option<Budget> {
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

    pub(super) fn write(&self, w: &mut Writer) {
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
        if let Some(openers) = &self.openers {
            w.prefixed(b"openers");
            openers.write(w);
        }
    }
}
