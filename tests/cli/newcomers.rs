//! What someone who uses the command line for the first time types, and what is reported.

use serde_json::{Value, json};

use crate::support::place::Place;
use crate::support::tensors::{from_file, single, to_file};

#[test]
fn nothing_typed_prints_help() {
    let place = Place::new();
    let ran = place.run("");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("Usage: ") && ran.stderr.contains("\nCommands:\n"), "{ran:?}");
    assert!(!ran.stderr.contains("demo-client"), "{ran:?}");
}

#[test]
fn what_was_meant_is_named() {
    let place = Place::new();
    for (words, meant) in [
        ("decript", "unrecognized subcommand 'decript'; did you mean 'decrypt'?; see --help"),
        ("zzzz", "unrecognized subcommand 'zzzz'; see --help"),
    ] {
        place.fails_with(2, words, &[meant]);
    }
}

#[test]
fn addresses_may_be_names_of_hosts() {
    let place = Place::with_key("ckks-sum", 3);
    let holder = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    // It is resolved, and the port is taken.
    let taken = format!("127.0.0.1:{port}: address in use");
    let serve = "serve --key keys/public.json --clients 3 --listen";
    place.fails_with(1, &format!("{serve} localhost:{port}"), &[&taken]);
    for wrong in ["localhost", ":7700", "localhost:http", "::1:7700", "localhost:70000"] {
        let why = format!("invalid value '{wrong}' for '--listen <HOST:PORT>': expected HOST:PORT");
        place.fails_with(2, &format!("{serve} {wrong}"), &[&why]);
    }
}

#[test]
fn one_thing_is_no_plural() {
    let place = Place::with_key("ckks-sum", 3);
    place.write("g", to_file(&single(&[0.5])));
    let ranged = place.done("ranges --policy fixed:0.25 --out ranges.json g");
    assert!(ranged.contains("ranges of 1 tensor, 1 value, largest"), "{ranged}");
    let encrypt = "encrypt --key keys/secret.json --client 0 --in g --ranges ranges.json --out";
    let encrypted = place.done(&format!("{encrypt} a.cgm"));
    assert!(encrypted.contains("clipped 1 value of \"t\""), "{encrypted}");
    assert!(encrypted.contains("a.cgm: round 0, 1 value, "), "{encrypted}");
}

#[test]
fn folders_are_named_without_double_slashes() {
    let place = Place::with_key("ckks-sum", 3);
    let rotated = place.done("keygen --replaces keys/ --out new/");
    assert!(rotated.contains("--key new/public.json") && !rotated.contains("//"), "{rotated}");
}

/// A folder for each machine, and clients that train between rounds: what a federation types from the beginning to the
/// end.
#[test]
fn a_federation_runs_from_its_bundles() {
    let secret = "keys/secret.json";
    for (scheme, source, key) in [
        ("ckks-sum-threshold", "keys/public.json", "identity.json"),
        ("ckks-sum", secret, "secret.json"),
        ("paillier-2048", secret, "client.json"),
    ] {
        let place = Place::with_key(scheme, 3);
        let bundle = format!("bundle --key {source} --out site");
        let made = place.done(&bundle);
        assert!(made.contains("\n  ciphergram join --key ") && made.contains(key), "{made}");
        place.fails_with(1, &bundle, &["site exists"]);
        assert!(!place.path("site/aggregator/secret.json").exists());
        let serve =
            "serve --key site/aggregator/public.json --listen 127.0.0.1:0 --rounds 2 --json";
        let mut server = place.start(serve);
        let address = server.event("listening")["address"].as_str().unwrap().to_owned();
        let join = |i: usize, words: &str| {
            let key = format!("--key site/client-{i}/{key} --server {address} --client {i}");
            place.start(&format!("join {key} --in u{i} --out m{i} {words} --json"))
        };
        place.write("g0", to_file(&single(&[0.5])));
        place.write("g1", to_file(&single(&[0.25])));
        // Another client's number is not the node's.
        let stranger =
            format!("join --key site/client-0/{key} --server {address} --client 1 --in g0 --out o");
        if scheme == "ckks-sum" {
            place.fails_with(1, &stranger, &["is allowed as contributor 0"]);
        }
        let failing = join(0, "--before false").finish();
        assert_eq!(failing.error(1), "error: --before false: exit status: 1");
        // The next update is another once there is a mean.
        let trains = |i| format!("test -e m{i} && cp g1 u{i} || cp g0 u{i}").replace(' ', "${IFS}");
        let mut clients = [0, 1, 2].map(|i| join(i, &format!("--rounds 2 --before {}", trains(i))));
        for round in 0..2 {
            let reported =
                ["joined", "opened", "sealed", "finished"].map(|step| clients[0].event(step));
            assert_eq!(
                (&reported[1]["contributors"], &reported[3]["round"]),
                (&json!(3), &json!(round))
            );
            server.event("finished");
        }
        clients.into_iter().for_each(|client| drop(client.finish().done()));
        // The first of a round may join before the one before it is finished, so that events have no order here.
        let ran = server.finish().done();
        let events = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let missing = |event: Value| event["missing"].as_array().map(Vec::len);
        let joined = events.filter(|event| event["event"] == "joined").filter_map(missing);
        assert_eq!(joined.filter(|missing| *missing == 2).count(), 2, "{}", ran.stdout);
        if scheme != "paillier-2048" {
            assert_eq!(from_file(&place.read("m2"))["t"].values, [0.25]);
        }
    }
}

/// What makes the update does not go on when whoever waits for it is stopped.
#[test]
fn a_command_before_rounds_ends_with_join() {
    let place = Place::with_key("ckks-sum", 3);
    let words =
        "join --key keys/secret.json --client 0 --server 127.0.0.1:9 --in g --out o --before";
    place.write("train.sh", "mkfifo f; echo $$ > made; cat f; touch late");
    let join = place.start(&format!("{words} sh${{IFS}}train.sh"));
    let late = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !place.path("made").exists() || place.read("made").is_empty() {
        assert!(std::time::Instant::now() < late, "the command does not begin");
        std::thread::yield_now();
    }
    join.signal("TERM");
    assert_eq!(join.finish().code, Some(143));
    let leader = String::from_utf8(place.read("made")).unwrap();
    let is_there = std::path::PathBuf::from(format!("/proc/{}/cwd", leader.trim()));
    while is_there.exists() {
        assert!(std::time::Instant::now() < late, "the command goes on");
        std::thread::yield_now();
    }
    assert!(!place.path("late").exists());
}
