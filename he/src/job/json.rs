//! The file of a job.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use serde::{Deserialize, Serialize};

use super::{AllowedNode, Job, Limits, NoiseLimits, PrivateRanges, SettledTensor, name};
use crate::{
    Error, PublicKey, TensorSpec,
    bytes::Writer,
    codec::TensorBits,
    ids::{JobId, KeyId, hex, parse_hex},
    private_ranges::Rank,
    tensors::Dtype,
    threshold::{Openers, Quorum},
    versions,
};

const KIND: &str = "ciphergram-job";
/// The first version has no private ranges, the second names no colluders and no bits of tensors; a job without is
/// still of these. The third has no openers.
const VERSION: u32 = 4;
const BEFORE_OPENERS: u32 = 3;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobJson {
    kind: String,
    version: u32,
    nonce: String,
    key_id: String,
    clients: u16,
    min_clients: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    colluders: Option<u16>,
    max_weight: u32,
    max_range: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<TensorJson>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noise: Option<NoiseLimits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow: Option<Vec<NodeJson>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    private_ranges: Option<PrivateRangesJson>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bits: Vec<TensorBits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    openers: Option<OpenersJson>,
}

/// Keys are in binary; numbers are there to be read, and are checked against it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenersJson {
    openers: u8,
    open: u8,
    faulty: u8,
    keys: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrivateRangesJson {
    rank: String,
    levels: u8,
    agree_every: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clip_norm: Option<String>,
    key_id: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorJson {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeJson {
    node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<u16>,
}

fn invalid<S: Into<String>>(why: S) -> Error {
    Error::Format { what: "job", why: why.into() }
}

impl Job {
    /// Returns the file's text.
    ///
    /// # Errors
    /// The JSON library's, which these types do not cause.
    pub fn to_json(&self) -> Result<String, Error> {
        let Limits {
            clients,
            min_clients,
            colluders,
            max_weight,
            max_range,
            tensors,
            noise,
            allow,
            private_ranges,
            bits,
            openers,
        } = &self.limits;
        let private = |private: PrivateRanges| PrivateRangesJson {
            rank: private.rank.to_string(),
            levels: private.levels,
            agree_every: private.agree_every,
            clip_norm: private.clip_norm.map(|rank| rank.to_string()),
            key_id: private.key.to_string(),
        };
        let tensor = |SettledTensor { spec, range }: &SettledTensor| {
            let (name, dtype) = (spec.name.clone(), spec.dtype.name().into());
            TensorJson { name, dtype, shape: spec.shape.clone(), range: *range }
        };
        let node = |AllowedNode { node, client }: &AllowedNode| {
            let (node, client) = (node.clone(), *client);
            NodeJson { node, client }
        };
        let openers = openers.as_ref().map(|all| {
            let Quorum { openers, open, faulty } = all.quorum();
            let mut keys = Writer::default();
            all.write(&mut keys);
            OpenersJson { openers, open, faulty, keys: BASE64.encode(keys.0) }
        });
        let file = JobJson {
            kind: KIND.into(),
            version: match (colluders, private_ranges) {
                _ if openers.is_some() => VERSION,
                (Some(_), _) => BEFORE_OPENERS,
                _ if !bits.is_empty() || noise.is_some_and(|noise| noise.budget.is_some()) => {
                    BEFORE_OPENERS
                }
                (None, Some(_)) => 2,
                (None, None) => 1,
            },
            nonce: hex(&self.nonce),
            key_id: self.key.to_string(),
            clients: *clients,
            min_clients: *min_clients,
            colluders: *colluders,
            max_weight: *max_weight,
            max_range: *max_range,
            tensors: tensors.as_ref().map(|all| all.iter().map(tensor).collect()),
            noise: *noise,
            allow: allow.as_ref().map(|all| all.iter().map(node).collect()),
            private_ranges: private_ranges.map(private),
            bits: bits.clone(),
            openers,
        };
        serde_json::to_string_pretty(&file).map_err(|e| invalid(e.to_string()))
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// It is no job, a later version of one, or of another key.
    pub fn from_json(text: &str, key: &PublicKey) -> Result<Self, Error> {
        let (nonce, own, limits) = Self::parts(text)?;
        Self::of_parts(nonce, own, limits, key)
    }

    /// Returns the name of the job in the text of a file, whatever its key.
    ///
    /// # Errors
    /// It is no job, or a later version of one.
    pub fn id_of_json(text: &str) -> Result<JobId, Error> {
        let (nonce, own, limits) = Self::parts(text)?;
        Ok(name(&nonce, &own, &limits))
    }

    /// Reads the nonce, the key's id and the limits.
    fn parts(text: &str) -> Result<([u8; 16], KeyId, Limits), Error> {
        versions::check_json(text, "job", KIND, VERSION)?;
        let file: JobJson = serde_json::from_str(text).map_err(|e| invalid(e.to_string()))?;
        let id = |text: &str| parse_hex(text).ok_or_else(|| invalid("an id is not 32 digits"));
        let tensor = |t: TensorJson| {
            let unknown = || Error::Dtype { tensor: t.name.clone(), dtype: t.dtype.clone() };
            let dtype = Dtype::from_name(&t.dtype).ok_or_else(unknown)?;
            let spec = TensorSpec { name: t.name, dtype, shape: t.shape };
            Ok::<_, Error>(SettledTensor { spec, range: t.range })
        };
        let tensors = file.tensors.map(|all| all.into_iter().map(tensor).collect());
        let node = |NodeJson { node, client }| AllowedNode { node, client };
        let rank = |text: String| text.parse::<Rank>().map_err(invalid);
        let private = |private: PrivateRangesJson| {
            Ok::<_, Error>(PrivateRanges {
                rank: rank(private.rank)?,
                levels: private.levels,
                agree_every: private.agree_every,
                clip_norm: private.clip_norm.map(rank).transpose()?,
                key: KeyId(id(&private.key_id)?),
            })
        };
        let limits = Limits {
            clients: file.clients,
            min_clients: file.min_clients,
            colluders: file.colluders,
            max_weight: file.max_weight,
            max_range: file.max_range,
            tensors: tensors.transpose()?,
            noise: file.noise,
            allow: file.allow.map(|all| all.into_iter().map(node).collect()),
            private_ranges: file.private_ranges.map(private).transpose()?,
            bits: file.bits,
            openers: file.openers.map(openers).transpose()?,
        };
        Ok((id(&file.nonce)?, KeyId(id(&file.key_id)?), limits))
    }
}

fn openers(file: OpenersJson) -> Result<Arc<Openers>, Error> {
    let keys = BASE64.decode(&file.keys).map_err(|_| invalid("keys of openers are not base64"))?;
    let openers = Openers::read(&keys)?;
    let Quorum { openers: count, open, faulty } = openers.quorum();
    if (file.openers, file.open, file.faulty) != (count, open, faulty) {
        return Err(invalid("numbers of openers are not those of their keys"));
    }
    Ok(Arc::new(openers))
}
