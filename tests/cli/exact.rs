//! Sums that are exact: integers of any range, and tensors in more bits than the key's.

use std::fs;

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::json;

use crate::support::place::Place;

/// The counts of three clients, `g0` to `g2`, and their sum and mean: ends of the range beside the smallest.
const COUNTS: [i64; 5] = [1_000_000, 3, 1, 0, -1_000_000];
const SUMS: [i64; 5] = [3_000_000, 9, 3, 0, -3_000_000];

fn bytes(integers: &[i64]) -> Vec<u8> {
    integers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn bring(place: &Place, client: usize, counts: &[i64], floats: &[f32]) {
    let (counts, shape) = (bytes(counts), vec![counts.len()]);
    let floats: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
    let float = || TensorView::new(Dtype::F32, vec![floats.len() / 4], &floats).unwrap();
    let counts = TensorView::new(Dtype::I64, shape, &counts).unwrap();
    let tensors = [("body.w", float()), ("counts", counts), ("head.w", float())];
    place.write(&format!("g{client}"), safetensors::serialize(tensors, None).unwrap());
}

fn integers(file: &[u8]) -> Vec<i64> {
    let data = SafeTensors::deserialize(file).unwrap().tensor("counts").unwrap().data().to_vec();
    data.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

fn floats(file: &[u8], name: &str) -> Vec<f32> {
    let data = SafeTensors::deserialize(file).unwrap().tensor(name).unwrap().data().to_vec();
    data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Three clients with the same counts, and a job that admits them.
fn place(scheme: &str, words: &str) -> Place {
    let place = Place::with_key(scheme, 4);
    (0..3).for_each(|client| bring(&place, client, &COUNTS, &[0.3, -0.7]));
    place.job(&format!("--max-range 1e7 --clients 3 {words}"));
    place
}

/// Writes the ranges of all to `ranges`.
fn ranges(place: &Place, words: &str) {
    for client in 0..3 {
        place.done(&format!("ranges --integers sum --out r{client} g{client}{words}"));
    }
    place.done("ranges --merge --out ranges r0 r1 r2");
}

fn encrypt(place: &Place, client: usize, words: &str) -> String {
    let (input, number) = (format!("--in g{client} --out c{client}"), format!("--client {client}"));
    let key = "encrypt --key keys/secret.json --integers sum --ranges ranges";
    let command = format!("{key} {number} {input}{words}");
    place.json(&command)["ciphertext_bytes"].to_string()
}

const AGGREGATE: &str = "aggregate --key keys/public.json --out sum c0 c1 c2";
const DECRYPT: &str = "decrypt --key keys/secret.json --in sum --out out";

#[test]
fn integers_are_summed_exactly_over_files() {
    for scheme in ["ckks-sum", "paillier-2048"] {
        let place = place(scheme, "");
        ranges(&place, "");
        (0..3).for_each(|client| drop(encrypt(&place, client, "")));
        place.done(AGGREGATE);
        place.done(&format!("{DECRYPT} --sum"));
        assert_eq!(integers(&place.read("out")), SUMS);
        place.done(DECRYPT);
        assert_eq!(integers(&place.read("out")), COUNTS);
        let inspected = place.json("inspect sum");
        let steps = inspected["tensors"].as_array().unwrap().iter().map(|t| t["step"].clone());
        assert_eq!(steps.collect::<Vec<_>>()[1], json!(1.0));
    }
}

#[test]
fn weighed_integers_are_summed_exactly_too() {
    let place = place("ckks-sum", "");
    let (weights, counts) = ([999, 7, 1], [5_i64, 6, 9_999_999]);
    for (client, count) in counts.into_iter().enumerate() {
        bring(&place, client, &[count, -count, 1], &[0.0]);
    }
    for (client, weight) in weights.iter().enumerate() {
        place.done(&format!("ranges --integers sum --weight {weight} --out r{client} g{client}"));
    }
    place.done("ranges --merge --out ranges r0 r1 r2");
    for (client, weight) in weights.iter().enumerate() {
        encrypt(&place, client, &format!(" --weight {weight}"));
    }
    place.done(AGGREGATE);
    place.done(&format!("{DECRYPT} --sum"));
    let sum = 999 * 5 + 7 * 6 + 9_999_999;
    assert_eq!(integers(&place.read("out")), [sum, -sum, 1007]);
    place.done(DECRYPT);
    // 9,935.48
    assert_eq!(integers(&place.read("out")), [9935, -9935, 1]);
}

#[test]
fn integers_and_wider_tensors_make_network_rounds() {
    let place = place("ckks-sum", "--bits head.*=31");
    let (mut server, address) = place.serve("--clients 3");
    let words = "--integers sum --sum";
    let clients: Vec<_> = (0..3).map(|i| place.join(&address, i, words)).collect();
    for (client, process) in clients.into_iter().enumerate() {
        process.finish().done();
        let sum = place.read(&format!("mean{client}"));
        assert_eq!(integers(&sum), SUMS);
        let fine = f64::from(floats(&sum, "head.w")[0]) - f64::from(3.0 * 0.3f32);
        assert!(fine.abs() <= 3.0 / f64::from((1 << 30) - 1) + 2f64.powi(-24), "{fine}");
    }
    server.event("done");
    server.finish().done();
}

#[test]
fn a_job_may_set_bits_per_tensor() {
    let place = place("ckks-sum", "--bits *=20 --bits head.*=32");
    ranges(&place, "");
    (0..3).for_each(|client| drop(encrypt(&place, client, "")));
    place.done(AGGREGATE);
    place.done(DECRYPT);
    let mean = place.read("out");
    for (name, bits) in [("head.w", 32), ("body.w", 20)] {
        let bound = 0.7 / f64::from((1u32 << (bits - 1)) - 1) + 0.7 * 2f64.powi(-24);
        for (x, exact) in floats(&mean, name).iter().zip([0.3f32, -0.7]) {
            assert!((f64::from(*x) - f64::from(exact)).abs() <= bound, "{name}: {x}");
        }
    }
    assert_eq!(integers(&mean), COUNTS);
    let tensors = place.json("inspect sum")["tensors"].clone();
    assert_eq!(tensors[2]["step"], json!(0.7f32 as f64 / 2_147_483_647.0));
    let text = place.done("inspect keys/job.json");
    assert!(text.contains("head.*"), "{text}");
    for (bits, words) in [("head.*=7", "7; choose 8 to 48"), ("x=49", "49; choose 8 to 48")] {
        let job = format!("job --key keys/public.json --out none --bits {bits}");
        place.fails_with(1, &job, &[words]);
    }
    place.fails_with(2, "job --key keys/public.json --out none --bits 24", &["NAME=BITS"]);
}

/// Noise is for all values alike, and no sum of it is exact.
#[test]
fn integers_get_noise_as_floats_do() {
    let place = place("ckks-sum", "--dp-sigma 0.01 --dp-clip 2000000");
    for client in 0..3 {
        let words = format!("--client {client} --in g{client} --out c{client}");
        place.done(&format!("encrypt --key keys/secret.json --integers sum {words}"));
    }
    place.done(AGGREGATE);
    place.done(DECRYPT);
    let mean = integers(&place.read("out"));
    let near = mean.iter().zip(COUNTS).all(|(found, count)| (found - count).abs() < 200_000);
    assert!(near && mean != COUNTS, "{mean:?}");
    ranges(&place, "");
    let encrypt = "encrypt --key keys/secret.json --integers sum --client 0 --in g0 --out none --ranges ranges";
    place.fails_with(1, encrypt, &["tensor", "has range"]);
    let bits = "job --key keys/public.json --out none --dp-sigma 1 --dp-clip 1 --bits head.*=24";
    place.fails_with(1, bits, &["no such job: bits of tensors beside noise"]);
}

#[test]
fn only_a_client_itself_clips_integers() {
    let place = place("ckks-sum", "");
    ranges(&place, "");
    bring(&place, 0, &[0, 1_000_001, 0, 0, 0], &[0.3, -0.7]);
    let encrypt = "encrypt --key keys/secret.json --integers sum --client 0 --in g0 --out c0";
    place.done(&format!("{encrypt} --ranges ranges --clip 1000000.5"));
    let policy = place.json("ranges --integers sum --policy sigma:1 --out r g2");
    assert_eq!(policy["ranges"]["tensors"][1]["range"], json!(1e6), "integers are not clipped");
    fs::remove_file(place.path("c0")).unwrap();
}
