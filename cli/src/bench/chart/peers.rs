//! Ours beside other libraries: what `benches/peers` measured.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::{Anchor, Chart, Face, Ink, SIZE, SMALL, WIDTH, time};
use crate::{
    bench::{machine::Machine, table, table::DISTURBED},
    failure::Failure,
};

/// Width of the names, and space between panels.
const NAMES: f64 = 190.0;
const BETWEEN: f64 = 26.0;
/// Panels side by side.
const PANELS: usize = 4;
const LINE: f64 = 19.0;
const RADIUS: f64 = 3.6;
/// Room for the figure behind the last dot.
const FIGURE: f64 = 46.0;
/// Our name among the rivals.
const OURS: &str = "Ciphergram";

/// What libraries are held beside each other at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Paillier,
    /// Sums of float32.
    Sums,
    /// Encrypted vectors.
    Vectors,
}

/// The figures of a run of `peers/run.py`, `peers/sums.py` or `peers/ckks.py`.
#[derive(Deserialize)]
pub(crate) struct Peers {
    /// Ours, as its own report says.
    pub(crate) machine: Option<Machine>,
    pub(crate) commit: Option<String>,
    /// When it began, as in reports of `bench`.
    #[serde(default)]
    pub(crate) time: Option<String>,
    /// Pairs of each, and seconds for each side of a pair.
    pub(crate) rounds: u32,
    pub(crate) seconds: f64,
    /// The part of the core's time that the most disturbed measurement had.
    least_share: f64,
    pub(crate) rivals: Vec<Rival>,
    rows: Vec<PeersRow>,
    /// Sizes of our uploads, of runs that sum float32.
    #[serde(default)]
    uploads: Vec<Upload>,
    /// Packages that could not be installed, and why.
    #[serde(default)]
    pub(crate) problems: Vec<String>,
}

/// A library, or why it is not measured.
#[derive(Deserialize)]
pub(crate) struct Rival {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) version: Option<String>,
    #[serde(default)]
    pub(crate) failure: Option<String>,
    /// Bytes of an upload for each value, of those that sum float32.
    #[serde(default)]
    bytes_per_value: Option<f64>,
}

/// An operation: seconds of a single one, ours and by rival.
#[derive(Deserialize)]
struct PeersRow {
    label: String,
    bits: u32,
    ours_s: Option<f64>,
    rivals_s: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Upload {
    bytes_per_value: f64,
}

/// One measure of everybody.
struct Panel {
    title: String,
    ours: Option<f64>,
    rivals: BTreeMap<String, f64>,
    /// Writes a figure.
    format: fn(f64) -> String,
}

impl Peers {
    /// Reads the figures out of what a file holds.
    ///
    /// # Errors
    /// It holds others, or a time that is none.
    pub(crate) fn from_json(path: &Path, json: &serde_json::Value) -> Result<Self, Failure> {
        let refuse = |why: String| Failure::Work(format!("{}: {why}", path.display()));
        let peers = Self::deserialize(json)
            .map_err(|why| refuse(format!("no figures of benches/peers: {why}")))?;
        let times =
            peers.rows.iter().flat_map(|row| row.ours_s.iter().chain(row.rivals_s.values()));
        let sizes = peers.rivals.iter().filter_map(|rival| rival.bytes_per_value.as_ref());
        let sizes = sizes.chain(peers.uploads.iter().map(|upload| &upload.bytes_per_value));
        match times.chain(sizes).find(|figure| !(1e-15..1e9).contains(*figure)) {
            Some(figure) => Err(refuse(format!("{figure} is no figure"))),
            None => Ok(peers),
        }
    }

    /// Returns the part of its time for which other work had the core, of the most disturbed
    /// measurement.
    pub(crate) fn disturbed(&self) -> f64 {
        1.0 - self.least_share
    }

    fn subject(&self) -> Subject {
        let begins = |word: &str| self.rows.iter().any(|row| row.label.starts_with(word));
        match () {
            () if !self.uploads.is_empty() || begins("aggregate") => Subject::Sums,
            () if begins("ckks-") => Subject::Vectors,
            () => Subject::Paillier,
        }
    }

    /// Returns what was measured, in a few words.
    pub(crate) fn title(&self) -> &'static str {
        match self.subject() {
            Subject::Paillier => "Paillier",
            Subject::Sums => "Sums of float32",
            Subject::Vectors => "Encrypted vectors",
        }
    }

    /// Returns its measures, those of one size of keys after the other.
    fn panels(&self) -> Vec<Panel> {
        let title = |row: &PeersRow| match self.subject() {
            Subject::Sums | Subject::Vectors => row.label.clone(),
            Subject::Paillier => format!("{}, {} bits", row.label, row.bits),
        };
        let panel = |row: &PeersRow| Panel {
            title: title(row),
            ours: row.ours_s,
            rivals: row.rivals_s.clone(),
            format: time,
        };
        // What only some rivals do comes last.
        let rows = || self.rows.iter().filter(|row| !row.rivals_s.is_empty());
        let is_special = |row: &&PeersRow| row.label.contains(", ");
        let mut panels: Vec<_> = rows().filter(|row| !is_special(row)).map(panel).collect();
        if let Some(upload) = self.uploads.first() {
            let bytes = |rival: &Rival| Some((rival.name.clone(), rival.bytes_per_value?));
            panels.push(Panel {
                title: "bytes a value".into(),
                ours: Some(upload.bytes_per_value),
                rivals: self.rivals.iter().filter_map(bytes).collect(),
                format: table::number,
            });
        }
        panels.extend(rows().filter(is_special).map(panel));
        panels
    }

