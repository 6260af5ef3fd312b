//! The CPU engine: every core, and the widest multiplier that is there.
//!
//! A whole program runs over one block of items before the next, so intermediates stay in cache;
//! `rayon` spreads blocks over cores. Big residues take one of two paths, chosen once when the
//! engine is made: AVX-512 IFMA, eight numbers side by side (`ifma`), or 64-bit limbs and `u128`
//! products on any processor (`portable`). The environment variable `CIPHERGRAM_CPU=portable`
//! chooses the second where both are possible.
//!
//! Steps over secrets take no branch, no table index and no division that depends on them (for
//! primes of 32 bits or more; smaller ones are for tests of the transform).

mod backend;
mod derived;
#[cfg(target_arch = "x86_64")]
mod ifma;
mod montgomery;
mod ntt;
mod poly;
mod portable;
mod power;
mod sampling;
mod steps;
mod tally;

use crate::{
    engine::{Engine, Operand, RunError, check_support},
    interpret::{self, Arg, Blocks, Kernels},
    program::{Kind, Program, Step},
    ring::Ring,
};
use derived::Derived;
#[cfg(target_arch = "x86_64")]
use ifma::Ifma;
use ntt::Tables;
use portable::Portable;
use steps::Steps;

/// Items of a block of a program over big residues: tables of fixed bases are read once for so many.
const BLOCK: usize = 256;

/// The CPU engine. See the [module](self) documentation.
///
/// It keeps what it derives from long-lived constants, the powers of a fixed base and the twiddle
/// factors of a ring, for as long as the constant itself lives.
pub struct CpuEngine {
    residues: Path,
    twiddles: Derived<Ring, Tables>,
}

/// How big residues are computed.
enum Path {
    #[cfg(target_arch = "x86_64")]
    Ifma(Steps<Ifma>),
    Portable(Steps<Portable>),
}

impl Default for CpuEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl CpuEngine {
    /// An engine with no tables yet, on the fastest path that the processor has and the environment
    /// allows.
    #[must_use]
    pub fn new() -> Self {
        if std::env::var_os("CIPHERGRAM_CPU").is_some_and(|path| path == "portable") {
            return Self::portable();
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = Ifma::detect() {
            let residues = Path::Ifma(Steps::new(token));
            return Self { residues, twiddles: Derived::default() };
        }
        Self::portable()
    }

    /// An engine on the path that any processor has.
    #[must_use]
    pub fn portable() -> Self {
        let residues = Path::Portable(Steps::new(Portable));
        Self { residues, twiddles: Derived::default() }
    }
}

impl Engine for CpuEngine {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn describe(&self) -> String {
        let path = match &self.residues {
            #[cfg(target_arch = "x86_64")]
            Path::Ifma(_) => "AVX-512 IFMA, eight numbers at a time",
            Path::Portable(_) => "portable 64-bit arithmetic",
        };
        format!("{path}, on {} threads", rayon::current_num_threads())
    }

    fn supports(&self, _step: &str) -> bool {
        true
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        check_support(self, program)?;
        interpret::run(self, program, operands, true)
    }

    fn multiply_rate(&self) -> Option<f64> {
        Some(match &self.residues {
            #[cfg(target_arch = "x86_64")]
            Path::Ifma(steps) => steps.multiply_rate(),
            Path::Portable(steps) => steps.multiply_rate(),
        })
    }

    fn multiplies(&self, program: &Program, operands: &[Operand<'_>]) -> Option<u64> {
        let count = interpret::count(program, operands);
        Some(match &self.residues {
            #[cfg(target_arch = "x86_64")]
            Path::Ifma(_) => Steps::<Ifma>::multiplies(program, count, BLOCK),
            Path::Portable(_) => Steps::<Portable>::multiplies(program, count, BLOCK),
        })
    }
}

impl Kernels for CpuEngine {
    fn blocks(&self, program: &Program) -> Blocks {
        if !program.steps().any(Step::is_of_residues) {
            // One polynomial fills the cache.
            return Blocks { unit: 1, units: 1, parts: 4 };
        }
        let unit = match &self.residues {
            #[cfg(target_arch = "x86_64")]
            Path::Ifma(_) => <Ifma as backend::Backend>::LANES,
            Path::Portable(_) => 1,
        };
        // A simultaneous power makes tables of its bases in every part.
        let dot = |step: &Step| matches!(step, Step::Dot { .. });
        let parts = if program.steps().any(dot) { 1 } else { 4 };
        Blocks { unit, units: BLOCK / unit, parts }
    }

    fn prepare(&self, program: &Program) {
        self.twiddles.sweep();
        match &self.residues {
            #[cfg(target_arch = "x86_64")]
            Path::Ifma(steps) => steps.prepare(program),
            Path::Portable(steps) => steps.prepare(program),
        }
    }

    fn step(&self, step: &Step, out_kind: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        if step.is_of_residues() {
            return match &self.residues {
                #[cfg(target_arch = "x86_64")]
                Path::Ifma(steps) => steps.run(step, out_kind, out, args),
                Path::Portable(steps) => steps.run(step, out_kind, out, args),
            };
        }
        for (index, out) in out.chunks_mut(out_kind.words()).enumerate() {
            let args: Vec<_> = args.iter().map(|arg| (arg.kind, arg.item(index))).collect();
            self.polynomial_step(step, out_kind, out, &args);
        }
    }
}

impl CpuEngine {
    fn polynomial_step(
        &self,
        step: &Step,
        out_kind: &Kind,
        out: &mut [u64],
        args: &[(&Kind, &[u64])],
    ) {
        match (step, out_kind) {
            (Step::Ntt | Step::Intt, Kind::Polys { ring, .. }) => {
                let tables = self.twiddles.get(ring, Tables::new);
                out.copy_from_slice(args[0].1);
                if matches!(step, Step::Ntt) { tables.forward(out) } else { tables.inverse(out) }
            }
            _ => poly::step(step, out_kind, out, args),
        }
    }
}
