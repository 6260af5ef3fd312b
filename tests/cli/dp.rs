//! `ciphergram show noise`: bounds on privacy, and noise that is refused.

use crate::support::place::Place;

const ONE: &str = "show noise --sigma 1 --clip 1 --clients 8 --min-clients 3 --rounds 1";

#[test]
fn epsilon_is_gaussian_rounding_adds_little() {
    let place = Place::new();
    // dp-accounting 0.6.0 says 4.7285 for a Gaussian, at any clip.
    for clip in ["1", "0.001", "5e6"] {
        let found = place.json(&format!(
            "show noise --sigma 1 --clip {clip} --clients 4 --rounds 1 --values 1000"
        ));
        let epsilon = found["epsilon"].as_f64().unwrap();
        assert!((4.7285..4.75).contains(&epsilon), "{found}");
        assert_eq!(found["noise"]["min_clients"], 3);
    }
    let text = place.done(ONE);
    for line in [
        "noise of a sum of 3 clients: standard deviation 1 x 1 = 1; of more clients, more",
        "  a client adds 0.577350, 2386.2 steps, within a range of 7.928203",
        " at delta 0.00001, rounds 1 (zCDP, order 5.4)",
        "  against 2 colluding, who leave 33.3 % of the variance: epsilon ",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn rounds_colluders_and_values_raise_epsilon() {
    let place = Place::new();
    let of = |more: &str| place.json(&format!("{ONE} {more}"));
    let epsilon = |more: &str| of(more)["epsilon"].as_f64().unwrap();
    let one = epsilon("--bits 16");
    assert!(epsilon("--values 100000000") > one && epsilon("--bits 24") < one);
    assert!(epsilon("--delta 1e-9") > one && epsilon("--range 20") > one);
    let found = place.json(&ONE.replace("--min-clients 3", "--min-clients 8"));
    let colluders: Vec<_> = found["colluders"].as_array().unwrap().iter().collect();
    let left: Vec<_> = colluders.iter().map(|c| c["variance_left"].as_f64().unwrap()).collect();
    assert_eq!(left, [0.875, 0.75, 0.5]);
    assert!(colluders.is_sorted_by(|a, b| a["epsilon"].as_f64() < b["epsilon"].as_f64()));
}

#[test]
fn noise_that_does_not_protect_is_refused() {
    let place = Place::new();
    for (words, why) in [
        (ONE.replace("--sigma 1", "--sigma 0"), "a sigma of 0; choose a positive number"),
        (
            format!("{ONE} --range 7"),
            "a sigma of 1 has no headroom: the range is 7, but the clip of 1 and 12",
        ),
        (format!("{ONE} --sample 0.1"), "--sample"),
        (format!("{ONE} --bits 7"), "7 is not in 8..=24"),
    ] {
        place.fails_with(2, &words, &[why]);
    }
}
