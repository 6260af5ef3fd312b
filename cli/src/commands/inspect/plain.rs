//! Content in clear: tensors as safetensors, files of nodes, ledgers.

use std::{collections::BTreeMap, path::Path};

use ciphergram_he::Error;
use ciphergram_nic::federation::nodes::{allowed_of, identity_of, node_of};
use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::Findings;
use crate::{
    failure::Failure,
    report::{counted, warn},
};

/// Describes a safetensors file with tensors of any type, and its metadata.
pub(super) fn safetensors(bytes: &[u8], found: &mut Findings) -> Result<(), Error> {
    let invalid = |e: safetensors::SafeTensorError| Error::Format {
        what: "safetensors file",
        why: e.to_string(),
    };
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(invalid)?;
    found.add("kind", "safetensors", "tensors in clear (safetensors)");
    let tensors: BTreeMap<_, _> = header.tensors().into_iter().collect();
    found.add_same(
        "values",
        tensors.values().map(|t| t.shape.iter().product::<usize>()).sum::<usize>(),
    );
    let metadata: BTreeMap<_, _> = header.metadata().iter().flatten().collect();
    for (name, text) in &metadata {
        found.lines.push(format!("metadata         {name:?}: {text:?}"));
    }
    let mut list = vec![];
    for (name, tensor) in tensors {
        let (dtype, shape) = (tensor.dtype.to_string(), &tensor.shape);
        found.lines.push(format!("tensor           {name:?} {dtype} {shape:?}"));
        list.push(json!({"name": name, "dtype": dtype, "shape": shape}));
    }
    found.json.insert("metadata".into(), json!(metadata));
    found.json.insert("tensors".into(), list.into());
    Ok(())
}

/// Describes an identity by its public half.
pub(super) fn identity(text: &str, path: &Path, found: &mut Findings) -> Result<(), Failure> {
    let identity = identity_of(text, path)?;
    found.add("kind", "identity", "identity: a node's secret key, for this node and no one else");
    found.add_same("node", identity.id().to_string());
    if let Some(warning) = ciphergram_he::keys::permission_warning(path) {
        warn(&warning);
    }
    Ok(())
}

/// Describes a node key. One that does not say what it is may be a secret one, and is not shown.
pub(super) fn node(text: &str, path: &Path, found: &mut Findings) -> Result<(), Failure> {
    let node = node_of(text, path)?;
    found.add("kind", "node key", "node key: public, for those who talk to this node");
    if text.contains("ciphergram-node-") || text.contains("# ciphergram node") {
        found.add_same("node", node.to_string());
    } else {
        let words = "not shown: without a comment, which earlier versions did not write, it could be an identity";
        found.add("node", Value::Null, words);
    }
    Ok(())
}

/// Describes the nodes that may take part.
pub(super) fn allow_list(text: &str, path: &Path, found: &mut Findings) -> Result<(), Failure> {
    let allowed = allowed_of(text, path)?;
    found.add("kind", "allow list", "allow list: the nodes that may take part");
    let mut list = vec![];
    for (node, client) in &allowed {
        let words = client.map_or("any client".into(), |number| format!("client {number}"));
        found.lines.push(format!("node             {node}, as {words}"));
        list.push(json!({"node": node.to_string(), "client": client}));
    }
    found.json.insert("nodes".into(), list.into());
    Ok(())
}

/// Describes a ledger: the last round that each client sealed, and how many sums opened.
pub(super) fn ledger(text: &str, found: &mut Findings) {
    found.add("kind", "ledger", "ledger: what a key beside it sealed and opened");
    let mut sealed: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut ends = BTreeMap::from([("opening", 0), ("opened", 0), ("failed", 0), ("refused", 0)]);
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["sealed", job, client, round] => {
                let last = sealed.entry((job, client)).or_default();
                *last = round.parse::<u64>().unwrap_or_default().max(*last);
            }
            [verb, ..] => {
                ends.entry(verb).and_modify(|count| *count += 1);
            }
            [] => {}
        }
    }
    let mut list = vec![];
    for ((job, client), round) in sealed {
        found
            .lines
            .push(format!("sealed           job {job}, client {client}: up to round {round}"));
        list.push(json!({"job": job, "client": client.parse::<u16>().ok(), "last_round": round}));
    }
    found.json.insert("sealed".into(), list.into());
    let (opening, ended) = (ends["opening"], ends["opened"] + ends["failed"] + ends["refused"]);
    found.add("opened", ends["opened"], counted(ends["opened"], "sum"));
    let failed = ends["failed"] + opening.max(ended) - ended;
    found.add("failed", failed, format!("{}, those cut short among them", counted(failed, "sum")));
}
