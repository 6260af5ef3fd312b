//! `ciphergram vectors predict`.

use ciphergram_he::{
    Error,
    ckks::{CkksError, Evaluator},
    vectors,
};
use serde_json::json;

use super::vectors::{read, read_evaluation, read_model, write};
use crate::{
    args::PredictArgs,
    engines::engine,
    failure::Failure,
    files::{FileKind, OutputFile, named},
    progress::ProgressLine,
    report::{counted, report, shown, warn},
};

pub(crate) fn run(args: &PredictArgs) -> Result<(), Failure> {
    let engine = engine(args.place.engine);
    let model = read_model(&args.model)?;
    let inputs = [Some(&args.key.path), Some(&args.model), Some(&args.input.path)];
    let out = OutputFile::create(&args.out.path, FileKind::Vector, &named(&inputs))?;
    let progress = ProgressLine::new(args.report.json, format!("running {}", args.model.display()));
    let evaluator = Evaluator::new(read_evaluation(&args.key.path, &*engine)?, &*engine);
    let (source, input) = read(&args.input.path, &*engine)?;
    let found = vectors::predict(&evaluator, &model, &input, source);
    let found = found.map_err(|e| match e {
        Error::Ckks(CkksError::Model { .. } | CkksError::ModelInput { .. }) => {
            e.within(args.model.display())
        }
        e => e.within(args.input.path.display()),
    })?;
    let bytes = write(&found.answers, out)?;
    drop(progress);
    if let Some(most) = found.beyond_interval {
        warn(&format!(
            "by the range of the input, what goes into the sigmoid may be as large as {most:.1}, beyond its interval: \
             answers to inputs that take it there are wrong, by more than `decrypt` states; train with smaller \
             weights, or set a larger interval"
        ));
    }
    let (values, (inputs, outputs)) = (found.answers.values(), model.sizes());
    let value = json!({
        "out": shown(&args.out.path), "inputs": inputs, "outputs": outputs, "levels": model.depth(), "values": values,
        "ciphertext_bytes": bytes,
    });
    let line = format!(
        "{}: {}, encrypted, {}",
        args.out.path.display(),
        counted(values, "answer"),
        counted(model.depth(), "level")
    );
    report(args.report.json, &value, &[line])
}
