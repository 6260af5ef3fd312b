//! Sums that openers open, over files: keys, jobs, requests and answers, and what is refused.

use crate::metrics::numbers;
use crate::support::{
    http::{ask, get},
    place::{DEADLINE, Place},
    tensors::{from_file, single, to_file},
};

fn bring(place: &Place, clients: usize) {
    for client in 0..clients {
        let values = [0.25 * client as f64, -0.5, 0.125];
        place.write(&format!("g{client}"), to_file(&single(&values)));
    }
}

/// Returns a place with the keys of four clients, any three of whom open, and the ranges of their updates.
fn world() -> Place {
    let place = Place::new();
    bring(&place, 4);
    place.done("keygen --scheme ckks-sum-threshold --clients 4 --out keys");
    place.done("ranges --policy fixed:1 --weight 1 --out ranges.json g0");
    place
}

/// Encrypts as some clients, sums, and returns the words of the openers' answers.
fn contribute(place: &Place, clients: &[usize], name: &str) {
    for i in clients {
        place.done(&format!(
            "encrypt --key keys/clients/{i}.json --in g{i} --out {name}{i}.cgm --ranges ranges.json"
        ));
    }
    let files: Vec<_> = clients.iter().map(|i| format!("{name}{i}.cgm")).collect();
    place.done(&format!(
        "aggregate --key keys/public.json --requests {name} --out {name}.sum {}",
        files.join(" ")
    ));
}

fn answer(place: &Place, opener: usize, name: &str) -> String {
    let out = format!("{name}-{opener}.answer");
    place.done(&format!(
        "opener --key keys/clients/{opener}.json --in {name}/{opener}.request --out {out}"
    ));
    out
}

#[test]
fn rounds_go_on_over_files_with_a_silent_opener() {
    let place = world();
    for (round, openers) in [("a", [0, 1, 2]), ("b", [0, 1, 3]), ("c", [1, 2, 3])] {
        contribute(&place, &[0, 1, 3], round);
        let answers = openers.map(|opener| answer(&place, opener, round)).join(",");
        // Clients learn the openers' next prekeys from the answers.
        for client in 0..4 {
            place.done(&format!(
                "decrypt --key keys/clients/{client}.json --answers {answers} --in {round}.sum --out {round}{client}"
            ));
            assert_eq!(place.read(&format!("{round}{client}")), place.read(&format!("{round}0")));
        }
    }
    let job = place.json("inspect keys/job.json");
    let quorum = ["openers", "open", "silent", "faulty"].map(|name| job["openers"][name].as_u64());
    assert_eq!(quorum, [4, 3, 1, 1].map(Some));
    // Shares are in three boxes, and a seed in the fourth.
    let bytes = place.json("inspect c1.cgm")["share_bytes"].as_u64().unwrap();
    assert!((8_000..12_000).contains(&bytes), "{bytes}");
    // What got lost is given again, and nothing else of that round.
    let answer = place.read("c-1.answer");
    place.done("opener --key keys/clients/1.json --in c/1.request --out again");
    assert_eq!(place.read("again"), answer);
    place.done(
        "encrypt --key keys/clients/2.json --in g2 --out c2.cgm --ranges ranges.json --round 2",
    );
    place.done("aggregate --key keys/public.json --requests d --out d.sum c1.cgm c3.cgm c2.cgm");
    let answered = ["answered for round 2", "answers for none twice"];
    place.fails_with(1, "opener --key keys/clients/1.json --in d/1.request --out again", &answered);
}

