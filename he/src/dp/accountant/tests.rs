use serde_json::Value;

use super::*;
use crate::dp::{Literal, Noise};

/// Returns the mechanism of one value at 24 bits, for which rounding adds a hundred-thousandth.
fn mechanism(sigma: f64, min_clients: u32) -> Mechanism {
    let noise = Noise::new(Literal { sigma, clip: 1.0, clients: 1024, min_clients }).unwrap();
    Mechanism::new(noise, noise.range(), (1 << 23) - 1, 1).unwrap()
}

fn release(rounds: u32) -> Release {
    Release { rounds, colluders: 0 }
}

fn of(sigma: f64, rounds: u32, delta: f64) -> f64 {
    mechanism(sigma, 10).epsilon(release(rounds), delta).unwrap().epsilon
}

#[test]
fn epsilons_are_those_of_googles_accounting() {
    let text = include_str!("../../../../tests/he/data/dp_accounting.json");
    let vectors: Value = serde_json::from_str(text).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let number = |name: &str| case[name].as_f64().unwrap();
        let release = release(number("rounds") as u32);
        let found = mechanism(number("sigma"), 10).epsilon(release, number("delta")).unwrap();
        let (rdp, pld) = (number("rdp"), number("pld"));
        assert!((found.epsilon / rdp - 1.0).abs() < 1e-3, "{case}: {found:?}");
        assert!(found.epsilon >= pld, "{case}: {found:?} is below the best bound known");
    }
}

#[test]
fn the_formula_for_one_order_is_that_of_the_paper() {
    // σ = 1, one round: ρ = 1/2; at α = 3 proposition 12 gives 3/2 + ln(2/3) − (ln δ + ln 3)/2.
    let by_hand = 1.5 + (2f64 / 3.0).ln() - ((1e-5f64 * (1.0 - 1e-3)).ln() + 3f64.ln()) / 2.0;
    assert!((epsilon(3.0, 0.5, 1e-5).epsilon - by_hand).abs() < 1e-12);
}

#[test]
fn epsilon_grows_with_rounds_and_colluders_and_falls_with_sigma() {
    assert!(of(1.0, 2, 1e-5) > of(1.0, 1, 1e-5) && of(1.0, 1, 1e-6) > of(1.0, 1, 1e-5));
    assert!(of(2.0, 1, 1e-5) < of(1.0, 1, 1e-5));
    let m = mechanism(4.0, 10);
    let with = |colluders| m.epsilon(Release { colluders, ..release(1) }, 1e-5).unwrap();
    assert!(with(1).epsilon > with(0).epsilon);
    // Nine of ten take nine tenths of the variance: what is left is that of sigma/√10.
    let left = with(9).epsilon / of(4.0 / 10f64.sqrt(), 1, 1e-5);
    assert!((left - 1.0).abs() < 1e-3, "{left}");
}

#[test]
fn coarse_steps_cost_privacy() {
    let noise =
        Noise::new(Literal { sigma: 1.0, clip: 1.0, clients: 10, min_clients: 10 }).unwrap();
    let at = |bits: u32, values| {
        let m = Mechanism::new(noise, noise.range(), (1 << (bits - 1)) - 1, values).unwrap();
        m.epsilon(release(1), 1e-5).unwrap().epsilon
    };
    assert!(at(8, 1000) > 1.2 * at(16, 1000) && at(16, 1000) < 1.01 * at(24, 1000));
    assert!(at(16, 100_000_000) > 1.2 * at(24, 100_000_000));
}

#[test]
fn narrow_shares_do_not_sum_to_a_discrete_gaussian_for_free() {
    let m = |deviation: f64| {
        let mut m = mechanism(1.0, 10);
        (m.share_variance, m.squared_norm, m.values) = (deviation * deviation, 1, 1_000_000);
        MomentSum::new(&m, 10)
    };
    // τ is that of the paper's sum of nine terms, the first of which is nearly all of it.
    let first = 10.0 * (-std::f64::consts::PI.powi(2)).exp();
    assert!(m(1.0).tau > first && m(1.0).tau < 1.1 * first);
    let none = 0.5 / 10.0;
    assert!(m(1.0).rho() > 3.0 * none, "{}", m(1.0).rho());
    assert!((m(4.0).rho() * 16.0 / none - 1.0).abs() < 1e-9);
}

#[test]
fn questions_without_an_answer_are_refused() {
    let m = mechanism(1.0, 4);
    let refuse = |release, delta| m.epsilon(release, delta).unwrap_err().to_string();
    for delta in [0.0, 1.0, -1.0, f64::NAN] {
        let expected = format!("a delta of {delta}; choose a number between 0 and 1");
        assert_eq!(refuse(release(1), delta), expected);
    }
    assert_eq!(refuse(release(0), 1e-5), "a number of rounds of 0; choose 1 or more");
    let all = Release { colluders: 4, ..release(1) };
    assert!(refuse(all, 1e-5).starts_with("no epsilon at a delta of 0.00001: the noise left by 4"));
    // What draws are off is more than this delta has room for, then more than ε = 1000 multiplies it to.
    assert!(refuse(release(1), 1e-27).starts_with("no epsilon"));
    assert!(m.epsilon(release(1), 1e-20).is_ok());
    assert!(refuse(release(1000), 1e-5).starts_with("no epsilon"));
}
