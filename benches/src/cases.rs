//! The operations that `ciphergram bench` measures: one table, which `--help` prints.

mod chains;
mod engine;
mod paillier;
mod row;
mod sampling;
mod steps;
mod sums;
mod vectors;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ciphergram_accel::Engine as _;
use ciphergram_he::{
    Error, Scheme,
    ckks::{Evaluator, Operation, Preset},
};
use rayon::prelude::*;

use self::{
    chains::{Chains, Kernel, PRIME_BITS, transform_s},
    paillier::{Key, MATRIX_COLUMNS, Shop},
    sampling::{Times, Work, sample, timed},
    steps::{Single, Step},
    sums::{CLIENTS, Round, VALUE_BITS},
    vectors::{Screened, Vectors, work},
};
pub use self::{
    engine::Metered,
    paillier::INSECURE_BITS,
    row::{Row, head, number},
};
use crate::Failure;

/// Schemes, each of which stands for all its operations in `--ops`.
const PAILLIER: &str = "paillier";
const CKKS_SUM: &str = "ckks-sum";
/// Levelled schemes, each of which is called by its preset.
const CKKS: &str = "ckks";
/// No scheme: steps by themselves.
const KERNELS: &str = "kernels";
/// The same with operands that come and go.
const STEPS: &str = "steps";

/// Operations of the first batch tried, for each thread: no vector of numbers is longer.
const LANES: usize = 8;
/// Batches that are tried grow by this, until one is as large as it should be or the next would last longer than so
/// many seconds.
const GROWTH: usize = 8;
const LONGEST_BATCH: f64 = 1.0;
/// The part of a usual batch that a simulation takes: it counts cycles as well as a large one.
const SIMULATED: usize = 16;

/// An operation that can be measured.
#[derive(Clone, Copy)]
struct Case {
    /// Of a levelled one its preset.
    scheme: &'static str,
    name: &'static str,
    /// The definition of a single operation.
    about: &'static str,
    /// A step of its programs that some engines lack.
    needs: Option<&'static str>,
    run: Run,
}

#[derive(Clone, Copy)]
enum Run {
    Paillier(Batches),
    /// An operation on whole updates, whose sum openers open or a shared key.
    Sum(Scheme, fn(&Round) -> Result<(), Error>),
    Vectors(Preset, OnVectors),
    Screen(Preset),
    /// A step over moduli of so many bits, or over rings of this degree.
    Kernel(Kernel, usize),
    /// The same, of so many bits, or those of the primes of a ring.
    Step(Step, u32),
}

