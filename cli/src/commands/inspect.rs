//! `ciphergram inspect`: describes a file. Secrets are never read out, let alone printed.

use std::path::Path;

use ciphergram_he::{
    Agreement, AnyKey, Contribution, Error, Job, Parameters, Sum, TensorSpec, Update,
    codec::RangesFile,
    frame::{Frame, Kind},
};
use ciphergram_nic::federation::spool;
use serde_json::{Map, Value, json};

use crate::{
    args::Inspect,
    failure::Failure,
    files,
    report::{per_value, per_value_words, report},
};

/// A description of a file, for JSON and for people.
#[derive(Default)]
struct Findings {
    json: Map<String, Value>,
    lines: Vec<String>,
}

impl Findings {
    fn add(&mut self, name: &str, value: impl Into<Value>, words: impl ToString) {
        self.json.insert(name.into(), value.into());
        let label = name.replace('_', " ");
        self.lines.push(format!("{label:<16} {}", words.to_string()));
    }

    fn add_same(&mut self, name: &str, value: impl Into<Value> + ToString) {
        let words = value.to_string();
        self.add(name, value, words);
    }
}

pub(crate) fn run(args: &Inspect) -> Result<(), Failure> {
    let bytes = files::read(&args.file)?;
    let mut found = Findings::default();
    let here = |e: Error| Failure::from(e.within(args.file.display()));
    if bytes.starts_with(b"CIPHERGM") {
        frame(&bytes, args.ciphertexts, &mut found).map_err(here)?;
    } else if spool::is_spool(&bytes) {
        spooled(&bytes, &mut found);
    } else if let Some(text) =
        std::str::from_utf8(&bytes).ok().filter(|t| t.trim().starts_with('{'))
    {
        json_file(text, &args.file, &mut found).map_err(here)?;
    } else {
        let update = Update::from_safetensors(&bytes).map_err(|e| match e {
            Error::Safetensors { .. } => {
                let path = args.file.display();
                Failure::Work(format!("{path}: not a file that this program knows"))
            }
            e => here(e),
        })?;
        found.add("kind", "safetensors", "tensors in clear (safetensors)");
        let all = update.tensors().iter().chain(update.kept());
        tensors(&all.map(|t| t.spec.clone()).collect::<Vec<_>>(), None, &mut found);
    }
    report(args.json, &Value::Object(found.json), &found.lines)
}

fn frame(bytes: &[u8], with_ciphertexts: bool, found: &mut Findings) -> Result<(), Error> {
    let frame = Frame::parse(bytes)?;
    let parameters = frame.parameters()?;
    found.add_same("kind", frame.kind.name());
    describe_parameters(&parameters, found);
    found.add_same("key_id", frame.key.to_string());
    let (agreement, stream) = match frame.kind {
        Kind::Contribution => {
            let c = Contribution::from_frame(&frame)?;
            found.add_same("job", c.job.to_string());
            found.add_same("round", c.round);
            found.add_same("client", c.contributor.number);
            found.add_same("contributors", 1);
            (c.agreement, c.stream.into_owned())
        }
        Kind::Sum => {
            let sum = Sum::from_frame(&frame)?;
            found.add_same("job", sum.job.to_string());
            found.add_same("round", sum.round);
            found.add_same("contributors", sum.contributors.len());
            let clients: Vec<_> = sum.contributors.iter().map(|c| c.number).collect();
            found.add("clients_summed", clients.clone(), format!("{clients:?}"));
            found.add_same("fewest_contributors", sum.fewest_contributors());
            (sum.agreement, sum.stream)
        }
        Kind::Announcement | Kind::RoundTerms => return Ok(()),
    };
    let values = agreement.values();
    found.json.insert("bytes_per_value".into(), json!(per_value(stream.len(), values)));
    found.add("ciphertext_bytes", stream.len(), per_value_words(stream.len(), values));
    tensors(agreement.specs(), Some((&agreement, &parameters)), found);
    if with_ciphertexts && parameters.rlwe().is_none() {
        let hex = |c: &[u8]| c.iter().rev().map(|b| format!("{b:02x}")).collect::<String>();
        let each = parameters.geometry().unit_bytes;
        found.json.insert("ciphertexts".into(), stream.chunks(each).map(hex).collect());
    }
    Ok(())
}

fn describe_parameters(p: &Parameters, found: &mut Findings) {
    found.add_same("scheme", p.scheme().name());
    found.add("clients", p.clients(), format!("at most {} to a sum", p.clients()));
    found.add("bits", p.bits(), format!("{} a value", p.bits()));
    let g = p.geometry();
    let words = format!(
        "{} bits, {} to a slot, {} values and {} bytes to a chunk",
        g.field_bits,
        g.fields_per_slot,
        g.values_per_chunk(),
        g.chunk_bytes()
    );
    found.add("field_bits", g.field_bits, words);
    found.json.insert("head_fields".into(), json!(g.head_fields));
    found.json.insert("count_bits".into(), json!(g.head.count_bits()));
    found.json.insert("fields_per_slot".into(), json!(g.fields_per_slot));
    if let Some(rlwe) = p.rlwe() {
        let (n, log_q) = (rlwe.ring.degree(), rlwe.log_q());
        found.add(
            "ring_degree",
            n,
            format!("N = {n}, log2 Q = {log_q:.2}, ternary secret, 128-bit"),
        );
    }
}

