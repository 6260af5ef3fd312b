//! Rounds between network namespaces: real interfaces, datagrams that the kernel drops, a relay
//! that trims, and `kill -9` amid a round. `cargo xtask test --only namespaces` shows them.
//!
//! Where there is no root, `ip` or `nft`, it says so and passes.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use safetensors::Dtype;
use serde_json::{Value, json};

use crate::support::namespaces::{Net, RELAY, SERVER};
use crate::support::place::{Place, Process};
use crate::support::tensors::{HALF_STEPS, from_file, is_near, single, to_file, uniform};

const CLIENTS: usize = 3;

/// A scheme and a number of values; the last one takes long enough to be killed in.
type Load = (&'static str, usize);
const LATTICE: Load = ("ckks-sum", 400_000);
const PAILLIER: Load = ("paillier-2048", 30_000);
const LONGER: Load = ("paillier-2048", 60_000);

/// One round between namespaces.
struct Round {
    place: Place,
    net: Net,
    brought: Vec<Vec<f64>>,
    server_key: String,
    begin: Instant,
    /// The relay, killed before its namespace goes. None where clients find the aggregator
    /// itself, and everyone has several pipelines.
    relay: Option<Process>,
}

impl Round {
    /// Makes a network, with a relay or without; none where there cannot be one.
    fn new((scheme, values): Load, direct: bool) -> Option<Self> {
        let net = Net::new(CLIENTS, direct)?;
        let place = Place::with_key(scheme, CLIENTS as u32);
        let brought: Vec<_> = (0..CLIENTS as u64).map(|seed| integers(seed, values)).collect();
        for (i, values) in brought.iter().enumerate() {
            place.write(&format!("g{i}"), to_file(&single(values)));
        }
        // One step is 1, so that integers are summed as they are.
        place.settle("g0", HALF_STEPS, 1, "");
        let server_key = String::from_utf8(place.read("keys/server.node")).unwrap();
        let relay = (!direct).then(|| {
            let words = format!("relay --listen {RELAY} --to {SERVER} --trim 5");
            let mut relay = place.start_by(&net.between(), &words);
            relay.event("listening");
            relay
        });
        let server_key = server_key.trim().to_owned();
        Some(Self { place, net, brought, server_key, begin: Instant::now(), relay })
    }

    fn serve(&self) -> Process {
        let keys =
            "--key keys/public.json --identity keys/server.identity --allow keys/clients.allow";
        let pipelines = if self.relay.is_some() { 1 } else { 2 };
        let words = format!(
            "serve {keys} --clients {CLIENTS} --listen {SERVER} --tune pipelines={pipelines} --json"
        );
        let mut server = self.place.start_by(&self.net.server(), &words);
        server.event("listening");
        server
    }

    fn join(&self, client: usize) -> Process {
        let nodes = format!("--identity keys/client.identity --server-key {}", self.server_key);
        let files = format!("--key keys/secret.json --in g{client} --out mean{client}");
        let (to, pipelines) =
            if self.relay.is_some() { (RELAY, 1) } else { (SERVER, 1 + client % 3) };
        let words = format!(
            "join {files} --server {to} --tune pipelines={pipelines} {nodes} --client {client}"
        );
        self.place.start_by(&self.net.client(client), &words)
    }

    fn spool(&self) -> PathBuf {
        self.place.path("mean0.spool")
    }

    /// Until client 0 has sealed some of its chunks.
    fn wait_for_chunks(&self) {
        let late = Instant::now() + Duration::from_secs(60);
        while fs::metadata(self.spool()).map_or(0, |m| m.len()) < 30_000 {
            assert!(Instant::now() < late, "client 0 seals nothing");
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Everyone ends well, and has the exact mean of everyone's integers; then what became of the
    /// datagrams is counted. Returns what the clients said.
    fn end(self, what: &str, mut server: Process, clients: Vec<Process>) -> Vec<String> {
        let said: Vec<_> =
            clients.into_iter().map(|client| client.finish().done().stdout).collect();
        let closed = server.event("closed");
        let all = |i: usize| json!({"client": i, "chunks": closed["chunks"]});
        assert_eq!(closed["contributed"], (0..CLIENTS).map(all).collect::<Value>(), "{closed}");
        assert_eq!(closed["withheld"], 0);
        let done = server.event("done");
        server.finish().done();
        let seconds = self.begin.elapsed().as_secs_f64();

        let means: Vec<_> = (0..CLIENTS).map(|i| self.place.read(&format!("mean{i}"))).collect();
        assert!(means.iter().all(|mean| *mean == means[0]), "clients have different means");
        assert!(!self.spool().exists(), "a spool outlives its sum");
        let mean = &from_file(&means[0])["t"].values;
        assert_eq!(mean.len(), self.brought[0].len());
        for (i, &x) in mean.iter().enumerate() {
            let expected = self.brought.iter().map(|b| b[i]).sum::<f64>() / CLIENTS as f64;
            assert!(is_near(Dtype::F32, x, expected, 0.0), "value {i} is {x}, not {expected}");
        }
        let again = &done["retransmitted_datagrams"];
        println!("{what}: {} values of {CLIENTS} clients, exact, {seconds:.1} s", mean.len());
        println!("  the server sent {again} datagrams again");
        if self.relay.is_some() {
            println!("  {}", self.net.report());
            self.net.check();
        } else {
            self.net.check_direct();
            assert!(done["congested_datagrams"].as_u64().unwrap() > 0, "{done}");
        }
        said
    }
}

/// Numbers that quantisation leaves as they are: their mean is known to the last digit.
fn integers(seed: u64, values: usize) -> Vec<f64> {
    let mut draw = uniform(seed);
    let numbers = std::iter::from_fn(|| Some((HALF_STEPS * draw()).round()));
    numbers.filter(|x| x / HALF_STEPS * HALF_STEPS == *x).take(values).collect()
}

fn whole(load: Load) {
    let Some(round) = Round::new(load, false) else { return };
    let server = round.serve();
    let clients = (0..CLIENTS).map(|i| round.join(i)).collect();
    round.end(load.0, server, clients);
}

#[test]
fn ckks_sum_is_exact_over_lossy_namespaces() {
    whole(LATTICE);
}

#[test]
fn paillier_is_exact_over_lossy_namespaces() {
    whole(PAILLIER);
}

#[test]
fn a_client_lost_and_back_counts_once() {
    let Some(round) = Round::new(LONGER, false) else { return };
    let mut server = round.serve();
    let mut clients: Vec<_> = (0..CLIENTS).map(|i| round.join(i)).collect();
    round.wait_for_chunks();
    clients[0].kill();
    assert!(round.spool().exists() && !round.place.path("mean0").exists(), "it had ended");
    clients[0] = round.join(0);
    assert_eq!(server.event("resumed")["client"], 0);
    round.end("paillier-2048, a client killed and started again", server, clients);
}

#[test]
fn a_restarted_aggregator_sums_the_same() {
    let Some(round) = Round::new(LONGER, false) else { return };
    let mut server = round.serve();
    let clients: Vec<_> = (0..CLIENTS).map(|i| round.join(i)).collect();
    server.event("opened");
    round.wait_for_chunks();
    server.kill();
    assert!((0..CLIENTS).all(|i| !round.place.path(&format!("mean{i}")).exists()), "it had ended");
    let server = round.serve();
    round.end("paillier-2048, the aggregator killed and started again", server, clients);
}

#[test]
fn pipelines_survive_lossy_and_marking_namespaces() {
    let Some(round) = Round::new(LONGER, true) else { return };
    let mut server = round.serve();
    let mut clients: Vec<_> = (0..CLIENTS).map(|i| round.join(i)).collect();
    round.wait_for_chunks();
    clients[0].kill();
    clients[0] = round.join(0);
    assert_eq!(server.event("resumed")["client"], 0);
    round.end("paillier-2048, two pipelines, a client killed and started again", server, clients);
}

#[test]
fn narrow_paths_and_firewalls_carry_a_round() {
    let Some(round) = Round::new(LONGER, true) else { return };
    round.net.obstruct();
    let server = round.serve();
    let clients = (0..CLIENTS).map(|i| round.join(i)).collect();
    let said = round.end("paillier-2048, paths of 1,300 bytes and no UDP", server, clients);
    let by_tcp: Vec<_> = said.iter().map(|text| text.contains("\nby TCP, ")).collect();
    assert_eq!(by_tcp, [false, true, false], "{said:?}");
}
