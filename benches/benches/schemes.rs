//! Whole contributions: seal, add, open. Ids `operation/engine/scheme`, one client, 100,000 values
//! at 16 bits under `ckks-sum`, 2,000 under Paillier, 64 clients' headroom. Beside them, what makes the integers of
//! 1 M values: `quantise/BITS`, and `noise/BITS` with noise for differential privacy.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine};
use ciphergram_he::{
    Accumulator, Agreement, Contribution, Dtype, Error, Job, Limits, OpenedSum, Parameters,
    Quantised, Scheme, Sealer, SecretKey, Tensor, TensorSpec, Terms, Ticket, Update, aggregate,
    dp::{self, Noise},
    params::Literal,
    random,
};
use criterion::{Criterion, criterion_group, criterion_main};

fn contribute(
    key: &SecretKey,
    engine: &Arc<dyn Engine>,
    terms: &Terms<'_>,
) -> Result<Contribution<'static>, Error> {
    let agreement = terms.agreement();
    let update = Quantised::from_fields(vec![4321; agreement.values()], 1);
    let sealer = Sealer::new(key.as_client(0), engine.clone(), update, Ticket::draw()?, terms)?;
    sealer.into_contribution()
}

fn scheme(c: &mut Criterion, scheme: Scheme, values: u64) -> Result<(), Error> {
    let engine: Arc<dyn Engine> = Arc::new(CpuEngine::new());
    let key = SecretKey::generate(Literal { scheme, clients: 64, bits: 16 })?;
    let spec = TensorSpec { name: "t".into(), dtype: Dtype::F32, shape: vec![values] };
    let agreement = Agreement::new(vec![spec], vec![1.0], 1)?;
    let limits = Limits::of_key(key.public())
        .of_clients(key.public().parameters().clients() as u16, Some(1));
    let job = Job::new(key.public(), limits)?;
    let terms = job.terms(0, &agreement)?;
    let id = |operation: &str| format!("{operation}/{}/{scheme}", engine.name());
    c.bench_function(&id("seal"), |bench| {
        bench.iter(|| contribute(&key, &engine, &terms));
    });
    let contribution = contribute(&key, &engine, &terms)?;
    let mut sum = Accumulator::new(key.public(), engine.clone(), agreement.values());
    let chunks = 0..sum.chunks().count();
    c.bench_function(&id("add"), |bench| {
        bench.iter(|| sum.add(chunks.clone(), &contribution.stream));
    });
    let sum = aggregate(key.public(), &job, engine.clone(), [("one", Ok(contribution))])?;
    c.bench_function(&id("open"), |bench| {
        bench.iter(|| OpenedSum::open(&key, &*engine, &sum, &job).map(|_| ()));
    });
    Ok(())
}

/// Benches an update of a million values, none of them like the next.
fn integers(c: &mut Criterion) -> Result<(), Error> {
    const VALUES: usize = 1_000_000;
    let values: Vec<_> = (0..VALUES).map(|i| (i as f64 * 0.7).sin()).collect();
    let shape = vec![VALUES as u64];
    let spec = TensorSpec { name: "t".into(), dtype: Dtype::F32, shape };
    let update = Update::new(vec![Tensor::from_values(spec, &values)?]);
    let noise = Noise::new(dp::Literal { sigma: 1.0, clip: 500.0, clients: 64, min_clients: 10 })?;
    let agreement = Agreement::new(update.specs(), vec![noise.range()], 1)?;
    let (mut rng, seed) = (random::generator()?, [1; 32]);
    for bits in [16, 24] {
        let scheme = Scheme::CkksSum;
        let parameters = Parameters::new(Literal { scheme, clients: 64, bits })?;
        c.bench_function(&format!("quantise/{bits}"), |bench| {
            let new = || Quantised::new(&update, &agreement, 1, &parameters, &seed);
            bench.iter(|| new().and_then(|own| own.fields().map(|fields| fields.len())));
        });
        c.bench_function(&format!("noise/{bits}"), |bench| {
            bench.iter(|| Quantised::noised(&update, &agreement, &parameters, &noise, &mut rng));
        });
    }
    Ok(())
}

fn schemes(c: &mut Criterion) {
    if let Err(error) = integers(c) {
        eprintln!("noise: {error}");
    }
    for (name, values) in
        [(Scheme::CkksSum, 100_000), (Scheme::Paillier2048, 2_000), (Scheme::Paillier3072, 2_000)]
    {
        if let Err(error) = scheme(c, name, values) {
            eprintln!("{name}: {error}");
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = schemes
}
criterion_main!(benches);
