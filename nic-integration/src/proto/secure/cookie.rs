//! Proofs that a first message must carry before it is worked for (PROTOCOL §8.1).
//!
//! The first MAC proves that its sender knows the responder's key: without it there is silence.
//! Under load the responder asks for a second one, under a cookie, which proves that the sender
//! receives at its address; the responder keeps no state for that.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use rand_chacha::ChaCha20Rng;
use rand_core::Rng;
use zeroize::Zeroizing;

use crate::NicError;
use crate::proto::Time;
use crate::proto::datagram::{DatagramKind, PREFIX_BYTES, prefix, read_prefix};
use crate::proto::event::Stranger;

use super::NodeId;

/// Bytes of a MAC of a handshake.
pub(super) const MAC_BYTES: usize = 16;
/// The span in which a cookie is handed out; it is accepted for one span more.
pub const COOKIE_SPAN: Duration = Duration::from_secs(60);
/// HELLOs a second that are answered without a cookie.
pub const HELLO_RATE: u32 = 256;

/// HELLOs a second from one address that are worked for under load.
pub const PROVEN_RATE: u32 = 16;
/// HELLOs a second of nodes that are not allowed that are answered by a DECLINE.
pub const DECLINE_RATE: u32 = 16;
/// First messages without our key, one after the other from one address, that make a stranger: fewer may have been
/// damaged on the way.
const WRONG_KEYS: u32 = 3;
/// The shortest time between two reports of strangers of one kind.
pub const STRANGER_SPAN: Duration = Duration::from_secs(1);
/// The shortest time between two reports of the same stranger.
pub const SAME_STRANGER_SPAN: Duration = Duration::from_secs(30);
/// Addresses counted in a second; HELLOs from further ones are not worked for.
const PROVEN_ADDRESSES: usize = 1024;

const NONCE_BYTES: usize = 12;
const SEALED_BYTES: usize = MAC_BYTES + 16;
/// Bytes of a COOKIE, the shortest datagram.
pub const COOKIE_BYTES: usize = PREFIX_BYTES + NONCE_BYTES + SEALED_BYTES;

pub(super) fn mac_key(node: NodeId) -> [u8; 32] {
    blake3::derive_key("ciphergram 5 first mac", &node.0)
}

pub(super) fn mac_of(key: &[u8; 32], bytes: &[u8]) -> [u8; MAC_BYTES] {
    let hash = blake3::keyed_hash(key, bytes);
    std::array::from_fn(|byte| hash.as_bytes()[byte])
}

fn cookie_key(node: NodeId) -> Result<LessSafeKey, NicError> {
    let key = blake3::derive_key("ciphergram 5 cookie", &node.0);
    let key = UnboundKey::new(&CHACHA20_POLY1305, &key).map_err(|_| NicError::Seal)?;
    Ok(LessSafeKey::new(key))
}

/// A responder's proof, under load, that we receive at our address.
pub(in crate::proto) struct Cookie(Zeroizing<[u8; 32]>);

impl Cookie {
    fn from_bytes(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(blake3::derive_key("ciphergram 5 second mac", bytes)))
    }

    pub(super) fn prove(&self, bytes: &[u8]) -> [u8; MAC_BYTES] {
        mac_of(&self.0, bytes)
    }

    /// Reads a responder's answer to the HELLO with that MAC.
    pub(in crate::proto) fn read(node: NodeId, mac: &[u8], bytes: &[u8]) -> Result<Self, NicError> {
        if bytes.len() != COOKIE_BYTES {
            return Err(NicError::DatagramLength { bytes: bytes.len() });
        }
        let nonce = std::array::from_fn(|byte| bytes[PREFIX_BYTES + byte]);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let mut sealed: [u8; SEALED_BYTES] =
            std::array::from_fn(|byte| bytes[PREFIX_BYTES + NONCE_BYTES + byte]);
        let key = cookie_key(node)?;
        let cookie = key.open_in_place(nonce, Aad::from(mac), &mut sealed);
        Ok(Self::from_bytes(cookie.map_err(|_| NicError::Tag)?))
    }
}

/// The decision about a HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proto) enum Admission {
    /// It is worked for.
    Welcome,
    /// Its sender must first prove that it receives at its address.
    Ask,
    /// There were too many from that address.
    Enough,
}

/// A responder's filter of first messages.
pub(in crate::proto) struct Gate {
    node: NodeId,
    mac_key: [u8; 32],
    /// Secrets that cookies are derived from: of this span and of the one before.
    secrets: [Zeroizing<[u8; 32]>; 2],
    renewed: Time,
    /// The beginning of the second in which HELLOs are counted.
    second: Time,
    hellos: u32,
    /// HELLOs with a cookie in that second, for each address.
    proven: BTreeMap<IpAddr, u32>,
    /// DECLINEs in that second.
    declined: u32,
    /// The address that the last first messages without our key came from, and how many in a row.
    suspect: Option<(IpAddr, u32)>,
    /// The last report of each kind of stranger.
    reported: [Option<(Time, IpAddr, Stranger)>; 2],
}

impl Gate {
    pub(in crate::proto) fn new(node: NodeId, rng: &mut ChaCha20Rng) -> Self {
        let mut gate = Self {
            node,
            mac_key: mac_key(node),
            secrets: Default::default(),
            renewed: Time::ZERO,
            second: Time::ZERO,
            hellos: 0,
            proven: BTreeMap::new(),
            declined: 0,
            suspect: None,
            reported: [None; 2],
        };
        gate.secrets.iter_mut().for_each(|secret| rng.fill_bytes(&mut **secret));
        gate
    }

