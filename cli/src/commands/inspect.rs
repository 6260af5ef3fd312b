//! `ciphergram inspect`: describes a file. Secrets are never read out, let alone printed.

mod capture;
mod levelled;
mod plain;

use ciphergram_he::{
    AgreedRanges, Agreement, AnyKey, Contribution, Error, Job, KeyFile, Parameters, PublicKey,
    RangesProposal, Sum, TensorSpec,
    codec::{Precision, RangesFile},
    frame::{self, Frame},
    keys::permission_warning,
    threshold::{OpenAnswer, OpenRequest, OpenerId, Quorum},
};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::{
    args::InspectArgs,
    commands::job::quorum_words,
    failure::Failure,
    files::{self, FileKind},
    report::{per_value, per_value_words, report, warn},
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

pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let path = args.file.as_path();
    // It may be a key.
    let bytes = Zeroizing::new(files::read(path)?);
    let text = || std::str::from_utf8(&bytes).unwrap_or_default();
    let mut found = Findings::default();
    let here = |e: Error| Failure::from(e.within(path.display()));
    match FileKind::of(&bytes) {
        FileKind::Vector => levelled::vector(&bytes, &mut found).map_err(here)?,
        FileKind::EvaluationKey => levelled::evaluation_key(&bytes, &mut found).map_err(here)?,
        _ if bytes.starts_with(b"CIPHERGM") => {
            frame(&bytes, args.ciphertexts, &mut found).map_err(here)?;
        }
        FileKind::Tensors => plain::safetensors(&bytes, &mut found).map_err(here)?,
        FileKind::Spool => spooled(&bytes, &mut found),
        FileKind::Capture => capture::capture(&bytes, &mut found).map_err(here)?,
        FileKind::Identity => plain::identity(text(), path, &mut found)?,
        FileKind::Node => plain::node(text(), path, &mut found)?,
        FileKind::AllowList => plain::allow_list(text(), path, &mut found)?,
        FileKind::Ledger => plain::ledger(text(), &mut found),
        FileKind::Member => {
            OpenerId::of_text(text()).map_err(here)?;
            found.add("kind", "member", "what others know a member of a job by");
        }
        known @ (FileKind::Report | FileKind::Cohorts | FileKind::Prekeys) => {
            found.add("kind", known.words(), known.words());
        }
        FileKind::Ranges => ranges(text(), &mut found).map_err(here)?,
        FileKind::Job => job(text(), &mut found).map_err(here)?,
        _ if text().trim_start().starts_with('{') => {
            key(text(), args, &mut found)?;
        }
        _ => {
            let path = path.display();
            return Err(Failure::Work(format!("{path}: not a file that this program knows")));
        }
    }
    report(args.report.json, &Value::Object(found.json), &found.lines)
}

