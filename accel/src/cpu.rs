//! The CPU engine: every core, and the widest multiplier that is there.
//!
//! A whole program runs over one block of items before the next, and most of what it does with
//! polynomials over one prime before the next, so intermediates stay in cache; `rayon` spreads
//! blocks over cores. Everything takes one of three paths, chosen once when the engine is made: AVX-512 IFMA, eight
//! numbers or residues side by side (`ifma`); AVX2 and FMA, four of them (`avx2`); words of 64 bits and `u128`
//! products, on any processor (`portable`), which also takes a big number that is alone. `CIPHERGRAM_CPU=avx2` or
//! `=portable` chooses a slower one than is possible.
//!
//! Steps over secrets take no branch, no table index and no division that depends on them.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod backend;
#[cfg(target_arch = "x86_64")]
mod chacha;
#[cfg(target_arch = "x86_64")]
mod composition;
#[cfg(target_arch = "x86_64")]
mod ifma;
#[cfg(target_arch = "x86_64")]
mod limb_loops;
mod montgomery;
mod portable;
mod power;
mod rns;
mod steps;
mod tally;

use crate::{
    dot::Dot,
    engine::{Engine, Info, Measure, Operand, RunError},
    interpret::{self, Arg, Blocks, Kernels},
    program::{Kind, LaneStep, LimbStep, Program, ResidueStep, RingStep, Work},
};
#[cfg(target_arch = "x86_64")]
use avx2::Avx2;
use backend::Backend;
#[cfg(target_arch = "x86_64")]
use ifma::Ifma;
use portable::Portable;
pub(crate) use rns::STREAM_WORDS;
#[cfg(feature = "gpu")]
pub(crate) use rns::{BLOCKS, RUN};
use rns::{Rns, RnsSteps};
use steps::Steps;

/// Items of a block of a program over big residues: tables of fixed bases are read once for a
/// block.
const BLOCK: usize = 256;

/// Items of a block of a program over beats alone, if it has values in scratch memory.
const BEATS: usize = 64;

/// Items of a block if it has none, as one that checks, or adds in place: all that a thread has.
const UNCUT: usize = 1 << 24;

/// Beats of such a program that are worth the while of another thread: each takes some nanoseconds.
const UNCUT_BEATS: usize = 1 << 12;

/// Items of a program of products that are worth the while of another thread.
const PRODUCTS: usize = BLOCK;

/// The CPU engine. See the [module](self) documentation.
///
/// It keeps what it derives from long-lived constants, the powers of a fixed base and the twiddle
/// factors of a ring, for as long as the constant itself lives.
pub struct CpuEngine(Box<dyn Measure>);

/// The engine of one kind of processor.
struct ProcessorEngine<B: Backend> {
    name: &'static str,
    residues: Steps<B>,
    polynomials: RnsSteps<B>,
    /// What takes the big residues of a program that has one of each: one lane of several would be slower.
    alone: Steps<Portable>,
}

/// What steps of a run of an engine take.
struct RunSteps<'e, S: Backend, B: Backend> {
    residues: &'e Steps<S>,
    engine: &'e ProcessorEngine<B>,
}

impl<B: Backend + Rns> ProcessorEngine<B> {
    fn engine(name: &'static str, token: B) -> CpuEngine {
        let (residues, polynomials) = (Steps::new(token), RnsSteps::new(token));
        CpuEngine(Box::new(Self { name, residues, polynomials, alone: Steps::new(Portable) }))
    }

    /// Returns what takes the big residues of a program that has one of each. Of a simultaneous power lanes take bases.
    fn alone_for(&self, program: &Program, operands: &[Operand<'_>]) -> Option<&Steps<Portable>> {
        let is_alone = B::LANES > 1
            && matches!(program.work(), Work::Residues { dot: false, .. })
            && interpret::count(program, operands) == 1;
        is_alone.then_some(&self.alone)
    }
}

impl<B: Backend + Rns> Engine for ProcessorEngine<B> {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn info(&self) -> Info {
        Info::of_host(format!("{}, on {} threads", self.name, rayon::current_num_threads()))
    }

    fn supports(&self, _step: &str) -> bool {
        true
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        let (engine, residues) = (self, &self.residues);
        match self.alone_for(program, operands) {
            Some(residues) => {
                interpret::run(&RunSteps { residues, engine }, program, operands, true)
            }
            None => interpret::run(&RunSteps { residues, engine }, program, operands, true),
        }
    }
}

impl<B: Backend + Rns> Measure for ProcessorEngine<B> {
    fn multiply_rate(&self) -> Option<f64> {
        Some(self.residues.multiply_rate())
    }

    fn multiplies(&self, program: &Program, operands: &[Operand<'_>]) -> Option<u64> {
        let count = interpret::count(program, operands);
        let is_counted = self.alone_for(program, operands).is_none();
        is_counted.then(|| Steps::<B>::multiplies(program, count, BLOCK))
    }
}

impl<S: Backend, B: Backend + Rns> Kernels for RunSteps<'_, S, B> {
    fn blocks(&self, program: &Program) -> Blocks {
        let of_items = |units, least| Blocks { unit: 1, units, parts: 4, least };
        match program.work() {
            // One fills the cache.
            Work::Polynomials => of_items(1, 1),
            Work::Beats { of_item } if program.places().slots.is_empty() => {
                of_items(UNCUT, UNCUT_BEATS.div_ceil(of_item))
            }
            // Some tens with their sums fill the first level of cache.
            Work::Beats { .. } => of_items(BEATS, 16 * BEATS),
            Work::Residues { powers, dot } => {
                // A simultaneous power makes tables of its bases in every part.
                let parts = if dot { 1 } else { 4 };
                let least = if powers { S::LANES } else { PRODUCTS };
                Blocks { unit: S::LANES, units: BLOCK / S::LANES, parts, least }
            }
        }
    }

