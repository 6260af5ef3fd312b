use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use super::*;
use crate::{Dtype, Scheme, TensorSpec, dp::Literal, params};

fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

fn parameters(bits: u32) -> Parameters {
    Parameters::new(params::Literal { scheme: Scheme::CkksSum, clients: 8, bits }).unwrap()
}

fn noise(sigma: f64, clip: f64, min_clients: u32) -> Noise {
    Noise::new(Literal { sigma, clip, clients: 8, min_clients }).unwrap()
}

fn tensor(name: &str, values: &[f64]) -> Tensor {
    let shape = vec![values.len() as u64];
    let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    Tensor::from_bytes(TensorSpec { name: name.into(), dtype: Dtype::F64, shape }, bytes)
}

fn agreement(update: &Update, ranges: Vec<f64>) -> Agreement {
    Agreement::new(update.specs(), ranges, 1).unwrap()
}

fn mechanism(noise: Noise, bits: u32, values: usize) -> Mechanism {
    Mechanism::new(noise, noise.range(), parameters(bits).half_steps(), values).unwrap()
}

/// Returns values of no size in particular, of an L2 norm.
fn values(count: usize, norm: f64) -> Vec<f64> {
    let raw: Vec<_> = (0..count).map(|i| (i as f64 * 0.7).sin()).collect();
    let own = raw.iter().map(|x| x * x).sum::<f64>().sqrt();
    raw.iter().map(|x| x * norm / own).collect()
}

fn rounded(update: &Update, mechanism: &Mechanism, seed: u64) -> (Vec<i64>, u64) {
    let mut fields = vec![0; mechanism.values];
    let norm = norm(update).unwrap();
    let squares = round(update, norm, mechanism, &mut fields, &mut rng(seed)).unwrap();
    let offset = i64::from(mechanism.half_steps);
    (fields.iter().map(|&f| i64::from(f) - offset).collect(), squares)
}

#[test]
fn the_whole_update_is_clipped_to_the_norm_and_keeps_its_direction() {
    // Beyond a part, in two tensors.
    let count = PART + 1000;
    for (own, clipped) in [(0.5, 0.5), (2.0, 2.0), (200.0, 2.0), (1e300, 2.0), (1e-300, 0.0)] {
        let all = values(count, own);
        let update = Update::new(vec![tensor("a", &all[..600]), tensor("b", &all[600..])]);
        let m = mechanism(noise(0.001, 2.0, 1), 24, count);
        let (integers, squares) = rounded(&update, &m, 1);
        assert_eq!(squares, integers.iter().map(|v| v.unsigned_abs().pow(2)).sum::<u64>());
        assert!(squares <= m.squared_norm());
        for (v, x) in integers.iter().zip(&all) {
            let expected = x * (clipped / own) / m.step();
            assert!((*v as f64 - expected).abs() < 1.0 + 1e-6, "{v} for {expected}");
        }
    }
}

#[test]
fn an_update_longer_than_any_double_becomes_zeros() {
    let update = Update::new(vec![tensor("t", &[f64::MAX; 100])]);
    assert_eq!(norm(&update), Ok(f64::INFINITY));
    let (integers, squares) = rounded(&update, &mechanism(noise(0.001, 2.0, 1), 24, 100), 1);
    assert_eq!((integers, squares), (vec![0; 100], 0));
}

#[test]
fn rounding_is_repeated_until_the_norm_is_within_its_bound() {
    // Of 3,000 values at half a step the square is about 3,000 times a half, give or take 27.
    let m = mechanism(noise(0.02, 1.0, 1), 8, 3000);
    let halves = vec![0.5 * m.step(); 3000];
    let update = Update::new(vec![tensor("t", &halves)]);
    let squares: Vec<_> = (0..50).map(|seed| rounded(&update, &m, seed).1).collect();
    let beyond = squares.iter().filter(|&&s| s > 1480).count();
    assert!((20..50).contains(&beyond), "{beyond} of 50: {squares:?}");
    let lower = Mechanism { squared_norm: 1480, ..m };
    for seed in 0..20 {
        let (mut rng, mut fields) = (rng(seed), vec![0; 3000]);
        round_within(&update, norm(&update).unwrap(), &lower, &mut fields, &mut rng).unwrap();
        let squares: u64 = fields.iter().map(|&f| square(f, m.half_steps)).sum();
        assert!(squares <= 1480, "{squares}");
    }
    // The bound as it is leaves one in a million out.
    assert!(squares.iter().all(|&s| s <= m.squared_norm()));
}

