//! Failures of commands, and their exit codes.

use std::{fmt, process::ExitCode};

use ciphergram_nic::federation;

/// A reason to fail: one line for standard error.
pub(crate) enum Failure {
    /// The work failed: exit code 1.
    Work(String),
    /// The command cannot be meant: exit code 2.
    Misuse(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Work(_) => ExitCode::from(1),
            Self::Misuse(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A message from a library or a peer may have several lines.
            Self::Work(text) | Self::Misuse(text) => {
                f.write_str(&text.split_whitespace().collect::<Vec<_>>().join(" "))
            }
        }
    }
}

impl From<ciphergram_he::Error> for Failure {
    fn from(error: ciphergram_he::Error) -> Self {
        match error {
            // No file is named, so they were typed.
            ciphergram_he::Error::Parameters(e) => Self::Misuse(e.to_string()),
            e => Self::Work(e.to_string()),
        }
    }
}

impl From<federation::Error> for Failure {
    fn from(error: federation::Error) -> Self {
        Self::Work(error.to_string())
    }
}

impl From<ciphergram_nic::NicError> for Failure {
    fn from(error: ciphergram_nic::NicError) -> Self {
        Self::Work(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Work(format!("cannot write JSON: {error}"))
    }
}

/// Adds its path to an operating system's error.
pub(crate) fn at(path: &std::path::Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |error| Failure::Work(format!("{}: {error}", path.display()))
}
