//! Rounds of real processes on loopback: a server, its clients, and strangers.

mod killed;
mod saved;

use std::{
    net::{ToSocketAddrs as _, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::place::{Place, Process};
use crate::support::tensors::{
    Brought, Tensors, from_file, mixed, power_of_two, single, to_file, uniform,
};

fn bring(place: &Place, clients: &[Tensors]) {
    for (i, client) in clients.iter().enumerate() {
        place.write(&format!("g{i}"), to_file(client));
    }
}

/// Returns all clients end well, and have the same bytes; these, read.
fn outcome(place: &Place, clients: Vec<Process>) -> Tensors {
    let count = clients.len();
    clients.into_iter().for_each(|client| assert!(!client.finish().done().stdout.is_empty()));
    let means: Vec<_> = (0..count).map(|i| place.read(&format!("mean{i}"))).collect();
    assert!(means.iter().all(|mean| *mean == means[0]), "clients have different means");
    let spools = (0..count).filter(|i| place.path(&format!("mean{i}.spool")).exists());
    assert_eq!(spools.count(), 0, "spools outlive their sum");
    from_file(&means[0])
}

/// Returns the server saw everyone in every chunk, and ends well.
fn ends_complete(mut server: Process, clients: usize) -> Value {
    let closed = server.event("closed");
    let all = |i: usize| json!({"client": i, "chunks": closed["chunks"]});
    assert_eq!(closed["contributed"], (0..clients).map(all).collect::<Value>(), "{closed}");
    assert_eq!(closed["withheld"], 0);
    server.event("finished");
    let done = server.event("done");
    server.finish().done();
    done
}

fn whole_round(scheme: &str, weights: [u64; 3], shared: bool) {
    let place = Place::with_key(scheme, 3);
    let range = if shared { |largest| largest } else { power_of_two };
    let brought = Brought::new((4..7).map(mixed).collect(), &weights, range);
    bring(&place, &brought.clients);
    let words =
        |i: usize| if weights == [1; 3] { "".into() } else { format!(" --weight {}", weights[i]) };
    if shared {
        for i in 0..3 {
            place.done(&format!("ranges --out r{i} g{i}{}", words(i)));
        }
        place.done("ranges --merge --out ranges r0 r1 r2");
        place.job("--ranges ranges");
    }
    let (server, address) = place.serve("--clients 3");
    let clients = (0..3).map(|i| place.join(&address, i, words(i).trim())).collect();
    brought.check_mean(&outcome(&place, clients));
    ends_complete(server, 3);
}

#[test]
fn means_are_within_the_bound() {
    whole_round("ckks-sum", [1, 1, 1], false);
    whole_round("paillier-2048", [1, 1, 1], false);
}

#[test]
fn weighted_means_are_within_the_bound() {
    whole_round("ckks-sum", [120, 7, 64], false);
    whole_round("paillier-2048", [120, 7, 64], false);
}

#[test]
fn ranges_may_be_shared_beforehand() {
    whole_round("ckks-sum", [120, 7, 64], true);
    whole_round("paillier-2048", [1, 1, 1], true);
}

/// Datagrams by several paths, messages by one of several, and neither end asleep.
#[test]
fn clients_may_send_by_several_paths() {
    let place = Place::with_key("ckks-sum", 3);
    let brought = Brought::new((4..7).map(mixed).collect(), &[1, 1, 1], power_of_two);
    bring(&place, &brought.clients);
    let (server, address) = place.serve("--clients 3 --tune poll --datagram 65507");
    let words = ["--tune paths=4 --datagram 1372", "--tune split=3,poll", "--tune paths=4,split=4"];
    let clients = (0..3).map(|i| place.join(&address, i, words[i])).collect();
    brought.check_mean(&outcome(&place, clients));
    ends_complete(server, 3);
    let refused = place.join(&address, 0, "--tune paths=5,split=4").finish();
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let reported = "paths=5,split=4: no more than 16 in all";
    assert!(refused.stderr.contains(reported), "{}", refused.stderr);
}

/// Clients with keys of their own get the encrypted sum, and the secret key decrypts it. One may have
/// that.
#[test]
fn clients_without_the_secret_contribute() {
    for last in ["clients/2.json", "secret.json"] {
        let place = Place::with_key("paillier-2048", 3);
        let brought = Brought::new((4..7).map(mixed).collect(), &[5, 2, 9], power_of_two);
        bring(&place, &brought.clients);
        let (server, address) = place.serve("--clients 3");
        let mut clients = vec![];
        for (i, key) in ["clients/0.json", "clients/1.json", last].into_iter().enumerate() {
            let words = format!("--weight {}", brought.weights[i]);
            clients.push(place.join_with(key, &address, i, &words));
        }
        for (i, client) in clients.into_iter().enumerate() {
            let said = client.finish().done().stdout;
            let line = said.lines().last().unwrap();
            let sealed = line
                == format!(
                    "mean{i}: encrypted sum of round 0 over 3 contributors, to be decrypted with \
                 the secret key: ciphergram decrypt"
                );
            assert_eq!(sealed, i < 2 || last != "secret.json", "{said}");
            assert!(!place.path(&format!("mean{i}.spool")).exists());
        }
        let sum = place.read("mean0");
        assert!(sum == place.read("mean1"), "clients have different sums");
        assert_eq!(place.json("inspect mean0")["kind"], "sum");
        place.done("decrypt --key keys/secret.json --in mean0 --out mean");
        if last == "secret.json" {
            assert!(place.read("mean") == place.read("mean2"));
        }
        brought.check_mean(&from_file(&place.read("mean")));
        ends_complete(server, 3);
    }
}

#[test]
fn sums_reports_and_further_rounds() {
    let place = Place::with_key("ckks-sum", 3);
    let (mut server, address) = place.serve("--clients 3 --rounds 2");
    let brought = Brought::new((1..4).map(mixed).collect(), &[3, 1, 2], power_of_two);
    bring(&place, &brought.clients);
    let weight = |i: usize| format!("--weight {}", brought.weights[i]);
    let clients = (0..3).map(|i| place.join(&address, i, &(weight(i) + " --sum"))).collect();
    brought.check_sum(&outcome(&place, clients));
    server.event("finished");

    let brought = Brought::new((7..10).map(mixed).collect(), &[2, 3, 1], power_of_two);
    bring(&place, &brought.clients);
    let weight = |i: usize| format!("--weight {} --json", brought.weights[i]);
    let mut clients: Vec<_> = (0..3).map(|i| place.join(&address, i, &weight(i))).collect();
    let mut last = clients.pop().unwrap();
    let reported = last.event("finished");
    last.finish().done();
    assert_eq!(
        (&reported["round"], &reported["contributors"]),
        (&json!(1), &json!(3)),
        "{reported}"
    );
    assert_eq!((&reported["fewest_contributors"], &reported["clipped"]), (&json!(3), &json!({})));
    assert_eq!(reported["ranges"]["max_weight"], 3);
    brought.check_mean(&outcome(&place, clients));
    ends_complete(server, 3);
}

/// Says stop when it goes, also when a failed assertion takes it along.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes of all sizes at `address`, some of which begin as a datagram does, until it is stopped.
fn babble(address: &str, stop: &AtomicBool) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut draw = uniform(99);
    while !stop.load(Ordering::Relaxed) {
        let length = (700.0 * (draw() + 1.0)) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| (128.0 * (draw() + 1.0)) as u8).collect();
        if length > 3 && length.is_multiple_of(2) {
            bytes[..3].copy_from_slice(b"CG\x01");
        }
        // The server may have gone.
        let _ = socket.send_to(&bytes, address);
        thread::sleep(Duration::from_micros(200));
    }
}

