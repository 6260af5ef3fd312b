//! One row of the report: an operation, measured.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ciphergram_accel::{Engine, Program};
use serde::{Deserialize, Serialize};

use super::{
    kernels::Chains,
    key::{INSECURE_BITS, Key},
    levelled::{self, Fresh, Vectors},
    machine::Measured,
    metered::{Counted, Metered},
    operation::{
        CKKS_SUM, KERNELS, KernelOperation, LevelledOperation, MATRIX_COLUMNS, Operation, PAILLIER,
        SumOperation,
    },
    sampling::{Times, once, sample},
    sums::{CLIENTS, Round, VALUE_BITS},
    work::Workshop,
};
use crate::failure::Failure;

/// The longest that a batch may last, in seconds, before a smaller one is taken.
const LONGEST_BATCH: f64 = 1.0;
/// Batches that are tried grow by this, until one is as large as it should be or the next would
/// last too long.
const GROWTH: usize = 8;
/// Operations of the first batch tried, for each thread: no vector of numbers is longer.
const LANES: usize = 8;

/// The part of a usual batch that a simulation takes: it counts cycles as well as a large one.
const SIMULATED: usize = 16;

/// The figures of one operation, an element of the field `rows` of a report. Times are in seconds
/// per single operation; none where others' work hid a difference of two.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) operation: String,
    pub(crate) scheme: String,
    /// Of n, under `ckks-sum` of a quantised value, or of all primes of a levelled preset.
    pub(crate) bits: u32,
    pub(crate) engine: String,
    pub(crate) threads: usize,
    /// Operations of one batch.
    pub(crate) batch: usize,
    /// Operations in all.
    pub(crate) count: usize,
    pub(crate) median_s: Option<f64>,
    pub(crate) p10_s: Option<f64>,
    pub(crate) p90_s: Option<f64>,
    /// Multiply instructions of one operation, if the engine counts them.
    pub(crate) multiplies: Option<f64>,
    /// The part of the multiply instructions that the threads, or the device, could have issued.
    pub(crate) limit_fraction: Option<f64>,
    /// What one operation takes of a card, and at which rate it would do them.
    #[serde(flatten)]
    pub(crate) card: Option<OnCard>,
    /// Gradient values that one operation carries, if it carries any.
    #[serde(rename = "values_per_operation")]
    pub(crate) values: Option<usize>,
    /// Of a matrix product, and of rotations that share digits: the time of the same work in single operations,
    /// divided by its own.
    pub(crate) speedup_over_single: Option<f64>,
    /// The part of the time for which other work had the cores, where the system counts it.
    pub(crate) disturbed: Option<f64>,
    /// Whether its key is for comparison with papers only.
    #[serde(rename = "insecure")]
    pub(crate) is_insecure: bool,
    /// Under `ckks-sum`, whose operations are on whole contributions, and of what encrypts vectors.
    #[serde(flatten)]
    pub(crate) upload: Option<Upload>,
    /// Of what encrypts vectors: the most that a slot is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<f64>,
    /// Transforms modulo one prime that its program takes, of products and rotations of vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transforms: Option<usize>,
    /// Of a step by itself: its time, divided by that of a transform of the same degree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) in_transforms: Option<f64>,
    /// Of a step by itself: bytes of memory that it at least reads and writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<usize>,
}

/// What one operation takes of a card, which counts cycles: nobody has measured its clock.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct OnCard {
    /// Cycles of the card: some of many operations at a time.
    pub(crate) cycles: f64,
    /// Beats of 64 bytes of card memory that it reads and writes.
    pub(crate) beats: f64,
    /// Whether a program stands in for the card, so that its times are those of a simulation.
    #[serde(rename = "simulated")]
    pub(crate) is_simulated: bool,
    /// Operations a second at a clock that somebody assumes, if one is given.
    #[serde(flatten)]
    pub(crate) projected: Option<Projected>,
}

/// A rate that nobody has measured.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Projected {
    /// The clock that is assumed, in MHz.
    #[serde(rename = "projected_clock_mhz")]
    pub(crate) clock: f64,
    /// Operations a second at that clock.
    #[serde(rename = "projected_rate")]
    pub(crate) rate: f64,
}

/// How to measure a row.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) threads: usize,
    /// About how long, after warming up.
    pub(crate) duration: Duration,
    /// The clock of cards to project rates for, in MHz.
    pub(crate) clock: Option<f64>,
}

/// What a client sends.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Upload {
    /// Contributions to a sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clients: Option<u32>,
    /// Bytes of its file for each value.
    pub(crate) bytes_per_value: f64,
}

