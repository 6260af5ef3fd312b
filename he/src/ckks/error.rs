//! Everything that can go wrong with vectors under the levelled scheme.

/// Why an operation of the levelled scheme failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CkksError {
    /// Parameters, or rotations, that are not supported or not secure.
    #[error("{why}")]
    Parameters {
        /// The fault.
        why: String,
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
    /// A product of ciphertexts without a key for it.
    #[error("a product of ciphertexts needs an evaluation key")]
    NoRelinearisation,
    /// A value beyond the range that was agreed.
    #[error("tensor {tensor:?} has {value} at index {index}, beyond the range of ±{range}")]
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
    #[error("the result may be larger than its modulus holds")]
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
    /// A vector, not of columns, of another size than a model's inputs.
    #[error(
        "this model cannot be run on encrypted values: it takes {expected} values, and the input has {found}"
    )]
    ModelInput {
        /// The model's inputs.
        expected: usize,
        /// Values of the vector.
        found: usize,
    },
    /// Operands of two sets of parameters, or keys of another one.
    #[error("{what} is of other parameters; use one preset for all")]
    OtherParameters {
        /// What is.
        what: &'static str,
    },
    /// Conjugates that no key was made for.
    #[error("there is no key for conjugates")]
    NoConjugate,
    /// A rotation that no key was made for.
    #[error("there is no key for a rotation by {steps}")]
    NoRotation {
        /// Slots to rotate by.
        steps: i64,
    },
    /// Rotations of a job that keys were not made for.
    #[error("there are no keys for all rotations of {of:?}")]
    NoRotations {
        /// The word for them.
        of: String,
    },
}

impl CkksError {
    /// Returns the fault of more numbers than slots.
    pub(super) fn too_many(count: usize, slots: usize) -> Self {
        Self::Vectors { why: format!("{count} numbers do not fit {slots} slots") }
    }
}
