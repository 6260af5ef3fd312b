//! The check: compares what every client decrypted with plain arithmetic over the quantised
//! updates.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ciphergram_he::{
    Parameters, Update,
    codec::{self, Output},
};

use super::{
    client::{CheckRecord, record_path},
    digits::DigitImages,
    model::{Classifier, Quality, Weights},
};
use crate::{
    args::DemoArgs,
    failure::{Failure, at},
};

/// The outcome of a round.
pub(super) struct RoundCheck {
    /// Whether every mean was the plaintext mean of the quantised updates.
    pub(super) agrees: bool,
    /// The encrypted model after the round.
    pub(super) evaluation: Quality,
}

/// Follows the encrypted training from its records.
pub(super) struct Checker {
    clients: u16,
    parameters: Parameters,
    folder: PathBuf,
    model: Classifier,
    test: DigitImages,
}

impl Checker {
    pub(super) fn new(args: &DemoArgs, parameters: Parameters, folder: &Path) -> Self {
        let test = DigitImages::load().split(args.seed).test;
        let (clients, folder) = (args.clients, folder.to_path_buf());
        Self { clients, parameters, folder, model: Classifier::new(args.seed), test }
    }

    /// Goes on with the first clients alone.
    pub(super) fn keep(&mut self, clients: u16) {
        self.clients = clients;
    }

    /// Checks one round and applies its mean.
    pub(super) fn round(&mut self, round: u32) -> Result<RoundCheck, Failure> {
        let mut records = vec![];
        let mut means = vec![];
        for client in 0..self.clients {
            records
                .push(serde_json::from_slice::<CheckRecord>(&self.take(client, round, "json")?)?);
            means.push(self.take(client, round, "safetensors")?);
        }
        let agrees = self.is_exact(&records, &means)?;
        let mean = Update::from_safetensors(&means[0])?;
        self.model.apply(&Weights::from_update(&mean)?);
        Ok(RoundCheck { agrees, evaluation: self.model.evaluate(&self.test) })
    }

    /// Reads a record and removes its file.
    fn take(&self, client: u16, round: u32, end: &str) -> Result<Vec<u8>, Failure> {
        let path = record_path(&self.folder, client, round, end);
        let bytes = fs::read(&path).map_err(at(&path))?;
        fs::remove_file(&path).map_err(at(&path))?;
        Ok(bytes)
    }

    /// Compares sums, counts and weights of every chunk, and every bit of every mean.
    fn is_exact(&self, records: &[CheckRecord], means: &[Vec<u8>]) -> Result<bool, Failure> {
        let half = i64::from(self.parameters.half_steps());
        let values = records[0].fields.len();
        if records.iter().any(|r| r.fields.len() != values) {
            return Ok(false);
        }
        let sum = |i| records.iter().map(|r| i64::from(r.fields[i]) - half).sum::<i64>();
        let sums: Vec<i64> = (0..values).map(sum).collect();
        let weight: u64 = records.iter().map(|r| r.weight).sum();
        let part = (records.len(), weight);
        let agreement = records[0].ranges.agreement()?;
        let plain = [(&sums[..], weight)].into_iter();
        let mean = codec::decode(&agreement, &self.parameters, Output::Mean, plain)?;
        let mean = mean.to_safetensors()?;
        let same = |r: &CheckRecord| {
            r.sums == sums && r.parts.iter().all(|&p| p == part) && r.ranges == records[0].ranges
        };
        Ok(records.iter().all(same) && means.iter().all(|m| *m == mean))
    }
}
