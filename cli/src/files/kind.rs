//! Kinds of files, recognised by their first bytes.

use std::{
    fs::File,
    io::{self, Read as _},
};

use ciphergram_nic::federation::spool;
use serde::Deserialize;
use zeroize::Zeroizing;

/// Bytes that tell every kind but those of JSON.
const HEAD_BYTES: u64 = 4096;
/// Most bytes of JSON that are looked at. What is longer is of no kind that this program knows.
const MAX_JSON_BYTES: u64 = 256 << 20;

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Nothing yet.
    Empty,
    /// Tensors in clear, as safetensors.
    Tensors,
    /// A client's encrypted update.
    Contribution,
    /// The sum of several.
    Sum,
    /// Tensors under the levelled scheme.
    Vector,
    /// Keys to compute with.
    EvaluationKey,
    /// Clipping ranges.
    Ranges,
    /// A client's encrypted ranges.
    RangesProposal,
    /// Ranges that are agreed, encrypted.
    AgreedRanges,
    /// The key that they are agreed with.
    RangesKey,
    /// What an aggregator asks an opener.
    OpenRequest,
    /// What an opener answers.
    OpenAnswer,
    /// What others know a member of a job by.
    Member,
    /// The one-time keys of an opener.
    Prekeys,
    /// Figures of a command, as JSON.
    Report,
    /// The cohorts of a mean, as JSON.
    Cohorts,
    /// Captured datagrams.
    Capture,
    PublicKey,
    ClientKey,
    SecretKey,
    Job,
    /// A node's secret key.
    Identity,
    /// A node key.
    Node,
    /// The nodes that may take part.
    AllowList,
    /// A record of a key's use.
    Ledger,
    /// Sealed chunks of a contribution.
    Spool,
    Other,
}

