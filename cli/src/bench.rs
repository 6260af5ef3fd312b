//! `ciphergram bench`. `ciphergram_benches::cases` defines its operations, and `benches/README.md` the report.

mod report;

use std::{path::PathBuf, sync::Arc};

use ciphergram_accel::{
    Choice, CpuEngine, Engine, Measure, Present, ReferenceEngine, choice::open_fpga,
};
use ciphergram_benches::cases::{Effort, INSECURE_BITS, Metered, head};
use rayon::ThreadPoolBuilder;
use serde_json::json;

use crate::{
    args::Bench,
    engines::{auto, gpu},
    failure::Failure,
    files::{FileKind, OutputFile},
    progress::ProgressLine,
    report::{print, time_now, warn},
};

use report::{Report, VERSION, busy, describe, machine, side_by_side};

pub(crate) fn run(args: &Bench) -> Result<(), Failure> {
    // Nobody wants to learn after minutes that the figures have no place to go.
    let inputs: Vec<_> = args.compare.iter().map(PathBuf::as_path).collect();
    let out =
        args.figures.path.as_ref().map(|path| OutputFile::create(path, FileKind::Report, &inputs));
    let out = out.transpose()?;
    if !inputs.is_empty() {
        let sources = inputs.iter().map(|path| {
            let label = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
            Ok((label.into_owned(), Report::read(path)?))
        });
        let sources = sources.collect::<Result<Vec<_>, Failure>>()?;
        return side_by_side(&sources).iter().try_for_each(|line| print(line));
    }
    let bits = key_sizes(args)?;
    let pool = ThreadPoolBuilder::new().num_threads(args.threads).build();
    let pool = pool.map_err(|e| Failure::Work(format!("{} threads: {e}", args.threads)))?;
    let report = pool.install(|| measure(args, &bits))?;
    if let Some(text) = busy(&report.rows) {
        warn(&text);
    }
    let Some(mut out) = out else { return Ok(()) };
    out.put(format!("{}\n", serde_json::to_string_pretty(&report)?).as_bytes())?;
    out.commit()
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
fn measure(args: &Bench, bits: &[u32]) -> Result<Report, Failure> {
    let engines: Vec<_> = args.engine.iter().map(|name| open(*name)).collect::<Result<_, _>>()?;
    let cpu_path = std::env::var("CIPHERGRAM_CPU").ok();
    let seconds = args.seconds.as_secs_f64();
    let mut report = Report {
        kind: "ciphergram-report".into(),
        version: VERSION,
        time: Some(time_now()),
        commit: env!("CIPHERGRAM_COMMIT").into(),
        options: Some(json!({ "threads": args.threads, "seconds": seconds, "cpu_path": cpu_path })),
        machine: machine(&engines),
        rows: vec![],
    };
    print(&describe(&report.machine))?;
    engines.iter().try_for_each(|engine| print(&engine.line()))?;
    if args.engine.contains(&Choice::Cpu) && CpuEngine::paths().len() > 1 {
        print(
            "CIPHERGRAM_CPU=avx2 or =portable measures what processors without AVX-512 or AVX2 do",
        )?;
    }
    if args.ops.has_paillier() && bits.contains(&INSECURE_BITS) {
        print(&format!("{INSECURE_BITS}-bit keys are INSECURE: only for comparison with papers"))?;
    }
    print(&format!("\n{}", head()))?;
    let progress = ProgressLine::new(false, "measuring");
    let observe = progress.counter((engines.len() * args.ops.rows(bits.len())) as u64);
    let effort = Effort { threads: args.threads, duration: args.seconds, clock: args.clock };
    args.ops.measure(bits, &engines, effort, |row| {
        observe(1);
        match row {
            Ok(row) => {
                print(&row.line()).map_err(|failure| failure.to_string())?;
                report.rows.push(row);
            }
            // No reason to measure nothing else.
            Err(text) => warn(&text),
        }
        Ok(())
    })?;
    Ok(report)
}

/// Opens the engine of this name, and measures its rate of multiplications. No driver of a device is touched for
/// another name.
///
/// # Errors
/// There is none of this name.
fn open(name: Choice) -> Result<Arc<Metered>, Failure> {
    let counting =
        |engine: Arc<dyn Measure>| Present { engine: engine.clone(), measure: Some(engine) };
    let alone = |engine: Arc<dyn Engine>| Present { engine, measure: None };
    let absent = |name: &'static str| {
        move |why: String| {
            Failure::Misuse(format!("no engine {name:?} ({why}); there are cpu, reference"))
        }
    };
    Ok(Arc::new(Metered::new(match name {
        Choice::Cpu => counting(Arc::new(CpuEngine::new())),
        Choice::Reference => alone(Arc::new(ReferenceEngine)),
        Choice::Auto => alone(auto()),
        Choice::Gpu => counting(gpu().map_err(absent("gpu"))?),
        Choice::Fpga => counting(open_fpga().map_err(absent("fpga"))?),
    })))
}
