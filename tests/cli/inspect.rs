//! Descriptions of files, operations and engines, and never a secret: every command
//! that the tests run is searched for the secrets of all keys beside it. (A spool is inspected in
//! `rounds/killed.rs`, where there is one.)

use std::fs;

use ciphergram_he::{Contribution, PublicKey, ckks::Operation};
use serde_json::{Value, json};

use crate::support::place::Place;
use crate::support::tensors::{mixed, to_file};

/// Returns a key for three clients, its tensors `g`, their ranges, three contributions and their
/// sum.
fn place(scheme: &str) -> Place {
    let place = Place::with_key(scheme, 3);
    place.write("g", to_file(&mixed(5)));
    place.done("ranges --out ranges.json --weight 7 g");
    for (i, out) in ["a.cgm", "b.cgm", "c.cgm"].into_iter().enumerate() {
        let words = "encrypt --key keys/secret.json --in g --ranges ranges.json --weight 2";
        place.done(&format!("{words} --client {i} --out {out}"));
    }
    place.done("aggregate --key keys/public.json --out sum.cgm a.cgm b.cgm c.cgm");
    place
}

/// Returns a file as JSON; as text it says the same of its kind and values.
fn inspect(place: &Place, file: &str, kind: &str) -> Value {
    let value = place.json(&format!("inspect {file}"));
    assert_eq!(value["kind"], kind, "{file}");
    let text = place.done(&format!("inspect {file}"));
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("kind ") && first.contains(kind.split(' ').next().unwrap()),
        "{text}"
    );
    for name in ["scheme", "key_id", "values", "contributors"] {
        let reported = match &value[name] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        let label = format!("{:<16} {reported}", name.replace('_', " "));
        assert!(text.lines().any(|line| line == label), "{label:?} is not in {text}");
    }
    value
}

#[test]
fn every_kind_of_file_is_described() {
    for scheme in ["ckks-sum", "paillier-2048"] {
        let place = place(scheme);
        let id = PublicKey::load(&place.path("keys/public.json")).unwrap().id().to_string();
        for (file, kind) in [
            ("keys/public.json", "public key"),
            ("keys/secret.json", "secret key"),
            ("a.cgm", "contribution"),
            ("sum.cgm", "sum"),
        ] {
            let found = inspect(&place, file, kind);
            assert_eq!(found["scheme"], scheme);
            assert_eq!(found["key_id"], id);
            assert_eq!((&found["clients"], &found["bits"]), (&json!(3), &json!(16)));
        }
        let job = inspect(&place, "keys/job.json", "job");
        assert_eq!((&job["key_id"], &job["clients"]), (&json!(id), &json!(3)));
        assert_eq!((&job["min_clients"], &job["max_weight"]), (&json!(3), &json!(100_000)));
        assert_eq!(job["max_range"], json!(65536.0));
        if scheme != "ckks-sum" {
            let key = inspect(&place, "keys/clients/2.json", "client key");
            assert_eq!((&key["client"], &key["key_id"]), (&json!(2), &json!(id)));
        }
        let contribution = inspect(&place, "b.cgm", "contribution");
        assert_eq!(
            (&contribution["contributors"], &contribution["client"]),
            (&json!(1), &json!(1))
        );
        let sum = inspect(&place, "sum.cgm", "sum");
        assert_eq!(sum["clients_summed"], json!([0, 1, 2]));
        for found in [&contribution, &sum] {
            assert_eq!((&found["job"], &found["round"]), (&job["id"], &json!(0)));
        }
        assert_eq!((&sum["contributors"], &sum["fewest_contributors"]), (&json!(3), &json!(3)));
        assert_eq!((&sum["values"], &sum["max_weight"]), (&json!(3228), &json!(7)));
        let bytes = sum["ciphertext_bytes"].as_f64().unwrap();
        assert_eq!(sum["bytes_per_value"], json!(bytes / 3228.0));
        check_tensors(&sum["tensors"], true);
        let clear = inspect(&place, "g", "safetensors");
        assert_eq!(clear["values"], 3228);
        check_tensors(&clear["tensors"], false);
        let ranges = inspect(&place, "ranges.json", "ranges");
        assert_eq!((&ranges["values"], &ranges["max_weight"]), (&json!(3228), &json!(7)));
    }
}

