//! Weighted sums.

use std::collections::BTreeSet;

use super::{Source, Vector, Weights};
use crate::{
    Error,
    ckks::{CkksError, Evaluator},
};

/// Sums vectors, each times its weight. Without weights each has 1, and the sum decrypts to the mean.
///
/// # Errors
/// Vectors that differ in key, tensors or units; one that is given twice, or that weights do not name; weights of
/// which none is above 0; the engine's. Those of a vector name it.
pub fn aggregate(
    evaluator: &Evaluator<'_>,
    weights: Option<&Weights>,
    vectors: impl IntoIterator<Item = Result<(Source, Vector), Error>>,
) -> Result<Vector, Error> {
    // All are compared with the first, whatever its weight.
    let (mut known, mut first, mut sum) = (BTreeSet::new(), None::<Vector>, None::<Vector>);
    let mut sources = vec![];
    for vector in vectors {
        let (source, vector) = vector?;
        let here = |e: Error| e.within(&source.name);
        if !known.insert(source.digest) {
            return Err(here(Error::SameContribution));
        }
        let weight = weights.map_or(Ok(1), |weights| weights.of(&source)).map_err(here)?;
        first.get_or_insert_with(|| vector.without_values()).check_same(&vector).map_err(here)?;
        if weight > 0 {
            let weighted = vector.weighted(evaluator, weight).map_err(here)?;
            sum = Some(match sum {
                Some(sum) => sum.plus(evaluator, &weighted).map_err(here)?,
                None => weighted,
            });
            sources.push(source);
        }
    }
    let sum = sum.ok_or(Error::NothingToSum)?;
    if let Some(weights) = weights {
        weights.check_all_used(&known)?;
    }
    let divisor = weights.map_or(known.len() as u64, Weights::divisor);
    let divisor = sum.divisor.checked_mul(divisor);
    let overflow = || CkksError::Vectors { why: "the weights of this sum exceed 2^64".into() };
    let divisor = divisor.ok_or_else(overflow)?;
    if sum.ciphertexts.iter().any(|ciphertext| ciphertext.bits_left() < 0.0) {
        return Err(CkksError::NoRoom.into());
    }
    Ok(Vector { divisor, sources, ..sum })
}

impl Vector {
    /// Returns what others are compared with, without all ciphertexts but one.
    pub(super) fn without_values(&self) -> Self {
        Self {
            specs: self.specs.clone(),
            sources: self.sources.clone(),
            ciphertexts: self.ciphertexts[..1].to_vec(),
            ..*self
        }
    }

    fn weighted(self, evaluator: &Evaluator<'_>, weight: u64) -> Result<Self, Error> {
        let weigh = |ciphertext| evaluator.multiply_integer(ciphertext, weight as i64);
        let ciphertexts = match weight {
            1 => self.ciphertexts,
            _ => self.ciphertexts.iter().map(weigh).collect::<Result<_, _>>()?,
        };
        Ok(Self { ciphertexts, ..self })
    }

    fn plus(self, evaluator: &Evaluator<'_>, other: &Self) -> Result<Self, Error> {
        let pairs = self.ciphertexts.iter().zip(&other.ciphertexts);
        let sums = pairs.map(|(a, b)| evaluator.add(a, b)).collect::<Result<_, _>>()?;
        let has_tail = self.has_tail || other.has_tail;
        Ok(Self { ciphertexts: sums, has_tail, ..self })
    }
}
