//! Weights: how much each update counts in a sum.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Source;
use crate::{Error, ckks::CkksError, ids::hex, versions};

/// The weight of an update that counts whole.
pub const WEIGHT_OF_ONE: u64 = 1024;

/// The version of weights files.
const VERSION: u32 = 1;
const KIND: &str = "ciphergram-weights";

/// The weight of one update.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    /// The name of its file, for people.
    pub name: String,
    /// The digest at the end of its file, as hexadecimal digits: this is what names it.
    pub digest: String,
    /// The weight, from 0 to [`WEIGHT_OF_ONE`].
    pub weight: u64,
}

/// Weights of updates, and what their sum is divided by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    kind: String,
    version: u32,
    divisor: u64,
    updates: Vec<Weighted>,
}

impl Weights {
    /// Makes weights of a sum that is divided by [`WEIGHT_OF_ONE`] for each update that counts.
    #[must_use]
    pub fn new(updates: Vec<Weighted>) -> Self {
        let counting = updates.iter().filter(|update| update.weight > 0).count() as u64;
        Self { kind: KIND.into(), version: VERSION, divisor: WEIGHT_OF_ONE * counting, updates }
    }

    /// Returns what the sum is divided by.
    #[must_use]
    pub fn divisor(&self) -> u64 {
        self.divisor
    }

    /// Returns the weights.
    #[must_use]
    pub fn updates(&self) -> &[Weighted] {
        &self.updates
    }

    /// Returns the text of the file.
    ///
    /// # Errors
    /// None is known; the library's are passed on.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string_pretty(self).map_err(|e| invalid(e.to_string()))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is not as it should be, has a weight beyond [`WEIGHT_OF_ONE`], an update twice, or none that counts.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        versions::check_json(text, WHAT, KIND, VERSION)?;
        let weights: Self = serde_json::from_str(text).map_err(|e| invalid(e.to_string()))?;
        if let Some(update) = weights.updates.iter().find(|update| update.weight > WEIGHT_OF_ONE) {
            let Weighted { name, weight, .. } = update;
            return Err(invalid(format!(
                "{name:?} has weight {weight}, at most {WEIGHT_OF_ONE} are"
            )));
        }
        let mut known = BTreeSet::new();
        if let Some(update) = weights.updates.iter().find(|update| !known.insert(&update.digest)) {
            return Err(invalid(format!("{:?} is there twice", update.name)));
        }
        if weights.divisor == 0 || weights.updates.iter().all(|update| update.weight == 0) {
            return Err(invalid("no update counts"));
        }
        Ok(weights)
    }

    /// Returns the weight of a file.
    ///
    /// # Errors
    /// It is not among them.
    pub(super) fn of(&self, source: &Source) -> Result<u64, Error> {
        let digest = hex(&source.digest);
        let found = self.updates.iter().find(|update| update.digest == digest);
        let why = "the weights do not name this file: they are of other updates";
        let missing = || CkksError::Vectors { why: why.into() };
        Ok(found.ok_or_else(missing)?.weight)
    }

    /// Refuses weights above 0 of files that were not given.
    pub(super) fn check_all_used(&self, known: &BTreeSet<[u8; 32]>) -> Result<(), Error> {
        let known: BTreeSet<_> = known.iter().map(|digest| hex(digest)).collect();
        let missing = |update: &&Weighted| update.weight > 0 && !known.contains(&update.digest);
        match self.updates.iter().find(missing) {
            None => Ok(()),
            Some(Weighted { name, .. }) => {
                let why = format!("the weights name {name:?}, which is not among the files");
                Err(CkksError::Vectors { why }.into())
            }
        }
    }
}

const WHAT: &str = "weights file";

fn invalid(why: impl Into<String>) -> Error {
    Error::Json { what: WHAT, why: why.into() }
}
