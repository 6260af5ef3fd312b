//! Models as they are: integers and truth values beside floats, metadata, and an order of a file's own.

use std::process::Command;

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::json;

use crate::support::place::{Place, binary};

/// Returns a client's model as a framework saves it: with metadata, and not in the order of the library.
fn model(client: u8) -> Vec<u8> {
    let floats = |count: usize, unit: f32| -> Vec<u8> {
        (0..count).flat_map(|i| ((i as f32 + f32::from(client)) * unit).to_le_bytes()).collect()
    };
    let steps = 1000 + i64::from(client);
    let tensors = [
        ("conv.weight", "F32", vec![40, 30], floats(1200, 1e-4)),
        ("bn.num_batches_tracked", "I64", vec![], steps.to_le_bytes().to_vec()),
        ("bn.running_mean", "F32", vec![30], floats(30, -1e-3)),
        ("mask", "BOOL", vec![5], vec![1, 0, u8::from(client == 0), 1, 0]),
        ("levels", "U8", vec![3], vec![7 * client, 255, 0]),
    ];
    let mut header = json!({"__metadata__": {"format": "pt", "made by": "a test"}});
    let mut data = vec![];
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header[name] = json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
        data.extend(bytes);
    }
    // Blanks after it are a header's own business.
    let header = format!("{header}   ");
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

/// Returns the bytes of a tensor.
fn bytes<'a>(file: &'a [u8], name: &str) -> &'a [u8] {
    SafeTensors::deserialize(file).unwrap().tensor(name).unwrap().data()
}

/// Returns the header of a file, its length before it.
fn header(file: &[u8]) -> &[u8] {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap());
    &file[..8 + length as usize]
}

