//! How a stage ends.

/// The end of a stage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Everything it checks holds.
    Passed,
    /// It could not run here, for a reason that is no fault of the code.
    Skipped(String),
    /// Something does not hold.
    Failed(String),
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Passed)
    }
}
