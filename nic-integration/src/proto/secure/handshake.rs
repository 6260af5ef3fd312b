//! The handshake: Noise IK, two datagrams (PROTOCOL §8.2).
//!
//! The initiator knows the responder's key beforehand, the responder learns the initiator's from
//! the first datagram. Each names its process, and the index that datagrams to it shall carry.

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver, FallbackResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use crate::NicError;
use crate::proto::datagram::{DatagramKind, PREFIX_BYTES, prefix, read_prefix};
use crate::proto::shared::MAX_PIPELINES;

use super::cookie::{Cookie, MAC_BYTES, mac_key, mac_of};
use super::{Identity, NodeId, Session, Suite};

const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
/// Bytes of a HELLO's payload: incarnation (4), number (4), suite (1), sockets (1), pipelines (1),
/// zero (1).
const HELLO_PAYLOAD: usize = 12;
/// Bytes of a WELCOME's payload: incarnation (4), index (4), ports of the pipelines from the second
/// on (2 each).
const WELCOME_PAYLOAD: usize = 8 + 2 * (MAX_PIPELINES as usize - 1);
const TAG_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const HELLO_NOISE: usize = KEY_BYTES + KEY_BYTES + TAG_BYTES + HELLO_PAYLOAD + TAG_BYTES;
const WELCOME_NOISE: usize = KEY_BYTES + WELCOME_PAYLOAD + TAG_BYTES;
/// Bytes of a HELLO: prefix, Noise message, two MACs.
pub(in crate::proto) const HELLO_BYTES: usize = PREFIX_BYTES + HELLO_NOISE + 2 * MAC_BYTES;
/// Bytes of a WELCOME: prefix, Noise message, one MAC. Fewer than a HELLO's, so that nothing is
/// amplified.
const WELCOME_BYTES: usize = PREFIX_BYTES + WELCOME_NOISE + MAC_BYTES;
/// The payload of a DECLINE: the initiator's node is not one that may open a link.
const DECLINED: [u8; 1] = [1];
const DECLINE_NOISE: usize = KEY_BYTES + DECLINED.len() + TAG_BYTES;
/// Bytes of a DECLINE: prefix, Noise message, one MAC.
const DECLINE_BYTES: usize = PREFIX_BYTES + DECLINE_NOISE + MAC_BYTES;

/// The randomness of one handshake.
struct Seeded(ChaCha20Rng);

impl Random for Seeded {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(bytes);
        Ok(())
    }
}

/// An X25519 key pair, erased when dropped.
#[derive(Default)]
struct KeyPair {
    secret: Zeroizing<[u8; KEY_BYTES]>,
    public: [u8; KEY_BYTES],
}

impl Dh for KeyPair {
    fn name(&self) -> &'static str {
        "25519"
    }
    fn pub_len(&self) -> usize {
        KEY_BYTES
    }
    fn priv_len(&self) -> usize {
        KEY_BYTES
    }
    fn set(&mut self, secret: &[u8]) {
        self.secret.copy_from_slice(secret);
        let key = PrivateKey::from_private_key(&X25519, secret).ok();
        if let Some(public) = key.and_then(|key| key.compute_public_key().ok()) {
            self.public.copy_from_slice(public.as_ref());
        }
    }
    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), snow::Error> {
        let mut secret = Zeroizing::new([0; KEY_BYTES]);
        rng.try_fill_bytes(&mut *secret)?;
        self.set(&*secret);
        Ok(())
    }
    fn pubkey(&self) -> &[u8] {
        &self.public
    }
    fn privkey(&self) -> &[u8] {
        &*self.secret
    }
    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let secret = PrivateKey::from_private_key(&X25519, &*self.secret);
        let secret = secret.map_err(|_| snow::Error::Dh)?;
        let public = UnparsedPublicKey::new(&X25519, &public[..KEY_BYTES]);
        agree(&secret, public, snow::Error::Dh, |shared| {
            out[..KEY_BYTES].copy_from_slice(shared);
            Ok(())
        })
    }
}

