//! The parts of an error: one type for each thing that can be wrong.

/// The version of frames that this program writes. It reads the one before too.
pub(crate) const FRAME_VERSION: u16 = 5;

/// A reason to refuse parameters, and what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// No scheme of that name.
    #[error(
        "no scheme {name:?}; there are ckks-sum, ckks-sum-public, paillier-2048, paillier-3072, \
         paillier-4096"
    )]
    Scheme {
        /// The name given.
        name: String,
    },
    /// From one to [`MAX_CLIENTS`](crate::params::MAX_CLIENTS).
    #[error("{clients} clients; choose 1 to 1024")]
    Clients {
        /// The number given.
        clients: u32,
    },
    /// Within [`BITS`](crate::params::BITS).
    #[error("{bits} bits a value; choose 8 to 24")]
    Bits {
        /// The number given.
        bits: u32,
    },
    /// More modulus than the ring degree can hide.
    #[error(
        "a modulus of {log_q} bits at N = {degree} is not 128-bit secure, at most {limit} are; take \
         fewer primes or a larger N"
    )]
    Insecure {
        /// The ring degree.
        degree: usize,
        /// Bits of the product of the primes.
        log_q: u32,
        /// The table's bound.
        limit: u32,
    },
    /// No room for a chunk's head beside the noise.
    #[error("{clients} clients at {bits} bits leave no room in a coefficient; use fewer of either")]
    NoRoom {
        /// The number of clients.
        clients: u32,
        /// The number of bits.
        bits: u32,
    },
}

/// The fault of a ciphertext stream that is not as long as the tensors ask for.
pub(crate) const WRONG_LENGTH: FrameError =
    FrameError::Malformed { what: "not the chunks that the tensors need" };

fn version_words(found: u16) -> String {
    if found > FRAME_VERSION {
        format!("made by a newer ciphergram: version {found}")
    } else {
        format!("version {found} is too early")
    }
}

/// A fault in a frame's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// It does not start as a frame does.
    #[error("not a Ciphergram file")]
    Magic,
    /// A later format, or one from before files were kept readable.
    #[error("{}; this reads up to {FRAME_VERSION}", version_words(*found))]
    Version {
        /// The version found.
        found: u16,
    },
    /// Sealed when a `ckks-sum` key had one secret for all statements.
    #[error(
        "sealed by an earlier ciphergram, when one secret served all rounds: seal it again with this one"
    )]
    StandingSecret,
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

fn article(name: &str) -> &'static str {
    if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// A reason not to trust a number as a Paillier modulus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModulusFault {
    /// Not the size that the scheme says.
    #[error("has {found} bits, not {expected}")]
    Size {
        /// Bits found.
        found: u32,
        /// Bits of the scheme.
        expected: u32,
    },
    /// Even.
    #[error("is even")]
    Even,
    /// A prime or a power of one, whose totient anyone can compute.
    #[error("is a prime or a power of a prime")]
    PrimePower,
    /// Divisible by a small prime.
    #[error("has the small factor {factor}")]
    SmallFactor {
        /// The factor.
        factor: u32,
    },
    /// The secret factors are not those of the modulus.
    #[error("is not the product of the two primes in the file")]
    NotTheProduct,
    /// A secret factor is not prime, or both are not half the size of n.
    #[error("has a factor that is not a prime of half its size")]
    NotPrime,
    /// `gcd(n, φ(n)) ≠ 1`: decryption would not be unique.
    #[error("is not coprime to its totient")]
    Totient,
    /// The key says it has the form that short masks need, and has not.
    #[error("is not of the form that its key file declares")]
    Form,
}

/// A fault of a batch that cannot be an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
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
    /// An item is not below the bound of its kind.
    #[error("item {index} is not below {bound}")]
    NotBelow {
        /// The place within the batch.
        index: usize,
        /// The bound's name.
        bound: &'static str,
    },
    /// An item is too large for what it is to become or what was said of it.
    #[error("item {index} does not fit {bits} bits")]
    TooLarge {
        /// The place within the batch.
        index: usize,
        /// The bits that it must fit, sign included.
        bits: u32,
    },
    /// An item is NaN or infinite.
    #[error("item {index} is not finite")]
    NotFinite {
        /// The place within the batch.
        index: usize,
    },
    /// An item is beyond a third of n, where signed numbers end.
    #[error("item {index} is beyond a third of n, the largest integer that there can be")]
    Beyond {
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
    #[error("its scale is {found} where {expected} belongs: bring both to one scale first")]
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
    /// Zero is no Paillier ciphertext.
    #[error("ciphertext {index} is 0")]
    Zero {
        /// The place within the chunk or batch.
        index: usize,
    },
    /// Not below n².
    #[error("ciphertext {index} is not below n²")]
    NotReduced {
        /// The place within the chunk or batch.
        index: usize,
    },
    /// It shares a factor with n.
    #[error("ciphertext {index} is not coprime to n")]
    NotCoprime {
        /// The place within the chunk or batch.
        index: usize,
    },
    /// A lane of a beat is not below its prime.
    #[error("residue {lane} is not below its prime")]
    Residue {
        /// The lane within the chunk.
        lane: usize,
    },
    /// A lane of a mask that is past the end of its polynomial is not zero.
    #[error("residue {lane} is past the end of its polynomial, but not zero")]
    Stray {
        /// The lane within the chunk.
        lane: usize,
    },
}

impl CiphertextFault {
    /// Splits the place within a batch of chunks into the chunk's, counted from the first, and the place
    /// within that chunk, for chunks of `items` ciphertexts or lanes.
    pub(crate) fn locate(mut self, items: usize) -> (u32, Self) {
        let (Self::Zero { index }
        | Self::NotReduced { index }
        | Self::NotCoprime { index }
        | Self::Residue { lane: index }
        | Self::Stray { lane: index }) = &mut self
        else {
            return (0, self);
        };
        let chunk = *index / items;
        *index %= items;
        (chunk as u32, self)
    }
}
