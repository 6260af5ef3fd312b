//! The common form of everything binary: header, body, digest.
//!
//! | bytes | field |
//! |---|---|
//! | 0–7 | `CIPHERGM` |
//! | 8–9 | version, 7; 4 to 6 are read where nothing grows from seeds, which expanded to other polynomials |
//! | 10 | kind |
//! | 11 | scheme, or 16 and more: a preset of the levelled scheme |
//! | 12–13 | the most clients of a sum; zero under a preset |
//! | 14 | bits of a value; zero under a preset |
//! | 15 | zero |
//! | 16–23 | parameter-set id |
//! | 24–39 | key id |
//! | 40–47 | bytes of the body |
//! | 48– | body |
//! | last 32 | BLAKE3 of all before |
//!
//! The digest finds damage, not malice: anyone who can write a frame can compute it.

use crate::{
    Agreement, Error, Parameters, PublicKey, Scheme,
    bytes::{Reader, Writer},
    ckks::{self, Preset},
    error::{FRAME_VERSION, FrameError},
    ids::KeyId,
    params::{Chunks, Literal},
};

/// What every frame begins with.
pub const MAGIC: &[u8; 8] = b"CIPHERGM";
const HEADER_BYTES: usize = 48;
const DIGEST_BYTES: usize = 32;
/// The oldest version that is read.
const OLDEST: u16 = 4;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One client's encrypted update.
    Contribution = 1,
    /// The sum of several.
    Sum = 2,
    /// A client's announcement when it joins a round.
    Announcement = 3,
    /// An aggregator's answer when a round opens.
    RoundTerms = 4,
    /// Tensors under the levelled scheme, and what was computed from such.
    Vector = 5,
    /// Keys to compute with.
    EvaluationKey = 6,
    /// One client's encrypted ranges.
    RangesProposal = 7,
    /// The encrypted ranges that are agreed.
    AgreedRanges = 8,
    /// The key that ranges are agreed with.
    RangesKey = 9,
    /// What an aggregator asks an opener.
    OpenRequest = 10,
    /// What an opener answers.
    OpenAnswer = 11,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Contribution,
        Self::Sum,
        Self::Announcement,
        Self::RoundTerms,
        Self::Vector,
        Self::EvaluationKey,
        Self::RangesProposal,
        Self::AgreedRanges,
        Self::RangesKey,
        Self::OpenRequest,
        Self::OpenAnswer,
    ];

    /// Returns the name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Contribution => "contribution",
            Self::Sum => "sum",
            Self::Announcement => "announcement",
            Self::RoundTerms => "round terms",
            Self::Vector => "vector",
            Self::EvaluationKey => "evaluation key",
            Self::RangesProposal => "proposal of ranges",
            Self::AgreedRanges => "file of agreed ranges",
            Self::RangesKey => "evaluation key of ranges",
            Self::OpenRequest => "request to an opener",
            Self::OpenAnswer => "answer of an opener",
        }
    }
}

/// What a frame says it was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MadeWith {
    /// A set of a scheme of sums.
    Sums(Literal),
    /// A preset of the levelled scheme.
    Vectors(Preset),
}

/// The first code of a preset.
const PRESETS: u8 = 16;

impl MadeWith {
    fn read(kind: Kind, code: u8, (clients, bits): (u16, u16)) -> Result<Self, FrameError> {
        let is_levelled = matches!(kind, Kind::Vector | Kind::EvaluationKey);
        let index = code.checked_sub(PRESETS).filter(|_| is_levelled).map(usize::from);
        if let Some(&preset) = index.and_then(|index| Preset::ALL.get(index)) {
            let malformed = FrameError::Malformed { what: "clients or bits under a preset" };
            return if (clients, bits) == (0, 0) {
                Ok(Self::Vectors(preset))
            } else {
                Err(malformed)
            };
        }
        let scheme = Scheme::from_code(code).filter(|_| !is_levelled);
        let scheme = scheme.ok_or(FrameError::Unknown { what: "scheme", code })?;
        Ok(Self::Sums(Literal { scheme, clients: clients.into(), bits: bits.into() }))
    }

    fn write(self, w: &mut Writer) {
        let (code, clients, bits) = match self {
            Self::Sums(of) => (of.scheme.code(), of.clients as u16, of.bits as u16),
            Self::Vectors(preset) => (PRESETS + preset as u8, 0, 0),
        };
        w.u8(code);
        w.u16(clients);
        w.u16(bits);
    }
}

/// What the header of a frame says, but for the length of its body.
pub(crate) struct Header {
    kind: Kind,
    made_with: MadeWith,
    parameters: [u8; 8],
    key: KeyId,
}

