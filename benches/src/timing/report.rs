//! The table of a run, and the conclusion from it.

use std::process::ExitCode;

use super::{
    THRESHOLD,
    catalogue::{Expect, Test},
    crops::{Crops, Finding},
};

/// One test that ran.
pub struct Entry {
    test: &'static Test,
    /// Samples that it should have taken.
    asked: usize,
    /// Samples taken, both classes together.
    taken: usize,
    /// Of those, the ones that no other thread disturbed; see [`Samples`](super::measure::Samples).
    used: usize,
    /// The finding; none if no crop has enough samples.
    finding: Option<Finding>,
    /// See [`Crops::resolution_ns`].
    resolution_ns: Option<u64>,
}

impl Entry {
    /// Returns the row of a test: the samples that it took of those `asked` for, and those that are used.
    #[must_use]
    pub fn new(test: &'static Test, (taken, asked): (usize, usize), crops: &Crops) -> Self {
        let (finding, resolution_ns) = (crops.strongest(), crops.resolution_ns());
        Self { test, asked, taken, used: crops.samples(), finding, resolution_ns }
    }
}

/// The end of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Found what it must find, a leak or none.
    AsExpected,
    /// Found a leak where none may be.
    Leak,
    /// Found none where one is, or the same class twice to differ: the run is no evidence.
    Void,
}

impl Entry {
    /// Returns whether the test found what it must.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let leaks = self.finding.as_ref().map(Finding::leaks);
        match (self.test.expect, leaks) {
            (Expect::Quiet | Expect::Same, Some(false)) | (Expect::Leak, Some(true)) => {
                Verdict::AsExpected
            }
            (Expect::Quiet, Some(true)) => Verdict::Leak,
            _ => Verdict::Void,
        }
    }

    /// Returns the line of the table, under [`HEAD`].
    #[must_use]
    pub fn row(&self) -> String {
        let Self { test, taken, .. } = self;
        let word = match (self.verdict(), test.expect) {
            (Verdict::AsExpected, Expect::Leak) => "seen",
            (Verdict::AsExpected, _) => "quiet",
            (Verdict::Leak, _) => "LEAKS",
            (Verdict::Void, _) => "VOID",
        };
        let Some(finding) = self.finding else {
            return format!("{:16} {taken:>8}  too few samples: {word}", test.name);
        };
        let Finding { kept, difference, mean_ns } = finding;
        let resolves = self.resolution_ns.map(|ns| format!("{:.4}", 100.0 * ns as f64 / mean_ns));
        format!(
            "{:16} {taken:>8} {:>6.1} {:>10.2} {:>8.2} {:>6.1} {:>11.1} {:>10.4} {:>10}  {word}",
            test.name,
            100.0 * self.used as f64 / *taken as f64,
            mean_ns / 1e3,
            difference.t(),
            100.0 * kept,
            difference.means,
            100.0 * finding.share(),
            resolves.as_deref().unwrap_or("-"),
        )
    }
}

/// The columns: samples of both classes, and the share of them that is used; in the crop of the
/// largest |t|, the mean time of class B, t, the share of used samples kept, the difference A − B
/// of means, and the same as a share of the mean; and the shortest delay of a class that would have
/// been found, as a share of the mean.
pub const HEAD: &str = "\
test              samples used %    mean us        t crop %      A-B ns      A-B % resolves %";

/// Returns the conclusion, in lines, and the exit code: 0 if each test found what it must.
#[must_use]
pub fn conclusion(entries: &[Entry]) -> (String, ExitCode) {
    let names = |verdict| -> Vec<&str> {
        let of = entries.iter().filter(|entry| entry.verdict() == verdict);
        of.map(|entry| entry.test.name).collect()
    };
    let (leaks, void) = (names(Verdict::Leak), names(Verdict::Void));
    let mut lines = vec![];
    if entries.iter().any(|entry| entry.taken < entry.asked) {
        lines.push("time was up before all samples were taken".to_owned());
    }
    if !leaks.is_empty() {
        lines.push(format!("LEAK: time depends on the class in {}", leaks.join(", ")));
    }
    if !void.is_empty() {
        let names = void.join(", ");
        lines.push(format!(
            "VOID: this run is no evidence, for {names} found what is not there or missed what is"
        ));
    }
    let good = leaks.is_empty() && void.is_empty();
    if good {
        lines
            .push(format!("no operation reached |t| = {THRESHOLD}; what leaks by design was seen"));
    }
    (lines.join("\n"), if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::{catalogue::ALL, welch::Difference};

    fn entry(name: &str, t: f64) -> Entry {
        let test = ALL.iter().find(|test| test.name == name).unwrap();
        let difference = Difference { means: 20.0 * t, error: 20.0 };
        let finding = Some(Finding { kept: 0.5, difference, mean_ns: 1e6 });
        Entry { test, asked: 9_000, taken: 9_000, used: 8_100, finding, resolution_ns: Some(100) }
    }

    #[test]
    fn verdicts_are_by_what_a_test_expects() {
        for (name, t, verdict) in [
            ("pow-ones", 4.99, Verdict::AsExpected),
            ("pow-ones", -5.0, Verdict::Leak),
            ("control-compare", -80.0, Verdict::AsExpected),
            ("control-compare", 4.0, Verdict::Void),
            ("control-same", 1.0, Verdict::AsExpected),
            ("control-same", 6.0, Verdict::Void),
        ] {
            assert_eq!(entry(name, t).verdict(), verdict, "{name} {t}");
        }
        let none = Entry { finding: None, ..entry("pow-ones", 0.0) };
        assert_eq!(none.verdict(), Verdict::Void);
        assert_eq!(none.row(), "pow-ones             9000  too few samples: VOID");
    }

    #[test]
    fn rows_stand_under_their_head() {
        let numbers = "\
pow-ones             9000   90.0    1000.00     2.50   50.0        50.0     0.0050     0.0100";
        assert_eq!(entry("pow-ones", 2.5).row(), format!("{numbers}  quiet"));
        assert_eq!(HEAD.len(), numbers.len());
    }

    #[test]
    fn one_leak_or_blindness_fails_a_run() {
        let conclude = |entries: &[Entry]| conclusion(entries);
        let (seen, quiet) = (|| entry("control-compare", 90.0), || entry("pow-ones", 1.0));
        let good = "no operation reached |t| = 5; what leaks by design was seen".to_owned();
        assert_eq!(conclude(&[seen(), quiet()]), (good.clone(), ExitCode::SUCCESS));
        let (text, code) = conclude(&[seen(), quiet(), entry("pow-zeros", 7.0)]);
        assert_eq!(text, "LEAK: time depends on the class in pow-zeros");
        assert_eq!(code, ExitCode::FAILURE);
        let (text, code) = conclude(&[entry("control-compare", 1.0), quiet()]);
        assert!(text.starts_with("VOID: this run is no evidence, for control-compare "), "{text}");
        assert_eq!(code, ExitCode::FAILURE);
        let short = Entry { asked: 10_000, ..quiet() };
        let (text, code) = conclude(&[seen(), short]);
        assert_eq!(text, format!("time was up before all samples were taken\n{good}"));
        assert_eq!(code, ExitCode::SUCCESS);
    }
}
