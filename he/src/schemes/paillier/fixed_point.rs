//! Fixed-point numbers: an integer k and a scale stand for `k / 2^scale`.

use zeroize::Zeroizing;

use crate::{Error, error::OperandFault};

/// The binary digits after the point that numbers can be rounded to at most.
pub const MAX_SCALE: u32 = 1000;

/// Words that any finite number of [`integral`] fits.
pub(super) const WORDS: usize = 17;

/// Returns `x · 2^scale` of each number, rounded to the nearest integer, ties to even. Numbers
/// influence time only where one is refused.
///
/// # Errors
/// A scale above [`MAX_SCALE`]; a number that is not finite, or not below `2^1024` then, by its
/// index.
pub(super) fn integral(
    operation: &'static str,
    values: &[f64],
    scale: u32,
) -> Result<Zeroizing<Vec<f64>>, Error> {
    let fault = |fault| Error::Operand { operation, operand: "values", fault };
    if scale > MAX_SCALE {
        return Err(fault(OperandFault::ScaleLimit { scale, limit: MAX_SCALE }));
    }
    // A power of two changes no digit of a number, as long as it stays finite.
    let factor = power_of_two(i64::from(scale));
    let rounded: Vec<_> = values.iter().map(|x| (x * factor).round_ties_even()).collect();
    let rounded = Zeroizing::new(rounded);
    match rounded.iter().position(|y| !y.is_finite()) {
        Some(index) if values[index].is_finite() => {
            Err(fault(OperandFault::beyond_bits(index, 1024)))
        }
        Some(index) => Err(fault(OperandFault::NotFinite { index })),
        None => Ok(rounded),
    }
}

/// Writes the magnitude of a finite integer to [`WORDS`] words at least. Constant time.
pub(super) fn magnitude(y: f64, out: &mut [u64]) {
    // y = mantissa · 2^(exponent − 1075), where what is below the point is 0.
    let exponent = (y.to_bits() >> 52 & 0x7ff) as i64;
    let mantissa = y.to_bits() & ((1 << 52) - 1) | u64::from(exponent != 0) << 52;
    let (up, down) = ((exponent - 1075).max(0) as usize, (1075 - exponent).clamp(0, 63));
    let shifted = u128::from(mantissa >> down) << (up % 64);
    for (index, word) in out.iter_mut().enumerate() {
        let [low, high] = [up / 64, up / 64 + 1].map(|at| u64::from(index == at).wrapping_neg());
        *word = shifted as u64 & low | (shifted >> 64) as u64 & high;
    }
}

/// Returns the float nearest to `words / 2^scale`, infinite where none is. Time depends on the
/// length of the number.
pub(super) fn to_f64(words: &[u64], scale: u32) -> f64 {
    let Some(top) = words.iter().rposition(|&word| word != 0) else { return 0.0 };
    let shift = words[top].leading_zeros();
    let below = top.checked_sub(1).map_or(0, |next| words[next]);
    let rest = words[..top.saturating_sub(1)].iter().fold(below << shift, |rest, w| rest | w);
    // The highest 64 bits, the last of which also says whether there is more: it is below the half
    // of what a float's last digit is worth, so that rounding them rounds the number.
    let high = (words[top] << shift) | below.checked_shr(64 - shift).unwrap_or(0);
    let digits = (high | u64::from(rest != 0)) as f64;
    let exponent = 64 * top as i64 - i64::from(shift) - i64::from(scale);
    // In two steps, for digits times the power may be a float where the power alone is none.
    let half = exponent / 2;
    digits * power_of_two(half) * power_of_two(exponent - half)
}

/// `2^exponent`, 0 or infinite where that is no float.
fn power_of_two(exponent: i64) -> f64 {
    2f64.powi(exponent.clamp(-2000, 2000) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(y: f64) -> Vec<u64> {
        let mut out = vec![9; WORDS];
        magnitude(y, &mut out);
        out
    }

    #[test]
    fn floats_become_integers_and_come_back() {
        let large = f64::MAX;
        let edges =
            [0.0, -0.0, 1.0, -1.0, 3.0, 9007199254740993e3, -1e30, 1e300, large, 2f64.powi(63)];
        for y in edges {
            assert_eq!(to_f64(&words(y), 0), y.abs(), "{y}");
            assert_eq!(to_f64(&words(y), 70) * 2f64.powi(70), y.abs(), "{y}");
        }
        assert_eq!(words(6.0)[..2], [6, 0]);
        assert_eq!(words(2f64.powi(130))[..4], [0, 0, 4, 0]);
        let rounded = integral("test", &[0.5, 1.5, -0.75, 5e-324], 0).unwrap();
        assert_eq!(**rounded, [0.0, 2.0, -1.0, 0.0]);
        assert_eq!(**integral("test", &[0.75, -1e-3], 10).unwrap(), [768.0, -1.0]);
    }

    #[test]
    fn numbers_round_to_the_nearest_float_ties_to_even() {
        // 2^64 + 2^11 lies between two floats; what is below decides.
        assert_eq!(to_f64(&[1 << 11, 1], 0), 2f64.powi(64));
        assert_eq!(to_f64(&[(1 << 11) + 1, 1], 0), 2f64.powi(64) + 4096.0);
        assert_eq!(to_f64(&[1, 1 << 11, 1], 0), 2f64.powi(128) + 2f64.powi(76));
        assert_eq!(to_f64(&[3 << 11, 1], 0), 2f64.powi(64) + 8192.0);
        assert_eq!(to_f64(&[1], 1074), 5e-324);
        assert_eq!(to_f64(&[1], 1100), 0.0);
        let mut long = vec![0; 40];
        long[39] = 1;
        assert_eq!(to_f64(&long, 64 * 39), 1.0);
        assert!(to_f64(&long, 0).is_infinite());
    }
}
