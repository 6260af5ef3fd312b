//! One key in the place of another: `keygen --replaces`.

use serde_json::Value;

use crate::support::place::Place;
use crate::support::tensors::{from_file, mixed, to_file};

fn json(place: &Place, name: &str) -> Value {
    serde_json::from_slice(&place.read(name)).unwrap()
}

fn bring(place: &Place) {
    (0..3).for_each(|i| place.write(&format!("g{i}"), to_file(&mixed(4 + i))));
}

/// Encrypts and sums three files under a key, to `SUM`.
fn sum(place: &Place, keys: &str, out: &str) {
    for i in 0..3 {
        let key = format!("--key {keys}/secret.json --client {i}");
        place.done(&format!("encrypt {key} --in g{i} --ranges {keys}/ranges.json --out {i}.{out}"));
    }
    place.done(&format!("aggregate --key {keys}/public.json --out {out} 0.{out} 1.{out} 2.{out}"));
}

#[test]
fn new_keys_inherit_and_open_nothing_old() {
    let place = Place::with_key("ckks-sum", 5);
    bring(&place);
    place.settle("g0", 4.0, 9, "--clients 4");
    sum(&place, "keys", "old.sum");
    let ledger = place.read("keys/secret.json.ledger");

    let said = place.done("keygen --replaces keys --out new");
    let own = place.json("inspect keys/secret.json")["key_id"].as_str().unwrap().to_owned();
    assert!(
        said.contains(&format!("This key replaces {own}, whose files stay as they are")),
        "{said}"
    );
    let steps: Vec<_> =
        (1..=5).map(|n| said.find(&format!("\n{n}. ")).expect("five steps")).collect();
    assert!(steps.is_sorted());
    // The same but for what makes it another key and another job.
    let differ = |file: &str, inside: &str, own: &[&str]| {
        let [mut old, mut new] = ["keys", "new"].map(|folder| {
            let value = json(&place, &format!("{folder}/{file}"));
            value.pointer(inside).unwrap().as_object().unwrap().clone()
        });
        for member in own {
            assert_ne!(
                old.remove(*member).unwrap(),
                new.remove(*member).unwrap(),
                "{file}: {member}"
            );
        }
        assert!(old.len() > 2, "{file}");
        assert_eq!(old, new, "{file}");
    };
    differ("public.json", "/ciphergram", &["key_id"]);
    differ("job.json", "", &["nonce", "key_id"]);
    for file in ["server.identity", "server.node", "client.identity", "clients.allow"] {
        let [old, new] = ["keys", "new"].map(|folder| place.read(&format!("{folder}/{file}")));
        assert_eq!(old, new, "{file}");
    }
    #[cfg(unix)]
    for file in ["secret.json", "server.identity", "client.identity"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode =
            std::fs::metadata(place.path(&format!("new/{file}"))).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert_eq!(place.read("keys/secret.json.ledger"), ledger, "the ledger stays where it is");
    assert!(!place.path("new/secret.json.ledger").exists());

    // Each key opens its own sums alone.
    std::fs::copy(place.path("keys/ranges.json"), place.path("new/ranges.json")).unwrap();
    sum(&place, "new", "new.sum");
    place.done("decrypt --key keys/secret.json --in old.sum --out old.mean");
    place.done("decrypt --key new/secret.json --in new.sum --out new.mean");
    let [old, new] = ["old.mean", "new.mean"].map(|name| from_file(&place.read(name)));
    assert!(old.keys().eq(new.keys()));
    place.fails_with(1, "decrypt --key new/secret.json --in old.sum --out none", &["old.sum"]);
    place.fails_with(1, "decrypt --key keys/secret.json --in new.sum --out none", &["new.sum"]);
}

#[test]
fn old_node_keys_serve_the_new_key() {
    let place = Place::with_key("ckks-sum", 3);
    bring(&place);
    place.done("keygen --replaces keys --out new");
    let serve = "serve --key new/public.json --listen 127.0.0.1:0 --clients 3 --json";
    let mut server = place.start(serve);
    let address = server.event("listening")["address"].as_str().unwrap().to_owned();
    let join = |i: usize| {
        let own = format!("--key new/secret.json --client {i} --in g{i} --out mean{i}");
        place.start(&format!("join {own} --server {address}"))
    };
    let clients = [0, 1, 2].map(join);
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    server.finish().done();
}

#[test]
fn node_keys_and_jobs_follow_options() {
    let place = Place::with_key("paillier-2048", 3);
    place.done("job --key keys/public.json --out other.json --max-weight 7");
    place.done("keygen --replaces keys --job other.json --renew-nodes --out new");
    assert_eq!(json(&place, "new/job.json")["max_weight"], 7);
    assert!(place.path("new/clients/2.json").exists());
    for file in ["server.identity", "server.node", "client.identity", "clients.allow"] {
        assert_ne!(
            place.read(&format!("keys/{file}")),
            place.read(&format!("new/{file}")),
            "{file}"
        );
    }
    let value = place.json("keygen --replaces keys --out third");
    assert_eq!(value["replaces"], place.json("inspect keys/secret.json")["key_id"]);
    assert_ne!(value["key_id"], value["replaces"]);

    place.fails_with(1, "keygen --replaces none --out x", &["none/public.json"]);
    place.fails_with(1, "keygen --replaces keys --out keys", &["keys/"]);
    place.fails_with(2, "keygen --replaces keys --clients 3 --out x", &["--replaces", "--clients"]);
    place.fails_with(2, "keygen --renew-nodes --out x", &["--replaces"]);
    assert!(!place.path("x").exists());
}
