//! Keys, contributions and sums that are damaged, forged or of something else: each is refused with
//! one line that names the file and the cause, and nothing is written.

use ciphergram_he::{Contribution, PublicKey, Sum};

use crate::support::place::Place;
use crate::support::tensors::{single, to_file};

const AGGREGATE: &str = "aggregate --key keys/public.json --out out.cgm";
const DECRYPT: &str = "decrypt --key keys/secret.json --in sum.cgm --out out";

fn encrypt(place: &Place, out: &str, words: &str) {
    place.done(&format!("encrypt --key keys/secret.json --in g --out {out} {words}"));
}

/// Returns a key for three clients, a job with a range, three contributions and their sum.
fn place(scheme: &str) -> Place {
    let place = Place::with_key(scheme, 3);
    place.write("g", to_file(&single(&[0.5; 300])));
    place.settle("g", 1.0, 1, "");
    let clients = (0..).zip(["a.cgm", "b.cgm", "c.cgm"]);
    clients.for_each(|(i, out)| encrypt(&place, out, &format!("--client {i}")));
    place.done("aggregate --key keys/public.json --out sum.cgm a.cgm b.cgm c.cgm");
    place
}

fn public(place: &Place) -> PublicKey {
    PublicKey::load(&place.path("keys/public.json")).unwrap()
}

/// Rewrites `a.cgm` as `forged.cgm` and `sum.cgm` in place, digests and all, with `change` made to
/// their ciphertexts; both must then be refused for `why`.
fn refuses_ciphertexts(place: &Place, change: impl Fn(&mut [u8]), why: &str) {
    let key = public(place);
    let bytes = place.read("a.cgm");
    let mut contribution = Contribution::from_bytes(&bytes, &key).unwrap();
    change(contribution.stream.to_mut());
    place.write("forged.cgm", contribution.to_bytes(&key));
    place.fails_with(1, &format!("{AGGREGATE} b.cgm forged.cgm"), &["forged.cgm: ", why]);
    let whole = place.read("sum.cgm");
    let mut sum = Sum::from_bytes(&whole, &key).unwrap();
    change(&mut sum.stream);
    place.write("sum.cgm", sum.to_bytes(&key));
    place.fails_with(1, DECRYPT, &["sum.cgm: ", why]);
    place.write("sum.cgm", whole);
    // No other sum of the round would be opened here.
    place.forget("keys/secret.json");
}

#[test]
fn truncated_files_are_refused() {
    let place = place("ckks-sum");
    let (contribution, sum) = (place.read("a.cgm"), place.read("sum.cgm"));
    for end in [0, 1, 8, 9, 20, 47, 48, 100, contribution.len() - 1] {
        place.write("cut.cgm", &contribution[..end]);
        let why = if end == 0 { "not a Ciphergram file" } else { "truncated" };
        place.fails_with(1, &format!("{AGGREGATE} b.cgm cut.cgm"), &["cut.cgm: ", why]);
        place.write("sum.cgm", &sum[..end]);
        place.fails_with(1, DECRYPT, &["sum.cgm: ", why]);
    }
    place.write("long.cgm", [&contribution[..], &[0]].concat());
    place.fails_with(1, &format!("{AGGREGATE} long.cgm"), &["long.cgm: "]);
    place.fails_with(1, "inspect long.cgm", &["long.cgm: "]);
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let place = place("ckks-sum");
    let whole = place.read("a.cgm");
    let spread = (0..whole.len()).step_by(whole.len() / 40);
    // Every byte of the header, some of the body, and the digest's last.
    for at in (0..48).chain(spread).chain([whole.len() - 1]) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        place.write("flipped.cgm", flipped);
        let error = place.fails(1, &format!("{AGGREGATE} b.cgm flipped.cgm"));
        let cause = match at {
            0..8 => "not a Ciphergram file",
            // The version before is read.
            8 => "damaged: the digest does not match",
            9 => "made by a newer ciphergram: version",
            // A wrong length may point anywhere.
            40..48 => "flipped.cgm: ",
            _ => "damaged: the digest does not match",
        };
        assert!(error.contains("flipped.cgm: ") && error.contains(cause), "byte {at}: {error}");
    }
}

