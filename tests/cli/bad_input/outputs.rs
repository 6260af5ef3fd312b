//! Files to write that cannot be, or that stand already and are something else.

use super::{
    KINDS,
    table::{Row, check, row},
    world,
};
use crate::support::tensors::{single, to_file};

/// Every option that names a file to write, and the [`KINDS`] that it may replace.
const OUTPUTS: &[(&str, &[&str])] = &[
    ("encrypt --key keys/secret.json --client 0 --in g --out {}", &["a.cgm"]),
    ("aggregate --key keys/public.json --out {} a.cgm b.cgm", &["sum.cgm"]),
    ("decrypt --key keys/secret.json --in sum.cgm --out {}", &["g"]),
    ("ranges --out {} g", &["keys/ranges.json"]),
    ("ranges --merge --out {} keys/ranges.json", &[]),
    ("job --key keys/public.json --out {}", &[]),
    ("identity --out {}", &[]),
    (JOIN, &["g"]),
    ("serve --key keys/public.json --listen 127.0.0.1:0 --capture {}", &[]),
];

/// A client of nobody: what is wrong with its output it says before it looks for an aggregator.
const JOIN: &str = "join --key keys/secret.json --client 0 --server 127.0.0.1:9 --in g --out {}";

/// Returns rows in which an option names what cannot be written.
fn nothing_to_write(words: &str) -> Vec<Row> {
    let named = |name: &str, why: &str| row(1, words, name).and(why).put(name.as_bytes());
    let long = "n".repeat(300);
    vec![
        named("folder", ""),
        named("folder/", ""),
        named("nowhere/out", "No such file"),
        named("g/x", "Not a directory"),
        named("loop", ""),
        named("astray", ""),
        named(&long, "File name too long"),
        named("folder/out", "Permission denied").with_mode("folder", 0o555),
        named("link", ""),
        row(2, words, "value").put(b""),
    ]
}

#[test]
fn what_cannot_be_written_is_named() {
    check(&world(), OUTPUTS.iter().flat_map(|(words, _)| nothing_to_write(words)).collect());
}

#[test]
fn nothing_of_another_kind_is_overwritten() {
    let rows = OUTPUTS.iter().flat_map(|(words, may_replace)| {
        let others = KINDS.iter().chain(&["text", "noise"]);
        let others = others.filter(|kind| !may_replace.contains(kind));
        others.map(|kind| row(1, words, kind).put(kind.as_bytes()))
    });
    check(&world(), rows.collect());
}

/// Outputs that are inputs as well, by whatever name.
#[test]
fn no_input_is_overwritten() {
    let place = world();
    std::fs::hard_link(place.path("g"), place.path("same-g")).unwrap();
    std::os::unix::fs::symlink("g", place.path("link-g")).unwrap();
    let decrypt = "decrypt --key keys/secret.json --in sum.cgm --out";
    let encrypt = "encrypt --key keys/secret.json --client 0 --in g --out";
    let outs = |words: &str, outs: &[&str]| {
        outs.iter().map(|out| row(1, &format!("{words} {out}"), out)).collect::<Vec<_>>()
    };
    let mut rows = outs(encrypt, &["g", "./g", "same-g", "link-g"]);
    rows.extend(outs(decrypt, &["sum.cgm", "./sum.cgm"]));
    rows.extend(outs("aggregate --key keys/public.json a.cgm b.cgm --out", &["a.cgm", "b.cgm"]));
    rows.extend(outs("ranges --merge keys/ranges.json --out", &["keys/ranges.json"]));
    rows.extend(outs(JOIN.trim_end_matches(" {}"), &["g", "./g", "link-g"]));
    check(&place, rows);
}

/// A device that is full, and a limit on the size of files, which is found while they are written.
#[test]
fn what_does_not_fit_leaves_nothing() {
    let place = world();
    place.write("large", to_file(&single(&[0.25; 100_000])));
    place.done("ranges --policy fixed:1 --weight 9 --out large.json large");
    place.done("keygen --scheme ckks-sum --clients 3 --out wide");
    let encrypt = "encrypt --key wide/secret.json --ranges large.json --in large";
    for client in 0..3 {
        place.done(&format!("{encrypt} --client {client} --out {client}.cgm"));
    }
    place.done("aggregate --key wide/public.json --out large.cgm 0.cgm 1.cgm 2.cgm");
    let commands = [
        format!("{encrypt} --client 0 --out {{}}"),
        "aggregate --key wide/public.json --out {} 0.cgm 1.cgm 2.cgm".to_owned(),
        "decrypt --key wide/secret.json --in large.cgm --out {}".to_owned(),
    ];
    // As a shell's limit is said: in units of 512 bytes. The signal that comes with it is ignored.
    let limit = "trap '' XFSZ; ulimit -f 100";
    let rows = commands.iter().flat_map(|words| {
        let full = row(1, words, "/dev/full: No space left").put(b"/dev/full");
        let limited = row(1, words, "out: File too large").put(b"out").after(limit);
        [full.may_seal(), limited.may_seal()]
    });
    let small = [
        row(1, "ranges --out /dev/full g", "/dev/full: No space left"),
        row(1, "ranges --out out g", "out: File too large").after("trap '' XFSZ; ulimit -f 0"),
        row(1, "keygen --out new", "File too large").after("trap '' XFSZ; ulimit -f 0"),
        row(1, "job --key keys/public.json --out new", "File too large")
            .after("trap '' XFSZ; ulimit -f 0"),
        row(1, "identity --out new", "File too large").after("trap '' XFSZ; ulimit -f 0"),
    ];
    check(&place, rows.chain(small).collect());
}

/// Folders of keys: nothing stands in them afterwards that did not before.
#[test]
fn a_key_is_made_whole_or_not() {
    let rows = ["keys/public.json", "keys/secret.json", "keys/job.json", "keys/server.identity"]
        .map(|name| {
            let name = format!("mine/{}", name.trim_start_matches("keys/"));
            row(1, "keygen --scheme ckks-sum --clients 2 --out mine", &name)
                .and("not overwritten")
                .with(&name, "mine")
        })
        .into_iter()
        .chain([
            row(1, "keygen --out keys", "keys/public.json").and("not overwritten"),
            row(1, "keygen --out g", "g: "),
            row(1, "keygen --out g/x", "g/x: "),
            row(1, "keygen --out loop", "loop: "),
            row(1, "keygen --out folder", "folder")
                .and("ermission denied")
                .with_mode("folder", 0o555),
            row(1, "keygen --out folder/new", "folder/new: Permission denied")
                .with_mode("folder", 0o555),
        ]);
    let place = world();
    std::fs::create_dir(place.path("mine")).unwrap();
    check(&place, rows.collect());
}
