//! Commands on the GPU engine, on whatever adapter is there: `cargo xtask test` runs them on one
//! that needs no GPU.

use safetensors::{Dtype, tensor::TensorView};
use serde_json::Value;

use crate::support::place::Place;

/// Returns a place, and what `devices` says of the adapter; none where there is none.
fn present() -> Option<(Place, Value)> {
    let place = Place::with_adapters();
    let engines = place.json("show devices");
    let gpu = engines.as_array().unwrap().iter().find(|engine| engine["name"] == "gpu").cloned();
    match &gpu {
        Some(gpu) => println!("on {}", gpu["adapter"].as_str().unwrap()),
        None => println!("SKIPPED, there is no GPU adapter"),
    }
    gpu.map(|gpu| (place, gpu))
}

#[test]
fn adapters_are_listed_with_what_decides() {
    let Some((place, gpu)) = present() else { return };
    let text = place.done("show devices");
    for what in ["adapter", "driver", "features", "limits", "prelude"] {
        let said = gpu[what].as_str().unwrap_or_else(|| panic!("no {what}: {gpu}"));
        assert!(!said.is_empty() && text.contains(&format!("{what}: {said}")), "{text}");
    }
}

#[test]
fn absence_is_a_line_and_no_error() {
    let place = Place::with_adapters();
    // No index of any adapter, no name of any, and a word.
    for wanted in ["9999999999999999", "no-such-adapter", "none"] {
        let naming = format!("env CIPHERGRAM_GPU={wanted}");
        let run = |words: &str| place.start_by(&naming, words).finish();
        let devices = run("show devices").done().stdout;
        assert!(devices.contains("gpu        none: no GPU adapter"), "{devices}");
        let demo = run("demo --engine gpu --clients 2 --rounds 1");
        assert_eq!(demo.code, Some(0), "{demo:?}");
        assert!(demo.stderr.contains("programs run on the CPU: no GPU adapter"), "{demo:?}");
        let bench = run("bench --engine gpu --seconds 0.01").error(2);
        assert!(bench.contains("no GPU adapter") && bench.contains("there are cpu, reference"));
    }
}

/// The suite, as the binary alone can run it. The time is the tests': another test runs
/// it over the engine itself.
#[test]
fn engines_are_held_against_the_oracle() {
    let place = Place::new();
    let engines = place.json("show devices --check");
    let [cpu, oracle] = &engines.as_array().unwrap()[..] else { panic!("{engines}") };
    assert!(oracle["conformance"].is_null());
    let cases = cpu["conformance"].as_object().unwrap();
    assert!(cases.len() > 10 && cases.values().all(Value::is_number), "{engines}");
}

/// Encrypted means are those of plaintext bit for bit, or `demo` fails.
fn demo(engine: &str, scheme: &str) {
    let Some((place, _)) = present() else { return };
    let settings = format!("--engine {engine} --scheme {scheme} --clients 2 --rounds 1");
    let ran = place.start_logging("info", &format!("demo {settings} --json figures.json")).finish();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains(&format!("engine {engine}: ")), "{}", ran.stderr);
    assert!(!ran.stderr.contains(" failed at "), "{}", ran.stderr);
    let figures: Value = serde_json::from_slice(&place.read("figures.json")).unwrap();
    assert_eq!(figures["agree"], true);
}

#[test]
fn sums_over_rings_are_exact() {
    demo("gpu", "ckks-sum");
    demo("auto", "ckks-sum");
}

#[test]
fn sums_of_paillier_are_exact() {
    demo("gpu", "paillier-2048");
    demo("auto", "paillier-2048");
}

#[test]
fn operations_are_measured_on_named_engines() {
    let Some((place, gpu)) = present() else { return };
    let words = "--seconds 0.01 --bits 2048 --json report.json";
    place.done(&format!("bench --engine gpu --ops add,ckks-sum/encrypt {words}"));
    let report: Value = serde_json::from_slice(&place.read("report.json")).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() == 2 && rows.iter().all(|row| row["engine"] == "gpu"), "{report}");
    assert_eq!(report["machine"]["engines"][0]["description"], gpu["description"]);
    if gpu["adapter"].as_str().unwrap().contains("software") {
        place.done(&format!("bench --ops mod_mul {words}"));
        let report: Value = serde_json::from_slice(&place.read("report.json")).unwrap();
        assert!(report["rows"].as_array().unwrap().iter().all(|row| row["engine"] == "cpu"));
    }
}

/// What is computed on encrypted vectors is the same to the bit; what is encrypted opens.
#[test]
fn vectors_are_those_of_the_cpu() {
    let Some((place, _)) = present() else { return };
    place.done("keygen --scheme ckks-4096x1 --rotations sum --out keys");
    let update = |i: u32| (0..3000).map(|j| (f64::from(i + j) / 1e3).sin()).collect::<Vec<_>>();
    for i in 0..2 {
        let values: Vec<u8> = update(i).iter().flat_map(|x| x.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F64, vec![3000], &values).unwrap();
        place.write(&format!("u{i}"), safetensors::serialize([("w", view)], None).unwrap());
        let key = ["public", "secret"][i as usize];
        place.done(&format!(
            "encrypt --engine gpu --key keys/{key}.json --range 1 --in u{i} --out u{i}.cgm"
        ));
    }
    let found = ["cpu", "gpu"].map(|engine| {
        let words = "--key keys/evaluation.cgk --against u0.cgm u1.cgm";
        place.done(&format!("vectors screen --engine {engine} {words} --out scores-{engine}.cgm"));
        place.done(&format!(
            "decrypt --engine {engine} --key keys/secret.json --in u0.cgm --out {engine}"
        ));
        (place.read(&format!("scores-{engine}.cgm")), place.read(engine))
    });
    assert!(found[0] == found[1]);
    let opened = safetensors::SafeTensors::deserialize(&found[0].1).unwrap();
    let opened = opened.tensor("w").unwrap();
    let pairs = opened.data().as_chunks().0.iter().zip(update(0));
    let off = pairs.map(|(bytes, x)| (f64::from_le_bytes(*bytes) - x).abs()).fold(0.0, f64::max);
    assert!(off < 1e-6, "{off}");
}

/// A demo has too little work for `auto` to open a device; what is measured is measured with it.
#[test]
fn work_is_shared_out_if_asked_for() {
    let Some((place, gpu)) = present() else { return };
    let words = "--seconds 0.01 --bits 2048 --json report.json";
    place.done(&format!("bench --engine auto --ops add,ckks-sum/encrypt {words}"));
    let report: Value = serde_json::from_slice(&place.read("report.json")).unwrap();
    let said = report["machine"]["engines"][0]["description"].as_str().unwrap();
    let adapter = gpu["description"].as_str().unwrap();
    assert!(said.contains(adapter) && said.starts_with("whichever is quicker"), "{said}");
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() == 2 && rows.iter().all(|row| row["engine"] == "auto"), "{report}");
}