/// Draws randomness from its own seed alone: so one seed makes one simulated world.
struct Resolver(Zeroizing<[u8; 32]>);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Seeded(ChaCha20Rng::from_seed(*self.0))))
    }
    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(KeyPair::default()) as Box<dyn Dh>)
    }
    fn resolve_hash(&self, _: &HashChoice) -> Option<Box<dyn Hash>> {
        None
    }
    fn resolve_cipher(&self, _: &CipherChoice) -> Option<Box<dyn Cipher>> {
        None
    }
}

fn build<'b>(
    identity: &'b Identity,
    prologue: &'b [u8],
    rng: &mut ChaCha20Rng,
) -> Result<Builder<'b>, NicError> {
    let mut seed = Zeroizing::new([0; 32]);
    rng.fill_bytes(&mut *seed);
    let params: NoiseParams = PATTERN.parse().map_err(|_| NicError::Handshake)?;
    let resolver = FallbackResolver::new(Box::new(Resolver(seed)), Box::new(DefaultResolver));
    Builder::with_resolver(params, Box::new(resolver))
        .local_private_key(identity.secret())
        .and_then(|builder| builder.prologue(prologue))
        .map_err(|_| NicError::Handshake)
}

/// Returns whether an index fits 24 bits and leaves its lowest ones to the channel.
fn is_index(index: u32) -> bool {
    index < 1 << 24 && index.is_multiple_of(MAX_PIPELINES.into())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

/// The result of a handshake: a session for every channel.
pub(in crate::proto) struct SessionSecrets {
    suite: Suite,
    /// Indices of the first channel's session: ours, and the peer's. Those of other channels
    /// follow.
    local: u32,
    remote: u32,
    send: Zeroizing<[u8; 32]>,
    receive: Zeroizing<[u8; 32]>,
}

impl SessionSecrets {
    fn new(
        noise: &mut HandshakeState,
        suite: Suite,
        [local, remote]: [u32; 2],
        initiator: bool,
    ) -> Self {
        let (a, b) = noise.dangerously_get_raw_split();
        let (a, b) = (Zeroizing::new(a), Zeroizing::new(b));
        let (send, receive) = if initiator { (a, b) } else { (b, a) };
        Self { suite, local, remote, send, receive }
    }

    /// Derives the session of a channel, under keys of its own.
    pub(in crate::proto) fn channel(&self, channel: u16) -> Session {
        let secret = |of: &[u8; 32]| {
            let mut material = Zeroizing::new([0; 34]);
            material[..32].copy_from_slice(of);
            material[32..].copy_from_slice(&channel.to_le_bytes());
            Zeroizing::new(blake3::derive_key("ciphergram 5 lane", &*material))
        };
        let indices = [self.local, self.remote].map(|index| index + u32::from(channel));
        let (send, receive) = (secret(&self.send), secret(&self.receive));
        Session::new(self.suite, indices, [&send, &receive])
    }
}

/// A handshake that we began.
pub(in crate::proto) struct Initiator {
    noise: HandshakeState,
    index: u32,
    suite: Suite,
    /// The HELLO's first MAC, which a cookie must answer.
    mac: [u8; MAC_BYTES],
}

/// The parameters that an initiator declares.
pub(in crate::proto) struct TransportParameters {
    pub(in crate::proto) suite: Suite,
    /// Sockets that each of its pipelines sends from.
    pub(in crate::proto) sockets: u16,
    pub(in crate::proto) pipelines: u16,
}

/// The responder's parameters, and the secrets.
pub(in crate::proto) struct Welcome {
    pub(in crate::proto) incarnation: u32,
    /// The ports of its pipelines from the second on.
    pub(in crate::proto) ports: Vec<u16>,
    pub(in crate::proto) secrets: SessionSecrets,
}

impl Initiator {
    /// Begins a handshake with `node`, and appends its HELLO to `out`.
    pub(in crate::proto) fn hello(
        (identity, incarnation, number): (&Identity, u32, u32),
        node: NodeId,
        index: u32,
        parameters: &TransportParameters,
        cookie: Option<&Cookie>,
        rng: &mut ChaCha20Rng,
        out: &mut Vec<u8>,
    ) -> Result<Self, NicError> {
        let start = out.len();
        out.extend_from_slice(&prefix(DatagramKind::Hello, index));
        let builder = build(identity, &out[start..], rng)?;
        let builder = builder.remote_public_key(&node.0).map_err(|_| NicError::Handshake)?;
        let mut noise = builder.build_initiator().map_err(|_| NicError::Handshake)?;
        let mut payload = [0; HELLO_PAYLOAD];
        payload[..4].copy_from_slice(&incarnation.to_le_bytes());
        payload[4..8].copy_from_slice(&number.to_le_bytes());
        // Either number fits a byte.
        payload[8..11].copy_from_slice(&[
            parameters.suite as u8,
            parameters.sockets as u8,
            parameters.pipelines as u8,
        ]);
        let mut message = [0; HELLO_NOISE];
        noise.write_message(&payload, &mut message).map_err(|_| NicError::Handshake)?;
        out.extend_from_slice(&message);
        let mac = mac_of(&mac_key(node), &out[start..]);
        out.extend_from_slice(&mac);
        let proof = cookie.map_or([0; MAC_BYTES], |cookie| cookie.prove(&out[start..]));
        out.extend_from_slice(&proof);
        Ok(Self { noise, index, suite: parameters.suite, mac })
    }

    /// Returns the MAC that a cookie for this handshake is bound to.
    pub(in crate::proto) fn mac(&self) -> &[u8] {
        &self.mac
    }

    /// Takes the answer. A forged one leaves the handshake as it was.
    pub(in crate::proto) fn welcome(
        &mut self,
        identity: &Identity,
        bytes: &[u8],
    ) -> Result<Welcome, NicError> {
        let payload: [u8; WELCOME_PAYLOAD] = self.open(identity, bytes, WELCOME_BYTES)?;
        let (incarnation, remote) = (word(&payload, 0), word(&payload, 4));
        if incarnation == 0 || !is_index(remote) {
            return Err(NicError::Handshake);
        }
        let ports = payload[8..].chunks_exact(2).map(|port| u16::from_le_bytes([port[0], port[1]]));
        let ports = ports.take_while(|port| *port != 0).collect();
        let secrets = SessionSecrets::new(&mut self.noise, self.suite, [self.index, remote], true);
        Ok(Welcome { incarnation, ports, secrets })
    }

    /// Checks that the responder declines this handshake, which is over then. A forged answer leaves it as it was.
    pub(in crate::proto) fn declined(
        &mut self,
        identity: &Identity,
        bytes: &[u8],
    ) -> Result<(), NicError> {
        let payload: [u8; DECLINED.len()] = self.open(identity, bytes, DECLINE_BYTES)?;
        if payload == DECLINED { Ok(()) } else { Err(NicError::Handshake) }
    }

    /// Opens an answer that has to be `length` bytes long.
    fn open<const N: usize>(
        &mut self,
        identity: &Identity,
        bytes: &[u8],
        length: usize,
    ) -> Result<[u8; N], NicError> {
        let wrong = NicError::DatagramLength { bytes: bytes.len() };
        let (said_bytes, mac) = bytes.split_last_chunk::<MAC_BYTES>().ok_or(wrong)?;
        if bytes.len() != length {
            return Err(wrong);
        }
        let expected = mac_of(&mac_key(identity.id()), said_bytes);
        verify_slices_are_equal(&expected, mac).map_err(|_| NicError::Handshake)?;
        let mut payload = [0; N];
        let message = &said_bytes[PREFIX_BYTES..];
        self.noise.read_message(message, &mut payload).map_err(|_| NicError::Handshake)?;
        Ok(payload)
    }
}

/// A HELLO that was opened, and its sender.
pub(in crate::proto) struct Hello {
    noise: HandshakeState,
    pub(in crate::proto) node: NodeId,
    pub(in crate::proto) incarnation: u32,
    /// HELLOs that the process had sent, this one included.
    pub(in crate::proto) number: u32,
    /// Sockets that each of its pipelines sends from.
    pub(in crate::proto) sockets: u16,
    pub(in crate::proto) pipelines: u16,
    suite: Suite,
    remote: u32,
}

impl Hello {
    /// Opens a HELLO whose MAC was right.
    pub(in crate::proto) fn open(
        identity: &Identity,
        bytes: &[u8],
        rng: &mut ChaCha20Rng,
    ) -> Result<Self, NicError> {
        if bytes.len() != HELLO_BYTES {
            return Err(NicError::DatagramLength { bytes: bytes.len() });
        }
        let (_, remote) = read_prefix(bytes)?;
        let builder = build(identity, &bytes[..PREFIX_BYTES], rng)?;
        let mut noise = builder.build_responder().map_err(|_| NicError::Handshake)?;
        let mut payload = [0; HELLO_PAYLOAD];
        let message = &bytes[PREFIX_BYTES..PREFIX_BYTES + HELLO_NOISE];
        noise.read_message(message, &mut payload).map_err(|_| NicError::Handshake)?;
        let node = noise.get_remote_static().and_then(|key| key.try_into().ok());
        let node = NodeId(node.ok_or(NicError::Handshake)?);
        let suite = Suite::from_code(payload[8]).ok_or(NicError::Handshake)?;
        let (incarnation, number) = (word(&payload, 0), word(&payload, 4));
        let [sockets, pipelines] = [payload[9], payload[10]].map(u16::from);
        let pipelines_fit = (1..=MAX_PIPELINES).contains(&pipelines);
        if incarnation == 0 || number == 0 || sockets == 0 || !pipelines_fit || !is_index(remote) {
            return Err(NicError::Handshake);
        }
        Ok(Self { noise, node, incarnation, number, sockets, pipelines, suite, remote })
    }

    /// Answers it as the process `incarnation`, with `index` for datagrams to it, and `ports` of
    /// its pipelines from the second on. The sessions are not confirmed: only a datagram sealed
    /// under one shows that its peer is there.
    pub(in crate::proto) fn accept(
        mut self,
        incarnation: u32,
        index: u32,
        ports: &[u16],
        out: &mut Vec<u8>,
    ) -> Result<SessionSecrets, NicError> {
        let start = out.len();
        out.extend_from_slice(&prefix(DatagramKind::Welcome, self.remote));
        let mut payload = [0; WELCOME_PAYLOAD];
        payload[..4].copy_from_slice(&incarnation.to_le_bytes());
        payload[4..8].copy_from_slice(&index.to_le_bytes());
        for (place, port) in payload[8..].chunks_exact_mut(2).zip(ports) {
            place.copy_from_slice(&port.to_le_bytes());
        }
        let mut message = [0; WELCOME_NOISE];
        self.noise.write_message(&payload, &mut message).map_err(|_| NicError::Handshake)?;
        out.extend_from_slice(&message);
        let mac = mac_of(&mac_key(self.node), &out[start..]);
        out.extend_from_slice(&mac);
        Ok(SessionSecrets::new(&mut self.noise, self.suite, [index, self.remote], false))
    }

    /// Answers it that its node may open no link. Only its sender can read that, and only we can have said it.
    pub(in crate::proto) fn decline(mut self, out: &mut Vec<u8>) -> Result<(), NicError> {
        let start = out.len();
        out.extend_from_slice(&prefix(DatagramKind::Decline, self.remote));
        let mut message = [0; DECLINE_NOISE];
        self.noise.write_message(&DECLINED, &mut message).map_err(|_| NicError::Handshake)?;
        out.extend_from_slice(&message);
        let mac = mac_of(&mac_key(self.node), &out[start..]);
        out.extend_from_slice(&mac);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::super::cookie::{Admission, COOKIE_SPAN, Gate, HELLO_RATE, PROVEN_RATE};
    use super::*;
    use crate::proto::Time;
    use crate::proto::datagram::{DatagramHeader, Opcode};
    use crate::proto::secure::OpenedDatagram;

    struct Side {
        identity: Identity,
        rng: ChaCha20Rng,
    }

    fn end(number: u8) -> Side {
        let identity = Identity::from_secret(&[number; 32]).unwrap();
        Side { identity, rng: ChaCha20Rng::from_seed([number; 32]) }
    }

    fn hello(from: &mut Side, to: &Side, cookie: Option<&Cookie>) -> (Initiator, Vec<u8>) {
        let mut bytes = vec![];
        let (me, to) = ((&from.identity, 11, 1), to.identity.id());
        let parameters = TransportParameters { suite: Suite::Aes256Gcm, sockets: 16, pipelines: 3 };
        let rng = &mut from.rng;
        let initiator =
            Initiator::hello(me, to, 0x50, &parameters, cookie, rng, &mut bytes).unwrap();
        (initiator, bytes)
    }

    #[test]
    fn both_ends_come_to_know_each_other() {
        let (mut one, mut two) = (end(1), end(2));
        let (mut initiator, bytes) = hello(&mut one, &two, None);
        let gate = Gate::new(two.identity.id(), &mut two.rng);
        assert!(gate.knows_us(&bytes));
        assert!(!Gate::new(one.identity.id(), &mut one.rng).knows_us(&bytes), "not our key");
        let opened = Hello::open(&two.identity, &bytes, &mut two.rng).unwrap();
        assert_eq!((opened.node, opened.incarnation), (one.identity.id(), 11));
        assert_eq!((opened.sockets, opened.pipelines), (16, 3));
        let mut answer = vec![];
        let theirs = opened.accept(22, 0x60, &[700, 65535], &mut answer).unwrap();
        assert!(answer.len() < bytes.len());
        for at in 0..answer.len() {
            let mut bad = answer.clone();
            bad[at] ^= 1;
            assert!(initiator.welcome(&one.identity, &bad).is_err(), "byte {at}");
        }
        let welcome = initiator.welcome(&one.identity, &answer).unwrap();
        assert_eq!((welcome.incarnation, &welcome.ports[..]), (22, &[700, 65535][..]));
        let header = DatagramHeader { opcode: Opcode::Ack, ..DatagramHeader::default() };
        for channel in 0..3 {
            let (mut ours, mut theirs) =
                (welcome.secrets.channel(channel), theirs.channel(channel));
            assert_eq!(
                (ours.local(), theirs.local()),
                (0x50 + u32::from(channel), 0x60 + u32::from(channel))
            );
            let mut bytes = vec![];
            ours.seal(header, b"there", &mut bytes).unwrap();
            let (mut same, mut other) = (bytes.clone(), bytes.clone());
            assert!(matches!(theirs.open(&mut bytes), Ok(OpenedDatagram::Whole(_, b"there"))));
            assert!(ours.open(&mut same).is_err(), "the other direction's key");
            assert!(
                welcome.secrets.channel(channel + 1).open(&mut other).is_err(),
                "another channel's key"
            );
            bytes.clear();
            theirs.seal(header, b"back", &mut bytes).unwrap();
            assert!(matches!(ours.open(&mut bytes), Ok(OpenedDatagram::Whole(_, b"back"))));
        }
    }

    #[test]
    fn a_node_is_declined_by_whom_it_asked_alone() {
        let (mut one, mut two, other) = (end(1), end(2), end(3));
        let (mut initiator, bytes) = hello(&mut one, &two, None);
        let opened = Hello::open(&two.identity, &bytes, &mut two.rng).unwrap();
        let mut answer = vec![];
        opened.decline(&mut answer).unwrap();
        assert!(answer.len() < bytes.len());
        assert!(initiator.declined(&other.identity, &answer).is_err(), "for another node");
        assert!(initiator.welcome(&one.identity, &answer).is_err(), "no welcome");
        for at in 0..answer.len() {
            let mut bad = answer.clone();
            bad[at] ^= 1;
            assert!(initiator.declined(&one.identity, &bad).is_err(), "byte {at}");
            // Anyone who knows the node's public key can make the MAC right.
            let end = bad.len() - MAC_BYTES;
            let mac = mac_of(&mac_key(one.identity.id()), &bad[..end]);
            bad[end..].copy_from_slice(&mac);
            let is_sealed = (PREFIX_BYTES..end).contains(&at);
            assert!(!is_sealed || initiator.declined(&one.identity, &bad).is_err(), "byte {at}");
        }
        let (mut later, _) = hello(&mut one, &two, None);
        assert!(later.declined(&one.identity, &answer).is_err(), "of a handshake before");
    }

    #[test]
    fn a_genuine_decline_ends_a_handshake() {
        let (mut one, mut two) = (end(1), end(2));
        let (mut initiator, bytes) = hello(&mut one, &two, None);
        let mut answer = vec![];
        Hello::open(&two.identity, &bytes, &mut two.rng).unwrap().decline(&mut answer).unwrap();
        let mut forged = answer.clone();
        forged[20] ^= 1;
        assert!(initiator.declined(&one.identity, &forged).is_err());
        assert!(initiator.declined(&one.identity, &answer).is_ok(), "as it was before");
    }

    #[test]
    fn no_bit_of_a_hello_may_change() {
        let (mut one, mut two) = (end(1), end(2));
        let (_, bytes) = hello(&mut one, &two, None);
        let gate = Gate::new(two.identity.id(), &mut two.rng);
        for at in 0..bytes.len() - MAC_BYTES {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(!gate.knows_us(&bad), "byte {at}");
            // A forger who knows the public key, but not the secret, can make the MAC right.
            let end = bad.len() - 2 * MAC_BYTES;
            let mac = mac_of(&mac_key(two.identity.id()), &bad[..end]);
            bad[end..end + MAC_BYTES].copy_from_slice(&mac);
            assert!(at >= end || Hello::open(&two.identity, &bad, &mut two.rng).is_err());
        }
    }

    #[test]
    fn under_load_a_cookie_is_asked_for_and_proves_an_address() {
        let (mut one, mut two) = (end(1), end(2));
        let mut gate = Gate::new(two.identity.id(), &mut two.rng);
        let from: [SocketAddr; 2] = [1, 2].map(|port| ([10, 0, 0, 1], port).into());
        let (initiator, bytes) = hello(&mut one, &two, None);
        let now = Time::ZERO + Duration::from_secs(9);
        for _ in 0..HELLO_RATE {
            assert_eq!(gate.admits(now, from[0], &bytes, &mut two.rng), Admission::Welcome);
        }
        assert_eq!(gate.admits(now, from[0], &bytes, &mut two.rng), Admission::Ask);
        let mut answer = vec![];
        gate.answer(from[0], &bytes, &mut two.rng, &mut answer).unwrap();
        assert!(answer.len() < bytes.len());
        let node = two.identity.id();
        assert!(Cookie::read(node, &[0; MAC_BYTES], &answer).is_err(), "of another hello");
        let cookie = Cookie::read(node, initiator.mac(), &answer).unwrap();
        let (_, bytes) = hello(&mut one, &two, Some(&cookie));
        assert!(gate.knows_us(&bytes));
        // The cookie is of another address.
        assert_eq!(gate.admits(now, from[1], &bytes, &mut two.rng), Admission::Ask);
        for _ in 0..PROVEN_RATE {
            assert_eq!(gate.admits(now, from[0], &bytes, &mut two.rng), Admission::Welcome);
        }
        assert_eq!(gate.admits(now, from[0], &bytes, &mut two.rng), Admission::Enough);
        // A flood goes on; the cookie outlives one renewal and no second.
        let mut later = now;
        for admitted in [Admission::Welcome, Admission::Ask] {
            later = later + COOKIE_SPAN;
            (0..HELLO_RATE).for_each(|_| {
                gate.admits(later, from[1], &bytes, &mut two.rng);
            });
            assert_eq!(gate.admits(later, from[0], &bytes, &mut two.rng), admitted);
        }
    }
}
