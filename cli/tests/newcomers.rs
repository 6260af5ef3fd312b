//! What someone who uses the command line for the first time types, and is told.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests, where a panic is the report")]

#[path = "support/place.rs"]
mod place;
#[path = "support/tensors.rs"]
mod tensors;

use place::Place;
use tensors::{single, to_file};

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
    place.fails_with(1, &format!("relay --to localhost:9 --listen localhost:{port}"), &[&taken]);
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
fn a_folder_with_a_slash_behind_is_named_without_a_double_one() {
    let place = Place::with_key("ckks-sum", 3);
    let rotated = place.done("keygen --replaces keys/ --out new/");
    assert!(rotated.contains("--key new/public.json") && !rotated.contains("//"), "{rotated}");
}
