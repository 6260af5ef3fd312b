//! The datagram: a 64-byte header, a payload, an 8-byte tag (PROTOCOL §2).
//!
//! A datagram places itself: rkey, offset and length say where its payload belongs, so it can land
//! in any order. The header ends in its own tag, so that a header whose payload was cut off can
//! still be trusted by a later transport. Both tags are **checksums** (BLAKE3, truncated) until
//! datagrams are authenticated: they catch noise, not an adversary.

use crate::NicError;

/// Bytes of a header: one 512-bit bus beat.
pub const HEADER_BYTES: usize = 64;
/// Bytes of either tag.
pub const TAG_BYTES: usize = 8;
/// Bytes that a datagram carries beside its payload.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;
/// The largest payload of a UDP datagram over IPv4.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;
/// The version of the protocol that this crate speaks.
pub const VERSION: u8 = 1;

const MAGIC: [u8; 2] = *b"CG";
const TAGGED_BYTES: usize = HEADER_BYTES - TAG_BYTES;

/// What a datagram does (PROTOCOL §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Opcode {
    /// Places its payload in a region.
    Write = 1,
    /// As [`Write`](Self::Write); the message's completion also surfaces an immediate.
    WriteImm = 2,
    /// Adds whole chunks into a sum region.
    Sum = 3,
    /// Answers for datagrams received.
    Ack = 5,
}

impl Opcode {
    fn from_code(code: u8) -> Result<Self, NicError> {
        // Code 4 is reserved for SUM with immediate.
        match code {
            1 => Ok(Self::Write),
            2 => Ok(Self::WriteImm),
            3 => Ok(Self::Sum),
            5 => Ok(Self::Ack),
            _ => Err(NicError::Opcode { code }),
        }
    }
}

/// The fields of a header that are not derived from the rest of the datagram (PROTOCOL §2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the datagram does.
    pub opcode: Opcode,
    /// SUM: whose contribution this is. Otherwise 0.
    pub contributor: u16,
    /// The sender's incarnation; never 0.
    pub source: u32,
    /// The incarnation it is meant for; 0 while the sender does not know it.
    pub destination: u32,
    /// Fresh for every datagram an endpoint sends, retransmissions included.
    pub packet: u64,
    /// The message the datagram belongs to; ascending per pair of sender and receiver.
    pub message: u64,
    /// First byte of the payload's place in the region.
    pub offset: u64,
    /// The region.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub message_bytes: u32,
    /// WRITE: the datagram's place in its message. SUM: the first chunk.
    pub index: u32,
    /// WRITE_IMM: the immediate. SUM: the round.
    pub immediate: u32,
}

/// A datagram that passed every check that needs no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The header's fields.
    pub header: Header,
    /// The payload, without its tag.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Checks and reads one datagram.
    ///
    /// # Errors
    ///
    /// The `NicError` variants under "the peer", by the first check that fails.
    ///
    /// # Source
    ///
    /// PROTOCOL §2.3.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, NicError> {
        let wrong_length = NicError::DatagramLength { bytes: bytes.len() };
        if bytes.len() > MAX_DATAGRAM_BYTES {
            return Err(wrong_length);
        }
        let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(wrong_length)?;
        let (payload, payload_tag) = rest.split_last_chunk::<TAG_BYTES>().ok_or(wrong_length)?;
        if head[..2] != MAGIC {
            return Err(NicError::Magic);
        }
        if head[2] != VERSION {
            return Err(NicError::Version { version: head[2] });
        }
        let head_tag: [u8; TAG_BYTES] = field(head, TAGGED_BYTES);
        if head_tag != header_tag(&head[..TAGGED_BYTES]) {
            return Err(NicError::HeaderTag);
        }
        if usize::from(u16::from_le_bytes(field(head, 4))) != payload.len() {
            return Err(wrong_length);
        }
        let header = Header::read(head)?;
        if *payload_tag != payload_tag_of(&head_tag, payload) {
            return Err(NicError::PayloadTag);
        }
        Ok(Self { header, payload })
    }

    /// Replaces the contents of `bytes` with this datagram.
    ///
    /// The payload must be at most [`MAX_DATAGRAM_BYTES`] − [`OVERHEAD_BYTES`] long: a longer one
    /// is a defect of the caller, and what is written then will not parse.
    pub fn write_into(&self, bytes: &mut Vec<u8>) {
        debug_assert!(self.payload.len() <= MAX_DATAGRAM_BYTES - OVERHEAD_BYTES);
        bytes.clear();
        bytes.reserve(OVERHEAD_BYTES + self.payload.len());
        self.header.append(self.payload.len() as u16, bytes);
        let head_tag = header_tag(bytes);
        bytes.extend_from_slice(&head_tag);
        bytes.extend_from_slice(self.payload);
        bytes.extend_from_slice(&payload_tag_of(&head_tag, self.payload));
    }
}

impl Header {
    fn read(head: &[u8; HEADER_BYTES]) -> Result<Self, NicError> {
        let header = Self {
            opcode: Opcode::from_code(head[3])?,
            contributor: u16::from_le_bytes(field(head, 6)),
            source: u32::from_le_bytes(field(head, 8)),
            destination: u32::from_le_bytes(field(head, 12)),
            packet: u64::from_le_bytes(field(head, 16)),
            message: u64::from_le_bytes(field(head, 24)),
            offset: u64::from_le_bytes(field(head, 32)),
            rkey: u32::from_le_bytes(field(head, 40)),
            message_bytes: u32::from_le_bytes(field(head, 44)),
            index: u32::from_le_bytes(field(head, 48)),
            immediate: u32::from_le_bytes(field(head, 52)),
        };
        if header.contributor != 0 && header.opcode != Opcode::Sum {
            return Err(NicError::HeaderField { at: 6 });
        }
        if header.source == 0 {
            return Err(NicError::HeaderField { at: 8 });
        }
        Ok(header)
    }