/// The round goes on for the others, whatever arrives and from whom.
#[test]
fn strangers_are_refused_by_name_others_finish() {
    let place = Place::with_key("ckks-sum", 3);
    place.keygen("ckks-sum", 3, "other");
    let brought = Brought::new((4..7).map(mixed).collect(), &[1; 3], power_of_two);
    bring(&place, &brought.clients);
    place.write("odd", to_file(&single(&[1.0])));
    place.done("job --key keys/public.json --out lax");
    place.job("--layout g0");
    let (mut server, address) = place.serve("--clients 3");
    let server_key = String::from_utf8(place.read("keys/server.node")).unwrap();
    let server_key = server_key.trim();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| babble(&address, &stop));
        let _quiet = StopOnDrop(&stop);
        let mut clients = vec![place.join(&address, 0, ""), place.join(&address, 1, "")];
        (0..2).for_each(|_| drop(server.event("joined")));
        let cases = [
            ("--key keys/secret.json --job lax --client 2 --in odd", "client 2: it is of job"),
            ("--key other/secret.json --client 2 --in g2", "client 2: it was made under key"),
        ];
        for (words, why) in cases {
            let nodes = format!("--identity keys/client.identity --server-key {server_key}");
            let words = format!("join {words} --server {address} {nodes} --out refused");
            place.fails_with(1, &words, &[&format!("refused by {address}: {why}")]);
            let reported = server.event("refused")["reason"].as_str().unwrap().to_owned();
            assert!(reported.contains(why), "{reported}");
        }
        // Whose number is none of the job's is refused before it asks.
        let words = format!(
            "join --key keys/secret.json --client 3 --in g2 --server {address} --out refused"
        );
        place.fails_with(
            1,
            &words,
            &["--client: client 3 of 3 clients, which are numbered from 0"],
        );
        // Of two who claim one number, the later one is taken, and the former hears why.
        let taken = place.join(&address, 1, "").finish().error(1);
        assert!(taken.contains("mean1.spool: another process is at work on this"), "{taken}");
        let later = place.join(&address, 1, "--spool later");
        let former = std::mem::replace(&mut clients[1], later);
        let reported = former.finish().error(1);
        assert!(
            reported.contains("another contribution took the place of contributor 1"),
            "{reported}"
        );
        clients.push(place.join(&address, 2, ""));
        brought.check_mean(&outcome(&place, clients));
    });
    let done = ends_complete(server, 3);
    assert!(done["malformed_datagrams"].as_u64().unwrap() > 0, "{done}");
}