#[test]
fn files_of_nodes_and_rounds_are_described() {
    let place = place("ckks-sum");
    let node = inspect(&place, "keys/server.node", "node key")["node"].clone();
    let text = String::from_utf8(place.read("keys/server.node")).unwrap();
    assert_eq!(node.as_str(), text.split('#').next());
    // The public half alone: no secret is in what `Process::finish` sees.
    assert_eq!(inspect(&place, "keys/server.identity", "identity")["node"], node);
    place.write("secret", text.replace("#ciphergram-node-1", ""));
    assert_eq!(inspect(&place, "secret", "node key")["node"], Value::Null);
    let client = inspect(&place, "keys/client.identity", "identity")["node"].clone();
    let allowed = inspect(&place, "keys/clients.allow", "allow list");
    assert_eq!(allowed["nodes"], json!([{"node": client, "client": null}]));
    let ledger = inspect(&place, "keys/secret.json.ledger", "ledger");
    let job = inspect(&place, "keys/job.json", "job")["id"].clone();
    assert_eq!(ledger["sealed"][1], json!({"job": job, "client": 1, "last_round": 0}));
    assert_eq!((&ledger["opened"], &ledger["failed"]), (&json!(0), &json!(0)));

    fs::copy(place.path("g"), place.path("g0")).unwrap();
    fs::copy(place.path("g"), place.path("g1")).unwrap();
    place.settle("g", 10.0, 7, "--min-clients 2");
    place.forget("keys/secret.json");
    let (server, address) = place.serve("--clients 2 --min-clients 2 --capture round.pcap");
    let clients = [0, 1].map(|i| place.join(&address, i, ""));
    clients.into_iter().for_each(|client| drop(client.finish().done()));
    server.finish().done();
    let capture = inspect(&place, "round.pcap", "capture");
    let pairs = capture["datagrams"].as_array().unwrap();
    let listed: u64 = pairs.iter().map(|pair| pair["packets"].as_u64().unwrap()).sum();
    assert_eq!((pairs.len(), json!(listed)), (4, capture["packets"].clone()));
    assert!(pairs.iter().all(|pair| pair["between"].as_str().unwrap().contains(&address)));
    let bytes = place.read("round.pcap");
    assert_eq!(capture["packet_bytes"], json!(bytes.len() as u64 - 24 - 16 * listed));
    place.write("cut.pcap", &bytes[..bytes.len() - 1]);
    let cut = inspect(&place, "cut.pcap", "capture");
    assert_eq!(cut["packets"], json!(listed - 1));
    for at in 0..100 {
        place.write("cut.pcap", &bytes[..at]);
        let code = place.run("inspect cut.pcap").code;
        assert!(code == Some(if at < 24 { 1 } else { 0 }), "{at} bytes: {code:?}");
    }
}

#[test]
fn tensors_of_all_types_and_metadata_show() {
    use safetensors::{Dtype, tensor::TensorView};
    let place = Place::new();
    let view = |dtype, shape, bytes| TensorView::new(dtype, shape, bytes).unwrap();
    let tensors = [
        ("batches", view(Dtype::I64, vec![], &[0; 8])),
        ("mask", view(Dtype::BOOL, vec![3], &[1; 3])),
        ("scale", view(Dtype::F8_E4M3, vec![2, 2], &[0; 4])),
        ("w", view(Dtype::F32, vec![0], &[])),
    ];
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    place.write("model", safetensors::serialize(tensors, Some(metadata)).unwrap());
    let found = inspect(&place, "model", "safetensors");
    assert_eq!((&found["values"], &found["metadata"]), (&json!(8), &json!({"format": "pt"})));
    let dtypes = found["tensors"].as_array().unwrap().iter().map(|t| t["dtype"].as_str().unwrap());
    assert_eq!(dtypes.collect::<Vec<_>>(), ["I64", "BOOL", "F8_E4M3", "F32"]);
    assert_eq!(found["tensors"][2]["shape"], json!([2, 2]));
}

/// Names, types, shapes, and for quantised ones ranges and steps.
fn check_tensors(list: &Value, quantised: bool) {
    let tensors = mixed(5);
    assert_eq!(list.as_array().unwrap().len(), tensors.len());
    for (found, (name, tensor)) in list.as_array().unwrap().iter().zip(&tensors) {
        assert_eq!(found["name"], **name);
        assert_eq!(found["dtype"], format!("{:?}", tensor.dtype));
        assert_eq!(found["shape"], json!(tensor.shape));
        let range = quantised.then(|| tensor.largest());
        assert_eq!(found["range"].as_f64(), range, "{found}");
        assert_eq!(found["step"].as_f64(), range.map(|r| r / 32767.0), "{found}");
    }
}

#[test]
fn raw_ciphertexts_are_those_of_the_file() {
    let place = place("paillier-2048");
    let key = PublicKey::load(&place.path("keys/public.json")).unwrap();
    let bytes = place.read("a.cgm");
    let file = Contribution::from_bytes(&bytes, &key).unwrap();
    let hex = |c: &[u8]| c.iter().rev().map(|b| format!("{b:02x}")).collect::<String>();
    let expected: Vec<_> = file.stream.chunks(512).map(hex).collect();
    let found = place.json("inspect a.cgm --ciphertexts");
    assert_eq!(found["ciphertexts"], json!(expected));
    assert!(place.json("inspect a.cgm")["ciphertexts"].is_null());
}