fn frame(bytes: &[u8], with_ciphertexts: bool, found: &mut Findings) -> Result<(), Error> {
    let frame = Frame::parse(bytes)?;
    let parameters = frame.parameters()?;
    found.add_same("kind", frame.kind.name());
    describe_parameters(&parameters, found);
    found.add_same("key_id", frame.key.to_string());
    let (agreement, stream) = match frame.kind {
        frame::Kind::Contribution => {
            let c = Contribution::from_frame(&frame)?;
            found.add_same("job", c.job.to_string());
            found.add_same("round", c.round);
            found.add_same("client", c.contributor.number);
            found.add_same("contributors", 1);
            if let Some(shares) = c.keys {
                let bytes = shares.bytes();
                found.add("share_bytes", bytes, format!("{bytes} bytes of shares for openers"));
            }
            (c.agreement, c.stream.into_owned())
        }
        frame::Kind::Sum => {
            let sum = Sum::from_frame(&frame)?;
            found.add_same("job", sum.job.to_string());
            found.add_same("round", sum.round);
            found.add_same("contributors", sum.contributors.len());
            let clients: Vec<_> = sum.contributors.iter().map(|c| c.number).collect();
            found.add("clients_summed", clients.clone(), format!("{clients:?}"));
            found.add_same("fewest_contributors", sum.fewest_contributors());
            (sum.agreement, sum.stream)
        }
        frame::Kind::RangesProposal => {
            let proposal = RangesProposal::from_frame(&frame)?;
            found.add_same("job", proposal.job().to_string());
            found.add_same("client", proposal.number());
            found.add("levels", proposal.levels(), format!("{} of each range", proposal.levels()));
            unopened(proposal.specs(), found);
            return Ok(());
        }
        frame::Kind::AgreedRanges => {
            let agreed = AgreedRanges::from_frame(&frame)?;
            found.add_same("job", agreed.job().to_string());
            let clients: Vec<_> = agreed.proposers().iter().map(|c| c.number).collect();
            found.add("clients_agreed", clients.clone(), format!("{clients:?}"));
            unopened(agreed.specs(), found);
            return Ok(());
        }
        frame::Kind::RangesKey => {
            found.add("bytes", bytes.len(), format!("{:.0} MB", bytes.len() as f64 / 1e6));
            return Ok(());
        }
        frame::Kind::OpenRequest => {
            let request = OpenRequest::from_frame(&frame)?;
            found.add_same("job", request.job.to_string());
            found.add_same("round", request.round);
            found.add_same("opener", request.opener);
            let clients: Vec<_> = request.contributors().map(|c| c.number).collect();
            found.add("clients_summed", clients.clone(), format!("{clients:?}"));
            return Ok(());
        }
        frame::Kind::OpenAnswer => {
            let answer = OpenAnswer::from_frame(&frame)?;
            found.add_same("job", answer.job.to_string());
            found.add_same("round", answer.round);
            found.add_same("opener", answer.opener);
            return Ok(());
        }
        frame::Kind::Announcement
        | frame::Kind::RoundTerms
        | frame::Kind::Vector
        | frame::Kind::EvaluationKey => return Ok(()),
    };
    let values = agreement.values();
    found.json.insert("bytes_per_value".into(), json!(per_value(stream.len(), values)));
    found.add("ciphertext_bytes", stream.len(), per_value_words(stream.len(), values));
    tensors(&agreement, &parameters, found);
    if with_ciphertexts && parameters.rlwe().is_none() {
        let hex = |c: &[u8]| c.iter().rev().map(|b| format!("{b:02x}")).collect::<String>();
        let each = parameters.geometry().unit_bytes;
        found.json.insert("ciphertexts".into(), stream.chunks(each).map(hex).collect());
    }
    Ok(())
}

/// Describes tensors whose ranges are encrypted.
fn unopened(specs: &[TensorSpec], found: &mut Findings) {
    let mut list = vec![];
    for TensorSpec { name, dtype, shape } in specs {
        let dtype = dtype.name();
        found.lines.push(format!("tensor           {name:?} {dtype} {shape:?}"));
        list.push(json!({ "name": name, "dtype": dtype, "shape": shape }));
    }
    found.json.insert("tensors".into(), list.into());
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
        found.add("ring_degree", n, format!("N = {n}, log2 Q = {log_q:.2}, 128-bit"));
    }
}

/// Describes quantised tensors: their ranges, their steps and the bound of the mean's error.
fn tensors(agreement: &Agreement, parameters: &Parameters, found: &mut Findings) {
    found.add_same("values", agreement.values());
    let w = agreement.max_weight();
    found.add_same("max_weight", w);
    clip_norm(agreement, found);
    let bound = format!("contributors · {w} ÷ (sum of weights) steps, unless clipped");
    found.add("error_bound", bound.clone(), bound);
    let mut list = vec![];
    let each = agreement.specs().iter().zip(agreement.ranges()).zip(agreement.precisions());
    for (((TensorSpec { name, dtype, shape }, range), precision), step) in
        each.zip(agreement.steps(parameters))
    {
        let dtype = dtype.name();
        let steps = match precision {
            Precision::Exact => "exact".into(),
            Precision::Key | Precision::Bits(_) => format!("step {step:e}"),
        };
        found
            .lines
            .push(format!("tensor           {name:?} {dtype} {shape:?}, range ±{range}, {steps}"));
        list.push(json!({
            "name": name, "dtype": dtype, "shape": shape, "range": range, "step": step,
        }));
    }
    found.json.insert("tensors".into(), list.into());
}

fn clip_norm(agreement: &Agreement, found: &mut Findings) {
    if let Some(norm) = agreement.clip_norm() {
        found.add_same("clip_norm", norm);
    }
}