/// Describes tensors, and for quantised ones their ranges, their steps and the bound of the mean's
/// error.
fn tensors(specs: &[TensorSpec], coded: Option<(&Agreement, &Parameters)>, found: &mut Findings) {
    let values: usize = specs.iter().filter_map(TensorSpec::values).sum();
    found.add_same("values", values);
    if let Some((agreement, _)) = coded {
        let w = agreement.max_weight();
        found.add_same("max_weight", w);
        let bound = format!("contributors · {w} ÷ (sum of weights) steps, unless clipped");
        found.add("error_bound", bound.clone(), bound);
    }
    let mut list = vec![];
    for (i, spec) in specs.iter().enumerate() {
        let mut value = json!({
            "name": spec.name, "dtype": spec.dtype.name(), "shape": spec.shape,
        });
        let mut line =
            format!("tensor           {:?} {} {:?}", spec.name, spec.dtype.name(), spec.shape);
        if let Some((agreement, parameters)) = coded {
            let range = agreement.ranges()[i];
            let step = range / f64::from(parameters.half_steps());
            value["range"] = json!(range);
            value["step"] = json!(step);
            line += &format!(", range ±{range}, step {step:e}");
        }
        found.lines.push(line);
        list.push(value);
    }
    found.json.insert("tensors".into(), list.into());
}

/// Describes a key, a job or a ranges file.
fn json_file(text: &str, path: &Path, found: &mut Findings) -> Result<(), Error> {
    if let Ok(ranges) = RangesFile::from_json(text) {
        let agreement = ranges.agreement()?;
        found.add("kind", "ranges", "clipping ranges, in clear");
        found.add_same("max_weight", agreement.max_weight());
        found.add_same("values", agreement.values());
        for (spec, range) in agreement.specs().iter().zip(agreement.ranges()) {
            let (name, dtype) = (&spec.name, spec.dtype.name());
            found.lines.push(format!(
                "tensor           {name:?} {dtype} {:?}, range ±{range}",
                spec.shape
            ));
        }
        let content = serde_json::from_str::<Value>(text).unwrap_or_default();
        found.json.insert("tensors".into(), content["tensors"].clone());
        return Ok(());
    }
    if let Ok(content) = serde_json::from_str::<Value>(text)
        && content["kind"] == "ciphergram-job"
    {
        found.add("kind", "job", "job: for the clients and the aggregator");
        found.add_same("id", Job::id_of_json(text)?.to_string());
        for name in ["key_id", "clients", "min_clients", "max_weight", "max_range"] {
            found.add(name, content[name].clone(), content[name].to_string().trim_matches('"'));
        }
        if let Value::Object(noise) = &content["noise"] {
            let words = format!("sigma {} at clip {}", noise["sigma"], noise["clip"]);
            found.add("noise", noise.clone(), words);
        }
        for (name, words) in [("tensors", "tensors settled"), ("allow", "nodes settled")] {
            let count = content[name].as_array().map_or(0, Vec::len);
            found.add(name, content[name].clone(), format!("{count} {words}"));
        }
        return Ok(());
    }
    let key = AnyKey::from_json(text)?;
    match &key {
        AnyKey::Public(_) => found.add("kind", "public key", "public key: for the aggregator"),
        AnyKey::Client(client, _) => {
            let words =
                format!("key of client {}: for this client, and no one else", client.number());
            found.add("kind", "client key", words);
            found.add_same("client", client.number());
        }
        AnyKey::Secret(..) => {
            let words = if key.public().encrypts() { "those who decrypt" } else { "the clients" };
            found.add("kind", "secret key", format!("secret key: for {words}, and no one else"));
        }
    }
    // The warning about permissions needs the file itself.
    if let Some(warning) = AnyKey::load(path).ok().as_ref().and_then(AnyKey::warning) {
        crate::report::warn(warning);
    }
    describe_parameters(key.public().parameters(), found);
    found.add_same("key_id", key.public().id().to_string());
    let encrypts = key.public().encrypts();
    let words = if encrypts { "the public half encrypts" } else { "the public half only sums" };
    found.add("public_encrypts", encrypts, words);
    if let Some(modulus) = key.public().paillier() {
        let form = if modulus.is_djn() { "short masks" } else { "full-length masks" };
        found.add("modulus_bits", modulus.n().bits(), format!("{}, {form}", modulus.n().bits()));
    }
    Ok(())
}

fn spooled(bytes: &[u8], found: &mut Findings) {
    found.add("kind", "spool", "sealed chunks of a contribution whose sum has not come back");
    found.add_same("bytes", bytes.len());
}
