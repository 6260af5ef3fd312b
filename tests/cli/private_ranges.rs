//! Ranges that clients agree on without showing theirs: rounds of real processes, and files.

use std::fs;

use crate::support::place::{Place, binary};
use crate::support::tensors::{from_file, single, to_file, uniform};

const CLIENTS: usize = 8;
/// The magnitude of an honest client's values.
const USUAL: f64 = 0.01;
/// The largest range of the job, which a malicious client claims.
const LARGEST: f64 = 10.0;

fn place(rank: &str) -> Place {
    let place = Place::new();
    place.done(&format!("keygen --scheme ckks-sum --clients {CLIENTS} --ranges-key --out keys"));
    fs::remove_file(place.path("keys/job.json")).unwrap();
    let words = format!("--max-range {LARGEST} --ranges agree{rank} --levels 16");
    place.done(&format!("job --key keys/secret.json {words} --out keys/job.json"));
    place
}

/// Brings each client's values, and returns them. The last client claims the largest range there is.
fn bring(place: &Place) -> Vec<Vec<f64>> {
    let mut draw = uniform(7);
    let mut all: Vec<Vec<f64>> =
        (0..CLIENTS).map(|_| (0..40).map(|_| USUAL * draw()).collect()).collect();
    all[CLIENTS - 1][0] = LARGEST;
    for (i, values) in all.iter().enumerate() {
        place.write(&format!("g{i}"), to_file(&single(values)));
    }
    all
}

/// Returns the largest error of a mean of values, the first aside, of clients that are in it.
fn largest_error(place: &Place, mean: &str, all: &[Vec<f64>]) -> f64 {
    let found = &from_file(&place.read(mean))["t"].values;
    let mean = |i: usize| all.iter().map(|values| values[i]).sum::<f64>() / all.len() as f64;
    (1..found.len()).map(|i| (found[i] - mean(i)).abs()).fold(0.0, f64::max)
}

fn round(place: &Place) {
    let (mut server, address) = place.serve("--rounds 1");
    let clients: Vec<_> = (0..CLIENTS).map(|i| place.join(&address, i, "--json")).collect();
    assert_eq!(server.event("preparing")["clients"], CLIENTS);
    server.event("opened");
    for client in clients {
        client.finish().done();
    }
    server.finish().done();
}

#[test]
fn one_client_alone_cannot_set_ranges() {
    let place = self::place("");
    let all = bring(&place);
    round(&place);
    // A range of 2^-6, and so a step of 2^-6 ÷ 32767; one that the malicious one set would be 10 ÷ 32767.
    assert!(largest_error(&place, "mean0", &all) < 4.8e-7);
    let place = self::place(":1");
    let all = bring(&place);
    round(&place);
    assert!(largest_error(&place, "mean0", &all) > 5e-6);
}

/// Ranges hold for three rounds, whatever values are in between: no client says in clear that it clips many.
#[test]
fn private_ranges_hold_for_agreed_rounds() {
    let place = self::place(":2 --agree-every 3");
    let (mut server, address) = place.serve("--rounds 6");
    let mut ranges = vec![];
    for (round, size) in [1.0, 4.0, 4.0, 0.5, 4.0, 0.5].into_iter().enumerate() {
        let mut clients = vec![];
        for i in 0..CLIENTS {
            let values: Vec<_> = (1..=40).map(|v| size * f64::from(v) / 1000.0).collect();
            place.write(&format!("g{i}"), to_file(&single(&values)));
            clients.push(place.join(&address, i, "--json"));
        }
        let agrees = [0, 3].contains(&round);
        let begun = server.first_event(&["preparing", "opened"]);
        assert_eq!(begun["event"] == "preparing", agrees, "round {round}: {begun}");
        for mut client in clients {
            let report = client.event("finished");
            client.finish().done();
            ranges.push(report["ranges"]["tensors"][0]["range"].as_f64().unwrap());
        }
        server.event("finished");
        (0..CLIENTS).for_each(|i| fs::remove_file(place.path(&format!("mean{i}"))).unwrap());
    }
    server.finish().done();
    let by_round: Vec<_> = ranges.chunks(CLIENTS).map(|all| all[0] * 1024.0).collect();
    assert!(ranges.chunks(CLIENTS).all(|all| all.iter().all(|range| *range == all[0])));
    assert_eq!(by_round, [64.0, 64.0, 64.0, 32.0, 32.0, 32.0]);
}

/// One client's update is a thousand times as long as the others'.
#[test]
fn updates_are_clipped_to_median_norms() {
    let place = self::place(":2 --clip-norm agree:median");
    let mut all = bring(&place);
    round(&place);
    let shrink = |values: &mut Vec<f64>| {
        let norm = values.iter().map(|x| x * x).sum::<f64>().sqrt();
        // Of 40 values up to 0.01 norms are from 2^-5 to 2^-4.
        let factor = (0.0625 / norm).min(1.0);
        values.iter_mut().for_each(|x| *x *= factor);
        factor
    };
    let factors: Vec<_> = all.iter_mut().map(shrink).collect();
    assert!(factors[..CLIENTS - 1].iter().all(|factor| *factor == 1.0), "{factors:?}");
    assert!(factors[CLIENTS - 1] < 0.01);
    assert!(largest_error(&place, "mean0", &all) < 4.8e-7);
    let spoken = place.done("inspect keys/job.json");
    assert!(spoken.contains("a norm to clip to, rank median"), "{spoken}");
}