/// Makes a batch of so many operations.
type Make = fn(&mut Shop, usize) -> Result<Work<'static>, Failure>;
/// Runs an operation on vectors, and throws its result away.
type OnKey = fn(&Vectors<'_>) -> Result<(), Error>;

/// Batches under Paillier's scheme.
#[derive(Clone, Copy)]
struct Batches {
    /// Operations of one for each thread: enough to fill lanes and to share what a batch shares, and few enough that
    /// cheap ones stay in a cache. Up to 2048 bits, and above.
    usual: [usize; 2],
    /// Whether each ciphertext carries a packed plaintext.
    has_values: bool,
    /// Whether what one operation costs depends on how many there are.
    is_whole: bool,
    make: Make,
    /// Makes a batch of as much work as one entry of a matrix is, one by one.
    singly: Option<Make>,
}

/// An operation on encrypted vectors.
#[derive(Clone, Copy)]
struct OnVectors {
    run: OnKey,
    /// Its program, if transforms bound its time.
    program: Option<Operation>,
    /// Whether the secret key encrypts, if it encrypts.
    by_owner: Option<bool>,
    /// Ciphertexts that it gives, and the same work one by one.
    results: usize,
    singly: Option<OnKey>,
}

/// Leaves a result to the caller of `timed`, which keeps it from being optimised away.
fn done<T>(result: Result<T, Error>) -> Result<(), Error> {
    drop(std::hint::black_box(result?));
    Ok(())
}

/// Returns the table, in the order in which cases are measured.
#[rustfmt::skip]
fn all() -> Vec<Case> {
    let plain = Batches { usual: [1024; 2], has_values: false, is_whole: false, make: Shop::correct, singly: None };
    let valued = Batches { has_values: true, ..plain };
    let paillier = [
        ("encrypt", "a full plaintext with the public key alone, and a fresh mask of n/2 bits",
            Batches { usual: [512; 2], make: |shop, count| shop.encrypt(false, count), ..valued }),
        ("encrypt_owner", "a full plaintext with the secret key: masks modulo p² and q²",
            Batches { usual: [512; 2], make: |shop, count| shop.encrypt(true, count), ..valued }),
        ("decrypt", "from the words of a ciphertext to the words of its plaintext",
            Batches { usual: [192, 64], make: Shop::decrypt, ..valued }),
        ("add", "two ciphertexts, in the form that additions leave in memory",
            Batches { make: Shop::add, ..valued }),
        ("add_plain", "a ciphertext and a full plaintext, likewise",
            Batches { make: Shop::add_plain, ..valued }),
        ("mul_plain", "a ciphertext by a secret random unsigned scalar of 64 bits",
            Batches { usual: [512; 2], make: Shop::mul_plain, ..plain }),
        ("sum", "the sum of a batch of 16,384 ciphertexts, divided by their number",
            Batches { usual: [16_384; 2], is_whole: true, make: Shop::sum, ..plain }),
        ("matvec", "64 rows of secret random signed 16-bit entries by a vector of 256 ciphertexts, \
             divided by the number of entries",
            Batches { usual: [64 * MATRIX_COLUMNS; 2], is_whole: true, make: Shop::matvec,
                singly: Some(Shop::singles), ..plain }),
        ("mod_exp", "modulo n², a public random exponent of all the bits of n for each",
            Batches { usual: [32; 2], make: Shop::mod_exp, ..plain }),
        ("mod_mul", "modulo n², from ordinary numbers to an ordinary number",
            Batches { make: Shop::mod_mul, ..plain }),
        ("correct", "from the form in memory to an ordinary ciphertext, before it is stored or sent",
            plain),
    ];
    let sums: [(_, _, fn(&Round) -> _); 4] = [
        ("quantise", "1,000,000 float32 to integers, the first part of encrypt",
            |round| done(round.quantise())),
        ("encrypt", "1,000,000 float32 to the bytes of a contribution to another round", |round| done(round.encrypt())),
        ("aggregate", "the bytes of 10 contributions to those of their sum",
            |round| done(round.aggregate())),
        ("decrypt", "the bytes of a sum to the mean in float32", |round| done(round.decrypt())),
    ];
    let opened: [(_, _, fn(&Round) -> _); 2] = [
        ("encrypt", "the same, under a secret that is shared among four openers, any three of whom open",
            |round| done(round.encrypt())),
        ("decrypt", "the bytes of a sum, and three answers, to the mean in float32", |round| done(round.decrypt())),
    ];
    let alone = OnVectors {
        run: |vectors| done(vectors.decrypt()), program: None, by_owner: None, results: 1, singly: None,
    };
    let vectors = [
        ("multiply", "two fresh ciphertexts, relinearised and rescaled",
            OnVectors { run: |v| done(v.multiply()), program: Some(Operation::Multiply), ..alone }),
        ("rotate", "a fresh ciphertext by one slot",
            OnVectors { run: |v| done(v.rotate()), program: Some(Operation::Rotate), ..alone }),
        ("rotate_eight", "the same by one to eight slots, which share its digits",
            OnVectors { run: |v| done(v.rotate_eight()), results: 8,
                singly: Some(|v| done(v.rotate_singly())), ..alone }),
        ("encrypt", "numbers for all slots, encoded and encrypted with the public key",
            OnVectors { run: |v| done(v.encrypt(false)), by_owner: Some(false), ..alone }),
        ("encrypt_owner", "the same with the secret key: half of it is a seed",
            OnVectors { run: |v| done(v.encrypt(true)), by_owner: Some(true), ..alone }),
        ("decrypt", "a fresh ciphertext to the numbers of all slots", alone),
    ];
    let screen = "the bytes of a client's 1,000,000 values to its norm and its product with a \
                  reference, divided by the clients of a round of 10";
    let product = "a Montgomery product of 2048, 4096 and 6144 bits";
    let kernels = [
        ("mont_mul", product, None, Kernel::MontMul, 2048),
        ("mont_mul", product, None, Kernel::MontMul, 4096),
        ("mont_mul", product, None, Kernel::MontMul, 6144),
        ("ntt_4096", "a transform or its inverse modulo one prime, N = 4096", Some("ntt"), Kernel::Ntt, 4096),
        ("ntt_8192", "the same, N = 8192", Some("ntt"), Kernel::Ntt, 8192),
        ("ntt_16384", "the same, N = 16,384", Some("ntt"), Kernel::Ntt, 16_384),
        ("ntt_32768", "the same, N = 32,768", Some("ntt"), Kernel::Ntt, 32_768),
        ("automorphism", "X to X^5 in NTT form modulo one prime, N = 8192", Some("automorphism"),
            Kernel::Automorphism, 8192),
        ("base_extend", "integers modulo two primes to residues of eight others, N = 8192", Some("base_extend"),
            Kernel::BaseExtend, 8192),
        ("poly_add", "a sum of polynomials modulo two primes, N = 8192: memory's rate", Some("ntt"),
            Kernel::PolyAdd, 8192),
        ("copy", "a MiB there and a MiB back, with the sums of a program of one step", Some("ntt"),
            Kernel::Copy, 8192),
    ];
    let moduli = [
        ("mul", "a product of ordinary numbers, modulo squares of 2048, 4096 and 6144 bits", Step::Mul),
        ("pair_mul", "a Montgomery product of numbers kept as pairs of digits", Step::PairMul),
        ("product", "the product of 16 numbers", Step::Product),
        ("pow_secret", "an exponent of half the bits of the modulus, in constant time", Step::PowSecret),
        ("pow_public", "the same, not in constant time", Step::PowPublic),
        ("pow_fixed_base", "a base with a table, a secret exponent of a quarter of the bits", Step::PowFixedBase),
        ("dot_secret", "powers of 64 shared bases, secret exponents of 16 bits", Step::Dot),
    ];
    let polynomials = [
        ("uniform", "the sum of ten uniform polynomials, N = 4096, modulo two primes", Step::Uniform),
        ("noise", "fresh noise of such a polynomial", Step::Noise),
        ("pack", "its residues to beats", Step::Pack),
        ("add_beats", "the sum, lane by lane, of two times its beats", Step::AddBeats),
    ];
    let case = |scheme, (name, about), needs, run| Case { scheme, name, about, needs, run };
    let paillier = paillier.map(|(name, about, batches)| {
        // Entries of a matrix have signs.
        let needs = batches.singly.map(|_| "invert");
        case(PAILLIER, (name, about), needs, Run::Paillier(batches))
    });
    // Whatever is measured, the mean of a round is checked.
    let sum = |scheme: Scheme| {
        move |(name, about, run)| case(scheme.name(), (name, about), Some("ntt"), Run::Sum(scheme, run))
    };
    let opened = opened.into_iter().map(sum(Scheme::CkksSumThreshold));
    let sums = sums.into_iter().map(sum(Scheme::CkksSum)).chain(opened);
    // Programs over vectors have all steps that are not of whole chunks.
    let rare = Some("base_extend");
    let vectors = Preset::ALL.into_iter().flat_map(|preset| {
        let of = vectors.map(|(name, about, on)| case(preset.name(), (name, about), rare, Run::Vectors(preset, on)));
        of.into_iter().chain([case(preset.name(), ("screen", screen), rare, Run::Screen(preset))])
    });
    let kernels = kernels.map(|(name, about, needs, kernel, size)| {
        case(KERNELS, (name, about), needs, Run::Kernel(kernel, size))
    });
    let step = |(name, about, step), bits| case(STEPS, (name, about), Some(name), Run::Step(step, bits));
    let moduli = moduli.into_iter().flat_map(|of| [2048, 4096, 6144].map(|bits| step(of, bits)));
    let steps = moduli.chain(polynomials.map(|of| step(of, PRIME_BITS)));
    paillier.into_iter().chain(sums).chain(vectors).chain(kernels).chain(steps).collect()
}

impl Case {
    /// Returns whether it is among what is called by no preset. Screening takes one level.
    fn is_usual(&self) -> bool {
        match self.run {
            Run::Vectors(preset, _) => {
                matches!(preset, Preset::Slots4096Levels1 | Preset::Slots8192Levels7)
            }
            Run::Screen(preset) => preset == Preset::Slots4096Levels1,
            _ => false,
        }
    }

    /// Returns its name where schemes go by `scheme`.
    fn name_under(&self, scheme: &str) -> String {
        match scheme {
            PAILLIER => self.name.into(),
            scheme => format!("{scheme}/{}", self.name),
        }
    }

    /// Returns whether a word of `--ops` asks for it.
    fn is_named(&self, word: &str) -> bool {
        let by = |scheme: &str| word == scheme || word == self.name_under(scheme);
        by(self.scheme) || self.is_usual() && by(CKKS)
    }

    /// Returns what an engine lacks to run it, if it lacks something.
    fn missing(&self, engine: &Metered) -> Option<String> {
        let step = self.needs.filter(|step| !engine.supports(step))?;
        let (name, engine) = (self.name_under(self.scheme), engine.name());
        Some(format!("{name} is not measured: engine {engine} has no step {step}"))
    }
}

/// The cases that `--ops` asks for, each once.
#[derive(Clone)]
pub struct Cases(Vec<Case>);

impl Cases {
    /// Reads names with commas between. The name of a scheme is all its operations; names without one are Paillier's.
    ///
    /// # Errors
    /// Says that there is no operation of a name, and which there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (all, mut found) = (all(), vec![]);
        for word in text.split(',') {
            let mut named = (0..all.len()).filter(|&case| all[case].is_named(word)).peekable();
            if named.peek().is_none() {
                return Err(unknown(word, &all));
            }
            let new: Vec<_> = named.filter(|case| !found.contains(case)).collect();
            found.extend(new);
        }
        Ok(Self(found.into_iter().map(|case| all[case]).collect()))
    }

    fn of_paillier(&self) -> impl Iterator<Item = (&Case, &Batches)> {
        self.0.iter().filter_map(|case| match &case.run {
            Run::Paillier(batches) => Some((case, batches)),
            _ => None,
        })
    }

    /// Returns whether keys of Paillier's scheme matter.
    #[must_use]
    pub fn has_paillier(&self) -> bool {
        self.of_paillier().next().is_some()
    }

    /// Returns the rows of each engine, where Paillier's have `sizes` of keys.
    #[must_use]
    pub fn rows(&self, sizes: usize) -> usize {
        self.0.len() + self.of_paillier().count() * sizes.saturating_sub(1)
    }

    /// Measures all on each engine, and hands on each row as it is found, or why an engine has none. Runs in a
    /// pool of as many threads.
    ///
    /// # Errors
    /// The engine's, also if it computes something else; no randomness; those of `found`.
    pub fn measure(
        &self,
        bits: &[u32],
        engines: &[Arc<Metered>],
        effort: Effort,
        mut found: impl FnMut(Result<Row, String>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for &bits in bits.iter().filter(|_| self.has_paillier()) {
            let key = Arc::new(Key::of_bits(bits)?);
            for engine in engines {
                for (case, batches) in self.of_paillier() {
                    found(match case.missing(engine) {
                        Some(text) => Err(text),
                        None => Ok(effort.batches(case, batches, &key, engine)?),
                    })?;
                }
            }
        }
        for engine in engines {
            let (mut round, mut vectors) = (None, None);
            for case in &self.0 {
                if matches!(case.run, Run::Paillier(_)) {
                    continue;
                }
                if let Some(text) = case.missing(engine) {
                    found(Err(text))?;
                    continue;
                }
                found(Ok(match case.run {
                    Run::Paillier(_) => continue,
                    Run::Sum(scheme, run) => {
                        let round = match &mut round {
                            Some((of, round)) if *of == scheme => round,
                            other => {
                                &mut other.insert((scheme, Round::new(engine.clone(), scheme)?)).1
                            }
                        };
                        effort.sum(case, run, round, engine)?
                    }
                    Run::Vectors(preset, on) => {
                        let vectors = match &mut vectors {
                            Some((of, vectors)) if *of == preset => vectors,
                            other => {
                                &mut other.insert((preset, Vectors::new(preset, &**engine)?)).1
                            }
                        };
                        effort.vectors(case, &on, vectors, engine)?
                    }
                    Run::Screen(preset) => effort.screen(case, preset, engine)?,
                    Run::Kernel(kernel, size) => effort.kernel(case, kernel, size, engine)?,
                    Run::Step(step, bits) => effort.step(case, step, bits, engine)?,
                }))?;
            }
        }
        Ok(())
    }
}

/// How to measure a row.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Threads that call engines.
    pub threads: usize,
    /// About how long, after warming up.
    pub duration: Duration,
    /// The clock of cards to project rates for, in MHz.
    pub clock: Option<f64>,
}

