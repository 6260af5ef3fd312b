//! Sums of products of numbers of up to 52 bits: over the integers, not modulo anything. They are no step of a
//! program, since what is multiplied is on its way into a program or out of one.

#[cfg(target_arch = "x86_64")]
use crate::cpu::ifma_dot;

/// Sums products, in the quickest way that the processor has and the environment allows. No branch or address
/// depends on what is multiplied.
#[derive(Clone, Copy)]
pub struct Dot {
    of_u32: fn(&[u64], &[u32]) -> u128,
    of_i64: fn(&[u64], &[i64], i64) -> u128,
}

impl Dot {
    /// Asks the processor.
    #[must_use]
    pub fn fastest() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(dot) = ifma_dot() {
            return dot;
        }
        Self::PORTABLE
    }

    /// The way of every processor.
    pub(crate) const PORTABLE: Self = Self {
        of_u32: |coefficients, values| {
            let each = coefficients.iter().zip(values);
            each.fold(0, |sum, (&r, &x)| sum + u128::from(r) * u128::from(x))
        },
        of_i64: |coefficients, values, offset| {
            let each = coefficients.iter().zip(values);
            each.fold(0, |sum, (&r, &x)| {
                sum + u128::from(r) * u128::from(x.wrapping_add(offset) as u64)
            })
        },
    };

    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn new(
        of_u32: fn(&[u64], &[u32]) -> u128,
        of_i64: fn(&[u64], &[i64], i64) -> u128,
    ) -> Self {
        Self { of_u32, of_i64 }
    }

    /// Returns `Σ r_j · x_j` over the shorter of both, for `r_j` below 2^52.
    ///
    /// # Panics
    /// There are more than 2^14 values.
    #[must_use]
    pub fn of_u32(&self, coefficients: &[u64], values: &[u32]) -> u128 {
        assert!(values.len() <= MOST);
        (self.of_u32)(coefficients, values)
    }

    /// Returns `Σ r_j · (x_j + offset)` over the shorter of both, for `r_j` and `x_j + offset` from 0 to
    /// 2^52 − 1.
    ///
    /// # Panics
    /// There are more than 2^14 values.
    #[must_use]
    pub fn of_i64(&self, coefficients: &[u64], values: &[i64], offset: i64) -> u128 {
        assert!(values.len() <= MOST);
        (self.of_i64)(coefficients, values, offset)
    }
}

/// The most values of one sum: one of eight lanes then adds up 2^11 halves of products below 2^52.
const MOST: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_of_products_are_exact(
            pairs in prop::collection::vec((0..1u64 << 52, any::<u32>(), 0..1i64 << 52), 0..200),
            offset in 0..1i64 << 40,
        ) {
            let coefficients: Vec<_> = pairs.iter().map(|p| p.0).collect();
            let narrow: Vec<_> = pairs.iter().map(|p| p.1).collect();
            let wide: Vec<_> = pairs.iter().map(|p| p.2 - offset).collect();
            let of_fields = pairs.iter().map(|p| u128::from(p.0) * u128::from(p.1)).sum::<u128>();
            let of_sums = pairs.iter().map(|p| u128::from(p.0) * p.2 as u128).sum::<u128>();
            for dot in [Dot::PORTABLE, Dot::fastest()] {
                prop_assert_eq!(dot.of_u32(&coefficients, &narrow), of_fields);
                prop_assert_eq!(dot.of_i64(&coefficients, &wide, offset), of_sums);
            }
        }
    }

    #[test]
    fn the_largest_sum_has_room() {
        let (coefficients, values) = (vec![(1 << 52) - 1; MOST], vec![(1i64 << 52) - 1; MOST]);
        let expected = ((1u128 << 52) - 1).pow(2) * MOST as u128;
        assert_eq!(Dot::fastest().of_i64(&coefficients, &values, 0), expected);
    }
}
