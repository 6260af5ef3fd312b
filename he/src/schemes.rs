//! The traits of a scheme of sums, and the schemes.
//!
//! A scheme turns groups of packed chunks into ciphertexts that anyone can add, and sums of them back
//! into packed integers. It implements these traits in a folder of its own: [`SumScheme`] and
//! [`SecretScheme`] for the halves of its keys, [`RunningSum`] for what an aggregator adds to,
//! [`PublicEncryption`] where the public half encrypts,
//! [`UpdateEncryptor`] for one contribution, [`Opener`] for one sum. [`update`](crate::update), above,
//! knows no scheme; [`codec`](crate::codec) says how integers lie
//! in slots.

pub mod paillier;
#[cfg(test)]
pub(crate) mod plain;
pub mod rlwe;

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use ciphergram_accel::{Engine, Program};
use zeroize::Zeroizing;

use crate::{
    Error,
    codec::Packing,
    contributors::{Contributor, ContributorSet},
    error::CiphertextFault,
    ids::{Seed, Statement},
    params::Chunks,
};

/// The operations of a sum that have programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Slots to ciphertexts.
    Encrypt,
    /// One more contribution to a running sum.
    Aggregate,
    /// Ciphertexts of a sum to its slots.
    Decrypt,
}

/// Encryption by the public half of a key.
pub(crate) trait PublicEncryption {
    /// Makes an encryptor of one contribution, with fresh randomness.
    ///
    /// # Errors
    /// The engine's, or no randomness.
    fn encryptor(&self, engine: &dyn Engine) -> Result<Box<dyn UpdateEncryptor>, Error>;

    /// Returns the program of one encryption.
    ///
    /// # Errors
    /// As [`encryptor`](Self::encryptor).
    fn encrypt_program(&self, engine: &dyn Engine) -> Result<Arc<Program>, Error>;
}

/// Sums without a key: adds ciphertexts, and tells which words are ciphertexts.
pub(crate) trait SumScheme: Send + Sync {
    /// Returns the program that adds the words of chunks to those of a running sum.
    fn sum_program(&self) -> Arc<Program>;

    /// Makes the empty sum of some chunks.
    fn running_sum(&self, chunks: &Chunks, own: Range<u32>) -> Box<dyn RunningSum>;

    /// Returns the number of places in a whole chunk that faults are counted by: ciphertexts or lanes.
    fn places_per_chunk(&self, chunks: &Chunks) -> usize;

    /// Finds the first word of chunks that no honest contributor sends, by its place in `words`. Cheap enough for
    /// every datagram.
    fn range_fault(&self, engine: &dyn Engine, words: &[u64]) -> Option<CiphertextFault>;

    /// Finds the first of what is in range but no ciphertext, which takes work of a whole batch.
    ///
    /// # Errors
    /// The engine's.
    fn batch_fault(
        &self,
        _engine: &dyn Engine,
        _words: &[u64],
    ) -> Result<Option<CiphertextFault>, Error> {
        Ok(None)
    }
}

/// The running sum of a stretch of chunks, in whatever form is quickest to add to.
pub(crate) trait RunningSum: Send {
    /// Adds the words of whole chunks, at most [`MAX_CLIENTS`](crate::params::MAX_CLIENTS) times, unless one is out of
    /// range: then it stays as it was, and the first fault is returned, by its place in `words`.
    ///
    /// # Errors
    /// The engine's; all of the sum is worth nothing then.
    fn add(
        &mut self,
        engine: &dyn Engine,
        own: Range<u32>,
        words: &[u64],
    ) -> Result<Option<CiphertextFault>, Error>;

    /// Returns the words of chunks' sums as ordinary ciphertexts. Each chunk has had `additions` additions.
    ///
    /// # Errors
    /// The engine's.
    fn finish(
        &mut self,
        engine: &dyn Engine,
        own: Range<u32>,
        additions: u32,
    ) -> Result<Vec<u64>, Error>;
}