#[test]
fn what_openers_and_clients_refuse_is_named() {
    let place = world();
    contribute(&place, &[0, 1, 2], "a");
    let opener =
        |i: usize, file: &str| format!("opener --key keys/clients/{i}.json --in {file} --out x");
    place.fails_with(1, &opener(0, "a/1.request"), &["it is a request to opener 1, not 0"]);
    place.fails_with(
        1,
        &opener(0, "a.sum"),
        &["a.sum: a sum where a request to an opener belongs"],
    );
    let secret = "opener --key keys/public.json --in a/0.request --out x";
    place.fails_with(1, secret, &["keys/public.json", "openers answer with an identity"]);
    let [zero, one] = [0, 1].map(|i| answer(&place, i, "a"));
    let decrypt = |answers: &str| {
        format!("decrypt --key keys/clients/0.json --answers {answers} --in a.sum --out x")
    };
    place.fails_with(1, &decrypt(&format!("{zero},{one}")), &["2 answers", "take 3"]);
    place.fails_with(1, &decrypt(&format!("{zero},{one},{one}")), &["opener 1: it is there twice"]);
    let none = "decrypt --key keys/clients/0.json --in a.sum --out x";
    place.fails_with(1, none, &["0 answers", "take 3"]);
    place.fails_with(
        2,
        "aggregate --key keys/public.json --out x a0.cgm a1.cgm a2.cgm",
        &["--requests"],
    );
    let spare = place.read("keys/clients/3.json.prekeys");
    place.write("keys/clients/3.json.prekeys", &spare[..20]);
    place.fails_with(1, &opener(3, "a/3.request"), &["3.json.prekeys"]);
}

fn is_mean_of(place: &Place, out: &str, clients: &[usize]) {
    let mean = from_file(&place.read(out)).into_values().next().unwrap().values;
    let given = |i: usize| from_file(&place.read(&format!("g{i}"))).into_values().next().unwrap();
    for (i, found) in mean.iter().enumerate() {
        let sum: f64 = clients.iter().map(|&client| given(client).values[i]).sum();
        assert!((found - sum / clients.len() as f64).abs() < 1e-4, "{out}: {mean:?}");
    }
}

#[test]
fn a_round_opens_though_a_client_that_is_an_opener_is_killed() {
    let place = world();
    let (mut server, address) = place.serve(&format!("{DEADLINE} --rounds 2"));
    let join =
        |number: usize| place.join_with(&format!("clients/{number}.json"), &address, number, "");
    // It waits for the others, and is gone when the round opens.
    let mut victim = join(3);
    // As an opener it attends before.
    server.event("joined");
    victim.kill();
    let all: Vec<_> = (0..3).map(join).collect();
    let closed = server.event("closed");
    assert_eq!(closed["contributed"][3]["chunks"], 0, "{closed}");
    all.into_iter().for_each(|client| drop(client.finish().done()));
    (0..3).for_each(|i| is_mean_of(&place, &format!("mean{i}"), &[0, 1, 2]));
    // It finds its number free in the next one, and no share is asked of it twice.
    let all: Vec<_> = (0..4).map(join).collect();
    all.into_iter().for_each(|client| drop(client.finish().done()));
    (0..4).for_each(|i| is_mean_of(&place, &format!("mean{i}"), &[0, 1, 2, 3]));
    server.finish().done();
}