fn floats(file: &[u8], name: &str) -> Vec<f32> {
    bytes(file, name).as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// The floats of a mean of clients 0, 1 and 2 are those of client 1.
fn check_mean(mean: &[u8]) {
    for name in ["conv.weight", "bn.running_mean"] {
        let (found, expected) = (floats(mean, name), floats(&model(1), name));
        assert_eq!(found.len(), expected.len());
        let near = found.iter().zip(&expected).all(|(x, y)| (x - y).abs() < 1e-4);
        assert!(near, "{name}: {found:?}");
    }
}

const KEPT: &str = "kept 3 integer tensors of the client's own: \"bn.num_batches_tracked\", \
                    \"levels\", \"mask\"";

/// Returns three clients with models `g0` to `g2` and the ranges of all.
fn place(words: &str) -> Place {
    let place = Place::with_key("ckks-sum", 3);
    (0..3).for_each(|client| place.write(&format!("g{client}"), model(client)));
    for client in 0..3 {
        place.done(&format!("ranges --out r{client}.json g{client}{words}"));
    }
    place.done("ranges --merge --out ranges.json r0.json r1.json r2.json");
    place
}

/// Encrypts and sums the three, to `sum`.
fn sum(place: &Place, words: &str) {
    for client in 0..3 {
        let words = format!("--client {client} --in g{client} --out c{client}{words}");
        place.done(&format!("encrypt --key keys/secret.json --ranges ranges.json {words}"));
    }
    place.done("aggregate --key keys/public.json --out sum c0 c1 c2");
}

const DECRYPT: &str = "decrypt --key keys/secret.json --in sum";

#[test]
fn templates_give_integers_layout_and_metadata() {
    let place = place("");
    let ranges = place.run("ranges --out again.json g0").done().stdout;
    assert!(ranges.starts_with(KEPT), "{ranges}");
    assert_eq!(place.json("inspect ranges.json")["tensors"].as_array().unwrap().len(), 2);
    let encrypt = "encrypt --key keys/secret.json --ranges ranges.json --client 0 --in g0";
    let said = place.run(&format!("{encrypt} --round 9 --out more")).done().stdout;
    assert!(said.contains(KEPT), "{said}");
    place.forget("keys/secret.json");
    sum(&place, "");
    // Nobody's integers, without a template.
    place.done(&format!("{DECRYPT} --out plain"));
    let plain = place.read("plain");
    check_mean(&plain);
    assert_eq!(SafeTensors::deserialize(&plain).unwrap().len(), 2);
    let reported = place.json(&format!("{DECRYPT} --out mean --template g2"));
    assert_eq!(reported["kept"], json!(["bn.num_batches_tracked", "levels", "mask"]));
    let (mean, template) = (place.read("mean"), model(2));
    check_mean(&mean);
    assert!(header(&mean) == header(&template));
    for name in ["bn.num_batches_tracked", "levels", "mask"] {
        assert_eq!(bytes(&mean, name), bytes(&template, name), "{name}");
    }
    // To a stream, the same.
    let mut command = Command::new(binary());
    command.current_dir(place.path("")).args(DECRYPT.split(' '));
    let out = command.args(["--template", "g2", "--out", "-"]).output().unwrap();
    assert!(out.status.success() && out.stdout == mean, "{:?}", out.stderr);
}

#[test]
fn each_client_keeps_its_own_integers() {
    let place = place("");
    place.job("--ranges ranges.json --min-clients 3");
    let (server, address) = place.serve("--clients 3");
    let clients: Vec<_> = (0..3).map(|client| place.join(&address, client, "")).collect();
    for (client, joined) in clients.into_iter().enumerate() {
        let said = joined.finish().done().stdout;
        assert!(said.contains(KEPT), "{said}");
        let (mean, own) = (place.read(&format!("mean{client}")), model(client as u8));
        check_mean(&mean);
        assert!(header(&mean) == header(&own), "client {client}");
        for name in ["bn.num_batches_tracked", "levels", "mask"] {
            assert_eq!(bytes(&mean, name), bytes(&own, name), "client {client}: {name}");
        }
    }
    server.finish().done();
}

#[test]
fn integers_are_summed_if_asked_for() {
    let place = place(" --integers sum");
    place.job("--max-range 2000 --min-clients 3");
    sum(&place, " --integers sum");
    for (words, is_template) in [("", false), (" --template g0", true)] {
        place.done(&format!("{DECRYPT} --out mean{words}"));
        let mean = place.read("mean");
        check_mean(&mean);
        assert_eq!(header(&mean) == header(&model(0)), is_template);
        assert_eq!(bytes(&mean, "bn.num_batches_tracked"), 1001i64.to_le_bytes());
        assert_eq!(bytes(&mean, "levels"), [7, 255, 0]);
        // A third of one is nearer to none.
        assert_eq!(bytes(&mean, "mask"), [1, 0, 0, 1, 0]);
    }
    let beyond = "sum: the result for tensor \"levels\" at index 1 exceeds U8; decrypt the mean";
    place.fails_with(1, &format!("{DECRYPT} --sum --out none"), &[beyond]);
    assert!(!place.path("none").exists());
    // They are a part of what all agree on.
    let encrypt = "encrypt --key keys/secret.json --ranges ranges.json --client 0 --round 9";
    let differ =
        "g0: the tensors differ: it lacks tensor \"bn.num_batches_tracked\", which was agreed";
    place.fails_with(1, &format!("{encrypt} --in g0 --out none"), &[differ]);
}

#[test]
fn what_is_refused_is_named() {
    let place = place("");
    let commands = [
        "encrypt --key keys/secret.json --client 0 --out none --in FILE",
        "join --key keys/secret.json --client 0 --server 127.0.0.1:9 --out none --in FILE",
        "ranges --out none FILE",
        "job --key keys/public.json --out none --layout FILE",
    ];
    let eight = TensorView::new(Dtype::F8_E5M2, vec![4], &[0; 4]).unwrap();
    place.write("f8", safetensors::serialize([("scale", eight)], None).unwrap());
    let whole = TensorView::new(Dtype::I64, vec![1], &[0; 8]).unwrap();
    place.write("whole", safetensors::serialize([("n", whole)], None).unwrap());
    for command in commands {
        let refuse = command.replace("FILE", "g0 --integers refuse");
        let words = "g0: tensor \"bn.num_batches_tracked\" is I64, and integers are refused";
        place.fails_with(1, &refuse, &[words]);
        for how in ["keep", "sum", "refuse"] {
            let words =
                "f8: tensor \"scale\" is F8_E5M2; only F16, BF16, F32 and F64 can be summed";
            let command = command.replace("FILE", &format!("f8 --integers {how}"));
            place.fails_with(1, &command, &[words]);
        }
        place.fails_with(2, &command.replace("FILE", "g0 --integers some"), &["--integers"]);
    }
    // A round is not spent on them either.
    for command in &commands[..2] {
        let words =
            "whole: all its tensors are of integers, which are kept: --integers sum sums them";
        place.fails_with(1, &command.replace("FILE", "whole"), &[words]);
    }
    place.fails_with(2, "ranges --merge --integers keep --out none r0.json", &["--integers"]);
    sum(&place, "");
    let conv = TensorView::new(Dtype::F32, vec![2], &[0; 8]).unwrap();
    place.write("other", safetensors::serialize([("conv.weight", conv)], None).unwrap());
    let differ = "other: the tensors differ: it lacks tensor \"bn.running_mean\", which was agreed";
    place.fails_with(1, &format!("{DECRYPT} --out none --template other"), &[differ]);
    place.fails_with(1, &format!("{DECRYPT} --out none --template sum"), &["sum: not a valid"]);
    assert!(!place.path("none").exists());
    // Nothing was opened yet, and the sum opens.
    place.done(&format!("{DECRYPT} --out mean --template g0"));
}
