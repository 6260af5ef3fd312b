//! Sums of sealed contributions, all the way, against plain integers.

#![allow(dead_code, reason = "no test uses all of it")]

use std::sync::{Arc, OnceLock};

use ciphergram_accel::{CpuEngine, Engine};
use ciphergram_he::{
    Agreement, AnyKey, Contribution, OpenedSum, PublicKey, Quantised, Sealer, SecretKey, Sum,
    TensorSpec, Ticket, aggregate,
    params::{Literal, Scheme},
    tensors::Dtype,
};

pub(crate) fn engine() -> Arc<dyn Engine> {
    static ENGINE: OnceLock<Arc<CpuEngine>> = OnceLock::new();
    ENGINE.get_or_init(Arc::default).clone()
}

pub(crate) fn generate(scheme: Scheme, clients: u32, bits: u32) -> AnyKey {
    let key = SecretKey::generate(Literal { scheme, clients, bits }).unwrap();
    AnyKey::Secret(Box::new(key), None)
}

pub(crate) fn ring_degree(key: &AnyKey) -> usize {
    key.public().parameters().rlwe().unwrap().ring.degree()
}

pub(crate) fn secret(key: &AnyKey) -> &SecretKey {
    match key {
        AnyKey::Secret(key, _) => key,
        AnyKey::Public(_) => panic!("a secret key"),
    }
}

pub(crate) fn agreement(values: usize, max_weight: u32) -> Agreement {
    let spec = TensorSpec { name: "t".into(), dtype: Dtype::F32, shape: vec![values as u64] };
    Agreement::new(vec![spec], vec![1.0], max_weight).unwrap()
}

pub(crate) fn contribute(
    key: &AnyKey,
    fields: &[u32],
    weight: u32,
    agreement: &Agreement,
) -> Contribution<'static> {
    let update = Quantised::from_fields(fields.to_vec(), weight);
    let sealer = Sealer::new(key, engine(), update, Ticket::draw().unwrap()).unwrap();
    let seed = sealer.seed();
    Contribution { seed, agreement: agreement.clone(), stream: sealer.seal_all().unwrap().into() }
}

/// Seals, writes, reads, adds, writes, reads and opens; gives sums with their offset, and weights.
pub(crate) fn through(key: &AnyKey, updates: &[(Vec<u32>, u32)]) -> (Vec<i64>, Vec<(usize, u64)>) {
    let public: &PublicKey = key.public();
    let agreement = agreement(updates[0].0.len(), u32::MAX);
    let files: Vec<Vec<u8>> = updates
        .iter()
        .map(|(fields, weight)| contribute(key, fields, *weight, &agreement).to_bytes(public))
        .collect();
    let read = files.iter().enumerate().map(|(i, f)| (i, Contribution::from_bytes(f, public)));
    let sum = aggregate(public, engine(), read).unwrap();
    let sum = Sum::from_bytes(&sum.to_bytes(public), public).unwrap();
    let opened = OpenedSum::open(secret(key), &*engine(), &sum).unwrap();
    (opened.sums().to_vec(), opened.parts().to_vec())
}

pub(crate) fn assert_exact(key: &AnyKey, updates: &[(Vec<u32>, u32)]) {
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
pub(crate) fn extremes(key: &AnyKey) -> Vec<u32> {
    let p = key.public().parameters();
    let (each, most) = (p.geometry().values_per_chunk(), 2 * p.half_steps());
    let ends = [most, 0, most / 2];
    let mixed = (0..each / 2 + 1).map(|i| ends[i % 3]);
    ends.into_iter().flat_map(|end| vec![end; each]).chain(mixed).collect()
}

/// Makes the contributions of `clients`: `values` values each that look random, and weights that differ.
pub(crate) fn scattered(
    key: &AnyKey,
    clients: u32,
    values: usize,
    seed: u64,
) -> Vec<(Vec<u32>, u32)> {
    let most = u64::from(2 * key.public().parameters().half_steps());
    let value = |c: u32, i: usize| {
        let x = seed.wrapping_mul(2 * u64::from(c) + 1).wrapping_add(i as u64);
        ((x.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % (most + 1)) as u32
    };
    (0..clients).map(|c| ((0..values).map(|i| value(c, i)).collect(), c * 7 + 1)).collect()
}
