//! The table of a run, and the conclusion from it.

use std::process::ExitCode;

use super::{
    RESOLUTION, THRESHOLD,
    catalogue::{Expect, Test},
    crops::{Crops, Finding},
    verdict::Verdict,
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

impl Entry {
    /// Returns whether the test found what it must.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let Some(finding) = &self.finding else { return Verdict::Void };
        match (self.test.expect, self.test.expect.verdict(finding.leaks())) {
            (Expect::Hidden, _) => Verdict::AsExpected,
            (Expect::Quiet | Expect::Same, Verdict::AsExpected) if !self.resolves() => {
                Verdict::CannotTell
            }
            (_, verdict) => verdict,
        }
    }

    /// Returns the shortest delay that would have been found, as a share of the mean.
    fn resolution(&self) -> Option<f64> {
        Some(self.resolution_ns? as f64 / self.finding?.mean_ns)
    }

    fn resolves(&self) -> bool {
        self.resolution().is_some_and(|share| share <= RESOLUTION)
    }

    /// Returns the line of the table, under [`HEAD`].
    #[must_use]
    pub fn row(&self) -> String {
        let Self { test, taken, .. } = self;
        let word = self.verdict().word(self.finding.is_some_and(|finding| finding.leaks()));
        let Some(finding) = self.finding else {
            return format!("{:16} {taken:>8}  too few samples: {word}", test.name);
        };
        let Finding { kept, difference, mean_ns } = finding;
        let resolves = self.resolution().map(|share| format!("{:.4}", 100.0 * share));
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

/// Returns the conclusion of a run, in lines, and its [exit code](super::verdict::conclusion).
#[must_use]
pub fn conclusion(entries: &[Entry]) -> (String, ExitCode) {
    let verdicts: Vec<_> = entries.iter().map(|own| (own.test.name, own.verdict())).collect();
    let good = format!("no operation reached |t| = {THRESHOLD}; what leaks by design was seen");
    let leak = "time depends on the class in";
    let (text, code) = super::verdict::conclusion(&verdicts, leak, &good);
    let is_short = entries.iter().any(|entry| entry.taken < entry.asked);
    let short = if is_short { "time was up before all samples were taken\n" } else { "" };
    (format!("{short}{text}"), code)
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
        // The mean is a millisecond.
        let resolving = |name, t, resolution_ns| Entry { resolution_ns, ..entry(name, t) };
        for (name, t, resolution_ns, verdict) in [
            ("pow-ones", 1.0, Some(1_000), Verdict::AsExpected),
            ("pow-ones", 1.0, Some(1_001), Verdict::CannotTell),
            ("control-same", 1.0, Some(1_001), Verdict::CannotTell),
            ("pow-ones", 1.0, None, Verdict::CannotTell),
            ("pow-ones", 5.0, None, Verdict::Leak),
            ("control-compare", 80.0, None, Verdict::AsExpected),
            ("control-compare", 1.0, Some(30_000), Verdict::Void),
            ("control-cached", 1.0, None, Verdict::AsExpected),
            ("control-cached", 9.0, None, Verdict::AsExpected),
        ] {
            let entry = resolving(name, t, resolution_ns);
            assert_eq!(entry.verdict(), verdict, "{name} {t} {resolution_ns:?}");
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
        let blind = || Entry { resolution_ns: Some(30_000), ..quiet() };
        let (text, code) = conclude(&[seen(), quiet(), blind()]);
        assert_eq!(text, "CANNOT TELL: a delay of 0.1 % would not have been found in pow-ones");
        assert_eq!(code, ExitCode::from(3));
        let (text, code) = conclude(&[seen(), blind(), entry("pow-zeros", 7.0)]);
        assert!(text.starts_with("LEAK: ") && text.contains("\nCANNOT TELL: "), "{text}");
        assert_eq!(code, ExitCode::FAILURE);
    }
}
