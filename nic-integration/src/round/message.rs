//! The messages of a round, WRITTEN to inboxes; the immediate is the kind (PROTOCOL §7.2).
//!
//! All integers little-endian. Every parser takes anything and never panics.

use crate::NicError;

/// The rkey of every aggregator's inbox.
pub const JOIN_INBOX: u32 = 1;
/// The longest round message.
pub const MAX_ROUND_MESSAGE_BYTES: u32 = 8 << 20;
/// The version of the round protocol.
pub const ROUND_VERSION: u16 = 1;

/// The name of one sealed contribution, which no other has. A client that restarts with the same
/// one continues; with another one it is another contribution.
pub type ContributionId = [u8; 16];

/// The kind of a round message, sent as its immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MessageKind {
    Join = 1,
    Open = 2,
    Ready = 3,
    Probe = 4,
    Refuse = 5,
    End = 6,
    Bye = 7,
    Shares = 8,
    Attend = 9,
    Request = 10,
    Answer = 11,
}

impl MessageKind {
    pub(crate) fn from_immediate(immediate: Option<u32>) -> Option<Self> {
        use MessageKind::*;
        let kinds = [Join, Open, Ready, Probe, Refuse, End, Bye, Shares, Attend, Request, Answer];
        kinds.into_iter().find(|kind| Some(*kind as u32) == immediate)
    }
}

/// A field of a message.
trait Field: Sized {
    fn put(&self, bytes: &mut Vec<u8>);

    /// # Errors
    /// The message ends within it, or it is none.
    fn read(reader: &mut MessageReader<'_>) -> Result<Self, NicError>;
}

/// Defines messages: their fields, one after the other.
macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $name { $($(#[$field_doc])* pub(crate) $field: $kind,)* }

        impl $name {
            pub(crate) fn encode(&self) -> Vec<u8> {
                let mut bytes = vec![];
                $(self.$field.put(&mut bytes);)*
                bytes
            }

            pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
                let mut reader = MessageReader::new(bytes);
                let message = Self { $($field: Field::read(&mut reader)?,)* };
                reader.end()?;
                Ok(message)
            }
        }
    )*};
}

messages! {
    /// Client to aggregator: a request to take part.
    struct JoinMessage {
        version: RoundVersion,
        contributor: u16,
        inbox: u32,
        resume: Option<Resume>,
        contribution: ContributionId,
        hello: Vec<u8>,
    }

    /// Aggregator to client: the round is open.
    struct OpenMessage {
        contribution: ContributionId,
        round: u32,
        incarnation: u32,
        rkey: u32,
        /// Ascending within a round: of two OPENs the larger grant is the later one.
        grant: u32,
        declared: u16,
        min_clients: u16,
        /// Whether each chunk counts by itself.
        by_chunk: bool,
        deadline_ms: u64,
        contributors: Vec<u16>,
        terms: Vec<u8>,
    }

    /// Client to aggregator: the region for the sums.
    struct ReadyMessage {
        round: u32,
        /// The grant of the OPEN that it answers.
        grant: u32,
        rkey: u32,
        /// Chunk `c` is written at `c · stride`.
        stride: u32,
    }

    /// Client to aggregator: a question whether the client still waits or is in a round.
    struct ProbeMessage {
        contributor: u16,
        inbox: u32,
        contribution: ContributionId,
    }

    /// Aggregator to client: a refusal, and the reason.
    struct RefuseMessage {
        contribution: ContributionId,
        reason: String,
    }

    /// Client to aggregator: the shares that its contribution opens by, for the openers.
    struct SharesMessage {
        round: u32,
        contribution: ContributionId,
        shares: Vec<u8>,
    }

    /// Opener to aggregator: it is there, and can be asked.
    struct AttendMessage {
        opener: u8,
        inbox: u32,
        hello: Vec<u8>,
    }

    /// Aggregator to opener: a request about the sums of a round.
    struct RequestMessage {
        round: u32,
        request: Vec<u8>,
    }

    /// Opener to aggregator: its answer to a request, or the reason why it gives none.
    struct AnswerMessage {
        round: u32,
        opener: u8,
        answer: Result<Vec<u8>, String>,
    }
}

