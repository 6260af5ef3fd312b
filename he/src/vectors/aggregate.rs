//! Sums of updates, and sums under encrypted weights.

use std::collections::BTreeSet;

use super::{Source, Vector, scores, vector::EXPONENTS};
use crate::{
    Error,
    ckks::{Ciphertext, CkksError, Evaluator, Product},
};

/// Sums vectors: without weights to their mean, with them to the sum of each times its own, which
/// [`Scores::encrypt_weights`](super::Scores::encrypt_weights) made. Weights stay encrypted, so that who sums learns
/// nothing of what they were computed from; each product takes a level.
///
/// # Errors
/// Vectors that differ in key, tensors or units; one that is given twice, or that weights do not name; one that weights
/// name, and that is not given; no key for products; the engine's. Those of a vector name it.
pub fn aggregate(
    evaluator: &Evaluator<'_>,
    weights: Option<&Vector>,
    vectors: impl IntoIterator<Item = Result<(Source, Vector), Error>>,
) -> Result<Vector, Error> {
    weights.map_or(Ok(()), scores::check_weights)?;
    // All are compared with the first.
    let (mut known, mut first) = (BTreeSet::new(), None::<Vector>);
    let (mut sum, mut weighted, mut sources) = (None::<Vec<Ciphertext>>, None, vec![]);
    let mut has_tail = false;
    for vector in vectors {
        let (source, vector) = vector?;
        let here = |e: Error| e.within(&source.name);
        if !known.insert(source.digest) {
            return Err(here(Error::SameContribution));
        }
        first.get_or_insert_with(|| vector.without_values()).check_same(&vector).map_err(here)?;
        has_tail |= vector.has_tail;
        match weights {
            None => sum = Some(plus(evaluator, sum, vector.ciphertexts).map_err(here)?),
            Some(weights) => {
                let weight = weight_of(weights, &source).map_err(here)?;
                weighted = Some(plus_weighted(evaluator, weighted, &vector, weight).map_err(here)?);
            }
        }
        sources.push(source);
    }
    let first = first.ok_or(Error::NothingToSum)?;
    if let Some(missing) = weights
        .and_then(|weights| weights.sources.iter().find(|source| !known.contains(&source.digest)))
    {
        let why = format!("the weights name {:?}, which is not among the files", missing.name);
        return Err(CkksError::Vectors { why }.into());
    }
    let (ciphertexts, exponent, divisor) = match (weighted, weights) {
        (Some(products), Some(weights)) => {
            let relinearise = |product| evaluator.relinearise(product);
            let sums = products.iter().map(relinearise).collect::<Result<Vec<_>, _>>()?;
            (sums, first.exponent + weights.exponent, weights.divisor)
        }
        _ => (sum.ok_or(Error::NothingToSum)?, first.exponent, known.len() as u64),
    };
    let divisor = first.divisor.checked_mul(divisor).filter(|_| EXPONENTS.contains(&exponent));
    let has_room = ciphertexts.iter().all(|ciphertext| ciphertext.bits_left() >= 0.0);
    let divisor = divisor.filter(|_| has_room).ok_or(CkksError::NoRoom)?;
    Ok(Vector { ciphertexts, exponent, divisor, has_tail, sources, ..first })
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
}

/// Returns the ciphertext of the weight of a file.
fn weight_of<'w>(weights: &'w Vector, source: &Source) -> Result<&'w Ciphertext, Error> {
    let place = weights.sources.iter().position(|known| known.digest == source.digest);
    let why = "the weights do not name this file: they are of other updates";
    let place = place.ok_or_else(|| CkksError::Vectors { why: why.into() })?;
    Ok(&weights.ciphertexts[place])
}

/// Adds ciphertexts to a sum, if there is one.
fn plus(
    evaluator: &Evaluator<'_>,
    sum: Option<Vec<Ciphertext>>,
    own: Vec<Ciphertext>,
) -> Result<Vec<Ciphertext>, Error> {
    let Some(sum) = sum else { return Ok(own) };
    sum.iter().zip(&own).map(|(sum, own)| evaluator.add(sum, own)).collect()
}

/// Adds the products of a vector's ciphertexts and its weight to a sum of such, if there is one. They have three parts,
/// so that the sum is relinearised once.
fn plus_weighted(
    evaluator: &Evaluator<'_>,
    sum: Option<Vec<Product>>,
    vector: &Vector,
    weight: &Ciphertext,
) -> Result<Vec<Product>, Error> {
    let products = vector.ciphertexts.iter().map(|ciphertext| evaluator.tensor(ciphertext, weight));
    match sum {
        None => products.collect(),
        Some(sum) => sum
            .iter()
            .zip(products)
            .map(|(sum, product)| evaluator.add_products(sum, &product?))
            .collect(),
    }
}
