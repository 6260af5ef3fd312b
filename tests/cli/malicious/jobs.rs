//! Keys, jobs, numbers and rounds that are another's: each is refused with one line that names it.

use ciphergram_he::Contribution;
use serde_json::{Value, json};

use crate::support::craft::{CLOSED, Scene};
use crate::support::place::Place;
use crate::support::tensors::{Brought, from_file, single, to_file};

const ENCRYPT: &str = "encrypt --key keys/clients/0.json --in g0 --out none";

#[test]
fn every_command_names_a_missing_job() {
    let Scene { place, .. } = Scene::new("paillier-2048");
    let serve = "serve --key keys/public.json --listen 127.0.0.1:0";
    let join = "join --key keys/clients/0.json --server 127.0.0.1:9 --in g0 --out none";
    let decrypt = "decrypt --key keys/secret.json --in none --out out";
    std::fs::remove_file(place.path("keys/job.json")).unwrap();
    let why = "there is no job, which clients agree on once: make one with `ciphergram job`";
    for command in [ENCRYPT, decrypt, serve, join] {
        place.fails_with(1, command, &["job.json: ", why]);
    }
}

#[test]
fn aggregators_take_no_private_key() {
    let Scene { place, .. } = Scene::new("paillier-2048");
    for key in ["clients/0.json", "secret.json"] {
        let kind = if key == "secret.json" { "secret" } else { "client's" };
        let why = format!(
            "keys/{key}: this is a {kind} key; an aggregator must hold public material only"
        );
        for command in ["aggregate --out none g0", "serve --listen 127.0.0.1:0"] {
            place.fails_with(1, &format!("{command} --key keys/{key}"), &[&why]);
        }
    }
}

/// A client whose file was changed seals as someone whom it is not: its pads are its own.
#[test]
fn a_changed_key_file_impersonates_nobody() {
    let scene = Scene::new("paillier-2048");
    let place = &scene.place;
    let file = |number: u32| -> Value {
        serde_json::from_slice(&place.read(&format!("keys/clients/{number}.json"))).unwrap()
    };
    let mut stolen = file(2);
    assert!(file(1)["client"]["pads"] != stolen["client"]["pads"]);
    assert!(file(1)["client"]["coefficients"] == stolen["client"]["coefficients"]);
    stolen["client"]["number"] = json!(1);
    place.write("keys/stolen.json", stolen.to_string());
    let encrypt =
        "encrypt --key keys/stolen.json --in g1 --weight 2 --out b.cgm --ranges ranges.json";
    place.done("ranges --policy fixed:1 --weight 9 --out ranges.json g0");
    place.done(encrypt);
    let forged = Contribution::from_vec(place.read("b.cgm"), &scene.public).unwrap();
    assert_eq!(forged.contributor.number, 1);
    let mut all = scene.contributions(0);
    let honest = std::mem::replace(&mut all[1], forged);
    scene.refuses(&scene.sum(&all), CLOSED);
    all[1] = honest;
    scene.opens(&scene.sum(&all));
}

#[test]
fn a_round_is_sealed_and_opened_once() {
    let scene = Scene::new("ckks-sum");
    let place = &scene.place;
    place.settle("g0", 1.0, 9, "--min-clients 2");
    let encrypt = |client: u32, words: &str| {
        format!("encrypt --key keys/secret.json --in g{client} --client {client} {words}")
    };
    for (client, out) in (0..).zip(["a.cgm", "b.cgm", "c.cgm"]) {
        let weight = scene.brought.weights[client as usize];
        place.done(&encrypt(client, &format!("--weight {weight} --out {out}")));
        let over = format!(
            "client {client} has sealed a contribution to round 0 of this job, and none to 0 or an earlier one may \
             follow: its next round is 1"
        );
        place.fails_with(1, &encrypt(client, "--round 0 --out d.cgm"), &[&over]);
        assert!(!place.path("d.cgm").exists());
    }
    assert_eq!(place.json(&encrypt(1, "--out next.cgm"))["round"], 1);
    assert_eq!(place.json(&encrypt(1, "--out later.cgm --round 7"))["round"], 7);

    let aggregate = "aggregate --key keys/public.json --out sum.cgm";
    let behind = "a.cgm: it is of round 0, others are of round 1: its client catches up by encrypt --round 1";
    place.fails_with(1, &format!("{aggregate} next.cgm a.cgm"), &[behind]);
    let ahead = "next.cgm: it is of round 1, others are of round 0: its client can go back to none, so the others catch \
                 up by encrypt --round 1";
    place.fails_with(1, &format!("{aggregate} a.cgm next.cgm"), &[ahead]);
    let decrypt = "decrypt --key keys/secret.json --in sum.cgm --out out";
    // Too few: nothing is opened, and the sum of all may follow.
    place.done(&format!("{aggregate} a.cgm"));
    place.fails_with(
        1,
        decrypt,
        &["sum.cgm: chunk 0 is a sum of 1; fewer than 2 are not decrypted"],
    );
    place.done(&format!("{aggregate} a.cgm b.cgm"));
    place.fails_with(1, &format!("{decrypt} --min-clients 3"), &["a sum of 2; fewer than 3"]);
    place.done(&format!("{aggregate} a.cgm b.cgm c.cgm"));
    place.done(decrypt);
    scene.brought.check_mean(&from_file(&place.read("out")));
    place.done(&format!("{decrypt} --sum"));
    let again = [format!("{aggregate} a.cgm b.cgm"), format!("{aggregate} c.cgm b.cgm a.cgm")];
    for words in again {
        place.done(&words);
        let why = "sum.cgm: another sum of round 0 of this job was opened here before";
        place.fails_with(1, decrypt, &[why]);
    }
    assert_eq!(scene.failures(), 0, "what was not opened did not fail");
}

