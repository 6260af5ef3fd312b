//! Commands on vectors: what `keygen`, `encrypt`, `aggregate` and `decrypt` do under a key of the levelled scheme.

use std::{fs, path::Path, sync::Arc};

use ciphergram_accel::Engine;
use ciphergram_he::{
    Error, LevelledKey,
    ckks::{
        self, EvaluationKeys, Evaluator, LevelledPublic, LevelledSecret, Parameters, Preset,
        Rotation,
    },
    vectors::{self, Layout, Recipe, Source, Vector},
};
use serde_json::json;

use crate::{
    args::{AggregateArgs, DecryptArgs, EncryptArgs, KeygenArgs},
    engines::engine,
    failure::{Failure, at},
    files::{self, FileKind, OutputFile, named},
    progress::ProgressLine,
    report::{counted, kept, per_value, per_value_words, report, shown},
};

/// The file of the evaluation key.
pub(crate) const EVALUATION: &str = "evaluation.cgk";

/// Refuses options that a command has for keys of another scheme.
pub(crate) fn refuse(options: &[(&str, bool)], of: &str) -> Result<(), Failure> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Failure::Misuse(format!("{option} is not for keys of {of}"))),
        None => Ok(()),
    }
}

/// Returns the name of a key's preset.
fn scheme_name(key: &LevelledPublic) -> Result<&'static str, Failure> {
    Ok(key.parameters().named().map_err(Error::from)?.name())
}

/// Reads an evaluation key. Who computes must have no other.
pub(crate) fn read_evaluation(path: &Path, engine: &dyn Engine) -> Result<EvaluationKeys, Failure> {
    let bytes = files::read(path)?;
    let here = |e: Error| Failure::from(e.within(path.display()));
    match FileKind::of(&bytes) {
        FileKind::SecretKey | FileKind::ClientKey | FileKind::PublicKey => {
            Err(here(Error::KeyKind {
                found: "JSON",
                needed: "this takes keys/evaluation.cgk, and must never have a secret one",
            }))
        }
        _ => EvaluationKeys::from_bytes(&bytes, engine).map_err(here),
    }
}

/// Reads a vector, named by its file. Errors name it.
pub(crate) fn read(path: &Path, engine: &dyn Engine) -> Result<(Source, Vector), Error> {
    let read = || {
        let bytes = fs::read(path).map_err(Error::from)?;
        let (vector, digest) = Vector::from_bytes(&bytes, engine)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok((Source { name, digest }, vector))
    };
    read().map_err(|e: Error| e.within(path.display()))
}

/// Writes a vector.
pub(crate) fn write(vector: &Vector, mut out: OutputFile) -> Result<usize, Failure> {
    let bytes = vector.to_bytes()?;
    out.put(&bytes)?;
    out.commit()?;
    Ok(bytes.len())
}

/// Draws the keys of a preset, and writes them.
pub(crate) fn keygen(args: &KeygenArgs, preset: Preset) -> Result<(), Failure> {
    let engine = ciphergram_accel::CpuEngine::new();
    let parameters = Arc::new(Parameters::preset(preset));
    let rotations = Rotation::steps(&args.rotations, &parameters);
    let rotations = rotations.map_err(|why| Failure::Misuse(format!("--rotations: {why}")))?;
    let evaluation = args.out.path.join(EVALUATION);
    files::refuse_keys(&args.out.path)?;
    if evaluation.exists() {
        return Err(Error::Exists { path: evaluation }.into());
    }
    let progress = ProgressLine::new(args.report.json, format!("drawing keys of {preset}"));
    let key = LevelledSecret::generate(&parameters, &engine)?;
    let mut keys = key.evaluation_keys(&rotations, &engine)?;
    if args.rotations.contains(&Rotation::Conjugate) {
        keys = key.with_conjugate(keys, &engine)?;
    }
    let bytes = keys.to_bytes()?;
    files::fill(&args.out.path, |folder| {
        key.public().save(&folder.join("public.json"))?;
        key.save(&folder.join("secret.json"))?;
        Ok(ciphergram_he::keys::write_new(&folder.join(EVALUATION), &bytes, 0o644)?)
    })?;
    drop(progress);
    let (id, turns) = (key.public().id().to_string(), keys.rotations().len());
    let [public, secret] = ["public.json", "secret.json"].map(|name| args.out.path.join(name));
    let value = json!({
        "scheme": preset.name(), "key_id": id, "rotations": rotations, "evaluation_key_bytes": bytes.len(),
        "public": shown(&public), "secret": shown(&secret), "evaluation": shown(&evaluation),
    });
    let lines = [
        format!("{preset} key {id}, for vectors to compute with"),
        format!("{}  for those who encrypt", public.display()),
        format!("{}  for those who decrypt, and for no one else", secret.display()),
        format!(
            "{}  for those who compute: products and {}, {:.1} MB",
            evaluation.display(),
            counted(turns, "rotation"),
            bytes.len() as f64 / 1e6
        ),
    ];
    report(args.report.json, &value, &lines)
}

