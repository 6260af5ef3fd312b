//! Sums of products beside their definition; under `CIPHERGRAM_CPU=portable` those of every processor.

use ciphergram_accel::cpu::fastest_dot;
use proptest::prelude::*;

proptest! {
    #[test]
    fn sums_of_products_are_exact(
        pairs in prop::collection::vec((0..1u64 << 52, any::<u32>(), 0..1i64 << 52), 0..200),
        offset in 0..1i64 << 40,
    ) {
        let coefficients: Vec<_> = pairs.iter().map(|p| p.0).collect();
        let narrow: Vec<_> = pairs.iter().map(|p| p.1).collect();
        let wide: Vec<_> = pairs.iter().map(|p| p.2 - offset).collect();
        let of_narrow = pairs.iter().map(|p| u128::from(p.0) * u128::from(p.1)).sum::<u128>();
        let of_wide = pairs.iter().map(|p| u128::from(p.0) * p.2 as u128).sum::<u128>();
        let dot = fastest_dot();
        prop_assert_eq!(dot.of_u32(&coefficients, &narrow), of_narrow);
        prop_assert_eq!(dot.of_i64(&coefficients, &wide, offset), of_wide);
    }
}

#[test]
fn the_largest_sum_has_room() {
    const MOST: usize = 1 << 14;
    let (coefficients, values) = (vec![(1 << 52) - 1; MOST], vec![(1i64 << 52) - 1; MOST]);
    let expected = ((1u128 << 52) - 1).pow(2) * MOST as u128;
    assert_eq!(fastest_dot().of_i64(&coefficients, &values, 0), expected);
}
