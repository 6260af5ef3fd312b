//! `ciphergram bench`: what its report holds, and what it refuses. Never how fast it is.

mod report;

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use crate::support::place::Place;

const WITH_VALUES: [&str; 5] = ["encrypt", "encrypt_owner", "decrypt", "add", "add_plain"];
const WITHOUT_VALUES: [&str; 5] = ["mul_plain", "sum", "mod_exp", "mod_mul", "correct"];
const SUMS: [&str; 4] = ["quantise", "encrypt", "aggregate", "decrypt"];
const LEVELLED: [&str; 7] =
    ["multiply", "rotate", "rotate_eight", "encrypt", "encrypt_owner", "decrypt", "screen"];
const STEPS: [&str; 11] = [
    "mul",
    "pair_mul",
    "product",
    "pow_secret",
    "pow_public",
    "pow_fixed_base",
    "dot_secret",
    "uniform",
    "noise",
    "pack",
    "add_beats",
];
/// Fields that only some rows of encrypted vectors have.
const LEVELLED_FIELDS: [&str; 3] = ["transforms", "error", "bytes_per_value"];
/// Fields that only rows of `ckks-sum` have.
const SUM_FIELDS: [&str; 2] = ["clients", "bytes_per_value"];
const FIELDS: [&str; 15] = [
    "operation",
    "scheme",
    "bits",
    "engine",
    "threads",
    "batch",
    "count",
    "median_s",
    "p10_s",
    "p90_s",
    "limit_fraction",
    "multiplies",
    "values_per_operation",
    "speedup_over_single",
    "disturbed",
];

const TOP: [&str; 7] = ["kind", "version", "time", "commit", "options", "machine", "rows"];
const OPTIONS: [&str; 3] = ["threads", "seconds", "cpu_path"];
const MACHINE: [&str; 9] = [
    "cpu",
    "signature",
    "features",
    "cores",
    "memory_bytes",
    "kernel",
    "compiler",
    "engines",
    "multiply_rate",
];

/// Returns the report of a short run, and what it printed.
fn bench(words: &str) -> (Value, String) {
    let place = Place::new();
    let text = place.done(&format!("bench --seconds 0.01 --json report.json {words}"));
    (serde_json::from_slice(&place.read("report.json")).unwrap(), text)
}

fn names(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn positive(value: &Value) -> f64 {
    value.as_f64().filter(|x| *x > 0.0 && x.is_finite()).unwrap_or_else(|| panic!("{value}"))
}

/// Checks a row of whatever operation of Paillier's scheme, and returns its name.
fn check_row(row: &Value) -> &str {
    let fields = FIELDS.into_iter().chain(["insecure"]).collect();
    assert_eq!(names(row), fields);
    assert_eq!(row["scheme"], "paillier");
    check_figures(row)
}

/// Checks what rows of both schemes have, and returns the operation's name.
fn check_figures(row: &Value) -> &str {
    let (batch, count) = (row["batch"].as_u64().unwrap(), row["count"].as_u64().unwrap());
    assert!(batch > 0 && count >= 5 * batch && count.is_multiple_of(batch), "{row}");
    // Of a step by itself others' work may leave nothing to see.
    let seen = ["p10_s", "median_s", "p90_s"].map(|name| &row[name]).into_iter();
    let seen = seen.filter(|time| row["scheme"] != "kernels" || !time.is_null());
    assert!(seen.map(positive).is_sorted(), "{row}");
    assert_eq!(row["insecure"], row["bits"] == 1024);
    let disturbed = &row["disturbed"];
    assert!(disturbed.is_null() || (0.0..1.0).contains(&disturbed.as_f64().unwrap()), "{row}");
    row["operation"].as_str().unwrap()
}

/// Checks a report on the CPU engine at 2048 bits, and returns its rows.
fn check_cpu(report: &Value) -> &Vec<Value> {
    assert_eq!(names(report), TOP.into_iter().collect());
    let machine = &report["machine"];
    assert_eq!(names(machine), MACHINE.into_iter().collect());
    assert_eq!(names(&report["options"]), OPTIONS.into_iter().collect());
    assert_eq!(report["kind"], "ciphergram-report");
    assert_eq!((&report["version"], &report["options"]["seconds"]), (&1.into(), &0.01.into()));
    let time = report["time"].as_str().unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z') && &time[10..11] == "T", "{time}");
    assert!(machine["compiler"].as_str().is_some_and(|text| text.starts_with("rustc 1.")));
    assert!(machine["kernel"].as_str().is_some_and(|text| text.contains(' ')));
    assert!(machine["cpu"].as_str().is_some_and(|cpu| !cpu.is_empty()));
    assert!(machine["cores"].as_u64().is_some_and(|cores| cores > 0));
    let engine = &machine["engines"][0];
    assert_eq!(names(engine), BTreeSet::from(["description", "multiply_rate", "name"]));
    assert_eq!(engine["multiply_rate"], machine["multiply_rate"]);
    positive(&machine["multiply_rate"]);
    assert!(report["commit"].as_str().is_some_and(|commit| !commit.is_empty()));
    for row in report["rows"].as_array().unwrap() {
        let name = check_row(row);
        assert_eq!((&row["bits"], &row["engine"]), (&2048.into(), &"cpu".into()));
        positive(&row["multiplies"]);
        positive(&row["limit_fraction"]);
        let values = WITH_VALUES.contains(&name).then_some(93u64);
        assert_eq!(row["values_per_operation"].as_u64(), values, "{name}");
        assert_eq!(row["speedup_over_single"].is_null(), name != "matvec", "{name}");
    }
    report["rows"].as_array().unwrap()
}

/// Measures these operations, and checks that each has its row and its line.
fn every_one_of(operations: &[&str]) {
    let list = operations.join(",");
    let (report, text) = bench(&format!("--ops {list} --bits 2048 --engine cpu"));
    let rows = check_cpu(&report);
    let found: Vec<_> = rows.iter().map(check_row).collect();
    assert_eq!(found, operations);
    assert!(rows.iter().all(|row| row["threads"] == 1));
    let lines: Vec<_> = text.lines().skip_while(|line| !line.starts_with("operation ")).collect();
    assert_eq!(lines.len(), 1 + operations.len(), "{text}");
    for (line, name) in lines[1..].iter().zip(operations) {
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells[..4], [name, "2048", "cpu", "1"], "{line}");
        // Two columns: how disturbed it was, where the system says, and the part of the limit.
        let percentages = cells.iter().filter(|cell| **cell == "%").count();
        assert_eq!(
            percentages,
            1 + usize::from(Path::new("/proc/self/schedstat").exists()),
            "{line}"
        );
        // A rate of a million has its unit in a cell of its own.
        let values = cells[5 + usize::from(cells[5] == "M")];
        assert_eq!(values == "-", !WITH_VALUES.contains(name), "{line}");
    }
}

