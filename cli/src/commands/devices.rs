//! `ciphergram show devices`.

use std::{
    panic::{self, AssertUnwindSafe},
    time::Instant,
};

use ciphergram_accel::{Engine, Info, Present, conformance, engine::supported_steps};
use serde_json::{Map, Value, json};

use crate::{
    args::DevicesArgs,
    engines::{card_absence, close, engines, gpu_absence, split_gpu},
    failure::Failure,
    report::report,
};

pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let (mut values, mut lines, mut wrong) = (vec![], vec![], vec![]);
    let present = engines();
    for Present { engine, .. } in &present {
        let steps = supported_steps(&**engine);
        let (name, Info { description, details, .. }) = (engine.name(), engine.info());
        lines.push(format!("{name:<10} {description}"));
        lines.push(format!("{:<10} steps: {}", "", steps.join(" ")));
        let mut value = json!({"name": name, "description": description, "steps": steps});
        for (what, text) in details {
            lines.push(format!("{:<10} {what}: {text}", ""));
            value[what] = text.into();
        }
        // Every engine but the oracle itself is held against the oracle.
        let mut held =
            if name == "reference" { vec![] } else { vec![("conformance", engine.clone())] };
        if name == "gpu" && args.check {
            held.extend(split_gpu().map(|engine| ("conformance_split", engine)));
        }
        for (what, engine) in held.into_iter().filter(|_| args.check) {
            let checked = check(&*engine);
            lines.push(format!("{:<10} {what}: {}", "", engine.info().description));
            lines.extend(checked.lines.iter().map(|line| format!("{:<10} {line}", "")));
            wrong.extend(checked.wrong.iter().map(|case| format!("{name}: {case}")));
            value[what] = checked.value;
        }
        values.push(value);
    }
    let is_there = |name: &str| values.iter().any(|value: &Value| value["name"] == name);
    if let Some(why) = (!is_there("gpu")).then(gpu_absence).flatten() {
        lines.push(format!("{:<10} none: {why}", "gpu"));
    }
    if let Some(why) = (!is_there("fpga")).then(card_absence).flatten() {
        lines.push(format!("{:<10} none: {why}", "fpga"));
        wrong.extend(args.check.then(|| format!("fpga: {why}")));
    }
    close(present);
    report(args.report.json, &Value::Array(values), &lines)?;
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::Work(format!("results are not the oracle's: {}", wrong.join(", ")))),
    }
}

/// The conformance suite's verdict on an engine.
struct Conformance {
    lines: Vec<String>,
    /// An object: for each case its seconds, or what is wrong.
    value: Value,
    /// Names of cases that failed.
    wrong: Vec<&'static str>,
}

/// Holds an engine against the oracle, bit by bit, over every step. A case that fails also panics
/// on standard error.
fn check(engine: &dyn Engine) -> Conformance {
    let mut checked = Conformance { lines: vec![], value: Value::Null, wrong: vec![] };
    let mut cases = Map::new();
    for &(name, case) in conformance::CASES {
        let clock = Instant::now();
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| case(engine)));
        let seconds = clock.elapsed().as_secs_f64();
        let (line, value) = match outcome {
            Ok(()) => (format!("ok, {seconds:.1} s"), seconds.into()),
            Err(why) => {
                checked.wrong.push(name);
                let why = message(&*why);
                (format!("WRONG: {why}"), why.into())
            }
        };
        checked.lines.push(format!("{name:<14} {line}"));
        cases.insert(name.into(), value);
    }
    checked.value = cases.into();
    checked
}

/// Returns the first line of a panic's message.
fn message(why: &(dyn std::any::Any + Send)) -> String {
    let text = why.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| why.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    text.lines().next().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use ciphergram_accel::{CpuEngine, Operand, Program, RunError};

    use super::*;

    /// Right but for the last word of every output.
    struct Wrong(CpuEngine);

    impl Engine for Wrong {
        fn name(&self) -> &'static str {
            "wrong"
        }

        fn info(&self) -> Info {
            Info::of_host("a test")
        }

        fn supports(&self, step: &str) -> bool {
            self.0.supports(step)
        }

        fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
            self.0.run(program, operands)?;
            for operand in operands {
                if let Operand::Out(words) = operand {
                    words.last_mut().into_iter().for_each(|word| *word ^= 1);
                }
            }
            Ok(())
        }
    }

    #[test]
    fn a_wrong_engine_is_reported_case_by_case() {
        let checked = check(&Wrong(CpuEngine::new()));
        assert!(checked.wrong.contains(&"residues") && checked.wrong.contains(&"transforms"));
        // Nothing is computed there.
        assert!(!checked.wrong.contains(&"refusals"));
        assert!(checked.value["residues"].as_str().unwrap().contains("mul on wrong"));
        assert!(checked.value["refusals"].as_f64().unwrap() >= 0.0);
        assert!(checked.lines.iter().any(|line| line.starts_with("residues       WRONG: ")));
    }
}
