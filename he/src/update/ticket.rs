//! A contribution's seed, and the right to seal under it.
//!
//! Two messages under one seed and key tell their difference, and one message twice under it tells
//! of its noise. So no chunk may ever be sealed and sent twice under one seed. Who sees to it:
//!
//! - **Types.** A [`Seed`] is a record: it travels, is listed and copied, and seals nothing. The
//!   right to seal is a [`Ticket`]. It cannot be copied, a [`Sealer`](super::Sealer) consumes it,
//!   and a `Sealer` seals each chunk once. A ticket is drawn, or resumed by name.
//! - **The process.** It remembers how far it has sealed under each seed. Whatever was resumed, a
//!   chunk that already left a sealer is not sealed again: [`Error::SeedReused`].
//! - **The caller of [`Ticket::resume`]**, for what other processes did: nothing from the chunk
//!   named on was ever sent, and the update is the same, to the integer.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use crate::{
    Error,
    ids::{KeyId, Seed},
};

/// The right to seal one update under one seed, once.
///
/// Two updates take two:
/// ```
/// # use std::sync::Arc;
/// # use ciphergram_accel::Engine;
/// # use ciphergram_he::{Error, KeyRef, Quantised, Sealer, Terms, Ticket};
/// fn two(
///     key: KeyRef<'_>,
///     engine: Arc<dyn Engine>,
///     [one, other]: [Quantised; 2],
///     terms: &Terms<'_>,
/// ) -> Result<(), Error> {
///     Sealer::new(key, engine.clone(), one, Ticket::draw()?, terms)?;
///     Sealer::new(key, engine, other, Ticket::draw()?, terms)?;
///     Ok(())
/// }
/// ```
/// since a sealer consumes it:
/// ```compile_fail,E0382
/// # use std::sync::Arc;
/// # use ciphergram_accel::Engine;
/// # use ciphergram_he::{Error, KeyRef, Quantised, Sealer, Terms, Ticket};
/// fn two(
///     key: KeyRef<'_>,
///     engine: Arc<dyn Engine>,
///     [one, other]: [Quantised; 2],
///     terms: &Terms<'_>,
/// ) -> Result<(), Error> {
///     let ticket = Ticket::draw()?;
///     Sealer::new(key, engine.clone(), one, ticket, terms)?;
///     Sealer::new(key, engine, other, ticket, terms)?;
///     Ok(())
/// }
/// ```
/// and it cannot be copied:
/// ```compile_fail,E0599
/// # use ciphergram_he::Ticket;
/// fn copy(ticket: &Ticket) -> Ticket {
///     ticket.clone()
/// }
/// ```
pub struct Ticket {
    seed: Seed,
    /// The first chunk that it may seal.
    next: u32,
}

impl Ticket {
    /// Draws a ticket under a fresh seed.
    ///
    /// # Errors
    /// No randomness.
    pub fn draw() -> Result<Self, Error> {
        Ok(Self { seed: Seed::draw()?, next: 0 })
    }

    /// Resumes the right to go on with a contribution whose chunks before `next` are sealed and kept.
    ///
    /// The caller vouches that no chunk from `next` on was ever sent, by whatever process, and that
    /// what is sealed now is the same update as before: the same tensors, weight, ranges and
    /// rounding.
    #[must_use]
    pub fn resume(seed: Seed, next: u32) -> Self {
        Self { seed, next }
    }

    /// Returns the public part.
    #[must_use]
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns the first chunk that it may seal.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Records that all chunks before `end` are sealed under `key` and about to leave. They must not
    /// leave if this fails.
    pub(super) fn spend(&mut self, key: KeyId, end: u32) -> Result<(), Error> {
        let mut sealed = SEALED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sealed.get(&(key.0, self.seed)).copied().unwrap_or(0);
        // Of two that were resumed at one chunk, the first to finish it has it.
        if known > self.next {
            return Err(Error::SeedReused { sealed: known });
        }
        if end > self.next {
            self.next = end;
            sealed.insert((key.0, self.seed), end);
        }
        Ok(())
    }
}

/// The number of chunks that this process has sealed under each key and seed: 52 bytes a contribution, kept
/// for as long as the process lives.
static SEALED: Mutex<BTreeMap<([u8; 16], Seed), u32>> = Mutex::new(BTreeMap::new());
