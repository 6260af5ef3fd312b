//! The keys that shares are sealed to an opener under, each for one answer.
//!
//! An opener has one at a time. Its public half is a *prekey*: who sends something does not wait for the opener. With
//! an answer the key is erased and the next one told, which does not lead back to it: what was recorded stays closed,
//! whatever is stolen later. Nor does it follow from the one before, so that an old copy of the file opens nothing
//! later. Prekeys are signed by the opener's identity, not by the key before, so that who stole one cannot go on.

use std::{
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use x_wing::{
    Decapsulate as _, DecapsulationKey, Encapsulate as _, EncapsulationKey, KeyExport as _,
};
use zeroize::Zeroizing;

use super::identity::{Identity, MemberId, SIGNATURE_BYTES};
use crate::{
    Error,
    bytes::{Reader, Writer},
    error::FrameError,
    files::{read_text, replace, sibling_of},
    ids::{hex, parse_hex},
    random, versions,
};

/// Bytes of the public half.
const KEY_BYTES: usize = x_wing::ENCAPSULATION_KEY_SIZE;
/// Bytes that a key is encapsulated in.
pub(super) const KEM_BYTES: usize = x_wing::CIPHERTEXT_SIZE;
/// A key, encapsulated.
pub(super) type Kem = Box<[u8; KEM_BYTES]>;
/// Seconds that a prekey is used for: 30 days.
const LIFETIME: u64 = 30 * 24 * 3600;
const PURPOSE: &str = "ciphergram 2026 prekey";
const KIND: &str = "prekeys";
/// The end of the name of their file, behind that of the identity's.
const ENDING: &str = ".prekeys";
const VERSION: u32 = 1;

/// The public half of the key that an opener opens its next shares with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prekey {
    /// How many its opener had before it.
    counter: u64,
    /// The second of Unix time from which nobody uses it.
    expires: u64,
    key: Box<[u8; KEY_BYTES]>,
    signature: [u8; SIGNATURE_BYTES],
}

impl Prekey {
    /// Returns how many its opener had before it.
    pub(super) fn counter(&self) -> u64 {
        self.counter
    }

    /// Returns whether another one of the same opener is later.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        (self.counter, self.expires) < (other.counter, other.expires)
    }

    /// Names it.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut w = Writer::default();
        w.u64(self.counter);
        w.u64(self.expires);
        w.bytes(&*self.key);
        *blake3::hash(&w.0).as_bytes()
    }

    /// Refuses one that the opener did not sign, or that is over.
    pub(super) fn check(&self, opener: &MemberId, now: u64) -> Result<(), &'static str> {
        if !opener.has_signed(PURPOSE, &self.digest(), &self.signature) {
            return Err("its prekey is not signed by it");
        }
        if EncapsulationKey::try_from(&self.key[..]).is_err() {
            return Err("its prekey is no key");
        }
        if now < self.expires { Ok(()) } else { Err("its prekey has expired") }
    }

    /// Draws a key from `randomness` and encapsulates it.
    ///
    /// # Errors
    /// The public half is none.
    pub(super) fn encapsulate(
        &self,
        randomness: &[u8; 32],
    ) -> Result<(Kem, Zeroizing<[u8; 32]>), FrameError> {
        let malformed = |_| FrameError::Malformed { what: "a prekey that is no key" };
        let key = EncapsulationKey::try_from(&self.key[..]).map_err(malformed)?;
        let mut rng = ciphergram_accel::random::StreamRng::from_seed(randomness);
        let (kem, shared) = key.encapsulate_with_rng(&mut rng);
        Ok((Box::new(kem.into()), Zeroizing::new(shared.into())))
    }

    /// Returns it as a word of text.
    pub(crate) fn to_text(&self) -> String {
        BASE64.encode(self.to_bytes())
    }

    /// Reads that.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        Self::from_bytes(&BASE64.decode(text).ok()?).ok()
    }

    /// Writes it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::default();
        self.write(&mut w);
        w.0
    }

    /// Reads that.
    ///
    /// # Errors
    /// Its form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FrameError> {
        let mut r = Reader(bytes);
        let read = Self::read(&mut r)?;
        r.end()?;
        Ok(read)
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.u64(self.counter);
        w.u64(self.expires);
        w.bytes(&*self.key);
        w.bytes(&self.signature);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (counter, expires) = (r.u64()?, r.u64()?);
        Ok(Self { counter, expires, key: Box::new(r.array()?), signature: r.array()? })
    }
}

/// The key of an opener's next answer, and its last one.
pub struct PrekeyChain {
    counter: u64,
    seed: Zeroizing<[u8; 32]>,
    /// The request that was answered last, by its hash, and the answer.
    last: Option<([u8; 32], Vec<u8>)>,
    /// The file that has nothing but this; none if it is in memory alone.
    path: Option<PathBuf>,
}

impl PrekeyChain {
    /// Draws a chain that no file has.
    ///
    /// # Errors
    /// No randomness.
    pub fn in_memory() -> Result<Self, Error> {
        Ok(Self { counter: 0, seed: random::bytes()?, last: None, path: None })
    }

    /// Draws one beside the file of an identity.
    ///
    /// # Errors
    /// No randomness; the file is there, or cannot be written.
    pub fn create(identity: &Path) -> Result<Self, Error> {
        let path = sibling_of(identity, ENDING);
        if path.exists() {
            return Err(Error::Exists { path });
        }
        let chain = Self { path: Some(path), ..Self::in_memory()? };
        chain.save()?;
        Ok(chain)
    }

