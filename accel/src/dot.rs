//! Sums of products of numbers of up to 52 bits: over the integers, not modulo anything. They are no step of a
//! program, since what is multiplied is on its way into a program or out of one.

/// A way to sum products: [`fastest_dot`](crate::cpu::fastest_dot) chooses one. No branch or address depends on what
/// is multiplied.
#[derive(Clone, Copy)]
pub struct Dot {
    of_u32: fn(&[u64], &[u32]) -> u128,
    of_i64: fn(&[u64], &[i64], i64) -> u128,
}

impl Dot {
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
