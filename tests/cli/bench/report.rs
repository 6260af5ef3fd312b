//! The page and the pictures of `ciphergram bench`, and reports beside each other.

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

/// Returns figures of a comparison with other libraries, one of which could not be installed.
fn peers() -> Value {
    let row = |label: &str, ours: f64, theirs: f64| {
        json!({"label": label, "operation": "ckks-sum/x", "bits": 16, "ours_s": ours,
               "rivals_s": {"tenseal": theirs, "masks": 0.02}})
    };
    json!({
        "machine": null, "commit": "abc", "rounds": 3, "seconds": 0.5, "least_share": 0.62,
        "rivals": [
            {"name": "tenseal", "version": "0.3.18", "failure": null, "bytes_per_value": 57.6},
            {"name": "masks", "version": "50.0", "failure": null},
            {"name": "openfhe", "version": null, "failure": "ModuleNotFoundError: no <openfhe>"},
        ],
        "rows": [row("encrypt", 0.0092, 0.871), row("aggregate 10", 0.0116, 0.756)],
        "uploads": [{"bits": 16, "clients": 10, "bytes_per_value": 2.9}],
        "problems": ["sf-heu cannot be installed: no wheel"],
    })
}

/// Checks that every element of a page ends, in order, and that nothing else is needed to show it.
fn check_page(html: &str) {
    let mut open = vec![];
    for tag in html.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("every tag ends");
        let name = tag.split([' ', '/']).find(|word| !word.is_empty()).unwrap();
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        match tag {
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "{tag}"),
            _ if tag.ends_with('/') || tag.starts_with('!') => {}
            _ => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for outside in ["http:", "https:", "@import", "src=", "href=", "<script", "<link"] {
        assert!(!html.contains(outside), "{outside}");
    }
    let urls = html.match_indices("url(").map(|(at, _)| &html[at..]);
    assert!(urls.into_iter().all(|url| url.starts_with("url(data:")));
    assert!(html.contains("prefers-color-scheme:dark") && html.contains("@media print"));
}

fn text(place: &Place, name: &str) -> String {
    String::from_utf8(place.read(name)).unwrap()
}

/// Returns width and height of a PNG file.
fn size(png: &[u8]) -> [u32; 2] {
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(&png[png.len() - 8..png.len() - 4], b"IEND");
    [16, 20].map(|at| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()))
}

#[test]
fn a_run_ends_with_a_page_a_picture_and_its_figures() {
    let place = Place::new();
    let outputs = "--report report.html --png report.png --json report.json";
    place.done(&format!("bench --seconds 0.01 --bits 2048 --ops encrypt,ckks-sum {outputs}"));
    let (html, json) = (text(&place, "report.html"), text(&place, "report.json"));
    check_page(&html);
    let report: Value = serde_json::from_str(&json).unwrap();
    let machine = &report["machine"];
    for fact in [&report["commit"], &machine["kernel"], &machine["compiler"]] {
        assert!(html.contains(fact.as_str().unwrap()), "{fact}");
    }
    for row in report["rows"].as_array().unwrap() {
        let rate = 1.0 / row["median_s"].as_f64().unwrap();
        let (name, count) = (row["operation"].as_str().unwrap(), row["count"].to_string());
        assert!(html.contains(&format!("<td>{count}</td>")) && html.contains(name), "{row}");
        let [thousands, rest] = [rate.round() as u64 / 1000, rate.round() as u64 % 1000];
        let digits = match rate {
            _ if rate >= 999.5 => format!("{thousands},{rest:03}"),
            _ if rate >= 99.95 => format!("{rate:.0}"),
            _ if rate >= 9.995 => format!("{rate:.1}"),
            _ => format!("{rate:.2}"),
        };
        // In its row of the table and behind its bar.
        assert!(html.contains(&format!("<td>{digits}</td>")), "{digits}");
        assert!(html.contains(&format!(">{digits}</text>")), "{digits}");
    }
    for stage in
        ["quantise", "encrypt", "send 2.67 MB", "sum 10, at the aggregator", "decrypt to the mean"]
    {
        assert!(html.contains(&format!(">{stage}</text>")), "{stage}");
    }
    assert!(html.contains(">float32, 4.00</text>"));
    let [width, height] = size(&place.read("report.png"));
    assert!(width == 2 * (860 + 48) && height > 600, "{width} by {height}");
}

#[test]
fn reports_stand_side_by_side() {
    let place = Place::new();
    place.write("before.json", report(1.0).to_string());
    place.write("after.json", report(2.0).to_string());
    let words = "bench --compare before.json after.json --report both.html --png both.png";
    let table = place.done(words);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].ends_with("after") && lines[0].contains("  before"), "{table}");
    assert!(lines[1].starts_with("encrypt ") && lines[1].ends_with("20,000    2.00x"), "{table}");
    assert!(lines[2].starts_with("decrypt ") && lines[2].ends_with("2,500    1.00x"), "{table}");
    let html = text(&place, "both.html");
    check_page(&html);
    for part in [
        "2026-11-23 01:02:03 UTC",
        "2.00×",
        "1.00×",
        ">before</th>",
        ">after</th>",
        "A &lt;processor&gt;",
        "× 31 %",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(html.contains("lanes &amp; &lt;limbs&gt;") && !html.contains("<limbs>"));
    assert_eq!(html.matches("<tr class=\"disturbed\">").count(), 4);
    // Bars of one operation have one scale: that of half the rate is half as long.
    let bars: Vec<f64> = ["series0", "series1"].map(|series| bar(&html, series)).into();
    assert!((bars[1] / bars[0] - 2.0).abs() < 0.01, "{bars:?}");
    assert_eq!(size(&place.read("both.png"))[0], 1816);
}

