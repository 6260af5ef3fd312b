//! Aggregators that run for long: rounds that too few clients join, no end of rounds, signals, a list that changes,
//! options from a file, and the service.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use serde_json::json;

use crate::support::place::{Place, Process, Ran, binary};
use crate::support::tensors::{mixed, single, to_file};

/// Returns a place with a key and tensors for as many clients.
fn place(clients: u32) -> Place {
    let place = Place::with_key("ckks-sum", clients);
    (0..clients).for_each(|i| place.write(&format!("g{i}"), to_file(&mixed(4 + u64::from(i)))));
    place
}

/// Returns the one line of standard error that is no warning, of a process that a signal stopped.
fn last_line(ran: &Ran, code: i32) -> &str {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    let mut lines = ran.stderr.lines().filter(|line| !line.starts_with("warning: "));
    let line = lines.next().unwrap();
    assert_eq!(lines.next(), None, "{ran:?}");
    line
}

/// Plays a round of clients 0 and 1.
fn round_of_two(place: &Place, server: &mut Process, address: &str) {
    let clients = [0, 1].map(|i| place.join(address, i, ""));
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    server.event("finished");
}

#[test]
fn too_few_clients_end_both_sides() {
    let place = place(3);
    place.done("job --key keys/public.json --out other.json");
    let (mut server, address) = place.serve("--clients 3 --min-clients 3 --join-deadline 3");
    let clients = [0, 2].map(|i| place.join(&address, i, ""));
    let refused = place.join(&address, 1, "--job other.json").finish().error(1);
    assert!(refused.contains("it is of job"), "{refused}");
    let shortage = "2 clients joined within 3 s, and a round needs 3; client 1 is missing";
    for client in clients {
        let error = client.finish().error(1);
        assert!(error.contains(&format!("refused by {address}: {shortage}")), "{error}");
    }
    let few = server.event("too_few");
    assert_eq!((&few["joined"], &few["missing"]), (&json!([0, 2]), &json!([1])));
    assert_eq!((&few["round"], &few["waits_on"]), (&json!(0), &json!(false)));
    assert_eq!(few["refused"][0]["client"], 1);
    let error = server.finish().error(1);
    for part in [
        &format!("error: round 0 did not open: {shortage}; client 1 was refused: it is of job ")[..],
        "--join-deadline, or",
        "--wait-for-clients, or",
        "--min-clients 2, of serve and of join",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn clients_are_waited_for_on_request() {
    let place = place(3);
    let (mut server, address) = place.serve("--clients 3 --join-deadline 0.4 --wait-for-clients");
    let mut clients: Vec<_> = [0, 2].map(|i| place.join(&address, i, "")).into();
    // How often it is said while only one has joined is a matter of luck.
    let few = loop {
        let few = server.event("too_few");
        if few["joined"] == json!([0, 2]) {
            break few;
        }
    };
    assert_eq!((&few["missing"], &few["waits_on"]), (&json!([1]), &json!(true)));
    assert_eq!(server.event("too_few")["missing"], json!([1]), "once for each deadline");
    clients.push(place.join(&address, 1, ""));
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    server.finish().done();
}

#[test]
fn rounds_have_no_end_until_a_signal() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let place = place(2);
        let (mut server, address) = place.serve("--rounds 0 --join-deadline 0.7");
        round_of_two(&place, &mut server, &address);
        // One that too few join is not the end either.
        let error = place.join(&address, 0, "").finish().error(1);
        assert!(error.contains("client 1 is missing"), "{error}");
        assert_eq!(server.event("too_few")["round"], 1);
        round_of_two(&place, &mut server, &address);
        server.signal(signal);
        server.event("stopped");
        let ran = server.finish();
        assert_eq!(last_line(&ran, code), "stopped before round 2; no round was open");
    }
}

#[test]
fn clients_of_stopped_rounds_find_new_aggregators() {
    let place = place(2);
    let many: Vec<f64> = (0..200_000).map(|i| f64::from(i % 9)).collect();
    (0..2).for_each(|i| place.write(&format!("g{i}"), to_file(&single(&many))));
    let (mut server, address) = place.serve("--rounds 0");
    // 400 KB each take a second or two.
    let mut relay = place.start(&format!("relay --listen 127.0.0.1:0 --to {address} --rate 4"));
    let by = relay.event("listening")["address"].as_str().unwrap().to_owned();
    let clients = [0, 1].map(|i| place.join(&by, i, ""));
    server.event("opened");
    server.signal("TERM");
    let ran = server.finish();
    let line = "stopped in round 0; its clients go on when the aggregator is started again";
    assert_eq!(last_line(&ran, 143), line);
    let serve = format!("serve --key keys/public.json --listen {address} --rounds 0 --json");
    let mut next = place.start(&serve);
    // This one is stopped when the round has closed: its last sums are still on their way, and arrive.
    next.event("closed");
    next.signal("TERM");
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    assert_eq!(last_line(&next.finish(), 143), "stopped before round 1; no round was open");
    assert_eq!(place.read("mean0"), place.read("mean1"));
}

