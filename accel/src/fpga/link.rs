//! Links: the ways to a card.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::form::BEAT;
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
            Self::Lost { why } => DeviceFault::Lost { why },
            Self::Timeout => DeviceFault::Timeout,
            Self::Refused { why } => DeviceFault::Failed { why },
        }
    }
}

/// Looks at the head until it is at least `goal`, of which it is less than 2^31 away.
///
/// # Errors
/// Those of `look`; a head that goes back; one that stands still for as long as `patience`.
pub(super) fn wait_for(
    goal: u32,
    patience: Duration,
    mut look: impl FnMut() -> Result<u32, LinkError>,
) -> Result<(), LinkError> {
    let is_past = |counter: u32, goal: u32| counter.wrapping_sub(goal) < 1 << 31;
    let (mut last, mut since) = (None, Instant::now());
    loop {
        let head = look()?;
        if is_past(head, goal) {
            return Ok(());
        }
        match last {
            Some(last) if head == last && since.elapsed() > patience => {
                return Err(LinkError::Timeout);
            }
            Some(last) if head == last => {}
            Some(last) if !is_past(head, last) => {
                return Err(LinkError::lost(format!("its head went back from {last} to {head}")));
            }
            _ => (last, since) = (Some(head), Instant::now()),
        }
    }
}

/// Returns the parts of `length` bytes from this beat on that go at once, `most` bytes each: their
/// places, and their addresses in card memory.
pub(super) fn transfers(
    beat: u64,
    length: usize,
    most: usize,
) -> impl Iterator<Item = (Range<usize>, u64)> {
    let at = beat * BEAT as u64;
    (0..length).step_by(most).map(move |first| (first..length.min(first + most), at + first as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(heads: &[u32], goal: u32) -> Result<(), LinkError> {
        let mut heads = heads.iter().copied();
        wait_for(goal, Duration::ZERO, || heads.next().ok_or(LinkError::lost("no more")))
    }

    #[test]
    fn heads_go_on_or_the_card_is_lost() {
        assert_eq!(seen(&[u32::MAX, 0, 2, 7], 6), Ok(()));
        assert_eq!(seen(&[3, 3, 3], 4), Err(LinkError::Timeout));
        // One that goes to and fro would never stand still.
        let back = LinkError::lost("its head went back from 4 to 3");
        assert_eq!(seen(&[3, 4, 3, 4], 9), Err(back));
    }

    #[test]
    fn transfers_are_cut() {
        let found: Vec<_> = transfers(2, 150, 64).collect();
        assert_eq!(found, [(0..64, 128), (64..128, 192), (128..150, 256)]);
    }
}
