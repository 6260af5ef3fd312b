//! Links: the ways to a card.

use std::time::Duration;

use crate::engine::DeviceFault;

/// A way to a card. Memory is told by its beats, and only whole ones go either way.
pub(crate) trait Link: Send {
    /// Describes it in a few words.
    fn describe(&self) -> String;

    /// Returns whether a program stands in for the card.
    fn is_emulated(&self) -> bool;

    /// Reads a register of 32 bits.
    fn read(&mut self, register: u32) -> Result<u32, LinkError>;

    /// Writes a register of 32 bits.
    fn write(&mut self, register: u32, value: u32) -> Result<(), LinkError>;

    /// Copies bytes to card memory, from this beat on.
    fn upload(&mut self, beat: u64, bytes: &[u8]) -> Result<(), LinkError>;

    /// Copies card memory from this beat on.
    fn download(&mut self, beat: u64, bytes: &mut [u8]) -> Result<(), LinkError>;

    /// Waits until the register `head`, which counts modulo 2^32, is at least `head`.
    ///
    /// # Errors
    /// [`LinkError::Timeout`] where it stood still for as long as `patience`.
    fn wait(&mut self, head: u32, patience: Duration) -> Result<(), LinkError>;

    /// Sets all but the memory to a cold start.
    fn reset(&mut self) -> Result<(), LinkError>;
}

/// A failure of a link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The card is gone, and does not come back.
    #[error("the card is lost: {why}")]
    Lost {
        /// What was seen of it.
        why: String,
    },
    /// It did not get on for longer than any run should take.
    #[error("the card does not answer")]
    Timeout,
    /// It, or its driver, refused something.
    #[error("{why}")]
    Refused {
        /// The words of the driver.
        why: String,
    },
}

impl LinkError {
    /// Makes the error of a card that is gone.
    pub(super) fn lost(why: impl ToString) -> Self {
        Self::Lost { why: why.to_string() }
    }

    /// Returns what it is to a run.
    pub(super) fn fault(self) -> DeviceFault {
        match self {
            Self::Lost { .. } => DeviceFault::Lost,
            Self::Timeout => DeviceFault::Timeout,
            Self::Refused { why } => DeviceFault::Failed { why },
        }
    }
}

/// Returns whether a counter modulo 2^32 is at least `goal`, of which it is less than 2^31 away.
pub(super) fn is_past(counter: u32, goal: u32) -> bool {
    counter.wrapping_sub(goal) < 1 << 31
}