#[test]
fn jobs_are_checked_changed_ones_are_others() {
    let scene = Scene::new("ckks-sum");
    let place = &scene.place;
    let text: Value = serde_json::from_slice(&place.read("keys/job.json")).unwrap();
    let cases = [
        ("clients", json!(4), "no such job: 4 clients; the key admits 1 to 3"),
        ("max_weight", json!(4_294_967_296u64), "not a valid job"),
        ("max_range", json!(-1), "the largest range is -1"),
        ("max_range", json!("many"), "not a valid job"),
        ("kind", json!("ciphergram-ranges"), "not a valid job"),
        ("nonce", json!("12"), "not a valid job: an id is not 32 digits"),
        ("surprise", json!(1), "not a valid job"),
        (
            "tensors",
            json!([{"name": "t", "dtype": "F32", "shape": [150], "range": 1e5}]),
            "has range 100000",
        ),
        (
            "tensors",
            json!([{"name": "t", "dtype": "F8_E4M3", "shape": [150]}]),
            "tensor \"t\" is F8_E4M3",
        ),
    ];
    let encrypt = "encrypt --key keys/secret.json --client 0 --in g0 --out none --job changed.json";
    for (name, value, why) in cases {
        let mut changed = text.clone();
        changed[name] = value;
        place.write("changed.json", changed.to_string());
        place.fails_with(1, encrypt, &["changed.json: ", why]);
    }
    // Fewer would do for one who changed it; for the others it is another job.
    let mut changed = text;
    changed["min_clients"] = json!(1);
    place.write("changed.json", changed.to_string());
    place.write("a.cgm", scene.contribution(0, 0, 1.0).to_bytes(&scene.public));
    let aggregate = "aggregate --key keys/public.json --out sum.cgm a.cgm";
    let why = format!("a.cgm: it is of job {}, not ", scene.job.id());
    place.fails_with(1, &format!("{aggregate} --job changed.json"), &[&why, "under one job file"]);
    place.done(aggregate);
    let decrypt = "decrypt --key keys/secret.json --in sum.cgm --out out --job changed.json";
    place.fails_with(1, decrypt, &[&why.replace("a.cgm", "sum.cgm")]);
}

/// Keys of python-paillier and of earlier versions say nothing of sums. An upgrade makes them fit.
#[test]
fn keys_without_sum_keys_must_be_upgraded() {
    let place = Place::with_key("paillier-2048", 3);
    let brought =
        Brought::new([0.5, 0.25, -1.0].map(|x| single(&[x; 9])).to_vec(), &[1; 3], |_| 1.0);
    for (i, client) in brought.clients.iter().enumerate() {
        place.write(&format!("g{i}"), to_file(client));
    }
    // As python-paillier writes it.
    let mut key: Value = serde_json::from_slice(&place.read("keys/secret.json")).unwrap();
    key.as_object_mut().unwrap().remove("sum_key");
    key["pub"].as_object_mut().unwrap().remove("ciphergram");
    std::fs::create_dir(place.path("old")).unwrap();
    place.write("old/secret.json", key.to_string());
    let status = place.json("inspect old/secret.json");
    assert_eq!((&status["sum_key"], &status["failures"]), (&json!(false), &json!(0)));
    let why = "this key has no sum key, which shows that sums are right: make it one with `ciphergram keygen --upgrade`";
    for words in [
        "encrypt --key old/secret.json --client 0 --in g0 --out none",
        "job --key old/secret.json --out none",
    ] {
        place.fails_with(1, words, &["old/", why]);
    }
    let made = place.json("keygen --upgrade old/secret.json --out new");
    assert_eq!((&made["scheme"], &made["clients"]), (&json!("paillier-2048"), &json!(64)));
    assert!(place.path("new/clients/63.json").exists());
    assert_ne!(made["key_id"], status["key_id"]);
    place.fails_with(1, "keygen --upgrade old/secret.json --out new", &["new/public.json exists"]);
    place.done("ranges --policy fixed:1 --out ranges.json g0");
    for i in 0..3 {
        let words = format!("--key new/clients/{i}.json --in g{i} --ranges ranges.json");
        place.done(&format!("encrypt {words} --out {i}.cgm"));
    }
    place.done("aggregate --key new/public.json --out sum.cgm 0.cgm 1.cgm 2.cgm");
    place.done("decrypt --key new/secret.json --in sum.cgm --min-clients 3 --out out");
    brought.check_mean(&from_file(&place.read("out")));
}