    /// Returns whether the sender of a first message knows our key.
    pub(in crate::proto) fn knows_us(&self, bytes: &[u8]) -> bool {
        let Some((rest, _)) = bytes.split_last_chunk::<MAC_BYTES>() else { return false };
        rest.split_last_chunk::<MAC_BYTES>().is_some_and(|(said, mac)| {
            verify_slices_are_equal(&mac_of(&self.mac_key, said), mac).is_ok()
        })
    }

    /// Decides whether to work for a HELLO: always, but under load only if it carries a cookie.
    pub(in crate::proto) fn admits(
        &mut self,
        now: Time,
        from: SocketAddr,
        bytes: &[u8],
        rng: &mut ChaCha20Rng,
    ) -> Admission {
        if now.since(self.second) >= Duration::from_secs(1) {
            (self.second, self.hellos, self.declined) = (now, 0, 0);
            self.proven.clear();
        }
        self.hellos = self.hellos.saturating_add(1);
        if self.hellos <= HELLO_RATE {
            return Admission::Welcome;
        }
        self.renew(now, rng);
        let Some((said, proof)) = bytes.split_last_chunk::<MAC_BYTES>() else {
            return Admission::Enough;
        };
        let proves = |secret: &Zeroizing<[u8; 32]>| {
            let expected = Cookie::from_bytes(&cookie_for(secret, from)).prove(said);
            verify_slices_are_equal(&expected, proof).is_ok()
        };
        if !self.secrets.iter().any(proves) {
            return Admission::Ask;
        }
        if self.proven.len() >= PROVEN_ADDRESSES && !self.proven.contains_key(&from.ip()) {
            return Admission::Enough;
        }
        let count = self.proven.entry(from.ip()).or_insert(0);
        *count += 1;
        if *count <= PROVEN_RATE { Admission::Welcome } else { Admission::Enough }
    }

    /// Returns whether another node that is not allowed is declined in this second.
    pub(in crate::proto) fn declines(&mut self) -> bool {
        self.declined = self.declined.saturating_add(1);
        self.declined <= DECLINE_RATE
    }

    /// Notes a first message without our key. Returns whether its sender is taken for one who has another key.
    pub(in crate::proto) fn suspects(&mut self, from: IpAddr) -> bool {
        let before = self.suspect.filter(|(known, _)| *known == from).map_or(0, |(_, count)| count);
        let count = before.saturating_add(1);
        self.suspect = Some((from, count));
        count >= WRONG_KEYS
    }

    /// Notes a first message that shows our key.
    pub(in crate::proto) fn trusts(&mut self, from: IpAddr) {
        self.suspect.take_if(|(suspect, _)| *suspect == from);
    }

    /// Returns whether a stranger is worth a report: not so often that it floods whoever reads them.
    pub(in crate::proto) fn reports(
        &mut self,
        now: Time,
        from: IpAddr,
        stranger: Stranger,
    ) -> bool {
        let last = &mut self.reported[usize::from(stranger == Stranger::WrongKey)];
        let is_due = last.is_none_or(|(at, address, of)| {
            let is_same = (address, of) == (from, stranger);
            now.since(at) >= if is_same { SAME_STRANGER_SPAN } else { STRANGER_SPAN }
        });
        if is_due {
            *last = Some((now, from, stranger));
        }
        is_due
    }

    /// Appends a cookie for the sender of that HELLO.
    pub(in crate::proto) fn answer(
        &mut self,
        from: SocketAddr,
        hello: &[u8],
        rng: &mut ChaCha20Rng,
        out: &mut Vec<u8>,
    ) -> Result<(), NicError> {
        let (_, index) = read_prefix(hello)?;
        let mac =
            hello.len().checked_sub(2 * MAC_BYTES).and_then(|at| hello.get(at..at + MAC_BYTES));
        let mac = mac.ok_or(NicError::DatagramLength { bytes: hello.len() })?;
        let mut nonce = [0; NONCE_BYTES];
        rng.fill_bytes(&mut nonce);
        let mut cookie = cookie_for(&self.secrets[0], from);
        out.extend_from_slice(&prefix(DatagramKind::Cookie, index));
        out.extend_from_slice(&nonce);
        let key = cookie_key(self.node)?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(mac), &mut cookie);
        out.extend_from_slice(&cookie);
        out.extend_from_slice(tag.map_err(|_| NicError::Seal)?.as_ref());
        Ok(())
    }

    fn renew(&mut self, now: Time, rng: &mut ChaCha20Rng) {
        // Once for every span that is over: an unused secret expires as well.
        let spans = now.since(self.renewed).as_secs() / COOKIE_SPAN.as_secs();
        for _ in 0..spans.min(2) {
            self.secrets.swap(0, 1);
            rng.fill_bytes(&mut *self.secrets[0]);
            self.renewed = now;
        }
    }
}

fn cookie_for(secret: &[u8; 32], from: SocketAddr) -> [u8; MAC_BYTES] {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    match from.ip() {
        IpAddr::V4(ip) => hasher.update(&ip.octets()),
        IpAddr::V6(ip) => hasher.update(&ip.octets()),
    };
    let hash = hasher.update(&from.port().to_le_bytes()).finalize();
    std::array::from_fn(|byte| hash.as_bytes()[byte])
}
