//! The levels that ranges and norms are agreed on in.

use crate::codec::round_up_to_power_of_two;

/// The most levels of a job. Their encrypted sum has room for 63.
pub const MAX_LEVELS: u8 = 32;

/// Levels of a range or a norm: the highest is the largest that a job admits, those below are powers of two.
///
/// Level 0 is below all that can be told apart: what is there, the range of a tensor of zeros too, becomes half of
/// level 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Levels {
    count: u8,
    largest: f64,
}

impl Levels {
    /// Returns `count` levels above level 0, of which the highest is `largest`, a positive number.
    pub(crate) fn new(count: u8, largest: f64) -> Self {
        Self { count, largest }
    }

    /// Returns the number of levels above level 0: the bits that a range is written in.
    fn count(self) -> usize {
        self.count.into()
    }

    /// Returns the range of a level; of one above the highest, that of the highest.
    pub(crate) fn range(self, level: usize) -> f64 {
        let below = self.count().saturating_sub(level) as i32;
        (round_up_to_power_of_two(self.largest) * 2f64.powi(-below)).min(self.largest)
    }

    /// Returns the lowest level whose range is not below `range`; the highest if none is.
    pub(crate) fn level(self, range: f64) -> usize {
        (0..self.count()).find(|&level| range <= self.range(level)).unwrap_or(self.count())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn levels_are_powers_of_two_up_to_the_largest() {
        let levels = Levels::new(4, 10.0);
        let ranges: Vec<_> = (0..6).map(|level| levels.range(level)).collect();
        assert_eq!(ranges, [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]);
        let found = [0.0, 1.0, 1.5, 8.0, 8.5, 10.0, 11.0, f64::INFINITY].map(|r| levels.level(r));
        assert_eq!(found, [0, 0, 1, 3, 4, 4, 4, 4]);
    }

    proptest! {
        #[test]
        fn the_lowest_level_that_covers_a_range_is_found(
            count in 1..=MAX_LEVELS, largest in 1e-300..1e300f64, part in 0.0..=1.0f64,
        ) {
            let (levels, range) = (Levels::new(count, largest), part * largest);
            let level = levels.level(range);
            prop_assert!(levels.range(level) >= range);
            prop_assert!(level == 0 || levels.range(level - 1) < range);
            prop_assert_eq!(levels.range(count.into()), largest);
        }
    }
}
