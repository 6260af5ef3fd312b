//! `ciphergram devices`.

use ciphergram_accel::{engine::supported_steps, engines};
use serde_json::{Value, json};

use crate::{args::Devices, failure::Failure, report::report};

pub(crate) fn run(args: &Devices) -> Result<(), Failure> {
    let (mut values, mut lines) = (vec![], vec![]);
    for engine in engines() {
        let steps = supported_steps(&*engine);
        lines.push(format!("{:<10} {}", engine.name(), engine.describe()));
        lines.push(format!("{:<10} steps: {}", "", steps.join(" ")));
        let (name, description) = (engine.name(), engine.describe());
        values.push(json!({"name": name, "description": description, "steps": steps}));
    }
    report(args.json, &Value::Array(values), &lines)
}
