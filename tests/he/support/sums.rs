//! Sums of sealed contributions, all the way, against plain integers.

use std::sync::{Arc, OnceLock};

use ciphergram_accel::{CpuEngine, Engine};
use ciphergram_he::{
    Agreement, ClientKey, Contribution, ContributorSet, Destination, Error, Job, KeyRef, Limits,
    OpenedSum, PublicKey, Quantised, SealPermit, Sealer, SecretKey, Sum, Tensor, TensorSpec,
    Update, aggregate,
    codec::Output,
    open_to,
    params::{Literal, Scheme},
    tensors::Dtype,
};

pub(crate) fn engine() -> Arc<dyn Engine> {
    static ENGINE: OnceLock<Arc<CpuEngine>> = OnceLock::new();
    ENGINE.get_or_init(Arc::default).clone()
}

/// A key, and a job under it that admits what the key does.
pub(crate) struct Key {
    pub(crate) secret: SecretKey,
    pub(crate) job: Job,
}

impl Key {
    pub(crate) fn new(secret: SecretKey) -> Self {
        let Literal { scheme, clients, .. } = secret.public().parameters().literal();
        // Sums of one of hundreds are refused.
        let is_large = scheme == Scheme::CkksSum && clients > 300;
        let limits = Limits {
            min_clients: if is_large { 50 } else { 1 },
            colluders: None,
            max_weight: u32::MAX,
            max_range: f64::MAX,
            ..Limits::of_key(secret.public())
        };
        Self { job: Job::new(secret.public(), limits).unwrap(), secret }
    }

    pub(crate) fn public(&self) -> &PublicKey {
        self.secret.public()
    }

    pub(crate) fn client(&self, number: u16) -> ClientKey {
        self.secret.client_key(number).unwrap()
    }

    /// Adds contributions as files are added.
    pub(crate) fn aggregate<'a>(
        &self,
        contributions: impl IntoIterator<Item = Contribution<'a>>,
    ) -> Result<Sum, Error> {
        let named = contributions.into_iter().enumerate().map(|(i, c)| (i, Ok(c)));
        aggregate(self.public(), &self.job, engine(), named)
    }

    pub(crate) fn open(&self, sum: &Sum) -> Result<OpenedSum, Error> {
        OpenedSum::open(&self.secret, &*engine(), sum, &self.job)
    }

    /// Opens a sum to tensors without the integers between.
    pub(crate) fn decrypt(&self, sum: &Sum, output: Output) -> Result<Update, Error> {
        let bytes = |spec: &TensorSpec| vec![0; spec.values().unwrap() * spec.dtype.bytes()];
        let mut data: Vec<_> = sum.agreement.specs().iter().map(bytes).collect();
        let mut slices: Vec<_> = data.iter_mut().map(Vec::as_mut_slice).collect();
        let to = Destination::Memory(&mut slices);
        open_to(&self.secret, &*engine(), sum, &self.job, output, to)?;
        let tensors = sum.agreement.specs().iter().cloned().zip(data);
        Ok(Update::new(tensors.map(|(spec, data)| Tensor::from_bytes(spec, data)).collect()))
    }

    pub(crate) fn verify(&self, sum: &Sum) -> Result<(), Error> {
        sum.verify(self.public(), &*engine(), &self.job)
    }

    /// Makes a sum of the round that all tests contribute to.
    pub(crate) fn sum(
        &self,
        contributions: &[Contribution<'_>],
        sets: Vec<ContributorSet>,
        stream: Vec<u8>,
    ) -> Sum {
        Sum {
            contributors: contributions.iter().map(|c| c.contributor).collect(),
            job: self.job.id(),
            round: ROUND,
            agreement: contributions[0].agreement.clone(),
            sets,
            stream,
        }
    }
}

/// The round that contributions are sealed to.
pub(crate) const ROUND: u64 = 7;

pub(crate) fn generate(scheme: Scheme, clients: u32, bits: u32) -> Key {
    Key::new(SecretKey::generate(Literal { scheme, clients, bits }).unwrap())
}

pub(crate) fn ring_degree(key: &Key) -> usize {
    key.public().parameters().rlwe().unwrap().ring.degree()
}

pub(crate) fn agreement(values: usize, max_weight: u32) -> Agreement {
    let spec = TensorSpec { name: "t".into(), dtype: Dtype::F32, shape: vec![values as u64] };
    Agreement::new(vec![spec], vec![1.0], max_weight).unwrap()
}

