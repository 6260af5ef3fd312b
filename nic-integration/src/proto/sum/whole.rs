//! Contributions that count only once all of their chunks are there (PROTOCOL §6.5).

use std::collections::BTreeMap;

use crate::NicError;

/// The most bytes that the contributions to a sum may take while they wait for the rest of their
/// chunks.
pub const MAX_STAGED_BYTES: u64 = 1 << 32;

/// Checks that `target` contributions of so many bytes may wait together.
///
/// # Errors
///
/// [`NicError::Staged`].
pub(super) fn check_buffer(each: u64, target: u32) -> Result<(), NicError> {
    let bytes = each.saturating_mul(target.into());
    if bytes <= MAX_STAGED_BYTES { Ok(()) } else { Err(NicError::Staged { bytes }) }
}

/// What a contributor lacks before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacks {
    Chunks,
    Admission,
    Nothing,
}

/// The contributors of a sum by what they still have to send.
pub(super) struct Whole {
    /// Each contributor's chunks that are not staged yet, and one more for whoever is still to be admitted.
    missing: Vec<u32>,
    /// Whether contributors are to be admitted.
    admits: bool,
    /// Contributors of whom nothing is missing. Each is in the sum of every chunk before it closes.
    complete: Vec<u16>,
    /// Nobody becomes complete any more.
    closed: bool,
}

impl Whole {
    pub(super) fn new(contributors: u16, chunks: u32, admits: bool) -> Self {
        let missing = vec![chunks + u32::from(admits); contributors.into()];
        Self { missing, admits, complete: vec![], closed: false }
    }

    /// Notes that `count` more chunks of a contributor are staged, and returns what it still lacks; `None` if it is
    /// too late for any.
    pub(super) fn stage(&mut self, contributor: u16, count: u32) -> Option<Lacks> {
        let missing = self.missing.get_mut(usize::from(contributor)).filter(|_| !self.closed)?;
        *missing -= count;
        match *missing {
            0 => self.complete.push(contributor),
            1 if self.admits => return Some(Lacks::Admission),
            _ => return Some(Lacks::Chunks),
        }
        Some(Lacks::Nothing)
    }

    /// Returns whether a contributor lacks nothing but that it is admitted.
    pub(super) fn is_staged(&self, contributor: u16) -> bool {
        let missing = self.missing.get(usize::from(contributor));
        self.admits && !self.closed && missing == Some(&1)
    }

    /// Lets nobody become complete any more, and returns those who are.
    pub(super) fn close(&mut self) -> Vec<u16> {
        self.closed = true;
        self.complete.clone()
    }
}

/// One shard's chunks of contributions that are not complete.
pub(super) struct Staged {
    /// Bytes of all chunks of the shard; zeros where none came yet.
    held: BTreeMap<u16, Box<[u8]>>,
    /// The contributors in the sums, which are the same for every chunk: a row of bits.
    pub(super) added: Vec<u64>,
    shard_bytes: usize,
}

impl Staged {
    pub(super) fn new(words: usize, shard_bytes: usize) -> Self {
        Self { held: BTreeMap::new(), added: vec![0; words], shard_bytes }
    }

    /// Holds bytes of a contributor from `start` of the shard on.
    pub(super) fn hold(&mut self, contributor: u16, start: usize, bytes: &[u8]) {
        let buffer = || vec![0; self.shard_bytes].into_boxed_slice();
        let held = self.held.entry(contributor).or_insert_with(buffer);
        held[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns a contributor's bytes.
    pub(super) fn held(&self, contributor: u16) -> Option<&[u8]> {
        self.held.get(&contributor).map(|bytes| &**bytes)
    }

    /// Hands over a contributor's bytes, once.
    pub(super) fn take(&mut self, contributor: u16) -> Option<Box<[u8]>> {
        self.held.remove(&contributor)
    }

    /// Drops the bytes of all who never became complete.
    pub(super) fn discard(&mut self) {
        self.held.clear();
    }
}