#[test]
fn foreign_files_are_reported_as_such() {
    let place = Place::new();
    for (name, bytes) in [("empty", &b""[..]), ("text", b"hello"), ("bytes", &[0xff; 100])] {
        place.write(name, bytes);
        let why = format!("{name}: not a file that this program knows");
        place.fails_with(1, &format!("inspect {name}"), &[&why]);
    }
    place.write("json", "{\"a\": 1}");
    place.fails_with(1, "inspect json", &["json: "]);
    place.fails_with(1, "inspect none", &["none: No such file"]);
}

#[test]
fn every_operation_of_every_scheme_is_explained() {
    let place = Place::new();
    for scheme in ["ckks-sum", "paillier-2048", "paillier-3072", "paillier-4096"] {
        let mut programs = vec![];
        for operation in ["encrypt", "aggregate", "decrypt"] {
            let words = format!("show program {operation} --scheme {scheme}");
            let reported = place.json(&words);
            assert_eq!(
                (&reported["operation"], &reported["scheme"]),
                (&json!(operation), &json!(scheme))
            );
            let program = reported["program"].as_str().unwrap().to_owned();
            assert!(program.lines().count() > 2, "{program}");
            assert!(!programs.contains(&program), "two operations are one program");
            programs.push(program);
        }
        // Shapes, never values: a number of any length would be one.
        let long = |program: &String| {
            let runs = program.split(|c: char| !c.is_ascii_hexdigit());
            runs.map(str::len).max().unwrap_or(0)
        };
        assert!(programs.iter().map(long).max() < Some(12), "{programs:?}");
    }
    assert_eq!(
        place.done("show program encrypt"),
        place.done("show program encrypt --scheme ckks-sum")
    );
}

#[test]
fn operations_on_encrypted_vectors_are_explained() {
    let place = Place::new();
    let mut programs = vec![];
    for operation in Operation::ALL.map(Operation::name) {
        let reported = place.json(&format!("show program {operation} --scheme ckks-8192x7"));
        assert_eq!(reported["scheme"], "ckks-8192x7");
        let program = reported["program"].as_str().unwrap().to_owned();
        assert!(program.starts_with(&format!("program {operation}\n")), "{program}");
        assert!(program.contains("N = 16384") && !programs.contains(&program), "{program}");
        programs.push(program);
    }
    for word in ["encrypt", "decrypt"] {
        let of_word = place.done(&format!("show program {word} --scheme ckks-4096x1"));
        assert_eq!(of_word, place.done(&format!("show program ckks-{word}")));
    }
    let product = place.done("show program ckks-mul");
    assert!(product.starts_with("program ckks-mul\n") && product.contains("N = 8192"), "{product}");
    for (words, why) in [
        (
            "show program aggregate --scheme ckks-4096x1",
            "ckks-4096x1 has no operation \"aggregate\"",
        ),
        (
            "show program ckks-mul --scheme paillier-2048",
            "paillier-2048 has no operation \"ckks-mul\"",
        ),
        ("show program ckks-mul --scheme ckks-9x9", "ckks-16384x14"),
    ] {
        place.fails_with(2, words, &[why]);
    }
}

#[test]
fn presets_of_encrypted_vectors_are_derived() {
    let place = Place::new();
    for (preset, transforms, limit) in [
        ("ckks-4096x1", 12, 214),
        ("ckks-4096x2", 20, 214),
        ("ckks-8192x7", 60, 430),
        ("ckks-16384x14", 100, 868),
    ] {
        let words = format!("show params --scheme {preset}");
        let (reported, text) = (place.json(&words), place.done(&words));
        assert_eq!(reported["scheme"], preset);
        assert_eq!(reported["security"]["log2_qp_limit"], limit);
        assert!(reported["security"]["log2_qp"].as_f64() <= Some(f64::from(limit)));
        assert_eq!(reported["digits"]["transforms_of_product"], transforms);
        assert!(reported["noise"]["fresh_public"].as_f64() < Some(1e-5));
        assert!(
            text.contains("is 128-bit secure") && text.lines().all(|l| l.chars().count() <= 100),
            "{text}"
        );
    }
    let why = "--bits is not for keys of ckks-4096x1";
    place.fails_with(2, "show params --scheme ckks-4096x1 --bits 16", &[why]);
}