fn ranges(text: &str, found: &mut Findings) -> Result<(), Error> {
    let agreement = RangesFile::from_json(text)?.agreement()?;
    found.add("kind", "ranges", "clipping ranges, in clear");
    found.add_same("max_weight", agreement.max_weight());
    clip_norm(&agreement, found);
    found.add_same("values", agreement.values());
    let each = agreement.specs().iter().zip(agreement.ranges()).zip(agreement.precisions());
    for ((TensorSpec { name, dtype, shape }, range), precision) in each {
        let dtype = dtype.name();
        let steps = match precision {
            Precision::Key => String::new(),
            Precision::Bits(_) | Precision::Exact => format!(", {}", precision.words()),
        };
        let line = format!("tensor           {name:?} {dtype} {shape:?}, range ±{range}{steps}");
        found.lines.push(line);
    }
    let content = serde_json::from_str::<Value>(text).unwrap_or_default();
    found.json.insert("tensors".into(), content["tensors"].clone());
    Ok(())
}

fn job(text: &str, found: &mut Findings) -> Result<(), Error> {
    let id = Job::id_of_json(text)?.to_string();
    let content = serde_json::from_str::<Value>(text).unwrap_or_default();
    found.add("kind", "job", "job: for the clients and the aggregator");
    found.add_same("id", id);
    for name in ["key_id", "clients", "min_clients", "max_weight", "max_range"] {
        found.add(name, content[name].clone(), content[name].to_string().trim_matches('"'));
    }
    let of = |name: &str| content["openers"][name].as_u64();
    if let (Some(openers), Some(open)) = (of("openers"), of("open")) {
        let quorum = Quorum::new(openers as usize, Some(open as usize))?;
        let json = json!({"openers": openers, "open": open, "silent": quorum.silent(), "faulty": quorum.faulty});
        found.add("openers", json, quorum_words(quorum));
    }
    if let Value::Object(noise) = &content["noise"] {
        let words = format!("sigma {} at clip {}", noise["sigma"], noise["clip"]);
        found.add("noise", noise.clone(), words);
    }
    for bits in content["bits"].as_array().into_iter().flatten() {
        let line = format!("bits of {}", bits["name"]);
        found.lines.push(format!("{line:<16} {}", bits["bits"]));
    }
    if let Value::Object(private) = &content["private_ranges"] {
        let word = |name: &str| private[name].as_str();
        let (rank, levels) = (word("rank").unwrap_or_default(), &private["levels"]);
        let mut words = format!("agreed without showing them: rank {rank}, in {levels} levels");
        if let Some(rounds) = private["agree_every"].as_u64().filter(|&rounds| rounds > 1) {
            words += &format!(", for {rounds} rounds");
        }
        if let Some(rank) = word("clip_norm") {
            words += &format!(", and a norm to clip to, rank {rank}");
        }
        found.add("private_ranges", private.clone(), words);
    }
    for (name, words) in [("tensors", "tensors settled"), ("allow", "nodes settled")] {
        let count = content[name].as_array().map_or(0, Vec::len);
        found.add(name, content[name].clone(), format!("{count} {words}"));
    }
    Ok(())
}

fn key(text: &str, args: &InspectArgs, found: &mut Findings) -> Result<(), Failure> {
    let path = args.file.as_path();
    let here = |e: Error| Failure::from(e.within(path.display()));
    let key = match KeyFile::from_json(text).map_err(here)? {
        KeyFile::Levelled(key, _) => return levelled::key(&key, path, found).map_err(here),
        KeyFile::Sums(key) => key,
    };
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
        AnyKey::Identity(..) => {
            let words = "identity of a member: for this one, and no one else; it opens no sum";
            found.add("kind", "identity of a member", words);
        }
    }
    if let Some(warning) = permission_warning(path).filter(|_| !matches!(key, AnyKey::Public(_))) {
        warn(&warning);
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
    match key {
        AnyKey::Secret(..) => use_of(key.public(), args, found),
        AnyKey::Public(_) | AnyKey::Client(..) | AnyKey::Identity(..) => Ok(()),
    }
}

/// Describes what a secret key was used for, and whether it has a sum key: nothing of its use where no ledger is known,
/// as of a key from standard input.
fn use_of(key: &PublicKey, args: &InspectArgs, found: &mut Findings) -> Result<(), Failure> {
    if args.used.ledger.is_some() || args.file.is_file() {
        let failures = args.used.ledger_of(&args.file)?.failures(key)?;
        found.add("failures", failures, format!("{failures} sums that did not open"));
    }
    let proves = key.check_sums().is_ok();
    found.json.insert("sum_key".into(), proves.into());
    if !proves {
        found.lines.push("it has no sum key: ciphergram keygen --upgrade".into());
    }
    Ok(())
}

fn spooled(bytes: &[u8], found: &mut Findings) {
    found.add("kind", "spool", "sealed chunks of a contribution whose sum has not come back");
    found.add_same("bytes", bytes.len());
}
