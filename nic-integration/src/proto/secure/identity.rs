//! Static keys, the names of nodes.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::agreement::{PrivateKey, X25519};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use zeroize::Zeroizing;

use crate::NicError;

/// A node's public key (X25519). Its text is base64 without padding, 43 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; 32]);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode(self.0))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for NodeId {
    type Err = NicError;

    fn from_str(text: &str) -> Result<Self, NicError> {
        Ok(Self(*read(text)?))
    }
}

/// A node's static key pair. Has no `Debug`: the secret half must not be printed.
#[derive(Clone)]
pub struct Identity {
    secret: Zeroizing<[u8; 32]>,
    id: NodeId,
}

impl Identity {
    /// Makes the identity of these 32 secret bytes, which must be random.
    ///
    /// # Errors
    ///
    /// [`NicError::NodeKey`] if they make no key.
    pub fn from_secret(secret: &[u8; 32]) -> Result<Self, NicError> {
        let key = PrivateKey::from_private_key(&X25519, secret).map_err(|_| NicError::NodeKey)?;
        let public = key.compute_public_key().map_err(|_| NicError::NodeKey)?;
        let id = NodeId(public.as_ref().try_into().map_err(|_| NicError::NodeKey)?);
        Ok(Self { secret: Zeroizing::new(*secret), id })
    }

    /// Returns the public key, which names the node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns the secret as text, for a file that only its owner can read.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64.encode(*self.secret))
    }

    /// Reads the text of [`to_text`](Self::to_text).
    ///
    /// # Errors
    ///
    /// [`NicError::NodeKey`].
    pub fn from_text(text: &str) -> Result<Self, NicError> {
        Self::from_secret(&*read(text)?)
    }

    pub(super) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

fn read(text: &str) -> Result<Zeroizing<[u8; 32]>, NicError> {
    let bytes = Zeroizing::new(BASE64.decode(text.trim()).map_err(|_| NicError::NodeKey)?);
    let bytes: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| NicError::NodeKey)?;
    Ok(Zeroizing::new(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_its_secret_and_text_reads_back() {
        // RFC 7748, section 6.1: Alice's key pair.
        let secret = [
            0x77, 0x07, 0x6d, 0x0a, 0x73, 0x18, 0xa5, 0x7d, 0x3c, 0x16, 0xc1, 0x72, 0x51, 0xb2,
            0x66, 0x45, 0xdf, 0x4c, 0x2f, 0x87, 0xeb, 0xc0, 0x99, 0x2a, 0xb1, 0x77, 0xfb, 0xa5,
            0x1d, 0xb9, 0x2c, 0x2a,
        ];
        let public = [
            0x85, 0x20, 0xf0, 0x09, 0x89, 0x30, 0xa7, 0x54, 0x74, 0x8b, 0x7d, 0xdc, 0xb4, 0x3e,
            0xf7, 0x5a, 0x0d, 0xbf, 0x3a, 0x0d, 0x26, 0x38, 0x1a, 0xf4, 0xeb, 0xa4, 0xa9, 0x8e,
            0xaa, 0x9b, 0x4e, 0x6a,
        ];
        let identity = Identity::from_secret(&secret).unwrap();
        assert_eq!(identity.id(), NodeId(public));
        assert_eq!(Identity::from_text(&identity.to_text()).unwrap().id(), identity.id());
        let text = identity.id().to_string();
        assert_eq!(text.len(), 43);
        assert_eq!(text.parse(), Ok(identity.id()));
        for bad in ["", "abc", &text[1..], &format!("{text}A"), "####"] {
            assert_eq!(bad.parse::<NodeId>(), Err(NicError::NodeKey), "{bad}");
        }
    }
}
