//! Sums under `ckks-sum`: whole contributions, from tensors in memory to the bytes of files and back.

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine};
use ciphergram_he::{
    Agreement, Contribution, Destination, Dtype, Error, Job, Ledger, Limits, Member, Scheme,
    SecretKey, Sum, Tensor, TensorSpec, Update, aggregate, codec::Output, open_to, params::Literal,
    random,
};
use rand_core::Rng;

use super::sampling::timed;
use crate::Failure;

/// Float32 values of a client's update: one operation is on all of them.
pub(super) const VALUES: usize = 1_000_000;
/// The same on an engine that would take longer than this to encrypt them, in seconds: the oracle.
pub(super) const FEW_VALUES: usize = 10_000;
const LONGEST: f64 = 5.0;
/// Contributors of a sum, and those that the key has headroom for.
pub(super) const CLIENTS: u32 = 10;
/// Bits of a quantised value.
pub(super) const VALUE_BITS: u32 = 16;
/// The agreed range. Some values are outside, so that there is something to clip.
const RANGE: f64 = 1.0;
const LARGEST_VALUE: f64 = 1.05;

/// One round under a fresh key, with its sum.
pub(super) struct Round {
    key: SecretKey,
    engine: Arc<dyn Engine>,
    agreement: Agreement,
    job: Job,
    /// One client's.
    update: Update,
    /// The bytes of each client's file.
    contributions: Vec<Vec<u8>>,
    /// The bytes of the sum's file.
    sum: Vec<u8>,
}

impl Round {
    /// Makes a round of as many values as the engine can bear.
    ///
    /// # Errors
    /// The mean is another one; no randomness; the engine's.
    pub(super) fn new(engine: Arc<dyn Engine>) -> Result<Self, Failure> {
        let few = Self::of_values(FEW_VALUES, engine.clone())?;
        let all = timed(|| few.encrypt())()? * (VALUES / FEW_VALUES) as f64;
        if all > LONGEST { Ok(few) } else { Self::of_values(VALUES, engine) }
    }

    /// Makes a round of random updates, which was checked to give their mean.
    fn of_values(values: usize, engine: Arc<dyn Engine>) -> Result<Self, Failure> {
        let literal = Literal { scheme: Scheme::CkksSum, clients: CLIENTS, bits: VALUE_BITS };
        let key = SecretKey::generate(literal)?;
        let update = random_update(values)?;
        let agreement = Agreement::new(update.specs(), vec![RANGE], 1)?;
        let job = Job::new(key.public(), Limits::of_key(key.public()))?;
        let (contributions, sum) = (vec![], vec![]);
        let mut round = Self { key, engine, agreement, job, update, contributions, sum };
        let mut mean = vec![0.0; values];
        // One client's by the engine that is measured, the others' by one that is quick everywhere:
        // all engines give the same bits, and the mean tells if they do not.
        let quick: Arc<dyn Engine> = Arc::new(CpuEngine::new());
        for client in 0..CLIENTS {
            round.update = random_update(values)?;
            for (total, x) in mean.iter_mut().zip(floats(&round.update)?) {
                *total += x.clamp(-RANGE, RANGE) / f64::from(CLIENTS);
            }
            let engine = if client == 0 { &round.engine } else { &quick };
            let contribution = round.encrypt_by(engine, client as u16)?;
            round.contributions.push(contribution);
        }
        round.sum = round.aggregate()?;
        // Within one step, and the rounding of float32.
        let steps = f64::from(round.key.public().parameters().half_steps());
        let bound = RANGE * (1.0 / steps + f64::from(f32::EPSILON));
        let decrypted = floats(&round.decrypt()?)?;
        if decrypted.iter().zip(&mean).any(|(x, y)| (x - y).abs() > bound) {
            let text = format!("the engine {} decrypts to another mean", round.engine.name());
            return Err(text.into());
        }
        Ok(round)
    }

    /// Values of an update.
    pub(super) fn values(&self) -> usize {
        self.agreement.values()
    }

    /// Returns the bytes of a contribution's file for each value.
    pub(super) fn bytes_per_value(&self) -> f64 {
        self.contributions[0].len() as f64 / self.values() as f64
    }

    /// From a client's tensors to the integers that it packs.
    pub(super) fn quantise(&self) -> Result<usize, Error> {
        let terms = self.job.terms(0, &self.agreement)?;
        let parameters = self.key.public().parameters();
        let quantised = terms.quantise(&self.update, 1, parameters, &*random::bytes()?)?;
        // They are computed as they are asked for.
        Ok(std::hint::black_box(quantised.fields()?).len())
    }

    /// From a client's tensors to the bytes of its contribution.
    pub(super) fn encrypt(&self) -> Result<Vec<u8>, Error> {
        self.encrypt_by(&self.engine, 0)
    }

    fn encrypt_by(&self, engine: &Arc<dyn Engine>, client: u16) -> Result<Vec<u8>, Error> {
        let (key, ledger) = (self.key.as_client(client), Ledger::in_memory());
        let member = Member::new(key, &self.job, &ledger, engine.clone());
        let sealer = member.seal(&self.update, 1, &self.agreement, Some(0))?;
        let mut bytes = Vec::with_capacity(sealer.chunks().total_bytes() + 4096);
        sealer.write_to(&mut bytes)?;
        Ok(bytes)
    }

    /// From the bytes of all contributions to those of their sum, with no use of the secret.
    pub(super) fn aggregate(&self) -> Result<Vec<u8>, Error> {
        let key = self.key.public();
        let read = self.contributions.iter().map(|bytes| Contribution::from_bytes(bytes, key));
        Ok(aggregate(key, &self.job, self.engine.clone(), (0..).zip(read))?.to_bytes(key))
    }

    /// From the bytes of the sum to the mean in float32.
    pub(super) fn decrypt(&self) -> Result<Update, Error> {
        let sum = Sum::from_bytes(&self.sum, self.key.public())?;
        let mut bytes = vec![0; self.values() * Dtype::F32.bytes()];
        let to = Destination::Memory(&mut [&mut bytes]);
        open_to(&self.key, &*self.engine, &sum, &self.job, Output::Mean, to)?;
        let specs = self.agreement.specs().iter().cloned();
        Ok(Update::new(specs.zip([bytes]).map(|(spec, b)| Tensor::from_bytes(spec, b)).collect()))
    }
}

fn floats(update: &Update) -> Result<Vec<f64>, Error> {
    let each = update.tensors().iter().map(Tensor::values).collect::<Result<Vec<_>, _>>()?;
    Ok(each.concat())
}

/// Makes one tensor of random values.
pub(super) fn random_update(values: usize) -> Result<Update, Error> {
    let mut rng = random::generator()?;
    let unit = f64::from(u32::MAX) / 2.0;
    let mut value = || ((f64::from(rng.next_u32()) / unit - 1.0) * LARGEST_VALUE) as f32;
    let bytes = (0..values).flat_map(|_| value().to_le_bytes()).collect();
    let spec = TensorSpec { name: "g".into(), dtype: Dtype::F32, shape: vec![values as u64] };
    Ok(Update::new(vec![Tensor::from_bytes(spec, bytes)]))
}
