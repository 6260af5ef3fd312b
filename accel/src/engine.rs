//! The one trait that makes something an engine.

use crate::{
    Beats, Exponents, Polys, Residues,
    exponents::{Public, Secret},
    polys::Domain,
    program::{Program, Step},
};

/// A processor that runs programs: a CPU, a GPU, an FPGA, or the oracle.
pub trait Engine: Send + Sync {
    /// Returns a short stable name, such as `cpu`.
    fn name(&self) -> &'static str;

    /// Describes the processor behind it.
    fn info(&self) -> Info;

    /// Returns whether it can run a step of this name (see `Step::name`).
    fn supports(&self, step: &str) -> bool;

    /// Runs `program` over whole batches: operands are the inputs in the order they were built,
    /// then the outputs.
    ///
    /// Values are trusted to be reduced: the caller who fills a batch checks or makes them so.
    /// Lengths are checked.
    ///
    /// # Errors
    /// The operands do not fit the program, or a step is not supported: then nothing was computed.
    /// Or a device failed, which may happen after some of the results were written.
    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError>;
}

/// A description of an engine's processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// One line, for people.
    pub description: String,
    /// Names and values, such as limits of a device, for people who ask for more.
    pub details: Vec<(&'static str, String)>,
    /// Whether a device computes, not the threads that call the engine.
    pub is_device: bool,
    /// Whether a program on the CPU stands in for a device: its results are as exact, and slow.
    pub is_emulated: bool,
    /// Items of a batch that keep all of it busy, 1 or more; smaller batches run at a lower rate.
    pub full_batch: usize,
}

impl Info {
    /// Describes an engine whose callers' threads compute, at full rate from one item on.
    pub fn of_host(description: impl Into<String>) -> Self {
        Self {
            description: description.into(),
            details: vec![],
            is_device: false,
            is_emulated: false,
            full_batch: 1,
        }
    }
}

/// An engine that counts its multiply instructions, for benchmarks.
pub trait Measure: Engine {
    /// Measures how many multiply instructions a second one thread of the engine, or a whole
    /// device, can issue at most. It takes some tens of milliseconds. `None` where other work hid
    /// the rate.
    fn multiply_rate(&self) -> Option<f64>;

    /// Counts the multiply instructions that a run of `program` over these operands issues, tables
    /// of constants aside; those of steps over polynomials on devices only. `None` where the engine
    /// could not run the program.
    fn multiplies(&self, program: &Program, operands: &[Operand<'_>]) -> Option<u64>;

    /// Returns the cycles that a card has counted so far, `None` of engines that count none and of a card that is at
    /// work or lost.
    fn cycles(&self) -> Option<Cycles> {
        None
    }
}

/// Counters of a card whose clock nobody has measured: what work takes of it is the difference of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cycles {
    /// Cycles in which something was in flight.
    pub cycles: u64,
    /// Multiplier-cycles of these in which a multiplier had two factors.
    pub busy: u64,
    /// Numbers that its arrays made, each by a product.
    pub products: u64,
    /// Beats of 64 bytes of card memory that were read or written.
    pub beats: u64,
    /// Multipliers of its arrays; no counter.
    pub multipliers: u64,
}

impl Cycles {
    /// Returns what was counted since `before`; none if the card was reset meanwhile.
    #[must_use]
    pub fn since(self, before: Self) -> Option<Self> {
        Some(Self {
            cycles: self.cycles.checked_sub(before.cycles)?,
            busy: self.busy.checked_sub(before.busy)?,
            products: self.products.checked_sub(before.products)?,
            beats: self.beats.checked_sub(before.beats)?,
            multipliers: self.multipliers,
        })
    }
}

/// A view of one operand's data: whole batches in plain host layout.
pub enum Operand<'a> {
    /// A public input.
    In(&'a [u64]),
    /// A secret input; refused where the program declares a public one.
    SecretIn(&'a [u64]),
    /// An output, overwritten.
    Out(&'a mut [u64]),
    /// An accumulator, updated in place.
    InOut(&'a mut [u64]),
}

impl Operand<'_> {
    pub(crate) fn len(&self) -> usize {
        self.words().len()
    }

    /// Returns its words, also those that are to be overwritten.
    pub(crate) fn words(&self) -> &[u64] {
        match self {
            Self::In(words) | Self::SecretIn(words) => words,
            Self::Out(words) | Self::InOut(words) => words,
        }
    }
}

impl<'a> From<&'a Residues> for Operand<'a> {
    fn from(batch: &'a Residues) -> Self {
        Self::In(batch.words())
    }
}

impl<'a> From<&'a Beats> for Operand<'a> {
    fn from(batch: &'a Beats) -> Self {
        Self::In(batch.words())
    }
}

impl<'a, D: Domain> From<&'a Polys<D>> for Operand<'a> {
    fn from(batch: &'a Polys<D>) -> Self {
        Self::SecretIn(batch.words())
    }
}