    /// Draws everybody in each measure, some panels side by side.
    pub(crate) fn chart(&self) -> Chart {
        let (title, words) = match self.subject() {
            Subject::Sums => (
                "Sums of 1,000,000 float32 of each of 10 clients",
                "Encrypting one client's vector, summing ten, decrypting to the mean, and what a client uploads.",
            ),
            Subject::Paillier => (
                "Operations of Paillier's scheme",
                "The time of a single operation, of batches where a library has them.",
            ),
            Subject::Vectors => (
                "Work on encrypted vectors",
                "The time of a single operation on one ciphertext, and to screen an update of 1,000,000 values.",
            ),
        };
        let mut chart = Chart::new(title);
        chart.heading(title);
        chart.explain(&format!(
            "{words} One core, theirs and ours in turn, {} × {} s a side: medians, of each library's fastest way. \
             Scales are logarithmic: each line is ten times the one before, and further left is better.",
            self.rounds, self.seconds
        ));
        if self.disturbed() > DISTURBED {
            chart.explain(&format!(
                "× Other work had the core for up to {:.0} % of the time: ours, which is timed by the clock, may be faster \
                 than it looks.",
                100.0 * self.disturbed()
            ));
        }
        let panels = self.panels();
        for line in panels.chunks(PANELS) {
            self.draw_line(&mut chart, line);
        }
        chart
    }

    /// Draws panels side by side, and the names of those that they hold.
    fn draw_line(&self, chart: &mut Chart, panels: &[Panel]) {
        let names = self.names(panels);
        let width = (WIDTH - NAMES - BETWEEN * (PANELS - 1) as f64) / PANELS as f64;
        let top = chart.height();
        for (index, panel) in panels.iter().enumerate() {
            let left = NAMES + index as f64 * (width + BETWEEN);
            draw_panel(chart, panel, &names, [left, top, width - FIGURE]);
        }
        for (index, name) in names.iter().enumerate() {
            let base = top + 2.0 * LINE + LINE * index as f64 - 2.0;
            let rival = self.rivals.iter().find(|rival| rival.name == *name);
            let face = if rival.is_none() { Face::Semibold } else { Face::Regular };
            chart.write([0.0, base], SIZE, (face, Anchor::Start, Ink::Text), name);
            if let Some(version) = rival.and_then(|rival| rival.version.as_ref()) {
                let right = Face::Regular.width(name, SIZE) + 6.0;
                let style = (Face::Regular, Anchor::Start, Ink::Muted);
                chart.write([right, base], SMALL, style, version);
            }
        }
        chart.grow(LINE * (names.len() as f64 + 1.0) + 22.0);
    }

    /// Returns everybody in these panels: ours first, others by their times in the first.
    fn names(&self, panels: &[Panel]) -> Vec<String> {
        let mut names: Vec<&String> = panels.iter().flat_map(|panel| panel.rivals.keys()).collect();
        names.sort();
        names.dedup();
        let first = |name: &&String| panels[0].rivals.get(*name).copied().unwrap_or(f64::INFINITY);
        names.sort_by(|a, b| first(a).total_cmp(&first(b)));
        std::iter::once(OURS.into()).chain(names.into_iter().cloned()).collect()
    }
}

/// Draws one measure at a place: left, top and the width of its scale.
fn draw_panel(chart: &mut Chart, panel: &Panel, names: &[String], [left, top, width]: [f64; 3]) {
    let style = (Face::Semibold, Anchor::Start, Ink::Text);
    chart.write([left, top + SIZE], SMALL, style, &panel.title);
    let figures = || panel.rivals.values().chain(&panel.ours).map(|figure| figure.log10());
    // One and a half decades at least: what differs little shall look so.
    let least = figures().fold(f64::INFINITY, f64::min) - 0.12;
    let most = figures().fold(f64::NEG_INFINITY, f64::max).max(least + 1.5) + 0.05;
    let x = |log: f64| left + width * (log - least) / (most - least);
    let bottom = top + LINE * (names.len() as f64 + 1.0) + 4.0;
    chart.rect([left, top + SIZE + 6.0, width + FIGURE, 0.75], Ink::Rule);
    for decade in least.ceil() as i32..=most.floor() as i32 {
        let place = [x(f64::from(decade)), top + SIZE + 6.0, 0.75, bottom - top - SIZE - 6.0];
        chart.rect(place, Ink::Rule);
    }
    for (index, name) in names.iter().enumerate() {
        let is_ours = index == 0;
        let figure = if is_ours { panel.ours } else { panel.rivals.get(name).copied() };
        let Some(figure) = figure else { continue };
        let centre = [x(figure.log10()), top + 2.0 * LINE + LINE * index as f64 - 6.0];
        let (ink, face) = match is_ours {
            true => (Ink::Series(0), Face::Semibold),
            false => (Ink::Other, Face::Regular),
        };
        chart.dot(centre, RADIUS, ink);
        let (place, text) = ([centre[0] + RADIUS + 4.0, centre[1] + 4.0], (panel.format)(figure));
        // No line crosses a figure.
        let width = face.width(&text, SMALL) + 3.0;
        chart.rect([place[0] - 1.5, centre[1] - 5.0, width, 11.0], Ink::Paper);
        chart.write(place, SMALL, (face, Anchor::Start, Ink::Text), &text);
    }
}