#[test]
fn sighup_reads_the_allow_list_again() {
    let place = place(2);
    let node = |name: &str| {
        let said = place.done(&format!("identity --out {name}.identity"));
        said.split_whitespace().find(|word| word.len() == 43).unwrap().to_owned()
    };
    let [first, struck, other] = ["first", "struck", "other"].map(node);
    let join = |address: &str, number, name: &str| {
        place.join(address, number, &format!("--identity {name}.identity"))
    };
    place.write("allow", format!("{first} 0\n{struck} 1\n"));
    let (mut server, address) = place.serve("--rounds 0 --allow allow");
    let waiting = join(&address, 1, "struck");
    server.event("joined");
    place.write("allow", format!("{first} 0\n{other} 1\n"));
    server.signal("HUP");
    let allowed = server.event("allowed");
    assert_eq!((&allowed["added"], &allowed["removed"]), (&json!([other]), &json!([struck])));
    let error = waiting.finish().error(1);
    assert!(error.contains(&format!("node {struck} is no longer allowed")), "{error}");

    // Lists that cannot be used leave the one that is.
    for list in ["# nobody\n", &format!("{first} 0\n{other} 7\n"), "gibberish\n"] {
        place.write("allow", list);
        server.signal("HUP");
        thread::sleep(Duration::from_millis(200));
    }
    fs::remove_file(place.path("allow")).unwrap();
    server.signal("HUP");
    let clients = [join(&address, 0, "first"), join(&address, 1, "other")];
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    server.event("finished");
    server.signal("TERM");
    let ran = server.finish();
    last_line(&ran, 143);
    let warnings: Vec<_> =
        ran.stderr.lines().filter(|line| line.starts_with("warning: allow: ")).collect();
    assert_eq!(warnings.len(), 4, "{ran:?}");
    for (warning, why) in
        warnings.iter().zip(["no node", "as client 7", "line 1: expected", "No such file"])
    {
        assert!(
            warning.contains(why) && warning.ends_with("; the former allow list stays"),
            "{warning}"
        );
    }
    assert!(!ran.stdout.contains(r#""event":"allowed","rebound":[],"removed":[]"#), "{ran:?}");
}

#[test]
fn allow_lists_that_admit_nobody_are_errors() {
    let place = place(3);
    let node = fs::read_to_string(place.path("keys/server.node")).unwrap();
    let node: String = node.trim().chars().take(43).collect();
    let serve = "serve --key keys/public.json --listen 127.0.0.1:0 --clients 3 --allow allow";
    place.write("allow", "# nobody\n");
    place.fails_with(1, serve, &["allow: ", "no node"]);
    place.write("allow", format!("{node} 3\n"));
    let parts =
        [&format!("allow: it allows node {node} as client 3")[..], "3 clients, numbered from 0"];
    place.fails_with(1, serve, &parts);
}

#[test]
fn systemd_takes_the_service() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/ciphergram.service");
    let unit = fs::read_to_string(unit).unwrap();
    let command = "/usr/local/bin/ciphergram";
    assert!(unit.contains(command));
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: there is no systemd-analyze");
        return;
    }
    let place = Place::new();
    // It looks for the program.
    place.write("ciphergram.service", unit.replace(command, binary()));
    let analyze = |words: &[&str]| {
        let run = Command::new("systemd-analyze")
            .args(words)
            .arg(place.path("ciphergram.service"))
            .output();
        let run = run.unwrap();
        let text = String::from_utf8_lossy(&run.stdout).into_owned()
            + &String::from_utf8_lossy(&run.stderr);
        (run.status.success(), text)
    };
    let (good, said) = analyze(&["verify"]);
    assert!(good && said.is_empty(), "{said}");
    // 0 is the least exposed of 10, and the threshold is in tenths. Earlier versions cannot tell without a manager.
    let (good, said) = analyze(&["security", "--offline=true", "--threshold=20", "--no-pager"]);
    assert!(good || said.contains("unrecognized option"), "{said}");
}
