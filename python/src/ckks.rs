//! The module `ciphergram.ckks`: vectors to compute with while they are encrypted.

mod keys;
mod vector;

use std::sync::{Arc, LazyLock};

use ciphergram_accel::CpuEngine;
use ciphergram_he::{
    Error as SchemeError,
    ckks::{self, Evaluator},
};
use pyo3::prelude::*;

pub(crate) use keys::{
    PyCkksKeys, PyCkksPublicKey, PyCkksSecretKey, PyEvaluationKeys, keygen, load_keys,
};
pub(crate) use vector::{PyVector, load, loads};

use crate::errors::{Error, Result};

/// What all of this computes on: it has no threads of its own, so that a child that was forked has it too.
static ENGINE: LazyLock<CpuEngine> = LazyLock::new(CpuEngine::new);

/// What computes on vectors under a key, and whether it has keys for nothing but sums and public numbers.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) evaluator: Arc<Evaluator<'static>>,
    is_bare: bool,
}

impl Context {
    /// Takes the keys that a caller has, if any.
    fn of(keys: ckks::EvaluationKeys) -> Self {
        let is_bare = keys.others() == [false; 2] && keys.rotations().is_empty();
        Self { evaluator: Arc::new(Evaluator::new(keys, &*ENGINE)), is_bare }
    }

    /// Returns the one of both that can do more.
    fn or<'a>(&'a self, other: &'a Self) -> &'a Self {
        if self.is_bare { other } else { self }
    }

    /// Returns the id of its key, as hexadecimal digits.
    fn id(&self) -> String {
        self.evaluator.keys().id().to_string()
    }

    /// Finds what a key computes with, whatever kind of key it is.
    fn of_key(key: &Bound<'_, PyAny>) -> Result<Self> {
        if let Ok(keys) = key.cast::<PyEvaluationKeys>() {
            return Ok(keys.get().context.clone());
        }
        if let Ok(keys) = key.cast::<PyCkksKeys>() {
            return Ok(keys.get().context(key.py()));
        }
        if let Ok(key) = key.cast::<PyCkksPublicKey>() {
            return Ok(key.get().0.context());
        }
        if let Ok(key) = key.cast::<PyCkksSecretKey>() {
            return Ok(key.get().0.context());
        }
        let text = format!("{} is no key for vectors", key.get_type().name()?);
        Err(Error::Own("KeyKind", text))
    }

    /// Refuses what is under another key.
    fn check(&self, found: String) -> Result<()> {
        let expected = self.id();
        if found == expected {
            return Ok(());
        }
        Err(SchemeError::KeyMismatch { what: "it was made under key", found, expected }.into())
    }
}

/// Returns the name of a preset.
fn scheme(parameters: &ckks::Parameters) -> Result<&'static str> {
    Ok(parameters.named().map_err(SchemeError::from)?.name())
}