/// The version that a JOIN begins with: another one is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoundVersion;

/// The round that a re-joining client was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The aggregator's incarnation then.
    pub incarnation: u32,
    /// The round.
    pub round: u32,
}

/// The end of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundEnd {
    /// The contribution of the client that it is sent to.
    pub contribution: ContributionId,
    /// The round.
    pub round: u32,
    /// Chunks whose sums are, or will be, written back.
    pub closed: u32,
    /// Chunks whose sums never leave the aggregator.
    pub withheld: u32,
    /// The reason for the first of those; empty if there is none.
    pub reason: String,
    /// Each contributor's number and the number of closed chunks that it is in, ascending by
    /// contributor.
    pub contributed: Vec<(u16, u32)>,
    /// The answers of openers, as the application wrote them; empty without openers.
    pub answers: Vec<u8>,
}

impl RoundEnd {
    /// Returns whether every chunk's sum holds everyone who was admitted to the round.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.withheld == 0 && self.contributed.iter().all(|(_, chunks)| *chunks == self.closed)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.contribution.to_vec();
        [self.round, self.closed, self.withheld].iter().for_each(|word| word.put(&mut bytes));
        self.reason.put(&mut bytes);
        self.contributed.put(&mut bytes);
        // What is not there has no length either.
        if !self.answers.is_empty() {
            self.answers.put(&mut bytes);
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        let mut reader = MessageReader::new(bytes);
        let mut end = Self {
            contribution: Field::read(&mut reader)?,
            round: Field::read(&mut reader)?,
            closed: Field::read(&mut reader)?,
            withheld: Field::read(&mut reader)?,
            reason: Field::read(&mut reader)?,
            contributed: Field::read(&mut reader)?,
            answers: vec![],
        };
        if !reader.rest.is_empty() {
            end.answers = Field::read(&mut reader)?;
            if end.answers.is_empty() {
                return Err(reader.error());
            }
        }
        reader.end()?;
        Ok(end)
    }
}

/// Reads fields in order; an error says where the message ended too soon.
struct MessageReader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> MessageReader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, length: bytes.len() }
    }

    fn error(&self) -> NicError {
        NicError::Malformed { what: "message", at: self.length - self.rest.len() }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NicError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.error())?;
        self.rest = rest;
        Ok(*taken)
    }

    fn end(&self) -> Result<(), NicError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.error()) }
    }
}

macro_rules! integers {
    ($($kind:ty),*) => {$(
        impl Field for $kind {
            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }

            fn read(reader: &mut MessageReader<'_>) -> Result<Self, NicError> {
                reader.array().map(Self::from_le_bytes)
            }
        }
    )*};
}
integers!(u8, u16, u32, u64);

impl Field for bool {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.push((*self).into());
    }

    fn read(reader: &mut MessageReader<'_>) -> Result<Self, NicError> {
        match reader.array()? {
            [flag @ (0 | 1)] => Ok(flag == 1),
            _ => Err(reader.error()),
        }
    }
}

impl Field for ContributionId {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self);
    }

    fn read(reader: &mut MessageReader<'_>) -> Result<Self, NicError> {
        reader.array()
    }
}

impl Field for RoundVersion {
    fn put(&self, bytes: &mut Vec<u8>) {
        ROUND_VERSION.put(bytes);
    }

    fn read(reader: &mut MessageReader<'_>) -> Result<Self, NicError> {
        let error = reader.error();
        if u16::read(reader)? == ROUND_VERSION { Ok(Self) } else { Err(error) }
    }
}

/// None is incarnation 0, which no aggregator has.
impl Field for Option<Resume> {
    fn put(&self, bytes: &mut Vec<u8>) {
        let Resume { incarnation, round } = self.unwrap_or(Resume { incarnation: 0, round: 0 });
        (incarnation, round).put(bytes);
    }

