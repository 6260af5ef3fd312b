//! Fixed-point numbers from 0 to 1: integers in units of 2^-127, `u` below.

/// One.
pub(super) const ONE: u128 = 1 << 127;

/// Returns the product of two numbers of at most 1, rounded down.
pub(super) fn mul(a: u128, b: u128) -> u128 {
    const LOW: u128 = (1 << 64) - 1;
    let (a1, a0, b1, b0) = (a >> 64, a & LOW, b >> 64, b & LOW);
    let (low, m0, m1, high) = (a0 * b0, a0 * b1, a1 * b0, a1 * b1);
    let middle = (low >> 64) + (m0 & LOW) + (m1 & LOW);
    let high = high + (m0 >> 64) + (m1 >> 64) + (middle >> 64);
    // Bits 127 and up of the product, which is at most 2^254.
    high << 1 | (middle & LOW) >> 63
}

/// Returns `exp(-x)` of a number of at most 1, within 4u.
///
/// It is Taylor's series by Horner's rule: what it leaves out is below 1/37! < u, and each of its steps rounds
/// twice, which the steps after it divide by 1, 2, 3 and so on.
pub(super) fn exp_neg(x: u128) -> u128 {
    (1..=36).rev().fold(ONE, |tail, n| ONE - mul(x, tail) / n)
}

/// Returns `numerator / denominator`, rounded down; the numerator is the smaller one, and both are below 2^127.
pub(super) fn divide(numerator: u128, denominator: u128) -> u128 {
    let step = |(quotient, rest): (u128, u128), _| {
        let rest = rest << 1;
        if rest < denominator {
            (quotient << 1, rest)
        } else {
            (quotient << 1 | 1, rest - denominator)
        }
    };
    (0..127).fold((0, numerator), step).0
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use proptest::prelude::*;

    use super::*;

    /// Returns e^-x by the series with 400 bits.
    fn exact(x: u128) -> BigUint {
        let (mut sum, mut term) = ([BigUint::ZERO, BigUint::ZERO], BigUint::from(1u8) << 400);
        for n in 1u32..120 {
            sum[n as usize % 2] += &term;
            term = (term * x / n) >> 127;
        }
        (&sum[1] - &sum[0]) >> (400 - 127)
    }

    fn assert_off_by_little(x: u128) {
        let (found, exact) = (BigUint::from(exp_neg(x)), exact(x));
        assert!(&found + 4u8 >= exact && exact + 4u8 >= found, "exp(-{x}) is {found}");
    }

    proptest! {
        #[test]
        fn products_quotients_and_exponentials_are_right(a in 0..=ONE, b in 0..=ONE) {
            prop_assert_eq!(BigUint::from(mul(a, b)), (BigUint::from(a) * b) >> 127);
            if a < b && b < ONE {
                prop_assert_eq!(BigUint::from(divide(a, b)), (BigUint::from(a) << 127) / b);
            }
            assert_off_by_little(a);
        }
    }

    #[test]
    fn the_ends_are_right() {
        assert_eq!((mul(ONE, ONE), mul(0, ONE), mul(ONE - 1, ONE - 1)), (ONE, 0, ONE - 2));
        assert_eq!((exp_neg(0), divide(0, 1), divide(1, 2)), (ONE, 0, ONE / 2));
        assert_off_by_little(ONE);
    }
}
