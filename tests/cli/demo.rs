//! The main job with small settings: real processes, real training, exact sums.

use ciphergram_he::{Contribution, PublicKey, Sum};
use serde_json::Value;

use crate::support::place::Place;
use crate::support::tensors::{single, to_file};

/// Bytes a value that a way may take under ckks-sum, at 16 bits or fewer.
const MOST_BYTES: f64 = 3.3;

/// Runs it; its figures.
fn demo(scheme: &str, clients: u64, rounds: usize, words: &str) -> Value {
    let place = Place::new();
    let settings = format!("--scheme {scheme} --clients {clients} --rounds {rounds}{words}");
    let said = place.done(&format!("demo {settings} --json figures.json"));
    let last = said.lines().last().unwrap();
    let count = clients as usize * rounds;
    assert!(last.starts_with("encrypted and plaintext training agree"), "{said}");
    assert!(last.contains(&format!("each of {count} means")), "{last}");
    let lines = said.lines().filter(|line| line.contains(": test accuracy ")).count();
    assert_eq!(lines, rounds, "a line a round where there is no terminal: {said}");

    let figures: Value = serde_json::from_slice(&place.read("figures.json")).unwrap();
    assert_eq!(figures["agree"], true);
    assert_eq!(figures["rounds"], rounds);
    assert_eq!(figures["clients"], clients);
    assert_eq!(figures["scheme"], scheme);
    assert!(figures["values"].as_u64().unwrap() >= 20_000);
    let most = match scheme {
        "ckks-sum" => MOST_BYTES,
        _ => 6.0,
    };
    let number = |of: &Value, name: &str| of[name].as_f64().unwrap_or_else(|| panic!("no {name}"));
    let (up, down) =
        (number(&figures, "bytes_per_value_up"), number(&figures, "bytes_per_value_down"));
    assert!(1.0 < up && up < most && 1.0 < down && down < most, "{figures}");
    let wire = number(&figures, "wire_bytes_per_value_up");
    // How much more is up to the machine: a busy one sends again.
    assert!(wire > up, "{figures}");
    // How long it took is up to the machine, but a client encrypts and decrypts within its round.
    let share = number(&figures, "encryption_share");
    let reported =
        format!("encryption and decryption took {:.1} % of a round (median", 100.0 * share);
    assert!(0.0 < share && share < 1.0 && said.contains(&reported), "{share}: {said}");
    let per_round = figures["per_round"].as_array().unwrap();
    assert_eq!(per_round.len(), rounds);
    for (round, of) in per_round.iter().zip(1..) {
        assert_eq!((&round["round"], &round["agree"]), (&Value::from(of), &Value::from(true)));
        let seconds = ["encrypting_s", "exchanging_s", "decrypting_s", "round_s"];
        let others =
            ["loss_encrypted", "loss_plaintext", "bytes_per_value_up", "bytes_per_value_down"];
        for name in seconds.iter().chain(&others) {
            assert!(number(round, name) > 0.0, "{name}: {round}");
        }
        // What happens one after the other.
        let parts = number(round, "exchanging_s") + number(round, "decrypting_s");
        assert!(parts < number(round, "round_s"), "{round}");
    }
    for name in ["accuracy_encrypted", "accuracy_plaintext"] {
        assert_eq!(figures[name], per_round[rounds - 1][name]);
        let accuracy = number(&figures, name);
        assert!(0.8 < accuracy && accuracy <= 1.0, "{figures}");
    }
    figures
}

/// Returns the outcome of a round's plaintext training.
fn plain(figures: &Value) -> Vec<(Value, Value)> {
    let rounds = figures["per_round"].as_array().unwrap();
    let figures = |r: &Value| (r["loss_plaintext"].clone(), r["accuracy_plaintext"].clone());
    rounds.iter().map(figures).collect()
}

#[test]
fn ckks_sum_agrees_seeds_fix_the_training() {
    let first = demo("ckks-sum", 2, 2, "");
    assert_eq!(first["seed"], 1);
    assert_eq!(plain(&demo("ckks-sum", 2, 2, " --seed 1")), plain(&first));
    assert_ne!(plain(&demo("ckks-sum", 2, 2, " --seed 2")), plain(&first));
}

#[test]
fn default_clients_and_other_bits_agree() {
    assert_eq!(demo("ckks-sum", 4, 1, "")["bits"], 16);
    assert_eq!(demo("ckks-sum", 5, 1, " --bits 10")["bits"], 10);
}

/// Headroom is made for those who are declared, however few take part: as many as the demo's
/// parameters, under a key for 64.
#[test]
fn sixty_four_declared_clients_are_cheap() {
    let place = Place::with_key("ckks-sum", 64);
    let values = 21_010;
    place.write("g", to_file(&single(&vec![0.5; values])));
    for (i, out) in ["a.cgm", "b.cgm"].into_iter().enumerate() {
        place.done(&format!("encrypt --key keys/secret.json --client {i} --in g --out {out}"));
    }
    place.done("aggregate --key keys/public.json --out sum.cgm a.cgm b.cgm");
    let key = PublicKey::load(&place.path("keys/public.json")).unwrap();
    let up = Contribution::from_bytes(&place.read("a.cgm"), &key).unwrap().stream.len();
    let down = Sum::from_bytes(&place.read("sum.cgm"), &key).unwrap().stream.len();
    for bytes in [up, down] {
        let each = bytes as f64 / values as f64;
        assert!(2.0 < each && each < MOST_BYTES, "{each} bytes a value");
    }
}

/// Three of four go on without a client that was an opener as well, and with another aggregator.
#[test]
fn openers_agree_though_one_is_killed() {
    let place = Place::new();
    let said = place.done("demo --rounds 3 --kill 1 --json figures.json");
    let last = said.lines().last().unwrap();
    assert!(said.contains("\n1 client and the aggregator killed\n"), "{said}");
    assert!(last.contains("each of 10 means that clients decrypted equals"), "{last}");
    let figures: Value = serde_json::from_slice(&place.read("figures.json")).unwrap();
    assert_eq!(
        (&figures["agree"], &figures["scheme"]),
        (&true.into(), &"ckks-sum-threshold".into())
    );
    place.fails_with(2, "demo --kill 2", &["--kill 2", "a sum takes 3 of 4 clients"]);
    place.fails_with(2, "demo --kill 1 --rounds 1", &["--rounds 1 ends before it"]);
}

#[test]
fn paillier_agrees() {
    demo("paillier-2048", 2, 1, "");
}