    fn append(&self, payload_bytes: u16, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, self.opcode as u8]);
        bytes.extend_from_slice(&payload_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.contributor.to_le_bytes());
        bytes.extend_from_slice(&self.source.to_le_bytes());
        bytes.extend_from_slice(&self.destination.to_le_bytes());
        bytes.extend_from_slice(&self.packet.to_le_bytes());
        bytes.extend_from_slice(&self.message.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.rkey.to_le_bytes());
        bytes.extend_from_slice(&self.message_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.index.to_le_bytes());
        bytes.extend_from_slice(&self.immediate.to_le_bytes());
    }
}

/// The `N` bytes at `at`; in bounds by construction of every call.
fn field<const N: usize>(head: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| head[at + byte])
}

fn header_tag(tagged: &[u8]) -> [u8; TAG_BYTES] {
    truncated(blake3::hash(tagged))
}

/// Covers the header's tag too, so that a payload cannot be paired with another header.
fn payload_tag_of(head_tag: &[u8; TAG_BYTES], payload: &[u8]) -> [u8; TAG_BYTES] {
    truncated(blake3::Hasher::new().update(head_tag).update(payload).finalize())
}

fn truncated(hash: blake3::Hash) -> [u8; TAG_BYTES] {
    std::array::from_fn(|byte| hash.as_bytes()[byte])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers() -> impl Strategy<Value = Header> {
        let opcodes = prop_oneof![
            Just(Opcode::Write),
            Just(Opcode::WriteImm),
            Just(Opcode::Sum),
            Just(Opcode::Ack)
        ];
        let places = (any::<u64>(), any::<u64>(), any::<u64>(), any::<[u32; 5]>());
        (opcodes, any::<u16>(), 1..=u32::MAX, places).prop_map(
            |(opcode, contributor, source, (packet, message, offset, words))| Header {
                opcode,
                contributor: if opcode == Opcode::Sum { contributor } else { 0 },
                source,
                destination: words[0],
                packet,
                message,
                offset,
                rkey: words[1],
                message_bytes: words[2],
                index: words[3],
                immediate: words[4],
            },
        )
    }

    fn payloads() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..300)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(header in headers(), payload in payloads()) {
            let mut bytes = vec![9; 3];
            Datagram { header, payload: &payload }.write_into(&mut bytes);
            prop_assert_eq!(bytes.len(), OVERHEAD_BYTES + payload.len());
            prop_assert_eq!(Datagram::parse(&bytes), Ok(Datagram { header, payload: &payload }));
        }

        #[test]
        fn every_flipped_bit_is_noticed(header in headers(), payload in payloads(), at: prop::sample::Index, bit in 0u8..8) {
            let mut bytes = Vec::new();
            Datagram { header, payload: &payload }.write_into(&mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(Datagram::parse(&bytes).is_err());
        }

        #[test]
        fn cut_or_stretched_is_refused(header in headers(), payload in payloads(), cut: prop::sample::Index) {
            let mut bytes = Vec::new();
            Datagram { header, payload: &payload }.write_into(&mut bytes);
            prop_assert!(Datagram::parse(&bytes[..cut.index(bytes.len())]).is_err());
            bytes.push(0);
            prop_assert!(Datagram::parse(&bytes).is_err());
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(Datagram::parse(&bytes).is_err());
        }

        /// Tags made to fit, so that the checks behind them are reached.
        #[test]
        fn well_tagged_noise_never_panics(mut head: [u8; HEADER_BYTES], payload in payloads()) {
            head[..3].copy_from_slice(b"CG\x01");
            head[3] %= 8;
            head[4..6].copy_from_slice(&(payload.len() as u16).to_le_bytes());
            let tag = header_tag(&head[..TAGGED_BYTES]);
            head[TAGGED_BYTES..].copy_from_slice(&tag);
            let bytes = [&head[..], &payload, &payload_tag_of(&tag, &payload)].concat();
            if let Ok(datagram) = Datagram::parse(&bytes) {
                let mut again = Vec::new();
                datagram.write_into(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn the_layout_is_the_one_specified() {
        let header = Header {
            opcode: Opcode::Sum,
            contributor: 0x0102,
            source: 0x0304_0506,
            destination: 0x0708_090a,
            packet: 0x0b,
            message: 0x0c,
            offset: 0x0d,
            rkey: 0x0e,
            message_bytes: 3,
            index: 0x0f,
            immediate: 0x10,
        };
        let mut bytes = Vec::new();
        Datagram { header, payload: b"abc" }.write_into(&mut bytes);
        assert_eq!(bytes[..16], *b"CG\x01\x03\x03\x00\x02\x01\x06\x05\x04\x03\x0a\x09\x08\x07");
        let places: Vec<u8> = [16, 24, 32, 40, 44, 48, 52].iter().map(|&at| bytes[at]).collect();
        assert_eq!(places, [0x0b, 0x0c, 0x0d, 0x0e, 3, 0x0f, 0x10]);
        assert_eq!(&bytes[64..67], b"abc");
        assert_eq!(bytes.len(), 75);
    }
}
