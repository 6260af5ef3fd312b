//! The page that `--report` writes: charts, all figures, and what they are of, in one file that needs no other.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use super::{
    chart::{Chart, INKS, escape, font_css, operations, peers::Peers, png, round, time},
    report::{Report, Source},
    row::Row,
    table::{DISTURBED, notes, number},
};
use crate::{
    failure::{Failure, at},
    files::Output,
};

/// Longer than any report.
const LONGEST: u64 = 64 << 20;

/// Reports and comparisons beside each other.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) sources: Vec<Source>,
    pub(crate) peers: Vec<Peers>,
}

impl Page {
    /// Reads files that `bench --json` or `benches/peers` wrote. Reports are called by their files' names.
    ///
    /// # Errors
    /// A file cannot be read, or holds something else.
    pub(crate) fn read(paths: &[impl AsRef<Path>]) -> Result<Self, Failure> {
        let mut page = Self::default();
        for path in paths.iter().map(AsRef::as_ref) {
            let refuse = |why: &str| Failure::Work(format!("{}: {why}", path.display()));
            let bytes = start(path).map_err(at(path))?;
            if bytes.len() as u64 > LONGEST {
                return Err(refuse("too long for a report of `bench --json`"));
            }
            let json: serde_json::Value = serde_json::from_slice(&bytes)
                .map_err(|why| refuse(&format!("no report of `bench --json`: {why}")))?;
            if json.get("rivals").is_some() {
                page.peers.push(Peers::from_json(path, &json)?);
                continue;
            }
            let label = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            page.sources.push(Source { label, report: Report::from_json(path, &json)? });
        }
        Ok(page)
    }

    /// Draws everything.
    pub(crate) fn charts(&self) -> Vec<Chart> {
        let mut charts: Vec<_> = self.peers.iter().map(Peers::chart).collect();
        if !self.sources.is_empty() {
            charts.push(operations::chart(&self.sources));
            charts.extend(round::split(&self.sources));
            charts.extend(round::bytes(&self.sources));
        }
        charts
    }

    /// Writes it as a page, as a picture, or both.
    ///
    /// # Errors
    /// A file cannot be written; there is too much for a picture.
    pub(crate) fn write(
        &self,
        page: Option<Output>,
        picture: Option<Output>,
    ) -> Result<(), Failure> {
        let charts = self.charts();
        if let Some(mut out) = page {
            out.put(self.html(&charts).as_bytes())?;
            out.commit()?;
        }
        if let Some(mut out) = picture {
            out.put(&png(&charts)?)?;
            out.commit()?;
        }
        Ok(())
    }

    fn html(&self, charts: &[Chart]) -> String {
        let figures: String =
            charts.iter().map(|chart| format!("<figure>\n{}</figure>\n", chart.svg())).collect();
        let tables: String = self.sources.iter().map(rows).collect();
        let peers: String = self.peers.iter().map(describe_peers).collect();
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>Ciphergram: measurements</title>\n<style>\n{}{STYLE}</style>\n</head>\n<body>\n\
             <h1>Ciphergram: measurements</h1>\n{}{figures}{peers}{tables}</body>\n</html>\n",
            font_css() + &colours(),
            self.facts(),
        )
    }

    /// Returns what the reports are of, a column each.
    fn facts(&self) -> String {
        if self.sources.is_empty() {
            return String::new();
        }
        let reports: Vec<_> = self.sources.iter().map(|source| &source.report).collect();
        let mut lines = vec![];
        let mut line = |name: &str, of: &dyn Fn(&Report) -> String| {
            let cells: String =
                reports.iter().map(|report| format!("<td>{}</td>", escape(&of(report)))).collect();
            lines.push(format!("<tr><th scope=\"row\">{name}</th>{cells}</tr>\n"));
        };
        let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
        line("Date", &|r| {
            let second = r.time.as_deref().and_then(|time| time.get(..19));
            second
                .map_or_else(|| "unknown".into(), |time| format!("{} UTC", time.replace('T', " ")))
        });
        line("Commit", &|r| r.commit.clone());
        line("Processor", &|r| r.machine.processor.describe());
        line("Features", &|r| r.machine.processor.features.join(", "));
        line("Cores", &|r| r.machine.cores.to_string());
        line("Memory", &|r| {
            let gibibytes = |bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
            r.machine.memory_bytes.map_or_else(|| "unknown".into(), gibibytes)
        });
        line("Kernel", &|r| or_unknown(&r.machine.kernel));
        line("Compiler", &|r| or_unknown(&r.machine.compiler));
        line("Engines", &|r| {
            let engine = |engine: &super::machine::EngineDescription| {
                let rate =
                    engine.multiply_rate.map(|rate| format!(", {:.2} G multiplies/s", rate / 1e9));
                format!("{}: {}{}", engine.name, engine.description, rate.unwrap_or_default())
            };
            r.machine.engines.iter().map(engine).collect::<Vec<_>>().join("; ")
        });
        line("Options", &|r| {
            r.options.as_ref().map_or_else(|| "unknown".into(), super::report::Options::describe)
        });
        let names: String = match &self.sources[..] {
            [_] => String::new(),
            sources => {
                let name = |s: &Source| format!("<th scope=\"col\">{}</th>", escape(&s.label));
                format!("<tr><td></td>{}</tr>\n", sources.iter().map(name).collect::<String>())
            }
        };
        format!("<table class=\"facts\">\n{names}{}</table>\n", lines.concat())
    }
}

