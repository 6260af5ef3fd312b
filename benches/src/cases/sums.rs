//! Sums under `ckks-sum` and `ckks-sum-threshold`: whole contributions, from tensors in memory to the bytes of files
//! and back.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ciphergram_accel::{CpuEngine, Engine};
use ciphergram_he::{
    Agreement, Contribution, Destination, Dtype, Error, Job, KeyRef, Ledger, Limits, Member,
    Parameters, PublicKey, Scheme, SecretKey, Sum, Summing, Tensor, TensorSpec, Update,
    codec::Output,
    open_to,
    params::Literal,
    random,
    threshold::{
        Identity, MemberKey, OpenAnswer, OpenRequest, OpenerId, OpenerKey, Openers, PrekeyChain,
        Quorum, SumSecret,
    },
    update::SumOpener,
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

/// Openers of a sum, the first clients.
const OPENERS: usize = 4;

/// Who opens sums, and what clients contribute under.
enum Keys {
    /// All clients have the secret key.
    Shared(Box<SecretKey>),
    /// Openers answer.
    Members(Vec<MemberKey>, Vec<OpenAnswer>),
}

impl Keys {
    fn of(&self, client: u16) -> KeyRef<'_> {
        match self {
            Self::Shared(key) => key.as_client(client),
            Self::Members(members, _) => (&members[usize::from(client)]).into(),
        }
    }

    fn public(&self) -> &PublicKey {
        self.of(0).public()
    }
}

/// One round under fresh keys, with its sum.
pub(super) struct Round {
    keys: Keys,
    engine: Arc<dyn Engine>,
    agreement: Agreement,
    job: Job,
    /// One client's.
    update: Update,
    /// The bytes of each client's file.
    contributions: Vec<Vec<u8>>,
    /// The bytes of the sum's file.
    sum: Vec<u8>,
    /// The number of the next round that is only sealed to: each has a secret of its own.
    next: AtomicU64,
}

impl Round {
    /// Makes a round of as many values as the engine can bear.
    ///
    /// # Errors
    /// The mean is another one; no randomness; the engine's.
    pub(super) fn new(engine: Arc<dyn Engine>, scheme: Scheme) -> Result<Self, Failure> {
        let few = Self::of_values(FEW_VALUES, engine.clone(), scheme)?;
        let all = timed(|| few.encrypt())()? * (VALUES / FEW_VALUES) as f64;
        if all > LONGEST { Ok(few) } else { Self::of_values(VALUES, engine, scheme) }
    }

