//! Files to read that are missing, unreadable, or of another kind than the option takes.

use super::{
    KINDS,
    table::{Row, check, row},
    world,
};

/// Every option that names a file to read, and the [`KINDS`] that it takes.
const INPUTS: &[(&str, &[&str])] = &[
    (
        "encrypt --key {} --client 0 --in g --out out",
        &["keys/secret.json", "public/clients/0.json"],
    ),
    ("encrypt --key keys/secret.json --job {} --client 0 --in g --out out", &["keys/job.json"]),
    ("encrypt --key keys/secret.json --client 0 --in {} --out out", &["g"]),
    (
        "encrypt --key keys/secret.json --client 0 --in g --ranges {} --out out",
        &["keys/ranges.json"],
    ),
    ("aggregate --key {} --job keys/job.json --out out a.cgm b.cgm", &["keys/public.json"]),
    ("aggregate --key keys/public.json --job {} --out out a.cgm b.cgm", &["keys/job.json"]),
    ("aggregate --key keys/public.json --out out b.cgm {}", &["a.cgm"]),
    ("decrypt --key {} --job keys/job.json --in sum.cgm --out out", &["keys/secret.json"]),
    ("decrypt --key keys/secret.json --job {} --in sum.cgm --out out", &["keys/job.json"]),
    ("decrypt --key keys/secret.json --in {} --out out", &["sum.cgm"]),
    ("serve --key {} --job keys/job.json --listen 127.0.0.1:0", &["keys/public.json"]),
    ("serve --key keys/public.json --job {} --listen 127.0.0.1:0", &["keys/job.json"]),
    ("serve --key keys/public.json --listen 127.0.0.1:0 --identity {}", &["keys/server.identity"]),
    ("serve --key keys/public.json --listen 127.0.0.1:0 --allow {}", &["keys/clients.allow"]),
    (
        "join --key {} --client 0 --job keys/job.json --server 127.0.0.1:9 --in g --out out",
        &["keys/secret.json", "public/clients/0.json"],
    ),
    (
        "join --key keys/secret.json --client 0 --job {} --server 127.0.0.1:9 --in g --out out",
        &["keys/job.json"],
    ),
    ("join --key keys/secret.json --client 0 --server 127.0.0.1:9 --in {} --out out", &["g"]),
    (
        "join --key keys/secret.json --client 0 --server 127.0.0.1:9 --in g --out out --identity {}",
        &["keys/server.identity"],
    ),
    ("job --key {} --out out", &["keys/public.json", "keys/secret.json", "public/clients/0.json"]),
    ("job --key keys/public.json --out out --ranges {}", &["keys/ranges.json"]),
    ("job --key keys/public.json --out out --layout {}", &["g"]),
    ("job --key keys/public.json --out out --allow {}", &["keys/clients.allow"]),
    ("ranges --out out {}", &["g"]),
    ("ranges --merge --out out keys/ranges.json {}", &["keys/ranges.json"]),
    // It upgrades keys of earlier versions, of which there is none here.
    ("keygen --upgrade {} --out out", &[]),
    ("inspect {}", &KINDS),
];

/// Returns rows in which an option names what is no file of any kind.
fn nothing_to_read(words: &str) -> Vec<Row> {
    let named =
        |name: &str, why: &str| row(1, words, &format!("{name}: ")).and(why).put(name.as_bytes());
    let long = "n".repeat(300);
    vec![
        named("none", "No such file"),
        named("folder", ""),
        named("folder/", ""),
        named("empty", ""),
        named("text", ""),
        named("noise", ""),
        named("g/x", "Not a directory"),
        named("loop", "symbolic link"),
        named("astray", "No such file"),
        named(&long, "File name too long"),
        named("/dev/null", ""),
        named("locked", "Permission denied").with_mode("locked", 0),
        row(1, words, "No such file").put(b"\xff\xfe"),
        row(2, words, "value").put(b""),
    ]
}

#[test]
fn what_cannot_be_read_is_named() {
    check(&world(), INPUTS.iter().flat_map(|(words, _)| nothing_to_read(words)).collect());
}

#[test]
fn every_option_refuses_files_of_other_kinds() {
    let rows = INPUTS.iter().flat_map(|(words, fit)| {
        let others = KINDS.iter().filter(|kind| !fit.contains(kind));
        others.map(|kind| row(1, words, &format!("{kind}: ")).put(kind.as_bytes()))
    });
    check(&world(), rows.collect());
}

/// Keys that are of the right kind, but not for this.
#[test]
fn files_of_two_schemes_do_not_mix() {
    let place = world();
    place.keygen("ckks-sum", 3, "other");
    place.done("keygen --scheme ckks-sum --clients 3 --bits 12 --out coarse");
    place.done("keygen --scheme ckks-sum --clients 4 --out larger");
    let rows = ["other", "coarse", "larger", "public"].into_iter().flat_map(|keys| {
        let job = format!("{keys}/job.json: the job is of key ");
        let of = |words: &str, part: &str| row(1, words, part).put(keys.as_bytes());
        [
            of("aggregate --key {}/public.json --out out a.cgm", "a.cgm: "),
            of("decrypt --key {}/secret.json --in sum.cgm --out out", "sum.cgm: "),
            of("aggregate --key keys/public.json --job {}/job.json --out out a.cgm", &job),
            of(
                "encrypt --key keys/secret.json --job {}/job.json --client 0 --in g --out out",
                &job,
            ),
            of("decrypt --key keys/secret.json --job {}/job.json --in sum.cgm --out out", &job),
            of("serve --key keys/public.json --job {}/job.json --listen 127.0.0.1:0", &job),
        ]
    });
    check(&place, rows.collect());
}