impl Row {
    /// Returns the fields that rows of all kinds have. Times are those of batches of `batch`
    /// operations.
    fn new(
        (scheme, operation, bits): (&'static str, &'static str, u32),
        (engine, threads): (&'static str, usize),
        (times, batch): (&Times, usize),
    ) -> Self {
        // A difference that others' work hid is no time.
        let each = |share| Some(times.quantile(share) / batch as f64).filter(|&time| time > 0.0);
        let [p10_s, median_s, p90_s] = [0.1, 0.5, 0.9].map(each);
        Self {
            operation: operation.into(),
            scheme: scheme.into(),
            bits,
            engine: engine.into(),
            threads,
            batch,
            count: times.batches * batch,
            median_s,
            p10_s,
            p90_s,
            multiplies: None,
            limit_fraction: None,
            card: None,
            values: None,
            speedup_over_single: None,
            disturbed: times.disturbed,
            is_insecure: false,
            upload: None,
            error: None,
            transforms: None,
            in_transforms: None,
            bytes: None,
        }
    }

    /// Adds the multiply instructions of a batch, if the engine counts them, and the part of its
    /// rate that they reach.
    fn with_multiplies(self, of_batch: Option<f64>, rate: Option<f64>) -> Self {
        let each = of_batch.map(|all| all / self.batch as f64).filter(|&each| each > 0.0);
        let limit = rate.zip(self.median_s).map(|(rate, time)| time * rate);
        let limit_fraction = each.zip(limit).map(|(issued, limit)| issued / limit);
        Self { multiplies: each, limit_fraction, ..self }
    }

    /// Adds what a batch took of a card. The part of its limit is then that of its multiplier-cycles.
    fn with_card(self, counted: Counted, is_simulated: bool, clock: Option<f64>) -> Self {
        let Some(all) = counted.cycles.filter(|all| all.cycles > 0) else { return self };
        let cycles = all.cycles as f64 / self.batch as f64;
        let projected = clock.map(|clock| Projected { clock, rate: 1e6 * clock / cycles });
        let busy = all.busy as f64 / (all.cycles * all.multipliers.max(1)) as f64;
        let beats = all.beats as f64 / self.batch as f64;
        let card = Some(OnCard { cycles, beats, is_simulated, projected });
        Self { card, limit_fraction: Some(busy).filter(|&busy| busy > 0.0), ..self }
    }

    /// Measures after warming up; a simulation by one batch, since its time says little. Runs in a pool of as many
    /// threads.
    pub(crate) fn measure(
        operation: Operation,
        key: &Key,
        measured: &Measured,
        effort: Effort,
    ) -> Result<Self, Failure> {
        let Effort { threads, duration, clock } = effort;
        let engine = Arc::new(Metered::new(measured));
        let is_simulated = measured.is_simulated();
        let rng = ciphergram_he::random::generator()?;
        let mut workshop = Workshop { key, engine: engine.clone(), rng };
        let batch = batch(operation, &mut workshop, threads, is_simulated)?;
        let mut work = workshop.work(operation, batch)?;
        work.prepare()?;
        let start = Instant::now();
        let (result, counted) = engine.count(|| work.run());
        result?;
        let first = Times::of_one(start.elapsed());
        let times = if is_simulated { first } else { sample(&mut *work, duration)? };
        let row = Self::new(
            (PAILLIER, operation.name(), key.bits),
            (measured.engine.name(), threads),
            (&times, batch),
        );
        let speedup_over_single = match operation {
            Operation::Matvec if !is_simulated => {
                let count = LANES * MATRIX_COLUMNS / 2 * threads;
                let singles = sample(&mut *workshop.singles(count)?, duration)?;
                row.median_s.map(|time| singles.quantile(0.5) / count as f64 / time)
            }
            _ => None,
        };
        let multiplies = counted.multiplies.map(|all| all as f64);
        let row = row.with_multiplies(multiplies, measured.rate_of(threads));
        Ok(Self {
            values: operation.carries_values().then_some(key.values),
            speedup_over_single,
            is_insecure: key.bits <= INSECURE_BITS,
            ..row.with_card(counted, is_simulated, clock)
        })
    }

    /// Measures an operation on whole contributions for about `duration` after warming up. Multiply
    /// instructions are not counted: much of the time goes to what no rate of them bounds.
    pub(crate) fn measure_sum(
        operation: SumOperation,
        round: &Round,
        engine: &'static str,
        Effort { threads, duration, .. }: Effort,
    ) -> Result<Self, Failure> {
        let times = sample(&mut || round.run(operation), duration)?;
        let name = (CKKS_SUM, operation.name(), VALUE_BITS);
        Ok(Self {
            values: Some(round.values()),
            upload: Some(Upload {
                clients: Some(CLIENTS),
                bytes_per_value: round.bytes_per_value(),
            }),
            ..Self::new(name, (engine, threads), (&times, 1))
        })
    }

    /// Measures a step by itself for about `duration` after warming up, on chains of it.
    pub(crate) fn measure_kernel(
        operation: KernelOperation,
        measured: &Measured,
        Effort { threads, duration, .. }: Effort,
    ) -> Result<Self, Failure> {
        let engine = Arc::new(Metered::new(measured));
        let chains = Chains::new(engine.clone(), operation)?;
        let (times, multiplies) = chains.measure(duration, |work| {
            let (result, counted) = engine.count(work);
            result.map(|()| counted.multiplies)
        })?;
        let name = (KERNELS, operation.name, operation.bits());
        let engine = (measured.engine.name(), threads);
        let row = Self::new(name, engine, (&times, chains.operations()))
            .with_multiplies(multiplies, measured.rate_of(threads));
        let transform = match operation.is_of_a_transform() {
            true => transform_s(&measured.engine, operation.size, duration)?,
            false => None,
        };
        let in_transforms = row.median_s.zip(transform).map(|(own, transform)| own / transform);
        Ok(Self { bytes: Some(chains.bytes()), in_transforms, ..row })
    }

    /// Measures an operation on encrypted vectors for about `duration` after warming up. The limit of what its
    /// transforms bound is their time, measured before it.
    pub(crate) fn measure_levelled(
        operation: LevelledOperation,
        vectors: &Vectors<'_>,
        engine: &Arc<dyn Engine>,
        Effort { threads, duration, .. }: Effort,
    ) -> Result<Self, Failure> {
        let program = levelled::program(operation, vectors.preset());
        let transform = match program {
            Some(_) => transform_s(engine, vectors.degree(), duration)?,
            None => None,
        };
        let times = sample(&mut || vectors.run(operation, threads), duration)?;
        let name = (vectors.preset().name(), operation.name(), vectors.bits());
        let batch = threads * Vectors::operations(operation);
        let row = Self::new(name, (engine.name(), threads), (&times, batch));
        let work = program.as_ref().map(|program| levelled::work(program, vectors.degree()));
        let least = work.zip(transform).map(|(work, transform)| work * transform);
        let speedup_over_single = match operation {
            LevelledOperation::RotateEight => {
                let singles = sample(&mut || vectors.turn_singly(threads), duration)?;
                row.median_s.map(|time| singles.quantile(0.5) / batch as f64 / time)
            }
            _ => None,
        };
        let fresh = vectors.fresh(operation)?;
        Ok(Self {
            values: Some(vectors.values(operation)),
            limit_fraction: least.zip(row.median_s).map(|(least, time)| least / time),
            speedup_over_single,
            transforms: program.as_ref().map(Program::transforms),
            error: fresh.as_ref().map(|fresh| fresh.error),
            upload: fresh
                .map(|Fresh { bytes_per_value, .. }| Upload { clients: None, bytes_per_value }),
            ..row
        })
    }

    /// Returns the name as it is typed.
    pub(crate) fn name(&self) -> String {
        match self.scheme.as_str() {
            PAILLIER => self.operation.clone(),
            scheme => format!("{scheme}/{}", self.operation),
        }
    }

    /// Returns the operations a second.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.median_s.map(|time| 1.0 / time)
    }