impl Effort {
    /// Returns what rows of all kinds have, of batches of `batch` operations.
    fn row(self, case: &Case, bits: u32, engine: &Metered, batch: usize, times: &Times) -> Row {
        // A difference that others' work hid is no time.
        let each = |share| Some(times.quantile(share) / batch as f64).filter(|&time| time > 0.0);
        Row {
            operation: case.name.into(),
            scheme: case.scheme.into(),
            bits,
            engine: engine.name().into(),
            threads: self.threads,
            batch,
            count: times.batches * batch,
            median_s: each(0.5),
            p10_s: each(0.1),
            p90_s: each(0.9),
            disturbed: times.disturbed,
            ..Row::default()
        }
    }

    fn batches(
        self,
        case: &Case,
        batches: &Batches,
        key: &Arc<Key>,
        engine: &Arc<Metered>,
    ) -> Result<Row, Failure> {
        let rng = ciphergram_he::random::generator()?;
        let mut shop = Shop { key: key.clone(), engine: engine.clone(), rng };
        let batch = self.batch(batches, &mut shop)?;
        let mut work = (batches.make)(&mut shop, batch)?;
        let counted = engine.count(&mut work)?;
        let times = match engine.is_simulated() {
            true => Times::of_one(counted.seconds),
            false => sample(&mut work, self.duration)?,
        };
        let mut row = self.row(case, key.bits, engine, batch, &times);
        row.values = batches.has_values.then_some(key.values);
        row.is_insecure = key.bits <= INSECURE_BITS;
        row.set_multiplies(counted.multiplies as f64 / batch as f64, engine.rate_of(self.threads));
        if let Some(all) = counted.cycles.filter(|all| all.cycles > 0) {
            let cycles = all.cycles as f64 / batch as f64;
            let busy = all.busy as f64 / (all.cycles * all.multipliers.max(1)) as f64;
            row.limit_fraction = Some(busy).filter(|&busy| busy > 0.0);
            (row.cycles, row.beats) = (Some(cycles), Some(all.beats as f64 / batch as f64));
            row.simulated = Some(engine.is_simulated());
            row.projected_clock_mhz = self.clock;
            row.projected_rate = self.clock.map(|clock| 1e6 * clock / cycles);
        }
        if let Some(singly) = batches.singly.filter(|_| !engine.is_simulated()) {
            let count = LANES * MATRIX_COLUMNS / 2 * self.threads;
            let singles = sample(&mut singly(&mut shop, count)?, self.duration)?;
            row.set_singles(singles.quantile(0.5) / count as f64);
        }
        Ok(row)
    }