    fn prepare(&self, program: &Program) {
        // Beats need no constants, and their runs are short.
        if !matches!(program.work(), Work::Beats { .. }) {
            self.engine.polynomials.sweep();
            self.engine.residues.sweep();
            self.engine.alone.sweep();
            self.residues.prepare(program);
        }
    }

    fn residues(&self, step: &ResidueStep, kind: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        self.residues.run(step, kind, out, args);
    }

    fn polynomials(&self, step: &RingStep, kind: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        self.engine.polynomials.run(step, kind, out, args);
    }

    fn lanes(&self, step: &LaneStep, kind: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        self.engine.polynomials.run_lanes(step, kind, out, args);
    }

    fn limb(&self, step: &LimbStep, limb: usize, out: &mut [u64], args: &[&[u64]]) {
        self.engine.polynomials.run_of_prime(step, limb, out, args);
    }
}

/// See [`Rns::keystream`].
pub(crate) type Keystream = fn(&mut [u64; STREAM_WORDS], &[u64], u64, u64);

/// Returns the quickest keystream that there is, and that the environment allows.
pub(crate) fn fastest_keystream() -> Keystream {
    #[cfg(target_arch = "x86_64")]
    if wanted_ifma().is_some() {
        return |out, key, stream, at| match Ifma::detect() {
            Some(token) => token.keystream(out, key, stream, at),
            None => Portable.keystream(out, key, stream, at),
        };
    }
    #[cfg(target_arch = "x86_64")]
    if !wants(PORTABLE) && Avx2::detect().is_some() {
        return |out, key, stream, at| match Avx2::detect() {
            Some(token) => token.keystream(out, key, stream, at),
            None => Portable.keystream(out, key, stream, at),
        };
    }
    |out, key, stream, at| Portable.keystream(out, key, stream, at)
}

/// Returns the quickest way to sum products that there is, and that the environment allows.
#[must_use]
pub fn fastest_dot() -> Dot {
    #[cfg(target_arch = "x86_64")]
    if wanted_ifma().is_some()
        && let Some(dot) = ifma::dot()
    {
        return dot;
    }
    Dot::PORTABLE
}

/// The environment variable that chooses a path, and its values.
const CHOICE: &str = "CIPHERGRAM_CPU";
const PORTABLE: &str = "portable";
const AVX2: &str = "avx2";

fn wants(choice: &str) -> bool {
    std::env::var_os(CHOICE).is_some_and(|path| path == choice)
}

/// Returns the token of the fastest path, unless the environment asks for another.
#[cfg(target_arch = "x86_64")]
fn wanted_ifma() -> Option<Ifma> {
    Ifma::detect().filter(|_| !wants(PORTABLE) && !wants(AVX2))
}

/// Checks what the environment asks for: nothing, or a path.
///
/// # Errors
/// `CIPHERGRAM_CPU` has another value; the words for people.
pub fn check_choice() -> Result<(), String> {
    match std::env::var_os(CHOICE) {
        Some(path) if path != PORTABLE && path != AVX2 && !path.is_empty() => Err(format!(
            "{CHOICE} is {path:?}; choose {PORTABLE:?} or {AVX2:?}, or leave it out for the fastest path"
        )),
        _ => Ok(()),
    }
}

impl Default for CpuEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl CpuEngine {
    /// Makes an engine with no tables yet, on the fastest path that the processor has and the
    /// environment allows.
    #[must_use]
    pub fn new() -> Self {
        if wants(PORTABLE) {
            return Self::portable();
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = wanted_ifma() {
            let name = "AVX-512 IFMA, eight numbers at a time";
            return ProcessorEngine::engine(name, token);
        }
        Self::avx2().unwrap_or_else(Self::portable)
    }

    /// Makes an engine that takes AVX2 and FMA, if the processor has them.
    #[must_use]
    pub fn avx2() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return Avx2::detect().map(|token| {
            let name = "AVX2 and FMA, four numbers at a time";
            ProcessorEngine::engine(name, token)
        });
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// Makes an engine on each path that the processor has, the fastest first.
    #[must_use]
    pub fn paths() -> Vec<Self> {
        let fastest = Self::new();
        let others = [Self::avx2(), Some(Self::portable())].into_iter().flatten();
        let is_other = |engine: &Self| engine.info() != fastest.info();
        let others: Vec<Self> = others.filter(is_other).collect();
        std::iter::once(fastest).chain(others).collect()
    }

    /// Makes an engine on the path that any processor has.
    #[must_use]
    pub fn portable() -> Self {
        ProcessorEngine::engine("portable 64-bit arithmetic", Portable)
    }
}

impl Engine for CpuEngine {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn info(&self) -> Info {
        self.0.info()
    }

    fn supports(&self, step: &str) -> bool {
        self.0.supports(step)
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        self.0.run(program, operands)
    }
}

impl Measure for CpuEngine {
    fn multiply_rate(&self) -> Option<f64> {
        self.0.multiply_rate()
    }

    fn multiplies(&self, program: &Program, operands: &[Operand<'_>]) -> Option<u64> {
        self.0.multiplies(program, operands)
    }
}