    fn read(reader: &mut MessageReader<'_>) -> Result<Self, NicError> {
        let (incarnation, round) = Field::read(reader)?;
        Ok((incarnation != 0).then_some(Resume { incarnation, round }))
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.0.put(bytes);
        self.1.put(bytes);
    }

    fn read(reader: &mut MessageReader<'_>) -> Result<Self, NicError> {
        Ok((A::read(reader)?, B::read(reader)?))
    }
}

/// A length of 4 bytes, and the bytes.
impl Field for Vec<u8> {
    fn put(&self, bytes: &mut Vec<u8>) {
        (self.len() as u32).put(bytes);
        bytes.extend(self);
    }

    fn read(reader: &mut MessageReader<'_>) -> Result<Self, NicError> {
        let count = u32::read(reader)? as usize;
        let (taken, rest) = reader.rest.split_at_checked(count).ok_or(reader.error())?;
        reader.rest = rest;
        Ok(taken.to_vec())
    }
}

impl Field for String {
    fn put(&self, bytes: &mut Vec<u8>) {
        (self.len() as u32).put(bytes);
        bytes.extend(self.as_bytes());
    }

    fn read(reader: &mut MessageReader<'_>) -> Result<Self, NicError> {
        let error = reader.error();
        Self::from_utf8(Field::read(reader)?).map_err(|_| error)
    }
}

/// Whether there is an answer, and that or the reason.
impl Field for Result<Vec<u8>, String> {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.is_ok().put(bytes);
        match self {
            Ok(answer) => answer.put(bytes),
            Err(reason) => reason.put(bytes),
        }
    }

    fn read(reader: &mut MessageReader<'_>) -> Result<Self, NicError> {
        let is_answer = bool::read(reader)?;
        Ok(if is_answer { Ok(Field::read(reader)?) } else { Err(Field::read(reader)?) })
    }
}