    /// Chooses the operations of one batch: as many as are usual or fill the engine, fewer on a slow one.
    fn batch(self, batches: &Batches, shop: &mut Shop) -> Result<usize, Failure> {
        let usual = batches.usual[usize::from(shop.key.bits > 2048)] * self.threads;
        if batches.is_whole {
            return Ok(usual);
        }
        if shop.engine.is_simulated() {
            // The first makes what the engine keeps.
            (batches.make)(shop, 1)?()?;
            return Ok((usual / SIMULATED).max(LANES * self.threads));
        }
        let (mut count, most) = (LANES * self.threads, usual.max(shop.engine.info().full_batch));
        loop {
            let mut work = (batches.make)(shop, count)?;
            work()?;
            let next = most.min(count * GROWTH);
            if count == most || work()? * next as f64 / count as f64 > LONGEST_BATCH {
                return Ok(count);
            }
            count = next;
        }
    }

    /// Counts no multiply instructions: much of the time goes to what no rate of them bounds.
    fn sum(
        self,
        case: &Case,
        run: fn(&Round) -> Result<(), Error>,
        round: &Round,
        engine: &Metered,
    ) -> Result<Row, Failure> {
        let times = sample(&mut timed(|| run(round)), self.duration)?;
        Ok(Row {
            values: Some(round.values()),
            clients: Some(CLIENTS),
            bytes_per_value: Some(round.bytes_per_value()),
            ..self.row(case, VALUE_BITS, engine, 1, &times)
        })
    }

