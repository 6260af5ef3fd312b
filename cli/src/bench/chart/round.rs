//! A round's time by its stages, and bytes a value: from the operations measured.

use super::{Anchor, Chart, Face, Ink, SIZE, SMALL, WIDTH, time};
use crate::bench::{
    operation::{CKKS_SUM, PAILLIER},
    report::Source,
    row::Row,
    table,
};

/// Left end of bars, and their greatest width: a time or a number stands behind.
const BARS: f64 = 260.0;
const WIDEST: f64 = 480.0;
const BAR: f64 = 9.0;
const LINE: f64 = 19.0;
/// Bits a second of the link that sending is reckoned for.
const LINK: f64 = 1e9;
/// Bytes of a float32.
const FLOAT: f64 = 4.0;

/// A stage of a round.
struct Stage {
    name: String,
    seconds: f64,
    /// Whether it is reckoned, not measured.
    is_reckoned: bool,
}

/// Draws the stages of a round of each report that has them, one after the other.
pub(crate) fn split(sources: &[Source]) -> Option<Chart> {
    let rounds: Vec<_> = sources.iter().enumerate().flat_map(|(i, s)| rounds(i, s)).collect();
    let scale = rounds.iter().map(|(.., stages)| length(stages)).fold(0.0, f64::max);
    if rounds.is_empty() {
        return None;
    }
    let mut chart = Chart::new("The time of a round by its stages");
    chart.heading("A round, stage by stage");
    chart.explain(
        "One client's way through a round of ckks-sum, if nothing overlapped: stages as measured above. Outlined: not \
         measured, but reckoned for a link of 1 Gbit/s that nothing else uses. A real round overlaps sealing, sending and \
         summing.",
    );
    for (index, title, stages) in &rounds {
        let base = chart.height() + SIZE;
        let style = (Face::Semibold, Anchor::Start, Ink::Text);
        chart.write([0.0, base], SIZE, style, title);
        chart.rect([0.0, base + 5.0, WIDTH, 0.75], Ink::Rule);
        chart.grow(SIZE + 10.0);
        let mut start = BARS;
        for stage in stages {
            let width = WIDEST * stage.seconds / scale;
            let (top, base) = (chart.height() + 4.0, chart.height() + LINE - 6.0);
            chart.text([0.0, base], Anchor::Start, Ink::Text, &stage.name);
            match stage.is_reckoned {
                true => chart.hollow([start, top, width, BAR], Ink::Muted),
                false => chart.rect([start, top, width, BAR], Ink::series(*index)),
            }
            let ink = if stage.is_reckoned { Ink::Muted } else { Ink::Text };
            start += width;
            chart.text([start + 6.0, base], Anchor::Start, ink, &time(stage.seconds));
            chart.grow(LINE);
        }
        let total = format!("{} in all", time(length(stages)));
        let style = (Face::Semibold, Anchor::Start, Ink::Text);
        let base = chart.height() + LINE - 6.0;
        chart.write([0.0, base], SIZE, style, &total);
        chart.grow(LINE + 8.0);
    }
    Some(chart)
}

fn length(stages: &[Stage]) -> f64 {
    stages.iter().map(|stage| stage.seconds).sum()
}

/// Returns the rounds of a report, one for each engine that has all stages.
fn rounds(index: usize, source: &Source) -> Vec<(usize, String, Vec<Stage>)> {
    let rows = &source.report.rows;
    let ends = rows.iter().filter(|row| row.scheme == CKKS_SUM && row.operation == "decrypt");
    let round = |end: &Row| {
        let stages = stages(rows, end)?;
        let threads = if end.threads == 1 { "thread" } else { "threads" };
        let values = number(end.values? as f64);
        let clients = end.upload.as_ref()?.clients?;
        let title = format!(
            "{}: {clients} clients of {values} float32, engine {} on {} {threads}",
            source.label, end.engine, end.threads
        );
        Some((index, title, stages))
    };
    ends.filter_map(round).collect()
}

