//! Throughput: a bar for each operation, engine and report, its limit behind it.

use super::{Anchor, Chart, Face, Ink, SIZE, SMALL, WIDTH, time};
use crate::bench::{
    operation::{CKKS_SUM, KERNELS, PAILLIER},
    report::Source,
    row::Row,
    table::{DISTURBED, number},
};

/// Left end of bars.
const BARS: f64 = 190.0;
/// The columns of figures: names and widths, the last of which is left out where nothing is compared.
const COLUMNS: [(&str, f64); 5] = [
    ("operations/s", 78.0),
    ("time of one", 78.0),
    ("values/s", 78.0),
    ("of limit", 62.0),
    ("of first", 58.0),
];
/// Space at the right for marks of what was disturbed.
const MARKS: f64 = 44.0;
/// Height of a bar, of its line, and the space below an operation.
const BAR: f64 = 9.0;
const LINE: f64 = 15.0;
const SPACE: f64 = 5.0;

/// The places of what stands in a line.
struct Layout {
    /// Greatest width of a bar.
    widest: f64,
    /// Names and right ends of columns.
    columns: Vec<(&'static str, f64)>,
}

impl Layout {
    fn new(is_compared: bool) -> Self {
        let shown = &COLUMNS[..COLUMNS.len() - usize::from(!is_compared)];
        let figures: f64 = shown.iter().map(|(_, width)| width).sum();
        let mut right = WIDTH - MARKS - figures;
        let widest = right - BARS;
        let columns = shown.iter().map(|&(name, width)| {
            right += width;
            (name, right)
        });
        let columns = columns.collect();
        Self { widest, columns }
    }
}

/// Rows that share a heading.
struct Group<'a> {
    scheme: &'a str,
    bits: Option<u32>,
    /// The operations and engines, each with its rows and the numbers of their reports.
    subjects: Vec<Vec<(usize, &'a Row)>>,
}

/// Draws the rows of reports.
pub(crate) fn chart(sources: &[Source]) -> Chart {
    let mut chart = Chart::new("Operations a second of each operation, beside their limits");
    chart.heading("Operations a second, on the limit of the processor");
    let groups = groups(sources);
    chart.explain(
        "Grey, where there is one: what the engine's multiply instructions, or an operation's transforms, alone would \
         allow, by a rate measured in the same run. An operation has one scale for all its bars; a group without limits has one for all of it. The thin \
         line is from the 10th to the 90th percentile.",
    );
    if sources.len() > 1 {
        legend(&mut chart, sources);
    }
    let layout = Layout::new(sources.len() > 1);
    for group in &groups {
        heading(&mut chart, group, &layout);
        let common = group.scale_of_all();
        for subject in &group.subjects {
            let scale = common.unwrap_or_else(|| most(subject));
            draw_subject(&mut chart, subject, scale, &layout);
        }
        chart.grow(8.0);
    }
    let is_disturbed = |row: &Row| row.disturbed.is_some_and(|part| part > DISTURBED);
    if groups
        .iter()
        .flat_map(|group| group.subjects.iter().flatten())
        .any(|(_, row)| is_disturbed(row))
    {
        chart.explain(
            "× other work had the cores for more than a tenth of the time while this was measured: it may be faster \
             than it looks.",
        );
    }
    chart
}

/// Collects the rows of all reports, in the order in which they were measured.
fn groups(sources: &[Source]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = vec![];
    let rows = sources.iter().enumerate();
    for (index, row) in
        rows.flat_map(|(index, s)| s.report.rows.iter().map(move |row| (index, row)))
    {
        // Moduli and rings of kernels have sizes of their own.
        let bits = (row.scheme != KERNELS).then_some(row.bits);
        let at = groups.iter().position(|group| group.scheme == row.scheme && group.bits == bits);
        let at = at.unwrap_or_else(|| {
            groups.push(Group { scheme: &row.scheme, bits, subjects: vec![] });
            groups.len() - 1
        });
        let subjects = &mut groups[at].subjects;
        let same = |subject: &Vec<(usize, &Row)>| subject[0].1.is_about(row);
        match subjects.iter_mut().find(|subject| same(subject)) {
            Some(subject) => subject.push((index, row)),
            None => subjects.push(vec![(index, row)]),
        }
    }
    groups
}

impl Group<'_> {
    fn title(&self) -> String {
        match (self.scheme, self.bits) {
            (PAILLIER, Some(bits)) => format!("Paillier, n of {bits} bits"),
            (CKKS_SUM, Some(bits)) => format!("ckks-sum, whole updates at {bits} bits a value"),
            (KERNELS, _) => "Kernels".into(),
            (scheme, _) => scheme.into(),
        }
    }