    /// Works on `threads` vectors at a time. The limit of what transforms bound is their time, measured before.
    fn vectors(
        self,
        case: &Case,
        on: &OnVectors,
        vectors: &Vectors<'_>,
        engine: &Arc<Metered>,
    ) -> Result<Row, Failure> {
        let parameters = vectors.evaluator.parameters();
        let program = on.program.and_then(|operation| operation.program(parameters));
        let transform = match &program {
            Some(_) => transform_s(parameters.degree(), engine, self.duration)?,
            None => None,
        };
        let times = sample(&mut self.on_each(|| (on.run)(vectors)), self.duration)?;
        let mut row = self.row(case, key_bits(&vectors.evaluator), engine, self.threads, &times);
        row.values = Some(on.results * parameters.slots());
        row.transforms = program.as_ref().map(|program| program.transforms());
        let all = program.map(|program| work(&program, parameters.degree()));
        row.set_limit(all.zip(transform).map(|(all, each)| all * each));
        if let Some(singly) = on.singly {
            let singles = sample(&mut self.on_each(|| singly(vectors)), self.duration)?;
            row.set_singles(singles.quantile(0.5) / self.threads as f64);
        }
        if let Some(owner) = on.by_owner {
            let (error, bytes) = vectors.fresh(owner)?;
            (row.error, row.bytes_per_value) = (Some(error), Some(bytes));
        }
        Ok(row)
    }

