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
//! Integers are not rounded: `w·x` travels as it is, in as many fields as the range and the largest weight take, and
//! `Σ w·x` is exact; the mean is the integer nearest to that over `Σ w`. A tensor of floats may have bits of its own,
//! and so more steps than the key's and more fields a value: an [`Agreement`] says which.
//!
//! # Error
//! Each contributor's rounding is off by less than one step `r/L`, so the mean of values that were
//! not clipped is within `contributors · W / Σw` steps, plus the rounding of the output type. In more than 24 bits
//! it is off by `2^(bits − 53)` of a step more, which doubles cannot tell apart.

mod agreement;
mod decode;
mod fields;
mod norm;
mod pack;
mod places;
mod precision;
mod quantise;
mod ranges;

pub use agreement::{Agreement, OpenedRound};
pub(crate) use agreement::{check_layout, check_specs, read_specs, write_specs};
pub(crate) use decode::{Decoder, decode_into, decode_to};
pub use decode::{Output, decode};
pub(crate) use fields::{Fields, bits_at, is_zero_between};
pub(crate) use norm::norm;
pub(crate) use pack::Packing;
pub(crate) use places::Places;
pub(crate) use precision::MOST;
pub use precision::{Precision, TensorBits};
pub use quantise::Quantised;
pub(crate) use quantise::{FieldRoom, Rounder, round};
pub use ranges::{Policy, RangesFile, round_up_to_power_of_two};

