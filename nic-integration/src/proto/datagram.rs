//! The datagram: a 64-byte header, a payload, a tag of 16 bytes (PROTOCOL §2).
//!
//! A datagram places itself: rkey, offset and length say where its payload belongs, so it can land
//! in any order. The header ends in its own tag, so that a header whose payload was cut off can
//! still be trusted. [`Session`](super::secure) computes the tags.

use crate::NicError;

/// Bytes of a header: one 512-bit bus beat.
pub const HEADER_BYTES: usize = 64;
/// Bytes of the header's own tag, at its end.
pub const HEADER_TAG_BYTES: usize = 8;
/// Bytes of the tag over header and payload, at the end of a datagram.
pub const TAG_BYTES: usize = 16;
/// Bytes of a datagram beside its payload.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;
/// The smallest limit of datagrams: an ACK with all its notices fits.
pub const MIN_DATAGRAM_BYTES: u32 = 768;
/// The largest payload of a UDP datagram over IPv4.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;
/// Bytes of a block: datagrams begin and end at multiples of it within their message, unless they end the message. So
/// what one carries can be cut anew, for a path that turns out to take less.
pub const BLOCK_BYTES: u32 = 64;
/// The version of the protocol that this crate speaks.
pub const VERSION: u8 = 5;

/// Bytes at the beginning of every datagram: magic, version, kind, index.
pub(super) const PREFIX_BYTES: usize = 8;
/// Bytes of a header that its tag covers.
pub(super) const TAGGED_BYTES: usize = HEADER_BYTES - HEADER_TAG_BYTES;

const MAGIC: [u8; 2] = *b"CG";

/// The kind of a datagram: one of a handshake, or sealed and of an [`Opcode`] (PROTOCOL §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatagramKind {
    Sealed(Opcode),
    Hello,
    Welcome,
    Cookie,
    Decline,
}

impl DatagramKind {
    const HANDSHAKE: [(u8, Self); 4] =
        [(16, Self::Hello), (17, Self::Welcome), (18, Self::Cookie), (19, Self::Decline)];

    fn code(self) -> u8 {
        match self {
            Self::Sealed(opcode) => opcode as u8,
            _ => {
                Self::HANDSHAKE.iter().find(|(_, kind)| *kind == self).map_or(0, |(code, _)| *code)
            }
        }
    }

    fn from_code(code: u8) -> Result<Self, NicError> {
        match Self::HANDSHAKE.iter().find(|(known, _)| *known == code) {
            Some((_, kind)) => Ok(*kind),
            None => Opcode::from_code(code).map(Self::Sealed),
        }
    }
}

/// The operation of a sealed datagram (PROTOCOL §2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Opcode {
    /// Places its payload in a region.
    #[default]
    Write = 1,
    /// As [`Write`](Self::Write); the message's completion also surfaces an immediate.
    WriteImm = 2,
    /// Adds whole chunks into a sum region.
    Sum = 3,
    /// Answers datagrams received.
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
            _ => Err(NicError::Unknown { what: "opcode", code }),
        }
    }
}

/// The fields of a header that are not derived from the rest of the datagram (PROTOCOL §2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramHeader {
    /// The operation.
    pub opcode: Opcode,
    /// The receiver's index of the session, and the epoch's lowest byte. [Sealing](super::secure)
    /// fills it in.
    pub spi: u32,
    /// Fresh for every datagram of a session, retransmissions included: the nonce. Sealing fills it
    /// in.
    pub packet: u64,
    /// The message the datagram belongs to; ascending per pair of sender and receiver.
    pub message: u64,
    /// First byte of the payload's place in the region.
    pub offset: u64,
    /// The region.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub message_bytes: u32,
    /// First byte of the payload's place in its message.
    pub start: u32,
    /// WRITE_IMM: the immediate. SUM: the round.
    pub immediate: u32,
    /// SUM: the number of the contributor. Otherwise 0.
    pub contributor: u16,
}

/// Returns the first bytes of any datagram to the process that chose `index`.
pub(super) fn prefix(kind: DatagramKind, index: u32) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = index.to_le_bytes();
    [MAGIC[0], MAGIC[1], VERSION, kind.code(), a, b, c, d]
}

/// Reads the beginning of any datagram: its kind, and the index that it names.
///
/// # Errors
///
/// [`NicError::DatagramLength`], [`NicError::Magic`], [`NicError::Unknown`].
pub(super) fn read_prefix(bytes: &[u8]) -> Result<(DatagramKind, u32), NicError> {
    let length = NicError::DatagramLength { bytes: bytes.len() };
    if bytes.len() > MAX_DATAGRAM_BYTES {
        return Err(length);
    }
    let (head, _) = bytes.split_first_chunk::<PREFIX_BYTES>().ok_or(length)?;
    if head[..2] != MAGIC {
        return Err(NicError::Magic);
    }
    if head[2] != VERSION {
        return Err(NicError::Unknown { what: "protocol version", code: head[2] });
    }
    Ok((DatagramKind::from_code(head[3])?, u32::from_le_bytes(field(head, 4))))
}

/// Returns whether a datagram of ours is sealed, and so goes to a node that we have a session with.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    matches!(read_prefix(bytes), Ok((DatagramKind::Sealed(_), _)))
}

