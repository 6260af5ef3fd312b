//! Reports of `ciphergram bench` beside each other.

use serde_json::{Value, json};

use crate::support::place::Place;

/// Returns a report of two operations that a run could have made, the first this much faster.
fn report(faster: f64) -> Value {
    let row = |operation: &str, scheme: &str, bits: u32, median: f64| {
        json!({
            "operation": operation, "scheme": scheme, "bits": bits, "engine": "cpu", "threads": 1,
            "batch": 8, "count": 80, "median_s": median, "p10_s": 0.9 * median, "p90_s": 1.1 * median,
            "limit_fraction": (scheme == "paillier").then_some(0.5), "multiplies": 1000.0,
            "values_per_operation": 93, "speedup_over_single": null, "disturbed": 0.31, "insecure": false,
        })
    };
    let engine = json!({"name": "cpu", "description": "lanes & <limbs>", "multiply_rate": 1e9});
    json!({
        "version": 1, "time": "2026-11-23T01:02:03Z", "commit": "0123456789abcdef0123456789abcdef01234567",
        "options": {"threads": 1, "seconds": 1.0, "cpu_path": null},
        "machine": {"cpu": "A <processor>", "cores": 2, "engines": [engine], "multiply_rate": 1e9},
        "rows": [row("encrypt", "paillier", 2048, 1e-4 / faster), row("decrypt", "paillier", 2048, 4e-4)],
    })
}

#[test]
fn reports_stand_side_by_side() {
    let place = Place::new();
    place.write("before.json", report(1.0).to_string());
    place.write("after.json", report(2.0).to_string());
    let table = place.done("bench --compare before.json after.json");
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].ends_with("after") && lines[0].contains("  before"), "{table}");
    assert!(lines[1].starts_with("encrypt ") && lines[1].ends_with("20,000    2.00x"), "{table}");
    assert!(lines[2].starts_with("decrypt ") && lines[2].ends_with("2,500    1.00x"), "{table}");
}

#[test]
fn reports_before_versions_are_still_read() {
    let place = Place::new();
    let mut old = report(1.0);
    for field in ["version", "time", "options"] {
        old.as_object_mut().unwrap().remove(field);
    }
    old["rows"][0].as_object_mut().unwrap().remove("disturbed");
    old["rows"][1]["core_share"] = 1.0.into();
    place.write("old.json", old.to_string());
    let table = place.done("bench --compare old.json");
    assert!(table.lines().nth(1).is_some_and(|line| line.ends_with("10,000")), "{table}");
}

/// Nor does a number that no key has end the program.
#[test]
fn control_characters_of_reports_are_not_printed() {
    let place = Place::new();
    let mut strange = report(1.0);
    strange["rows"][0]["bits"] = u32::MAX.into();
    strange["rows"][1]["engine"] = "\u{1b}[2Jcpu\n".into();
    place.write("strange.json", strange.to_string());
    let table = place.done("bench --compare strange.json");
    assert!(table.lines().count() == 3 && !table.contains('\u{1b}'), "{table:?}");
}

#[test]
fn files_that_are_no_report_are_refused() {
    let place = Place::new();
    let with = |change: fn(&mut Value)| {
        let mut value = report(1.0);
        change(&mut value);
        value.to_string()
    };
    let cases = [
        ("empty", String::new(), "no report of `bench --json`"),
        ("list", "[]".into(), "no report of `bench --json`"),
        ("cut", with(|_| ())[..200].into(), "no report of `bench --json`"),
        ("later", with(|r| r["version"] = 2.into()), "a report of version 2; this reads 1 at most"),
        (
            "zero",
            with(|r| r["rows"][1]["median_s"] = 0.0.into()),
            "the figures of \"decrypt\" are none",
        ),
        (
            "below",
            with(|r| r["rows"][0]["p10_s"] = (-1.0).into()),
            "the figures of \"encrypt\" are none",
        ),
        (
            "huge",
            with(|r| r["rows"][0]["median_s"] = 1e300.into()),
            "the figures of \"encrypt\" are none",
        ),
        (
            "nothing",
            with(|r| r["rows"][0]["values_per_operation"] = 0.into()),
            "the figures of \"encrypt\" are none",
        ),
        (
            "weightless",
            with(|r| {
                r["rows"][0]["clients"] = 10.into();
                r["rows"][0]["bytes_per_value"] = (-2.9).into();
            }),
            "the figures of \"encrypt\" are none",
        ),
        ("rows", with(|r| r["rows"] = "many".into()), "no report of `bench --json`"),
        ("crowd", with(|r| r["rows"] = vec![r["rows"][0].clone(); 10_001].into()), "too many rows"),
    ];
    place.write("good.json", report(1.0).to_string());
    for (name, content, why) in cases {
        place.write(&format!("{name}.json"), content);
        let words = format!("bench --compare good.json {name}.json");
        place.fails_with(1, &words, &[&format!("{name}.json: {why}")]);
    }
    place.fails_with(1, "bench --compare none.json", &["none.json"]);
    place.fails_with(1, "bench --compare /dev/zero", &["/dev/zero: too long"]);
    place.fails_with(2, "bench --compare good.json --seconds 1", &["--compare", "--seconds"]);
}

/// The loader of GPU drivers speaks whenever it is loaded, if it is told to: `bench` does not touch it unless a GPU is
/// named, and what drivers say to `devices` is kept apart.
#[test]
fn drivers_open_only_for_gpus_and_silently() {
    let place = Place::with_adapters();
    let loud = "env -u XDG_RUNTIME_DIR -u NODEVICE_SELECT VK_LOADER_DEBUG=all";
    for words in ["bench --ops add --bits 2048 --seconds 0.01", "show devices"] {
        let ran = place.start_by(loud, words).finish().done();
        assert_eq!(
            ran.stderr.lines().filter(|line| !line.starts_with("warning: other work")).count(),
            0
        );
    }
    let ran = place.start_by(&format!("{loud} CIPHERGRAM_LOG=info"), "show devices").finish();
    if ran.stdout.lines().any(|line| line.starts_with("gpu ") && !line.contains("none: ")) {
        assert!(ran.stderr.contains("driver: "), "{ran:?}");
    }
    let bench = "bench --ops add --bits 2048 --seconds 0.01";
    let ran = place.start_by(&format!("{loud} CIPHERGRAM_LOG=info"), bench).finish();
    assert!(!ran.stderr.contains("driver: "), "{ran:?}");
}
