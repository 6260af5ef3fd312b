//! A gradient over vertically split data: labels at one party, features at another.
//!
//! ```text
//! cargo run --release -p ciphergram-he --example vertical
//! ```
//!
//! Logistic regression. Ada has labels, and her part of the score of each row; Ben has features. A step takes the
//! gradient `Xᵀ·r` of Ben's 64 weights, of residuals r = σ(score) − label that Ben must not see, by features X that Ada
//! must not see, over 4,096 rows:
//!
//! 1. Ada encrypts residuals under her key, one ciphertext, and sends it.
//! 2. Ben multiplies by his features, masks the encrypted gradient, and sends it.
//! 3. Ada opens what is masked, which tells her nothing, and floods it, so that its last digits tell nothing of her
//!    key.
//! 4. Ben takes his mask off.
//!
//! The same is then done with our Paillier of 2048 bits, at 16 bits a number, both on one core. Both gradients are
//! compared with the one in clear.

#![allow(clippy::unwrap_used, reason = "an example, where a panic is the report")]

use std::{sync::Arc, time::Instant};

use ciphergram_accel::{CpuEngine, Engine, Secret};
use ciphergram_he::{
    Error,
    ckks::{
        Complex, Decryptor, Encryptor, Evaluator, Parameters, Preset, SecretKey, matrix_rotations,
    },
    paillier::{
        Encryptor as PaillierEncryptor, Evaluator as PaillierEvaluator, Matrix, PaillierSecret,
        Plaintexts,
    },
};

const ROWS: usize = 4096;
const FEATURES: usize = 64;
/// Residuals are encrypted in units of this, and features encoded, so that what flooding adds is far below products.
const UNIT: f64 = 1.0 / (1 << 21) as f64;
const FEATURE_UNIT: f64 = 1.0 / (1 << 14) as f64;
/// Steps of a training under one key, and bits of the largest gradient that flooding must leave.
const RELEASES: (u32, f64) = (100, 12.0);
/// Steps of a quantised number in Paillier's plaintexts, on either side of zero.
const STEPS: f64 = 32767.0;

/// Draws numbers within ±1 by a small generator: the same every time.
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn main() -> Result<(), Error> {
    // Both on one core.
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().unwrap();
    let engine = CpuEngine::new();
    let features = numbers(ROWS * FEATURES, 1);
    let weights = numbers(FEATURES, 2);
    let score = |row: &[f64]| row.iter().zip(&weights).map(|(x, w)| x * w).sum::<f64>();
    let labels = features.chunks(FEATURES).map(|row| f64::from(u8::from(score(row) > 0.0)));
    // At the first step all weights are zero, and so σ is a half.
    let residuals: Vec<f64> = labels.map(|label| 0.5 - label).collect();
    let gradient: Vec<f64> = (0..FEATURES)
        .map(|j| features.chunks(FEATURES).zip(&residuals).map(|(row, r)| row[j] * r).sum())
        .collect();

    let (levelled, seconds) = levelled(&engine, &features, &residuals)?;
    let off = furthest(&levelled, &gradient);
    println!(
        "ckks-4096x2    {:9.1} ms  off by at most {off:.1e} of {:.1}",
        seconds * 1e3,
        largest(&gradient)
    );
    let (sums, paillier_seconds) = paillier(&features, &residuals)?;
    let off = furthest(&sums, &gradient);
    println!("paillier-2048  {:9.1} ms  off by at most {off:.1e}", paillier_seconds * 1e3);
    println!("{:.0} times as fast, encryption included", paillier_seconds / seconds);
    Ok(())
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, x| x.abs().max(most))
}

fn furthest(found: &[f64], expected: &[f64]) -> f64 {
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Returns the gradient that Ben has in the end, and the seconds of a step.
fn levelled(
    engine: &dyn Engine,
    features: &[f64],
    residuals: &[f64],
) -> Result<(Vec<f64>, f64), Error> {
    let parameters = Arc::new(Parameters::preset(Preset::Slots4096Levels2));
    // Once: Ada's keys, and Ben's features as diagonals of Xᵀ.
    let secret = SecretKey::generate(&parameters, engine)?;
    let rotations = matrix_rotations(FEATURES, ROWS, parameters.slots());
    let keys = secret.evaluation_keys(&rotations, engine)?;
    let (encryptor, decryptor) = (Encryptor::secret(&secret, 1.0 / UNIT), Decryptor::new(&secret));
    let evaluator = Evaluator::new(keys, engine);
    let transposed: Vec<f64> = (0..FEATURES)
        .flat_map(|j| features.iter().skip(j).step_by(FEATURES).map(|x| x / FEATURE_UNIT))
        .collect();
    let top = parameters.top_level();
    let matrix = evaluator.encode_matrix(&transposed, (FEATURES, ROWS), top)?;
    let in_units: Vec<f64> = residuals.iter().map(|r| r / UNIT).collect();
    let step = || -> Result<Vec<f64>, Error> {
        let encrypted = encryptor.encrypt(&Complex::real(&in_units), engine)?;
        let gradient = evaluator.multiply_matrix(&matrix, &encrypted)?;
        let (masked, mask) = evaluator.mask(&gradient)?;
        let opened = decryptor.release_masked(&masked, RELEASES, engine)?;
        Ok(mask.open(&opened).re[..FEATURES].iter().map(|x| x * UNIT * FEATURE_UNIT).collect())
    };
    // Programs are made by the first.
    step()?;
    let start = Instant::now();
    let gradient = step()?;
    Ok((gradient, start.elapsed().as_secs_f64()))
}

/// Does the same with integers under Paillier, whose sums are exact.
fn paillier(features: &[f64], residuals: &[f64]) -> Result<(Vec<f64>, f64), Error> {
    let engine: Arc<dyn Engine> = Arc::new(CpuEngine::new());
    let secret = PaillierSecret::generate(2048)?;
    let modulus = secret.modulus().clone();
    let quantised = |values: &[f64]| values.iter().map(|x| (x * STEPS).round() as i64).collect();
    let integers: Vec<i64> = quantised(residuals);
    let entries: Vec<i64> = quantised(
        &(0..FEATURES)
            .flat_map(|j| features.iter().skip(j).step_by(FEATURES).copied())
            .collect::<Vec<_>>(),
    );
    // Ben's features are his secret: powers take the same time whatever they are.
    let matrix = Matrix::<Secret>::secret(FEATURES, ROWS, &entries, 17)?;
    let evaluator = PaillierEvaluator::new(&modulus, engine.clone());
    let masks: Vec<i64> = numbers(FEATURES, 3).iter().map(|x| (x * 2f64.powi(60)) as i64).collect();
    let masks = Plaintexts::from_i64(&modulus, &masks);
    let start = Instant::now();
    let plain = Plaintexts::from_i64(&modulus, &integers);
    let encrypted = PaillierEncryptor::for_owner(&secret, &*engine)?.encrypt(&*engine, &plain)?;
    let gradient = evaluator.matvec(&encrypted, &matrix)?;
    let masked = evaluator.add_plain(&gradient, &masks)?;
    let opened = secret.decrypt(&*engine, &masked)?.to_i64()?;
    let seconds = start.elapsed().as_secs_f64();
    let unmasked =
        opened.iter().zip(masks.to_i64()?.iter()).map(|(x, mask)| x - mask).collect::<Vec<_>>();
    Ok((unmasked.iter().map(|&x| x as f64 / (STEPS * STEPS)).collect(), seconds))
}