#[test]
fn files_of_another_kind_key_or_scheme_are_refused() {
    let place = place("ckks-sum");
    place.keygen("ckks-sum", 3, "other");
    place.keygen("ckks-sum", 4, "larger");
    place.run("keygen --scheme paillier-2048 --clients 3 --out paillier").done();
    place.done("keygen --clients 3 --bits 12 --out coarse");
    let cases = [
        ("other", "it was made under key"),
        ("larger", "its parameter set is 3 clients at 16 bits, the key's 4 clients at 16 bits"),
        ("coarse", "its parameter set is 3 clients at 16 bits, the key's 3 clients at 12 bits"),
        ("paillier", "it is of scheme ckks-sum, the key of paillier-2048"),
    ];
    for (keys, why) in cases {
        let sum = format!("aggregate --key {keys}/public.json --out out.cgm a.cgm");
        place.fails_with(1, &sum, &["a.cgm: ", why]);
        let decrypt = format!("decrypt --key {keys}/secret.json --in sum.cgm --out out");
        place.fails_with(1, &decrypt, &["sum.cgm: ", why]);
    }
    let mut future = place.read("a.cgm");
    future[8] = 6;
    place.write("future.cgm", future);
    let why = "future.cgm: made by a newer ciphergram: version 6; this reads up to 5";
    place.fails_with(1, &format!("{AGGREGATE} future.cgm"), &[why]);
    place.fails_with(1, "inspect future.cgm", &[why]);
    let why = "sum.cgm: a sum where a contribution belongs";
    place.fails_with(1, &format!("{AGGREGATE} a.cgm sum.cgm"), &[why]);
    let why = "a.cgm: a contribution where a sum belongs";
    place.fails_with(1, &DECRYPT.replace("sum.cgm", "a.cgm"), &[why]);
    place.fails_with(1, &format!("{AGGREGATE} g"), &["g: not a Ciphergram file"]);
    place.fails_with(1, &format!("{AGGREGATE} a.cgm none.cgm"), &["none.cgm: No such file"]);
}

#[test]
fn contributions_that_cannot_be_summed_are_refused() {
    let place = place("ckks-sum");
    // A job that leaves open what contributions must have in common.
    place.job("");
    let ranges = |range: u32, max_weight: u32| {
        let policy = format!("--policy fixed:{range} --weight {max_weight}");
        place.done(&format!("ranges {policy} --out ranges.json g"));
    };
    // As someone who knows nothing of what was sealed: all of one round, whoever it is.
    let seal = |out: &str, client: u32| {
        encrypt(&place, out, &format!("--client {client} --round 0 --ranges ranges.json"));
        place.forget("keys/secret.json");
    };
    ranges(1, 1);
    place.forget("keys/secret.json");
    (0..).zip(["a.cgm", "b.cgm", "c.cgm"]).for_each(|(client, out)| seal(out, client));
    let refused = |why: &str| {
        place.fails_with(1, &format!("{AGGREGATE} a.cgm odd.cgm"), &["odd.cgm: ", why]);
    };
    ranges(2, 1);
    seal("odd.cgm", 1);
    refused("the clipping ranges differ: tensor \"t\" has range 2 here and 1 there");
    ranges(1, 2);
    seal("odd.cgm", 1);
    refused("the largest weight is 2 here and 1 there");
    place.write("g", to_file(&single(&[0.5; 301])));
    ranges(1, 1);
    seal("odd.cgm", 1);
    refused("the tensors differ: tensor \"t\" is F32 [301] in it and F32 [300] was agreed");
    let mut renamed = single(&[0.5; 300]);
    let tensor = renamed.remove("t").unwrap();
    renamed.insert("u".into(), tensor);
    place.write("g", to_file(&renamed));
    ranges(1, 1);
    seal("odd.cgm", 1);
    refused("the tensors differ: it lacks tensor \"t\", which was agreed");
    place.write("odd.cgm", place.read("a.cgm"));
    refused("the same contribution was given twice");
    let twice = ["a.cgm: the same contribution was given twice"];
    place.fails_with(1, &format!("{AGGREGATE} a.cgm b.cgm a.cgm"), &twice);
    let many = ["keys/public.json: 4 contributors, but the key admits at most 3"];
    place.fails_with(1, &format!("{AGGREGATE} a.cgm b.cgm c.cgm a.cgm"), &many);
}

