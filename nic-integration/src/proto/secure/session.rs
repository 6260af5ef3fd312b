//! The keys of one session: sealing and opening datagrams (PROTOCOL §8.3).
//!
//! A datagram's packet number is its nonce, and no number is used twice. The key of a direction
//! belongs to an *epoch*, whose lowest byte the security-parameter index names; each epoch's key is
//! derived from the one before, which is then forgotten.

use aws_lc_rs::aead::{
    AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::error::Unspecified;
use siphasher::sip::SipHasher24;
use zeroize::Zeroizing;

use crate::NicError;
use crate::proto::datagram::{
    DatagramHeader, HEADER_BYTES, HEADER_TAG_BYTES, TAG_BYTES, TAGGED_BYTES,
};

/// Packets sealed under one key; then the next epoch begins. AES-GCM keeps its margin of 2^-60 up
/// to 2^23 datagrams of the largest size (RFC 9001, appendix B).
pub const ROTATE_PACKETS: u64 = 1 << 22;

/// The cipher that seals datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Suite {
    /// AES-256-GCM.
    #[default]
    Aes256Gcm = 1,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305 = 2,
}

impl Suite {
    pub(super) fn from_code(code: u8) -> Option<Self> {
        [Self::Aes256Gcm, Self::ChaCha20Poly1305].into_iter().find(|suite| *suite as u8 == code)
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

fn nonce(packet: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&packet.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Bytes of the key that seals payloads.
const CIPHER_KEY_BYTES: usize = 32;
/// Bytes of the key of headers' tags.
const HEADER_KEY_BYTES: usize = 16;

/// The keys of an epoch: the cipher's, and that of headers' tags. A cipher ready for use takes some 600 bytes: it is
/// made when it is needed.
type KeyBytes = Zeroizing<[u8; CIPHER_KEY_BYTES + HEADER_KEY_BYTES]>;

/// The keys of an epoch, ready for use.
struct EpochKeys {
    cipher: LessSafeKey,
    header: Zeroizing<[u8; HEADER_KEY_BYTES]>,
}

impl EpochKeys {
    fn new(suite: Suite, bytes: &KeyBytes) -> Result<Self, NicError> {
        let (cipher, header) = bytes.split_at(CIPHER_KEY_BYTES);
        let cipher = UnboundKey::new(suite.algorithm(), cipher).map_err(|_| NicError::Seal)?;
        let mut own = Zeroizing::new([0; HEADER_KEY_BYTES]);
        own.copy_from_slice(header);
        Ok(Self { cipher: LessSafeKey::new(cipher), header: own })
    }

    /// Seals a payload under a whole header, from where it lies to where it leaves from, its tag behind it.
    fn seal(
        &self,
        packet: u64,
        head: &[u8],
        payload: &[u8],
        sealed: &mut [u8],
    ) -> Result<(), Unspecified> {
        let (nonce, aad) = (nonce(packet), Aad::from(head));
        if self.cipher.algorithm() == &AES_256_GCM {
            return self.cipher.seal_in_place_scatter(nonce, aad, &mut [], payload, sealed);
        }
        // The library's ChaCha20-Poly1305 does that byte by byte: to copy first takes a quarter of the time.
        let (body, tag) = sealed.split_at_mut(payload.len());
        body.copy_from_slice(payload);
        let found = self.cipher.seal_in_place_separate_tag(nonce, aad, body)?;
        tag.copy_from_slice(found.as_ref());
        Ok(())
    }

    /// Returns the tag of a header without its tag: SipHash-2-4, a pseudorandom function that is ready at once, where
    /// a cipher's tag takes longer than to seal 1,400 bytes.
    fn header_tag(&self, tagged: &[u8]) -> [u8; HEADER_TAG_BYTES] {
        SipHasher24::new_with_key(&self.header).hash(tagged).to_le_bytes()
    }
}

/// The secret from which one epoch's keys and the next epoch are derived.
struct Epoch {
    number: u64,
    secret: Zeroizing<[u8; 32]>,
    /// The keys, while they are in use.
    keys: Option<Box<EpochKeys>>,
}

impl Epoch {
    fn new(number: u64, secret: Zeroizing<[u8; 32]>) -> Self {
        Self { number, secret, keys: None }
    }

    fn following(&self) -> Self {
        let next = blake3::derive_key("ciphergram 5 next epoch", &*self.secret);
        Self::new(self.number + 1, Zeroizing::new(next))
    }

    fn key_bytes(&self) -> KeyBytes {
        let derive = |context| Zeroizing::new(blake3::derive_key(context, &*self.secret));
        let [cipher, header] = ["ciphergram 5 datagram key", "ciphergram 4 header key"].map(derive);
        let mut bytes = KeyBytes::new([0; CIPHER_KEY_BYTES + HEADER_KEY_BYTES]);
        bytes[..CIPHER_KEY_BYTES].copy_from_slice(&*cipher);
        bytes[CIPHER_KEY_BYTES..].copy_from_slice(&header[..HEADER_KEY_BYTES]);
        bytes
    }

    fn keys(&mut self, suite: Suite) -> Result<&EpochKeys, NicError> {
        if self.keys.is_none() {
            self.keys = Some(Box::new(EpochKeys::new(suite, &self.key_bytes())?));
        }
        self.keys.as_deref().ok_or(NicError::Seal)
    }
}

/// A datagram that passed its tag.
pub(in crate::proto) enum OpenedDatagram<'a> {
    /// A whole datagram.
    Whole(DatagramHeader, &'a [u8]),
    /// A header whose payload was cut off on the way.
    Trimmed(DatagramHeader),
}

/// The keys and packet numbers that two processes share after a handshake.
pub(in crate::proto) struct Session {
    suite: Suite,
    /// The index in datagrams to us, above the epoch's byte.
    local: u32,
    /// The index in datagrams to the peer.
    remote: u32,
    send: Epoch,
    next_packet: u64,
    /// The newest epoch that arrived. The one after it is accepted as well.
    receive: Epoch,
    /// The epoch before, if there was one: its number and its keys.
    before: Option<Box<(u64, KeyBytes)>>,
}

impl Session {
    /// Makes a session of two secrets of the handshake.
    pub(super) fn new(
        suite: Suite,
        [local, remote]: [u32; 2],
        [send, receive]: [&[u8; 32]; 2],
    ) -> Self {
        let [send, receive] = [send, receive].map(|secret| Epoch::new(0, Zeroizing::new(*secret)));
        Self { suite, local, remote, send, next_packet: 0, receive, before: None }
    }

    /// Drops keys that can be remade, until the next datagram in either direction.
    pub(in crate::proto) fn shrink(&mut self) {
        (self.send.keys, self.receive.keys) = (None, None);
    }

    /// Returns the index that names this session in datagrams to us.
    pub(in crate::proto) fn local(&self) -> u32 {
        self.local
    }

    /// Returns the number of the next datagram.
    pub(in crate::proto) fn next_packet(&self) -> u64 {
        self.next_packet
    }

    /// Appends a sealed datagram; the session fills in index and packet number.
    pub(in crate::proto) fn seal(
        &mut self,
        mut header: DatagramHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), NicError> {
        if self.next_packet / ROTATE_PACKETS > self.send.number {
            self.send = self.send.following();
        }
        let packet = self.next_packet;
        self.next_packet += 1;
        header.spi = self.remote << 8 | u32::from(self.send.number as u8);
        let keys = self.send.keys(self.suite)?;
        header.packet = packet;
        let start = out.len();
        out.reserve(HEADER_BYTES + payload.len() + TAG_BYTES);
        header.append(payload.len() as u16, out);
        let tag = keys.header_tag(&out[start..]);
        out.extend_from_slice(&tag);
        out.resize(start + HEADER_BYTES + payload.len() + TAG_BYTES, 0);
        let (head, sealed) = out[start..].split_at_mut(HEADER_BYTES);
        let sealed = keys.seal(packet, head, payload, sealed);
        sealed.map_err(|_| {
            out.truncate(start);
            NicError::Seal
        })
    }

    /// Opens a datagram in place.
    pub(in crate::proto) fn open<'a>(
        &mut self,
        bytes: &'a mut [u8],
    ) -> Result<OpenedDatagram<'a>, NicError> {
        let length = NicError::DatagramLength { bytes: bytes.len() };
        let (head, body) = bytes.split_first_chunk_mut::<HEADER_BYTES>().ok_or(length)?;
        let (header, payload_bytes) = DatagramHeader::read(head)?;
        let (epoch, newest) = (header.spi as u8, self.receive.number);
        let mut next = None;
        let other;
        let keys = match self.before.as_deref() {
            _ if epoch == newest as u8 => self.receive.keys(self.suite)?,
            Some((number, keys)) if epoch == *number as u8 => {
                other = EpochKeys::new(self.suite, keys)?;
                &other
            }
            _ if epoch == (newest + 1) as u8 => {
                next.insert(self.receive.following()).keys(self.suite)?
            }
            _ => return Err(NicError::Tag),
        };
        if body.is_empty() {
            let tag = keys.header_tag(&head[..TAGGED_BYTES]);
            verify_slices_are_equal(&tag, &head[TAGGED_BYTES..]).map_err(|_| NicError::Tag)?;
            return Ok(OpenedDatagram::Trimmed(header));
        }
        if body.len() != payload_bytes + TAG_BYTES {
            return Err(length);
        }
        let (nonce, aad) = (nonce(header.packet), Aad::from(head.as_slice()));
        let payload = keys.cipher.open_in_place(nonce, aad, body).map_err(|_| NicError::Tag)?;
        if let Some(next) = next {
            // The peer has begun the next epoch.
            let before = std::mem::replace(&mut self.receive, next);
            self.before = Some(Box::new((before.number, before.key_bytes())));
        }
        Ok(OpenedDatagram::Whole(header, payload))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::datagram::tests::{headers, payloads};

    fn pair(suite: Suite) -> [Session; 2] {
        let (a, b) = ([3; 32], [5; 32]);
        [Session::new(suite, [11, 22], [&a, &b]), Session::new(suite, [22, 11], [&b, &a])]
    }

    fn sealed(session: &mut Session, header: DatagramHeader, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![];
        session.seal(header, payload, &mut bytes).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_a_flipped_bit_does_not(header in headers(), payload in payloads(), at: prop::sample::Index, bit in 0u8..8) {
            for suite in [Suite::Aes256Gcm, Suite::ChaCha20Poly1305] {
                let [mut one, mut two] = pair(suite);
                let mut bytes = sealed(&mut one, header, &payload);
                one.shrink();
                two.shrink();
                let mut bad = bytes.clone();
                bad[at.index(bytes.len())] ^= 1u8 << bit;
                prop_assert!(two.open(&mut bad).is_err());
                let mut cut = bytes[..at.index(bytes.len())].to_vec();
                let trimmed = cut.len() == HEADER_BYTES;
                prop_assert!(matches!(two.open(&mut cut), Ok(OpenedDatagram::Trimmed(_))) == trimmed);
                let Ok(OpenedDatagram::Whole(found, body)) = two.open(&mut bytes) else { panic!("not opened") };
                prop_assert_eq!(body, &payload[..]);
                prop_assert_eq!(found, DatagramHeader { spi: 22 << 8, packet: 0, ..header });
                // A session opens neither another's datagrams nor its own.
                let mut again = sealed(&mut one, header, &payload);
                prop_assert!(one.open(&mut again).is_err());
            }
        }

        #[test]
        fn a_trimmed_header_is_trusted_by_its_own_tag(header in headers(), at in 0..HEADER_BYTES, bit in 0u8..8) {
            let [mut one, mut two] = pair(Suite::Aes256Gcm);
            let mut bytes = sealed(&mut one, header, b"payload");
            bytes.truncate(HEADER_BYTES);
            let mut bad = bytes.clone();
            bad[at] ^= 1u8 << bit;
            prop_assert!(two.open(&mut bad).is_err());
            prop_assert!(matches!(two.open(&mut bytes), Ok(OpenedDatagram::Trimmed(_))));
        }
    }

    #[test]
    fn keys_rotate_under_traffic_and_the_last_epoch_still_opens() {
        let [mut one, mut two] = pair(Suite::Aes256Gcm);
        let header =
            DatagramHeader { opcode: crate::proto::Opcode::Ack, ..DatagramHeader::default() };
        for epoch in 0..600u64 {
            one.next_packet = (epoch + 1) * ROTATE_PACKETS - 1;
            let mut last = sealed(&mut one, header, b"last of its epoch");
            let mut first = sealed(&mut one, header, b"first of the next");
            assert_ne!(last[4], first[4], "the index names the epoch");
            let mut forged = first.clone();
            forged[70] ^= 1;
            assert!(two.open(&mut forged).is_err());
            assert!(two.open(&mut first).is_ok(), "epoch {epoch}");
            assert!(two.open(&mut last).is_ok(), "it was overtaken");
        }
    }
}