#[test]
fn operations_that_carry_values_are_measured() {
    every_one_of(&WITH_VALUES);
}

#[test]
fn operations_that_carry_none_are_measured() {
    every_one_of(&WITHOUT_VALUES);
}

#[test]
fn matrix_products_are_compared_with_single_operations() {
    let (report, text) = bench("--ops matvec --bits 2048");
    let [row] = &check_cpu(&report)[..] else { panic!("one row") };
    positive(&row["speedup_over_single"]);
    assert_eq!(row["batch"], 64 * 256);
    assert!(text.contains("x single operations"), "{text}");
}

#[test]
fn threads_multiply_the_batch() {
    let (report, _) = bench("--ops add --bits 2048 --threads 2");
    let row = &check_cpu(&report)[0];
    assert_eq!((&row["threads"], &row["batch"]), (&2.into(), &2048.into()));
}

#[test]
fn kernels_are_measured_by_themselves() {
    let (report, text) = bench(
        "--ops kernels/mont_mul,kernels/automorphism,kernels/base_extend,kernels/copy --engine cpu",
    );
    let rows = report["rows"].as_array().unwrap();
    let found: Vec<_> = rows.iter().map(|row| (check_figures(row), &row["bits"])).collect();
    let bits = [2048, 4096, 6144].map(Value::from);
    let fifty = Value::from(50);
    let steps = ["automorphism", "base_extend", "copy"].map(|name| (name, &fifty));
    assert_eq!(found[..3], [0, 1, 2].map(|i| ("mont_mul", &bits[i])));
    assert_eq!(found[3..], steps);
    let measured: Vec<_> = rows.iter().filter(|row| !row["median_s"].is_null()).collect();
    for row in &measured {
        positive(&row["bytes"]);
        // None where the transform beside it could not be seen.
        assert!(row["in_transforms"].is_null() || positive(&row["in_transforms"]) > 0.0);
    }
    assert!(rows.iter().all(|row| row["scheme"] == "kernels"));
    assert_eq!(text.matches("GB/s").count(), measured.len(), "{text}");
}

#[test]
fn steps_are_measured_with_their_operands() {
    let (report, _) = bench("--ops steps");
    let rows = report["rows"].as_array().unwrap();
    let mut names: Vec<_> = rows.iter().map(check_figures).collect();
    assert_eq!(names.len(), 7 * 3 + 4);
    names.dedup();
    assert_eq!(names, STEPS);
    assert!(
        rows.iter().all(|row| row["scheme"] == "steps" && row["values_per_operation"].is_null())
    );
    assert!(rows[..21].iter().all(|row| positive(&row["multiplies"]) > 0.0));
}

