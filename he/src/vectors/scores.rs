//! Scores of updates, and the weights that follow from them: for key holders. Weights leave them encrypted, since the
//! aggregator made up what they were computed from: in clear they would be answers of the secret key to its questions.

use ciphergram_accel::Engine;

use super::{
    Layout, Recipe, Source, Vector,
    screen::{NORMS, PRODUCTS, REFERENCE, specs},
};
use crate::{
    Dtype, Error, LevelledKey, Tensor, TensorSpec, Update,
    ckks::{CkksError, LevelledSecret},
};

/// The tensor of weights.
const WEIGHTS: &str = "weight";

/// What an update must keep to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// The norm that longer updates are clipped to.
    pub max_norm: Option<f64>,
    /// The least cosine of the angle between an update and the reference; others are dropped.
    pub min_cosine: Option<f64>,
}

/// The score of one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Its norm.
    pub norm: f64,
    /// The cosine of its angle with the reference, if there is one: 0 where either is zero.
    pub cosine: Option<f64>,
}

/// The scores of all updates.
pub struct Scores {
    scores: Vec<Score>,
    sources: Vec<Source>,
}

impl Scores {
    /// Decrypts what [`screen`](super::screen) left.
    ///
    /// # Errors
    /// It is something else, or on another level; another key's; the engine's.
    pub fn decrypt(of: &Vector, key: &LevelledSecret, engine: &dyn Engine) -> Result<Self, Error> {
        let count = of.sources.len();
        let is_of_screen =
            [false, true].iter().any(|&reference| of.specs == specs(count, reference));
        if count == 0 || !is_of_screen || of.layout != Layout::Each || of.level() != 0 {
            let why = "these are no scores, which screening gives";
            return Err(CkksError::Vectors { why: why.into() }.into());
        }
        let opened = of.decrypt(key, engine)?;
        let norms = numbers(&opened, NORMS)?.unwrap_or_default();
        let (products, reference) = (numbers(&opened, PRODUCTS)?, numbers(&opened, REFERENCE)?);
        let score = |(i, &square): (usize, &f64)| {
            // Noise may leave less than nothing.
            let norm = square.max(0.0).sqrt();
            let own = reference.as_ref().and_then(|own| own.first()).map(|own| own.max(0.0).sqrt());
            let product = products.as_ref().and_then(|products| products.get(i));
            let cosine = product.zip(own).map(|(product, own)| {
                let lengths = norm * own;
                if lengths > 0.0 { (product / lengths).clamp(-1.0, 1.0) } else { 0.0 }
            });
            Score { norm, cosine }
        };
        let scores = norms.iter().enumerate().map(score).collect();
        Ok(Self { scores, sources: of.sources.clone() })
    }

    /// Makes scores of norms.
    #[cfg(test)]
    pub(super) fn of(norms: &[f64], sources: impl Iterator<Item = Source>) -> Self {
        let score = |&norm: &f64| Score { norm, cosine: None };
        Self { scores: norms.iter().map(score).collect(), sources: sources.collect() }
    }

    /// Returns the name and the score of each update.
    pub fn each(&self) -> impl Iterator<Item = (&str, Score)> {
        self.sources.iter().map(|source| &source.name[..]).zip(self.scores.iter().copied())
    }

    /// Returns how much each update counts, from 0 to 1: one that is too long by a factor that much less, one that
    /// points elsewhere not at all.
    ///
    /// # Errors
    /// Limits that are no limits; a least cosine where there was no reference. That nothing is left is no error:
    /// weights are sent all the same, or whoever computed the scores would learn of it.
    pub fn shares(&self, limits: Limits) -> Result<Vec<f64>, Error> {
        let Limits { max_norm, min_cosine } = limits;
        let refuse = |why: String| Err(CkksError::Vectors { why }.into());
        if let Some(norm) = max_norm.filter(|norm| !norm.is_finite() || *norm <= 0.0) {
            return refuse(format!("the largest norm is {norm}; it must be a positive number"));
        }
        if let Some(least) = min_cosine.filter(|least| !(-1.0..=1.0).contains(least)) {
            return refuse(format!("the least cosine is {least}; it must be from -1 to 1"));
        }
        if min_cosine.is_some() && self.scores.iter().any(|score| score.cosine.is_none()) {
            return refuse("there are no cosines: screen the updates against a reference".into());
        }
        let share = |score: &Score| {
            let is_elsewhere = min_cosine.zip(score.cosine).is_some_and(|(least, own)| own < least);
            let clipped = max_norm.map_or(1.0, |limit| (limit / score.norm).min(1.0));
            if is_elsewhere { 0.0 } else { clipped }
        };
        Ok(self.scores.iter().map(share).collect())
    }

    /// Encrypts the weights under which [`aggregate`](super::aggregate()) sums to the mean of those that count: shares
    /// over the number of these. Nothing of them is in clear but the names of all updates.
    ///
    /// # Errors
    /// Those of [`Vector::encrypt`].
    pub fn encrypt_weights(
        &self,
        key: &LevelledKey,
        shares: &[f64],
        engine: &dyn Engine,
    ) -> Result<Vector, Error> {
        let counting = shares.iter().filter(|&&share| share > 0.0).count() as f64;
        let weights: Vec<_> = shares.iter().map(|share| share / counting.max(1.0)).collect();
        let update = Update::new(vec![Tensor::from_values(weights_spec(shares.len()), &weights)?]);
        let recipe = Recipe { range: Some(1.0), layout: Layout::Each };
        let vector = Vector::encrypt(key, &update, &recipe, engine)?;
        Ok(Vector { sources: self.sources.clone(), ..vector })
    }
}

/// Returns the values of a tensor, if there is one of this name.
fn numbers(of: &Update, name: &str) -> Result<Option<Vec<f64>>, Error> {
    let tensor = of.tensors().iter().find(|tensor| tensor.spec.name == name);
    tensor.map(Tensor::values).transpose()
}

fn weights_spec(count: usize) -> TensorSpec {
    TensorSpec { name: WEIGHTS.into(), dtype: Dtype::F64, shape: vec![count as u64] }
}

/// Refuses a vector that holds no weights.
pub(super) fn check_weights(of: &Vector) -> Result<(), Error> {
    if of.specs != [weights_spec(of.sources.len())] || of.layout != Layout::Each {
        let why = "these are no weights, which scores give";
        return Err(CkksError::Vectors { why: why.into() }.into());
    }
    Ok(())
}