impl Header {
    /// Of a frame under a key of a scheme of sums, about updates of `values` fields.
    pub(crate) fn of_sums(kind: Kind, key: &PublicKey, values: usize) -> Self {
        let made_with = MadeWith::Sums(key.parameters().literal());
        let parameters = key.parameters().of_values(values).id();
        Self { kind, made_with, parameters, key: key.id() }
    }

    /// Of a frame under a key of the levelled scheme.
    ///
    /// # Errors
    /// The parameters are no preset's: others do not travel.
    pub(crate) fn of_vectors(
        kind: Kind,
        parameters: &ckks::Parameters,
        key: KeyId,
    ) -> Result<Self, Error> {
        let made_with = MadeWith::Vectors(parameters.named()?);
        Ok(Self { kind, made_with, parameters: parameters.id(), key })
    }
}

/// A parsed frame. Its ids are not checked against any key yet.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The kind of its content.
    pub kind: Kind,
    /// The parameters that it says it was made with.
    pub made_with: MadeWith,
    /// The parameter-set id.
    pub parameters: [u8; 8],
    /// The key id.
    pub key: KeyId,
    /// The content.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Checks form and digest.
    ///
    /// # Errors
    /// See [`FrameError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let start = &bytes[..bytes.len().min(MAGIC.len())];
        if start.is_empty() || !MAGIC.starts_with(start) {
            return Err(FrameError::Magic);
        }
        let mut r = Reader(bytes);
        r.bytes(MAGIC.len())?;
        let found = r.u16()?;
        if !(OLDEST..=FRAME_VERSION).contains(&found) {
            let (found, known) = (found.into(), FRAME_VERSION.into());
            return Err(FrameError::Version { found, known });
        }
        let (kind, scheme) = (r.u8()?, r.u8()?);
        let sizes = (r.u16()?, r.u16()?);
        let (parameters, key) = (r.array()?, KeyId(r.array()?));
        let length = usize::try_from(r.u64()?).map_err(|_| FrameError::Truncated)?;
        let body = r.bytes(length)?;
        let digest = r.bytes(DIGEST_BYTES)?;
        r.end()?;
        if blake3::hash(&bytes[..HEADER_BYTES + length]).as_bytes() != digest {
            return Err(FrameError::Damaged);
        }
        let kind = Kind::ALL
            .into_iter()
            .find(|&k| k as u8 == kind)
            .ok_or(FrameError::Unknown { what: "kind", code: kind })?;
        let made_with = MadeWith::read(kind, scheme, sizes)?;
        let grows = match made_with {
            MadeWith::Sums(literal) => literal.scheme.grows_from_seeds(),
            MadeWith::Vectors(_) => true,
        };
        if found < FRAME_VERSION && grows {
            return Err(FrameError::FormerExpansion);
        }
        Ok(Self { kind, made_with, parameters, key, body })
    }

    /// Refuses another kind of frame.
    ///
    /// # Errors
    /// [`FrameError::Kind`].
    pub fn check_kind(&self, kind: Kind) -> Result<(), FrameError> {
        let (found, expected) = (self.kind.name(), kind.name());
        if self.kind == kind { Ok(()) } else { Err(FrameError::Kind { found, expected }) }
    }

    /// Refuses another scheme, parameter set or key, in this order.
    ///
    /// # Errors
    /// The first that differs.
    pub fn check_key(&self, key: &PublicKey) -> Result<(), Error> {
        let parameters = key.parameters();
        let literal = self.literal()?;
        let (found, expected) = (literal.scheme, parameters.scheme());
        if found != expected {
            return Err(Error::other_key("it is of scheme", found, expected));
        }
        if parameters.of_id(self.parameters).is_none() || literal != parameters.literal() {
            let text = |l: Literal| format!("{} clients at {} bits", l.clients, l.bits);
            let (found, expected) = (text(literal), text(parameters.literal()));
            return Err(Error::other_key("its parameter set is", found, expected));
        }
        if self.key != key.id() {
            return Err(Error::other_key("it was made under key", self.key, key.id()));
        }
        Ok(())
    }

    /// Returns the literal of a set of a scheme of sums that it says it was made with.
    ///
    /// # Errors
    /// It is a frame of the levelled scheme.
    pub fn literal(&self) -> Result<Literal, FrameError> {
        match self.made_with {
            MadeWith::Sums(literal) => Ok(literal),
            MadeWith::Vectors(_) => {
                Err(FrameError::Kind { found: self.kind.name(), expected: "frame of a sum" })
            }
        }
    }

    /// Derives the parameter set that it says it was made with, checked against its id.
    ///
    /// # Errors
    /// It is refused, or of a version that derives other sizes from the same literal.
    pub fn parameters(&self) -> Result<Parameters, Error> {
        let parameters = Parameters::new(self.literal()?)?;
        let set = parameters.of_id(self.parameters).cloned();
        set.ok_or_else(|| FrameError::Malformed { what: "an unknown parameter set" }.into())
    }

    /// Refuses a frame of another set than updates of `fields` fields travel under.
    ///
    /// # Errors
    /// The set is another: the frame is of an earlier version, which had no larger rings.
    pub(crate) fn check_set_of(&self, fields: usize) -> Result<(), Error> {
        self.check_set(Parameters::new(self.literal()?)?.of_values(fields))
    }

    /// Cuts the stream of an agreement's fields under the set that they travel under, and refuses a frame of another.
    ///
    /// # Errors
    /// As [`check_set_of`](Self::check_set_of).
    pub(crate) fn chunks_of(&self, agreement: &Agreement) -> Result<Chunks, Error> {
        let parameters = Parameters::new(self.literal()?)?;
        let fields = agreement.fields(&parameters);
        self.check_set(parameters.of_values(fields))?;
        Ok(parameters.chunks(fields))
    }

    fn check_set(&self, set: &Parameters) -> Result<(), Error> {
        if set.id() == self.parameters {
            return Ok(());
        }
        let what = "of a parameter set that updates of this size no longer have; make it again";
        Err(FrameError::Malformed { what }.into())
    }

    /// Derives the parameters of the preset that it says it was made with, checked against their id.
    ///
    /// # Errors
    /// It is a frame of a sum, or of a version that derives other parameters from the same preset.
    pub fn levelled_parameters(&self) -> Result<ckks::Parameters, FrameError> {
        let MadeWith::Vectors(preset) = self.made_with else {
            return Err(FrameError::Kind { found: self.kind.name(), expected: "vector" });
        };
        let parameters = ckks::Parameters::preset(preset);
        let unknown = FrameError::Malformed { what: "an unknown parameter set" };
        if parameters.id() == self.parameters { Ok(parameters) } else { Err(unknown) }
    }
}