/// Node keys of machines that are apart: each may be one client, and nobody else gets an answer.
#[test]
fn nodes_take_part_only_as_allowed() {
    let place = Place::with_key("ckks-sum", 3);
    let brought = Brought::new((7..10).map(mixed).collect(), &[1; 3], power_of_two);
    bring(&place, &brought.clients);
    let identity = |name: &str| {
        let made = place.json(&format!("identity --out {name}"));
        made["node"].as_str().unwrap().to_owned()
    };
    let server_key = identity("server");
    let nodes: Vec<String> = (0..3).map(|i| identity(&format!("node{i}"))).collect();
    let lines = (0..3).map(|i| format!("{} {i} # a client\n", nodes[i]));
    place.write("allow", lines.collect::<String>());
    let stranger = identity("stranger");
    let (mut server, address) = place.serve("--clients 3 --identity server --allow allow");
    let join = |client: usize, node: &str| {
        let nodes = format!("--identity {node} --server-key {server_key}");
        format!(
            "join --key keys/secret.json --server {address} --client {client} --in g{client} {nodes}"
        )
    };
    let reported = format!("node {} is allowed as contributor 1, not as contributor 0", nodes[1]);
    place.fails_with(1, &format!("{} --out none", join(0, "node1")), &[&reported]);
    server.event("refused");
    let begin = Instant::now();
    let unlisted = format!("{} --wait 60 --out none", join(0, "stranger"));
    let reported = format!("{address} does not list this node, {stranger}: its owner adds it to");
    place.fails_with(1, &unlisted, &[&reported, "--allow"]);
    assert!(begin.elapsed() < Duration::from_secs(30), "it is reported at once");
    let seen = server.event("stranger");
    assert_eq!((&seen["reason"], &seen["node"]), (&json!("unlisted"), &json!(stranger)), "{seen}");
    let wrong = unlisted.replace(&server_key, &nodes[0]).replace("stranger", "node0");
    let reported = [&format!("no answer from {address} in 2 s: "), "is not that of --server-key"];
    place.fails_with(1, &wrong.replace("--wait 60", "--wait 2"), &reported);
    assert_eq!(server.event("stranger")["reason"], "wrong_key");
    let clients: Vec<_> = (0..3)
        .map(|i| place.start(&format!("{} --json --out mean{i}", join(i, &format!("node{i}")))))
        .collect();
    brought.check_mean(&outcome(&place, clients));
    let done = ends_complete(server, 3);
    assert!(done["handshakes_turned_away"].as_u64().unwrap() > 2, "{done}");
}

/// What a job settles holds for all; what one clips of its own values is its own affair.
#[test]
fn ranges_of_a_job_bind_all() {
    let place = Place::with_key("ckks-sum", 3);
    let clients = [0.5, -0.75, 0.25].map(|x| single(&[x; 200])).to_vec();
    bring(&place, &clients);
    let clipped = [0.5, -0.625, 0.25].map(|x| single(&[x; 200])).to_vec();
    let brought = Brought { max_weight: 4, ..Brought::new(clipped, &[1, 4, 2], |_| 0.75) };
    place.settle("g0", 1.0, 4, "");
    std::fs::rename(place.path("keys/job.json"), place.path("wider")).unwrap();
    place.write("keys/job.json", "");
    place.settle("g0", 0.75, 4, "");
    let (mut server, address) = place.serve("--clients 3");
    let mut clients = vec![place.join(&address, 0, "")];
    server.event("joined");
    let reported = place.join(&address, 1, "--job wider").finish().error(1);
    assert!(
        reported.contains(&format!("refused by {address}: client 1: it is of job")),
        "{reported}"
    );
    let reported = place.join(&address, 1, "--weight 5").finish().error(1);
    assert!(reported.contains("g1: weight 5 is not from 1 to the agreed largest, 4"), "{reported}");
    clients.push(place.join(&address, 1, "--clip 0.625 --weight 4 --json"));
    clients.push(place.join(&address, 2, "--weight 2"));
    brought.check_mean(&outcome(&place, clients));
    ends_complete(server, 3);
}

