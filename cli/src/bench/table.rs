//! Rows as lines of a table.

use super::{
    report::Source,
    row::{Projected, Row},
};

const HEAD: [&str; 8] =
    ["operation", "bits", "engine", "threads", "operations/s", "values/s", "disturbed", "of limit"];
const WIDTHS: [usize; 8] = [25, 5, 10, 7, 13, 13, 9, 9];

/// Returns the first line of the table.
pub(crate) fn head() -> String {
    line(&HEAD.map(str::to_owned), "")
}

/// Returns a row's line, with notes at its end.
pub(crate) fn row(row: &Row) -> String {
    let dash = || "-".to_owned();
    let cells = [
        row.name(),
        row.bits.to_string(),
        row.engine.clone(),
        row.threads.to_string(),
        row.rate().map_or_else(dash, number),
        row.value_rate().map_or_else(dash, number),
        row.disturbed.map_or_else(dash, |part| format!("{:.0} %", 100.0 * part)),
        row.limit_fraction.map_or_else(dash, |part| format!("{:.1} %", 100.0 * part)),
    ];
    line(&cells, &notes(row).join(", "))
}

/// Returns a table of reports side by side: operations a second, and beside those of the first how many times as many.
/// Nothing where there are none.
pub(crate) fn side_by_side(sources: &[Source]) -> Vec<String> {
    let Some((first, others)) = sources.split_first() else { return vec![] };
    let mut subjects: Vec<&Row> = vec![];
    for row in sources.iter().flat_map(|source| &source.report.rows) {
        if !subjects.iter().any(|subject| subject.is_about(row)) {
            subjects.push(row);
        }
    }
    let start = |cells: [&str; 4]| {
        let [name, bits, engine, threads] = cells;
        format!("{name:<25}  {bits:>5}  {engine:<10}  {threads:>7}")
    };
    let mut head = start(["operation", "bits", "engine", "threads"]);
    for Source { label, .. } in sources {
        head += &format!("  {label:>22}");
    }
    let line = |subject: &&Row| {
        let (bits, threads) = (subject.bits.to_string(), subject.threads.to_string());
        let mut line = start([&subject.name(), &bits, &subject.engine, &threads]);
        let rate_in = |source: &Source| {
            source.report.rows.iter().find(|row| row.is_about(subject)).and_then(Row::rate)
        };
        let rate = rate_in(first);
        line += &format!("  {:>22}", rate.map_or_else(|| "-".into(), number));
        for other in others {
            let cell = rate_in(other).map_or_else(
                || "-".into(),
                |other| {
                    let ratio =
                        rate.map_or_else(String::new, |rate| format!(" {:>7.2}x", other / rate));
                    number(other) + &ratio
                },
            );
            line += &format!("  {cell:>22}");
        }
        line
    };
    // Words of a file could move the cursor of a terminal.
    let plain = |line: String| line.replace(char::is_control, " ");
    std::iter::once(head).chain(subjects.iter().map(line)).map(plain).collect()
}

/// Returns what is said of a row behind its figures.
pub(crate) fn notes(row: &Row) -> Vec<String> {
    let mut notes = vec![];
    if let Some(card) = &row.card {
        let simulated = if card.is_simulated { " (rates are of the simulation)" } else { "" };
        let (cycles, beats) = (number(card.cycles), number(card.beats));
        notes.push(format!("{cycles} cycles{simulated}, {beats} beats of memory"));
        if let Some(Projected { clock, rate }) = card.projected {
            notes.push(format!("{}/s at {clock} MHz (projected)", number(rate)));
        }
    }
    if let Some(times) = row.speedup_over_single {
        notes.push(format!("{times:.2}x single operations"));
    }
    if let Some(transforms) = row.transforms {
        notes.push(format!("{transforms} transforms"));
    }
    if let Some(times) = row.in_transforms {
        notes.push(format!("{times:.2} of a transform's time"));
    }
    if let Some(error) = row.error {
        notes.push(format!("off by {error:.1e} at most"));
    }
    if let Some(upload) = &row.upload {
        notes.push(format!("{:.2} bytes a value", upload.bytes_per_value));
    }
    if let Some((bytes, rate)) = row.bytes.zip(row.rate()) {
        notes.push(format!("{:.1} GB/s", rate * bytes as f64 / 1e9));
    }
    if row.is_insecure {
        notes.push("insecure".to_owned());
    }
    notes
}

/// The part of the time that other work had the cores, above which figures are marked.
pub(crate) const DISTURBED: f64 = 0.1;

/// Returns a warning if other work had the cores too.
pub(crate) fn busy(rows: &[Row]) -> Option<String> {
    let disturbed = || rows.iter().filter_map(|row| row.disturbed);
    let busy = disturbed().filter(|&part| part > DISTURBED).count();
    let most = disturbed().fold(0.0, f64::max);
    (busy > 0).then(|| {
        format!(
            "other work had the cores too while {busy} of {} rows were measured, at worst {:.0} % \
             of the time, and no quiet spell came: all may be faster than it looks here",
            rows.len(),
            100.0 * most
        )
    })
}

/// Aligns words to the left, numbers to the right.
fn line(cells: &[String; 8], notes: &str) -> String {
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
pub(crate) fn number(x: f64) -> String {
    match x {
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