/// Parses a frame of one kind, made under `key`.
///
/// # Errors
/// Its form, kind, scheme, parameters or key are not as they should be.
pub(crate) fn open<'a>(bytes: &'a [u8], kind: Kind, key: &PublicKey) -> Result<Frame<'a>, Error> {
    let frame = Frame::parse(bytes)?;
    frame.check_kind(kind)?;
    frame.check_key(key)?;
    Ok(frame)
}

/// Returns the last bytes of the body of a whole frame, in the memory of the frame: as many as `length`.
pub(super) fn last_of(mut frame: Vec<u8>, length: usize) -> Vec<u8> {
    frame.truncate(frame.len() - DIGEST_BYTES);
    frame.drain(..frame.len() - length);
    frame
}

/// Frames under a key the body that `write` appends, of about `capacity` bytes.
pub(crate) fn seal(header: &Header, capacity: usize, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let (mut bytes, digest) = seal_around(header, capacity, write, &[]);
    bytes.extend(digest);
    bytes
}

/// Frames under a key a body that begins with what `write` appends, of about `capacity` bytes, and ends with
/// `rest`, which is not copied. Returns what stands before it, and after it.
pub(crate) fn seal_around(
    header: &Header,
    capacity: usize,
    write: impl FnOnce(&mut Writer),
    rest: &[u8],
) -> (Vec<u8>, [u8; DIGEST_BYTES]) {
    let start = begin(header, capacity, write, rest.len());
    let digest = *blake3::Hasher::new().update(&start).update(rest).finalize().as_bytes();
    (start, digest)
}

/// Returns the beginning of a frame under a key: its header and what `write` appends to the body, of which `rest`
/// more bytes follow, and then the digest of all that.
pub(super) fn begin(
    header: &Header,
    capacity: usize,
    write: impl FnOnce(&mut Writer),
    rest: usize,
) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(HEADER_BYTES + capacity + DIGEST_BYTES));
    w.bytes(MAGIC);
    w.u16(FRAME_VERSION);
    w.u8(header.kind as u8);
    header.made_with.write(&mut w);
    w.bytes(&header.parameters);
    w.bytes(&header.key.0);
    // The length of the body, once it is there.
    w.u64(0);
    write(&mut w);
    let length = (w.0.len() - HEADER_BYTES + rest) as u64;
    w.0[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    w.0
}
