//! The L2 norm of a whole update.

use crate::{Error, Update, tensors::check_values};

/// Returns the L2 norm of an update, infinite if no double holds it.
pub(crate) fn norm(update: &Update) -> Result<f64, Error> {
    let plain = squares(update, 1.0)?;
    if plain.is_finite() && plain > 1e-200 {
        return Ok(plain.sqrt());
    }
    // A value is not finite, or squares overflow or vanish: relative to the largest value they do not.
    let mut largest = 0f64;
    for tensor in update.tensors() {
        tensor.try_for_blocks(|first, values| {
            check_values(tensor, first, values)?;
            largest = values.iter().fold(largest, |largest, x| largest.max(x.abs()));
            Ok::<_, Error>(())
        })?;
    }
    Ok(if largest > 0.0 { largest * squares(update, largest)?.sqrt() } else { 0.0 })
}

/// Returns the sum of the squares of all values over `unit`.
fn squares(update: &Update, unit: f64) -> Result<f64, Error> {
    // Several sums side by side, none of which waits for another.
    let mut sums = [0.0; 8];
    for tensor in update.tensors() {
        tensor.try_for_blocks(|_, values| {
            for values in values.chunks(sums.len()) {
                let terms = sums.iter_mut().zip(values);
                terms.for_each(|(sum, x)| *sum += (x / unit) * (x / unit));
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(sums.iter().sum())
}
