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

/// The round that a re-joining client was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The aggregator's incarnation then.
    pub incarnation: u32,
    /// The round.
    pub round: u32,
}

/// Client to aggregator: a request to take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinMessage {
    pub(crate) contributor: u16,
    pub(crate) inbox: u32,
    pub(crate) resume: Option<Resume>,
    pub(crate) contribution: ContributionId,
    pub(crate) hello: Vec<u8>,
}

/// Aggregator to client: the round is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenMessage {
    pub(crate) contribution: ContributionId,
    pub(crate) round: u32,
    pub(crate) incarnation: u32,
    pub(crate) rkey: u32,
    /// Ascending within a round: of two OPENs the larger grant is the later one.
    pub(crate) grant: u32,
    pub(crate) declared: u16,
    pub(crate) min_clients: u16,
    /// Whether each chunk counts by itself.
    pub(crate) by_chunk: bool,
    pub(crate) deadline_ms: u64,
    pub(crate) contributors: Vec<u16>,
    pub(crate) terms: Vec<u8>,
}

/// Client to aggregator: the region for the sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadyMessage {
    pub(crate) round: u32,
    /// The grant of the OPEN that it answers.
    pub(crate) grant: u32,
    pub(crate) rkey: u32,
    /// Chunk `c` is written at `c · stride`.
    pub(crate) stride: u32,
}

/// Client to aggregator: a question whether the client still waits or is in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeMessage {
    pub(crate) contributor: u16,
    pub(crate) inbox: u32,
    pub(crate) contribution: ContributionId,
}

/// Aggregator to client: a refusal, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefuseMessage {
    pub(crate) contribution: ContributionId,
    pub(crate) reason: String,
}

/// Client to aggregator: the shares that its contribution opens by, for the openers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharesMessage {
    pub(crate) round: u32,
    pub(crate) contribution: ContributionId,
    pub(crate) shares: Vec<u8>,
}

/// Opener to aggregator: it is there, and can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttendMessage {
    pub(crate) opener: u8,
    pub(crate) inbox: u32,
    pub(crate) hello: Vec<u8>,
}

/// Aggregator to opener: a request about the sums of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestMessage {
    pub(crate) round: u32,
    pub(crate) request: Vec<u8>,
}

/// Opener to aggregator: its answer to a request, or the reason why it gives none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerMessage {
    pub(crate) round: u32,
    pub(crate) opener: u8,
    pub(crate) answer: Result<Vec<u8>, String>,
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
}

impl JoinMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let resume = self.resume.unwrap_or(Resume { incarnation: 0, round: 0 });
        let mut bytes = Vec::with_capacity(40 + self.hello.len());
        put(&mut bytes, &ROUND_VERSION.to_le_bytes());
        put(&mut bytes, &self.contributor.to_le_bytes());
        put(&mut bytes, &self.inbox.to_le_bytes());
        put(&mut bytes, &resume.incarnation.to_le_bytes());
        put(&mut bytes, &resume.round.to_le_bytes());
        put(&mut bytes, &self.contribution);
        put_bytes(&mut bytes, &self.hello);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        let mut reader = MessageReader::new(bytes);
        if reader.u16()? != ROUND_VERSION {
            return Err(NicError::Malformed { what: "message", at: 0 });
        }
        let contributor = reader.u16()?;
        let inbox = reader.u32()?;
        let resume = Resume { incarnation: reader.u32()?, round: reader.u32()? };
        let resume = (resume.incarnation != 0).then_some(resume);
        let contribution = reader.array()?;
        let hello = reader.bytes()?.to_vec();
        reader.end()?;
        Ok(Self { contributor, inbox, resume, contribution, hello })
    }
}

impl OpenMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + 2 * self.contributors.len() + self.terms.len());
        put(&mut bytes, &self.contribution);
        put(&mut bytes, &self.round.to_le_bytes());
        put(&mut bytes, &self.incarnation.to_le_bytes());
        put(&mut bytes, &self.rkey.to_le_bytes());
        put(&mut bytes, &self.grant.to_le_bytes());
        put(&mut bytes, &self.declared.to_le_bytes());
        put(&mut bytes, &self.min_clients.to_le_bytes());
        put(&mut bytes, &[self.by_chunk.into()]);
        put(&mut bytes, &self.deadline_ms.to_le_bytes());
        put(&mut bytes, &(self.contributors.len() as u16).to_le_bytes());
        self.contributors.iter().for_each(|number| put(&mut bytes, &number.to_le_bytes()));
        put_bytes(&mut bytes, &self.terms);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        let mut reader = MessageReader::new(bytes);
        let open = Self {
            contribution: reader.array()?,
            round: reader.u32()?,
            incarnation: reader.u32()?,
            rkey: reader.u32()?,
            grant: reader.u32()?,
            declared: reader.u16()?,
            min_clients: reader.u16()?,
            by_chunk: reader.flag()?,
            deadline_ms: reader.u64()?,
            contributors: (0..reader.u16()?).map(|_| reader.u16()).collect::<Result<_, _>>()?,
            terms: reader.bytes()?.to_vec(),
        };
        reader.end()?;
        Ok(open)
    }
}

impl ReadyMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let words = [self.round, self.grant, self.rkey, self.stride];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        let mut reader = MessageReader::new(bytes);
        let [round, grant] = [reader.u32()?, reader.u32()?];
        let ready = Self { round, grant, rkey: reader.u32()?, stride: reader.u32()? };
        reader.end()?;
        Ok(ready)
    }
}

