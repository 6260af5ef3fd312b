//! Rounds whose result could not be written at first: nothing is lost, and the same command goes on.

use std::{
    fs,
    net::UdpSocket,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::support::place::{Place, Process};
use crate::support::tensors::{Brought, Tensors, from_file, mixed, power_of_two, single, to_file};

/// Writes two clients' tensors, and returns what is known of their mean.
fn two(place: &Place, clients: Vec<Tensors>) -> Brought {
    let brought = Brought::new(clients, &[3, 1], power_of_two);
    brought.clients.iter().enumerate().for_each(|(i, c)| place.write(&format!("g{i}"), to_file(c)));
    brought
}

fn weighted(place: &Place, address: &str, brought: &Brought, i: usize, words: &str) -> Process {
    let words = format!("--weight {} {words}", brought.weights[i]);
    place.join(address, i, words.trim())
}

/// Returns an address at which nobody is.
fn nowhere() -> String {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn outputs_are_tried_before_anyone_is_asked() {
    let place = Place::with_key("ckks-sum", 2);
    two(&place, (1..3).map(mixed).collect());
    fs::create_dir(place.path("folder")).unwrap();
    let begin = Instant::now();
    for (out, why) in [
        ("folder", "folder: is a folder"),
        ("absent/mean", "absent/mean: No such file"),
        ("keys/secret.json", "keys/secret.json: is the input"),
        ("keys/job.json", "keys/job.json: holds a job"),
        ("g0", "g0: is the input g0"),
        ("mean --cohorts absent/c", "absent/c: No such file"),
        ("mean --spool absent/s", "absent/s: No such file"),
    ] {
        let words = "join --key keys/secret.json --client 0 --in g0 --wait 60";
        let words = format!("{words} --server {} --out {out}", nowhere());
        place.fails_with(1, &words, &[why]);
        assert!(!place.path("mean").exists() && !place.path("mean.spool").exists(), "{out}");
    }
    let words = "join --key keys/secret.json --client 0 --in g0 --out mean --spool mean --server";
    place.fails_with(2, &format!("{words} {}", nowhere()), &["--spool mean is --out as well"]);
    assert!(begin.elapsed() < Duration::from_secs(30), "somebody was waited for");
}

/// Nobody needs to be there for the second try.
#[test]
fn the_minimum_may_be_lowered_afterwards() {
    let place = Place::with_key("ckks-sum", 3);
    let brought = two(&place, (1..3).map(mixed).collect());
    let (server, address) = place.serve("--clients 2 --min-clients 2");
    // The job says three.
    let wary = weighted(&place, &address, &brought, 0, "");
    weighted(&place, &address, &brought, 1, "--min-clients 2").finish().done();
    let reported = wary.finish().error(1);
    let hint = "mean0.spool keeps the sum: the same command with --min-clients 2 opens it";
    assert!(reported.contains("a sum of 2; fewer than 3 are not decrypted"), "{reported}");
    assert!(reported.ends_with(hint), "{reported}");
    server.finish().done();
    assert!(!place.path("mean0").exists());
    // Again in vain, then as it was advised.
    let again = |words: &str| weighted(&place, &nowhere(), &brought, 0, words).finish();
    assert!(again("--wait 60").error(1).ends_with(hint));
    again("--wait 60 --min-clients 2").done();
    assert!(place.read("mean0") == place.read("mean1"));
    brought.check_mean(&from_file(&place.read("mean0")));
    assert!(!place.path("mean0.spool").exists());
}

/// With the secret key, and with a client's own, whose sum is written as it is.
#[test]
fn failed_outputs_are_written_by_command_again() {
    for (scheme, key) in [("ckks-sum", "secret.json"), ("paillier-2048", "clients/0.json")] {
        let place = Place::with_key(scheme, 2);
        let brought = two(&place, (3..5).map(mixed).collect());
        let (mut server, address) = place.serve("--clients 2");
        let words = "--weight 3 --json";
        let client = place.join_with(key, &address, 0, words);
        server.event("joined");
        // Something has come to stand there.
        fs::create_dir_all(place.path("mean0/x")).unwrap();
        weighted(&place, &address, &brought, 1, "").finish().done();
        let reported = client.finish().error(1);
        assert!(reported.starts_with("error: mean0: "), "{reported}");
        assert!(reported.ends_with("the sum is in mean0.spool: the same command goes on with it"));
        server.finish().done();
        let spool = place.read("mean0.spool");
        // Another contribution does not take its place.
        let other = place.join_with(key, &nowhere(), 0, "--weight 2").finish();
        assert!(other.error(1).contains("mean0: "), "{other:?}");
        fs::remove_dir_all(place.path("mean0")).unwrap();
        let other = place.join_with(key, &nowhere(), 0, "--weight 2").finish().error(1);
        assert!(other.contains("mean0.spool: it holds another unfinished contribution"), "{other}");
        assert!(place.read("mean0.spool") == spool);

        let ran = place.join_with(key, &nowhere(), 0, words).finish().done();
        assert!(ran.stdout.contains("\"round\":0,"), "{ran:?}");
        assert!(!place.path("mean0.spool").exists());
        if key == "secret.json" {
            assert!(place.read("mean0") == place.read("mean1"));
        } else {
            place.done("decrypt --key keys/secret.json --in mean0 --out opened");
            assert!(place.read("opened") == place.read("mean1"));
        }
        brought.check_mean(&from_file(&place.read("mean1")));
    }
}

/// `kill -9` after the sum is back, while the output is written; without the aggregator afterwards.
#[test]
fn a_killed_client_still_has_its_sum() {
    let place = Place::with_key("ckks-sum", 2);
    // More than a pipe takes.
    let values: Vec<f64> = (0..300_000).map(|i| f64::from(i % 1000) / 1000.0).collect();
    let brought = two(&place, vec![single(&values), single(&values)]);
    let fifo = place.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Someone opens the output, and never reads it.
    let reader = thread::spawn(move || fs::File::open(fifo));
    let (server, address) = place.serve("--clients 2");
    let words = format!("--key keys/secret.json --server {address} --client 0 --in g0 --weight 3");
    let mut victim = place.start(&format!("join {words} --out fifo --spool spool"));
    weighted(&place, &address, &brought, 1, "").finish().done();
    server.finish().done();
    let _reader = reader.join().unwrap().unwrap();
    let late = Instant::now() + Duration::from_secs(60);
    // The sum is as long as all chunks, of from two to three and a half bytes a value, and comes after them.
    let has_sum = |spool: Vec<u8>| spool.len() > 4 * values.len() && ends_whole(&spool);
    while !fs::read(place.path("spool")).is_ok_and(has_sum) {
        assert!(victim.is_running() && Instant::now() < late);
        thread::sleep(Duration::from_millis(5));
    }
    assert!(victim.is_running());
    victim.kill();
    weighted(&place, &nowhere(), &brought, 0, "--spool spool").finish().done();
    assert!(place.read("mean0") == place.read("mean1"));
    assert!(!place.path("spool").exists());
}

/// Returns whether the last record of a spool is whole.
fn ends_whole(spool: &[u8]) -> bool {
    // The magic; the length before a record's content, with what vouches for it, and the tag after.
    let (mut end, around) = (8, 4 + 4 + 16);
    while let Some(length) = spool.get(end..).and_then(|rest| rest.first_chunk()) {
        end += around + u32::from_le_bytes(*length) as usize;
    }
    end == spool.len()
}

/// A file system of a few megabytes, unmounted when dropped.
struct Disk<'a>(&'a Path);

impl Disk<'_> {
    /// None for who may not mount.
    fn mount(path: &Path, bytes: usize) -> Option<Disk<'_>> {
        fs::create_dir(path).unwrap();
        let size = format!("size={bytes}");
        let mut mount = Command::new("mount");
        let ran = mount.args(["-t", "tmpfs", "-o", &size, "none"]).arg(path).output();
        ran.is_ok_and(|ran| ran.status.success()).then_some(Disk(path))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A disk without space for all that a round needs is found before anyone is asked; one that fills up amid the
/// round does no harm.
#[test]
fn a_full_disk_costs_no_round() {
    let place = Place::with_key("ckks-sum", 2);
    let values: Vec<f64> = (0..300_000).map(|i| f64::from(i % 1000) / 1000.0).collect();
    let brought = two(&place, vec![single(&values), single(&values)]);
    let disk = place.path("disk");
    let Some(_disk) = Disk::mount(&disk, 4 << 20) else {
        println!("not tried: nothing can be mounted here");
        return;
    };
    let join = |address: &str, words: &str| {
        let words = format!("--client 0 --in g0 --weight 3 --out disk/mean {words}");
        place.start(format!("join --key keys/secret.json --server {address} {words}").trim_end())
    };
    fs::write(disk.join("ballast"), vec![0; 3 << 20]).unwrap();
    let reported = join(&nowhere(), "--wait 60").finish().error(1);
    assert!(reported.contains("disk/mean: No space left"), "{reported}");
    fs::write(disk.join("ballast"), vec![0; 2 << 20]).unwrap();
    let reported = join(&nowhere(), "--wait 60").finish().error(1);
    assert!(reported.contains("disk/mean.spool: No space left"), "{reported}");
    assert!(fs::read_dir(&disk).unwrap().count() == 1, "something is left of it");
    fs::remove_file(disk.join("ballast")).unwrap();

    let (mut server, address) = place.serve("--clients 2");
    let client = join(&address, "");
    server.event("joined");
    // Whatever space is left goes.
    let filled = fs::write(disk.join("ballast"), vec![0; 4 << 20]);
    assert!(filled.is_err(), "there is space for four megabytes beside what is reserved");
    weighted(&place, &address, &brought, 1, "").finish().done();
    client.finish().done();
    assert!(fs::read(disk.join("mean")).unwrap() == place.read("mean1"));
    server.finish().done();
}
