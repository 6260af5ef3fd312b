//! The FPGA engine: programs as descriptors of big-number operations, for a card that is described
//! in `hdl/README.md`.
//!
//! A whole program runs on the card over parts of a batch: operands go up, outputs come down,
//! nothing else crosses but descriptors. There is a card only where the environment variable
//! `CIPHERGRAM_FPGA` names one: `xdma:/dev/xdma0` is one behind that driver, anything else a program
//! that stands in for a card, over its standard input and output (`fpga/child.rs`), or a script that `exec`s one.
//!
//! Descriptors and their addresses depend on sizes alone. Card memory of a run over residues is
//! overwritten after it, and that of constants when what they belong to is gone: with the next run,
//! or with the engine. What a process that is killed leaves there the next one to open the card
//! overwrites.

mod card;
mod child;
mod constants;
mod descriptor;
mod form;
mod lanes;
mod layout;
mod link;
mod memory;
mod powers;
mod record;
#[allow(dead_code, reason = "it names all that the card has")]
mod registers;
mod residues;
mod ring;
mod run;
mod shape;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twins;
#[cfg(unix)]
mod xdma;

use std::{sync::Arc, time::Duration};

use crate::{
    derived::Derived,
    device,
    engine::{Cycles, DeviceFault, Engine, Info, Measure, Operand, RunError, check_support},
    interpret,
    modulus::Modulus,
    program::{Crt, FixedBase, Program},
    ring::Ring,
};
use card::CardDevice;
use child::Child;
use constants::{KeptNumbers, Modular, Pairing, Quotient};
use link::Link;
pub use link::LinkError;
use powers::CardTable;

/// The environment variable that names a card.
const VARIABLE: &str = "CIPHERGRAM_FPGA";
/// How long the head may stand still.
const PATIENCE: Duration = Duration::from_mins(5);

/// Why there is no card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FpgaError {
    /// The environment names none.
    #[error("{VARIABLE} names no card")]
    None,
    /// What the environment names is no text.
    #[error("{VARIABLE} is no text")]
    Name,
    /// There are no drivers of cards for this system.
    #[error("cards have no driver on this system")]
    NoDriver,
    /// What is there is not such a card, or of another version.
    #[error(
        "no card with id {:#010x} and version {}: id {id:#010x}, version {version}",
        registers::ID,
        registers::VERSION
    )]
    Other {
        /// The id found.
        id: u32,
        /// The version found.
        version: u32,
    },
    /// Its arrays or its memory are too small for any program.
    #[error("arrays of {rows} rows and {beats} beats of memory are too small")]
    TooSmall {
        /// Rows of an array.
        rows: u32,
        /// Beats of memory.
        beats: u32,
    },
    /// It cannot be reached.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// The FPGA engine. See the [module](self) documentation.
///
/// It keeps on the card what it derives from long-lived constants for as long as these live.
pub struct FpgaEngine {
    device: Arc<CardDevice>,
    kept: Caches,
}

/// What is kept on the card, by what it was derived from.
#[derive(Default)]
struct Caches {
    moduli: Derived<Modulus, Modular>,
    /// Of products of pairs, by the root of their square.
    pairings: Derived<Modulus, Pairing>,
    quotients: Derived<Modulus, Quotient>,
    recombinations: Derived<Crt, KeptNumbers>,
    tables: Derived<FixedBase, CardTable>,
    lanes: Derived<Ring, KeptNumbers>,
}

impl FpgaEngine {
    /// Opens the card that `CIPHERGRAM_FPGA` names. Nothing, `none` or an empty name are no card.
    ///
    /// # Errors
    /// See [`FpgaError`].
    pub fn new() -> Result<Self, FpgaError> {
        let name = std::env::var_os(VARIABLE).unwrap_or_default();
        Self::open(name.to_str().ok_or(FpgaError::Name)?)
    }

    /// Opens the card of this name.
    fn open(name: &str) -> Result<Self, FpgaError> {
        match name {
            "" | "none" => Err(FpgaError::None),
            name => match name.strip_prefix("xdma:") {
                Some(path) => Self::over(Self::driver(path)?),
                None => Self::over(Box::new(Child::start(name, PATIENCE)?)),
            },
        }
    }

    #[cfg(unix)]
    fn driver(path: &str) -> Result<Box<dyn Link>, FpgaError> {
        Ok(Box::new(xdma::Xdma::open(path)?))
    }

    #[cfg(not(unix))]
    fn driver(_path: &str) -> Result<Box<dyn Link>, FpgaError> {
        Err(FpgaError::NoDriver)
    }

    fn over(link: Box<dyn Link>) -> Result<Self, FpgaError> {
        let device = Arc::new(CardDevice::open(link, PATIENCE)?);
        Ok(Self { device, kept: Caches::default() })
    }