#[test]
fn engines_say_what_they_support() {
    let place = Place::new();
    let engines = place.json("show devices");
    let text = place.done("show devices");
    let names: Vec<_> = engines.as_array().unwrap().iter().map(|e| &e["name"]).collect();
    assert!(names.contains(&&json!("cpu")) && names.contains(&&json!("reference")), "{engines}");
    for engine in engines.as_array().unwrap() {
        let steps = engine["steps"].as_array().unwrap();
        assert!(!steps.is_empty() && !engine["description"].as_str().unwrap().is_empty());
        assert!(text.contains(engine["name"].as_str().unwrap()), "{text}");
        assert!(steps.iter().all(|step| text.contains(step.as_str().unwrap())), "{text}");
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let place = Place::new();
    let commands = [
        "demo",
        "keygen",
        "job",
        "ranges",
        "encrypt",
        "aggregate",
        "decrypt",
        "vectors",
        "serve",
        "join",
        "inspect",
        "show",
    ];
    let help = place.done("--help");
    for command in commands {
        assert!(help.lines().any(|line| line.trim().starts_with(&format!("{command} "))), "{help}");
        let own = place.done(&format!("{command} --help"));
        assert!(own.contains(&format!("Usage: ciphergram {command}")), "{own}");
    }
    for command in ["show devices", "show program", "show params", "show noise", "vectors screen"] {
        let own = place.done(&format!("{command} --help"));
        assert!(own.contains(&format!("Usage: ciphergram {command}")), "{own}");
    }
    assert!(!help.contains("demo-client"), "{help}");
    let version = place.done("--version");
    assert_eq!(version, concat!("ciphergram ", env!("CARGO_PKG_VERSION"), "\n"));
}

/// The figures follow from one another, here by other arithmetic than the program's.
#[test]
fn parameters_are_derived_step_by_step() {
    let place = Place::new();
    for (clients, bits, degree, other) in
        [(64, 16, 4096, 8192), (10, 16, 8192, 4096), (512, 16, 8192, 4096)]
    {
        let words = format!("show params --scheme ckks-sum --clients {clients} --bits {bits}");
        let (reported, text) = (place.json(&words), place.done(&words));
        let number = |step: &str, name: &str| reported[step][name].as_f64().unwrap();
        assert_eq!(reported["security"]["ring_degree"], degree);
        assert!(number("security", "log2_q") <= number("security", "log2_q_limit"));
        assert_eq!(reported["noise"]["bound_of_sum"], clients * 21);
        let margin = number("noise", "margin_bits");
        assert!(2.0 * number("noise", "bound_of_sum") < 2f64.powf(margin));
        let most = (clients * ((1 << bits) - 2)) as f64;
        let field_bits = number("fields", "field_bits");
        assert!(number("fields", "largest_sum") == most && most < 2f64.powf(field_bits));
        let fields = number("fields", "fields_per_slot");
        assert!(margin + fields * field_bits <= number("security", "log2_q") + 1e-6);
        let values = number("chunks", "slots") * fields - number("chunks", "head_fields");
        assert_eq!(number("chunks", "values"), values);
        let head = |name: &str| number("head", name);
        assert!(2f64.powf(head("count_bits")) > clients as f64);
        assert!(2f64.powf(head("weight_bits")) > clients as f64 * f64::from(u32::MAX));
        let tag =
            2f64.powi(52) * (f64::from(u32::MAX) + values * most / clients as f64) + 2f64.powi(64);
        assert_eq!(head("tag_bits"), tag.log2().ceil());
        assert!(head("tag_sum_bits") >= (clients as f64 * tag).log2().ceil() - 1.0);
        let all = head("count_bits") + head("weight_bits") + head("tag_sum_bits");
        assert!(
            all <= head("fields") * field_bits && head("fields") == number("chunks", "head_fields")
        );
        assert!(
            all > (head("slots") - 1.0) * head("slot_bits")
                && all <= head("slots") * head("slot_bits")
        );
        let each = number("chunks", "bytes") / values;
        assert_eq!(number("size", "bytes_per_value"), each);
        assert!((number("size", "bytes") / 1e6 - each).abs() < 0.01);
        assert_eq!(reported["failure_probability"]["value"], 0);
        let not_chosen = &reported["not_chosen"][0];
        assert_eq!(not_chosen["ring_degree"], other);
        assert!(not_chosen["bytes_per_value"].as_f64() >= Some(each));
        for part in [format!("N = {degree}"), format!("{each:.3} bytes"), format!("N = {other}")] {
            assert!(text.contains(&part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
    for (scheme, bytes) in [("paillier-2048", 512), ("paillier-3072", 768), ("paillier-4096", 1024)]
    {
        let reported = place.json(&format!("show params --scheme {scheme}"));
        assert_eq!(reported["chunks"]["unit_bytes"], bytes);
        assert!(reported["failure_probability"]["value"] == 0 && reported["noise"].is_null());
        assert!(place.done(&format!("show params --scheme {scheme}")).contains("never wraps"));
    }
    let default = "show params --scheme ckks-sum-threshold --clients 64 --bits 16";
    assert_eq!(place.done("show params"), place.done(default));
}