impl FileKind {
    /// Returns the words for people, with an article.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Empty => "nothing",
            Self::Tensors => "tensors (safetensors)",
            Self::Contribution => "a contribution",
            Self::Sum => "a sum",
            Self::Vector => "a vector",
            Self::EvaluationKey => "an evaluation key",
            Self::Ranges => "ranges",
            Self::RangesProposal => "a proposal of ranges",
            Self::AgreedRanges => "agreed ranges, encrypted",
            Self::RangesKey => "an evaluation key of ranges",
            Self::OpenRequest => "a request to an opener",
            Self::OpenAnswer => "an answer of an opener",
            Self::Member => "a member's public file",
            Self::Prekeys => "an opener's one-time keys",
            Self::Report => "a report (JSON)",
            Self::Cohorts => "cohorts (JSON)",
            Self::Capture => "a capture (pcap)",
            Self::PublicKey => "a public key",
            Self::ClientKey => "a client's key",
            Self::SecretKey => "a secret key",
            Self::Job => "a job",
            Self::Identity => "an identity",
            Self::Node => "a node key or an identity",
            Self::AllowList => "an allow list",
            Self::Ledger => "a ledger",
            Self::Spool => "a spool",
            Self::Other => "something else",
        }
    }

    /// Returns the kind of an open file.
    pub(crate) fn of_file(file: &mut File) -> io::Result<Self> {
        // It may be a key.
        let mut bytes = Zeroizing::new(vec![]);
        file.take(HEAD_BYTES).read_to_end(&mut bytes)?;
        if bytes.trim_ascii_start().starts_with(b"{") && bytes.len() as u64 == HEAD_BYTES {
            file.take(MAX_JSON_BYTES).read_to_end(&mut bytes)?;
        }
        Ok(Self::of(&bytes))
    }

    /// Returns the kind of a file that begins with `bytes`, or is them as a whole if it is JSON.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        const CAPTURES: [[u8; 4]; 5] = [
            [0xd4, 0xc3, 0xb2, 0xa1],
            [0xa1, 0xb2, 0xc3, 0xd4],
            [0x4d, 0x3c, 0xb2, 0xa1],
            [0xa1, 0xb2, 0x3c, 0x4d],
            [0x0a, 0x0d, 0x0d, 0x0a],
        ];
        let text = bytes.trim_ascii_start();
        match bytes {
            [] => Self::Empty,
            [b'C', b'I', b'P', b'H', b'E', b'R', b'G', b'M', _, _, 1, ..] => Self::Contribution,
            [b'C', b'I', b'P', b'H', b'E', b'R', b'G', b'M', _, _, 2, ..] => Self::Sum,
            [b'C', b'I', b'P', b'H', b'E', b'R', b'G', b'M', _, _, 5, ..] => Self::Vector,
            [b'C', b'I', b'P', b'H', b'E', b'R', b'G', b'M', _, _, 6, ..] => Self::EvaluationKey,
            [b'C', b'I', b'P', b'H', b'E', b'R', b'G', b'M', _, _, 7, ..] => Self::RangesProposal,
            [b'C', b'I', b'P', b'H', b'E', b'R', b'G', b'M', _, _, 8, ..] => Self::AgreedRanges,
            [b'C', b'I', b'P', b'H', b'E', b'R', b'G', b'M', _, _, 9, ..] => Self::RangesKey,
            [b'C', b'I', b'P', b'H', b'E', b'R', b'G', b'M', _, _, 10, ..] => Self::OpenRequest,
            [b'C', b'I', b'P', b'H', b'E', b'R', b'G', b'M', _, _, 11, ..] => Self::OpenAnswer,
            // The length of the header, which is a JSON object.
            [_, _, _, _, _, 0, 0, 0, b'{', ..] => Self::Tensors,
            _ if spool::is_spool(bytes) => Self::Spool,
            _ if CAPTURES.iter().any(|magic| bytes.starts_with(magic)) => Self::Capture,
            _ if text.starts_with(b"{") => Self::of_json(text),
            _ => {
                let head = &bytes[..bytes.len().min(HEAD_BYTES as usize)];
                Self::of_lines(&String::from_utf8_lossy(head))
            }
        }
    }

    fn of_json(text: &[u8]) -> Self {
        use serde::de::IgnoredAny;
        /// Members that show the kind. Values of keys are not looked at.
        #[derive(Deserialize)]
        struct JsonMembers {
            kind: Option<String>,
            kty: Option<IgnoredAny>,
            client: Option<IgnoredAny>,
            #[serde(rename = "pub")]
            public: Option<IgnoredAny>,
            machine: Option<IgnoredAny>,
            rows: Option<IgnoredAny>,
            agree: Option<IgnoredAny>,
            per_round: Option<IgnoredAny>,
        }
        let Ok(members) = serde_json::from_slice::<JsonMembers>(text) else { return Self::Other };
        match members.kind.as_deref() {
            Some("ciphergram-job") => return Self::Job,
            Some("ciphergram-ranges") => return Self::Ranges,
            Some("ciphergram-report") => return Self::Report,
            Some("ciphergram-cohorts") => return Self::Cohorts,
            _ => {}
        }
        match members {
            JsonMembers { kty: Some(_), client: Some(_), .. } => Self::ClientKey,
            JsonMembers { kty: Some(_), public: Some(_), .. } => Self::SecretKey,
            JsonMembers { kty: Some(_), .. } => Self::PublicKey,
            // Reports of earlier versions, by `bench` and by `demo`.
            JsonMembers { machine: Some(_), rows: Some(_), .. }
            | JsonMembers { agree: Some(_), per_round: Some(_), .. } => Self::Report,
            _ => Self::Other,
        }
    }

    /// Files of lines: those of earlier versions say what they are in no more than a comment, or not at all.
    fn of_lines(text: &str) -> Self {
        let first = text.lines().next().unwrap_or_default();
        let content = || text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let line = content().find(|line| !line.is_empty()).unwrap_or_default();
        let is_key = |word: &str| word.parse::<ciphergram_nic::proto::NodeId>().is_ok();
        let verb = first.split(' ').next().unwrap_or_default();
        if first.starts_with("# ciphergram identity") || first.starts_with("# secret key of node") {
            Self::Identity
        } else if first.starts_with("# ciphergram allow")
            || line.split_once(char::is_whitespace).is_some_and(|(node, _)| is_key(node))
        {
            Self::AllowList
        } else if first.starts_with("# ciphergram member") {
            Self::Member
        } else if first.starts_with("# ciphergram prekeys") {
            Self::Prekeys
        } else if first.starts_with("# ciphergram node") || is_key(line) {
            Self::Node
        } else if ["sealed", "answered", "prekey", "opening", "opened", "failed", "refused"]
            .contains(&verb)
            || first.starts_with("# ciphergram ledger")
        {
            Self::Ledger
        } else {
            Self::Other
        }
    }
}
