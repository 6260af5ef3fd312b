//! `ciphergram bench`.

use std::path::PathBuf;

use ciphergram_accel::Engine;
use rayon::ThreadPoolBuilder;

use crate::{
    args::Bench,
    bench::{
        key::{INSECURE_BITS, Key},
        levelled::Vectors,
        machine::{Machine, Measured},
        operation::{Levelled, SumOperation},
        report::{Options, Report, Source},
        row::{Effort, Row},
        sums::Round,
        table,
    },
    failure::Failure,
    files::{Kind, Output},
    progress::Progress,
    report::{print, warn},
};

pub(crate) fn run(args: &Bench) -> Result<(), Failure> {
    // Nobody wants to learn after minutes that the figures have no place to go.
    let inputs: Vec<_> = args.compare.iter().map(PathBuf::as_path).collect();
    let out = args.json.as_ref().map(|path| Output::create(path, Kind::Report, &inputs));
    let out = out.transpose()?;
    if args.compare.is_empty() {
        return measure_all(args, out);
    }
    let sources: Vec<_> = inputs.into_iter().map(Source::read).collect::<Result<_, _>>()?;
    table::side_by_side(&sources).iter().try_for_each(|line| print(line))
}

/// Measures what is asked for, and writes the report to `out` if it is wanted.
fn measure_all(args: &Bench, out: Option<Output>) -> Result<(), Failure> {
    let bits = key_sizes(args)?;
    let pool = ThreadPoolBuilder::new().num_threads(args.threads).build();
    let pool = pool.map_err(|e| Failure::Work(format!("{} threads: {e}", args.threads)))?;
    let report = pool.install(|| {
        let engines: Vec<_> =
            args.engine.iter().map(|name| Measured::open(*name)).collect::<Result<_, _>>()?;
        let options = Options::of(args.threads, args.seconds);
        let mut report = Report::begin(options, Machine::of(&engines));
        report.rows = measure(args, &bits, &report.machine, &engines)?;
        Ok::<_, Failure>(report)
    })?;
    if let Some(text) = table::busy(&report.rows) {
        warn(&text);
    }
    out.map_or(Ok(()), |out| report.write(out))
}

/// Returns the sizes of n asked for, in bits. The insecure one must be asked for by its own name.
fn key_sizes(args: &Bench) -> Result<Vec<u32>, Failure> {
    let (mut bits, insecure) = (args.bits.0.clone(), args.insecure_1024);
    if bits.contains(&INSECURE_BITS) && !insecure {
        let text = "keys of 1024 bits are insecure; --insecure-1024 measures them, for comparison \
                    with papers";
        return Err(Failure::Misuse(text.into()));
    }
    if insecure && !bits.contains(&INSECURE_BITS) {
        bits.insert(0, INSECURE_BITS);
    }
    Ok(bits)
}

/// Measures row by row, and prints each as it is found.
fn measure(
    args: &Bench,
    bits: &[u32],
    machine: &Machine,
    engines: &[Measured],
) -> Result<Vec<Row>, Failure> {
    print(&machine.line())?;
    engines.iter().try_for_each(|engine| print(&engine.line()))?;
    let (paillier, sums) = (&args.ops.paillier, &args.ops.sums);
    let bits = if paillier.is_empty() { &[] } else { bits };
    if bits.contains(&INSECURE_BITS) {
        print(&format!("{INSECURE_BITS}-bit keys are INSECURE: only for comparison with papers"))?;
    }
    print(&format!("\n{}", table::head()))?;
    let (kernels, levelled) = (&args.ops.kernels, &args.ops.levelled);
    let of_each_engine = bits.len() * paillier.len() + kernels.len() + sums.len() + levelled.len();
    let progress = Progress::new(false, "measuring");
    let observe = progress.counter((engines.len() * of_each_engine) as u64);
    let mut rows = vec![];
    let mut found = |row: Row| {
        print(&table::row(&row))?;
        observe(1);
        rows.push(row);
        Ok::<_, Failure>(())
    };
    // What an engine cannot do is no row, and no reason to measure nothing else.
    let can = |name: String, engine: &dyn Engine, step: Option<&str>| {
        let missing = step.filter(|step| !engine.supports(step));
        if let Some(step) = missing {
            warn(&format!("{name} is not measured: engine {} has no step {step}", engine.name()));
            observe(1);
        }
        missing.is_none()
    };
    let effort = Effort { threads: args.threads, duration: args.seconds, clock: args.clock };
    for &bits in bits {
        let key = Key::of_bits(bits)?;
        for engine in engines {
            for &operation in paillier {
                if can(operation.to_string(), &*engine.engine, operation.rare_step()) {
                    found(Row::measure(operation, &key, engine, effort)?)?;
                }
            }
        }
    }
    // Sizes of n mean nothing here: each engine has its rows once.
    for measured in engines {
        for &operation in kernels {
            if can(operation.to_string(), &*measured.engine, operation.rare_step()) {
                found(Row::measure_kernel(operation, measured, effort)?)?;
            }
        }
    }
    for Measured { engine, .. } in engines {
        let can = |operation: &&SumOperation| {
            can(operation.to_string(), &**engine, Some(operation.rare_step()))
        };
        let sums: Vec<_> = sums.iter().filter(can).collect();
        if sums.is_empty() {
            continue;
        }
        let round = Round::new(engine.clone())?;
        for &operation in sums {
            found(Row::measure_sum(operation, &round, engine.name(), effort)?)?;
        }
    }
    for Measured { engine, .. } in engines {
        // Its programs have all steps that are not of whole chunks.
        let can = |named: &Levelled| can(named.to_string(), &**engine, Some("base_extend"));
        let named: Vec<_> = levelled.iter().copied().filter(can).collect();
        for of_preset in named.chunk_by(|a, b| a.preset == b.preset) {
            let operations: Vec<_> = of_preset.iter().map(|named| named.operation).collect();
            let vectors = Vectors::new(of_preset[0].preset, &operations, &**engine)?;
            for operation in operations {
                found(Row::measure_levelled(operation, &vectors, engine, effort)?)?;
            }
        }
    }
    Ok(rows)
}
