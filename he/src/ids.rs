//! Names of keys, jobs and contributions, and statements.

use std::fmt;

use zeroize::Zeroizing;

use crate::{
    Error,
    bytes::{Reader, Writer},
    error::FrameError,
    random,
};

/// Sixteen bytes that name a key: a hash of its modulus or its public polynomials, or, where it has
/// nothing public, a one-way hash of its secret seed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyId(pub(crate) [u8; 16]);

impl KeyId {
    /// Derives the id of key material.
    pub(crate) fn derive(context: &str, material: &[u8]) -> Self {
        Self(derive16(context, material))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The public record of a contribution: the 32 bytes that its uniform polynomials grow from.
///
/// It is all that names a contribution in files, announcements, round terms and sums. Paillier has no
/// use for it but that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed([u8; 32]);

impl Seed {
    /// Returns sixteen bytes that name the contribution where a seed would be too long.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        derive16("ciphergram 2026 contribution id", &self.0)
    }

    /// Draws a fresh seed.
    ///
    /// # Errors
    /// No randomness.
    pub fn draw() -> Result<Self, Error> {
        Ok(Self(*random::bytes::<32>()?))
    }

    /// Derives the seed of an update from what names it and the seed of its rounding, which nobody else has.
    pub(crate) fn of_update(rounding: &[u8; 32], fingerprint: &[u8; 32]) -> Self {
        let material = Zeroizing::new([&rounding[..], fingerprint].concat());
        Self(blake3::derive_key("ciphergram 2026 seed of an update", &material))
    }

    /// Returns the bytes that polynomials grow from.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.bytes(&self.0);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self(r.array()?))
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seed(of {})", hex(&self.id()))
    }
}

/// Sixteen bytes that name a job: a hash over all that it says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub(crate) [u8; 16]);

impl JobId {
    pub(crate) fn write(&self, w: &mut Writer) {
        w.bytes(&self.0);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self(r.array()?))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A hash over all that the contributions of one round have in common: the job, the round's number, and the
/// round's agreement. Who takes part is not in it.
///
/// Tags are made under it, so that only contributions of one statement add up to a sum that opens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Statement(pub(crate) [u8; 32]);

impl Statement {
    /// The statement that programs are shown and measured under: no round has it.
    pub(crate) const NONE: Self = Self([0; 32]);
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Statement({})", hex(&self.0))
    }
}

/// Derives sixteen bytes that name material and tell nothing of it.
pub(crate) fn derive16(context: &str, material: &[u8]) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&blake3::derive_key(context, material)[..16]);
    id
}

/// Reads bytes written as lower- or upper-case hexadecimal digits.
pub(crate) fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (byte, i) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[i..i + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Writes lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
