use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use serde_json::Value;

use super::*;

const DRAWS: usize = 1 << 20;

fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

/// Draws by tables, each with an offset that keeps it positive.
fn draw(variance: f64, bound: i32, count: usize) -> Vec<i64> {
    let sampler = DiscreteGaussian::new(variance, bound);
    let mut fields = vec![1 << 30; count];
    sampler.add_to(&mut fields, &mut rng(1));
    fields.into_iter().map(|f| i64::from(f) - (1 << 30)).collect()
}

fn hex(text: &Value) -> u128 {
    u128::from_str_radix(text.as_str().unwrap(), 16).unwrap()
}

/// Returns the probability of each magnitude, in units of 2^-127, as the entries have it.
fn probabilities(table: &Table) -> Vec<u128> {
    let mut out = vec![0; SIZE];
    for (v, (entry, &lower)) in table.entries.iter().zip(&table.lower).enumerate() {
        let own = u128::from(entry >> 16) << 64 | u128::from(lower);
        out[v] += own;
        out[(entry & 0xffff) as usize] += (1 << THRESHOLD_BITS) - own;
    }
    out
}

#[test]
fn tables_have_the_probabilities_that_mpmath_finds() {
    let text = include_str!("../../../../tests/he/data/discrete_gaussian.json");
    let vectors: Value = serde_json::from_str(text).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let found = probabilities(&Table::new(hex(&case["rate"])));
        assert_eq!(found.iter().sum::<u128>(), ONE);
        let values = case["values"].as_array().unwrap();
        for (v, expected) in values.iter().zip(case["probabilities"].as_array().unwrap()) {
            let v = v.as_u64().unwrap() as usize;
            let expected = hex(expected) << u32::from(v > 0);
            // 2^-102, the promise for all magnitudes together.
            assert!(found[v].abs_diff(expected) < 1 << 25, "{} at {v}", case["rate"]);
        }
    }
}

/// A generator of one word.
struct OneWord(u64);

impl rand_core::TryRng for OneWord {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        panic!("a whole word is read")
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(self.0)
    }

    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
        panic!("one word is read")
    }
}

#[test]
fn a_draw_compares_every_bit_of_its_fraction() {
    let table = Table::of_variance(40.0);
    let mut ties = 0;
    for (v, (&entry, &lower)) in (0u64..).zip(table.entries.iter().zip(&table.lower)) {
        let (threshold, own, alias) = (entry >> 16, v as i32, (entry & 0xffff) as i32);
        let draw = |fraction: u64, more| {
            let positive = table.draw(fraction << 16 | v, &mut OneWord(more));
            assert_eq!(table.draw(fraction << 16 | 1 << 15 | v, &mut OneWord(more)), -positive);
            positive
        };
        assert_eq!(draw(threshold, lower), alias, "at the threshold of {v}");
        assert_eq!(draw((1 << 48) - 1, 0), alias, "the last of {v}");
        if lower > 0 {
            assert_eq!(draw(threshold, lower - 1), own, "just below the threshold of {v}");
            ties += 1;
        }
        if threshold > 0 {
            assert_eq!(draw(threshold - 1, u64::MAX), own);
        }
    }
    assert!(ties > 60, "{ties}");
}

#[test]
fn moments_are_those_of_the_variance() {
    for variance in [1.0, 13.69, 5.7e6, 1e8, 4e11] {
        let draws = draw(variance, i32::MAX, DRAWS);
        let deviation = f64::sqrt(variance);
        let moment = |power| {
            let sum: f64 = draws.iter().map(|&v| (v as f64 / deviation).powi(power)).sum();
            sum / DRAWS as f64
        };
        // Five standard errors of a Gaussian's moments: 1, √2, √15, √96 over the square root of the draws.
        let error = 5.0 / (DRAWS as f64).sqrt();
        assert!(moment(1).abs() < error, "{variance}");
        assert!((moment(2) - 1.0).abs() < error * 2f64.sqrt(), "{variance}: {}", moment(2));
        assert!(moment(3).abs() < error * 15f64.sqrt(), "{variance}");
        assert!((moment(4) - 3.0).abs() < error * 96f64.sqrt() + 1e-3, "{variance}");
    }
}

/// Returns the statistic of draws in bins of `width` against expected probabilities of `first, first + 1` and so on,
/// and its degrees of freedom; bins that expect less than 20 are left out.
fn chi_square(draws: &[i64], first: i64, probabilities: &[f64], width: usize) -> (f64, f64) {
    let mut counts = vec![0.0; probabilities.len().div_ceil(width)];
    for v in draws {
        counts[(v - first) as usize / width] += 1.0;
    }
    let expected = probabilities.chunks(width).map(|p| p.iter().sum::<f64>() * draws.len() as f64);
    let terms = counts.iter().zip(expected).filter(|(_, e)| *e >= 20.0);
    let terms: Vec<_> = terms.map(|(c, e)| (c - e) * (c - e) / e).collect();
    (terms.iter().sum(), terms.len() as f64 - 1.0)
}

