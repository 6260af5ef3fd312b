//! Screening: norms and products of encrypted updates, before any of them is summed.

use super::{Layout, Source, Vector, vector::EXPONENTS};
use crate::{
    Dtype, Error, TensorSpec,
    ckks::{Ciphertext, CkksError, Evaluator},
};

/// The tensors of scores.
pub(super) const NORMS: &str = "norm_squared";
pub(super) const PRODUCTS: &str = "product";
pub(super) const REFERENCE: &str = "reference_norm_squared";

/// Computes the squared norm of each update and, with a reference, its product with each and its own squared norm.
///
/// A score is in all slots of a ciphertext on level 0, so that it tells nothing but itself. It takes keys for
/// rotations by all powers of two.
///
/// # Errors
/// Vectors that differ in key, tensors or units; one whose range does not exclude that a norm wraps; one that is given
/// twice; a missing rotation; the engine's. Those of an update name it.
pub fn screen(
    evaluator: &Evaluator<'_>,
    against: Option<&Vector>,
    updates: impl IntoIterator<Item = Result<(Source, Vector), Error>>,
) -> Result<Vector, Error> {
    let (mut norms, mut products, mut sources) = (vec![], vec![], Vec::<Source>::new());
    let mut first = against.map(Vector::without_values);
    for update in updates {
        let (source, vector) = update?;
        let here = |e: Error| e.within(&source.name);
        if sources.iter().any(|known| known.digest == source.digest) {
            return Err(here(Error::SameContribution));
        }
        first.get_or_insert_with(|| vector.without_values()).check_same(&vector).map_err(here)?;
        norms.push(product(evaluator, &vector, &vector).map_err(here)?);
        if let Some(against) = against {
            products.push(product(evaluator, &vector, against).map_err(here)?);
        }
        sources.push(source);
    }
    let first = first.filter(|_| !sources.is_empty()).ok_or(Error::NothingToSum)?;
    let exponent = Some(2 * first.exponent).filter(|exponent| EXPONENTS.contains(exponent));
    let (exponent, divisor) = match (exponent, first.divisor.checked_mul(first.divisor)) {
        (Some(exponent), Some(divisor)) => (exponent, divisor),
        _ => return Err(CkksError::NoRoom.into()),
    };
    let own = against.map(|against| product(evaluator, against, against)).transpose()?;
    Ok(Vector {
        specs: specs(sources.len(), own.is_some()),
        layout: Layout::Each,
        exponent,
        divisor,
        has_tail: false,
        sources,
        ciphertexts: norms.into_iter().chain(products).chain(own).collect(),
    })
}

/// Returns the tensors of scores of `count` updates, with a reference or without.
pub(super) fn specs(count: usize, has_reference: bool) -> Vec<TensorSpec> {
    let names = [(NORMS, count), (PRODUCTS, count), (REFERENCE, 1)];
    let spec = |(name, count): (&str, usize)| TensorSpec {
        name: name.into(),
        dtype: Dtype::F64,
        shape: vec![count as u64],
    };
    names.into_iter().take(if has_reference { 3 } else { 1 }).map(spec).collect()
}

/// Returns the product of two vectors, in all slots on level 0.
fn product(evaluator: &Evaluator<'_>, a: &Vector, b: &Vector) -> Result<Ciphertext, Error> {
    if a.has_tail && b.has_tail {
        let why = "slots behind its values are not empty, as rotations and models leave them";
        return Err(CkksError::Vectors { why: why.into() }.into());
    }
    let pairs: Vec<_> = a.ciphertexts.iter().zip(&b.ciphertexts).collect();
    let product = evaluator.relinearise(&evaluator.tensor_sum(&pairs)?)?;
    let sum = evaluator.inner_sum(&product, evaluator.parameters().slots())?;
    let sum = evaluator.lower(&sum, 0)?;
    if sum.bits_left() < 0.0 {
        return Err(CkksError::NoRoom.into());
    }
    Ok(sum)
}
