//! Sums through files: keygen, ranges, encrypt, aggregate, decrypt, with the real binary.

use safetensors::Dtype;
use serde_json::json;

use crate::support::place::{Place, as_client};
use crate::support::tensors::{
    Brought, Tensor, Tensors, from_file, mixed, single, to_file, uniform,
};

/// Writes each client's tensors as `g0.safetensors` and on.
fn bring(place: &Place, clients: &[Tensors]) {
    for (i, client) in clients.iter().enumerate() {
        place.write(&format!("g{i}.safetensors"), to_file(client));
    }
}

/// Encrypts, with `key` and `words` after a client's own, and sums to `sum.cgm`.
fn sum(place: &Place, key: &str, clients: usize, words: impl Fn(usize) -> String) {
    for i in 0..clients {
        let (key, words) = (as_client(key, i), words(i));
        place.done(&format!("encrypt {key} --in g{i}.safetensors --out {i}.cgm{words}"));
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
    // Encrypting under Paillier takes a client's key alone.
    the_whole_way("paillier-2048", "clients", &[120, 7, 64]);
}

#[test]
fn clients_of_public_keys_that_encrypt_have_keys_of_their_own() {
    let place = Place::new();
    let reported = place.json("keygen --scheme paillier-2048 --clients 3 --out keys");
    assert_eq!(reported["scheme"], "paillier-2048");
    let said = place.done("keygen --scheme paillier-2048 --clients 3 --out more");
    assert!(said.contains("public.json  for the aggregator\n"), "{said}");
    let clients = "clients  one for each client, who encrypts with it: 0.json to 2.json\n";
    assert!(said.contains(clients), "{said}");
    assert!(said.contains("secret.json  for those who decrypt"), "{said}");
    let symmetric = place.done("keygen --scheme ckks-sum --clients 3 --out symmetric");
    assert!(
        symmetric.contains("secret.json  for the clients") && !symmetric.contains("one for each")
    );
    let found = place.json("inspect keys/public.json");
    assert_eq!(
        (&found["scheme"], &found["public_encrypts"]),
        (&json!("paillier-2048"), &json!(true))
    );

    std::fs::rename(place.path("keys/secret.json"), place.path("hidden.json")).unwrap();
    let brought = Brought::new(
        (1..=3).map(|i| single(&[0.25 * f64::from(i), -0.5])).collect(),
        &[1, 1, 1],
        |_| 1.0,
    );
    bring(&place, &brought.clients);
    place.settle("g0.safetensors", 1.0, 1, "");
    sum(&place, "clients", 3, |_| String::new());
    for (key, kind) in [("public.json", "public"), ("clients/0.json", "client's")] {
        let why = format!("this is a {kind} key; this needs the secret key");
        place.fails_with(1, &format!("decrypt --key keys/{key} --in sum.cgm --out out"), &[&why]);
    }
    place.done("decrypt --key hidden.json --job keys/job.json --in sum.cgm --out out");
    brought.check_mean(&from_file(&place.read("out")));
}

#[test]
fn larger_paillier_keys_sum_too() {
    for scheme in ["paillier-3072", "paillier-4096"] {
        let place = Place::with_key(scheme, 2);
        let clients = vec![single(&[0.5, -0.25]), single(&[0.125, 0.75])];
        let brought = Brought::new(clients, &[1, 1], |_| 1.0);
        bring(&place, &brought.clients);
        place.settle("g0.safetensors", 1.0, 1, "");
        sum(&place, "clients", 2, |_| String::new());
        brought.check_mean(&decrypt(&place, ""));
    }
}

#[test]
fn ranges_hold_for_all_clips_for_one() {
    let place = Place::with_key("ckks-sum", 3);
    let brought = Brought::new(
        vec![single(&[0.1, -0.2, 0.0]), single(&[0.25, 0.05, -0.25])],
        &[5, 9],
        |_| 0.25,
    );
    bring(&place, &brought.clients);
    place.settle("g0.safetensors", 0.25, 9, "--min-clients 1");
    sum(&place, "secret.json", 2, |i| format!(" --weight {}", brought.weights[i]));
    brought.check_mean(&decrypt(&place, ""));

    let wild = single(&[1e30, -0.3, 0.25, 0.2, 0.0]);
    place.write("wild.safetensors", to_file(&wild));
    place.settle("wild.safetensors", 0.25, 1, "--min-clients 1");
    for (words, clip, count) in
        [("", 0.25, 2), (" --clip 0.25", 0.25, 2), (" --clip 0.125", 0.125, 4)]
    {
        let encrypt = "encrypt --key keys/secret.json --client 0 --in wild.safetensors --out 0.cgm";
        assert_eq!(place.json(&format!("{encrypt}{words}"))["clipped"], json!({"t": count}));
        let said = place.done(&format!("{encrypt}{words}"));
        assert!(said.contains(&format!("clipped {count} values of \"t\"")), "{said}");
        place.run("aggregate --key keys/public.json --out sum.cgm 0.cgm").done();
        let clipped = wild["t"].values.iter().map(|x| x.clamp(-clip, clip)).collect::<Vec<_>>();
        // In steps of the range that is settled, whatever one clips.
        let clipped = Brought::new(vec![single(&clipped)], &[1], |_| 0.25);
        clipped.check_mean(&decrypt(&place, ""));
    }
}

#[test]
fn files_without_values_make_the_journey() {
    for scheme in ["ckks-sum", "paillier-2048"] {
        let place = Place::with_key(scheme, 3);
        let unused = Tensor::new(Dtype::F64, &[3, 0], vec![]);
        for tensors in [Tensors::new(), Tensors::from([("unused".to_owned(), unused)])] {
            bring(&place, &[tensors.clone(), tensors.clone(), tensors.clone()]);
            sum(&place, "secret.json", 3, |_| String::new());
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
            let words = "encrypt --in g0.safetensors --out g.cgm --key keys/secret.json --client 0";
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
    for (policy, range) in [
        ("max", 4.0),
        ("sigma:1", 2.5),
        ("sigma:9", 4.0),
        ("aciq", 4.0),
        ("aciq:8", 4.0),
        ("fixed:0.5", 0.5),
        ("fixed:5", 5.0),
    ] {
        let ranges = place.json(&format!("ranges --out r.json --policy {policy} g"));
        assert_eq!(ranges["ranges"]["tensors"][0]["range"], json!(range), "{policy}");
    }
}

#[test]
fn keys_are_the_owners_and_never_overwritten() {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let place = Place::with_key("ckks-sum", 3);
        let mode = place.path("keys/secret.json").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let public = Place::with_key("paillier-2048", 3);
    for name in ["public.json", "secret.json"] {
        std::fs::remove_file(public.path(&format!("keys/{name}"))).unwrap();
    }
    let again = "keygen --scheme paillier-2048 --out keys";
    public.fails_with(1, again, &["keys/clients exists; it is not overwritten"]);
    #[cfg(unix)]
    for i in 0..3 {
        use std::os::unix::fs::PermissionsExt as _;
        let file = public.path(&format!("keys/clients/{i}.json"));
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let job = "job --key keys/clients/0.json --out keys/job.json";
    public.fails_with(1, job, &["keys/job.json exists; it is not overwritten"]);
}

#[test]
fn reports_in_json_say_what_was_done() {
    let place = Place::with_key("ckks-sum", 3);
    let key = place.json("keygen --scheme paillier-2048 --clients 5 --bits 12 --out more");
    assert_eq!((&key["scheme"], &key["clients"]), (&json!("paillier-2048"), &json!(5)));
    bring(&place, &[single(&[1.0]), single(&[0.5]), single(&[0.0])]);
    place.settle("g0.safetensors", 1.0, 1, "");
    sum(&place, "secret.json", 3, |_| String::new());
    let sum = place.json("aggregate --key keys/public.json --out sum.cgm 0.cgm 1.cgm 2.cgm");
    assert_eq!((&sum["contributors"], &sum["values"]), (&json!(3), &json!(1)));
    let mean = place.json("decrypt --key keys/secret.json --in sum.cgm --out mean");
    assert_eq!((&mean["output"], &mean["contributors"]), (&json!("weighted mean"), &json!(3)));
    let few = place.run("aggregate --key keys/public.json --out sum.cgm 0.cgm 1.cgm").done();
    assert!(few.stderr.contains("a sum of 2 contributors"), "{few:?}");
}
