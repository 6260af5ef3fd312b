//! Acknowledgements: what became of each datagram (PROTOCOL §3).

use crate::NicError;

/// Bytes of one entry in an ACK's payload.
pub const ACK_ENTRY_BYTES: usize = 16;

/// Why a datagram was not committed. Final: the message it belongs to has failed.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Refusal {
    /// No region is registered under the rkey, or no longer.
    UnknownRkey = 1,
    /// The bytes would land outside the region or the message.
    OutOfBounds = 2,
    /// The region does not allow this operation to this peer.
    NoRight = 3,
    /// The payload's length, or the message's, is not what it must be.
    WrongLength = 4,
    /// No such chunk in the region.
    ChunkOutOfRange = 5,
    /// A chunk's bytes are out of the scheme's range.
    InvalidCiphertext = 6,
    /// The sender's address and incarnation are not bound to that contributor.
    NotContributor = 7,
    /// This contributor already contributed other bytes to this chunk.
    Equivocation = 8,
    /// The chunk closed without this contribution.
    RoundClosed = 9,
    /// The offset is not that of the chunk.
    WrongOffset = 10,
    /// The region sums another round.
    WrongRound = 11,
    /// The datagram was meant for an earlier process at this address.
    WrongIncarnation = 12,
}

impl Refusal {
    fn from_code(code: u32) -> Option<Self> {
        use Refusal::*;
        [
            UnknownRkey,
            OutOfBounds,
            NoRight,
            WrongLength,
            ChunkOutOfRange,
            InvalidCiphertext,
            NotContributor,
            Equivocation,
            RoundClosed,
            WrongOffset,
            WrongRound,
            WrongIncarnation,
        ]
        .into_iter()
        .find(|refusal| *refusal as u32 == code)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::UnknownRkey => "no such region",
            Self::OutOfBounds => "outside the region",
            Self::NoRight => "no right to do this to the region",
            Self::WrongLength => "wrong length",
            Self::ChunkOutOfRange => "no such chunk",
            Self::InvalidCiphertext => "ciphertext out of range",
            Self::NotContributor => "not bound to that contributor",
            Self::Equivocation => "another contribution to this chunk was already added",
            Self::RoundClosed => "the chunk closed without it",
            Self::WrongOffset => "offset does not match the chunk",
            Self::WrongRound => "another round",
            Self::WrongIncarnation => "the process it was meant for is gone",
        })
    }
}

/// What became of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckEntry {
    /// The datagram's message.
    pub message: u64,
    /// The datagram's index in it.
    pub index: u32,
    /// Committed in the target region, or refused.
    pub status: Result<(), Refusal>,
}

impl AckEntry {
    /// Appends the entry's 16 bytes.
    pub fn append(&self, bytes: &mut Vec<u8>) {
        let status = self.status.map_or_else(|refusal| refusal as u32, |()| 0);
        bytes.extend_from_slice(&self.message.to_le_bytes());
        bytes.extend_from_slice(&self.index.to_le_bytes());
        bytes.extend_from_slice(&status.to_le_bytes());
    }

    /// Reads every entry of an ACK's payload.
    ///
    /// # Errors
    ///
    /// [`NicError::Message`] for a partial entry or an unknown status; then none counts.
    pub fn parse_all(payload: &[u8]) -> Result<Vec<Self>, NicError> {
        let (entries, rest) = payload.as_chunks::<ACK_ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(NicError::Message { at: payload.len() - rest.len() });
        }
        let read = |(place, entry)| {
            Self::read(entry).ok_or(NicError::Message { at: place * ACK_ENTRY_BYTES })
        };
        entries.iter().enumerate().map(read).collect()
    }

    fn read(entry: &[u8; ACK_ENTRY_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| entry[at + byte]));
        let status = match word(12) {
            0 => Ok(()),
            code => Err(Refusal::from_code(code)?),
        };
        let message = u64::from(word(0)) | u64::from(word(4)) << 32;
        Some(Self { message, index: word(8), status })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_round_trip(entries in proptest::collection::vec((any::<u64>(), any::<u32>(), 0u32..=12), 0..90)) {
            let entries: Vec<AckEntry> = entries
                .into_iter()
                .map(|(message, index, code)| AckEntry {
                    message,
                    index,
                    status: Refusal::from_code(code).map_or(Ok(()), Err),
                })
                .collect();
            let mut bytes = Vec::new();
            entries.iter().for_each(|entry| entry.append(&mut bytes));
            prop_assert_eq!(AckEntry::parse_all(&bytes), Ok(entries));
        }

        #[test]
        fn noise_never_panics_and_reads_back_if_accepted(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(entries) = AckEntry::parse_all(&noise) {
                let mut bytes = Vec::new();
                entries.iter().for_each(|entry| entry.append(&mut bytes));
                prop_assert_eq!(bytes, noise);
            }
        }
    }

    #[test]
    fn partial_entries_and_unknown_codes_are_malformed() {
        assert!(AckEntry::parse_all(&[0; 17]).is_err());
        let mut bytes = [0; 32];
        bytes[28] = 13;
        assert_eq!(AckEntry::parse_all(&bytes), Err(NicError::Message { at: 16 }));
    }
}