/// Returns the stages of the round that ends with a row.
fn stages(rows: &[Row], end: &Row) -> Option<Vec<Stage>> {
    let find = |operation: &str| {
        let same = |row: &&Row| {
            row.scheme == CKKS_SUM && row.operation == operation && row.engine == end.engine
        };
        rows.iter().find(same)?.median_s
    };
    let (quantise, encrypt) = (find("quantise")?, find("encrypt")?);
    let (aggregate, decrypt) = (find("aggregate")?, end.median_s?);
    let upload = end.upload.as_ref()?;
    let bytes = upload.bytes_per_value * end.values? as f64;
    let measured = |name: &str, seconds| Stage { name: name.into(), seconds, is_reckoned: false };
    let sent = |way: &str| {
        let name = format!("{way} {} MB", table::number(bytes / 1e6));
        Stage { name, seconds: 8.0 * bytes / LINK, is_reckoned: true }
    };
    Some(vec![
        measured("quantise", quantise),
        measured("encrypt", (encrypt - quantise).max(0.0)),
        sent("send"),
        measured(&format!("sum {}, at the aggregator", upload.clients?), aggregate),
        sent("receive"),
        measured("decrypt to the mean", decrypt),
    ])
}

/// Draws the bytes a value that ciphertexts take, beside those of a float32.
pub(crate) fn bytes(sources: &[Source]) -> Option<Chart> {
    let mut found: Vec<(String, f64)> = vec![];
    for row in sources.iter().flat_map(|source| &source.report.rows) {
        if let Some((name, bytes)) = bytes_of(row)
            && !found.iter().any(|(other, _)| *other == name)
        {
            found.push((name, bytes));
        }
    }
    if found.is_empty() {
        return None;
    }
    found.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    let mut chart = Chart::new("Bytes a value");
    chart.heading("Bytes a value, at 16 bits");
    chart.explain(
        "What a client uploads for each value: ckks-sum by the size of a contribution's file for 10 clients, header and \
         all; Paillier by its ciphertext and the values that are packed in one, with headroom for 64. The line is at the \
         4 bytes of the float32 that they protect.",
    );
    let most = found.iter().map(|(_, bytes)| *bytes).fold(FLOAT, f64::max);
    let (top, scale) = (chart.height(), WIDEST / most);
    for (name, bytes) in &found {
        let (top, base) = (chart.height() + 4.0, chart.height() + LINE - 6.0);
        chart.text([0.0, base], Anchor::Start, Ink::Text, name);
        chart.rect([BARS, top, scale * bytes, BAR], Ink::Series(0));
        let right = BARS + scale * bytes + 8.0;
        chart.text([right, base], Anchor::Start, Ink::Text, &table::number(*bytes));
        chart.grow(LINE);
    }
    let line = BARS + scale * FLOAT;
    chart.rect([line, top, 1.0, chart.height() - top + 2.0], Ink::Text);
    let style = (Face::Regular, Anchor::Middle, Ink::Muted);
    chart.write([line, chart.height() + 13.0], SMALL, style, "float32, 4.00");
    chart.grow(18.0);
    Some(chart)
}

/// Returns a scheme's name and its bytes a value, from a row that encrypts.
fn bytes_of(row: &Row) -> Option<(String, f64)> {
    if row.operation != "encrypt" || row.is_insecure {
        return None;
    }
    match row.scheme.as_str() {
        CKKS_SUM => Some((CKKS_SUM.into(), row.upload.as_ref()?.bytes_per_value)),
        // A ciphertext is below n².
        PAILLIER => {
            let bytes = 2.0 * f64::from(row.bits) / 8.0;
            Some((format!("paillier-{}", row.bits), bytes / row.values? as f64))
        }
        _ => None,
    }
}

/// Formats a whole number with commas between thousands.
fn number(x: f64) -> String {
    let digits = format!("{x:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