/// Checks a row of `ckks-sum`, and returns its name.
fn check_sum_row(row: &Value) -> &str {
    let fields = FIELDS.into_iter().chain(["insecure"]).chain(SUM_FIELDS).collect();
    assert_eq!(names(row), fields);
    assert_eq!((&row["scheme"], &row["engine"]), (&"ckks-sum".into(), &"cpu".into()));
    let whole = ["bits", "clients", "batch", "values_per_operation"].map(|f| row[f].as_u64());
    assert_eq!(whole, [16, 10, 1, 1_000_000].map(Some));
    for field in ["limit_fraction", "multiplies", "speedup_over_single"] {
        assert!(row[field].is_null(), "{field}: {row}");
    }
    // More than the two bytes of a value, less than a float32.
    let bytes = positive(&row["bytes_per_value"]);
    assert!((2.0..4.0).contains(&bytes), "{row}");
    check_figures(row)
}

#[test]
fn sums_are_measured_once_for_all_keys() {
    let (report, text) = bench("--ops ckks-sum --bits 2048,3072 --engine cpu --threads 2");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(check_sum_row).collect::<Vec<_>>(), SUMS);
    assert!(rows.iter().all(|row| row["threads"] == 2), "{report}");
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("ckks-sum/")).collect();
    assert_eq!(lines.len(), SUMS.len(), "{text}");
    for (line, name) in lines.iter().zip(SUMS) {
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells[..4], [&format!("ckks-sum/{name}"), "16", "cpu", "2"], "{line}");
        assert!(line.ends_with("bytes a value"), "{line}");
    }
}

#[test]
fn vectors_are_measured_under_their_presets() {
    let (report, text) = bench("--ops ckks-4096x1 --engine cpu");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(check_figures).collect::<Vec<_>>(), LEVELLED);
    for (row, name) in rows.iter().zip(LEVELLED) {
        let own: &[_] = match name {
            "multiply" | "rotate" => &LEVELLED_FIELDS[..1],
            "encrypt" | "encrypt_owner" => &LEVELLED_FIELDS[1..],
            _ => &[],
        };
        let fields = FIELDS.into_iter().chain(["insecure"]).chain(own.iter().copied()).collect();
        assert_eq!(names(row), fields, "{name}");
        assert_eq!((&row["scheme"], &row["bits"]), (&"ckks-4096x1".into(), &140.into()));
        let values = match name {
            "rotate_eight" => 8 * 4096,
            "screen" => 1_000_000,
            _ => 4096,
        };
        assert_eq!(
            (&row["values_per_operation"], &row["multiplies"]),
            (&values.into(), &Value::Null)
        );
        assert_eq!(row["batch"], if name == "screen" { 10 } else { 1 });
    }
    assert_eq!((&rows[0]["transforms"], &rows[1]["transforms"]), (&12.into(), &12.into()));
    positive(&rows[2]["speedup_over_single"]);
    for (row, bytes) in rows[3..5].iter().zip([45.1, 22.6]) {
        assert!(positive(&row["bytes_per_value"]) < bytes, "{row}");
        assert!(positive(&row["error"]) < 1e-7, "{row}");
    }
    assert!(text.contains("12 transforms") && text.contains("at most, 22.5"), "{text}");
}

#[test]
fn threads_work_on_vectors_side_by_side() {
    let (report, _) = bench("--ops ckks-4096x2/decrypt --threads 2");
    let row = &report["rows"][0];
    assert_eq!((check_figures(row), &row["scheme"]), ("decrypt", &"ckks-4096x2".into()));
    assert_eq!((&row["threads"], &row["batch"]), (&2.into(), &2.into()));
}

#[test]
fn both_schemes_are_measured_in_one_report() {
    let (report, _) = bench("--ops ckks-sum/aggregate,add --bits 2048 --insecure-1024");
    let rows = report["rows"].as_array().unwrap();
    let found: Vec<_> = rows.iter().map(|row| row["scheme"].as_str().unwrap()).collect();
    assert_eq!(found, ["paillier", "paillier", "ckks-sum"]);
    assert_eq!((check_row(&rows[0]), check_sum_row(&rows[2])), ("add", "aggregate"));
}

#[test]
fn the_oracle_is_measured_only_if_named() {
    let (report, text) = bench("--ops mod_mul --bits 2048 --engine reference");
    let row = &report["rows"][0];
    assert_eq!((check_row(row), &row["engine"]), ("mod_mul", &"reference".into()));
    assert!(row["limit_fraction"].is_null() && row["multiplies"].is_null());
    assert!(report["machine"]["multiply_rate"].is_null());
    assert!(text.lines().last().unwrap().ends_with('-'), "{text}");
}