#[test]
fn residues_beyond_their_prime_are_refused() {
    let place = place("ckks-sum");
    let all_ones = |stream: &mut [u8]| stream[..7].fill(0xff);
    refuses_ciphertexts(&place, all_ones, "chunk 0: residue 0 is not below its prime");
}

#[test]
fn numbers_that_are_no_paillier_ciphertext_are_refused() {
    let place = place("paillier-2048");
    let key = public(&place);
    let n: Vec<u64> = key.paillier().unwrap().n().words().to_vec();
    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let chunk = "chunk 1: ciphertext 0";
    let forge = |number: Vec<u8>, why: &str| {
        let size = key.parameters().geometry().chunk_bytes();
        assert_eq!(key.parameters().geometry().unit_bytes, 512);
        let change = |stream: &mut [u8]| {
            stream[size..size + 512].fill(0);
            stream[size..size + number.len()].copy_from_slice(&number);
        };
        refuses_ciphertexts(&place, change, &format!("{chunk} {why}"));
    };
    forge(vec![], "is 0");
    forge(vec![0xff; 512], "is not below n²");
    forge(bytes(&square(&n)), "is not below n²");
    forge(bytes(&n), "is not coprime to n");
    let mut twice: Vec<u64> = n.iter().map(|w| w << 1).collect();
    (1..n.len()).for_each(|i| twice[i] |= n[i - 1] >> 63);
    twice.push(n[n.len() - 1] >> 63);
    forge(bytes(&twice), "is not coprime to n");
}

/// Returns the words of the square, the lowest first.
fn square(n: &[u64]) -> Vec<u64> {
    let mut out = vec![0u64; 2 * n.len()];
    for (i, &a) in n.iter().enumerate() {
        let mut carry = 0;
        for (j, &b) in n.iter().enumerate() {
            let t = u128::from(a) * u128::from(b) + u128::from(out[i + j]) + carry;
            out[i + j] = t as u64;
            carry = t >> 64;
        }
        out[i + n.len()] = carry as u64;
    }
    out
}

#[test]
fn sums_that_lie_about_their_contributors_are_refused() {
    for scheme in ["ckks-sum", "paillier-2048"] {
        let place = place(scheme);
        let key = public(&place);
        let two = format!("{AGGREGATE} a.cgm b.cgm").replace("out.cgm", "two.cgm");
        place.run(&two).done();
        let mut sum = Sum::from_bytes(&place.read("sum.cgm"), &key).unwrap();
        let less = Sum::from_bytes(&place.read("two.cgm"), &key).unwrap();
        sum.stream = less.stream;
        place.write("sum.cgm", sum.to_bytes(&key));
        let why = "sum.cgm: the sum does not open: it is not what its 3 contributors sealed";
        place.fails_with(1, DECRYPT, &[why]);
    }
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    let place = place("ckks-sum");
    let serve = "serve --key keys/secret.json --clients 3 --listen 127.0.0.1:0";
    for words in [serve, "aggregate --key keys/secret.json --out out.cgm a.cgm"] {
        let why = "keys/secret.json: this is a secret key; an aggregator must hold public material";
        place.fails_with(1, words, &[why]);
    }
    let why = "keys/public.json: this is a public key; this needs the secret key";
    place.fails_with(1, "decrypt --key keys/public.json --in sum.cgm --out out", &[why]);
    let encrypt = |key: &str| format!("encrypt --key {key} --client 0 --in g --out out.cgm");
    let why = "this is a public key; it sums; clients encrypt with a key of their own";
    let join = "join --key keys/public.json --server 127.0.0.1:9 --client 0 --in g --out out";
    for words in [join, &encrypt("keys/public.json")] {
        place.fails_with(1, words, &["keys/public.json: ", why]);
    }
    place.fails_with(1, &encrypt("none.json"), &["none.json: No such file"]);
    for garbage in ["", "{", "{}", "[1]", "\u{1}\u{2}", "{\"kty\": \"DAJ\"}"] {
        place.write("garbage.json", garbage);
        let why = ["garbage.json: not a valid key file"];
        place.fails_with(1, &encrypt("garbage.json"), &why);
        place.fails_with(1, "aggregate --key garbage.json --out out.cgm a.cgm", &why);
    }
    place.write("binary.json", [0xff, 0xfe]);
    place.fails_with(1, &encrypt("binary.json"), &["binary.json: "]);
}

