//! `ciphergram devices`.

use ciphergram_accel::{engine::supported_steps, engines};
use serde_json::{Value, json};

use crate::{args::Devices, engines::gpu_absence, failure::Failure, report::report};

pub(crate) fn run(args: &Devices) -> Result<(), Failure> {
    let (mut values, mut lines) = (vec![], vec![]);
    for engine in engines() {
        let steps = supported_steps(&*engine);
        lines.push(format!("{:<10} {}", engine.name(), engine.describe()));
        lines.push(format!("{:<10} steps: {}", "", steps.join(" ")));
        let (name, description) = (engine.name(), engine.describe());
        let mut value = json!({"name": name, "description": description, "steps": steps});
        for (what, text) in engine.details() {
            lines.push(format!("{:<10} {what}: {text}", ""));
            value[what] = text.into();
        }
        values.push(value);
    }
    if let Some(why) = gpu_absence() {
        lines.push(format!("{:<10} none: {why}", "gpu"));
    }
    report(args.json, &Value::Array(values), &lines)
}
