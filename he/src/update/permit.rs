//! A contribution's seed, and the right to seal under it.
//!
//! Two messages under one seed and key tell their difference, and one message twice under it tells
//! of its noise. So no chunk may ever be sealed and sent twice under one seed. Who sees to it:
//!
//! - **Types.** A [`Seed`] is a record: it travels, is listed and copied, and seals nothing. The
//!   right to seal is a [`SealPermit`]. It cannot be copied, a [`Sealer`](super::Sealer) consumes it,
//!   and a `Sealer` seals each chunk once. A permit is drawn, or resumed by name.
//! - **The process.** It remembers how far it has sealed under each seed. Whatever was resumed, a
//!   chunk that already left a sealer is not sealed again: [`Error::SeedReused`].
//! - **The caller of [`SealPermit::resume`]**, for what other processes did: nothing from the chunk
//!   named on was ever sent, and the update is the same, to the integer.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use zeroize::Zeroizing;

use crate::{
    Error,
    ids::{KeyId, Seed},
    random,
};

/// The right to seal one update under one seed, once.
///
/// Two updates take two:
/// ```
/// # use std::sync::Arc;
/// # use ciphergram_accel::Engine;
/// # use ciphergram_he::{Error, KeyRef, Quantised, Sealer, Terms, SealPermit};
/// fn two(
///     key: KeyRef<'_>,
///     engine: Arc<dyn Engine>,
///     [one, other]: [Quantised; 2],
///     terms: &Terms<'_>,
/// ) -> Result<(), Error> {
///     Sealer::new(key, engine.clone(), one, SealPermit::draw()?, terms)?;
///     Sealer::new(key, engine, other, SealPermit::draw()?, terms)?;
///     Ok(())
/// }
/// ```
/// since a sealer consumes it:
/// ```compile_fail,E0382
/// # use std::sync::Arc;
/// # use ciphergram_accel::Engine;
/// # use ciphergram_he::{Error, KeyRef, Quantised, Sealer, Terms, SealPermit};
/// fn two(
///     key: KeyRef<'_>,
///     engine: Arc<dyn Engine>,
///     [one, other]: [Quantised; 2],
///     terms: &Terms<'_>,
/// ) -> Result<(), Error> {
///     let permit = SealPermit::draw()?;
///     Sealer::new(key, engine.clone(), one, permit, terms)?;
///     Sealer::new(key, engine, other, permit, terms)?;
///     Ok(())
/// }
/// ```
/// and it cannot be copied:
/// ```compile_fail,E0599
/// # use ciphergram_he::SealPermit;
/// fn copy(permit: &SealPermit) -> SealPermit {
///     permit.clone()
/// }
/// ```
pub struct SealPermit {
    seed: Seed,
    /// What only the contribution's one-time secret grows from. It goes with the permit, and with what resumes it.
    secret: Zeroizing<[u8; 32]>,
    /// The first chunk that it may seal.
    next: u32,
}

impl SealPermit {
    /// Draws a permit under a fresh seed.
    ///
    /// # Errors
    /// No randomness.
    pub fn draw() -> Result<Self, Error> {
        Ok(Self::resume(Seed::draw()?, &*random::bytes()?, 0))
    }

    /// Derives the permit of an update under a rounding that was drawn for it: the same two give the same seed, and so
    /// the same bytes, also to whoever goes on from a copy of what was kept. Another update has another seed.
    #[must_use]
    pub fn of_update(rounding: &[u8; 32], fingerprint: &[u8; 32]) -> Self {
        Self::resume(Seed::of_update(rounding, fingerprint), rounding, 0)
    }

    /// Resumes the right to go on with a contribution whose chunks before `next` are sealed and kept.
    ///
    /// The caller vouches that no chunk from `next` on was ever sent, by whatever process, and that
    /// what is sealed now is the same update as before: the same tensors, weight, ranges and
    /// rounding, whose seed is given.
    #[must_use]
    pub fn resume(seed: Seed, rounding: &[u8; 32], next: u32) -> Self {
        let purpose = "ciphergram 2026 secret of a contribution";
        Self { seed, secret: Zeroizing::new(blake3::derive_key(purpose, rounding)), next }
    }

    /// Returns the public part.
    #[must_use]
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns what a one-time secret grows from beside its client's identity: what resumes the permit has it too.
    pub(super) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// Returns the first chunk that it may seal.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Records that all chunks before `end` are sealed under `key` and about to leave. They must not
    /// leave if this fails.
    pub(super) fn spend(&mut self, key: KeyId, end: u32) -> Result<(), Error> {
        let mut sealed = SEALED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sealed.spend(record(key, &self.seed), self.next, end)?;
        self.next = known;
        Ok(())
    }
}

/// The record of all that this process sealed, kept for as long as it lives.
static SEALED: Mutex<Sealed> = Mutex::new(Sealed(BTreeMap::new()));

/// The number of chunks that are sealed under each key and seed, by their [`record`]: 16 bytes a contribution, some 25
/// as they lie in memory.
struct Sealed(BTreeMap<[u8; RECORD_BYTES], u32>);

/// Bytes that stand for a key and a seed. Two contributions of a million have the same with a chance of 2^-57; the
/// second is refused then.
const RECORD_BYTES: usize = 12;

/// Returns what stands for a key and a seed.
fn record(key: KeyId, seed: &Seed) -> [u8; RECORD_BYTES] {
    let mut hasher = blake3::Hasher::new_derive_key("ciphergram 2026 sealed seed");
    let digest = hasher.update(&key.0).update(seed.bytes()).finalize();
    *digest.as_bytes().first_chunk().unwrap_or(&[0; RECORD_BYTES])
}

impl Sealed {
    /// Records chunks from `next` to `end` as sealed, and returns the number of all that are.
    ///
    /// # Errors
    /// Some of them are already: of two that were resumed at one chunk, the first to finish it has it.
    fn spend(&mut self, record: [u8; RECORD_BYTES], next: u32, end: u32) -> Result<u32, Error> {
        let known = self.0.get(&record).copied().unwrap_or(0);
        if known > next {
            return Err(Error::SeedReused { sealed: known });
        }
        if end > next {
            self.0.insert(record, end);
        }
        Ok(end.max(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_once_is_refused_whatever_came_between() {
        let mut sealed = Sealed(BTreeMap::new());
        let key = KeyId([7; 16]);
        let seeds: Vec<_> = (0..1000).map(|_| Seed::draw().unwrap()).collect();
        for seed in &seeds {
            assert_eq!(sealed.spend(record(key, seed), 0, 0), Ok(0));
            assert_eq!(sealed.spend(record(key, seed), 0, 5), Ok(5));
            assert_eq!(sealed.spend(record(key, seed), 5, 9), Ok(9));
        }
        for seed in &seeds {
            for next in 0..9 {
                let refused = Err(Error::SeedReused { sealed: 9 });
                assert_eq!(sealed.spend(record(key, seed), next, next + 1), refused);
            }
            // Under another key the same seed is another one; from the last chunk on it may go on.
            assert_eq!(sealed.spend(record(KeyId([8; 16]), seed), 0, 1), Ok(1));
            assert_eq!(sealed.spend(record(key, seed), 9, 10), Ok(10));
        }
        assert_eq!(sealed.0.len(), 2000);
        // A leaf has room for eleven, and is at least five elevenths full, with a parent's share and a head.
        let entry = size_of::<[u8; RECORD_BYTES]>() + size_of::<u32>();
        assert!(entry * 1_000_000 * 11 / 5 * 12 / 11 < 64 << 20);
    }
}
