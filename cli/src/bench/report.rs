//! Rows as lines of a table.

use super::row::Row;

const HEAD: [&str; 7] =
    ["operation", "bits", "engine", "threads", "operations/s", "values/s", "of limit"];
const WIDTHS: [usize; 7] = [18, 5, 10, 7, 13, 13, 9];

/// Returns the first line of the table.
pub(crate) fn head() -> String {
    line(&HEAD.map(str::to_owned), "")
}

/// Returns a row's line, with notes at its end.
pub(crate) fn row(row: &Row) -> String {
    let rate = 1.0 / row.median_s;
    let dash = || "-".to_owned();
    let cells = [
        row.name(),
        row.bits.to_string(),
        row.engine.to_owned(),
        row.threads.to_string(),
        number(rate),
        row.values.map_or_else(dash, |values| number(rate * values as f64)),
        row.limit_fraction.map_or_else(dash, |part| format!("{:.1} %", 100.0 * part)),
    ];
    let mut notes = vec![];
    if let Some(times) = row.speedup_over_single {
        notes.push(format!("{times:.2}x single operations"));
    }
    if let Some(upload) = &row.upload {
        notes.push(format!("{:.2} bytes a value", upload.bytes_per_value));
    }
    if let Some(bytes) = row.bytes.filter(|_| rate.is_finite()) {
        notes.push(format!("{:.1} GB/s", rate * bytes as f64 / 1e9));
    }
    if row.is_insecure {
        notes.push("insecure".to_owned());
    }
    line(&cells, &notes.join(", "))
}

/// The share of a core's time below which it counts as shared.
const QUIET_SHARE: f64 = 0.9;

/// Returns a warning if other work had the cores too.
pub(crate) fn busy(rows: &[Row]) -> Option<String> {
    let shares = || rows.iter().filter_map(|row| row.core_share);
    let busy = shares().filter(|&share| share < QUIET_SHARE).count();
    let least = shares().fold(1.0, f64::min);
    (busy > 0).then(|| {
        format!(
            "other work had the cores too while {busy} of {} rows were measured, at worst {:.0} % \
             of the time: all may be faster than it looks here",
            rows.len(),
            100.0 * (1.0 - least)
        )
    })
}

/// Aligns words to the left, numbers to the right.
fn line(cells: &[String; 7], notes: &str) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in cells.iter().zip(WIDTHS).enumerate() {
        let cell = match column {
            0 | 2 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        };
        line += &format!("{cell}  ");
    }
    (line + notes).trim_end().to_owned()
}

/// Formats a number in three digits or more, with commas between thousands; millions as such.
fn number(x: f64) -> String {
    match x {
        _ if x.is_nan() => "-".into(),
        _ if x >= 999_950.0 => format!("{:.2} M", x / 1e6),
        _ if x >= 999.5 => format!("{},{:03}", x.round() as u64 / 1000, x.round() as u64 % 1000),
        _ if x >= 99.95 => format!("{x:.0}"),
        _ if x >= 9.995 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let cases = [
            (f64::NAN, "-"),
            (0.5, "0.50"),
            (9.996, "10.0"),
            (99.96, "100"),
            (999.4, "999"),
            (999.6, "1,000"),
            (14_003.4, "14,003"),
            (999_949.0, "999,949"),
            (1_234_567.0, "1.23 M"),
            (2.5e9, "2500.00 M"),
        ];
        for (x, text) in cases {
            assert_eq!(number(x), text);
        }
    }
}