#[test]
fn the_oracle_reports_that_it_sums_few() {
    let (report, _) = bench("--ops ckks-sum/aggregate --engine reference");
    let row = &report["rows"][0];
    assert_eq!((check_figures(row), &row["engine"]), ("aggregate", &"reference".into()));
    assert_eq!(row["values_per_operation"], 10_000);
}

#[test]
fn insecure_keys_are_asked_for_and_named() {
    let place = Place::new();
    for words in ["bench --bits 1024", "bench --bits 2048,1024"] {
        place.fails_with(2, words, &["1024 bits are insecure", "--insecure-1024", "papers"]);
    }
    let (report, text) = bench("--ops add,correct --bits 2048 --insecure-1024");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(check_row).collect::<Vec<_>>(), ["add", "correct"].repeat(2));
    let bits: Vec<_> = rows.iter().map(|row| row["bits"].as_u64().unwrap()).collect();
    assert_eq!(bits, [1024, 1024, 2048, 2048]);
    assert_eq!(rows[0]["values_per_operation"], 46);
    assert!(text.contains("INSECURE: only for comparison with papers"), "{text}");
    assert_eq!(text.lines().filter(|line| line.ends_with("insecure")).count(), 2, "{text}");
}

#[test]
fn unknown_names_are_refused_in_one_line() {
    let place = Place::new();
    let all = ["paillier", "encrypt", "encrypt_owner", "decrypt", "add", "add_plain", "mul_plain"];
    let sums = [
        "ckks-sum",
        "ckks-sum/quantise",
        "ckks-sum/encrypt",
        "ckks-sum/aggregate",
        "ckks-sum/decrypt",
        "ckks (all of ckks/multiply",
        "ckks-16384x14",
    ];
    let all = [&all[..], &["sum", "matvec", "mod_exp", "mod_mul", "correct"], &sums].concat();
    place.fails_with(2, "bench --ops polish", &[&["\"polish\""], &all[..]].concat());
    let cases = [
        ("--ops add,", "no operation \"\""),
        ("--ops aggregate", "no operation \"aggregate\""),
        (
            "--engine abacus",
            "'abacus' for '--engine <LIST>' [possible values: cpu, gpu, fpga, auto, reference]",
        ),
        (
            "--engine cpu,gpu",
            "no engine \"gpu\" (no GPU adapter like \"none\"); there are cpu, reference",
        ),
        (
            "--engine fpga",
            "no engine \"fpga\" (CIPHERGRAM_FPGA names no card); there are cpu, reference",
        ),
        ("--bits 2047", "no keys of \"2047\" bits; there are 2048, 3072, 4096"),
        ("--bits many", "no keys of \"many\" bits"),
        ("--threads 0", "from 1 to 1024"),
        ("--seconds 0", "a number of seconds"),
    ];
    for (words, part) in cases {
        place.fails_with(2, &format!("bench {words}"), &[part]);
    }
    place.fails_with(1, "bench --json none/report", &["none/report: No such file or directory"]);
}

#[test]
fn help_and_documentation_name_everything() {
    let help = Place::new().done("bench --help");
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/README.md");
    let readme = fs::read_to_string(readme).unwrap();
    for operation in WITH_VALUES.iter().chain(&WITHOUT_VALUES).chain(&["matvec"]) {
        assert!(help.contains(&format!("\n  {operation} ")), "{operation}: {help}");
        assert!(readme.contains(&format!("| `{operation}` |")), "{operation}");
    }
    for operation in SUMS {
        assert!(help.contains(&format!("\n  ckks-sum/{operation} ")), "{operation}: {help}");
        assert!(readme.contains(&format!("`ckks-sum/{operation}`")), "{operation}");
    }
    for operation in LEVELLED {
        assert!(help.contains(&format!("\n  ckks/{operation} ")), "{operation}: {help}");
        assert!(readme.contains(&format!("`ckks/{operation}`")), "{operation}");
    }
    let steps = ["mont_mul", "automorphism", "base_extend", "poly_add", "copy"];
    let transforms = ["ntt_4096", "ntt_8192", "ntt_16384", "ntt_32768"];
    for kernel in steps.into_iter().chain(transforms) {
        assert!(help.contains(&format!("\n  kernels/{kernel} ")), "{kernel}: {help}");
        assert!(readme.contains(&format!("`kernels/{kernel}`")), "{kernel}");
    }
    for step in STEPS {
        assert!(help.contains(&format!("\n  steps/{step} ")), "{step}: {help}");
        assert!(readme.contains(&format!("`steps/{step}`")), "{step}");
    }
    let all = FIELDS.iter().chain(&SUM_FIELDS).chain(&TOP).chain(&MACHINE).chain(&OPTIONS);
    for field in all.chain(&LEVELLED_FIELDS).chain(&[
        "name",
        "description",
        "insecure",
        "bytes",
        "in_transforms",
    ]) {
        assert!(readme.contains(&format!("`{field}`")), "{field}");
    }
}
