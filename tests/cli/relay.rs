//! Rounds through `cargo xtask relay`, and what was captured of them.

use serde_json::Value;

use crate::support::place::{Place, Process};
use crate::support::tensors::{Brought, from_file, single, to_file, uniform};

/// How long a relay runs: longer than a round through it.
const SECONDS: u32 = 15;

fn relay(place: &Place, server: &str, words: &str) -> (Process, String) {
    let relay = format!("relay --listen 127.0.0.1:0 --to {server} --seconds {SECONDS}");
    let mut relay = place.start(&format!("{relay} {words}"));
    let address = relay.event("listening")["address"].as_str().unwrap().to_owned();
    (relay, address)
}

/// Returns a round of three with `values` values each, through a relay; every mean is the right
/// one. What the relay says it did, and the datagrams that the server did not understand.
fn round(place: &Place, values: usize, words: &str) -> (Value, u64) {
    let tensors = |seed| {
        let mut draw = uniform(seed);
        single(&(0..values).map(|_| draw()).collect::<Vec<_>>())
    };
    let brought = Brought::new((1..4).map(tensors).collect(), &[120, 7, 64], |_| 1.0);
    place.write("g0", to_file(&brought.clients[0]));
    place.settle("g0", 1.0, 120, "");
    let (mut server, address) = place.serve("--clients 3 --capture server.pcap");
    let (mut relay, address) = relay(place, &address, words);
    let mut clients = vec![];
    for (i, (client, weight)) in brought.clients.iter().zip(&brought.weights).enumerate() {
        place.write(&format!("g{i}"), to_file(client));
        let words = format!("--weight {weight} --capture c{i}.pcap");
        clients.push(place.join(&address, i, &words));
    }
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    let means: Vec<_> = (0..3).map(|i| place.read(&format!("mean{i}"))).collect();
    assert!(means.iter().all(|mean| *mean == means[0]), "clients have different means");
    brought.check_mean(&from_file(&means[0]));
    let closed = server.event("closed");
    for client in 0..3 {
        assert_eq!(closed["contributed"][client]["chunks"], closed["chunks"], "{closed}");
    }
    let malformed = server.event("done")["malformed_datagrams"].as_u64().unwrap();
    server.finish().done();
    let done = relay.event("done");
    relay.finish().done();
    (done, malformed)
}

/// Lengths of the datagrams in a capture, after its headers of IPv4 and UDP.
fn datagrams(capture: &[u8]) -> Vec<usize> {
    let mut rest = &capture[24..];
    let mut lengths = vec![];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        assert_eq!((rest[16], rest[25]), (0x45, 17), "IPv4 and UDP");
        lengths.push(length - 28);
        rest = &rest[16 + length..];
    }
    lengths
}

#[test]
fn rounds_over_a_bad_network_are_exact() {
    let place = Place::with_key("ckks-sum", 3);
    let words =
        "--loss 5 --trim 5 --duplicate 5 --corrupt 1 --mark 5 --delay 1 --jitter 2 --seed 7";
    let (done, malformed) = round(&place, 100_000, words);
    for way in ["datagrams_to_server", "datagrams_to_clients"] {
        for fault in ["lost", "trimmed", "duplicated", "corrupted", "marked", "reordered"] {
            assert!(done[way][fault].as_u64().unwrap() > 0, "{way} {fault}: {done}");
        }
        assert_eq!(done[way]["dropped_full"], 0, "{done}");
    }
    assert!(malformed > 0, "what was corrupted was noticed");
    let trimmed = datagrams(&place.read("server.pcap")).iter().filter(|&&n| n == 64).count();
    let sent = done["datagrams_to_server"]["trimmed"].as_u64().unwrap();
    assert!(
        trimmed as u64 >= sent / 2,
        "{trimmed} trimmed datagrams are in the capture, of {sent}"
    );
}

#[test]
fn rounds_over_a_trimming_link_are_exact() {
    let place = Place::with_key("ckks-sum", 3);
    let (done, _) = round(&place, 40_000, "--rate 20 --queue 16 --trim-on-full");
    let up = &done["datagrams_to_server"];
    // Which way is fullest goes by how the processes get on.
    let full = [up, &done["datagrams_to_clients"]].map(|way| way["trimmed_full"].as_u64().unwrap());
    assert!(full.iter().sum::<u64>() > 0, "{done}");
    assert_eq!((&up["lost"], &up["trimmed"], &up["corrupted"]), (&0.into(), &0.into(), &0.into()));
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let place = Place::new();
    let relay = "relay --listen 127.0.0.1:0 --to 127.0.0.1:9 --seconds 1";
    for (words, why) in [
        ("--loss 101", "a percentage from 0 to 100"),
        ("--corrupt nan", "a percentage from 0 to 100"),
        ("--delay 60001", "a number of milliseconds from 0 to 60000"),
        ("--rate 0", "a number of megabits a second from 0.001 to 1000000"),
        ("--rate 0.0009", "a number of megabits a second from 0.001 to 1000000"),
        ("--rate 1000001", "a number of megabits a second from 0.001 to 1000000"),
        ("--queue 0 --rate 1", "0 is not in 1..=1000000"),
        ("--queue 5", "--rate"),
        ("--trim-on-full", "--rate"),
        ("--jitter=-1", "--jitter"),
        ("--duplicate=", "--duplicate"),
        ("--trim=-0.5", "--trim"),
        ("--mark 1x", "--mark"),
        ("--seed NaN", "--seed"),
        ("--seconds 0", "--seconds"),
        ("--to nowhere", "--to"),
    ] {
        let ran = place.run(&format!("{relay} {words}"));
        assert!(ran.code == Some(2) && ran.stderr.contains(why), "{words}: {ran:?}");
    }
    let holder = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let named = format!("localhost:{}", taken.port());
    let in_use = format!("{taken}: address in use");
    for (listen, why) in [
        (&*taken.to_string(), &*in_use),
        (&named, &in_use),
        ("192.0.2.1:9", "192.0.2.1:9: address not available"),
    ] {
        place.fails_with(1, &format!("relay --listen {listen} --to 127.0.0.1:9"), &[why]);
    }
    let serve = "serve --key keys/public.json --clients 1 --listen 127.0.0.1:0 --capture none/x";
    place.keygen("ckks-sum", 1, "keys");
    place.fails_with(1, serve, &["none/x: No such file"]);
}
