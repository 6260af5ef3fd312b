//! `ciphergram bench`.

use rayon::ThreadPoolBuilder;
use serde_json::{Value, json};

use crate::{
    args::Bench,
    bench::{
        key::{INSECURE_BITS, Key},
        machine::{Machine, Measured, choose, commit},
        report,
        row::Row,
        sums::Round,
    },
    failure::Failure,
    files::{Kind, Output},
    report::{print, warn},
};

pub(crate) fn run(args: &Bench) -> Result<(), Failure> {
    let bits = key_sizes(args)?;
    let engines = choose(args.engine.as_deref())?;
    let out = args.json.as_ref().map(|path| Output::create(path, Kind::Report, &[])).transpose()?;
    let pool = ThreadPoolBuilder::new().num_threads(args.threads).build();
    let pool = pool.map_err(|e| Failure::Work(format!("{} threads: {e}", args.threads)))?;
    let (machine, rows) = pool.install(|| {
        let machine = Machine::measure(engines);
        let rows = measure(args, &bits, &machine)?;
        Ok::<_, Failure>((machine.json(), rows))
    })?;
    if let Some(text) = report::busy(&rows) {
        warn(&text);
    }
    if let Some(mut out) = out {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        let value: Value = json!({"kind": "ciphergram-report", "machine": machine, "commit": commit(), "rows": rows});
        out.put(format!("{}\n", serde_json::to_string_pretty(&value)?).as_bytes())?;
        out.commit()?;
    }
    Ok(())
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
fn measure(args: &Bench, bits: &[u32], machine: &Machine) -> Result<Vec<Row>, Failure> {
    machine.lines().iter().try_for_each(|line| print(line))?;
    let (paillier, sums) = (&args.ops.paillier, &args.ops.sums);
    let bits = if paillier.is_empty() { &[] } else { bits };
    if bits.contains(&INSECURE_BITS) {
        print(&format!("{INSECURE_BITS}-bit keys are INSECURE: only for comparison with papers"))?;
    }
    print(&format!("\n{}", report::head()))?;
    let mut rows = vec![];
    let mut found = |row: Row| {
        print(&report::row(&row))?;
        rows.push(row);
        Ok::<_, Failure>(())
    };
    let effort = (args.threads, args.seconds);
    for &bits in bits {
        let key = Key::of_bits(bits)?;
        for engine in &machine.engines {
            for &operation in paillier {
                found(Row::measure(operation, &key, engine, effort)?)?;
            }
        }
    }
    // Sizes of n mean nothing here: each engine has its rows once.
    for measured in &machine.engines {
        for &operation in &args.ops.kernels {
            found(Row::measure_kernel(operation, measured, effort)?)?;
        }
    }
    for Measured { engine, .. } in machine.engines.iter().filter(|_| !sums.is_empty()) {
        let round = Round::new(engine.clone())?;
        for &operation in sums {
            found(Row::measure_sum(operation, &round, engine.name(), effort)?)?;
        }
    }
    Ok(rows)
}
