//! The answers of `serve --metrics` over HTTP, and the lines of `--log json`, in real rounds.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::{Shutdown, TcpListener},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::http::{PATIENCE, answer, ask, connect};
use crate::support::place::{Place, Process, Ran};
use crate::support::tensors::{Brought, from_file, mixed, power_of_two, to_file};

const REQUEST: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Returns a key and the tensors of three clients.
fn place() -> (Place, Brought) {
    let place = Place::with_key("ckks-sum", 3);
    let brought = Brought::new((4..7).map(mixed).collect(), &[1; 3], power_of_two);
    for (i, client) in brought.clients.iter().enumerate() {
        place.write(&format!("g{i}"), to_file(client));
    }
    (place, brought)
}

/// Returns a server for three clients, its address, and that of its metrics.
fn serve(place: &Place) -> (Process, String, String) {
    let (mut server, address) = place.serve("--clients 3 --metrics 127.0.0.1:0");
    let metrics = server.event("metrics")["address"].as_str().unwrap().to_owned();
    assert!(metrics.starts_with("127.0.0.1:") && !metrics.ends_with(":0"), "{metrics}");
    (server, address, metrics)
}

/// Returns the numbers of an answer that is as OpenMetrics has it, by name and labels.
pub(crate) fn numbers(answer: &str) -> BTreeMap<String, f64> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(head.contains(&format!("\r\nContent-Type: {kind}\r\n")), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    let lines = body.strip_suffix("# EOF\n").unwrap().lines();
    let mut numbers = BTreeMap::new();
    let (mut family, mut endings): (_, &[_]) = (String::new(), &[]);
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["#", "HELP", name, _, ..] => family = name.to_owned(),
            ["#", "TYPE", name, kind] => {
                assert_eq!(name, family);
                endings = match kind {
                    "counter" => &["_total"],
                    "gauge" => &[""],
                    "info" => &["_info"],
                    "histogram" => &["_sum", "_count", "_bucket"],
                    _ => panic!("{line}"),
                };
            }
            ["#", "UNIT", name, unit] => assert!(name == family && name.ends_with(unit), "{line}"),
            [name, value] => {
                let own = name.split('{').next().unwrap().strip_prefix(&family);
                assert!(own.is_some_and(|ending| endings.contains(&ending)), "{line}");
                assert!(family.starts_with("ciphergram_"), "{line}");
                let former = numbers.insert(name.to_owned(), value.parse().unwrap());
                assert_eq!(former, None, "{line}");
            }
            _ => panic!("{line}"),
        }
    }
    numbers
}

/// Returns the counters of an answer.
fn values(answer: &str) -> BTreeMap<String, u64> {
    let counts = numbers(answer).into_iter().filter(|(name, _)| name.contains("_total"));
    counts.map(|(name, value)| (name, value as u64)).collect()
}

fn value(values: &BTreeMap<String, u64>, name: &str) -> u64 {
    *values.get(&format!("ciphergram_{name}_total")).unwrap_or_else(|| panic!("no {name}"))
}

/// Returns all bytes one way.
fn wire_bytes(values: &BTreeMap<String, u64>, direction: &str) -> u64 {
    let part = |part| value_of(values, direction, part);
    ["header", "payload", "tag"].into_iter().map(part).sum()
}

fn value_of(values: &BTreeMap<String, u64>, direction: &str, part: &str) -> u64 {
    values[&format!("ciphergram_bytes_total{{direction=\"{direction}\",part=\"{part}\"}}")]
}

/// Begins a request, and ends it on a message: then it is answered with the last numbers of a
/// server that has ended. Nobody may take long over a request, so it is begun anew now and then.
fn ask_at_the_end(metrics: &str, reported: mpsc::Receiver<()>) -> String {
    let (begin, end) = REQUEST.split_at(30);
    loop {
        let mut stream = connect(metrics);
        stream.write_all(begin.as_bytes()).unwrap();
        if reported.recv_timeout(Duration::from_secs(1)).is_ok() {
            stream.write_all(end.as_bytes()).unwrap();
            return answer(stream);
        }
    }
}

