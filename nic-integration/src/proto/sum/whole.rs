//! Contributions that count only once all of their chunks are there (PROTOCOL §6.5).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::NicError;
use crate::proto::bits;

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

    /// Returns whether nobody becomes complete any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Lets nobody become complete any more, and returns those who are.
    pub(super) fn close(&mut self) -> Vec<u16> {
        self.closed = true;
        self.complete.clone()
    }
}

/// One shard's part of contributions, in blocks of the layout's grain, until they are complete.
pub(super) struct Staged {
    held: BTreeMap<u16, Held>,
    /// The contributors in the sums, which are the same for every chunk: a row of bits.
    pub(super) added: Vec<u64>,
    shard_bytes: usize,
    grain: usize,
}

/// What came of a contribution.
struct Held {
    /// Zeros where nothing came yet; empty once they are added or dropped.
    bytes: Box<[u8]>,
    /// One bit per block that came, even if its bytes are gone.
    seen: Box<[u64]>,
}

impl Staged {
    pub(super) fn new(words: usize, shard_bytes: usize, grain: usize) -> Self {
        Self { held: BTreeMap::new(), added: vec![0; words], shard_bytes, grain }
    }

    /// Returns the blocks of some bytes of the shard.
    fn blocks(&self, bytes: &Range<usize>) -> Range<usize> {
        bytes.start / self.grain..bytes.end.div_ceil(self.grain)
    }

    /// Returns whether bytes of a contributor came before, all of them.
    pub(super) fn has(&self, contributor: u16, bytes: &Range<usize>) -> bool {
        let held = self.held.get(&contributor);
        held.is_some_and(|held| bits::has_all(&held.seen, self.blocks(bytes)))
    }

    /// Holds those bytes of a contributor, from `start` of the shard on, that did not come before. They do not count as
    /// having come until [`mark`](Self::mark).
    pub(super) fn hold(&mut self, contributor: u16, start: usize, bytes: &[u8]) {
        let Self { shard_bytes, grain, .. } = *self;
        let held = self.held.entry(contributor).or_insert_with(|| Held {
            bytes: vec![0; shard_bytes].into(),
            seen: vec![0; shard_bytes.div_ceil(grain).div_ceil(64)].into(),
        });
        let blocks = start / grain..(start + bytes.len()).div_ceil(grain);
        if !bits::has_any(&held.seen, blocks.clone()) {
            return held.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        }
        for (block, bytes) in blocks.zip(bytes.chunks(grain)) {
            if !bits::has(&held.seen, block) {
                held.bytes[block * grain..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    /// Returns whether with some bytes, which are held, a contributor has all of a chunk, and had not without.
    pub(super) fn completes(
        &self,
        contributor: u16,
        bytes: &Range<usize>,
        chunk: &Range<usize>,
    ) -> bool {
        let (blocks, Some(held)) = (self.blocks(bytes), self.held.get(&contributor)) else {
            return false;
        };
        let (chunk, has) = (self.blocks(chunk), |range| bits::has_all(&held.seen, range));
        let own = blocks.start.max(chunk.start)..blocks.end.min(chunk.end);
        !has(own.clone()) && has(chunk.start..own.start) && has(own.end..chunk.end)
    }

    /// Notes that bytes of a contributor came, which are held.
    pub(super) fn mark(&mut self, contributor: u16, bytes: &Range<usize>) {
        let blocks = self.blocks(bytes);
        if let Some(held) = self.held.get_mut(&contributor) {
            bits::set_all(&mut held.seen, blocks);
        }
    }

    /// Returns a contributor's bytes.
    pub(super) fn held(&self, contributor: u16) -> Option<&[u8]> {
        self.held.get(&contributor).map(|held| &*held.bytes)
    }

    /// Hands over a contributor's bytes, once.
    pub(super) fn take(&mut self, contributor: u16) -> Option<Box<[u8]>> {
        let bytes = std::mem::take(&mut self.held.get_mut(&contributor)?.bytes);
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Drops the bytes of all who never became complete.
    pub(super) fn discard(&mut self) {
        self.held.values_mut().for_each(|held| held.bytes = Box::default());
    }
}
