//! The parts of an error: one type for each thing that can be wrong.

/// The version of frames that this program writes; which others it reads is said where frames are parsed.
pub(crate) const FRAME_VERSION: u16 = 7;

/// A reason to refuse parameters, and what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParameterError(pub(crate) String);

impl ParameterError {
    /// Returns the fault of parameters that leave no space for a chunk's head beside the noise.
    pub(crate) fn no_room(clients: u32, bits: u32) -> Self {
        Self(format!(
            "{clients} clients at {bits} bits leave no room in a coefficient; use fewer of either"
        ))
    }
}

/// A reason to refuse noise for differential privacy, and what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoiseError(pub(crate) String);

/// A reason not to trust a number as a Paillier modulus.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Paillier modulus {0}")]
pub struct ModulusFault(String);

impl ModulusFault {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    pub(crate) fn even() -> Self {
        Self::new("is even")
    }

    pub(crate) fn not_prime() -> Self {
        Self::new("has a factor that is not a prime of half its size")
    }
}

/// The fault of a ciphertext stream that is not as long as the tensors ask for.
pub(crate) const WRONG_LENGTH: FrameError =
    FrameError::Malformed { what: "not the chunks that the tensors need" };

/// A fault in a frame's form, or a file of another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// It does not start as a frame does.
    #[error("not a Ciphergram file")]
    Magic,
    /// A later format, or one from before files were kept readable.
    #[error("{}; this reads up to {known}", version_words(*found, *known))]
    Version {
        /// The version found.
        found: u64,
        /// The latest version that this program reads.
        known: u32,
    },
    /// Made when seeds expanded to other polynomials.
    #[error(
        "made by an earlier ciphergram, which expanded seeds to other polynomials: make it again with this one"
    )]
    FormerExpansion,
    /// It ends early.
    #[error("truncated")]
    Truncated,
    /// A bit changed since it was written.
    #[error("damaged: the digest does not match")]
    Damaged,
    /// A scheme or kind that this program does not know.
    #[error("unknown {what} {code}")]
    Unknown {
        /// `kind` or `scheme`.
        what: &'static str,
        /// Its number.
        code: u8,
    },
    /// Another kind of frame than the operation takes.
    #[error("{} {found} where {} {expected} belongs", article(found), article(expected))]
    Kind {
        /// The kind found.
        found: &'static str,
        /// The kind expected.
        expected: &'static str,
    },
    /// A body that its digest vouches for, yet makes no sense.
    #[error("malformed: {what}")]
    Malformed {
        /// The part that makes no sense.
        what: &'static str,
    },
}

fn version_words(found: u64, known: u32) -> String {
    match found > known.into() {
        true => format!("made by a newer ciphergram: version {found}"),
        false => format!("version {found} is too early"),
    }
}

fn article(name: &str) -> &'static str {
    if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// A fault of a batch that cannot be an operand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperandFault {
    /// More or fewer items than there must be.
    #[error("{found} items where {expected} belong")]
    Count {
        /// Items given.
        found: usize,
        /// Items of the other operand, or that the shape asks for.
        expected: usize,
    },
    /// The words do not make whole items.
    #[error("{found} words are no whole number of items of {each}")]
    Words {
        /// Words given.
        found: usize,
        /// Words of one item.
        each: usize,
    },
    /// It belongs to another modulus than the rest.
    #[error("it is of another modulus")]
    Modulus,
    /// An item is larger than it may be.
    #[error("item {index} {why}")]
    TooLarge {
        /// The place within the batch.
        index: usize,
        /// The bound that it exceeds, in words.
        why: String,
    },
    /// An item is NaN or infinite.
    #[error("item {index} is not finite")]
    NotFinite {
        /// The place within the batch.
        index: usize,
    },
    /// An index names none of the items.
    #[error("there is no item {index} among {count}")]
    NoItem {
        /// The index given.
        index: usize,
        /// The number of items.
        count: usize,
    },
    /// Fixed-point numbers of another scale than the rest.
    #[error("its scale is {found} where {expected} belongs")]
    Scale {
        /// Binary digits after the point.
        found: u32,
        /// Those of the other operand.
        expected: u32,
    },
    /// A scale that no fixed-point numbers have.
    #[error("a scale of {scale} binary digits is beyond {limit}")]
    ScaleLimit {
        /// Binary digits after the point.
        scale: u32,
        /// The most that there may be.
        limit: u32,
    },
    /// An item is no ciphertext.
    #[error(transparent)]
    Ciphertext(CiphertextFault),
}

impl OperandFault {
    /// Returns the fault of an item that needs more bits, sign included, than it is to become or was said to have.
    pub(crate) fn beyond_bits(index: usize, bits: u32) -> Self {
        Self::TooLarge { index, why: format!("does not fit {bits} bits") }
    }

    /// Returns the fault of an item beyond where signed numbers end.
    pub(crate) fn beyond_third(index: usize) -> Self {
        let why = "is beyond a third of n, the largest integer that there can be".into();
        Self::TooLarge { index, why }
    }
}

/// A fault of a ciphertext.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CiphertextFault {
    /// Not as many bytes as the chunk has.
    #[error("{found} bytes of ciphertext where {expected} belong")]
    Length {
        /// Bytes given.
        found: usize,
        /// Bytes of the chunk.
        expected: usize,
    },
    /// A Paillier ciphertext or a residue that cannot be one.
    #[error("{item} {index} {why}")]
    Item {
        /// `ciphertext` or `residue`.
        item: &'static str,
        /// The place within the chunk or batch.
        index: usize,
        /// The fault.
        why: &'static str,
    },
}

impl CiphertextFault {
    /// Returns the fault of a residue, of the lane at `index`, that is not below its prime.
    #[must_use]
    pub fn residue(index: usize) -> Self {
        Self::Item { item: "residue", index, why: "is not below its prime" }
    }

    /// Returns the fault of a Paillier ciphertext that shares a factor with n.
    #[must_use]
    pub fn not_coprime(index: usize) -> Self {
        Self::Item { item: "ciphertext", index, why: "is not coprime to n" }
    }

    /// Splits the place within a batch of chunks into the chunk's, counted from the first, and the place
    /// within that chunk, for chunks of `items` ciphertexts or lanes.
    pub(crate) fn locate(self, items: usize) -> (u32, Self) {
        match self {
            Self::Length { .. } => (0, self),
            Self::Item { item, index, why } => {
                ((index / items) as u32, Self::Item { item, index: index % items, why })
            }
        }
    }
}
