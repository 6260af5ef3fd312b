//! Files that are damaged, forged or too many: each is refused with one line that names the file and
//! the cause, and nothing is written.

use ciphergram_he::{Contribution, PublicKey, Sum};

use crate::support::place::Place;
use crate::support::tensors::{single, to_file};

const AGGREGATE: &str = "aggregate --key keys/public.json --out out.cgm";
const DECRYPT: &str = "decrypt --key keys/secret.json --in sum.cgm --out out";

/// Returns a key for three clients, a job with a range, three contributions and their sum.
fn place(scheme: &str) -> Place {
    let place = Place::with_key(scheme, 3);
    place.write("g", to_file(&single(&[0.5; 300])));
    place.settle("g", 1.0, 1, "");
    for (client, out) in ["a.cgm", "b.cgm", "c.cgm"].into_iter().enumerate() {
        let words = format!("encrypt --key keys/secret.json --client {client} --in g --out {out}");
        place.done(&words);
    }
    place.done("aggregate --key keys/public.json --out sum.cgm a.cgm b.cgm c.cgm");
    place
}

#[test]
fn more_files_than_clients_are_refused() {
    let place = place("ckks-sum");
    let many = [
        "keys/public.json: 4 contributors, but the key admits at most 3: make a key with --clients 4",
    ];
    place.fails_with(1, &format!("{AGGREGATE} a.cgm b.cgm c.cgm a.cgm"), &many);
}

/// Digests vouch for what was forged.
#[test]
fn residues_beyond_their_prime_are_refused() {
    let place = place("ckks-sum");
    let key = PublicKey::load(&place.path("keys/public.json")).unwrap();
    let why = "chunk 0: residue 0 is not below its prime";
    let mut contribution = Contribution::from_vec(place.read("a.cgm"), &key).unwrap();
    contribution.stream.to_mut()[..7].fill(0xff);
    place.write("forged.cgm", contribution.to_bytes(&key));
    place.fails_with(1, &format!("{AGGREGATE} b.cgm forged.cgm"), &["forged.cgm: ", why]);
    let mut sum = Sum::from_bytes(&place.read("sum.cgm"), &key).unwrap();
    sum.stream[..7].fill(0xff);
    place.write("sum.cgm", sum.to_bytes(&key));
    place.fails_with(1, DECRYPT, &["sum.cgm: ", why]);
}

/// Wherever a key file is damaged, the error names it and tells nothing of it.
#[test]
fn damaged_key_files_are_refused_never_quoted() {
    for (scheme, number) in
        [("ckks-sum", "seed"), ("paillier-2048", "q"), ("paillier-2048", "sum_key")]
    {
        let place = place(scheme);
        let text = String::from_utf8(place.read("keys/secret.json")).unwrap();
        let decrypt = "decrypt --key damaged.json --in sum.cgm --out out";
        for end in (0..text.len() - 1).step_by(text.len() / 30) {
            place.write("damaged.json", &text[..end]);
            place.fails_with(1, decrypt, &["damaged.json: "]);
        }
        let number = format!("\"{number}\": \"");
        let at = text.find(&number).unwrap() + number.len() + 5;
        for other in ["AAAA", "____", "!!!!", ""] {
            let damaged = format!("{}{other}{}", &text[..at], &text[at + 4..]);
            place.write("damaged.json", damaged);
            place.fails_with(1, decrypt, &["damaged.json: "]);
        }
    }
}

#[cfg(unix)]
#[test]
fn a_readable_secret_warns_and_still_works() {
    use std::os::unix::fs::PermissionsExt;
    let place = place("ckks-sum");
    let secret = place.path("keys/secret.json");
    assert_eq!(place.run(DECRYPT).done().stderr, "");
    for mode in [0o644, 0o640, 0o604] {
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(mode)).unwrap();
        let warning = format!(
            "warning: keys/secret.json is readable by others (mode {mode:04o}): run chmod 600 \
             keys/secret.json\n"
        );
        for words in [
            DECRYPT,
            "encrypt --key keys/secret.json --client 0 --in g --out d.cgm",
            "inspect keys/secret.json",
        ] {
            assert_eq!(place.run(words).done().stderr, warning, "{words}");
        }
    }
}

#[test]
fn sums_in_clear_need_a_secret_key() {
    let place = Place::with_key("paillier-2048", 3);
    let join = "join --key keys/clients/0.json --server 127.0.0.1:9 --in g --out out --sum";
    place.fails_with(2, join, &["--sum needs a secret key"]);
}