    fn screen(self, case: &Case, preset: Preset, engine: &Metered) -> Result<Row, Failure> {
        let screened = Screened::new(preset, engine)?;
        let times = sample(&mut self.on_each(|| done(screened.run())), self.duration)?;
        let batch = self.threads * CLIENTS as usize;
        let row = self.row(case, key_bits(&screened.evaluator), engine, batch, &times);
        Ok(Row { values: Some(screened.values), ..row })
    }

    /// Returns work that runs once on each thread.
    fn on_each<'a>(self, run: impl Fn() -> Result<(), Error> + Sync + 'a) -> Work<'a> {
        timed(move || match self.threads {
            1 => run(),
            threads => (0..threads).into_par_iter().try_for_each(|_| run()),
        })
    }

    fn step(
        self,
        case: &Case,
        step: Step,
        bits: u32,
        engine: &Arc<Metered>,
    ) -> Result<Row, Failure> {
        // Rings of steps have no modulus of their own.
        let single = Single::new(step, bits.next_multiple_of(128), engine.clone())?;
        let mut work = single.work();
        let counted = engine.count(&mut work)?;
        let times = sample(&mut work, self.duration)?;
        let mut row = self.row(case, bits, engine, single.items, &times);
        let each = counted.multiplies as f64 / single.items as f64;
        row.set_multiplies(each, engine.rate_of(self.threads));
        Ok(row)
    }

    /// Measures chains of the step.
    fn kernel(
        self,
        case: &Case,
        kernel: Kernel,
        size: usize,
        engine: &Arc<Metered>,
    ) -> Result<Row, Failure> {
        let chains = Chains::new(kernel, size, engine.clone())?;
        let (mut work, multiplies) = chains.step()?;
        let times = sample(&mut work, self.duration)?;
        let bits = if kernel == Kernel::MontMul { size as u32 } else { PRIME_BITS };
        let mut row = self.row(case, bits, engine, chains.operations, &times);
        row.bytes = Some(chains.bytes);
        row.set_multiplies(multiplies / row.batch as f64, engine.rate_of(self.threads));
        if matches!(kernel, Kernel::Automorphism | Kernel::BaseExtend) {
            let transform = transform_s(size, engine, self.duration)?;
            row.in_transforms = row.median_s.zip(transform).map(|(own, each)| own / each);
        }
        Ok(row)
    }
}

/// Returns the bits of the product of all primes.
fn key_bits(evaluator: &Evaluator<'_>) -> u32 {
    evaluator.parameters().log_qp().ceil() as u32
}

/// Returns the cases that a scheme stands for, of each name the first.
fn once_each<'c>(all: &'c [Case], scheme: &str) -> impl Iterator<Item = &'c Case> {
    let mut seen = BTreeSet::new();
    all.iter().filter(move |case| case.is_named(scheme) && seen.insert(case.name))
}

/// The column of definitions in a line of the help.
const DEFINITIONS: usize = 24;

