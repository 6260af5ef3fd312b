//! The plaintext twin: the same data, model, seeds and weights, in float32 and without encryption.

use super::{
    digits::DigitImages,
    model::{Classifier, Quality, TRAINING, Weights},
    training_seed,
};

/// Federated averaging in one process.
pub(super) struct PlaintextTraining {
    seed: u64,
    shards: Vec<DigitImages>,
    test: DigitImages,
    model: Classifier,
}

impl PlaintextTraining {
    pub(super) fn new(seed: u64, clients: usize) -> Self {
        let split = DigitImages::load().split(seed);
        let shards = split.train.shards(clients, seed);
        Self { seed, shards, test: split.test, model: Classifier::new(seed) }
    }

    pub(super) fn parameters(&self) -> usize {
        self.model.weights().count()
    }

    pub(super) fn training_images(&self) -> usize {
        self.shards.iter().map(DigitImages::len).sum()
    }

    pub(super) fn test_images(&self) -> usize {
        self.test.len()
    }

    /// Goes on with the first clients alone.
    pub(super) fn keep(&mut self, clients: u16) {
        self.shards.truncate(clients.into());
    }

    /// Runs one round: every client's update, their mean weighted by images, one step.
    pub(super) fn round(&mut self, round: u32) -> Quality {
        let updates: Vec<_> = self
            .shards
            .iter()
            .enumerate()
            .map(|(client, shard)| {
                let seed = training_seed(self.seed, round, client);
                (shard.len() as f64, self.model.local_update(shard, &TRAINING, seed))
            })
            .collect();
        self.model.apply(&mean(&updates));
        self.model.evaluate(&self.test)
    }
}

/// Returns the weighted mean of updates, value by value.
fn mean(updates: &[(f64, Weights)]) -> Weights {
    let total: f64 = updates.iter().map(|(weight, _)| weight).sum();
    let mut mean = Weights::zeros();
    for (t, tensor) in mean.0.iter_mut().enumerate() {
        for (i, value) in tensor.iter_mut().enumerate() {
            let sum: f64 = updates.iter().map(|(w, u)| w * f64::from(u.0[t][i])).sum();
            *value = (sum / total) as f32;
        }
    }
    mean
}