#[test]
fn rounds_open_without_missing_clients_few_warn() {
    let place = Place::with_key("ckks-sum", 3);
    let brought = Brought::new(vec![single(&[0.5]), single(&[-0.25])], &[1, 1], power_of_two);
    bring(&place, &brought.clients);
    let (server, address) = place.serve("--clients 3 --min-clients 2 --join-deadline 0.5");
    // The job says three.
    let wary = place.join(&address, 1, "");
    let ran = place.join(&address, 0, "--min-clients 2").finish().done();
    assert!(ran.stderr.contains("a sum of 2 contributors"), "{ran:?}");
    brought.check_mean(&from_file(&place.read("mean0")));
    let reported = wary.finish().error(1);
    assert!(reported.contains("a sum of 2; fewer than 3 are not decrypted"), "{reported}");
    assert!(!place.path("mean1").exists());
    let ran = server.finish().done();
    assert!(ran.stderr.contains("warning: sums of 2 may leave"), "{ran:?}");
}

#[test]
fn a_client_may_come_before_the_server() {
    let place = Place::with_key("ckks-sum", 1);
    let brought = Brought::new(vec![single(&[0.5, 0.25])], &[1], power_of_two);
    bring(&place, &brought.clients);
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let client = place.join(&address, 0, "");
    thread::sleep(Duration::from_millis(300));
    place.run(&format!("serve --key keys/public.json --listen {address} --clients 1")).done();
    client.finish().done();
    brought.check_mean(&from_file(&place.read("mean0")));
}

#[test]
fn a_client_whom_nobody_answers_gives_up() {
    let place = Place::with_key("ckks-sum", 3);
    bring(&place, &[single(&[0.5])]);
    let silent_socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent_socket.local_addr().unwrap().to_string();
    let begin = Instant::now();
    let ran = place.join(&address, 0, "--wait 2").finish();
    let reported = ran.error(1);
    let silent = format!("no answer from {address} in 2 s: nothing listens there, ");
    assert!(reported.contains(&silent), "{reported}");
    assert!(reported.contains("is not that of keys/server.node"), "{reported}");
    let reported = format!(
        "warning: no answer from {address} yet: waiting up to 2 s for it (a server whose node key is not that of \
         keys/server.node stays silent)"
    );
    assert!(ran.stderr.lines().any(|line| line == reported), "{ran:?}");
    let lasted = begin.elapsed();
    assert!(lasted > Duration::from_secs(2) && lasted < Duration::from_secs(60), "{lasted:?}");
    assert!(!place.path("mean0").exists() && !place.path("mean0.spool").exists());
    // Now nobody is there, and the host says so.
    drop(silent_socket);
    let reported = place.join(&address, 0, "--wait 0.5").finish().error(1);
    let closed =
        format!("no answer from {address} in 0.5 s: nothing listens there: is `ciphergram");
    assert!(reported.contains(&closed), "{reported}");
}

/// A name stands for several addresses, of either IP: each has its turn.
#[test]
fn a_server_may_be_named() {
    let place = Place::with_key("ckks-sum", 1);
    let brought = Brought::new(vec![single(&[0.5, 0.25])], &[1], power_of_two);
    bring(&place, &brought.clients);
    for host in ["127.0.0.1", "[::1]"] {
        if UdpSocket::bind(format!("{host}:0")).is_err() {
            assert_eq!(host, "[::1]");
            continue; // A machine without IPv6.
        }
        let serve = "serve --key keys/public.json --json --clients 1 --listen";
        let mut server = place.start(&format!("{serve} {host}:0"));
        let address = server.event("listening")["address"].as_str().unwrap().to_owned();
        let named = format!("localhost:{}", address.rsplit(':').next().unwrap());
        // Not every machine has a name for its own address of IPv6.
        let is_known = named.to_socket_addrs().unwrap().any(|known| known.to_string() == address);
        assert!(is_known || host == "[::1]");
        place.join(if is_known { &named } else { &address }, 0, "").finish().done();
        server.finish().done();
        brought.check_mean(&from_file(&place.read("mean0")));
    }
    let reported = place.join("localhost:1", 0, "--wait 1").finish().error(1);
    assert!(reported.contains("no answer from localhost:1 ("), "{reported}");
    assert!(reported.contains("127.0.0.1:1"), "{reported}");
    let reported = place.join("no-such-host.invalid:7700", 0, "").finish().error(1);
    assert!(reported.contains("--server no-such-host.invalid:7700: "), "{reported}");
    for typed in ["localhost", "::1:7700", "localhost:0", ":7700", "localhost:65536"] {
        let reported = place.join(typed, 0, "").finish().error(2);
        assert!(reported.contains("expected HOST:PORT"), "{typed}: {reported}");
    }
}
