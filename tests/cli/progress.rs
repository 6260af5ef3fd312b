//! Progress on a terminal, which `script` plays, and none of it in pipes; times of events.

use std::{
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::support::place::{Place, binary};
use crate::support::tensors::{mixed, to_file};

const ESCAPE: char = '\x1b';

fn place() -> Place {
    let place = Place::with_key("ckks-sum", 2);
    (0..2).for_each(|i| place.write(&format!("g{i}"), to_file(&mixed(i))));
    place
}

/// Starts `ciphergram WORDS` on a terminal of its own, of 100 columns; none where there is no `script`.
fn on_terminal(place: &Place, words: &str, environment: &[(&str, &str)]) -> Option<Child> {
    let command = format!("stty cols 100; exec {} {words}", binary());
    let started = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .current_dir(place.path(""))
        .env("TERM", "xterm-256color")
        .env("CIPHERGRAM_GPU", "none")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    match started {
        Ok(child) => Some(child),
        Err(error) => {
            println!("SKIPPED, there is no script to play a terminal: {error}");
            None
        }
    }
}

/// Returns all that a terminal was sent.
fn sent(child: Child) -> String {
    let ran = child.wait_with_output().unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{text}");
    text
}

/// Returns the lines that stay on a terminal: of each, what was sent after it was last erased.
fn left(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.rsplit("\x1b[2K").next().unwrap());
    lines.filter(|line| !line.trim_start_matches(ESCAPE).is_empty()).collect()
}

#[test]
fn waiting_clients_say_for_whom_then_erase() {
    let place = place();
    let (_server, address) = place.serve("--clients 2");
    let words = |i| {
        format!(
            "join --key keys/secret.json --in g{i} --out mean{i} --server {address} --client {i}"
        )
    };
    let Some(first) = on_terminal(&place, &words(0), &[]) else { return };
    thread::sleep(Duration::from_millis(1_500));
    place.done(&words(1));
    let text = sent(first);
    assert!(text.contains(&format!("joined {address}, waiting for the other clients")), "{text:?}");
    let left = left(&text);
    assert!(left.last().unwrap().starts_with("mean0: weighted mean of round 0"), "{text:?}");
    assert!(left.iter().all(|line| !line.contains("waiting")), "{text:?}");
}

#[test]
fn short_work_shows_no_progress() {
    let place = place();
    let words = "encrypt --key keys/secret.json --client 0 --in g0 --out e0 2>&1";
    let Some(quick) = on_terminal(&place, words, &[]) else { return };
    let text = sent(quick);
    assert!(!text.contains(ESCAPE) && text.contains("e0: "), "{text:?}");
}

/// Programs read pipes, and `--json` anywhere.
#[test]
fn pipes_and_json_have_no_escapes() {
    let place = place();
    let serve = "serve --key keys/public.json --listen 127.0.0.1:0 --clients 2 --json";
    let mut server = place.start_logging("debug", serve);
    let address = server.event("listening")["address"].as_str().unwrap().to_owned();
    let words = |i, json| {
        format!(
            "join --key keys/secret.json --in g{i} --out mean{i} --server {address} --client {i}{json}"
        )
    };
    let json = on_terminal(&place, &words(0, " --json"), &[]);
    let first = json.is_none().then(|| place.start(&words(0, "")));
    thread::sleep(Duration::from_millis(1_200));
    let second = place.start_logging("debug", &words(1, "")).finish();
    for (name, ran) in [("serve", server.finish()), ("join", second)] {
        assert!(ran.code == Some(0) && !ran.stderr.is_empty(), "{name}: {ran:?}");
        assert!(!ran.stdout.contains(ESCAPE) && !ran.stderr.contains(ESCAPE), "{name}: {ran:?}");
    }
    if let Some(json) = json {
        let text = sent(json);
        assert!(!text.contains(ESCAPE), "{text:?}");
        let events = text.lines().filter(|line| line.starts_with('{'));
        assert!(
            events.filter(|line| serde_json::from_str::<Value>(line).is_ok()).count() >= 3,
            "{text}"
        );
    }
    first.into_iter().for_each(|first| drop(first.finish().done()));
}

/// Log lines have colours on a terminal, unless whoever runs the command wants none.
#[test]
fn colours_are_for_terminals() {
    let place = place();
    let words = "encrypt --key keys/secret.json --client 0 --in g0 --out e0";
    for (wish, coloured) in [("", true), ("1", false)] {
        let environment = [("CIPHERGRAM_LOG", "info"), ("NO_COLOR", wish)];
        let Some(logging) = on_terminal(&place, words, &environment) else { return };
        let text = sent(logging);
        assert!(text.contains(" engine cpu"), "{text:?}");
        assert_eq!(text.contains(ESCAPE), coloured, "{text:?}");
    }
}

/// Every event has its time, as RFC 3339 has it, and times ascend.
#[test]
fn events_say_when_they_happened() {
    let place = place();
    let (server, address) = place.serve("--clients 2");
    let clients = [0, 1].map(|i| place.join(&address, i, ""));
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    let text = server.finish().done().stdout;
    let times: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["time"].as_str().unwrap().into())
        .collect();
    assert!(times.len() >= 6 && times.is_sorted(), "{times:?}");
    for time in &times {
        let digits: String =
            time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(digits, "0000-00-00T00:00:00.000000Z", "{time}");
    }
}