/// Prepares to seal integers to [`ROUND`].
pub(crate) fn sealer<'a>(
    key: impl Into<KeyRef<'a>>,
    job: &Job,
    (fields, weight): (&[u32], u32),
    permit: SealPermit,
) -> Result<Sealer, Error> {
    let agreement = agreement(fields.len(), u32::MAX);
    let update = Quantised::from_fields(fields.to_vec(), weight);
    Sealer::new(key, engine(), update, permit, &job.terms(ROUND, &agreement).unwrap())
}

/// Seals integers to [`ROUND`] with a key of one's choice.
pub(crate) fn contribute_with<'a>(
    key: impl Into<KeyRef<'a>>,
    job: &Job,
    fields: &[u32],
    weight: u32,
    agreement: &Agreement,
) -> Contribution<'static> {
    let update = Quantised::from_fields(fields.to_vec(), weight);
    let terms = job.terms(ROUND, agreement).unwrap();
    let sealer = Sealer::new(key, engine(), update, SealPermit::draw().unwrap(), &terms).unwrap();
    sealer.into_contribution().unwrap()
}

/// Seals integers to [`ROUND`] as client `number`, with the secret key.
pub(crate) fn contribute(
    key: &Key,
    number: u16,
    fields: &[u32],
    weight: u32,
    agreement: &Agreement,
) -> Contribution<'static> {
    contribute_with(key.secret.as_client(number), &key.job, fields, weight, agreement)
}

/// Seals, writes, reads, adds, writes, reads and opens; gives sums with their offset, and weights.
pub(crate) fn through(key: &Key, updates: &[(Vec<u32>, u32)]) -> (Vec<i64>, Vec<(usize, u64)>) {
    let public: &PublicKey = key.public();
    let agreement = agreement(updates[0].0.len(), u32::MAX);
    let files: Vec<Vec<u8>> = updates
        .iter()
        .zip(0..)
        .map(|((fields, weight), number)| {
            contribute(key, number, fields, *weight, &agreement).to_bytes(public)
        })
        .collect();
    let read = files.iter().map(|f| Contribution::from_bytes(f, public).unwrap());
    let sum = key.aggregate(read).unwrap();
    let sum = Sum::from_bytes(&sum.to_bytes(public), public).unwrap();
    let opened = key.open(&sum).unwrap();
    (opened.sums().to_vec(), opened.parts().to_vec())
}

pub(crate) fn assert_exact(key: &Key, updates: &[(Vec<u32>, u32)]) {
    let half = i64::from(key.public().parameters().half_steps());
    let (sums, parts) = through(key, updates);
    for (i, &sum) in sums.iter().enumerate() {
        let plain: i64 = updates.iter().map(|(f, _)| i64::from(f[i]) - half).sum();
        assert_eq!(sum, plain, "value {i}");
    }
    let weights = updates.iter().map(|(_, w)| u64::from(*w)).sum();
    assert!(parts.iter().all(|&part| part == (updates.len(), weights)));
}

/// A chunk at the one end of the range, one at the other, one in the middle, and a bit of all
/// three.
pub(crate) fn extremes(key: &Key) -> Vec<u32> {
    let p = key.public().parameters();
    let (each, most) = (p.geometry().values_per_chunk(), 2 * p.half_steps());
    let ends = [most, 0, most / 2];
    let mixed = (0..each / 2 + 1).map(|i| ends[i % 3]);
    ends.into_iter().flat_map(|end| vec![end; each]).chain(mixed).collect()
}

/// Makes the contributions of `clients`: `values` values each that look random, and weights that differ.
pub(crate) fn scattered(key: &Key, clients: u32, values: usize, seed: u64) -> Vec<(Vec<u32>, u32)> {
    let most = u64::from(2 * key.public().parameters().half_steps());
    let value = |c: u32, i: usize| {
        let x = seed.wrapping_mul(2 * u64::from(c) + 1).wrapping_add(i as u64);
        ((x.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % (most + 1)) as u32
    };
    (0..clients).map(|c| ((0..values).map(|i| value(c, i)).collect(), c * 7 + 1)).collect()
}

/// Returns the number of contributors of each chunk.
pub(crate) fn counts(sets: &[ContributorSet]) -> Vec<u32> {
    sets.iter().map(|set| set.count() as u32).collect()
}