    /// Takes the card for one that does not answer once it stood still for so long, in place of five
    /// minutes.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        self.device.set_patience(patience);
        self
    }

    /// Returns the items that keep all arrays busy.
    fn full_batch(&self) -> u64 {
        (self.device.sizes.arrays * self.device.sizes.numbers).max(1)
    }

    fn modulus(&self, m: &Arc<Modulus>) -> Result<Arc<Modular>, DeviceFault> {
        self.kept.moduli.try_get(m, |m| Modular::new(&self.device, m))
    }

    fn pairing(&self, root: &Arc<Modulus>, m: &Modular) -> Result<Arc<Pairing>, DeviceFault> {
        self.kept.pairings.try_get(root, |root| Pairing::new(&self.device, root, m))
    }

    fn quotient(&self, d: &Arc<Modulus>) -> Result<Arc<Quotient>, DeviceFault> {
        self.kept.quotients.try_get(d, |d| Quotient::new(&self.device, d))
    }

    fn crt(&self, crt: &Arc<Crt>, q: &Modular) -> Result<Arc<KeptNumbers>, DeviceFault> {
        let derive = |crt: &Crt| constants::recombination(&self.device, crt, q);
        self.kept.recombinations.try_get(crt, derive)
    }

    fn table(&self, base: &Arc<FixedBase>, m: &Modular) -> Result<Arc<CardTable>, DeviceFault> {
        self.kept.tables.try_get(base, |base| CardTable::new(&self.device, m, base))
    }

    fn lanes(&self, ring: &Arc<Ring>) -> Result<Arc<KeptNumbers>, DeviceFault> {
        self.kept.lanes.try_get(ring, |ring| constants::lanes(&self.device, ring))
    }

    /// Lets go of what is kept for constants that are gone.
    fn sweep(&self) -> Result<(), DeviceFault> {
        let Caches { moduli, pairings, quotients, recombinations, tables, lanes } = &self.kept;
        moduli.sweep();
        pairings.sweep();
        quotients.sweep();
        recombinations.sweep();
        tables.sweep();
        lanes.sweep();
        self.device.sweep()
    }
}

impl Drop for FpgaEngine {
    fn drop(&mut self) {
        self.kept = Caches::default();
        // Where the card is gone there is nothing more to do.
        let _ = self.device.sweep();
    }
}

impl Engine for FpgaEngine {
    fn name(&self) -> &'static str {
        "fpga"
    }

    fn info(&self) -> Info {
        let sizes = self.device.sizes;
        let counted = self.device.cycles().map(|Cycles { cycles, busy, products, .. }| {
            [("cycles", cycles), ("busy multiplier-cycles", busy), ("products", products)]
        });
        let counters = counted.into_iter().flatten().map(|(name, count)| (name, count.to_string()));
        let own = [
            ("memory", format!("{} MiB", sizes.beats >> 14)),
            ("numbers in flight", (sizes.arrays * sizes.numbers).to_string()),
            ("descriptors in flight", sizes.descriptors.to_string()),
        ];
        let is_emulated = self.device.is_emulated();
        Info {
            description: self.device.describe(),
            details: own.into_iter().chain(counters).collect(),
            is_device: true,
            is_emulated,
            full_batch: if is_emulated { 1 } else { self.full_batch() as usize },
        }
    }

    /// Returns true for the steps over residues but inverses, and for sums of beats.
    fn supports(&self, step: &str) -> bool {
        matches!(
            step,
            "mul"
                | "mont_mul"
                | "split"
                | "join"
                | "pair_mul"
                | "product"
                | "choose"
                | "one_plus_mn"
                | "pow_secret"
                | "pow_public"
                | "dot_secret"
                | "dot_public"
                | "pow_fixed_base"
                | "reduce"
                | "l_quotient"
                | "crt_join"
                | "add_beats"
        )
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        check_support(self, program)?;
        let count = interpret::check_operands(program, operands)?;
        let ran = self.sweep().and_then(|()| device::run(self, program, operands, count));
        ran.map_err(|why| RunError::Device { engine: self.name(), why })
    }
}

impl Measure for FpgaEngine {
    /// Returns none: what a card could do at most is not measured.
    fn multiply_rate(&self) -> Option<f64> {
        None
    }

    /// Counts multiplications of a digit of 17 bits and a word of 26, by the multipliers of the
    /// arrays.
    fn multiplies(&self, program: &Program, operands: &[Operand<'_>]) -> Option<u64> {
        check_support(self, program).ok()?;
        device::multiplies(self, program, operands, interpret::count(program, operands))
    }

    fn cycles(&self) -> Option<Cycles> {
        self.device.cycles()
    }
}
