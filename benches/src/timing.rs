//! Tests whether the time of an operation depends on its secrets: `cargo xtask timing`.
//!
//! # Method
//! Each test times one operation on two classes of inputs that differ in nothing but a secret, such
//! as an exponent of zeros and uniform exponents. A generator keyed by the operating system draws
//! the class of every sample, so nothing that changes over a run sides with a class. Inputs of both
//! classes are made for every sample, and those of the drawn class are taken by a mask: the memory
//! operations before a measurement are the same for both. A sample is one run over [`BATCH`] items,
//! the group that engines take at once, on one thread.
//!
//! Samples during which another thread had the core are left out, where Linux counts them and
//! enough remain. Welch's t says how far apart the mean times of the classes are, in standard errors.
//! Interrupts make long times that hide small differences, so t is computed over all samples and
//! over those below each of a hundred percentiles, and the largest |t| counts.
//!
//! # What a result means
//! Below [`THRESHOLD`]: this many samples on this machine show no difference, and a delay as long
//! as the column `resolves` says would have shown. Where that is more than [`RESOLUTION`] of the mean, the
//! test cannot tell. Else it is quiet, which is evidence, not a proof: it says nothing
//! about other inputs, other processors, or channels other than time. At or above the threshold: a leak. If
//! times were normal, one t of a pair of equal classes would be so large once in 1.7 million times,
//! so the largest of 101 at most once in 17,000.
//!
//! Processors may handle 0 faster than other numbers: a loop of nothing but additions and products of floats, all of
//! them zero, ran 0.06 % faster on a Zen 4. Decoding of nothing but zeros took 0.01 % less time there; no other batch
//! was told apart (ones, a single one, one drawn once). The tests of encoding and decoding therefore compare one batch
//! with fresh ones, and do not claim to hide that everything is 0. That of masks does the same: a mask is uniform. One
//! of nothing but zeros, by integers alone, took 0.03 % less, for which no reason was found.
//!
//! Controls run beside the tests: some that leak by design and must be seen (an early exit, a branch on a
//! bit, an index into a large table, a public exponent), without which a run is
//! blind; and one that compares a class with itself and must stay quiet. An index into a table that stays in
//! cache is there to show what time need not show: [memcheck](crate::memcheck) finds it, which runs the
//! same operations.
//!
//! # Layers
//!
//! | module | what it holds |
//! |---|---|
//! | [`welch`], [`crops`] | the statistic, and the percentiles over which it is taken |
//! | [`subject`], [`measure`] | the operations that are timed, and the loop that times them |
//! | [`decryption`], [`powers`], [`sums`], [`vectors`], [`controls`] | the operations and their classes |
//! | [`secrets`] | where the secrets of an operation lie, for memcheck |
//! | [`catalogue`] | all tests, by name |
//! | [`options`], [`session`], [`report`], [`verdict`] | a run: its arguments, its course, its table, its end |
//!
//! # Source
//! O. Reparaz, J. Balasch, I. Verbauwhede, "Dude, is my code constant time?", DATE 2017. Its test
//! of second order, for times that differ in spread but not in mean, is left out.

pub mod catalogue;
pub mod controls;
pub mod crops;
pub mod decryption;
pub mod measure;
pub mod options;
pub mod powers;
pub mod report;
pub mod secrets;
pub mod session;
pub mod subject;
pub mod sums;
pub mod vectors;
pub mod verdict;
pub mod welch;

/// Items of one sample: the lanes of 64 bits in a vector of 512.
pub const BATCH: usize = 8;

/// The |t| from which a difference of means counts as one.
pub const THRESHOLD: f64 = 5.0;

/// The longest delay, as a share of the mean time, that a test must be able to find to be called quiet.
pub const RESOLUTION: f64 = 0.001;