#[test]
fn metrics_are_what_happened() {
    let (place, brought) = place();
    let (mut server, address, metrics) = serve(&place);
    let scrape = || values(&ask(&metrics, REQUEST.as_bytes()));
    let before = scrape();
    assert!(before.values().all(|value| *value == 0), "{before:?}");

    let mut clients = vec![place.join(&address, 0, ""), place.join(&address, 1, "")];
    (0..2).for_each(|_| drop(server.event("joined")));
    place.done("job --key keys/public.json --out other --max-weight 7");
    place.join(&address, 2, "--job other --spool refused").finish().error(1);
    server.event("refused");
    // Counters of datagrams are published a moment after the events.
    let mut joined = scrape();
    while value(&joined, "handshake_datagrams") == 0 {
        std::thread::sleep(Duration::from_millis(10));
        joined = scrape();
    }
    let counts = |values: &BTreeMap<String, u64>| {
        let names = ["clients_joined", "clients_refused", "rounds_opened", "rounds_closed"];
        names.map(|name| value(values, name))
    };
    assert_eq!(counts(&joined), [2, 1, 0, 0]);

    let (ended, reported) = mpsc::channel();
    let (done, closed, end) = thread::scope(|scope| {
        let metrics = &metrics;
        let last = scope.spawn(move || ask_at_the_end(metrics, reported));
        clients.push(place.join(&address, 2, ""));
        let closed = server.event("closed");
        let done = server.event("done");
        ended.send(()).unwrap();
        (done, closed, last.join().unwrap())
    });
    let (last, numbers) = (values(&end), numbers(&end));
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    server.finish().done();
    brought.check_mean(&from_file(&place.read("mean0")));

    assert_eq!(counts(&last), [3, 1, 1, 1]);
    for (name, expected) in [
        ("chunks_summed", &closed["chunks"]),
        ("chunks_withheld", &json!(0)),
        ("clients_lost", &json!(0)),
        ("clients_resumed", &json!(0)),
        ("datagrams_retransmitted", &done["retransmitted_datagrams"]),
        ("datagrams_malformed", &done["malformed_datagrams"]),
        ("handshakes_turned_away", &done["handshakes_turned_away"]),
    ] {
        assert_eq!(json!(value(&last, name)), *expected, "{name}");
    }
    assert_eq!(json!(wire_bytes(&last, "received")), done["received_bytes"]);
    assert_eq!(json!(wire_bytes(&last, "sent")), done["sent_bytes"]);
    assert!(value_of(&last, "received", "payload") > 0);
    let gauges = ["round", "clients_connected", "clients_missing"];
    assert_eq!(gauges.map(|name| numbers[&format!("ciphergram_{name}")]), [0.0, 3.0, 0.0]);
    for phase in ["waiting", "summing", "delivering"] {
        let of = |what| numbers[&format!("ciphergram_phase_seconds_{what}{{phase=\"{phase}\"}}")];
        let below = format!("ciphergram_phase_seconds_bucket{{le=\"3000.0\",phase=\"{phase}\"}}");
        assert_eq!((of("count"), numbers[&below]), (1.0, 1.0), "{phase}");
        assert!((0.0..PATIENCE.as_secs_f64()).contains(&of("sum")), "{phase}: {numbers:?}");
    }
    // Counters never fall.
    assert!(joined.iter().all(|(name, value)| last[name] >= *value), "{joined:?} {last:?}");
}

