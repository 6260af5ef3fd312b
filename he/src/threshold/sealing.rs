//! Messages sealed under keys that are used once.

use aes_gcm::{Aes256Gcm, Key, KeyInit as _, Nonce, aead::AeadInOut as _};
use zeroize::Zeroizing;

/// Bytes that a sealed message is longer by.
pub(super) const SEAL_BYTES: usize = 16;

fn cipher(key: &[u8; 32]) -> (Aes256Gcm, Nonce<aes_gcm::aead::consts::U12>) {
    // A key seals one message, so that the nonce may always be the same.
    (Aes256Gcm::new(&Key::<Aes256Gcm>::from(*key)), Nonce::default())
}

/// Seals a message, bound to what `context` says, under a key that seals nothing else. Nothing opens what it returns of
/// 64 gigabytes.
pub(super) fn seal(key: &[u8; 32], context: &[u8], message: &[u8]) -> Vec<u8> {
    // The longest message and its tag: growing would leave a copy of the message behind.
    let mut sealed = Vec::with_capacity(message.len() + SEAL_BYTES);
    sealed.extend(message);
    let (cipher, nonce) = cipher(key);
    match cipher.encrypt_in_place(&nonce, context, &mut sealed) {
        Ok(()) => sealed,
        Err(_) => vec![],
    }
}

/// Opens a message; nothing if it was not sealed under this key for this context.
pub(super) fn open(key: &[u8; 32], context: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut message = Zeroizing::new(sealed.to_vec());
    let (cipher, nonce) = cipher(key);
    cipher.decrypt_in_place(&nonce, context, &mut *message).ok()?;
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_and_context_open() {
        let sealed = seal(&[1; 32], b"here", b"message");
        assert_eq!(open(&[1; 32], b"here", &sealed).unwrap()[..], b"message"[..]);
        let mut changed = sealed.clone();
        changed[3] ^= 1;
        assert!(open(&[2; 32], b"here", &sealed).is_none());
        assert!(open(&[1; 32], b"there", &sealed).is_none());
        assert!(open(&[1; 32], b"here", &changed).is_none());
        assert!(open(&[1; 32], b"here", &sealed[..SEAL_BYTES - 1]).is_none());
    }
}