    /// Returns the gradient values a second, of an operation that carries some.
    pub(crate) fn value_rate(&self) -> Option<f64> {
        self.rate().zip(self.values).map(|(rate, values)| rate * values as f64)
    }

    fn subject(&self) -> (&str, &str, u32, &str, usize) {
        (&self.scheme, &self.operation, self.bits, &self.engine, self.threads)
    }

    /// Returns whether two rows are about the same on the same kind of engine.
    pub(crate) fn is_about(&self, other: &Self) -> bool {
        self.subject() == other.subject()
    }
}

/// Measures the transform of one polynomial modulo one prime, in seconds; nothing where others' work hid it.
fn transform_s(
    engine: &Arc<dyn Engine>,
    degree: usize,
    duration: Duration,
) -> Result<Option<f64>, Failure> {
    let chains = Chains::new(engine.clone(), KernelOperation::transform(degree))?;
    let (times, _) = chains.measure(duration, |work| work().map(|()| None))?;
    let each = times.quantile(0.5) / chains.operations() as f64;
    Ok(Some(each).filter(|&each| each > 0.0))
}

/// Chooses the operations of one batch: as many as are usual or fill the engine, fewer on a slow
/// one.
fn batch(
    operation: Operation,
    workshop: &mut Workshop<'_>,
    threads: usize,
    is_simulated: bool,
) -> Result<usize, Failure> {
    let usual = operation.batch(workshop.key.bits) * threads;
    if matches!(operation, Operation::Matvec | Operation::Sum) {
        // What each costs depends on how many there are.
        return Ok(usual);
    }
    if is_simulated {
        // The first makes what the engine keeps.
        once(&mut *workshop.work(operation, 1)?)?;
        return Ok((usual / SIMULATED).max(LANES * threads));
    }
    let (mut count, most) = (LANES * threads, usual.max(workshop.engine.info().full_batch));
    loop {
        let mut work = workshop.work(operation, count)?;
        // The first makes what the engine keeps.
        once(&mut *work)?;
        let next = most.min(count * GROWTH);
        let longer = once(&mut *work)?.mul_f64(next as f64 / count as f64);
        if count == most || longer.as_secs_f64() > LONGEST_BATCH {
            return Ok(count);
        }
        count = next;
    }
}
