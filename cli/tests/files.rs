//! Sums through files: keygen, ranges, encrypt, aggregate, decrypt, with the real binary.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, where a panic is the report")]

#[path = "support/place.rs"]
mod place;
#[path = "support/tensors.rs"]
mod tensors;

use place::Place;
use safetensors::Dtype;
use serde_json::json;
use tensors::{Brought, Tensor, Tensors, from_file, mixed, single, to_file, uniform};

/// Writes each client's tensors as `g0.safetensors` and on.
fn bring(place: &Place, clients: &[Tensors]) {
    for (i, client) in clients.iter().enumerate() {
        place.write(&format!("g{i}.safetensors"), to_file(client));
    }
}

/// Encrypts, with `key` and `words` after a client's own, and sums to `sum.cgm`.
fn sum(place: &Place, key: &str, clients: usize, words: impl Fn(usize) -> String) {
    for i in 0..clients {
        let words = words(i);
        place.done(&format!("encrypt --key keys/{key} --in g{i}.safetensors --out {i}.cgm{words}"));
    }
    let files: String = (0..clients).map(|i| format!(" {i}.cgm")).collect();
    place.done(&format!("aggregate --key keys/public.json --out sum.cgm{files}"));
}

/// Returns `sum.cgm`, decrypted.
fn decrypt(place: &Place, words: &str) -> Tensors {
    place.done(&format!("decrypt --key keys/secret.json --in sum.cgm --out out{words}"));
    from_file(&place.read("out"))
}

/// Three clients all the way, with ranges shared in a file: the mean and the sum are as documented.
fn the_whole_way(scheme: &str, key: &str, weights: &[u64]) {
    let place = Place::with_key(scheme, 3);
    let brought = Brought::new((1..=3).map(mixed).collect(), weights, |largest| largest);
    bring(&place, &brought.clients);
    let weighted = brought.max_weight > 1;
    let weight = |i: usize| if weighted { format!(" --weight {}", weights[i]) } else { "".into() };
    for i in 0..3 {
        let words = weight(i);
        place.done(&format!("ranges --out r{i}.json g{i}.safetensors{words}"));
    }
    place.done("ranges --merge --out ranges.json r0.json r1.json r2.json");
    let ranges = place.json("inspect ranges.json");
    assert_eq!(ranges["max_weight"], brought.max_weight);
    for tensor in ranges["tensors"].as_array().unwrap() {
        let range = brought.ranges[tensor["name"].as_str().unwrap()];
        assert_eq!(tensor["range"].as_f64(), Some(range), "{tensor}");
    }
    sum(&place, key, 3, |i| format!(" --ranges ranges.json{}", weight(i)));
    brought.check_mean(&decrypt(&place, ""));
    brought.check_sum(&decrypt(&place, " --sum"));
}

#[test]
fn ckks_sums_are_within_the_bound() {
    the_whole_way("ckks-sum", "secret.json", &[1, 1, 1]);
    the_whole_way("ckks-sum", "secret.json", &[120, 7, 64]);
}

#[test]
fn paillier_sums_are_within_the_bound() {
    the_whole_way("paillier-2048", "secret.json", &[1, 1, 1]);
    // Encrypting under Paillier takes no secret.
    the_whole_way("paillier-2048", "public.json", &[120, 7, 64]);
}

#[test]
fn public_ckks_sums_are_within_the_bound() {
    the_whole_way("ckks-sum-public", "public.json", &[120, 7, 64]);
    the_whole_way("ckks-sum-public", "secret.json", &[1, 1, 1]);
}

/// Clients have the public half alone, whichever way it was asked for.
#[test]
fn a_public_key_that_encrypts_is_asked_for_by_an_option() {
    let place = Place::new();
    let reported = place.json("keygen --public-encrypt --clients 3 --out keys");
    assert_eq!(reported["scheme"], "ckks-sum-public");
    let said = place.done("keygen --public-encrypt --clients 3 --out more");
    assert!(
        said.contains("public.json  for the aggregator, and for the clients, who encrypt with it")
    );
    assert!(said.contains("secret.json  for those who decrypt"), "{said}");
    let paillier = place.json("keygen --scheme paillier-2048 --public-encrypt --out paillier");
    assert_eq!(paillier["scheme"], "paillier-2048");
    let found = place.json("inspect keys/public.json");
    assert_eq!(
        (&found["scheme"], &found["public_encrypts"]),
        (&json!("ckks-sum-public"), &json!(true))
    );

    std::fs::rename(place.path("keys/secret.json"), place.path("hidden.json")).unwrap();
    let brought = Brought::new(
        (1..=3).map(|i| single(&[0.25 * f64::from(i), -0.5])).collect(),
        &[1, 1, 1],
        |_| 1.0,
    );
    bring(&place, &brought.clients);
    sum(&place, "public.json", 3, |_| " --clip 1".into());
    let why = "this is a public key; this needs the secret key";
    place.fails_with(1, "decrypt --key keys/public.json --in sum.cgm --out out", &[why]);
    place.done("decrypt --key hidden.json --in sum.cgm --out out");
    brought.check_mean(&from_file(&place.read("out")));
}

#[test]
fn larger_paillier_keys_sum_too() {
    for scheme in ["paillier-3072", "paillier-4096"] {
        let place = Place::with_key(scheme, 2);
        let clients = vec![single(&[0.5, -0.25]), single(&[0.125, 0.75])];
        let brought = Brought::new(clients, &[1, 1], |_| 1.0);
        bring(&place, &brought.clients);
        sum(&place, "public.json", 2, |_| " --clip 1".into());
        brought.check_mean(&decrypt(&place, ""));
    }
}

