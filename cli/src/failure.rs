//! Failures of commands, and their exit codes.

use std::{
    fmt::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use ciphergram_he::{Error, error::with_remedy};
use ciphergram_nic::federation;

use crate::{hints, progress::complain, signals::Signal};

/// A reason to fail: one line for standard error.
#[derive(Clone)]
pub(crate) enum Failure {
    /// The work failed: exit code 1.
    Work(String),
    /// The command cannot be meant: exit code 2.
    Misuse(String),
    /// A signal stopped it, and it came to an end by itself: exit code 128 and the signal's number. The line is shown
    /// as it is.
    Stopped(Signal, String),
}

impl Failure {
    /// Names another path in place of a temporary one.
    pub(crate) fn renamed(self, temporary: &Path, path: &Path) -> Self {
        let [from, to] = [temporary, path].map(|path| path.display().to_string());
        match self {
            Self::Work(text) => Self::Work(text.replace(&from, &to)),
            Self::Misuse(text) => Self::Misuse(text.replace(&from, &to)),
            stopped @ Self::Stopped(..) => stopped,
        }
    }

    /// Prints the line on standard error, and returns the exit code.
    pub(crate) fn end(&self) -> ExitCode {
        let (start, code) = match self {
            Self::Work(_) => ("error: ", 1),
            Self::Misuse(_) => ("error: ", 2),
            Self::Stopped(signal, _) => ("", signal.exit_code()),
        };
        complain(&format!("{start}{self}"));
        ExitCode::from(code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A message from a library or a peer may have several lines, and a name any character.
            Self::Work(text) | Self::Misuse(text) | Self::Stopped(_, text) => {
                let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
                line.chars().try_for_each(|c| match c {
                    c if c.is_control() => write!(f, "{}", c.escape_default()),
                    c => f.write_char(c),
                })
            }
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            // No file is named, so they were typed.
            Error::Parameters(e) => Self::Misuse(e.to_string()),
            e => Self::Work(with_remedy(&e, hints::remedy(&e))),
        }
    }
}

impl From<federation::Error> for Failure {
    fn from(error: federation::Error) -> Self {
        Self::Work(with_remedy(&error, hints::round_remedy(&error)))
    }
}

impl From<ciphergram_nic::NicError> for Failure {
    fn from(error: ciphergram_nic::NicError) -> Self {
        Self::Work(error.to_string())
    }
}

impl From<ciphergram_benches::Failure> for Failure {
    fn from(error: ciphergram_benches::Failure) -> Self {
        Self::Work(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Work(format!("cannot write JSON: {error}"))
    }
}

/// Adds its path to an operating system's error.
pub(crate) fn at(path: &Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |error| Failure::Work(format!("{}: {error}", path.display()))
}