/// Wherever a key file is damaged, the error names it and tells nothing of it.
#[test]
fn damaged_key_files_are_refused_without_a_word_of_them() {
    for (scheme, number) in [
        ("ckks-sum", "seed"),
        ("paillier-2048", "q"),
        ("paillier-2048", "sum_key"),
        ("ckks-sum-public", "sum_key"),
    ] {
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
fn a_readable_secret_is_warned_of_and_still_works() {
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

/// Nothing of the one kind is ever taken for the other, and what takes the secret says so.
#[test]
fn the_two_kinds_of_ckks_sum_do_not_mix() {
    let place = place("ckks-sum");
    place.keygen("ckks-sum-public", 3, "public");
    let encrypt = "encrypt --in g --client 0";
    place.done(&format!("{encrypt} --key keys/secret.json --out one.cgm"));
    place.done(&format!("{encrypt} --key public/clients/0.json --out two.cgm"));
    let one = "one.cgm: it is of scheme ckks-sum, the key of ckks-sum-public";
    let two = "two.cgm: it is of scheme ckks-sum-public, the key of ckks-sum";
    let aggregate = |key: &str| format!("aggregate --key {key} --out out.cgm one.cgm two.cgm");
    place.fails_with(1, &aggregate("keys/public.json"), &[two]);
    place.fails_with(1, &aggregate("public/public.json"), &[one]);
    place.done("aggregate --key keys/public.json --out one-sum.cgm one.cgm");
    place.done("aggregate --key public/public.json --out two-sum.cgm two.cgm");
    let decrypt = |key: &str, sum: &str| format!("decrypt --key {key} --in {sum} --out out");
    let why = "one-sum.cgm: it is of scheme ckks-sum, the key of ckks-sum-public";
    place.fails_with(1, &decrypt("public/secret.json", "one-sum.cgm"), &[why]);
    let why = "two-sum.cgm: it is of scheme ckks-sum-public, the key of ckks-sum";
    place.fails_with(1, &decrypt("keys/secret.json", "two-sum.cgm"), &[why]);
    let serve = "serve --key public/secret.json --clients 3 --listen 127.0.0.1:0";
    place.fails_with(1, serve, &["this is a secret key; an aggregator must hold public material"]);
    let join = "join --key public/clients/0.json --server 127.0.0.1:9 --in g --out out";
    place.fails_with(2, &format!("{join} --sum"), &["--sum needs a secret key"]);
    // A key file that was changed.
    let text = String::from_utf8(place.read("public/clients/0.json")).unwrap();
    let at = text.find("\"b\": \"").unwrap() + 20;
    let digit = if &text[at..=at] == "A" { "B" } else { "A" };
    place.write("changed.json", [&text[..at], digit, &text[at + 1..]].concat());
    let words = format!("{encrypt} --key changed.json --out out.cgm");
    place.fails_with(1, &words, &["changed.json: not a valid key file: "]);
}