#[test]
fn one_clip_serves_all_tensors_and_says_what_it_clipped() {
    let place = Place::with_key("ckks-sum", 3);
    let brought = Brought::new(
        vec![single(&[0.1, -0.2, 0.0]), single(&[0.25, 0.05, -0.25])],
        &[5, 9],
        |_| 0.25,
    );
    bring(&place, &brought.clients);
    sum(&place, "secret.json", 2, |i| {
        format!(" --clip 0.25 --max-weight 9 --weight {}", brought.weights[i])
    });
    brought.check_mean(&decrypt(&place, ""));

    place.write("wild.safetensors", to_file(&single(&[1e30, -0.3, 0.25, 0.2, 0.0])));
    let words = "encrypt --key keys/secret.json --in wild.safetensors --out 0.cgm --clip 0.25";
    assert_eq!(place.json(words)["clipped"], json!({"t": 2}));
    assert!(place.done(words).contains("clipped 2 values of \"t\""));
    place.run("aggregate --key keys/public.json --out sum.cgm 0.cgm").done();
    let clipped = Brought::new(vec![single(&[0.25, -0.25, 0.25, 0.2, 0.0])], &[1], |_| 0.25);
    clipped.check_mean(&decrypt(&place, ""));
}

#[test]
fn files_without_values_make_the_journey() {
    for scheme in ["ckks-sum", "ckks-sum-public", "paillier-2048"] {
        let place = Place::with_key(scheme, 3);
        let unused = Tensor::new(Dtype::F64, &[3, 0], vec![]);
        for tensors in [Tensors::new(), Tensors::from([("unused".to_owned(), unused)])] {
            bring(&place, &[tensors.clone(), tensors.clone(), tensors.clone()]);
            sum(&place, "secret.json", 3, |_| " --clip 1".into());
            assert_eq!(decrypt(&place, ""), tensors);
        }
    }
}

/// From 10,000 values up, everything in the file counted; and a bias of ten costs nearly nothing.
#[test]
fn uploads_are_as_small_as_promised() {
    let mut draw = uniform(9);
    let values: Vec<f64> = (0..10_000).map(|_| draw()).collect();
    for (scheme, most) in [("ckks-sum", 3.3), ("paillier-2048", 6.0)] {
        let place = Place::with_key(scheme, 64);
        let mut tensors = single(&values);
        let size = |tensors: &Tensors| {
            bring(&place, std::slice::from_ref(tensors));
            let words = "encrypt --in g0.safetensors --out g.cgm --clip 1 --key keys/secret.json";
            let reported = place.json(words);
            let bytes = place.read("g.cgm").len();
            let ciphertext = reported["ciphertext_bytes"].as_u64().unwrap() as usize;
            assert!(ciphertext < bytes && bytes < ciphertext + 300, "{reported}");
            bytes as f64
        };
        let one = size(&tensors);
        assert!(one / 10_000.0 <= most, "{scheme}: {one} bytes");
        tensors.insert("bias".into(), Tensor::new(Dtype::F32, &[10], vec![0.5; 10]));
        let more = size(&tensors) - one;
        let unit = if scheme == "ckks-sum" { 64.0 } else { 512.0 };
        assert!(more <= unit + 64.0, "{scheme}: {more} bytes for ten values");
    }
}

#[test]
fn policies_clip_as_they_say() {
    let place = Place::new();
    place.write("g", to_file(&single(&[3.0, -4.0, 0.0, 0.0])));
    for (policy, range) in [("max", 4.0), ("sigma:1", 2.5), ("sigma:9", 4.0), ("aciq", 4.0)] {
        let ranges = place.json(&format!("ranges --out r.json --policy {policy} g"));
        assert_eq!(ranges["ranges"]["tensors"][0]["range"], json!(range), "{policy}");
    }
}

#[test]
fn keys_are_the_owners_and_never_overwritten() {
    let place = Place::with_key("ckks-sum", 3);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = place.path("keys/secret.json").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let again = "keygen --scheme paillier-2048 --out keys";
    place.fails_with(1, again, &["keys/public.json exists; it is not overwritten"]);
    std::fs::remove_file(place.path("keys/public.json")).unwrap();
    place.fails_with(1, again, &["keys/secret.json exists; it is not overwritten"]);
}

#[test]
fn reports_in_json_say_what_was_done() {
    let place = Place::with_key("ckks-sum", 3);
    let key = place.json("keygen --scheme paillier-2048 --clients 5 --bits 12 --out more");
    assert_eq!((&key["scheme"], &key["clients"]), (&json!("paillier-2048"), &json!(5)));
    bring(&place, &[single(&[1.0]), single(&[0.5]), single(&[0.0])]);
    sum(&place, "secret.json", 3, |_| " --clip 1".into());
    let sum = place.json("aggregate --key keys/public.json --out sum.cgm 0.cgm 1.cgm 2.cgm");
    assert_eq!((&sum["contributors"], &sum["values"]), (&json!(3), &json!(1)));
    let mean = place.json("decrypt --key keys/secret.json --in sum.cgm --out mean");
    assert_eq!((&mean["output"], &mean["contributors"]), (&json!("weighted mean"), &json!(3)));
    let few = place.run("aggregate --key keys/public.json --out sum.cgm 0.cgm 1.cgm").done();
    assert!(few.stderr.contains("a sum of 2 contributors"), "{few:?}");
}
