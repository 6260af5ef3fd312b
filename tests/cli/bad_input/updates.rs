//! Tensors that cannot be summed, and safetensors files that contradict themselves.

use safetensors::Dtype;

use super::{
    table::{Row, check, row},
    world,
};
use crate::support::tensors::{Tensor, single, to_file};

const ENCRYPT: &str = "encrypt --key keys/secret.json --client 0 --in bad --out out";
const JOIN: &str = "join --key keys/secret.json --client 0 --server 127.0.0.1:9 --in bad --out out";

/// Returns a row for each command that reads tensors.
fn read_by_all(bytes: &[u8], part: &str) -> Vec<Row> {
    let commands = [
        ENCRYPT,
        JOIN,
        "ranges --out out bad",
        "job --key keys/public.json --out out --layout bad",
    ];
    let rows = commands.map(|words| row(1, words, "bad: ").and(part).with("bad", bytes));
    rows.into_iter().collect()
}

/// Returns a file of this header, which says its own length, and bytes of data.
fn file(header: &str, data_bytes: usize) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), &vec![0; data_bytes]].concat()
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let tensor = |name: &str, dtype: &str, shape: &str, offsets: &str| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
    };
    let one = |dtype: &str, shape: &str, offsets: &str, data_bytes| {
        file(&format!("{{{}}}", tensor("t", dtype, shape, offsets)), data_bytes)
    };
    let two = |a: &str, b: &str, data_bytes| file(&format!("{{{a},{b}}}"), data_bytes);
    let f32 = |name: &str, offsets: &str| tensor(name, "F32", "[2]", offsets);
    let huge = u64::MAX.to_string();
    let cases = [
        // Sizes.
        one("F32", "[2]", "[0,8]", 7),
        one("F32", "[2]", "[0,8]", 9),
        one("F32", "[2]", "[0,8]", 0),
        one("F32", "[3]", "[0,8]", 8),
        one("F32", "[2]", "[8,0]", 8),
        one("F32", "[2]", "[4,12]", 12),
        one("F32", "[-2]", "[0,8]", 8),
        one("F32", "[2.5]", "[0,10]", 10),
        one("F32", &format!("[{huge}]"), "[0,8]", 8),
        one("F32", &format!("[{huge},{huge},2]"), "[0,8]", 8),
        one("F32", "[4611686018427387904]", "[0,0]", 0),
        one("F32", "[2]", &format!("[0,{huge}]"), 8),
        one("F32", "[2]", &format!("[{huge},8]"), 8),
        one("F32", "[1000000000000]", "[0,4000000000000]", 8),
        // Types.
        one("F12", "[2]", "[0,8]", 8),
        one("", "[2]", "[0,8]", 8),
        one("F32", "2", "[0,8]", 8),
        one("F32", "[2]", "[0]", 8),
        // Tensors that overlap, or leave bytes out, or have the same name.
        two(&f32("t", "[0,8]"), &f32("u", "[4,12]"), 12),
        two(&f32("t", "[0,8]"), &f32("u", "[0,8]"), 8),
        two(&f32("t", "[0,8]"), &f32("u", "[12,20]"), 20),
        two(&f32("t", "[0,8]"), &f32("t", "[8,16]"), 16),
        two(&f32("t", "[0,8]"), &f32("t", "[0,8]"), 8),
        // What is no header.
        file("", 0),
        file("null", 0),
        file("[]", 0),
        file("{", 0),
        file("{\"t\":", 8),
        file("{\"t\":{}}", 8),
        file("{\"t\":3}", 8),
        file(&"[".repeat(100_000), 0),
        file(&"{\"t\":".repeat(100_000), 0),
        [&8u64.to_le_bytes()[..], &[0xff; 8]].concat(),
        [&9u64.to_le_bytes()[..], b"{}"].concat(),
        [&u64::MAX.to_le_bytes()[..], b"{}"].concat(),
        [&(i64::MAX as u64).to_le_bytes()[..], b"{}"].concat(),
        [&100_000_001u64.to_le_bytes()[..], b"{}"].concat(),
        [&2u32.to_le_bytes()[..], b"{}"].concat(),
    ];
    check(&world(), cases.iter().flat_map(|bytes| read_by_all(bytes, "")).collect());
}

#[test]
fn nonfinite_values_of_every_type_are_named() {
    let cases = [(f64::NAN, 1, "NaN"), (f64::INFINITY, 0, "inf"), (f64::NEG_INFINITY, 2, "-inf")];
    let rows = [Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64].into_iter().flat_map(|dtype| {
        cases.into_iter().flat_map(move |(value, index, name)| {
            let mut tensors = single(&[0.5]);
            let mut bad = Tensor::new(dtype, &[3], vec![0.0; 3]);
            bad.values[index] = value;
            tensors.insert("layer.bad".into(), bad);
            let part = format!("tensor \"layer.bad\" has {name} at index {index};");
            let of = |words: &str| row(1, words, "bad: ").and(&part).with("bad", to_file(&tensors));
            ["ranges --out out bad", &format!("{ENCRYPT} --clip 1"), JOIN].map(of)
        })
    });
    check(&world(), rows.collect());
}

#[test]
fn weights_and_ranges_beyond_jobs_are_refused() {
    let above = "g: weight 10 is not from 1 to the agreed largest, 9";
    let (encrypt, join) = (ENCRYPT.replace("bad", "g"), JOIN.replace("bad", "g"));
    let mut rows = vec![
        row(1, &format!("{encrypt} --weight 10"), above),
        row(1, &format!("{join} --weight 10"), above),
        row(1, &encrypt.replace(" --client 0", ""), "keys/secret.json: which client contributes?"),
        row(1, &format!("{encrypt} --round 0"), "client 0 has sealed a contribution to round 0"),
        row(1, &format!("{encrypt} --round 18446744073709551615"), "").or_not(),
    ];
    for client in [3, 64, 65535] {
        let part = format!("client {client} of 3 clients, which are numbered from 0");
        let words = |words: &str| words.replace("--client 0", &format!("--client {client}"));
        let rows_of = [&encrypt, &join].map(|line| row(1, &words(line), &part));
        rows.extend(rows_of);
    }
    check(&world(), rows);
}