#[test]
fn files_go_the_same_way() {
    let place = self::place(":median");
    let all = bring(&place);
    for i in 0..3 {
        let key = format!("--key keys/secret.json --client {i}");
        let line = place.done(&format!("ranges --agree {key} --out p{i} g{i}"));
        assert!(line.contains("encrypted"), "{line}");
    }
    let merge = "ranges --merge --key keys/ranges-evaluation.cgk --out";
    let line = place.done(&format!("{merge} agreed p0 p1 p2"));
    assert!(line.contains("agreed by 3 clients, encrypted"), "{line}");
    place.done("ranges --open --key keys/secret.json --out ranges agreed");
    let ranges: serde_json::Value = serde_json::from_slice(&place.read("ranges")).unwrap();
    assert_eq!(ranges["tensors"][0]["range"], 2f64.powi(-6));
    for i in 0..3 {
        let key = format!("--key keys/secret.json --client {i} --ranges ranges");
        place.done(&format!("encrypt {key} --in g{i} --out c{i}"));
    }
    place.done("aggregate --key keys/public.json --out sum c0 c1 c2");
    place.done("decrypt --key keys/secret.json --in sum --out mean --min-clients 3");
    assert!(largest_error(&place, "mean", &all[..3]) < 4.8e-7);

    // What is wrong with them, in one line.
    place.fails_with(1, &format!("{merge} bad p0 p1 p0"), &["client 0", "given twice"]);
    place.fails_with(1, &format!("{merge} bad p0 g1"), &["g1", "not a Ciphergram file"]);
    place.fails_with(1, &format!("{merge} bad agreed"), &["agreed", "belongs"]);
    place.fails_with(
        1,
        "ranges --open --key keys/secret.json --out r p0",
        &["p0", "proposal of ranges"],
    );
    place.fails_with(1, "ranges --merge --key keys/public.json --out r p0", &["public.json"]);
    place.fails_with(1, "ranges --agree --key keys/public.json --out r g0", &["public"]);
    place.fails_with(
        2,
        "ranges --key keys/secret.json --out r g0",
        &["--agree, --merge or --open"],
    );
    place.fails_with(
        1,
        "ranges --agree --key keys/secret.json --client 8 --out r g0",
        &["client", "8"],
    );
    place.done("keygen --scheme ckks-sum --clients 8 --ranges-key --out other");
    let other = "ranges --agree --key other/secret.json --client 0 --job keys/job.json --out r g0";
    place.fails_with(1, other, &["keys/job.json", "key"]);
    for (words, part) in [
        ("--ranges agree:9", "rank 9 among 8 clients"),
        ("--ranges agree:7", "a round may have 6 clients only"),
        ("--ranges agree --dp-sigma 1 --dp-clip 1", "noise"),
    ] {
        place.fails_with(1, &format!("job --key keys/secret.json --out j {words}"), &[part]);
    }
    for words in [
        "--ranges agree:0",
        "--ranges agree --levels 33",
        "--ranges agree --agree-every 0",
        "--ranges agree --clip-norm 1",
        "--ranges ranges --clip-norm agree:median",
        "--agree-every 2",
        "--levels 8",
    ] {
        place.fails(2, &format!("job --key keys/secret.json --out j {words}"));
    }
    place.fails_with(1, "job --key keys/public.json --out j --ranges agree", &["secret.json"]);
}

#[test]
fn aggregators_without_the_ranges_key_say_so() {
    let place = self::place(":2");
    let other = place.path("elsewhere.cgk");
    fs::rename(place.path("keys/ranges-evaluation.cgk"), &other).unwrap();
    let serve = "serve --key keys/public.json --listen 127.0.0.1:0";
    place.fails_with(1, serve, &["ranges-evaluation.cgk"]);
    place.done("keygen --scheme ckks-sum --clients 8 --ranges-key --out other");
    let foreign = format!("{serve} --ranges-key other/ranges-evaluation.cgk");
    place.fails_with(1, &foreign, &["other/ranges-evaluation.cgk", "key"]);
}

#[cfg(target_os = "linux")]
#[test]
fn lack_of_memory_is_one_line() {
    let place = place(":2");
    place.write("g", to_file(&single(&[0.1, 0.2])));
    for i in 0..2 {
        place.done(&format!("ranges --agree --key keys/secret.json --client {i} --out p{i} g"));
    }
    // In units of 1024 bytes: enough for the program, not for the key.
    let line = format!(
        "ulimit -v 200000; RAYON_NUM_THREADS=1 exec {} ranges --merge --key keys/ranges-evaluation.cgk --out agreed p0 p1",
        binary()
    );
    let mut shell = std::process::Command::new("sh");
    let done = shell.args(["-c", &line]).current_dir(place.path("")).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("no memory for the evaluation key of ranges"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!place.path("agreed").exists());
}
