//! Files of every kind, cut anywhere and with a bit flipped in every byte of their headers.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    table::{Row, check, row},
    world,
};
use crate::support::{
    place::Place,
    tensors::{single, to_file},
};

/// A file, commands that read it in place of `bad`, and whether no flipped bit passes.
struct Target {
    file: &'static str,
    commands: &'static [&'static str],
    has_digest: bool,
}

const TARGETS: &[Target] = &[
    Target {
        file: "a.cgm",
        commands: &["aggregate --key keys/public.json --out out b.cgm bad", "inspect bad"],
        has_digest: true,
    },
    Target {
        file: "sum.cgm",
        commands: &["decrypt --key keys/secret.json --in bad --out out", "inspect bad"],
        has_digest: true,
    },
    Target {
        file: "keys/public.json",
        commands: &["aggregate --key bad --job keys/job.json --out out a.cgm b.cgm c.cgm"],
        has_digest: false,
    },
    Target {
        file: "keys/secret.json",
        commands: &[
            "decrypt --key bad --job keys/job.json --in sum.cgm --out out",
            "encrypt --key bad --job keys/job.json --client 0 --in g --out out",
        ],
        has_digest: false,
    },
    Target {
        file: "public/clients/0.json",
        commands: &["encrypt --key bad --job public/job.json --in g --out out", "inspect bad"],
        has_digest: false,
    },
    Target {
        file: "keys/job.json",
        commands: &["aggregate --key keys/public.json --job bad --out out a.cgm b.cgm c.cgm"],
        has_digest: false,
    },
    Target {
        file: "keys/ranges.json",
        commands: &[
            "ranges --merge --out out bad",
            "job --key keys/public.json --out out --ranges bad",
        ],
        has_digest: false,
    },
    Target { file: "g", commands: &["ranges --out out bad", "inspect bad"], has_digest: false },
    Target {
        file: "keys/secret.json.ledger",
        commands: &["inspect key.json", "inspect bad"],
        has_digest: false,
    },
    Target {
        file: "keys/clients.allow",
        commands: &["job --key keys/public.json --out out --allow bad", "inspect bad"],
        has_digest: false,
    },
    Target { file: "keys/server.identity", commands: &["inspect bad"], has_digest: false },
    Target { file: "keys/server.node", commands: &["inspect bad"], has_digest: false },
];

/// The bytes of a file that are damaged one by one; of the others some.
const HEADER_BYTES: usize = 64;
/// The most bytes beyond the header that are damaged.
const SAMPLES: usize = 16;

fn places(length: usize) -> impl Iterator<Item = usize> {
    let step = (length / SAMPLES).max(1);
    (0..HEADER_BYTES.min(length)).chain((HEADER_BYTES..length).step_by(step))
}

/// Returns a command on damaged bytes, in turn one of the target's.
fn damaged(target: &Target, place: &Place, at: usize, bytes: Vec<u8>) -> Row {
    let words = target.commands[at % target.commands.len()];
    // A ledger is found by its key's name.
    let ledger = target.file.ends_with(".ledger");
    let name = if ledger && !words.contains("bad") { "key.json.ledger" } else { "bad" };
    let part = if target.has_digest { "bad: " } else { "" };
    let row = row(1, words, part).with(name, bytes).may_seal();
    let row = if ledger { row.with("key.json", place.read("keys/secret.json")) } else { row };
    let row = if ledger { row.with_mode("key.json", 0o600) } else { row };
    // Digests are of what a file says, and not all that is text says something.
    if target.has_digest { row } else { row.or_not() }
}

#[test]
fn files_cut_anywhere_are_refused() {
    let place = world();
    let rows = TARGETS.iter().flat_map(|target| {
        let whole = place.read(target.file);
        let cut = |at: usize| damaged(target, &place, at, whole[..at].to_vec());
        places(whole.len()).map(cut).collect::<Vec<_>>()
    });
    check(&place, rows.collect());
}

#[test]
fn flipped_bits_never_panic_digests_name_them() {
    let place = world();
    let rows = TARGETS.iter().flat_map(|target| {
        let whole = place.read(target.file);
        let flip = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            damaged(target, &place, at, bytes)
        };
        places(whole.len()).map(flip).collect::<Vec<_>>()
    });
    // The line names the cause too.
    let mut last = place.read("a.cgm");
    *last.last_mut().unwrap() ^= 1;
    let cause = "bad: damaged: the digest does not match";
    let last = row(1, TARGETS[0].commands[0], cause).with("bad", last);
    check(&place, rows.chain([last]).collect());
}

/// Returns the spool of a client amid a round, behind a relay that delays what would end it.
fn spool() -> (Place, Vec<u8>) {
    let place = Place::with_key("ckks-sum", 1);
    place.write("g", to_file(&single(&[0.5; 3000])));
    place.write("g0", place.read("g"));
    place.settle("g", 1.0, 9, "");
    let (_server, address) = place.serve("--clients 1");
    let relay = format!("relay --listen 127.0.0.1:0 --to {address} --delay 200");
    let mut relay = place.start(&relay);
    let address = relay.event("listening")["address"].as_str().unwrap().to_owned();
    let mut client = place.join(&address, 0, "--wait 60");
    let late = Instant::now() + Duration::from_secs(60);
    let mut before = 0;
    loop {
        let bytes = std::fs::read(place.path("mean0.spool")).unwrap_or_default();
        // Its header is a record, and each batch of chunks is one. While the last of them is being written, damage
        // to it is that of a record that was never whole.
        if bytes.len() > 4000 && bytes.len() == before {
            client.kill();
            return (place, bytes);
        }
        before = bytes.len();
        assert!(Instant::now() < late && client.is_running(), "no spool came");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_damaged_spool_is_refused_before_sending() {
    let (place, whole) = spool();
    let join = "join --key keys/secret.json --client 0 --server 127.0.0.1:9 --in g --wait 0.01 \
                --out out --spool bad";
    let flips = places(whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        row(1, join, "bad").with("bad", bytes)
    });
    // What was cut amid a record was never sent, and a client would go on.
    let cuts = places(whole.len())
        .map(|at| row(1, "inspect bad", "bad: ").with("bad", &whole[..at]).or_not());
    check(&place, flips.chain(cuts).collect());
}