    /// Returns whether one is beside the file of an identity.
    #[must_use]
    pub fn exists(identity: &Path) -> bool {
        sibling_of(identity, ENDING).exists()
    }

    /// Reads the one beside the file of an identity.
    ///
    /// # Errors
    /// It is missing or damaged.
    pub fn load(identity: &Path) -> Result<Self, Error> {
        Self::read(&sibling_of(identity, ENDING))
    }

    fn read(path: &Path) -> Result<Self, Error> {
        let read = || {
            let text = read_text("file of prekeys", path)?;
            versions::check_lines(&text, KIND, VERSION)?;
            let line = text.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
            let parts = || {
                let mut words = line.split(' ');
                let (counter, seed) = (words.next()?.parse().ok()?, parse_hex(words.next()?)?);
                let last = match (words.next(), words.next()) {
                    (None, _) => None,
                    (Some(request), answer) => {
                        Some((parse_hex(request)?, BASE64.decode(answer?).ok()?))
                    }
                };
                Some((counter, Zeroizing::new(seed), last))
            };
            let why = || "it has no counter and seed".into();
            parts().ok_or_else(|| Error::Format { what: KIND, why: why() })
        };
        let (counter, seed, last) = read().map_err(|e| e.within(path.display()))?;
        Ok(Self { counter, seed, last, path: Some(path.into()) })
    }

    /// Reads the file again, if there is one: whoever else has the identity may have answered.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(super) fn reload(&mut self) -> Result<(), Error> {
        if let Some(path) = &self.path {
            *self = Self::read(path)?;
        }
        Ok(())
    }

    fn save(&self) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        let seed = Zeroizing::new(hex(&*self.seed));
        let head = versions::first_line(KIND, VERSION);
        let last = self.last.as_ref().map_or_else(String::new, |(request, answer)| {
            format!(" {} {}", hex(request), BASE64.encode(answer))
        });
        let text = Zeroizing::new(format!("{head}{} {}{last}\n", self.counter, *seed));
        replace(path, text.as_bytes(), 0o600).map_err(|e| e.within(path.display()))
    }

    fn secret(&self) -> DecapsulationKey {
        let seed = Zeroizing::new(blake3::derive_key("ciphergram 2026 prekey secret", &*self.seed));
        DecapsulationKey::from(*seed)
    }

    /// Returns the prekey of the next answer.
    ///
    /// # Errors
    /// The clock stands before 1970.
    pub fn prekey(&self, identity: &Identity) -> Result<Prekey, Error> {
        Ok(self.until(identity, now()? + LIFETIME))
    }

    pub(super) fn until(&self, identity: &Identity, expires: u64) -> Prekey {
        let key =
            Box::new(x_wing::Decapsulator::encapsulation_key(&self.secret()).to_bytes().into());
        let mut prekey =
            Prekey { counter: self.counter, expires, key, signature: [0; SIGNATURE_BYTES] };
        prekey.signature = identity.sign(PURPOSE, &prekey.digest());
        prekey
    }

    /// Returns the key of the next answer.
    pub(super) fn key(&self) -> AnswerKey {
        AnswerKey { counter: self.counter, key: self.secret() }
    }

    /// Returns the answer to the request of this hash, if that was answered last.
    pub(super) fn answer_to(&self, request: &[u8; 32]) -> Option<&[u8]> {
        self.last.as_ref().filter(|(last, _)| last == request).map(|(_, answer)| &answer[..])
    }

    /// Draws the key after this one.
    ///
    /// # Errors
    /// No randomness.
    pub(super) fn next(&self) -> Result<Self, Error> {
        // Should what is drawn be known, this key is still needed to know the next.
        let own = Zeroizing::new(blake3::derive_key("ciphergram 2026 next prekey", &*self.seed));
        let seed = blake3::keyed_hash(&own, &*random::bytes::<32>()?);
        let seed = Zeroizing::new(*seed.as_bytes());
        Ok(Self { counter: self.counter + 1, seed, last: None, path: self.path.clone() })
    }

    /// Erases the key of the answer to a request: on disk are the next one and the answer when this returns.
    ///
    /// # Errors
    /// Another process of the opener answered by it meanwhile; the file cannot be written.
    pub(super) fn advance(
        &mut self,
        next: Self,
        request: &[u8; 32],
        answer: Vec<u8>,
    ) -> Result<(), Error> {
        if let Some(path) = &self.path
            && Self::read(path)?.counter != self.counter
        {
            let why = "another process of this opener has answered meanwhile".into();
            return Err(Error::Io { why }.within(path.display()));
        }
        let next = Self { last: Some((*request, answer)), ..next };
        next.save()?;
        *self = next;
        Ok(())
    }
}

/// The key that the shares of one answer are opened by.
pub(super) struct AnswerKey {
    counter: u64,
    key: DecapsulationKey,
}

impl AnswerKey {
    /// Opens what was encapsulated under the prekey of this counter; nothing if that is another one.
    pub(super) fn decapsulate(
        &self,
        counter: u64,
        kem: &[u8; KEM_BYTES],
    ) -> Option<Zeroizing<[u8; 32]>> {
        (counter == self.counter)
            .then(|| Zeroizing::new(self.key.decapsulate(&(*kem).into()).into()))
    }
}

/// Returns the second of Unix time.
///
/// # Errors
/// The clock stands before 1970.
pub(super) fn now() -> Result<u64, Error> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.map_err(|_| Error::Io { why: "the clock stands before 1970".into() })?;
    Ok(since.as_secs())
}
