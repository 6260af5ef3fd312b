//! Values of options, parsed.

use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use ciphergram_he::{
    Scheme,
    ckks::{CkksError, Preset},
    codec::{Policy, TensorBits},
    error::ParameterError,
    private_ranges::Rank,
};
use ciphergram_nic::proto::{
    DatagramSizes, NodeId,
    datagram::{MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES},
};

use clap::builder::{OsStringValueParser, TypedValueParser};

pub(super) fn scheme(text: &str) -> Result<Scheme, ParameterError> {
    text.parse()
}

/// Schemes of keys, programs and parameters: of sums, or levelled.
#[derive(Clone, Copy)]
pub(crate) enum AnyScheme {
    Sums(Scheme),
    Levelled(Preset),
}

impl AnyScheme {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Sums(scheme) => scheme.name().into(),
            Self::Levelled(preset) => preset.to_string(),
        }
    }
}

pub(super) fn any_scheme(text: &str) -> Result<AnyScheme, String> {
    let sums = scheme(text).map(AnyScheme::Sums);
    sums.or_else(|why| {
        let levelled = text.parse().map(AnyScheme::Levelled);
        let names = Preset::ALL.map(|preset| preset.to_string()).join(", ");
        levelled.map_err(|_: CkksError| format!("{why}, {names}"))
    })
}

/// The ranges of a job as typed.
#[derive(Clone)]
pub(crate) enum JobRanges {
    /// Those of a file.
    Settled(PathBuf),
    /// Private ones of this rank, or of the usual one.
    Agreed(Option<Rank>),
}

/// Parses the ranges of a job: the path of a file, whatever its bytes are, or private ones.
pub(super) fn job_ranges() -> impl TypedValueParser<Value = JobRanges> {
    OsStringValueParser::new().try_map(|word| match word.to_str() {
        Some("") => Err("a path, or agree".to_owned()),
        Some("agree") => Ok(JobRanges::Agreed(None)),
        Some(text) if text.starts_with("agree:") => {
            Ok(JobRanges::Agreed(Some(Rank::from_agree(text)?)))
        }
        _ => Ok(JobRanges::Settled(word.into())),
    })
}

pub(super) fn weight(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|w| (1..=u64::from(u32::MAX)).contains(w))
        .ok_or_else(|| "a weight is an integer from 1 to 4294967295".into())
}

pub(super) fn clip(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|c: &f64| c.is_finite() && *c > 0.0)
        .ok_or_else(|| "a clipping range is a positive number".into())
}

/// Parses bits of the tensors that a pattern names.
pub(super) fn named_bits(text: &str) -> Result<TensorBits, String> {
    let named = text.rsplit_once('=').and_then(|(name, bits)| Some((name, bits.parse().ok()?)));
    named
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, bits)| TensorBits { name: name.into(), bits })
        .ok_or_else(|| "a tensor's bits are NAME=BITS, where * in NAME stands for any text".into())
}

/// Parses a limit of L2 norms.
pub(super) fn norm(text: &str) -> Result<f64, String> {
    let norm = text.parse().ok().filter(|norm: &f64| norm.is_finite() && *norm > 0.0);
    norm.ok_or_else(|| "a norm is a positive number".into())
}

/// Parses the cosine of an angle.
pub(super) fn cosine(text: &str) -> Result<f64, String> {
    let cosine = text.parse().ok().filter(|cosine: &f64| (-1.0..=1.0).contains(cosine));
    cosine.ok_or_else(|| "a cosine is a number from -1 to 1".into())
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|s: &f64| (0.001..=1e7).contains(s))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "a number of seconds from 0.001 to 10000000".into())
}

/// Parses the clock of a card, in MHz.
pub(super) fn clock(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|mhz| (1.0..=2000.0).contains(mhz))
        .ok_or_else(|| "a clock from 1 to 2000 MHz".into())
}

/// Parses the longest datagram: no shorter than an answer may be, no longer than UDP carries.
pub(super) fn datagram_sizes(text: &str) -> Result<DatagramSizes, String> {
    let sizes = text.parse().ok().and_then(|bytes| DatagramSizes::up_to(bytes).ok());
    sizes.ok_or_else(|| {
        format!("a number of bytes from {MIN_DATAGRAM_BYTES} to {MAX_DATAGRAM_BYTES}")
    })
}

/// Parses a node key, also as the file of one has it, with a comment behind.
pub(super) fn node(text: &str) -> Result<NodeId, String> {
    let key = text.split('#').next().unwrap_or_default().trim();
    key.parse().map_err(|_| "a node key is 43 characters of base64".into())
}

pub(super) fn threads(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|threads| (1..=1024).contains(threads))
        .ok_or_else(|| "a number of threads from 1 to 1024".into())
}

/// Sizes of n in bits, each once.
#[derive(Clone)]
pub(crate) struct KeySizes(pub(crate) Vec<u32>);

pub(super) fn key_sizes(text: &str) -> Result<KeySizes, String> {
    let mut found = vec![];
    for word in text.split(',') {
        let bits = word.parse().ok().filter(|bits| [1024, 2048, 3072, 4096].contains(bits));
        let bits =
            bits.ok_or_else(|| format!("no keys of {word:?} bits; there are 2048, 3072, 4096"))?;
        if !found.contains(&bits) {
            found.push(bits);
        }
    }
    Ok(KeySizes(found))
}

/// Parses a clipping policy; aciq is for 16 bits unless it says else.
pub(super) fn policy(text: &str) -> Result<Policy, String> {
    let number = |name: &str, text: &str| {
        let number = text.parse().ok().filter(|m: &f64| m.is_finite() && *m > 0.0);
        number.ok_or_else(|| format!("{name}: takes a positive number"))
    };
    match text.split_once(':') {
        None if text == "max" => Ok(Policy::Max),
        None if text == "aciq" => Ok(Policy::Aciq { bits: 16 }),
        Some((name @ "sigma", rest)) => number(name, rest).map(Policy::Sigma),
        Some((name @ "fixed", rest)) => number(name, rest).map(Policy::Fixed),
        Some(("aciq", rest)) => {
            let bits = rest.parse().ok().filter(|bits| (8..=24).contains(bits));
            bits.map(|bits| Policy::Aciq { bits }).ok_or("aciq: takes 8 to 24 bits".into())
        }
        _ => Err("a policy is max, sigma:MULTIPLE, aciq[:BITS] or fixed:RANGE".into()),
    }
}

/// Parses an address with a port, or finds out that of a host's name: of IPv4 if there is such.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let expected = || "expected HOST:PORT, the host a name or an address, of IPv6 in brackets";
    let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
    if host.is_empty() || host.contains(':') || port.parse::<u16>().is_err() {
        return Err(expected().into());
    }
    let found: Vec<_> = text.to_socket_addrs().map_err(|e| e.to_string())?.collect();
    let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first());
    chosen.copied().ok_or_else(|| "it has no address".into())
}

/// The aggregator as a person names it: `HOST:PORT`, the host a name or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerName(String);

impl ServerName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        let in_brackets = host.starts_with('[') && host.ends_with(']');
        let is_port = port.parse().is_ok_and(|port: u16| port != 0);
        if host.is_empty() || host.contains(':') && !in_brackets || !is_port {
            return Err("expected HOST:PORT, the host a name or an address, of IPv6 in brackets");
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
