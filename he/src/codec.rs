//! From floats to shared integers and back.
//!
//! # What is computed
//! With `L = 2^(bits−1) − 1` steps on either side of zero, a tensor's agreed range `r`, a client's
//! weight `w` and the agreed largest weight `W`, a value `x` becomes an integer next to
//! `clip(x, ±r) · L/r · w/W`, rounded up or down at random so that its expectation is that within
//! 2^-27 of a step. Zero stays zero. The sum `S` over the contributors decodes to `S · r/L · W`,
//! which is `Σ w·x`, and that
//! divided by `Σ w` is the weighted mean.
//!
//! # Error
//! Each contributor's rounding is off by less than one step `r/L`, so the mean of values that were
//! not clipped is within `contributors · W / Σw` steps, plus the rounding of the output type.

mod agreement;
mod decode;
mod fields;
mod norm;
mod pack;
mod quantise;
mod ranges;

pub use agreement::{Agreement, OpenedRound};
pub(crate) use agreement::{check_layout, check_specs, read_specs, write_specs};
pub(crate) use decode::{Decoder, decode_by, decode_into, decode_to};
pub use decode::{Output, decode};
pub(crate) use fields::{Fields, bits_at, is_zero_between};
pub(crate) use norm::norm;
pub(crate) use pack::Packing;
pub use quantise::Quantised;
pub(crate) use quantise::{FieldRoom, Rounder, round};
pub use ranges::{Policy, RangesFile, round_up_to_power_of_two};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Error, Parameters, Scheme, Tensor, TensorSpec, Update, params::Literal, tensors::Dtype,
    };
    use ciphergram_accel::random::StreamRng;
    use proptest::prelude::*;

    fn parameters(bits: u32) -> Parameters {
        Parameters::new(Literal { scheme: Scheme::CkksSum, clients: 8, bits }).unwrap()
    }

    fn seed(number: u32) -> [u8; 32] {
        let mut seed = [3; 32];
        seed[..4].copy_from_slice(&number.to_le_bytes());
        seed
    }

    fn update(values: &[f64]) -> Update {
        let shape = vec![values.len() as u64];
        let spec = TensorSpec { name: "t".into(), dtype: Dtype::F64, shape };
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        Update::new(vec![Tensor::from_bytes(spec, bytes)])
    }

    #[test]
    fn zeros_and_ends_are_exact_and_the_rest_is_unbiased() {
        let p = parameters(8);
        let values = [0.0, -0.0, 1.5, -1.5, 9.0, 0.5];
        let agreement = Agreement::new(update(&values).specs(), vec![1.5], 1).unwrap();
        let mut total = 0i64;
        for i in 0..4000u32 {
            let q = Quantised::new(&update(&values), &agreement, 1, &p, &seed(i)).unwrap();
            let fields = q.fields().unwrap();
            assert_eq!(fields[..5], [127, 127, 254, 0, 254]);
            assert_eq!(q.clipped(), [1]);
            total += i64::from(fields[5]) - 127;
        }
        // 127/3 = 42.33…, each draw within one step: 4,000 draws are within 0.05 of it.
        assert!((total as f64 / 4000.0 - 127.0 / 3.0).abs() < 0.05);
    }

    #[test]
    fn refusals_name_what_and_where() {
        let p = parameters(16);
        let agreement = Agreement::new(update(&[0.0; 3]).specs(), vec![1.0], 10).unwrap();
        let refuse = |values: &[f64], weight| {
            Quantised::new(&update(values), &agreement, weight, &p, &seed(2)).err().unwrap()
        };
        let not_finite = refuse(&[0.0, f64::NAN, 0.0], 1).to_string();
        assert!(not_finite.starts_with("tensor \"t\" has NaN at index 1"), "{not_finite}");
        assert_eq!(refuse(&[0.0; 3], 11), Error::Weight { weight: 11, max_weight: 10 });
        assert_eq!(refuse(&[0.0; 3], 0), Error::Weight { weight: 0, max_weight: 10 });
        assert!(matches!(refuse(&[0.0; 4], 1), Error::Layout { .. }));
    }

    #[test]
    fn integers_are_the_same_whatever_is_asked_for_at_once() {
        let p = parameters(16);
        // Several tensors, one empty, over ends of blocks and windows.
        let lengths = [700, 0, 3, 70_000, 5000];
        let tensors = lengths.iter().enumerate().map(|(i, &length)| {
            let values: Vec<_> = (0..length).map(|j| ((i + j) as f64 * 0.37).sin()).collect();
            let (name, shape) = (format!("t{i}"), vec![length as u64]);
            let dtype = [Dtype::F32, Dtype::F64][i % 2];
            Tensor::from_values(TensorSpec { name, dtype, shape }, &values).unwrap()
        });
        let update = Update::new(tensors.collect());
        let agreement = Agreement::new(update.specs(), vec![1.0; 5], 1).unwrap();
        let q = Quantised::new(&update, &agreement, 1, &p, &seed(9)).unwrap();
        let all = q.fields().unwrap();
        assert_eq!(all.len(), lengths.iter().sum::<usize>());
        // The stream of the seed is that of versions which rounded everything first.
        let mut rng = StreamRng::from_seed(&seed(9));
        let values = update.tensors().iter().flat_map(|t| t.values().unwrap());
        for (&field, x) in all.iter().zip(values) {
            let fraction = f64::from((rng.next_u32() >> 3) as i32) / f64::from(1u32 << 29);
            let half = f64::from(p.half_steps());
            assert_eq!(field, (x * half + half + fraction) as u32);
        }
        let mut room = FieldRoom::default();
        for range in [0..1, 0..0, 699..705, 700..703, 1000..75_703, 75_702..75_703, 64..70_100] {
            assert_eq!(q.fields_of(range.clone(), &mut room).unwrap(), &all[range]);
        }
    }

    proptest! {
        /// One client's values come back within a step of W/w, over any range at all.
        #[test]
        fn within_the_documented_bound(
            values in prop::collection::vec(-1e3f64..1e3, 1..50),
            exponent in -300i32..300,
            weight in 1u64..100,
            bits in 8u32..=24,
        ) {
            let p = parameters(bits);
            let scale = 10f64.powi(exponent);
            let values: Vec<f64> = values.iter().map(|x| x * scale).collect();
            let range = values.iter().fold(0f64, |m, x| m.max(x.abs()));
            let agreement = Agreement::new(update(&values).specs(), vec![range], 100).unwrap();
            let seed = seed(weight as u32);
            let q = Quantised::new(&update(&values), &agreement, weight, &p, &seed).unwrap();
            let offset = i64::from(p.half_steps());
            let sums: Vec<_> = q.fields().unwrap().iter().map(|&f| i64::from(f) - offset).collect();
            let runs = [(&sums[..], weight)].into_iter();
            let mean = decode(&agreement, &p, Output::Mean, runs).unwrap();
            let step = range / f64::from(p.half_steps()) * (100.0 / weight as f64);
            for (x, y) in values.iter().zip(mean.tensors()[0].values().unwrap()) {
                prop_assert!((x - y).abs() <= step * (1.0 + 1e-9), "{x} {y} {step}");
            }
        }
    }
}