/// The secret half of a key.
pub(crate) trait SecretScheme: Send + Sync {
    /// Makes an encryptor of the contribution to `statement` that `seed` names, with fresh randomness or with what a
    /// scheme derives from the two, so that the same is sealed the same way again.
    ///
    /// # Errors
    /// The engine's, or no randomness.
    fn encryptor(
        &self,
        engine: &dyn Engine,
        statement: &Statement,
        seed: &Seed,
    ) -> Result<Box<dyn UpdateEncryptor>, Error>;

    /// Returns a program of one encryption, to be shown and measured: what seals may do the same in several.
    ///
    /// # Errors
    /// The engine's, or no randomness.
    fn encrypt_program(&self, engine: &dyn Engine) -> Result<Arc<Program>, Error>;

    /// Returns the program that decrypts a sum of `contributors`, to be shown.
    ///
    /// # Errors
    /// The engine's.
    fn decrypt_program(&self, contributors: usize) -> Result<Arc<Program>, Error>;

    /// Makes an opener of a sum under `statement` whose chunks are of these numbers of contributors.
    ///
    /// # Errors
    /// The engine's.
    fn opener(
        &self,
        statement: &Statement,
        contributors: &BTreeSet<usize>,
    ) -> Result<Box<dyn Opener + '_>, Error>;
}

/// How much to seal in one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Enough to keep a few cores busy, few enough to start sending soon.
    Soon,
    /// For a file, where nothing waits for the first chunk.
    Bulk,
}

/// Encrypts the chunks of one contribution.
///
/// Only a [`Sealer`](crate::Sealer) has one: it sees to it that no chunk is encrypted twice under one seed.
pub(crate) trait UpdateEncryptor: Send + Sync {
    /// Returns where a batch of chunks ends that starts at `next`, if the update goes on that far.
    fn batch_end(&self, next: u32, pace: Pace) -> u32;

    /// Encrypts `own`, chunks of `packing` that start at 0, where a batch ended, or where a resumed stream goes on,
    /// and end where a batch ends, into `out`, which has their length.
    ///
    /// # Errors
    /// The engine's.
    fn seal(
        &mut self,
        engine: &dyn Engine,
        packing: &Packing<'_>,
        own: Range<u32>,
        out: &mut [u8],
    ) -> Result<(), Error>;
}

/// Whole groups of a sum, to be decrypted in one run.
pub(crate) struct Groups<'a> {
    /// The cut of the stream.
    pub(crate) chunks: &'a Chunks,
    /// The chunks of these groups.
    pub(crate) own: Range<u32>,
    /// The contributors to each of them.
    pub(crate) sets: &'a [ContributorSet],
    /// The contributors that sets are of.
    pub(crate) contributors: &'a [Contributor],
}

/// Memory of an opener, kept from one run to the next. Vectors that grew would leave copies behind.
pub(crate) struct Scratch {
    /// The groups' ciphertexts.
    pub(crate) words: Vec<u64>,
    /// Public inputs.
    pub(crate) seeds: Vec<u64>,
    /// Decrypted integers as programs have them.
    pub(crate) integers: Zeroizing<Vec<u64>>,
    /// Slots of one chunk, one after the other.
    pub(crate) slots: Zeroizing<Vec<u64>>,
}

/// Decrypts the groups of one sum.
pub(crate) trait Opener: Sync {
    /// Returns the number of groups to decrypt in one run. Runs of one group go side by side on all
    /// cores; runs of more are spread by the engine, and go one after the other.
    fn groups_at_once(&self) -> usize;

    /// Returns the words that it needs in [`Scratch`]: of the integers of a group, and of each slot of a chunk.
    fn sizes(&self) -> (usize, usize);

    /// Decrypts groups, whose words in `scratch` were checked, and shows `take` the slots of each chunk, one after the
    /// other and all of one length, noise and margin removed.
    ///
    /// # Errors
    /// The engine's.
    fn open(
        &self,
        engine: &dyn Engine,
        groups: &Groups<'_>,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(u32, &[u64]),
    ) -> Result<(), Error>;
}
