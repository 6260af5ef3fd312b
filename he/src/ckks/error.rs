//! Everything that can go wrong with vectors under the levelled scheme.

use crate::ids::KeyId;

/// Why an operation of the levelled scheme failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CkksError {
    /// No preset of that name.
    #[error("no preset {name:?}; there are ckks-4096x1, ckks-4096x2, ckks-8192x7, ckks-16384x14")]
    Preset {
        /// The name given.
        name: String,
    },
    /// Sizes that make no rings.
    #[error(
        "{slots} slots, {levels} levels and {special} special primes make no set; slots are a power of two, and \
         there are at most 24 primes, one of them special"
    )]
    Sizes {
        /// Slots.
        slots: usize,
        /// Levels.
        levels: usize,
        /// Special primes.
        special: usize,
    },
    /// More modulus than the ring degree can hide.
    #[error(
        "a modulus of {log_q} bits at N = {degree} is not 128-bit secure, at most {limit} are; take \
         fewer levels or more slots"
    )]
    Insecure {
        /// The ring degree.
        degree: usize,
        /// Bits of the product of all primes.
        log_q: u32,
        /// The table's bound.
        limit: u32,
    },
    /// More numbers than slots.
    #[error("{count} numbers do not fit {slots} slots")]
    TooMany {
        /// Numbers given.
        count: usize,
        /// Slots.
        slots: usize,
    },
    /// A number that cannot be encoded.
    #[error("number {index} is {value}; on level {level} numbers are finite and at most {limit}")]
    Value {
        /// Its index.
        index: usize,
        /// The number.
        value: f64,
        /// The level.
        level: usize,
        /// The bound on its absolute value.
        limit: f64,
    },
    /// A level that a set has not.
    #[error("there is no level {level}; the top level is {top}")]
    Level {
        /// The level asked for.
        level: usize,
        /// The top level.
        top: usize,
    },
    /// No level left for a product.
    #[error("no level is left for a product; take a preset with more levels")]
    OutOfLevels,
    /// Parameters that files do not know.
    #[error("only presets are written to files, and these parameters are no preset's")]
    NoPreset,
    /// A ciphertext, or a key, that belongs to another secret.
    #[error(
        "{what} is under key {found}, not under key {expected}; use those that one keygen wrote"
    )]
    OtherKey {
        /// What is.
        what: &'static str,
        /// The id of its key.
        found: KeyId,
        /// The id of the key in use.
        expected: KeyId,
    },
    /// A product of ciphertexts without a key for it.
    #[error("a product of ciphertexts needs the evaluation key, keys/evaluation.cgk")]
    NoRelinearisation,
    /// A value beyond the range that was agreed.
    #[error(
        "tensor {tensor:?} has {value} at index {index}, beyond the range of ±{range}: clip values with --clip, or \
         agree on a larger --range"
    )]
    BeyondRange {
        /// The tensor's name.
        tensor: String,
        /// The flat index.
        index: usize,
        /// The value.
        value: f64,
        /// The range.
        range: f64,
    },
    /// A result that its modulus may not hold.
    #[error(
        "the result may be larger than its modulus holds: encrypt with a smaller --range, or weigh by less"
    )]
    NoRoom,
    /// Vectors that cannot be made, or do not fit together.
    #[error("{why}")]
    Vectors {
        /// The fault.
        why: String,
    },
    /// A model that cannot be run on ciphertexts.
    #[error("this model cannot be run on encrypted values: {why}")]
    Model {
        /// The fault.
        why: String,
    },
    /// Operands of two sets of parameters, or keys of another one.
    #[error("{what} is of other parameters; use one preset for all")]
    OtherParameters {
        /// What is.
        what: &'static str,
    },
    /// Conjugates that no key was made for.
    #[error("there is no key for conjugates; make it with `keygen --rotations conjugate`")]
    NoConjugate,
    /// A rotation that no key was made for.
    #[error("there is no key for a rotation by {steps}; make it with `keygen --rotations {steps}`")]
    NoRotation {
        /// Slots to rotate by.
        steps: i64,
    },
    /// Rotations of a job that keys were not made for.
    #[error(
        "there are no keys for all rotations of {of:?}; make them with `keygen --rotations {of}`"
    )]
    NoRotations {
        /// The word for them.
        of: String,
    },
    /// A matrix that keys are asked for, and that does not fit.
    #[error("a matrix of {rows}x{columns} has more than {slots} rows or columns")]
    WideMatrix {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
        /// Slots.
        slots: usize,
    },
}