#[test]
fn noise_of_the_fewest_clients_is_what_was_agreed_and_more_add_to_it() {
    const VALUES: usize = 40_000;
    let (p, noise) = (parameters(16), noise(3.0, 1.0, 4));
    let update = Update::new(vec![tensor("t", &vec![0.0; VALUES])]);
    let agreement = agreement(&update, vec![noise.range()]);
    let step = noise.range() / f64::from(p.half_steps());
    for clients in [4, 5, 8] {
        let mut sums = vec![0i64; VALUES];
        for client in 0..clients {
            let mut rng = rng(client);
            let own = Quantised::noised(&update, &agreement, &p, &noise, &mut rng).unwrap();
            assert_eq!(own.weight(), 1);
            let fields = own.fields().unwrap();
            let values = fields.iter().map(|&f| i64::from(f) - i64::from(p.half_steps()));
            sums.iter_mut().zip(values).for_each(|(sum, v)| *sum += v);
        }
        let variance = sums.iter().map(|&s| (s as f64 * step).powi(2)).sum::<f64>() / VALUES as f64;
        let expected = 9.0 * clients as f64 / 4.0;
        // Five standard errors.
        assert!(
            (variance / expected - 1.0).abs() < 5.0 * (2.0 / VALUES as f64).sqrt(),
            "{variance}"
        );
    }
}

#[test]
fn no_value_leaves_its_field_at_any_precision() {
    for bits in [8, 16, 24] {
        let (p, noise) = (parameters(bits), noise(0.5, 1.0, 3));
        for sign in [-1.0, 1.0] {
            let mut values = vec![0.0; 5000];
            // All of the clip in one place, which the noise of all others stays away from.
            values[1] = 7.0 * sign;
            let update = Update::new(vec![tensor("t", &values)]);
            let agreement = agreement(&update, vec![noise.range()]);
            for seed in 0..5 {
                let own =
                    Quantised::noised(&update, &agreement, &p, &noise, &mut rng(seed)).unwrap();
                assert!(own.fields().unwrap().iter().all(|&f| f <= 2 * p.half_steps()));
                let step = noise.range() / f64::from(p.half_steps());
                let value =
                    (f64::from(own.fields().unwrap()[1]) - f64::from(p.half_steps())) * step;
                let off = (value - sign).abs();
                assert!(off < 6.0 * noise.share_deviation() + step, "{value}");
            }
        }
    }
}

#[test]
fn equal_seeds_give_equal_fields_and_others_do_not() {
    let (p, noise) = (parameters(16), noise(1.0, 1.0, 2));
    let update = Update::new(vec![tensor("t", &values(3000, 1.0))]);
    let agreement = agreement(&update, vec![noise.range()]);
    let of = |seed| {
        let own = Quantised::noised(&update, &agreement, &p, &noise, &mut rng(seed)).unwrap();
        own.fields().unwrap().to_vec()
    };
    assert_eq!(of(1), of(1));
    assert!(of(1).iter().zip(&of(2)).filter(|(a, b)| a == b).count() < 30);
}

#[test]
fn terms_that_noise_cannot_hide_are_refused_by_name() {
    let (p, noise) = (parameters(16), noise(1.0, 1.0, 4));
    let update = Update::new(vec![tensor("a", &[0.5]), tensor("b", &[f64::NAN])]);
    let refuse = |agreement: &Agreement| {
        let refused = Quantised::noised(&update, agreement, &p, &noise, &mut rng(1));
        refused.err().unwrap().to_string()
    };
    let weights = Agreement::new(update.specs(), vec![7.0; 2], 9).unwrap();
    assert!(refuse(&weights).ends_with("all weights are 1; a largest weight of 9 was agreed"));
    let ranges = refuse(&agreement(&update, vec![7.0, 8.0]));
    assert!(ranges.ends_with("a range of 7 beside one of 8 was agreed"), "{ranges}");
    let small = refuse(&agreement(&update, vec![6.9; 2]));
    assert!(small.starts_with("a sigma of 1 has no headroom: the range is 6.9, but"), "{small}");
    let value = refuse(&agreement(&update, vec![7.0; 2]));
    assert!(value.starts_with("tensor \"b\" has NaN at index 0"), "{value}");
    let other = agreement(&Update::new(vec![tensor("a", &[0.5])]), vec![7.0]);
    assert!(refuse(&other).starts_with("the tensors differ"));
}

#[test]
fn an_update_without_values_has_none() {
    let (p, noise) = (parameters(16), noise(1.0, 1.0, 4));
    let none = Update::default();
    let agreement = agreement(&none, vec![]);
    let own = Quantised::noised(&none, &agreement, &p, &noise, &mut rng(1)).unwrap();
    assert!(own.fields().unwrap().is_empty());
}