pub(crate) fn encrypt(args: &EncryptArgs, key: &LevelledKey) -> Result<(), Failure> {
    let name = scheme_name(key.public())?;
    refuse(
        &[
            ("--job", args.agreed.job.is_some()),
            ("--client", args.client.number.is_some()),
            args.used.of_sums(),
            ("--round", args.round.is_some()),
            ("--ranges", args.ranges.is_some()),
            ("--weight", args.weighting.weight != 1),
        ],
        name,
    )?;
    let progress =
        ProgressLine::new(args.report.json, format!("encrypting {}", args.input.path.display()));
    let (update, _) =
        files::read_clipped(&args.input.path, args.integers.policy, args.weighting.clip)?;
    let inputs = [Some(&args.input.path), Some(&args.agreed.key.path)];
    let out = OutputFile::create(&args.out.path, FileKind::Vector, &named(&inputs))?;
    let recipe = Recipe {
        range: args.vector.range.or(args.weighting.clip),
        layout: if args.vector.columns { Layout::Columns } else { Layout::Rows },
    };
    let engine = engine(args.place.engine);
    let vector = Vector::encrypt(key, &update, &recipe, &*engine);
    let vector = vector.map_err(|e| e.within(args.input.path.display()))?;
    let bytes = write(&vector, out)?;
    drop(progress);
    let (kept, kept_words) = kept(&update);
    let values = vector.values();
    let value = json!({
        "out": shown(&args.out.path), "scheme": name, "values": values, "ciphertexts": vector.ciphertexts().len(),
        "ciphertext_bytes": bytes, "bytes_per_value": per_value(bytes, values), "unit": vector.unit(), "kept": kept,
    });
    let words = per_value_words(bytes, values);
    let line = format!("{}: {}, {words}", args.out.path.display(), counted(values, "value"));
    report(args.report.json, &value, &kept_words.into_iter().chain([line]).collect::<Vec<_>>())
}

/// Returns what sums under a key: under its public half sums alone, which must be no other.
pub(crate) fn keys_of_sums(key: &LevelledKey) -> Result<EvaluationKeys, Error> {
    match key {
        LevelledKey::Public(key) => Ok(EvaluationKeys::none(key)),
        LevelledKey::Secret(_) => Err(Error::KeyKind {
            found: "secret",
            needed: "an aggregator must hold public material only: give it keys/public.json",
        }),
    }
}

pub(crate) fn aggregate(args: &AggregateArgs, keys: EvaluationKeys) -> Result<(), Failure> {
    let name = keys.parameters().named().map_err(Error::from)?.name();
    refuse(&[("--job", args.agreed.job.is_some())], name)?;
    let read_too = [Some(&args.agreed.key.path), args.weights.as_ref()];
    let inputs: Vec<_> = args.inputs.iter().map(Some).chain(read_too).collect();
    let out = OutputFile::create(&args.out.path, FileKind::Vector, &named(&inputs))?;
    let progress = ProgressLine::new(args.report.json, "");
    let engine = engine(args.place.engine);
    let weights = args.weights.as_ref().map(|path| read(path, &*engine)).transpose()?;
    let evaluator = Evaluator::new(keys, &*engine);
    let given = args.inputs.iter().zip(0..).map(|(path, done)| {
        progress.say(format!("adding {}", path.display()));
        progress.at(done, args.inputs.len() as u64);
        read(path, &*engine)
    });
    let weights = weights.as_ref().map(|(_, weights)| weights);
    let sum = vectors::aggregate(&evaluator, weights, given)?;
    let bytes = write(&sum, out)?;
    drop(progress);
    let (values, summed) = (sum.values(), sum.sources().len());
    let value = json!({
        "out": shown(&args.out.path), "vectors": summed, "divisor": sum.divisor(), "values": values,
        "ciphertext_bytes": bytes,
    });
    let words = per_value_words(bytes, values);
    let line = format!(
        "{}: sum of {summed}, {}, {words}",
        args.out.path.display(),
        counted(values, "value")
    );
    report(args.report.json, &value, &[line])
}

pub(crate) fn decrypt(args: &DecryptArgs, key: &LevelledKey) -> Result<(), Failure> {
    let name = scheme_name(key.public())?;
    refuse(
        &[
            ("--job", args.agreed.job.is_some()),
            args.used.of_sums(),
            ("--template", args.template.is_some()),
            ("--sum", args.opening.sum),
            ("--min-clients", args.opening.min_clients.is_some()),
            ("--cohorts", args.opening.cohorts.is_some()),
        ],
        name,
    )?;
    let secret = key.secret().map_err(|e| e.within(args.agreed.key.path.display()))?;
    let inputs = [Some(&args.input.path), Some(&args.agreed.key.path)];
    let mut out = OutputFile::create(&args.out.path, FileKind::Tensors, &named(&inputs))?;
    let progress =
        ProgressLine::new(args.report.json, format!("decrypting {}", args.input.path.display()));
    let engine = engine(args.place.engine);
    let (_, vector) = read(&args.input.path, &*engine)?;
    let opened = vector.decrypt(secret, &*engine);
    let opened = opened.map_err(|e| e.within(args.input.path.display()))?;
    out.put(&opened.to_safetensors()?)?;
    out.commit()?;
    drop(progress);
    let ckks::Bound { magnitude, error } = vector.bound();
    let scale = vector.unit() / vector.divisor() as f64;
    let value = json!({
        "out": shown(&args.out.path), "values": vector.values(), "tensors": vector.specs().len(),
        "summed": vector.sources().len(), "claimed_error": error * scale,
        "claimed_magnitude": magnitude * scale,
    });
    let lines = [
        format!(
            "{}: {}, {}",
            args.out.path.display(),
            counted(vector.specs().len(), "tensor"),
            counted(vector.values(), "value")
        ),
        format!(
            "off by at most {:.1e} of what they should be: so claims whoever computed them, and nothing proves it",
            error * scale
        ),
        "for key holders alone: shown to whoever computed them, they tell of the secret key".into(),
    ];
    report(args.report.json, &value, &lines)
}

/// Reads the bytes of a model.
pub(crate) fn read_model(path: &Path) -> Result<vectors::Model, Failure> {
    let bytes = fs::read(path).map_err(at(path))?;
    Ok(vectors::Model::from_safetensors(&bytes).map_err(|e| e.within(path.display()))?)
}