    /// Makes a round of random updates, which was checked to give their mean.
    fn of_values(values: usize, engine: Arc<dyn Engine>, scheme: Scheme) -> Result<Self, Failure> {
        let literal = Literal { scheme, clients: CLIENTS, bits: VALUE_BITS };
        let update = random_update(values)?;
        let agreement = Agreement::new(update.specs(), vec![RANGE], 1)?;
        let (keys, job, mut openers) = match scheme {
            Scheme::CkksSumThreshold => open_keys(literal)?,
            _ => {
                let key = SecretKey::generate(literal)?;
                let job = Job::new(key.public(), Limits::of_key(key.public()))?;
                (Keys::Shared(key.into()), job, vec![])
            }
        };
        let (contributions, sum) = (vec![], vec![]);
        let next = AtomicU64::new(1);
        let mut round = Self { keys, engine, agreement, job, update, contributions, sum, next };
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
            let contribution = round.encrypt_by(engine, client as u16, 0)?;
            round.contributions.push(contribution);
        }
        let requests;
        (round.sum, requests) = round.sum_up()?;
        if let Keys::Members(_, answers) = &mut round.keys {
            for (opener, request) in openers.iter_mut().zip(&requests).skip(1) {
                answers.push(opener.answer(&Ledger::in_memory(), request)?);
            }
        }
        // Within one step, and the rounding of float32.
        let steps = f64::from(round.keys.public().parameters().half_steps());
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
        let parameters = self.keys.public().parameters();
        let quantised = terms.quantise(&self.update, 1, parameters, &*random::bytes()?)?;
        // They are computed as they are asked for.
        Ok(std::hint::black_box(quantised.fields()?).len())
    }

    /// From a client's tensors to the bytes of its contribution.
    pub(super) fn encrypt(&self) -> Result<Vec<u8>, Error> {
        self.encrypt_by(&self.engine, 0, self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn encrypt_by(
        &self,
        engine: &Arc<dyn Engine>,
        client: u16,
        round: u64,
    ) -> Result<Vec<u8>, Error> {
        let (key, ledger) = (self.keys.of(client), Ledger::in_memory());
        let member = Member::new(key, &self.job, &ledger, engine.clone());
        let sealer = member.seal(&self.update, 1, &self.agreement, Some(round))?;
        let mut bytes = Vec::with_capacity(sealer.chunks().total_bytes() + 4096);
        sealer.write_to(&mut bytes)?;
        Ok(bytes)
    }

    /// From the bytes of all contributions to those of their sum, with no use of a secret.
    pub(super) fn aggregate(&self) -> Result<Vec<u8>, Error> {
        Ok(self.sum_up()?.0)
    }

    fn sum_up(&self) -> Result<(Vec<u8>, Vec<OpenRequest>), Error> {
        let key = self.keys.public();
        let read = self.contributions.iter().map(|bytes| Contribution::from_bytes(bytes, key));
        let summing = Summing::of(key, &self.job, self.engine.clone(), (0..).zip(read))?;
        let requests = summing.requests();
        Ok((summing.finish()?.to_bytes(key), requests))
    }

    /// From the bytes of the sum to the mean in float32.
    pub(super) fn decrypt(&self) -> Result<Update, Error> {
        let sum = Sum::from_bytes(&self.sum, self.keys.public())?;
        let mut bytes = vec![0; self.values() * Dtype::F32.bytes()];
        let to = Destination::Memory(&mut [&mut bytes]);
        let recovered;
        let opener: SumOpener<'_> = match &self.keys {
            Keys::Shared(key) => (&**key).into(),
            Keys::Members(members, answers) => {
                recovered = SumSecret::recover(&members[0], &self.job, &sum, answers)?;
                (&recovered).into()
            }
        };
        open_to(opener, &*self.engine, &sum, &self.job, Output::Mean, to)?;
        let specs = self.agreement.specs().iter().cloned();
        Ok(Update::new(specs.zip([bytes]).map(|(spec, b)| Tensor::from_bytes(spec, b)).collect()))
    }
}

/// Makes identities, and a job whose sums the first of them open.
fn open_keys(literal: Literal) -> Result<(Keys, Job, Vec<OpenerKey>), Failure> {
    let public = PublicKey::of_parameters(Parameters::new(literal)?)?;
    let identities: Vec<_> = (0..literal.clients)
        .map(|_| Identity::generate().map(Arc::new))
        .collect::<Result<_, _>>()?;
    let (mut openers, mut chains) = (vec![], vec![]);
    for identity in &identities[..OPENERS] {
        let chain = PrekeyChain::in_memory()?;
        openers.push(OpenerId { id: identity.id(), prekey: chain.prekey(identity)? });
        chains.push(chain);
    }
    let members = identities.iter().map(|identity| identity.id()).collect();
    let openers = Openers::new(Quorum::new(OPENERS, None)?, openers, members)?;
    let limits = Limits { openers: Some(Arc::new(openers)), ..Limits::of_key(&public) };
    let job = Job::new(&public, limits)?;
    let member = |identity: &Arc<_>| MemberKey::new(&public, Arc::clone(identity), &job);
    let members = identities.iter().map(member).collect::<Result<_, _>>()?;
    let opener = |(identity, chain): (&Arc<_>, _)| {
        OpenerKey::new(&public, Arc::clone(identity), chain, &job)
    };
    let openers = identities.iter().zip(chains).map(opener).collect::<Result<_, _>>()?;
    Ok((Keys::Members(members, vec![]), job, openers))
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
