//! Everything that can go wrong, sorted by culprit.

pub(crate) mod faults;

use std::{fmt::Display, path::PathBuf};

use ciphergram_accel::RunError;

use crate::ckks::CkksError;

pub use faults::{
    CiphertextFault, FrameError, ModulusFault, NoiseError, OperandFault, ParameterError,
};
pub(crate) use faults::{FRAME_VERSION, WRONG_LENGTH};

/// The reason why an operation failed. Fields name what and where; no secret is ever among them.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // What the caller asked for.
    /// The parameters are outside what is secure or supported.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// Vectors under the levelled scheme.
    #[error(transparent)]
    Ckks(#[from] CkksError),
    /// Noise that cannot be added or does not protect.
    #[error(transparent)]
    Noise(#[from] NoiseError),
    /// A weight must be an integer from 1 to the agreed largest.
    #[error("weight {weight} is not from 1 to the agreed largest, {max_weight}")]
    Weight {
        /// The weight given.
        weight: u64,
        /// The largest that was agreed.
        max_weight: u32,
    },
    /// A value cannot be quantised.
    #[error("tensor {tensor:?} has {value} at index {index}; only finite numbers can be summed")]
    NotFinite {
        /// The tensor's name.
        tensor: String,
        /// The flat index.
        index: usize,
        /// The value, as text.
        value: String,
    },
    /// Only four floating-point types, integers and truth values can be summed or kept.
    #[error(
        "tensor {tensor:?} is {dtype}; only F16, BF16, F32 and F64 can be summed, and integers kept"
    )]
    Dtype {
        /// The tensor's name.
        tensor: String,
        /// The file's name for the type.
        dtype: String,
    },
    /// Integers where they are refused.
    #[error("tensor {tensor:?} is {dtype}, and integers are refused")]
    Integers {
        /// The tensor's name.
        tensor: String,
        /// The name of its type.
        dtype: &'static str,
    },
    /// An integer that cannot be summed exactly.
    #[error(
        "tensor {tensor:?} has an integer of 2^53 or more at index {index}, which cannot be summed"
    )]
    Integer {
        /// The tensor's name.
        tensor: String,
        /// The flat index.
        index: usize,
    },
    /// Integers whose sum would not be exact.
    #[error("tensor {tensor:?} is of integers, which are summed exactly or not at all: {why}")]
    NotExact {
        /// The tensor's name.
        tensor: String,
        /// The fault.
        why: String,
    },
    /// Bits of tensors that cannot have them.
    #[error("bits of {name:?}: {why}")]
    Bits {
        /// The tensor's name, or a pattern of names.
        name: String,
        /// The fault.
        why: String,
    },
    /// A clipping range must be a finite number that is not negative.
    #[error("the clipping range of {tensor:?} is {range}; it must be finite and not negative")]
    Range {
        /// The tensor's name.
        tensor: String,
        /// The range, as text.
        range: String,
    },
    /// A norm that updates are clipped to must be a finite number that is not negative.
    #[error("the norm that updates are clipped to is {norm}; it must be finite and not negative")]
    ClipNorm {
        /// The norm, as text.
        norm: String,
    },
    /// Tensors that no sum can hold.
    #[error("these tensors cannot be summed: {why}")]
    Tensors {
        /// The fault.
        why: String,
    },
    /// Two updates are not of the same shape.
    #[error("the tensors differ: {difference}")]
    Layout {
        /// The first difference, in words.
        difference: String,
    },
    /// Two updates were quantised over different ranges, so their sum means nothing.
    #[error("the clipping ranges differ: {difference}; share one ranges file among all clients")]
    Ranges {
        /// The first difference, in words.
        difference: String,
    },
    /// The mean's or sum's value does not fit the tensor's own type.
    #[error("the result for tensor {tensor:?} at index {index} exceeds {dtype}; decrypt the mean")]
    Overflow {
        /// The tensor's name.
        tensor: String,
        /// The flat index.
        index: usize,
        /// The output type.
        dtype: &'static str,
    },
    /// More contributors than the fields have headroom for.
    #[error("{found} contributors, but the key admits at most {admitted}")]
    TooManyContributors {
        /// The number that there would be.
        found: usize,
        /// The headroom of the parameter set.
        admitted: usize,
    },
    /// Integers that are not of these parameters.
    #[error("a quantised value or weight is out of the range of {bits} bits")]
    NotQuantised {
        /// Bits of a value.
        bits: u32,
    },
    /// The operation needs at least one contribution.
    #[error("there is nothing to sum")]
    NothingToSum,
    /// The same contribution twice, or two under one seed.
    #[error(
        "the same contribution was given twice: leave one out, or seal another under a fresh seed"
    )]
    SameContribution,
    /// Two contributions of one client.
    #[error("two contributions of client {number} were given: a sum has one of each client")]
    SameNumber {
        /// The client's number.
        number: u16,
    },
    /// A key that updates cannot be sealed or summed under.
    #[error("this key has no sum key, which shows that sums are right")]
    NoSumKey,
    /// A number that is no client's.
    #[error("client {number} of {clients} clients, which are numbered from 0")]
    Number {
        /// The number given.
        number: u16,
        /// The clients that the key or the job admits.
        clients: u32,
    },
    /// A client's key that would be used by another one.
    #[error("this is the key of client {found}, not of client {asked}")]
    AnotherClient {
        /// The key's number.
        found: u16,
        /// The number asked for.
        asked: u16,
    },
    /// A secret key, which may contribute as any client.
    #[error("which client contributes? A secret key may be any")]
    NoNumber,
    /// Chunks would be sealed that this process already sealed under the same seed.
    #[error(
        "the chunks before {sealed} are already sealed under this seed, and none may be sealed \
         twice: resume at chunk {sealed}, or draw a fresh seed"
    )]
    SeedReused {
        /// The number of chunks that are sealed.
        sealed: u32,
    },
    /// A file that would be overwritten.
    #[error("{} exists; it is not overwritten", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// A batch that an operation cannot take.
    #[error("{operation}: {operand}: {fault}")]
    Operand {
        /// The operation.
        operation: &'static str,
        /// Which of its operands.
        operand: &'static str,
        /// Its fault.
        fault: OperandFault,
    },
    /// The wrong half of a key pair.
    #[error("this is a {found} key; {needed}")]
    KeyKind {
        /// `public` or `secret`.
        found: &'static str,
        /// The kind that the operation needs, and why.
        needed: &'static str,
    },

    // What came from outside.
    /// A frame is not what it should be.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Something of another scheme, parameter set or key than the key in use.
    #[error("{what} {found}, not {expected}: all take part with the files of one keygen")]
    KeyMismatch {
        /// The words before what was found.
        what: &'static str,
        /// The scheme, set or key id of what was given.
        found: String,
        /// That of the key in use.
        expected: String,
    },
    /// A ciphertext that nobody could have made honestly.
    #[error("chunk {chunk}: {fault}")]
    Ciphertext {
        /// The chunk it belongs to.
        chunk: u32,
        /// The fault.
        fault: CiphertextFault,
    },
    /// A sum that did not open: one error for whatever was wrong, so that it teaches nothing.
    #[error(
        "the sum does not open: it is not what its {contributors} contributors sealed for this round of this job"
    )]
    NotTheirs {
        /// The number of contributors that the sum lists.
        contributors: usize,
    },
    /// A chunk that is a sum of nobody.
    #[error("chunk {chunk} is a sum of no contributor")]
    Empty {
        /// The chunk.
        chunk: u32,
    },
    /// A sum of so few that it would come close to telling one client's update.
    #[error("chunk {chunk} is a sum of {found}; fewer than {min_clients} are not decrypted")]
    TooFewContributors {
        /// The chunk.
        chunk: u32,
        /// The number of its contributors.
        found: usize,
        /// The fewest that are decrypted.
        min_clients: u16,
    },
    /// Limits that no job can have.
    #[error("no such job: {why}")]
    Limits {
        /// The fault.
        why: String,
    },
    /// Something made for another job, or a job under another key.
    #[error("{what} {found}, not {expected}: all take part under one job file")]
    JobMismatch {
        /// The words before what was found.
        what: &'static str,
        /// The id found.
        found: String,
        /// The id of the job or key given.
        expected: String,
    },
    /// Terms that the job does not admit.
    #[error("the job does not admit it: {why}")]
    BeyondJob {
        /// The first that is beyond it.
        why: String,
    },
    /// A range above those that the job admits.
    #[error(
        "the job does not admit it: tensor {tensor:?} has range {range}, the job admits {most} at most"
    )]
    RangeBeyondJob {
        /// The tensor's name.
        tensor: String,
        /// Its range.
        range: f64,
        /// The largest that the job admits.
        most: f64,
    },
    /// A contribution of another round than the first.
    #[error("it is of round {found}, others are of round {expected}")]
    AnotherRound {
        /// The round found.
        found: u64,
        /// That of the first contribution.
        expected: u64,
    },
    /// A client whose rounds are far above those of all others.
    #[error(
        "it asks for round {round}, the others for {others} at most: more than 64 rounds ahead"
    )]
    RoundAhead {
        /// The lowest round that it accepts.
        round: u64,
        /// The largest of the others'.
        others: u64,
    },
    /// Round terms that a client must not contribute under.
    #[error("the round's terms are not what this client can contribute under: {why}")]
    Terms {
        /// The fault.
        why: String,
    },
    /// A round that this client has contributed to, or a later one.
    #[error(
        "client {number} has sealed a contribution to round {last} of this job, and none to {round} or an \
         earlier one may follow: its next round is {}", last.saturating_add(1)
    )]
    RoundOver {
        /// The client.
        number: u16,
        /// The round asked for.
        round: u64,
        /// The last round that it sealed for.
        last: u64,
    },
    /// Another sum of a round of which one was opened.
    #[error(
        "another sum of round {round} of this job was opened here before, and no second one is"
    )]
    SecondSum {
        /// The round.
        round: u64,
    },
    /// A round of which too many sums did not open.
    #[error(
        "{} sums of round {round} did not open here, and no further one is tried: the round is over, go on with the \
         next",
        crate::params::security::MAX_TRIES
    )]
    RoundSpent {
        /// The round.
        round: u64,
    },
    /// Two clients of a round who opened different sums of an earlier one.
    #[error(
        "another sum of round {round} was opened here than most clients opened: an aggregator that began the round again, \
         or that lies, gave them different ones, and whoever has both can subtract them; this round goes on without"
    )]
    DifferentSums {
        /// The earlier round.
        round: u64,
    },
    /// A sum that openers open, whose chunks are of different contributors.
    #[error(
        "chunk {chunk} lists other contributors than chunk 0, and openers open whole contributions only"
    )]
    MixedContributors {
        /// The first such chunk.
        chunk: u32,
    },
    /// A Paillier modulus that is not safe to use.
    #[error(transparent)]
    Modulus(#[from] ModulusFault),
    /// A file, not of a frame, that does not say what it should.
    #[error("not a valid {what}: {why}")]
    Format {
        /// The kind of file that was expected.
        what: &'static str,
        /// The fault.
        why: String,
    },
    /// No job beside a key.
    #[error("there is no job, which clients agree on once")]
    NoJob,
    /// A ledger that cannot be kept.
    #[error("a key's use is recorded there: {why}")]
    Ledger {
        /// The operating system's words.
        why: String,
    },
    /// The operating system refused.
    #[error("{why}")]
    Io {
        /// Its words.
        why: String,
    },
    /// The place of an error.
    #[error("{place}: {error}")]
    In {
        /// A file or a participant.
        place: String,
        /// The error there.
        error: Box<Error>,
    },

    // Openers.
    /// An identity that has no part in a job.
    #[error("this identity is no {role} of the job")]
    NoMember {
        /// What it would be.
        role: &'static str,
    },
    /// A job of which openers open no sums, where some are needed.
    #[error("the job has no openers")]
    NoOpeners,
    /// Something of an opener that is not what it should be.
    #[error("opener {opener}: {why}")]
    Opener {
        /// Its place in the job.
        opener: usize,
        /// The fault.
        why: String,
    },
    /// A contribution that its client did not make so.
    #[error("client {number}: {why}")]
    Contributor {
        /// The client.
        number: u16,
        /// The fault.
        why: &'static str,
    },
    /// A round that this opener has answered for, or a later one.
    #[error(
        "this opener has answered for round {last} of this job, and answers for none twice, nor for an earlier one: {round}"
    )]
    Answered {
        /// The round asked for.
        round: u64,
        /// The last that it answered for.
        last: u64,
    },
    /// Fewer answers than open a sum.
    #[error("{found} answers of openers, but the job's sums take {needed}")]
    TooFewAnswers {
        /// Answers that there are.
        found: usize,
        /// Answers that open a sum.
        needed: usize,
    },
    /// Answers that do not open a sum.
    #[error(
        "the {found} answers of openers do not open the sum: some are false, or the sum is not what its contributors \
         sealed"
    )]
    FalseAnswers {
        /// Answers that there are.
        found: usize,
    },

    // Our own doing, or the machine's.
    /// An engine refused a program.
    #[error(transparent)]
    Engine(#[from] RunError),
    /// The operating system gave no randomness.
    #[error("the operating system gave no randomness")]
    Randomness,
    /// The operating system gave no memory.
    #[error("no memory for {what}, which takes {} MB", bytes.div_ceil(1_000_000))]
    Memory {
        /// The use that it has.
        what: &'static str,
        /// Its size.
        bytes: usize,
    },

    // Private ranges.
    /// A program without the bootstraps that private ranges take.
    #[error("this program is built without private ranges")]
    WithoutTfhe,
    /// A job that agrees on ranges, and a key that cannot propose any.
    #[error("the key has no secret of ranges")]
    NoRangesSecret,
    /// A job that agrees on ranges, and an aggregator that cannot find any.
    #[error("the job agrees on private ranges, and there is no key to find them with")]
    NoRangesKey,
    /// A job whose ranges are told, where private ones are asked for.
    #[error("the job agrees on no private ranges")]
    RangesNotPrivate,
    /// Fewer clients than the rank asks for.
    #[error("{found} proposals of ranges, which have no {rank}-th largest")]
    TooFewProposals {
        /// The number of proposals.
        found: usize,
        /// The rank.
        rank: usize,
    },
}

impl Error {
    /// Returns the error without its places.
    #[must_use]
    pub fn cause(&self) -> &Self {
        match self {
            Self::In { error, .. } => error.cause(),
            error => error,
        }
    }

    /// Makes the error of something of another key, or of what follows from it.
    pub(crate) fn other_key(
        what: &'static str,
        found: impl ToString,
        expected: impl ToString,
    ) -> Self {
        Self::KeyMismatch { what, found: found.to_string(), expected: expected.to_string() }
    }

    /// Adds where it happened, unless it says so already.
    #[must_use]
    pub fn within(self, place: impl ToString) -> Self {
        let there = place.to_string();
        match self {
            Self::In { ref place, .. } if *place == there => self,
            error => Self::In { place: there, error: Box::new(error) },
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io { why: error.to_string() }
    }
}

/// Returns an error in one line: its facts, and the remedy that a front end has for it, if any.
#[must_use]
pub fn with_remedy(facts: &dyn Display, remedy: Option<String>) -> String {
    remedy.map_or_else(|| facts.to_string(), |remedy| format!("{facts}: {remedy}"))
}