/// The round goes on and others get their answers, whatever is asked and however slowly.
#[test]
fn strange_requests_do_not_disturb() {
    let (place, brought) = place();
    let (mut server, address, metrics) = serve(&place);
    let mut clients = vec![place.join(&address, 0, ""), place.join(&address, 1, "")];
    (0..2).for_each(|_| drop(server.event("joined")));
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    let cases: [(&[u8], &str); 11] = [
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"GET /status.html HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n", "421 Misdirected Request"),
        (b"DELETE / HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        (b"GET /metrics/../keys/secret.json HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", "405 Method Not Allowed"),
        (b"GET /metrics HTTP/9\r\n\r\n", "400 Bad Request"),
        (b"\r\n\r\n", "400 Bad Request"),
        (b"GET /metrics", "400 Bad Request"),
        (&[0xff; 100], "400 Bad Request"),
        (long.as_bytes(), "400 Bad Request"),
    ];
    for (request, status) in cases {
        let mut stream = connect(&metrics);
        stream.write_all(request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let reported = answer(stream);
        assert!(reported.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{status}: {reported}");
        assert!(reported.ends_with(&format!("\r\n\r\n{status}\n")), "{status}: {reported}");
    }

    // One that says nothing, one that never comes to an end and one that takes no answer, all at
    // once.
    let begin = Instant::now();
    let silent = connect(&metrics);
    let mut slow = connect(&metrics);
    slow.write_all(b"GET /met").unwrap();
    let mut deaf = connect(&metrics);
    deaf.write_all(REQUEST.as_bytes()).unwrap();
    clients.push(place.join(&address, 2, ""));
    let closed = server.event("closed");
    assert_eq!(
        (&closed["withheld"], closed["contributed"].as_array().unwrap().len()),
        (&json!(0), 3)
    );
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    brought.check_mean(&from_file(&place.read("mean0")));
    server.finish().done();
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    drop((silent, slow, deaf));
}

/// A request that stalls is cut off, and the next one answered.
#[test]
fn slow_requests_are_cut_off() {
    let (place, _) = place();
    let (_server, _, metrics) = serve(&place);
    let mut slow = connect(&metrics);
    slow.write_all(b"GET /met").unwrap();
    let begin = Instant::now();
    values(&ask(&metrics, REQUEST.as_bytes()));
    assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
    assert_eq!(answer(slow), "");
}

/// Many that stall keep whoever asks after them waiting for seconds, not for the time of each.
#[test]
fn many_slow_requests_block_no_others() {
    let (place, _) = place();
    let (_server, _, metrics) = serve(&place);
    let begin = Instant::now();
    let slow: Vec<_> = (0..100).map(|_| connect(&metrics)).collect();
    slow.iter().for_each(|mut stream| stream.write_all(b"GET /met").unwrap());
    values(&ask(&metrics, REQUEST.as_bytes()));
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

#[test]
fn an_address_that_is_taken_is_named() {
    let (place, _) = place();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let serve = "serve --key keys/public.json --listen 127.0.0.1:0 --clients 3";
    let reported = format!("--metrics {address}: address in use");
    place.fails_with(1, &format!("{serve} --metrics {address}"), &[&reported]);
    let ran = place.run(&format!("{serve} --metrics nowhere"));
    assert!(ran.code == Some(2) && ran.stderr.lines().count() == 1, "{ran:?}");
}

/// Returns the log of a process, each of whose lines is an object; warnings for people aside.
fn log(ran: &Ran) -> Vec<Value> {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines = ran.stderr.lines().filter(|line| !line.starts_with("warning: "));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// Returns the spans of that name that ended, without what they took.
fn spans(log: &[Value], name: &str) -> Vec<Value> {
    let ended = log.iter().filter(|line| line["fields"]["message"] == "close");
    let named = ended.filter(|line| line["span"]["name"] == name);
    named.map(|line| line["span"].clone()).collect()
}

#[test]
fn logs_are_objects_with_rounds_and_clients() {
    let (place, _) = place();
    let serve = "serve --log json --key keys/public.json --listen 127.0.0.1:0 --clients 3 --json";
    let mut server = place.start_logging("info", serve);
    let address = server.event("listening")["address"].as_str().unwrap().to_owned();
    let join = |log: &str, i: usize| {
        let files = format!("--key keys/secret.json --in g{i} --out mean{i}");
        let words = format!("{log}join {files} --server {address} --client {i}");
        place.start_logging("info", &words)
    };
    let clients = [join("--log json ", 0), join("--log json ", 1), join("", 2)];
    let closed = server.event("closed");
    let [first, second, text] = clients.map(Process::finish);

    let reported = log(&server.finish());
    let summed = &closed["summed"];
    let round = json!({"name": "round", "round": 0, "clients": 3, "summed": summed, "withheld": 0});
    assert_eq!(spans(&reported, "round"), [round], "{reported:?}");
    let engine = |line: &Value| {
        let message = line["fields"]["message"].as_str().unwrap_or_default();
        line["level"] == "INFO" && message.starts_with("engine cpu")
    };
    assert!(reported.iter().any(engine), "{reported:?}");
    for (i, ran) in [(0, first), (1, second)] {
        let reported = log(&ran);
        for name in ["round", "seal", "open"] {
            let span = json!({"name": name, "round": 0, "client": i});
            assert_eq!(spans(&reported, name), [span], "{reported:?}");
        }
        assert!(reported.iter().any(engine), "{reported:?}");
    }
    // For people it stays one line, beside those of the path's size.
    let is_other = |line: &&str| !line.contains("the path takes datagrams of this size");
    let others: Vec<_> = text.stderr.lines().filter(is_other).collect();
    assert!(others.len() == 1 && others[0].contains("engine cpu"), "{text:?}");

    let ran = place.run("show devices --log xml");
    assert!(ran.code == Some(2) && ran.stderr.lines().count() == 1, "{ran:?}");
}