/// Returns the first integer and the probabilities from there, to 14 deviations on either side.
fn gaussian(variance: f64) -> (i64, Vec<f64>) {
    let reach = (14.0 * variance.sqrt()) as i64;
    let weights = (-reach..=reach).map(|v| (-(v as f64) * v as f64 / 2.0 / variance).exp());
    let weights: Vec<_> = weights.collect();
    let total: f64 = weights.iter().sum();
    (-reach, weights.iter().map(|w| w / total).collect())
}

/// Refuses a statistic that would be seen once in a million times.
fn assert_fits((statistic, freedom): (f64, f64), what: &str) {
    assert!(freedom >= 5.0, "{what}: only {freedom} bins");
    assert!(
        statistic < freedom + 5.0 * (2.0 * freedom).sqrt() + 15.0,
        "{what}: {statistic} of {freedom}"
    );
}

#[test]
fn draws_fit_the_distribution_of_one_table_and_of_two() {
    // Of two tables: every value by itself, and bins that hide no multiple of the factor.
    for (variance, width) in
        [(1.0, 1), (13.69, 1), (400.0, 1), (7.4e6, 97), (7.5e6, 1), (1e8, 1001)]
    {
        let draws = draw(variance, i32::MAX, DRAWS);
        let (first, probabilities) = gaussian(variance);
        assert_fits(chi_square(&draws, first, &probabilities, width), &variance.to_string());
    }
}

#[test]
fn a_wrong_variance_does_not_fit() {
    let (first, probabilities) = gaussian(400.0 * 1.03);
    let (statistic, freedom) = chi_square(&draw(400.0, i32::MAX, DRAWS), first, &probabilities, 1);
    assert!(statistic > freedom + 5.0 * (2.0 * freedom).sqrt() + 15.0, "{statistic}");
}

#[test]
fn draws_of_canonne_kamath_and_steinke_fit_it_too() {
    let mut rng = rng(2);
    let draws: Vec<_> = (0..1 << 17).map(|_| exact::draw(40, &mut rng)).collect();
    let table = Table::of_variance(40.0);
    let (first, ideal) = gaussian(40.0);
    let mut own = vec![0.0; ideal.len()];
    for (v, p) in probabilities(&table).into_iter().enumerate() {
        let place = v as i64 - first;
        if let Some(out) = own.get_mut(place as usize) {
            *out = p as f64 / ONE as f64 / if v > 0 { 2.0 } else { 1.0 };
            own[(-(v as i64) - first) as usize] = own[place as usize];
        }
    }
    assert_fits(chi_square(&draws, first, &own, 1), "the exact algorithm beside the table");
}

#[test]
fn draws_end_at_the_bound_and_reach_every_place() {
    let draws = draw(100.0, 5, 10_000);
    assert!(draws.iter().all(|v| v.abs() <= 5) && draws.contains(&5) && draws.contains(&-5));
    let sampler = DiscreteGaussian::new(1e6, 12_000);
    for count in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK] {
        let mut fields = vec![1 << 20; count];
        sampler.add_to(&mut fields, &mut rng(3));
        let untouched = fields.iter().filter(|&&f| f == 1 << 20).count();
        assert!(untouched <= 10, "{untouched} of {count}");
    }
}

/// The exact algorithms of Canonne, Kamath and Steinke 2020, in integers.
mod exact {
    use rand_core::Rng;

    fn below(bound: u128, rng: &mut impl Rng) -> u128 {
        let limit = u128::from(u64::MAX) + 1;
        assert!(bound <= limit);
        loop {
            let drawn = u128::from(rng.next_u64());
            if drawn < limit - limit % bound {
                return drawn % bound;
            }
        }
    }

    /// Algorithm 1: true with probability `exp(-n/d)`.
    fn bernoulli_exp(mut n: u128, d: u128, rng: &mut impl Rng) -> bool {
        while n > d {
            if !bernoulli_exp(d, d, rng) {
                return false;
            }
            n -= d;
        }
        let mut k = 1;
        while below(d * k, rng) < n {
            k += 1;
        }
        k % 2 == 1
    }

    /// Algorithm 2: the discrete Laplace distribution of scale `t`.
    fn laplace(t: u128, rng: &mut impl Rng) -> i64 {
        loop {
            let low = below(t, rng);
            if !bernoulli_exp(low, t, rng) {
                continue;
            }
            let mut high = 0;
            while bernoulli_exp(1, 1, rng) {
                high += 1;
            }
            let magnitude = (low + t * high) as i64;
            match below(2, rng) {
                1 if magnitude == 0 => {}
                1 => return -magnitude,
                _ => return magnitude,
            }
        }
    }

    /// Algorithm 3: the discrete Gaussian of an integer variance.
    pub(super) fn draw(variance: u128, rng: &mut impl Rng) -> i64 {
        let t = variance.isqrt() + 1;
        loop {
            let y = laplace(t, rng);
            let off = (u128::from(y.unsigned_abs()) * t).abs_diff(variance);
            if bernoulli_exp(off * off, 2 * variance * t * t, rng) {
                return y;
            }
        }
    }
}
