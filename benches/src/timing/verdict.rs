//! What tests come to, and what a run of them does.

use std::process::ExitCode;

use super::{RESOLUTION, catalogue::Expect};

/// The end of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Found what it must find, a leak or none.
    AsExpected,
    /// Found a leak where none may be.
    Leak,
    /// Found none where one is, or the same class twice to differ: the run is no evidence.
    Void,
    /// Found none, but would not have found one of [`RESOLUTION`] either.
    CannotTell,
}

impl Verdict {
    /// Returns the last word of a row, of a test that found a leak or none.
    #[must_use]
    pub fn word(self, leaks: bool) -> &'static str {
        match self {
            Self::AsExpected if leaks => "seen",
            Self::AsExpected => "quiet",
            Self::Leak => "LEAKS",
            Self::Void => "VOID",
            Self::CannotTell => "CANNOT TELL",
        }
    }
}

impl Expect {
    /// Returns the verdict on a test that found a leak, or none for certain.
    #[must_use]
    pub fn verdict(self, leaks: bool) -> Verdict {
        match (self, leaks) {
            (Self::Quiet | Self::Same, false) | (Self::Leak | Self::Hidden, true) => {
                Verdict::AsExpected
            }
            (Self::Quiet, true) => Verdict::Leak,
            _ => Verdict::Void,
        }
    }
}

/// The exit code of a run without leaks that would not have found them everywhere.
const CANNOT_TELL: u8 = 3;

/// Returns the conclusion from named verdicts, in lines, and the exit code: 0 if all are as expected, 1 for a
/// leak or a void run, else 3. `leak` begins the names of tests that leak, `good` says that all is well.
#[must_use]
pub fn conclusion(verdicts: &[(&str, Verdict)], leak: &str, good: &str) -> (String, ExitCode) {
    let names = |verdict| {
        let of = verdicts.iter().filter(|(_, own)| *own == verdict).map(|(name, _)| *name);
        let names = of.collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then_some(names)
    };
    let lines = [
        names(Verdict::Leak).map(|names| format!("LEAK: {leak} {names}")),
        names(Verdict::Void).map(|names| {
            format!(
                "VOID: this run is no evidence, for {names} found what is not there or missed what is"
            )
        }),
        names(Verdict::CannotTell).map(|names| {
            let percent = 100.0 * RESOLUTION;
            format!("CANNOT TELL: a delay of {percent} % would not have been found in {names}")
        }),
    ];
    let code = match &lines {
        [None, None, None] => return (good.to_owned(), ExitCode::SUCCESS),
        [None, None, Some(_)] => ExitCode::from(CANNOT_TELL),
        _ => ExitCode::FAILURE,
    };
    (lines.into_iter().flatten().collect::<Vec<_>>().join("\n"), code)
}
