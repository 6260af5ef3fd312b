//! Acknowledgements: the outcome of each datagram (PROTOCOL §3).

use crate::NicError;

use super::secure::ACK_WORDS;

/// Notices that one ACK carries at most; the others travel with the next.
pub const MAX_ACK_NOTICES: usize = 32;

const HEAD_BYTES: usize = 16;
const NOTICE_BYTES: usize = 16;
/// The status of a notice that is not a refusal.
const TRIMMED: u32 = 13;

/// The reason why a datagram was not committed. Final: the message it belongs to has failed.
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
    /// The sender's node and incarnation are not bound to that contributor.
    NotContributor = 7,
    /// The chunk closed without this contribution.
    RoundClosed = 9,
    /// The offset is not that of the chunk.
    WrongOffset = 10,
    /// The region sums another round.
    WrongRound = 11,
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
            RoundClosed,
            WrongOffset,
            WrongRound,
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
            Self::RoundClosed => "the chunk closed without it",
            Self::WrongOffset => "offset does not match the chunk",
            Self::WrongRound => "another round",
        })
    }
}

/// Details about one packet in an ACK, beside its bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckNotice {
    /// Its message has failed.
    Refused(Refusal),
    /// Its header came without its payload: it was not answered, and will not be.
    Trimmed,
}

impl AckNotice {
    fn code(self) -> u32 {
        match self {
            Self::Refused(refusal) => refusal as u32,
            Self::Trimmed => TRIMMED,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        match code {
            TRIMMED => Some(Self::Trimmed),
            code => Refusal::from_code(code).map(Self::Refused),
        }
    }
}

/// Writes the payload of an ACK: a bit for each packet answered, from a multiple of 64 on; the
/// number of packets that came marked for congestion; and notices.
pub(super) fn append_ack(
    (first, words): (u64, impl Iterator<Item = u64>),
    congested: u32,
    notices: impl Iterator<Item = (u64, AckNotice)>,
    payload: &mut Vec<u8>,
) {
    let start = payload.len();
    payload.extend_from_slice(&first.to_le_bytes());
    payload.extend_from_slice(&[0; 4]);
    payload.extend_from_slice(&congested.to_le_bytes());
    words.take(ACK_WORDS).for_each(|word| payload.extend_from_slice(&word.to_le_bytes()));
    let words = (payload.len() - start - HEAD_BYTES) / 8;
    let mut count = 0u16;
    for (packet, notice) in notices.take(MAX_ACK_NOTICES) {
        payload.extend_from_slice(&packet.to_le_bytes());
        payload.extend_from_slice(&notice.code().to_le_bytes());
        payload.extend_from_slice(&[0; 4]);
        count += 1;
    }
    payload[start + 8..start + 10].copy_from_slice(&(words as u16).to_le_bytes());
    payload[start + 10..start + 12].copy_from_slice(&count.to_le_bytes());
}

/// A well-formed ACK's payload.
pub(super) struct Ack<'a> {
    first: u64,
    congested: u32,
    words: &'a [[u8; 8]],
    notices: &'a [[u8; NOTICE_BYTES]],
}

impl<'a> Ack<'a> {
    /// Reads the payload of an ACK.
    ///
    /// # Errors
    ///
    /// [`NicError::Malformed`] where it ends too soon, runs on, or holds an unknown code; then none
    /// of it counts.
    pub(super) fn parse(payload: &'a [u8]) -> Result<Self, NicError> {
        let bad = |at| NicError::Malformed { what: "message", at };
        let (head, rest) = payload.split_first_chunk::<HEAD_BYTES>().ok_or(bad(0))?;
        let (head, _) = head.as_chunks::<2>();
        let first = head[..4]
            .iter()
            .rev()
            .fold(0, |acc, half| acc << 16 | u64::from(u16::from_le_bytes(*half)));
        let [words, notices] =
            [head[4], head[5]].map(|count| usize::from(u16::from_le_bytes(count)));
        let in_range = first.is_multiple_of(64) && words <= ACK_WORDS && notices <= MAX_ACK_NOTICES;
        let [low, high] = [head[6], head[7]].map(|half| u32::from(u16::from_le_bytes(half)));
        if !in_range || first.checked_add(64 * words as u64).is_none() {
            return Err(bad(0));
        }
        if rest.len() != 8 * words + NOTICE_BYTES * notices {
            return Err(bad(HEAD_BYTES));
        }
        let (words, notices) = rest.split_at(8 * words);
        let (words, notices) = (words.as_chunks().0, notices.as_chunks().0);
        let ack = Self { first, congested: high << 16 | low, words, notices };
        let known = |notice: &[u8; NOTICE_BYTES]| Self::notice(notice).is_some();
        match ack.notices.iter().position(|notice| !known(notice)) {
            Some(at) => Err(bad(HEAD_BYTES + 8 * words.len() + at * NOTICE_BYTES)),
            None => Ok(ack),
        }
    }