impl DatagramHeader {
    /// Reads the fields of a header, and the number of payload bytes that it announces. They are
    /// not authenticated until a tag is verified.
    ///
    /// # Errors
    ///
    /// As [`read_prefix`]; [`NicError::Malformed`].
    pub(super) fn read(head: &[u8; HEADER_BYTES]) -> Result<(Self, usize), NicError> {
        let (kind, spi) = read_prefix(head)?;
        let DatagramKind::Sealed(opcode) = kind else {
            return Err(NicError::Unknown { what: "opcode", code: head[3] });
        };
        let header = Self {
            opcode,
            spi,
            packet: u64::from_le_bytes(field(head, 8)),
            message: u64::from_le_bytes(field(head, 16)),
            offset: u64::from_le_bytes(field(head, 24)),
            rkey: u32::from_le_bytes(field(head, 32)),
            message_bytes: u32::from_le_bytes(field(head, 36)),
            start: u32::from_le_bytes(field(head, 40)),
            immediate: u32::from_le_bytes(field(head, 44)),
            contributor: u16::from_le_bytes(field(head, 50)),
        };
        if header.contributor != 0 && opcode != Opcode::Sum {
            return Err(NicError::Malformed { what: "header", at: 50 });
        }
        if head[52..TAGGED_BYTES] != [0; 4] {
            return Err(NicError::Malformed { what: "header", at: 52 });
        }
        Ok((header, usize::from(u16::from_le_bytes(field(head, 48)))))
    }

    /// Returns whether a payload is within its message, and cut at multiples of `grain` bytes or the message's end.
    pub(super) fn cuts_at(&self, grain: u32, payload_bytes: usize) -> bool {
        let end = self.start as usize + payload_bytes;
        let is_end = end == self.message_bytes as usize;
        let fits = end <= self.message_bytes as usize;
        fits && self.start.is_multiple_of(grain) && (is_end || end.is_multiple_of(grain as usize))
    }

    /// Appends all but the tag.
    pub(super) fn append(&self, payload_bytes: u16, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&prefix(DatagramKind::Sealed(self.opcode), self.spi));
        bytes.extend_from_slice(&self.packet.to_le_bytes());
        bytes.extend_from_slice(&self.message.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.rkey.to_le_bytes());
        bytes.extend_from_slice(&self.message_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.start.to_le_bytes());
        bytes.extend_from_slice(&self.immediate.to_le_bytes());
        bytes.extend_from_slice(&payload_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.contributor.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
    }
}

/// Returns the `N` bytes at `at`; in bounds by construction of every call.
fn field<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| head[at + byte])
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in crate::proto) fn headers() -> impl Strategy<Value = DatagramHeader> {
        let opcodes = prop_oneof![
            Just(Opcode::Write),
            Just(Opcode::WriteImm),
            Just(Opcode::Sum),
            Just(Opcode::Ack)
        ];
        let places = (any::<u64>(), any::<u64>(), any::<u64>(), any::<[u32; 5]>());
        (opcodes, any::<u16>(), places).prop_map(
            |(opcode, contributor, (packet, message, offset, words))| DatagramHeader {
                opcode,
                contributor: if opcode == Opcode::Sum { contributor } else { 0 },
                spi: words[0],
                packet,
                message,
                offset,
                rkey: words[1],
                message_bytes: words[2],
                start: words[3],
                immediate: words[4],
            },
        )
    }

    pub(in crate::proto) fn payloads() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..300)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(header in headers(), payload_bytes: u16) {
            let mut bytes = vec![];
            header.append(payload_bytes, &mut bytes);
            prop_assert_eq!(bytes.len(), TAGGED_BYTES);
            bytes.extend([0; HEADER_TAG_BYTES]);
            let read = DatagramHeader::read(bytes[..].try_into().unwrap());
            prop_assert_eq!(read, Ok((header, usize::from(payload_bytes))));
        }

        #[test]
        fn noise_never_panics_and_reads_back_if_accepted(mut head: [u8; HEADER_BYTES], magic: bool) {
            if magic {
                let kind = head[3] % 20;
                head[..4].copy_from_slice(&[b'C', b'G', VERSION, kind]);
            }
            if let Ok((header, payload_bytes)) = DatagramHeader::read(&head) {
                let mut again = vec![];
                header.append(payload_bytes as u16, &mut again);
                prop_assert_eq!(&again, &head[..TAGGED_BYTES]);
            }
        }
    }

    #[test]
    fn the_layout_is_the_one_specified() {
        let header = DatagramHeader {
            opcode: Opcode::Sum,
            spi: 0x0304_0506,
            contributor: 0x0102,
            packet: 0x0b,
            message: 0x0c,
            offset: 0x0d,
            rkey: 0x0e,
            message_bytes: 3,
            start: 0x0f,
            immediate: 0x10,
        };
        let mut bytes = Vec::new();
        header.append(0x1112, &mut bytes);
        assert_eq!(bytes[..8], *b"CG\x05\x03\x06\x05\x04\x03");
        let places: Vec<u8> = [8, 16, 24, 32, 36, 40, 44].iter().map(|&at| bytes[at]).collect();
        assert_eq!(places, [0x0b, 0x0c, 0x0d, 0x0e, 3, 0x0f, 0x10]);
        assert_eq!(bytes[48..], [0x12, 0x11, 0x02, 0x01, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_no_datagram_is_refused_by_the_first_thing_wrong() {
        let good = prefix(DatagramKind::Hello, 7);
        assert_eq!(read_prefix(&good), Ok((DatagramKind::Hello, 7)));
        assert_eq!(read_prefix(&good[..7]), Err(NicError::DatagramLength { bytes: 7 }));
        let long = [&good[..], &[0; MAX_DATAGRAM_BYTES]].concat();
        assert_eq!(read_prefix(&long), Err(NicError::DatagramLength { bytes: long.len() }));
        for (at, byte, error) in [
            (0, 0, NicError::Magic),
            (2, 1, NicError::Unknown { what: "protocol version", code: 1 }),
            (3, 4, NicError::Unknown { what: "opcode", code: 4 }),
            (3, 20, NicError::Unknown { what: "opcode", code: 20 }),
        ] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(read_prefix(&bad), Err(error));
        }
    }
}