impl<'a> From<&'a Exponents<Secret>> for Operand<'a> {
    fn from(batch: &'a Exponents<Secret>) -> Self {
        Self::SecretIn(batch.words())
    }
}

impl<'a> From<&'a Exponents<Public>> for Operand<'a> {
    fn from(batch: &'a Exponents<Public>) -> Self {
        Self::In(batch.words())
    }
}

/// Why a program did not run: the caller's doing, or a device's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There are more or fewer operands than the program has inputs and outputs.
    #[error("program {program} takes {expected} operands, not {found}")]
    OperandCount {
        /// The program's name.
        program: String,
        /// Inputs and outputs of the program.
        expected: usize,
        /// Operands given.
        found: usize,
    },
    /// An operand's length or access does not fit.
    #[error("operand {operand} of program {program} does not fit: {why}")]
    Operand {
        /// The program's name.
        program: String,
        /// The operand's name in the program.
        operand: String,
        /// The fault.
        why: OperandMismatch,
    },
    /// The engine has no kernel for a step.
    #[error("engine {engine} has no step {step}")]
    Unsupported {
        /// The engine's name.
        engine: &'static str,
        /// The step's name.
        step: &'static str,
    },
    /// A device failed. Outputs and accumulators hold results of some items, or none.
    #[error("engine {engine} failed: {why}")]
    Device {
        /// The engine's name.
        engine: &'static str,
        /// The fault.
        why: DeviceFault,
    },
}

/// A fault of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFault {
    /// It has not the memory that one item and the constants of a program take.
    #[error("out of device memory")]
    OutOfMemory,
    /// It is gone, and every later run will fail.
    #[error("the device is lost: {why}")]
    Lost {
        /// What was seen of it.
        why: String,
    },
    /// It took longer than any run should.
    #[error("the device does not answer")]
    Timeout,
    /// Its driver refused something that it should not.
    #[error("{why}")]
    Failed {
        /// The words of the driver.
        why: String,
    },
}

impl DeviceFault {
    /// Makes the fault of an engine that takes on a step which it does not support.
    pub(crate) fn no_kernel(step: &str) -> Self {
        Self::Failed { why: format!("there is no kernel for {step}") }
    }
}

/// A fault of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperandMismatch {
    /// An input where an output belongs, or the reverse.
    #[error("wrong access")]
    Access,
    /// A secret where the program would take a variable-time path.
    #[error("a secret bound to a public input")]
    SecretAsPublic,
    /// Not the words that the number of items asks for.
    #[error("{found} words, expected {expected}")]
    Length {
        /// Words for the items of the batch.
        expected: usize,
        /// Words given.
        found: usize,
    },
}

/// Checks that an engine supports every step of `program`.
///
/// # Errors
/// [`RunError::Unsupported`], with the first step that it does not.
pub fn check_support(engine: &dyn Engine, program: &Program) -> Result<(), RunError> {
    match program.steps().map(Step::name).find(|step| !engine.supports(step)) {
        Some(step) => Err(RunError::Unsupported { engine: engine.name(), step }),
        None => Ok(()),
    }
}

/// Returns the steps that an engine supports, for `ciphergram show devices`.
#[must_use]
pub fn supported_steps(engine: &dyn Engine) -> Vec<&'static str> {
    Step::names().into_iter().filter(|step| engine.supports(step)).collect()
}
