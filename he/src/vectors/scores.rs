//! Scores of updates, and the weights that follow from them: for key holders.

use super::{
    Vector, WEIGHT_OF_ONE, Weighted, Weights,
    screen::{NORMS, PRODUCTS, REFERENCE},
};
use ciphergram_accel::Engine;

use crate::{
    Error, Update,
    ckks::{CkksError, SecretKey},
    ids::hex,
};

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
    updates: Vec<Weighted>,
}

impl Scores {
    /// Decrypts what [`screen`](super::screen) left.
    ///
    /// # Errors
    /// It is something else; another key's; the engine's.
    pub fn decrypt(of: &Vector, key: &SecretKey, engine: &dyn Engine) -> Result<Self, Error> {
        let opened = of.decrypt(key, engine)?;
        let (norms, products) = (numbers(&opened, NORMS)?, numbers(&opened, PRODUCTS)?);
        let reference = numbers(&opened, REFERENCE)?;
        let (Some(norms), sources) = (norms, &of.sources) else { return Err(no_scores()) };
        if norms.len() != sources.len() {
            return Err(no_scores());
        }
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
        let whole = |source: &super::Source| Weighted {
            name: source.name.clone(),
            digest: hex(&source.digest),
            weight: WEIGHT_OF_ONE,
        };
        Ok(Self { scores, updates: sources.iter().map(whole).collect() })
    }

    /// Returns the name and the score of each update.
    pub fn each(&self) -> impl Iterator<Item = (&str, Score)> {
        self.updates.iter().map(|update| &update.name[..]).zip(self.scores.iter().copied())
    }

    /// Returns the weights: an update that is too long by a factor counts that much less, one that points elsewhere
    /// not at all.
    ///
    /// # Errors
    /// Limits that are no limits; a least cosine where there was no reference; nothing is left.
    pub fn weights(&self, limits: Limits) -> Result<Weights, Error> {
        let Limits { max_norm, min_cosine } = limits;
        let refuse = |why: String| Err(CkksError::Vectors { why }.into());
        if let Some(norm) = max_norm.filter(|norm| !norm.is_finite() || *norm <= 0.0) {
            return refuse(format!("the largest norm is {norm}; it must be a positive number"));
        }
        if let Some(least) = min_cosine.filter(|least| !(-1.0..=1.0).contains(least)) {
            return refuse(format!("the least cosine is {least}; it must be from -1 to 1"));
        }
        if min_cosine.is_some() && self.scores.iter().any(|score| score.cosine.is_none()) {
            return refuse("there are no cosines: screen the updates --against a reference".into());
        }
        let weight = |score: &Score| {
            let is_elsewhere = min_cosine.zip(score.cosine).is_some_and(|(least, own)| own < least);
            let clipped = max_norm.map_or(1.0, |limit| (limit / score.norm).min(1.0));
            if is_elsewhere { 0 } else { (clipped * WEIGHT_OF_ONE as f64).floor() as u64 }
        };
        let updates: Vec<_> = self
            .updates
            .iter()
            .zip(&self.scores)
            .map(|(update, score)| Weighted { weight: weight(score), ..update.clone() })
            .collect();
        if updates.iter().all(|update| update.weight == 0) {
            return refuse("these limits leave no update".into());
        }
        Ok(Weights::new(updates))
    }
}

/// Returns the values of a tensor, if there is one of this name.
fn numbers(of: &Update, name: &str) -> Result<Option<Vec<f64>>, Error> {
    let tensor = of.tensors().iter().find(|tensor| tensor.spec.name == name);
    tensor.map(crate::Tensor::values).transpose()
}

fn no_scores() -> Error {
    CkksError::Vectors { why: "these are no scores: they come from `ciphergram screen`".into() }
        .into()
}