/// Returns the width of the first bar of a series, after that in the legend.
fn bar(html: &str, series: &str) -> f64 {
    let start = format!("<rect class=\"{series}\"");
    let bar = html.split(&start).nth(2).unwrap();
    bar.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
}

#[test]
fn other_libraries_have_a_chart_and_a_line_for_who_is_missing() {
    let place = Place::new();
    place.write("sums.json", peers().to_string());
    let table = place.done("bench --compare sums.json --report peers.html --png peers.png");
    assert_eq!(table, "");
    let html = text(&place, "peers.html");
    check_page(&html);
    for part in [
        ">871 ms</text>",
        ">9.20 ms</text>",
        ">57.6</text>",
        ">2.90</text>",
        ">Ciphergram</text>",
        "openfhe is not measured: ModuleNotFoundError: no &lt;openfhe&gt;",
        "sf-heu cannot be installed: no wheel",
        "other work had the core for up to 38 % of the time",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(size(&place.read("peers.png"))[1] > 200);
    let mut vectors = peers();
    vectors["uploads"] = Value::Array(vec![]);
    for row in vectors["rows"].as_array_mut().unwrap() {
        row["label"] = format!("ckks-4096x1 {}", row["label"].as_str().unwrap()).into();
    }
    place.write("ckks.json", vectors.to_string());
    place.done("bench --compare ckks.json --report ckks.html");
    let html = text(&place, "ckks.html");
    assert!(html.contains("Work on encrypted vectors") && html.contains(">ckks-4096x1 "), "{html}");
}

#[test]
fn reports_of_before_there_were_versions_are_read() {
    let place = Place::new();
    let mut old = report(1.0);
    for field in ["version", "time", "options"] {
        old.as_object_mut().unwrap().remove(field);
    }
    old["rows"][0].as_object_mut().unwrap().remove("disturbed");
    old["rows"][1]["core_share"] = 1.0.into();
    place.write("old.json", old.to_string());
    place.done("bench --compare old.json --report old.html");
    assert!(text(&place, "old.html").contains("<td>unknown</td>"));
}

/// Nor does a number that no key has end the program.
#[test]
fn words_of_a_report_reach_a_terminal_without_its_controls() {
    let place = Place::new();
    let mut strange = report(1.0);
    strange["rows"][0]["bits"] = u32::MAX.into();
    strange["rows"][1]["engine"] = "\u{1b}[2Jcpu\n".into();
    place.write("strange.json", strange.to_string());
    let table = place.done("bench --compare strange.json --report strange.html");
    assert!(table.lines().count() == 3 && !table.contains('\u{1b}'), "{table:?}");
    let html = text(&place, "strange.html");
    check_page(&html);
    assert!(html.contains(">paillier-4294967295</text>") && !html.contains('\u{1b}'));
}

#[test]
fn what_is_no_report_is_refused_by_name() {
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
        let words = format!("bench --compare good.json {name}.json --report out.html");
        place.fails_with(1, &words, &[&format!("{name}.json: {why}")]);
        assert!(!place.path("out.html").exists());
    }
    let mut wrong = peers();
    wrong["rows"][0]["rivals_s"]["masks"] = (-1.0).into();
    place.write("wrong.json", wrong.to_string());
    place.fails_with(
        1,
        "bench --compare wrong.json --png out.png",
        &["wrong.json: -1 is no figure"],
    );
    place.fails_with(1, "bench --compare none.json", &["none.json"]);
    place.fails_with(1, "bench --compare /dev/zero", &["/dev/zero: too long"]);
    place.fails_with(2, "bench --compare good.json --seconds 1", &["--compare", "--seconds"]);
}

/// The loader of GPU drivers speaks whenever it is loaded, if it is told to: `bench` does not touch it unless a GPU is
/// named, and what drivers say to `devices` is kept apart.
#[test]
fn drivers_are_opened_only_for_a_gpu_and_say_nothing() {
    let place = Place::with_adapters();
    let loud = "env -u XDG_RUNTIME_DIR -u NODEVICE_SELECT VK_LOADER_DEBUG=all";
    for words in ["bench --ops add --bits 2048 --seconds 0.01", "devices"] {
        let ran = place.start_by(loud, words).finish().done();
        assert_eq!(
            ran.stderr.lines().filter(|line| !line.starts_with("warning: other work")).count(),
            0
        );
    }
    let ran = place.start_by(&format!("{loud} CIPHERGRAM_LOG=info"), "devices").finish();
    if ran.stdout.lines().any(|line| line.starts_with("gpu ") && !line.contains("none: ")) {
        assert!(ran.stderr.contains("driver: "), "{ran:?}");
    }
    let bench = "bench --ops add --bits 2048 --seconds 0.01";
    let ran = place.start_by(&format!("{loud} CIPHERGRAM_LOG=info"), bench).finish();
    assert!(!ran.stderr.contains("driver: "), "{ran:?}");
}