/// Returns for each tensor the more of two counts of clipped values, the first empty if nothing was clipped before:
/// what was clipped twice counts once.
#[must_use]
pub fn most_clipped(first: &[usize], then: &[usize]) -> Vec<usize> {
    let first = first.iter().chain(std::iter::repeat(&0));
    then.iter().zip(first).map(|(a, b)| *a.max(b)).collect()
}

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

    /// Returns what updates of weights sum to, decoded chunk by chunk.
    fn summed(
        p: &Parameters,
        agreement: &Agreement,
        updates: &[(Update, u64)],
        output: Output,
    ) -> Result<Update, Error> {
        let chunks = agreement.chunks(p);
        let mut sums = vec![0; chunks.values()];
        let mut weight = 0;
        for (i, (update, own)) in updates.iter().enumerate() {
            let q = Quantised::new(update, agreement, *own, p, &seed(i as u32))?;
            let (all, mut room) = (q.fields()?, FieldRoom::default());
            assert!(q.count() == sums.len() && q.is_within(2 * p.half_steps()));
            for chunk in (0..chunks.count()).map(|chunk| chunks.values_of(chunk)) {
                assert_eq!(q.fields_of(chunk.clone(), &mut room)?, &all[chunk]);
            }
            let each = sums.iter_mut().zip(&*all);
            each.for_each(|(sum, &f)| *sum += i64::from(f) - i64::from(p.half_steps()));
            weight += own;
        }
        let runs = (0..chunks.count()).map(|chunk| (&sums[chunks.values_of(chunk)], weight));
        decode(agreement, p, output, runs)
    }

    fn integers(values: &[i64]) -> Update {
        let shape = vec![values.len() as u64];
        let spec = TensorSpec { name: "n".into(), dtype: Dtype::I64, shape };
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        // Beside floats, which come before and after.
        let floats = |name: &str| {
            let spec = TensorSpec { name: name.into(), dtype: Dtype::F32, shape: vec![3] };
            Tensor::from_values(spec, &[0.5, -0.25, 0.0]).unwrap()
        };
        Update::new(vec![floats("m"), Tensor::from_bytes(spec, bytes), floats("o")])
    }

    fn found(update: &Update) -> Vec<i64> {
        let mut bytes = vec![];
        let keep = |own: &[u8]| {
            bytes.extend(own);
            Ok::<_, Error>(())
        };
        update.tensors()[1].try_for_bytes(keep).unwrap();
        bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
    }

    proptest! {
        /// Integers of any range are summed exactly, weighed too, and a mean is the integer nearest to theirs.
        #[test]
        fn integers_are_summed_exactly(
            draws in prop::collection::vec(prop::collection::vec(any::<i64>(), 1200), 1..=8),
            range_bits in 1u32..=53,
            weights in prop::collection::vec(1u64..1000, 8),
            is_weighed in any::<bool>(),
            length in 1usize..1200,
            bits in 8u32..=24,
        ) {
            let p = parameters(bits);
            let weights = weights.iter().map(|w| if is_weighed { *w } else { 1 });
            let most = if is_weighed { 1000 } else { 1 };
            let range = ((1i64 << range_bits) - 1) / most;
            let drawn = |draws: &Vec<i64>| -> Vec<_> {
                // The ends are among them.
                let inside = draws[1..length].iter().map(|x| x % (range + 1));
                inside.chain([if draws[0] < 0 { -range } else { range }]).collect()
            };
            let all: Vec<_> = draws.iter().map(drawn).zip(weights).collect();
            let updates: Vec<_> = all.iter().map(|(own, w)| (integers(own), *w)).collect();
            let ranges = vec![0.5, range as f64, 0.5];
            let agreement = Agreement::new(updates[0].0.specs(), ranges, most as u32).unwrap();
            let total: u64 = all.iter().map(|(_, w)| w).sum();
            let exact = |i: usize| all.iter().map(|(own, w)| own[i] * *w as i64).sum::<i64>();
            let sum = summed(&p, &agreement, &updates, Output::Sum).unwrap();
            prop_assert!(found(&sum).into_iter().eq((0..length).map(exact)));
            let mean = summed(&p, &agreement, &updates, Output::Mean).unwrap();
            for (i, mean) in found(&mean).into_iter().enumerate() {
                let off = i128::from(exact(i)) - i128::from(mean) * i128::from(total);
                prop_assert!(2 * off.abs() <= i128::from(total));
                prop_assert!(2 * off.abs() < i128::from(total) || mean % 2 == 0);
            }
            // What is in the same chunks is what it was.
            let beside = sum.tensors()[2].values().unwrap();
            let (clients, step) = (all.len() as f64, f64::from(most as u32) * 0.5 / f64::from(p.half_steps()));
            let exact = 0.5 * total as f64;
            prop_assert!((beside[0] - exact).abs() <= clients * step + exact * 2f64.powi(-24));
        }

        /// Bits of a tensor's own bound its error as those of a key do.
        #[test]
        fn a_tensor_of_more_bits_is_within_its_bound(
            values in prop::collection::vec(-1f64..1.0, 1..900),
            exponent in -300i32..300,
            weight in 1u64..100,
            key_bits in 8u32..=24,
            bits in 8u32..=48,
        ) {
            let p = parameters(key_bits);
            let values: Vec<_> = values.iter().map(|x| x * 10f64.powi(exponent)).collect();
            let range = values.iter().fold(0f64, |m, x| m.max(x.abs()));
            let specs = update(&values).specs();
            let agreement = Agreement::new(specs, vec![range], 100).unwrap().with_bits([Some(bits)]).unwrap();
            let negative: Vec<_> = values.iter().map(|x| -x / 2.0).collect();
            let all = [(update(&values), weight), (update(&negative), 100)];
            let mean = summed(&p, &agreement, &all, Output::Mean).unwrap();
            let weights = (weight + 100) as f64;
            let step = range / ((1u64 << (bits - 1)) - 1) as f64;
            let bound = step * 2.0 * 100.0 / weights * (1.0 + 2f64.powi(bits as i32 - 52));
            for (x, mean) in values.iter().zip(mean.tensors()[0].values().unwrap()) {
                let exact = (x * weight as f64 - x / 2.0 * 100.0) / weights;
                prop_assert!((mean - exact).abs() <= bound + range * 1e-15, "{mean} {exact} {bound}");
            }
        }
    }

    /// Where a client was cut off, every value is of all or of the others, and none of both.
    #[test]
    fn limbs_of_a_value_are_of_the_same_contributors() {
        let p = parameters(16);
        let [all, others] = [70_000i64, 5]
            .map(|scale| (integers(&(0..1000).map(|i| scale * i - 9).collect::<Vec<_>>()), 1));
        let ranges = vec![0.5, 7e7, 0.5];
        let agreement = Agreement::new(all.0.specs(), ranges, 1).unwrap();
        let chunks = agreement.chunks(&p);
        let fields = |(update, weight): &(Update, u64)| -> Vec<_> {
            let q = Quantised::new(update, &agreement, *weight, &p, &seed(1)).unwrap();
            let half = i64::from(p.half_steps());
            q.fields().unwrap().iter().map(|&f| i64::from(f) - half).collect()
        };
        let (mut sums, own) = (fields(&all), fields(&others));
        let cut = chunks.values_of(3).end;
        sums[..cut].iter_mut().zip(&own).for_each(|(sum, own)| *sum += own);
        let runs = (0..chunks.count())
            .map(|chunk| (&sums[chunks.values_of(chunk)], 1 + u64::from(chunk < 4)));
        let sum = decode(&agreement, &p, Output::Sum, runs).unwrap();
        let of_both = |i: usize| found(&all.0)[i] + found(&others.0)[i];
        let sum = found(&sum);
        let first = (0..1000).position(|i| sum[i] != of_both(i)).unwrap();
        assert_eq!(sum[first..], found(&all.0)[first..]);
        // Three floats before, two limbs a value, no value over the end of a chunk.
        let each = p.geometry().values_per_chunk();
        assert_eq!(first, (each - 3) / 2 + 3 * (each / 2));
    }

    #[test]
    fn integers_that_no_sum_holds_are_refused_by_name() {
        let p = parameters(16);
        let specs = integers(&[0; 2]).specs();
        let agreed =
            |range: f64, weight| Agreement::new(specs.clone(), vec![1.0, range, 1.0], weight);
        for (range, weight) in [(2f64.powi(53), 1), (2f64.powi(43), 1 << 10), (1e300, 1)] {
            let refused = agreed(range, weight).unwrap_err().to_string();
            assert!(refused.contains("\"n\"") && refused.contains("2^53"), "{refused}");
        }
        let agreement = agreed(1000.5, 1).unwrap();
        let refuse = |x| Quantised::new(&integers(&[0, x]), &agreement, 1, &p, &seed(1)).err();
        assert_eq!(refuse(1000), None);
        let text = refuse(1001).unwrap().to_string();
        assert!(text.contains("index 1 is beyond the agreed range, 1000.5"), "{text}");
        assert!(matches!(refuse(1 << 53), Some(Error::Integer { index: 1, .. })));
        // The whole update would be clipped.
        assert!(matches!(agreement.with_clip_norm(Some(1.0)), Err(Error::NotExact { .. })));
    }

    #[test]
    fn an_integer_that_fits_a_field_takes_one_and_the_rest_as_many_as_it_needs() {
        let specs = integers(&[0; 100]).specs();
        let fields = |range, weight, bits| {
            let agreement = Agreement::new(specs.clone(), vec![1.0, range, 1.0], weight).unwrap();
            agreement.fields(&parameters(bits)) - 6
        };
        assert_eq!(fields(32_767.0, 1, 16), 100);
        assert_eq!(fields(32_768.0, 1, 16), 200);
        assert_eq!(fields(327.0, 100, 16), 100);
        assert_eq!(fields(328.0, 100, 16), 200);
        assert_eq!(fields(2f64.powi(53) - 1.0, 1, 24), 300);
        assert_eq!(fields(0.0, 1, 8), 100);
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