macro_rules! lists {
    ($($kind:ty),*) => {$(
        /// A count of 2 bytes, and the items.
        impl Field for Vec<$kind> {
            fn put(&self, bytes: &mut Vec<u8>) {
                (self.len() as u16).put(bytes);
                self.iter().for_each(|item| item.put(bytes));
            }

            fn read(reader: &mut MessageReader<'_>) -> Result<Self, NicError> {
                (0..u16::read(reader)?).map(|_| Field::read(reader)).collect()
            }
        }
    )*};
}
lists!(u16, (u16, u32));

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..60)
    }

    /// Checks that a parser that accepts bytes has read all of them.
    fn reads_back(noise: &[u8]) {
        let again = [
            JoinMessage::parse(noise).map(|message| message.encode()),
            OpenMessage::parse(noise).map(|message| message.encode()),
            ReadyMessage::parse(noise).map(|message| message.encode()),
            RefuseMessage::parse(noise).map(|message| message.encode()),
            RoundEnd::parse(noise).map(|message| message.encode()),
            ProbeMessage::parse(noise).map(|message| message.encode()),
            SharesMessage::parse(noise).map(|message| message.encode()),
            AttendMessage::parse(noise).map(|message| message.encode()),
            AnswerMessage::parse(noise).map(|message| message.encode()),
            RequestMessage::parse(noise).map(|message| message.encode()),
        ];
        // A resume of incarnation 0 is none, whatever its round.
        for accepted in again.into_iter().flatten() {
            assert_eq!(accepted.len(), noise.len());
        }
    }

    proptest! {
        #[test]
        fn messages_round_trip(
            words: [u32; 6], id: ContributionId, numbers in proptest::collection::vec(any::<(u16, u32)>(), 0..9),
            blob in bytes(), reason in ".{0,20}", deadline_ms: u64, resumes: bool,
        ) {
            let [round, rkey, stride, closed, withheld, incarnation] = words;
            let (contributor, contribution) = (round as u16, id);
            let resume = (resumes && incarnation != 0).then_some(Resume { incarnation, round });
            let hello = blob.clone();
            let join =
                JoinMessage { version: RoundVersion, contributor, inbox: rkey, resume, contribution, hello };
            prop_assert_eq!(JoinMessage::parse(&join.encode()), Ok(join));
            let contributors = numbers.iter().map(|(number, _)| *number).collect();
            let open = OpenMessage {
                contribution, round, incarnation, rkey, grant: closed, declared: contributor,
                min_clients: stride as u16, by_chunk: resumes, deadline_ms, contributors, terms: blob.clone(),
            };
            prop_assert_eq!(OpenMessage::parse(&open.encode()), Ok(open));
            let ready = ReadyMessage { round, grant: incarnation, rkey, stride };
            prop_assert_eq!(ReadyMessage::parse(&ready.encode()), Ok(ready));
            let probe = ProbeMessage { contributor, inbox: rkey, contribution };
            prop_assert_eq!(ProbeMessage::parse(&probe.encode()), Ok(probe));
            let refuse = RefuseMessage { contribution, reason: reason.clone() };
            prop_assert_eq!(RefuseMessage::parse(&refuse.encode()), Ok(refuse));
            let shares = SharesMessage { round, contribution, shares: blob.clone() };
            prop_assert_eq!(SharesMessage::parse(&shares.encode()), Ok(shares));
            let attend = AttendMessage { opener: round as u8, inbox: rkey, hello: blob.clone() };
            prop_assert_eq!(AttendMessage::parse(&attend.encode()), Ok(attend));
            let request = RequestMessage { round, request: blob.clone() };
            prop_assert_eq!(RequestMessage::parse(&request.encode()), Ok(request));
            for answer in [Ok(blob.clone()), Err(reason.clone())] {
                let answer = AnswerMessage { round, opener: rkey as u8, answer };
                prop_assert_eq!(AnswerMessage::parse(&answer.encode()), Ok(answer));
            }
            let end = RoundEnd {
                contribution, round, closed, withheld, reason, contributed: numbers, answers: blob,
            };
            let encoded = end.encode();
            prop_assert_eq!(RoundEnd::parse(&encoded), Ok(end));
            prop_assert!(RoundEnd::parse(&encoded[..encoded.len() - 1]).is_err());
        }

        #[test]
        fn noise_never_panics(noise in bytes()) {
            reads_back(&noise);
        }

        #[test]
        fn mutated_messages_never_panic(
            id: ContributionId, blob in bytes(), at: prop::sample::Index, value: u8, longer in bytes(),
        ) {
            let join = JoinMessage {
                version: RoundVersion, contributor: 1, inbox: 2, resume: None, contribution: id, hello: blob.clone(),
            };
            let open = OpenMessage {
                contribution: id, round: 1, incarnation: 2, rkey: 3, grant: 9, declared: 4, min_clients: 5,
                by_chunk: true, deadline_ms: 6, contributors: vec![1, 2, 3], terms: blob.clone(),
            };
            let end = RoundEnd {
                contribution: id, round: 1, closed: 2, withheld: 3, reason: "why".into(),
                contributed: vec![(1, 2), (3, 4)], answers: blob.clone(),
            };
            let refuse = RefuseMessage { contribution: id, reason: "because".into() };
            let shares = SharesMessage { round: 3, contribution: id, shares: blob.clone() };
            let attend = AttendMessage { opener: 3, inbox: 2, hello: blob.clone() };
            let answer = AnswerMessage { round: 1, opener: 3, answer: Ok(blob.clone()) };
            let request = RequestMessage { round: 1, request: blob };
            let more = [shares.encode(), attend.encode(), answer.encode(), request.encode()];
            let all = [join.encode(), open.encode(), end.encode(), refuse.encode()];
            for mut bytes in all.into_iter().chain(more) {
                let at = at.index(bytes.len());
                bytes[at] = value;
                reads_back(&bytes);
                bytes.extend_from_slice(&longer);
                reads_back(&bytes);
            }
        }
    }
}
