//! Reading and writing little-endian fields.

use crate::error::faults::{FrameError, WRONG_LENGTH};

/// Appends fields to a frame.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, x: u8) {
        self.0.push(x);
    }

    pub(crate) fn u16(&mut self, x: u16) {
        self.0.extend(x.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, x: u32) {
        self.0.extend(x.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, x: u64) {
        self.0.extend(x.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, x: &[u8]) {
        self.0.extend(x);
    }

    /// Appends zeros to a whole number of words, so that words that follow lie as such in memory.
    pub(crate) fn align(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }

    /// Appends a 32-bit length and the bytes.
    pub(crate) fn prefixed(&mut self, x: &[u8]) {
        self.u32(x.len() as u32);
        self.bytes(x);
    }
}

/// Takes fields off a frame. Every length is checked before anything is allocated.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(FrameError::Truncated)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        self.bytes(N)?.try_into().map_err(|_| FrameError::Truncated)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FrameError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn prefixed(&mut self) -> Result<&'a [u8], FrameError> {
        let length = self.u32()? as usize;
        self.bytes(length)
    }

    pub(crate) fn text(&mut self) -> Result<String, FrameError> {
        let bytes = self.prefixed()?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| FrameError::Malformed { what: "a name that is not UTF-8" })
    }

    /// Takes the last `count` bytes, a whole number of words like the frame that they end, and the fewer than eight
    /// zeros before them.
    pub(crate) fn aligned_end(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let zeros = self.0.len().checked_sub(count).filter(|&zeros| zeros < 8);
        let (zeros, end) = self.0.split_at(zeros.ok_or(WRONG_LENGTH)?);
        if zeros.iter().any(|&zero| zero != 0) {
            return Err(FrameError::Malformed { what: "padding that is not zero" });
        }
        self.0 = &[];
        Ok(end)
    }

    /// Refuses bytes that follow.
    pub(crate) fn end(&self) -> Result<(), FrameError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(FrameError::Malformed { what: "bytes past the end" })
        }
    }
}

/// Returns the little-endian words of `bytes`, whose length is a multiple of eight.
pub(crate) fn to_words(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![];
    read_words(&mut words, bytes);
    words
}

/// Reads the same into memory that is there.
pub(crate) fn read_words(words: &mut Vec<u64>, bytes: &[u8]) {
    words.clear();
    words.extend(bytes.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)));
}

/// Returns the same where they lie, if they lie as words do, else in `room`.
pub(crate) fn as_words<'a>(room: &'a mut Vec<u64>, bytes: &'a [u8]) -> &'a [u64] {
    match bytemuck::try_cast_slice(bytes) {
        Ok(words) if cfg!(target_endian = "little") => words,
        _ => {
            read_words(room, bytes);
            room
        }
    }
}

/// Writes little-endian bytes of `words`, as many as there is room for.
pub(crate) fn write_words(bytes: &mut [u8], words: &[u64]) {
    let each = bytes.as_chunks_mut().0.iter_mut().zip(words);
    each.for_each(|(bytes, word)| *bytes = word.to_le_bytes());
}

/// Returns the little-endian bytes of `words`.
pub(crate) fn to_bytes(words: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0; 8 * words.len()];
    write_words(&mut bytes, words);
    bytes
}