#[test]
fn openers_apart_answer_until_they_are_stopped() {
    let place = Place::new();
    bring(&place, 3);
    for name in ["a", "b", "c", "d"] {
        place
            .done(&format!("keygen --scheme ckks-sum-threshold --clients 3 --member --out {name}"));
    }
    let members = "a/member.pub,b/member.pub,c/member.pub";
    place.done(&format!(
        "job --key a/identity.json --members {members} --openers d/member.pub --open 1 --out job.json"
    ));
    let [server_node, client_node] = ["server", "client"].map(|role| {
        let made = place.json(&format!("identity --out {role}.identity"));
        made["node"].as_str().unwrap().to_owned()
    });
    place.write("allow", format!("{client_node} *\n"));
    let mut server = place.start(
        "serve --key b/public.json --job job.json --listen 127.0.0.1:0 --json --rounds 2 \
         --identity server.identity --allow allow",
    );
    let address = server.event("listening")["address"].as_str().unwrap().to_owned();
    let link = format!("--server {address} --server-key {server_node} --identity client.identity");
    let mut opener = place.start(&format!(
        "opener --key d/identity.json --job job.json {link} --transport tcp --metrics 127.0.0.1:0 --json"
    ));
    let metrics = opener.event("metrics")["address"].as_str().unwrap().to_owned();
    assert_eq!(opener.event("attending")["transport"], "tcp");
    for path in ["/healthz", "/readyz"] {
        let (head, body) = get(&metrics, path);
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && body == "ok\n",
            "{path}: {head}, {body}"
        );
    }
    assert!(get(&metrics, "/").0.starts_with("HTTP/1.1 404 "));
    let number = |name: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {metrics}\r\n\r\n");
        numbers(&ask(&metrics, request.as_bytes()))[&format!("ciphergram_{name}")]
    };
    assert_eq!((number("opener_attends"), number("opener_round")), (1.0, -1.0));
    for round in 0..2 {
        let clients = ["a", "b", "c"].into_iter().enumerate().map(|(i, name)| {
            place.start(&format!(
                "join --key {name}/identity.json --job job.json {link} --in g{i} --out mean{i}"
            ))
        });
        let clients: Vec<_> = clients.collect();
        let answered = opener.event("answered");
        assert_eq!(
            (&answered["round"], &answered["clients"]),
            (&round.into(), &[0, 1, 2][..].into())
        );
        clients.into_iter().for_each(|client| drop(client.finish().done()));
        (0..3).for_each(|i| is_mean_of(&place, &format!("mean{i}"), &[0, 1, 2]));
    }
    server.finish().done();
    assert_eq!((number("opener_answers_total"), number("opener_refusals_total")), (2.0, 0.0));
    assert_eq!(number("opener_round"), 1.0);
    opener.signal("TERM");
    let stopped = opener.finish();
    assert_eq!((stopped.code, &*stopped.stderr), (Some(143), "stopped\n"), "{stopped:?}");
    // It says what it needs.
    let none = "opener --key d/identity.json --job job.json";
    place.fails_with(2, none, &["--server"]);
    let by_chunk = "serve --key b/public.json --job job.json --by-chunk --listen 127.0.0.1:0";
    place.fails_with(2, by_chunk, &["--by-chunk", "whole contributions"]);
}

#[test]
fn members_make_their_identities_themselves() {
    let place = Place::new();
    bring(&place, 3);
    for name in ["a", "b", "c", "d"] {
        place
            .done(&format!("keygen --scheme ckks-sum-threshold --clients 3 --member --out {name}"));
    }
    let of = |members: &str, more: &str| {
        format!("job --key a/identity.json --members {members} --out job.json {more}")
    };
    let three = "a/member.pub,b/member.pub,c/member.pub";
    place.fails_with(1, &of(three, "--open 2"), &["2 of 3 openers", "choose at least 3"]);
    place.fails_with(1, &of("a/member.pub,a/member.pub,b/member.pub", ""), &["there twice"]);
    place.fails_with(1, &of("a/identity.json", ""), &["a/identity.json", "member"]);
    place.fails_with(2, "keygen --scheme ckks-sum --member --out e", &["--member"]);
    place.done(&of(three, "--openers d/member.pub --open 1"));
    let encrypt = |name: &str| {
        format!(
            "encrypt --key {name}/identity.json --job job.json --in g0 --clip 1 --out {name}.cgm"
        )
    };
    place.fails_with(1, &encrypt("d"), &["d/identity.json", "no client of the job"]);
    for name in ["a", "b", "c"] {
        place.run(&encrypt(name)).done();
    }
    let sum = |key: &str| {
        format!("aggregate --key {key} --job job.json --requests r --out s a.cgm b.cgm c.cgm")
    };
    place.fails_with(1, &sum("a/identity.json"), &["public material only"]);
    // Whoever adds has the parameters, which are the same for all.
    place.done(&sum("b/public.json"));
    place.done("opener --key d/identity.json --job job.json --in r/0.request --out 0.answer");
    place.done("decrypt --key c/identity.json --job job.json --answers 0.answer --in s --out mean");
    let [found, given] = ["mean", "g0"]
        .map(|file| from_file(&place.read(file)).into_values().next().unwrap().values);
    assert!(found.iter().zip(&given).all(|(x, y)| (x - y).abs() < 1e-4), "{found:?}");
}
