//! Noise on its way: a sum of noised updates opens to the mean of what was clipped, with the noise that was agreed.

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine};
use ciphergram_he::{
    Agreement, Dtype, Error, Job, Limits, OpenedSum, Scheme, SealPermit, Sealer, SecretKey, Tensor,
    TensorSpec, Update, aggregate,
    codec::Output,
    dp::{Literal, Mechanism, Noise},
    job::{Budget, NoiseLimits},
    params,
};

const VALUES: usize = 20_000;

/// Returns two tensors of an L2 norm together, of values of one magnitude.
fn update(norm: f64) -> Update {
    let each = norm / (VALUES as f64).sqrt();
    let tensor = |name: &str, places: std::ops::Range<usize>| {
        let values: Vec<_> = places.map(|i| if i % 3 == 0 { -each } else { each }).collect();
        let shape = vec![values.len() as u64];
        let spec = TensorSpec { name: name.into(), dtype: Dtype::F64, shape };
        Tensor::from_values(spec, &values).unwrap()
    };
    Update::new(vec![tensor("a", 0..77), tensor("b", 77..VALUES)])
}

fn values(update: &Update) -> impl Iterator<Item = f64> {
    update.tensors().iter().flat_map(|tensor| tensor.values().unwrap())
}

#[test]
fn a_sum_opens_to_the_mean_of_what_was_clipped_with_the_noise_that_was_agreed() {
    let (sigma, clip, clients) = (0.2, 10.0, 5);
    let engine: Arc<dyn Engine> = Arc::new(CpuEngine::new());
    let scheme = Scheme::CkksSum;
    let key = SecretKey::generate(params::Literal { scheme, clients, bits: 16 }).unwrap();
    let parameters = key.public().parameters();
    let noise = Noise::new(Literal { sigma, clip, clients, min_clients: 4 }).unwrap();
    let limits = Limits {
        min_clients: 4,
        colluders: None,
        max_weight: 1,
        max_range: noise.range(),
        noise: Some(NoiseLimits { sigma, clip, budget: None }),
        ..Limits::of_key(key.public())
    };
    let job = Job::new(key.public(), limits).unwrap();
    assert_eq!(job.noise(), Some(&noise));
    let agreement = Agreement::new(update(1.0).specs(), vec![noise.range(); 2], 1).unwrap();
    let terms = job.terms(0, &agreement).unwrap();
    // One of five is ten times too long, and comes out as long as the clip.
    let norms = [1.0, 2.0, 3.0, 4.0, 100.0];
    let contributions = norms.iter().zip(0..).map(|(&norm, client)| {
        let own = terms.quantise(&update(norm), 1, parameters, &[client as u8; 32]).unwrap();
        let (key, permit) = (key.as_client(client), SealPermit::draw().unwrap());
        let sealer = Sealer::new(key, engine.clone(), own, permit, &terms).unwrap();
        ("one", sealer.into_contribution())
    });
    let sum = aggregate(key.public(), &job, engine.clone(), contributions).unwrap();
    let mean =
        OpenedSum::open(&key, &*engine, &sum, &job).unwrap().decode(&sum, Output::Mean).unwrap();
    let expected = update(20.0 / 5.0);
    let off: Vec<_> = values(&mean).zip(values(&expected)).map(|(x, y)| x - y).collect();
    // Five shares of four that make the noise of a sum; rounding adds a quarter of a squared step each at most.
    let half_steps = parameters.half_steps();
    let mechanism = Mechanism::new(noise, noise.range(), half_steps, VALUES).unwrap();
    let rounding = mechanism.step().powi(2) / 4.0 * 5.0;
    let agreed = (sigma * clip).powi(2) * 5.0 / 4.0;
    let variance = off.iter().map(|x| x * x).sum::<f64>() / VALUES as f64 * 25.0;
    let error = 5.0 * (2.0 / VALUES as f64).sqrt();
    assert!(variance > agreed * (1.0 - error), "{variance} of {agreed}");
    assert!(variance < (agreed + rounding) * (1.0 + error), "{variance} of {agreed}");
    let bias =
        values(&expected).zip(&off).map(|(y, off)| off * y.signum()).sum::<f64>() / VALUES as f64;
    assert!(bias.abs() < 5.0 * (agreed / 25.0 / VALUES as f64).sqrt(), "{bias}");
}

/// A job's budget is of all its rounds: none follows, and noise that gives away more is refused when the job is made,
/// or for updates of too many values.
#[test]
fn a_budget_bounds_epsilon_and_ends_a_job() {
    let scheme = Scheme::CkksSum;
    let key = SecretKey::generate(params::Literal { scheme, clients: 5, bits: 16 }).unwrap();
    let job = |sigma, budget| {
        let limits = Limits::of_key(key.public());
        let noise = Some(NoiseLimits { sigma, clip: 1.0, budget: Some(budget) });
        let max_range = 1000.0;
        Job::new(key.public(), Limits { max_weight: 1, max_range, noise, ..limits })
    };
    let budget = Budget { epsilon: 20.0, delta: 1e-5, rounds: 3 };
    let made = job(1.0, budget).unwrap();
    let read = Job::from_json(&made.to_json().unwrap(), key.public()).unwrap();
    assert_eq!((&read, read.id()), (&made, made.id()));
    for other in [Budget { rounds: 4, ..budget }, Budget { epsilon: 21.0, ..budget }] {
        assert_ne!(job(1.0, other).unwrap().id(), made.id());
    }
    let agreement =
        Agreement::new(update(1.0).specs(), vec![made.noise().unwrap().range(); 2], 1).unwrap();
    assert!(made.terms(2, &agreement).is_ok());
    let why = "round 3 is beyond the 3 rounds that its privacy budget is for: make another job";
    let spent = Error::BeyondJob { why: why.into() };
    assert_eq!(made.terms(3, &agreement).err(), Some(spent));
    let too_much = |budget| job(1.0, budget).err().unwrap().to_string();
    for much in [
        Budget { rounds: 20, ..budget },
        Budget { epsilon: 1.0, ..budget },
        Budget { epsilon: f64::NAN, ..budget },
    ] {
        assert!(too_much(much).contains("the budget is"), "{much:?}");
    }
    assert!(too_much(Budget { delta: 0.0, ..budget }).contains("a delta of 0"));
}