impl ProbeMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.contributor.to_le_bytes().to_vec();
        put(&mut bytes, &self.inbox.to_le_bytes());
        put(&mut bytes, &self.contribution);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        let mut reader = MessageReader::new(bytes);
        let (contributor, inbox) = (reader.u16()?, reader.u32()?);
        let probe = Self { contributor, inbox, contribution: reader.array()? };
        reader.end()?;
        Ok(probe)
    }
}

impl RefuseMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.contribution.to_vec();
        put_bytes(&mut bytes, self.reason.as_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        let mut reader = MessageReader::new(bytes);
        let refuse = Self { contribution: reader.array()?, reason: reader.text()? };
        reader.end()?;
        Ok(refuse)
    }
}

impl SharesMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.round.to_le_bytes().to_vec();
        put(&mut bytes, &self.contribution);
        put_bytes(&mut bytes, &self.shares);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        let mut reader = MessageReader::new(bytes);
        let (round, contribution) = (reader.u32()?, reader.array()?);
        let message = Self { round, contribution, shares: reader.bytes()?.to_vec() };
        reader.end()?;
        Ok(message)
    }
}

impl AttendMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.opener];
        put(&mut bytes, &self.inbox.to_le_bytes());
        put_bytes(&mut bytes, &self.hello);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        let mut reader = MessageReader::new(bytes);
        let ([opener], inbox) = (reader.array()?, reader.u32()?);
        let message = Self { opener, inbox, hello: reader.bytes()?.to_vec() };
        reader.end()?;
        Ok(message)
    }
}

impl RequestMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.round.to_le_bytes().to_vec();
        put_bytes(&mut bytes, &self.request);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        let mut reader = MessageReader::new(bytes);
        let message = Self { round: reader.u32()?, request: reader.bytes()?.to_vec() };
        reader.end()?;
        Ok(message)
    }
}

impl AnswerMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (answers, content) = match &self.answer {
            Ok(answer) => (1, &answer[..]),
            Err(reason) => (0, reason.as_bytes()),
        };
        let mut bytes = self.round.to_le_bytes().to_vec();
        put(&mut bytes, &[self.opener, answers]);
        put_bytes(&mut bytes, content);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        let mut reader = MessageReader::new(bytes);
        let (round, [opener, answers]) = (reader.u32()?, reader.array()?);
        let answer = match answers {
            0 => Err(reader.text()?),
            1 => Ok(reader.bytes()?.to_vec()),
            _ => return Err(reader.error()),
        };
        reader.end()?;
        Ok(Self { round, opener, answer })
    }
}

impl RoundEnd {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.contribution.to_vec();
        put(&mut bytes, &self.round.to_le_bytes());
        put(&mut bytes, &self.closed.to_le_bytes());
        put(&mut bytes, &self.withheld.to_le_bytes());
        put_bytes(&mut bytes, self.reason.as_bytes());
        put(&mut bytes, &(self.contributed.len() as u16).to_le_bytes());
        for (contributor, chunks) in &self.contributed {
            put(&mut bytes, &contributor.to_le_bytes());
            put(&mut bytes, &chunks.to_le_bytes());
        }
        if !self.answers.is_empty() {
            put_bytes(&mut bytes, &self.answers);
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NicError> {
        let mut reader = MessageReader::new(bytes);
        let mut end = Self {
            contribution: reader.array()?,
            round: reader.u32()?,
            closed: reader.u32()?,
            withheld: reader.u32()?,
            reason: reader.text()?,
            contributed: (0..reader.u16()?)
                .map(|_| Ok((reader.u16()?, reader.u32()?)))
                .collect::<Result<_, NicError>>()?,
            answers: vec![],
        };
        if !reader.rest.is_empty() {
            end.answers = reader.bytes()?.to_vec();
            if end.answers.is_empty() {
                return Err(reader.error());
            }
        }
        reader.end()?;
        Ok(end)
    }
}

fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    bytes.extend_from_slice(field);
}

/// Appends a length of 4 bytes, and the bytes.
fn put_bytes(bytes: &mut Vec<u8>, field: &[u8]) {
    put(bytes, &(field.len() as u32).to_le_bytes());
    put(bytes, field);
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

    fn take(&mut self, count: usize) -> Result<&'a [u8], NicError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(self.error())?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NicError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.error())?;
        self.rest = rest;
        Ok(*taken)
    }

    fn flag(&mut self) -> Result<bool, NicError> {
        match self.array()? {
            [flag @ (0 | 1)] => Ok(flag == 1),
            _ => Err(self.error()),
        }
    }

    fn u16(&mut self) -> Result<u16, NicError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, NicError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, NicError> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Result<&'a [u8], NicError> {
        let count = self.u32()?;
        self.take(count as usize)
    }

    fn text(&mut self) -> Result<String, NicError> {
        let error = self.error();
        std::str::from_utf8(self.bytes()?).map(str::to_owned).map_err(|_| error)
    }

    fn end(&self) -> Result<(), NicError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.error()) }
    }
}

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
            let join = JoinMessage { contributor, inbox: rkey, resume, contribution, hello: blob.clone() };
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
            let join = JoinMessage { contributor: 1, inbox: 2, resume: None, contribution: id, hello: blob.clone() };
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