/// Returns what a file begins with, no more than shows that it is too long: one that is a device may have no end.
fn start(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns all rows of a report as a table.
fn rows(source: &Source) -> String {
    const HEAD: [&str; 13] = [
        "operation",
        "bits",
        "engine",
        "threads",
        "operations/s",
        "median",
        "p10",
        "p90",
        "values/s",
        "of limit",
        "disturbed",
        "count",
        "notes",
    ];
    let head: String = HEAD.iter().map(|name| format!("<th scope=\"col\">{name}</th>")).collect();
    let body: String = source.report.rows.iter().map(row).collect();
    format!(
        "<h2>{}: every row</h2>\n<div class=\"wide\"><table class=\"rows\">\n<thead><tr>{head}</tr></thead>\n\
         <tbody>\n{body}</tbody>\n</table></div>\n",
        escape(&source.label)
    )
}

fn row(row: &Row) -> String {
    let dash = || "–".to_owned();
    let seconds = |time_of: Option<f64>| time_of.map_or_else(dash, time);
    let part = |part: f64| format!("{:.1} %", 100.0 * part);
    let cells = [
        row.name(),
        row.bits.to_string(),
        row.engine.clone(),
        row.threads.to_string(),
        row.rate().map_or_else(dash, number),
        seconds(row.median_s),
        seconds(row.p10_s),
        seconds(row.p90_s),
        row.value_rate().map_or_else(dash, number),
        row.limit_fraction.map_or_else(dash, part),
        row.disturbed.map_or_else(dash, part),
        row.count.to_string(),
        notes(row).join(", "),
    ];
    let is_disturbed = row.disturbed.is_some_and(|part| part > DISTURBED);
    let class = if is_disturbed { " class=\"disturbed\"" } else { "" };
    let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
    format!("<tr{class}>{cells}</tr>\n")
}

/// Returns who was not measured beside ours and why, and what the figures are of.
fn describe_peers(peers: &Peers) -> String {
    let mut of = vec![];
    of.extend(peers.machine.as_ref().map(|machine| machine.processor.describe()));
    of.extend(peers.commit.as_ref().map(|commit| format!("commit {commit}")));
    of.extend(peers.time.clone());
    if peers.disturbed() > DISTURBED {
        let part = 100.0 * peers.disturbed();
        of.push(format!("disturbed: other work had the core for up to {part:.0} % of the time"));
    }
    let failures = peers.rivals.iter().filter_map(|rival| {
        let why = rival.failure.as_ref()?;
        Some(format!("{} is not measured: {why}", rival.name))
    });
    // A library that failed with one size of keys has a line for each.
    let lines: BTreeSet<_> = failures.chain(peers.problems.iter().cloned()).collect();
    let lines: String = lines.iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
    let list = if lines.is_empty() { String::new() } else { format!("<ul>\n{lines}</ul>\n") };
    format!(
        "<h2>{}: what the figures are of</h2>\n<p>{}.</p>\n{list}",
        peers.title(),
        escape(&of.join("; "))
    )
}

/// Returns the colours of inks, light and dark.
fn colours() -> String {
    let mut rules = String::new();
    let [light, dark] = [2, 3].map(|column| {
        let colour = |&(name, _, light, dark): &(&str, _, u32, u32)| {
            let colour = if column == 2 { light } else { dark };
            format!("--{name}:#{colour:06x};")
        };
        INKS.iter().map(colour).collect::<String>()
    });
    for (name, ..) in &INKS {
        rules += &format!(".{name}{{fill:var(--{name})}}\n");
    }
    format!(
        ":root{{{light}}}\n@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n\
         @media print{{:root{{{light}}}}}\n{rules}"
    )
}

/// The rest of the page's style.
const STYLE: &str = "\
:root{color-scheme:light dark}
body{margin:2.5rem auto;max-width:860px;padding:0 1.25rem;background:var(--paper);color:var(--text);
  font:13px/1.5 Inter,system-ui,sans-serif;font-variant-numeric:tabular-nums}
h1{font-size:22px;font-weight:600;margin:0 0 1rem}
h2{font-size:15px;font-weight:600;margin:2.5rem 0 .5rem}
figure{margin:2.25rem 0}
svg{display:block;width:100%;height:auto;font-family:Inter,system-ui,sans-serif}
svg .hollow{fill:none;stroke:var(--muted)}
svg .strong{font-weight:600}
svg .end{text-anchor:end}
svg .middle{text-anchor:middle}
table{border-collapse:collapse}
th{font-weight:400;color:var(--muted);text-align:left;vertical-align:top;white-space:nowrap}
td,th{padding:.1rem 1rem .1rem 0}
.facts tr:first-child th[scope=col]{font-weight:600;color:var(--text)}
.facts td{vertical-align:top;overflow-wrap:anywhere}
.wide{overflow-x:auto}
.rows{font-size:11px;width:100%}
.rows td,.rows th{padding:.12rem .5rem .12rem 0;text-align:right;white-space:nowrap;
  border-bottom:1px solid var(--rule)}
.rows :is(td,th):is(:nth-child(1),:nth-child(3),:last-child){text-align:left}
.rows .disturbed td:nth-child(11){color:var(--warning)}
@media print{body{margin:0;max-width:none}figure,tr{break-inside:avoid}.rows{font-size:8px}}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_no_other_file() {
        let html = Page::default().html(&[]);
        assert!(!html.contains("http") && !html.contains("@import"), "{html}");
        let urls = html.match_indices("url(").map(|(at, _)| &html[at..]);
        assert!(urls.into_iter().all(|url| url.starts_with("url(data:")));
    }

    #[test]
    fn pages_are_light_and_dark() {
        let css = colours();
        assert!(css.contains("--paper:#ffffff") && css.contains("--paper:#15171b"), "{css}");
        assert!(css.contains("prefers-color-scheme:dark") && css.contains("@media print"));
    }
}