/// Returns the definitions of all operations, for `--help`.
#[must_use]
pub fn help() -> String {
    let (all, mut text) = (all(), String::from("Operations:\n"));
    for scheme in [PAILLIER, CKKS_SUM, CKKS, KERNELS, STEPS] {
        for case in once_each(&all, scheme) {
            let name = case.name_under(scheme);
            let (mut line, mut column) = (format!("  {name:<20}  "), DEFINITIONS);
            for word in case.about.split(' ') {
                if column + word.chars().count() >= 100 {
                    line += &format!("\n{:DEFINITIONS$}", "");
                    column = DEFINITIONS;
                }
                line += &format!("{word} ");
                column += word.chars().count() + 1;
            }
            text += &format!("{}\n", line.trim_end());
        }
    }
    text += "\nTimes are by the clock, of whole batches divided by their operations. Percentages are of the\n\
             multiply instructions that the threads, or a device, could have issued meanwhile; of products and\n\
             rotations under ckks, of their transforms. A name without a scheme is Paillier's; ckks is short for\n\
             ckks-4096x1 and ckks-8192x7, and other presets go by their names. See benches/README.md.";
    text
}

/// Says that there is no operation of a name, and which there are.
fn unknown(word: &str, all: &[Case]) -> String {
    let of = |scheme: &str| {
        once_each(all, scheme).map(|case| case.name_under(scheme)).collect::<Vec<_>>().join(", ")
    };
    let [paillier, sums, levelled, kernels, steps] =
        [PAILLIER, CKKS_SUM, CKKS, KERNELS, STEPS].map(of);
    let presets = Preset::ALL.map(Preset::name).join(", ");
    format!(
        "no operation {word:?}; there are {PAILLIER} (all of {paillier}), {CKKS_SUM} (all of {sums}), {CKKS} (all of \
         {levelled}; in place of {CKKS} also {presets}), {KERNELS} (all of {kernels}) and \
         {STEPS} (all of {steps})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let found = Cases::parse(text)?.0;
        Ok(found.iter().map(|case| case.name_under(case.scheme)).collect())
    }

    #[test]
    fn names_are_read_once_each_in_order() {
        let (paillier, sums) = (read("paillier").unwrap(), read("ckks-sum").unwrap());
        assert_eq!((paillier.len(), sums.len()), (11, 4));
        assert_eq!(read("ckks-sum,paillier").unwrap(), [&sums[..], &paillier].concat());
        assert_eq!(read("mod_mul,add,mod_mul").unwrap(), ["mod_mul", "add"]);
        let mixed = ["ckks-sum/decrypt", "encrypt"];
        assert_eq!(read("ckks-sum/decrypt,encrypt,ckks-sum/decrypt").unwrap(), mixed);
        assert_eq!(
            (read("kernels").unwrap().len(), read("kernels/mont_mul").unwrap().len()),
            (11, 3)
        );
        assert_eq!(read("add,paillier").unwrap().len(), paillier.len());
        assert_eq!((read("steps").unwrap().len(), read("steps/mul").unwrap().len()), (25, 3));
        for bad in ["", "ad", "Add", "add,", "add sum", "aggregate", "ckks-sum/"] {
            assert!(read(bad).unwrap_err().starts_with("no operation \""), "{bad}");
        }
    }

    #[test]
    fn levelled_operations_go_by_their_presets() {
        let all = read("ckks").unwrap();
        assert_eq!(all.len(), 2 * 7 - 1);
        assert!(all[..7].iter().all(|name| name.starts_with("ckks-4096x1/")));
        assert_eq!(all.last().unwrap(), "ckks-8192x7/decrypt");
        let products = ["ckks-4096x1/multiply", "ckks-8192x7/multiply"];
        assert_eq!(read("ckks/multiply,ckks-4096x1/multiply").unwrap(), products);
        assert_eq!(read("ckks-16384x14").unwrap().len(), 7);
        assert_eq!(read("ckks-8192x7/screen").unwrap(), ["ckks-8192x7/screen"]);
        for bad in ["ckks/", "ckks/ad", "ckks-", "ckks-4096x1/", "ckks-4096x12", "ckksé"] {
            assert!(read(bad).unwrap_err().contains("ckks/rotate_eight"), "{bad}");
        }
    }

    #[test]
    fn help_has_narrow_lines() {
        let text = help();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