    /// Iterates over words of 64 packets: the first packet, and a bit for each that was answered.
    pub(super) fn words(&self) -> impl Iterator<Item = (u64, u64)> {
        let words = self.words.iter().map(|word| u64::from_le_bytes(*word));
        (self.first..).step_by(64).zip(words)
    }

    /// Returns whether a packet was committed or refused, by its number modulo 2^32.
    pub(super) fn answers(&self, packet: u32) -> bool {
        let at = packet.wrapping_sub(self.first as u32);
        let word = self.words.get(at as usize / 64);
        word.is_some_and(|word| u64::from_le_bytes(*word) >> (at % 64) & 1 == 1)
            || self
                .notices()
                .any(|(of, notice)| of as u32 == packet && notice != AckNotice::Trimmed)
    }

    /// Returns the number of packets that came marked since the session began, modulo 2^32.
    pub(super) fn congested(&self) -> u32 {
        self.congested
    }

    pub(super) fn notices(&self) -> impl Iterator<Item = (u64, AckNotice)> {
        self.notices.iter().filter_map(Self::notice)
    }

    fn notice(bytes: &[u8; NOTICE_BYTES]) -> Option<(u64, AckNotice)> {
        let (words, _) = bytes.as_chunks::<4>();
        let [low, high, code, zero] = [0, 1, 2, 3].map(|at| u32::from_le_bytes(words[at]));
        let notice = AckNotice::from_code(code).filter(|_| zero == 0)?;
        Some((u64::from(low) | u64::from(high) << 32, notice))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(ack: &Ack<'_>) -> Vec<u8> {
        let mut payload = vec![];
        let words = ack.words().map(|(_, word)| word);
        append_ack((ack.first, words), ack.congested(), ack.notices(), &mut payload);
        payload
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(first in 0u64..1 << 50, congested: u32, words in proptest::collection::vec(any::<u64>(), 0..=ACK_WORDS), notices in proptest::collection::vec((any::<u64>(), 1u32..=13), 0..=MAX_ACK_NOTICES)) {
            let notices: Vec<_> = notices
                .into_iter()
                .filter_map(|(packet, code)| Some((packet, AckNotice::from_code(code)?)))
                .collect();
            let mut payload = vec![];
            append_ack((64 * first, words.iter().copied()), congested, notices.iter().copied(), &mut payload);
            let ack = Ack::parse(&payload).unwrap();
            let found: Vec<(u64, u64)> = ack.words().collect();
            let expected: Vec<_> = (64 * first..).step_by(64).zip(words).collect();
            prop_assert_eq!((found, ack.congested()), (expected, congested));
            prop_assert_eq!(ack.notices().collect::<Vec<_>>(), notices);
            prop_assert!(Ack::parse(&payload[..payload.len() - 1]).is_err());
            payload.push(0);
            prop_assert!(Ack::parse(&payload).is_err());
        }

        #[test]
        fn noise_never_panics_and_reads_back_if_accepted(mut noise in proptest::collection::vec(any::<u8>(), 0..200), plausible: bool) {
            if plausible && noise.len() >= HEAD_BYTES {
                let words = (noise.len() - HEAD_BYTES) / 8 % 4;
                let notices = (noise.len() - HEAD_BYTES - 8 * words) / NOTICE_BYTES;
                noise.truncate(HEAD_BYTES + 8 * words + NOTICE_BYTES * notices);
                noise[0] &= 0xc0;
                noise[8..16].copy_from_slice(&[words as u8, 0, notices as u8, 0, 0, 0, 0, 0]);
                for at in 0..notices {
                    let status = HEAD_BYTES + 8 * words + NOTICE_BYTES * at + 8;
                    noise[status] %= 15;
                    noise[status + 1..status + 8].fill(0);
                }
            }
            if let Ok(ack) = Ack::parse(&noise) {
                prop_assert_eq!(written(&ack), noise);
            }
        }
    }

    #[test]
    fn unknown_codes_are_malformed() {
        for (code, known) in
            [(0, false), (1, true), (8, false), (11, true), (12, false), (13, true), (14, false)]
        {
            assert_eq!(AckNotice::from_code(code).is_some(), known, "{code}");
        }
    }
}