    /// Returns the scale of all its bars where no row has a limit.
    fn scale_of_all(&self) -> Option<f64> {
        let has_limits =
            self.subjects.iter().flatten().any(|(_, row)| row.limit_fraction.is_some());
        (!has_limits).then(|| self.subjects.iter().map(|subject| most(subject)).fold(0.0, f64::max))
    }
}

/// Returns the operations a second that the widest of some bars stands for, its limit included.
fn most(subject: &[(usize, &Row)]) -> f64 {
    let ends = subject.iter().flat_map(|(_, row)| [limit(row), row.rate()]);
    ends.flatten().fold(0.0, f64::max)
}

/// Returns the operations a second at which an operation would reach its limit.
fn limit(row: &Row) -> Option<f64> {
    row.rate().zip(row.limit_fraction).map(|(rate, part)| rate / part)
}

/// Names the reports by their colours.
fn legend(chart: &mut Chart, sources: &[Source]) {
    for (index, Source { label, report }) in sources.iter().enumerate() {
        let base = chart.height() + SIZE;
        chart.rect([0.0, base - BAR, 14.0, BAR], Ink::series(index));
        let style = (Face::Semibold, Anchor::Start, Ink::Text);
        chart.write([22.0, base], SIZE, style, label);
        let after = 22.0 + Face::Semibold.width(label, SIZE) + 10.0;
        let style = (Face::Regular, Anchor::Start, Ink::Muted);
        chart.write([after, base], SMALL, style, &report.occasion());
        chart.grow(18.0);
    }
    chart.grow(6.0);
}

/// Draws a group's title and the names of the columns, over a line.
fn heading(chart: &mut Chart, group: &Group<'_>, layout: &Layout) {
    let base = chart.height() + SIZE;
    let style = (Face::Semibold, Anchor::Start, Ink::Text);
    chart.write([0.0, base], SIZE, style, &group.title());
    for (name, right) in &layout.columns {
        let style = (Face::Regular, Anchor::End, Ink::Muted);
        chart.write([*right, base], SMALL, style, name);
    }
    chart.rect([0.0, base + 5.0, WIDTH, 0.75], Ink::Rule);
    chart.grow(SIZE + 10.0);
}

/// Draws the bars of one operation on one engine.
fn draw_subject(chart: &mut Chart, subject: &[(usize, &Row)], scale: f64, layout: &Layout) {
    let first = subject[0].1;
    let threads = if first.threads == 1 { String::new() } else { format!(" ×{}", first.threads) };
    // Moduli of several sizes are told apart by nothing else.
    let size = (first.scheme == KERNELS && first.operation == "mont_mul").then_some(first.bits);
    let size = size.map_or_else(String::new, |bits| format!(" {bits}"));
    let base = chart.height() + LINE - 4.0;
    chart.text([0.0, base], Anchor::Start, Ink::Text, &format!("{}{size}", first.operation));
    let engine = format!("{}{threads}", first.engine);
    let style = (Face::Regular, Anchor::End, Ink::Muted);
    chart.write([BARS - 10.0, base], SMALL, style, &engine);
    for &(index, row) in subject {
        draw_bar(chart, row, Ink::series(index), (scale, layout.widest));
        let base = chart.height() + LINE - 4.0;
        let ratio = || Some(row.rate()? / first.rate()?);
        let ratio = ratio().map(|ratio| format!("{ratio:.2}×"));
        let figures = [
            row.rate().map(number),
            row.median_s.map(time),
            row.value_rate().map(number),
            row.limit_fraction.map(|part| format!("{:.1} %", 100.0 * part)),
            ratio,
        ];
        for (figure, (_, right)) in figures.iter().zip(&layout.columns) {
            if let Some(figure) = figure {
                chart.text([*right, base], Anchor::End, Ink::Text, figure);
            }
        }
        if let Some(part) = row.disturbed.filter(|part| *part > DISTURBED) {
            let style = (Face::Regular, Anchor::End, Ink::Warning);
            chart.write([WIDTH, base], SMALL, style, &format!("× {:.0} %", 100.0 * part));
        }
        chart.grow(LINE);
    }
    chart.grow(SPACE);
}

/// Draws one bar over its limit.
fn draw_bar(chart: &mut Chart, row: &Row, ink: Ink, (scale, widest): (f64, f64)) {
    let top = chart.height() + 2.0;
    let width = |rate: f64| widest * (rate / scale).clamp(0.0, 1.0);
    if let Some(limit) = limit(row) {
        chart.rect([BARS, top, width(limit), BAR], Ink::Limit);
    }
    let Some(rate) = row.rate() else { return };
    chart.rect([BARS, top, width(rate), BAR], ink);
    if let Some((p10, p90)) = row.p10_s.zip(row.p90_s) {
        let (slow, fast) = (width(1.0 / p90), width(1.0 / p10));
        chart.rect([BARS + slow, top + BAR / 2.0 - 0.5, fast - slow, 1.0], Ink::Text);
    }
}
