//! Who a member of a job is, where nobody holds a key of sums: a key that signs, and one that the job's secret is
//! sealed to.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use x25519_dalek::{PublicKey as ExchangeKey, StaticSecret};
use zeroize::Zeroizing;

use super::sealing;
use crate::{Error, bytes::Reader, error::FrameError, random};

/// Bytes of a signature.
pub(super) const SIGNATURE_BYTES: usize = 64;

/// The secret of a member: it makes contributions, and as an opener answers, but opens nothing that was recorded.
pub struct Identity {
    seed: Zeroizing<[u8; 32]>,
    signing: SigningKey,
}

/// What others know a member by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberId {
    /// An Ed25519 key, which contributions and answers are signed under.
    verifying: [u8; 32],
    /// An X25519 key, which the job's secret is sealed to.
    exchange: [u8; 32],
}

impl Identity {
    /// Draws a fresh one.
    ///
    /// # Errors
    /// No randomness.
    pub fn generate() -> Result<Self, Error> {
        Ok(Self::of_seed(&*random::bytes()?))
    }

    /// Derives that of a file.
    pub(crate) fn of_seed(seed: &[u8; 32]) -> Self {
        let signing = Zeroizing::new(blake3::derive_key("ciphergram 2026 member signature", seed));
        Self { seed: Zeroizing::new(*seed), signing: SigningKey::from_bytes(&signing) }
    }

    /// Returns the seed, for the file.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// Returns what others know it by.
    #[must_use]
    pub fn id(&self) -> MemberId {
        let exchange = ExchangeKey::from(&self.exchange()).to_bytes();
        MemberId { verifying: self.signing.verifying_key().to_bytes(), exchange }
    }

    /// Derives what only this member derives, for one purpose.
    pub(super) fn derive(&self, context: &'static str) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key(context, &*self.seed))
    }

    fn exchange(&self) -> StaticSecret {
        StaticSecret::from(*self.derive("ciphergram 2026 member exchange"))
    }

    /// Signs a digest of what `purpose` says.
    pub(super) fn sign(&self, purpose: &'static str, digest: &[u8; 32]) -> [u8; SIGNATURE_BYTES] {
        self.signing.sign(&signed(purpose, digest)).to_bytes()
    }

    /// Opens a job's secret.
    ///
    /// # Errors
    /// It was not sealed to this member.
    pub(super) fn open(
        &self,
        sealer: &[u8; 32],
        sealed: &[u8],
    ) -> Result<Zeroizing<[u8; 32]>, Error> {
        let shared = self.exchange().diffie_hellman(&ExchangeKey::from(*sealer));
        let key = sealing_key(sealer, &self.id(), shared.as_bytes());
        let secret = sealing::open(&key, &[], sealed).and_then(|secret| secret[..].try_into().ok());
        secret.map(Zeroizing::new).ok_or(Error::NoMember { role: "recipient of its secret" })
    }
}

impl MemberId {
    /// Returns whether the member signed a digest of what `purpose` says.
    pub(super) fn has_signed(
        &self,
        purpose: &'static str,
        digest: &[u8; 32],
        signature: &[u8; SIGNATURE_BYTES],
    ) -> bool {
        let key = VerifyingKey::from_bytes(&self.verifying);
        let signature = Signature::from_bytes(signature);
        key.is_ok_and(|key| key.verify_strict(&signed(purpose, digest), &signature).is_ok())
    }

    /// Returns whether one key of another is the same.
    pub(super) fn shares_a_key(&self, other: &Self) -> bool {
        self.verifying == other.verifying || self.exchange == other.exchange
    }

    /// Returns the bytes of both keys.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&self.verifying);
        bytes[32..].copy_from_slice(&self.exchange);
        bytes
    }

    /// Takes the bytes of both keys.
    ///
    /// # Errors
    /// No signature can be checked by them.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (verifying, exchange) = (r.array()?, r.array()?);
        let is_key = VerifyingKey::from_bytes(&verifying).is_ok_and(|key| !key.is_weak());
        let malformed = FrameError::Malformed { what: "a member's key that checks nothing" };
        if is_key { Ok(Self { verifying, exchange }) } else { Err(malformed) }
    }
}

/// Seals a job's secret to members, under a key that is drawn for it and forgotten. Returns that one's public half.
///
/// # Errors
/// No randomness.
pub(super) fn seal_to<'a>(
    members: impl Iterator<Item = &'a MemberId>,
    secret: &[u8; 32],
) -> Result<([u8; 32], Vec<Vec<u8>>), Error> {
    let drawn = StaticSecret::from(*random::bytes::<32>()?);
    let sealer = ExchangeKey::from(&drawn).to_bytes();
    let seal = |member: &MemberId| {
        let shared = drawn.diffie_hellman(&ExchangeKey::from(member.exchange));
        let key = sealing_key(&sealer, member, shared.as_bytes());
        sealing::seal(&key, &[], secret)
    };
    Ok((sealer, members.map(seal).collect()))
}

fn sealing_key(sealer: &[u8; 32], member: &MemberId, shared: &[u8; 32]) -> Zeroizing<[u8; 32]> {
    let material = Zeroizing::new([&sealer[..], &member.exchange, shared].concat());
    Zeroizing::new(blake3::derive_key("ciphergram 2026 secret of a job", &material))
}

fn signed(purpose: &'static str, digest: &[u8; 32]) -> Vec<u8> {
    [purpose.as_bytes(), &digest[..]].concat()
}
