//! Bad input in one table: a command, its exit code, and what its one line holds. No row panics, changes a file or
//! leaves one behind. Where tests are root, rows run as an ordinary user.

mod damage;
mod inputs;
mod options;
mod outputs;
mod system;
mod table;
mod updates;

use std::os::unix::fs::symlink;

use crate::support::place::Place;
use crate::support::tensors::{single, to_file};

/// One file of each kind that there is, under one key for three clients.
const KINDS: [&str; 12] = [
    "keys/public.json",
    "keys/secret.json",
    "public/clients/0.json",
    "keys/job.json",
    "keys/ranges.json",
    "keys/server.identity",
    "keys/server.node",
    "keys/clients.allow",
    "keys/secret.json.ledger",
    "g",
    "a.cgm",
    "sum.cgm",
];

/// Returns a place with a file of each kind, and with what is at no path that can be meant.
fn world() -> Place {
    let place = Place::with_key("ckks-sum", 3);
    place.keygen("paillier-2048", 3, "public");
    place.write("g", to_file(&single(&[0.5; 300])));
    place.settle("g", 1.0, 9, "");
    for (client, out) in ["a.cgm", "b.cgm", "c.cgm"].into_iter().enumerate() {
        let words = format!("encrypt --key keys/secret.json --client {client} --in g --out {out}");
        place.done(&words);
    }
    place.done("aggregate --key keys/public.json --out sum.cgm a.cgm b.cgm c.cgm");
    std::fs::create_dir(place.path("folder")).unwrap();
    place.write("folder/kept", "");
    place.write("empty", "");
    place.write("text", "hello, world\n");
    place.write("noise", [0xff; 100]);
    place.write("locked", "hello, world\n");
    symlink("loop", place.path("loop")).unwrap();
    symlink("nowhere/file", place.path("astray")).unwrap();
    symlink("keys/secret.json", place.path("link")).unwrap();
    for name in KINDS {
        assert!(place.path(name).is_file(), "{name}");
    }
    place
}
