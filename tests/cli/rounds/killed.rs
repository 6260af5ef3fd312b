//! `kill -9` of a client in the middle of a round: the sum stays exact, chunk by chunk, over the
//! clients that are in it, and the client may come back.

use std::{
    net::UdpSocket,
    ops::Range,
    time::{Duration, Instant},
};

use ciphergram_he::{PublicKey, params::Chunks};
use safetensors::Dtype;
use serde_json::{Value, json};

use crate::support::place::{DEADLINE, Place, Process};
use crate::support::tensors::{HALF_STEPS, from_file, is_near, single, to_file, uniform};

/// The client that is killed, and its spool.
const VICTIM: usize = 2;
const SPOOL: &str = "mean2.spool";
/// A scheme, and a number of values.
type Load = (&'static str, usize);
const LATTICE: Load = ("ckks-sum", 1_500_000);
const PAILLIER: Load = ("paillier-2048", 60_000);

/// Three clients and their integers, which quantisation leaves as they are: sums of them are known
/// to the last digit.
struct Trio {
    place: Place,
    clients: Vec<Vec<f64>>,
    chunks: Chunks,
}

fn integers(seed: u64, values: usize) -> Vec<f64> {
    let mut draw = uniform(seed);
    let numbers = std::iter::from_fn(|| Some((HALF_STEPS * draw()).round()));
    numbers.filter(|x| x / HALF_STEPS * HALF_STEPS == *x).take(values).collect()
}

/// Up to where the records of a spool are whole. The one after may have been cut while it was
/// written: it was never sent, and nobody reads it.
fn whole_records(spool: &[u8]) -> usize {
    const MAGIC: usize = 8;
    // The length before a record's content, with what vouches for it, and the tag after.
    const AROUND: usize = 4 + 4 + 16;
    let mut end = MAGIC;
    while let Some(length) = spool.get(end..).and_then(|rest| rest.first_chunk()) {
        let next = end + AROUND + u32::from_le_bytes(*length) as usize;
        if next > spool.len() {
            break;
        }
        end = next;
    }
    end.min(spool.len())
}

impl Trio {
    fn new(scheme: &str, values: usize) -> Self {
        let place = Place::with_key(scheme, 3);
        let clients: Vec<_> = (0..3).map(|i| integers(i, values)).collect();
        for (i, values) in clients.iter().enumerate() {
            place.write(&format!("g{i}"), to_file(&single(values)));
        }
        // One step is 1.
        place.settle("g0", HALF_STEPS, 1, "--min-clients 2");
        let key = PublicKey::load(&place.path("keys/public.json")).unwrap();
        let chunks = key.parameters().chunks(values);
        Self { place, clients, chunks }
    }

    /// Starts everyone, and kills the victim once its link broke amid its chunks. The survivors.
    fn kill_one(&self, address: &str) -> [Process; 2] {
        let survivors =
            [0, 1].map(|i| self.place.join(address, i, &format!("--cohorts cohorts{i}")));
        let half = self.chunks.total_bytes() / 2;
        let relay =
            format!("relay --listen 127.0.0.1:0 --to {address} --bytes {half} --seconds 60");
        let mut relay = self.place.start(&relay);
        let link = relay.event("listening")["address"].as_str().unwrap().to_owned();
        let mut victim = self.place.join(&link, VICTIM, "");
        relay.finish().done();
        assert!(victim.is_running());
        victim.kill();
        assert!(self.place.path(SPOOL).exists() && !self.place.path("mean2").exists());
        survivors
    }

    /// Returns the cohorts that both survivors wrote: the clients of each, its chunks, and its values.
    fn cohorts(&self) -> Vec<(Value, Value, Vec<Range<usize>>)> {
        let [file, same] = [0, 1].map(|i| self.place.read(&format!("cohorts{i}")));
        assert!(file == same, "the survivors have different cohorts");
        let file: Value = serde_json::from_slice(&file).unwrap();
        assert_eq!((&file["kind"], &file["round"]), (&json!("ciphergram-cohorts"), &json!(0)));
        let run = |run: &Value| {
            assert_eq!(run["tensor"], "t");
            let index = |name: &str| run[name].as_u64().unwrap() as usize;
            index("first")..index("end")
        };
        let cohort = |c: &Value| {
            let runs = c["values"].as_array().unwrap().iter().map(run).collect();
            (c["clients"].clone(), c["chunks"].clone(), runs)
        };
        file["cohorts"].as_array().unwrap().iter().map(cohort).collect()
    }

    /// In how many chunks the victim is: each is exactly the mean of all three, or exactly that of
    /// the other two.
    fn chunks_with_victim(&self, mean: &[f64]) -> u32 {
        let holds = |chunk, count: usize| {
            let expected =
                |i: usize| self.clients[..count].iter().map(|c| c[i]).sum::<f64>() / count as f64;
            let near = |i: usize| is_near(Dtype::F32, mean[i], expected(i), 0.0);
            self.chunks.values_of(chunk).all(near)
        };
        let with = (0..self.chunks.count()).filter(|&chunk| {
            let (all, two) = (holds(chunk, 3), holds(chunk, 2));
            assert!(all != two, "chunk {chunk} is of neither");
            all
        });
        with.count() as u32
    }

    fn mean(&self, number: usize) -> Vec<f64> {
        from_file(&self.place.read(&format!("mean{number}")))["t"].values.clone()
    }

    /// Returns what `closed` must say if the victim is in `with` chunks.
    fn contributed(&self, with: u32) -> Value {
        let count = |i| if i == VICTIM { with } else { self.chunks.count() };
        (0..3).map(|i| json!({"client": i, "chunks": count(i)})).collect()
    }
}

#[test]
fn the_deadline_ends_rounds_over_those_present() {
    let trio = Trio::new(PAILLIER.0, PAILLIER.1);
    let (mut server, address) =
        trio.place.serve(&format!("--clients 3 --min-clients 2 {DEADLINE} --by-chunk"));
    let begin = Instant::now();
    for survivor in trio.kill_one(&address) {
        let ran = survivor.finish().done();
        assert!(ran.stdout.contains("over 3 contributors; 2 in "), "{ran:?}");
        assert!(ran.stdout.trim_end().ends_with(" % of chunks"), "{ran:?}");
    }
    let lasted = begin.elapsed();
    assert!(lasted > Duration::from_secs(15), "before the deadline: {lasted:?}");
    assert!(trio.place.read("mean0") == trio.place.read("mean1"));
    let mean = trio.mean(0);
    let (with, all) = (trio.chunks_with_victim(&mean), trio.chunks.count());
    assert!(0 < with && with < all, "the victim was killed too early or too late: {with} of {all}");
    let mut values = 0;
    for (clients, chunks, runs) in trio.cohorts() {
        let numbers: Vec<usize> = serde_json::from_value(clients).unwrap();
        assert_eq!(chunks, json!(if numbers.contains(&VICTIM) { with } else { all - with }));
        for i in runs.into_iter().flatten() {
            let sum: f64 = numbers.iter().map(|c| trio.clients[*c][i]).sum();
            assert!(is_near(Dtype::F32, mean[i], sum / numbers.len() as f64, 0.0), "value {i}");
            values += 1;
        }
    }
    assert_eq!(values, mean.len());
    let closed = server.event("closed");
    assert_eq!(closed["contributed"], trio.contributed(with), "{closed}");
    assert_eq!((&closed["chunks"], &closed["withheld"]), (&json!(all), &json!(0)));
    server.finish().done();
}

#[test]
fn incomplete_contributions_of_killed_clients_never_count() {
    let trio = Trio::new(LATTICE.0, LATTICE.1);
    let words = format!("--clients 3 --min-clients 2 {DEADLINE}");
    let (mut server, address) = trio.place.serve(&words);
    for survivor in trio.kill_one(&address) {
        let ran = survivor.finish().done();
        assert!(ran.stdout.trim_end().ends_with("over 2 contributors"), "{ran:?}");
    }
    let cohorts = trio.cohorts();
    let [(clients, _, values)] = &cohorts[..] else { panic!("a mean is of one cohort") };
    assert_eq!((clients, &values[..]), (&json!([0, 1]), std::slice::from_ref(&(0..LATTICE.1))));
    assert_eq!(trio.chunks_with_victim(&trio.mean(0)), 0);
    let closed = server.event("closed");
    assert_eq!(closed["contributed"], trio.contributed(0), "{closed}");
    assert_eq!((&closed["chunks"], &closed["withheld"]), (&json!(trio.chunks.count()), &json!(0)));
    server.finish().done();
}

/// Under `ckks-sum`, and for people: who is missing from how many chunks.
#[test]
fn the_missing_are_named() {
    let trio = Trio::new(LATTICE.0, LATTICE.1);
    let serve = format!(
        "serve --key keys/public.json --clients 3 --min-clients 2 {DEADLINE} --by-chunk --listen"
    );
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = trio.place.start(&format!("{serve} {address}"));
    for survivor in trio.kill_one(&address.to_string()) {
        survivor.finish().done();
    }
    let (with, all) = (trio.chunks_with_victim(&trio.mean(0)), trio.chunks.count());
    let said = server.finish().done().stdout;
    let line = format!(
        "round 0: {all} of {all} chunks summed, whole contributions of clients [0, 1]; deadline \
         passed with client 2 in {with} of {all} chunks"
    );
    assert!(said.lines().any(|l| l == line), "{said}, not {line}");
}

#[test]
fn a_restarted_client_counts_once_gets_sums() {
    for (scheme, values) in [LATTICE, PAILLIER] {
        let trio = Trio::new(scheme, values);
        let place = &trio.place;
        let (mut server, address) = place.serve("--clients 3 --deadline 60");
        let survivors = trio.kill_one(&address);
        assert_eq!(place.json(&format!("inspect {SPOOL}"))["kind"], "spool");
        assert!(place.done(&format!("inspect {SPOOL}")).contains("sealed chunks"));
        let again = |words: &str| place.join(&address, VICTIM, words);
        let spool = place.read(SPOOL);

        // With other tensors, ranges or another number, nothing goes out: it would not be the same.
        place.write("other", to_file(&single(&trio.clients[0])));
        let mine = place.read("g2");
        place.write("g2", place.read("other"));
        let reported = again("").finish().error(1);
        assert!(
            reported.contains("mean2.spool: it holds another unfinished contribution"),
            "{reported}"
        );
        place.write("g2", mine);
        let other = "job --key keys/public.json --max-range 32767 --ranges keys/ranges.json";
        place.done(&format!("{other} --out job{scheme}"));
        let reported = again(&format!("--job job{scheme}")).finish().error(1);
        assert!(
            reported.contains("mean2.spool: it holds this contribution under another job"),
            "{reported}"
        );
        let reported = place.join(&address, 0, "--spool mean2.spool").finish().error(1);
        assert!(
            reported.contains("mean2.spool: it holds another unfinished contribution"),
            "{reported}"
        );
        // Without the spool it would be another contribution.
        let reported = again("--spool none").finish().error(1);
        assert!(reported.contains("contributor 2 already joined round 0"), "{reported}");
        let mut damaged = spool.clone();
        // In the header, which is whole.
        damaged[60] ^= 1;
        place.write("damaged", damaged);
        let reported = again("--spool damaged").finish().error(1);
        assert!(reported.contains("damaged: it is damaged at byte"), "{reported}");
        // Of the spool, a refusal takes only what was being written when its client was killed.
        let (kept, whole) = (place.read(SPOOL), whole_records(&spool));
        assert!(kept == spool[..whole], "{} bytes, not {whole} of {}", kept.len(), spool.len());

        again("").finish().done();
        for survivor in survivors {
            survivor.finish().done();
        }
        assert_eq!(server.event("resumed")["client"], VICTIM);
        let closed = server.event("closed");
        assert_eq!(closed["contributed"], trio.contributed(trio.chunks.count()), "{closed}");
        server.finish().done();
        assert_eq!(trio.chunks_with_victim(&trio.mean(VICTIM)), trio.chunks.count());
        assert!((0..2).all(|i| place.read(&format!("mean{i}")) == place.read("mean2")));
        assert!(!place.path(SPOOL).exists());
    }
}

#[test]
fn below_the_minimum_no_sum_leaves() {
    let trio = Trio::new(LATTICE.0, LATTICE.1);
    let (mut server, address) =
        trio.place.serve(&format!("--clients 3 --min-clients 3 {DEADLINE}"));
    for survivor in trio.kill_one(&address) {
        let reported = survivor.finish().error(1);
        assert!(reported.contains("chunks were withheld"), "{reported}");
    }
    let closed = server.event("closed");
    let (withheld, all) = (closed["withheld"].as_u64().unwrap(), trio.chunks.count());
    assert!(withheld > 0 && closed["summed"].as_u64().unwrap() + withheld == u64::from(all));
    let reported = server.finish().error(1);
    assert!(
        reported.contains(&format!("{withheld} of {all} chunk sums were withheld")),
        "{reported}"
    );
    assert!((0..3).all(|i| !trio.place.path(&format!("mean{i}")).exists()));
}
