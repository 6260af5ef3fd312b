//! Random rkeys, which are capabilities.

use rand_chacha::ChaCha20Rng;
use rand_core::Rng;

use crate::proto::Endpoint;

use super::JOIN_INBOX;

/// Draws an rkey that nobody can guess and nothing is registered under.
pub(super) fn fresh_rkey(rng: &mut ChaCha20Rng, endpoint: &Endpoint) -> u32 {
    loop {
        let rkey = rng.next_u32();
        if rkey > JOIN_INBOX && !endpoint.is_registered(rkey) {
            return rkey;
        }
    }
}
