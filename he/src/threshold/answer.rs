//! What an opener answers: the sum of its shares, and its next prekey.

use zeroize::Zeroizing;

use super::{
    identity::{Identity, MemberId, SIGNATURE_BYTES},
    openers::JobSecret,
    prekey::Prekey,
    request::OpenRequest,
    sealing::{self, SEAL_BYTES},
    sharing::{Share, Sharing},
};
use crate::{
    Agreement, Error, PublicKey,
    bytes::{Reader, Writer},
    contributors::Contributor,
    formats::frame::{self, Frame, Header, Kind},
    ids::JobId,
    random,
};

const PURPOSE: &str = "ciphergram 2026 answer";

/// Names contributions, each given by the digest that its client signs: ciphertext, boxes and proof. Shares of a client
/// that signed two are not added up so.
pub(super) fn name_contributions(digests: impl Iterator<Item = [u8; 32]>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("ciphergram 2026 contributions");
    digests.for_each(|digest| _ = hasher.update(&digest));
    *hasher.finalize().as_bytes()
}

/// An opener's answer, sealed to the members of the job.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenAnswer {
    /// The job.
    pub job: JobId,
    /// The round's number.
    pub round: u64,
    /// The agreement of the round.
    pub agreement: Agreement,
    /// The place of the opener in the job.
    pub opener: u8,
    /// Names all contributions to the sum, in their order.
    pub(super) contributions: [u8; 32],
    /// Drawn for it: whatever else an opener ever seals is under another key.
    salt: [u8; 32],
    sealed: Vec<u8>,
    pub(super) prekey: Prekey,
    signature: [u8; SIGNATURE_BYTES],
}

impl OpenAnswer {
    /// Seals and signs a sum of shares.
    ///
    /// # Errors
    /// No randomness.
    pub(super) fn new(
        (identity, secret): (&Identity, &JobSecret),
        (request, statement): (&OpenRequest, &[u8; 32]),
        (sharing, sum): (&Sharing, &Share),
        prekey: Prekey,
    ) -> Result<Self, Error> {
        let contributors: Vec<_> = request.contributors().copied().collect();
        let mut answer = Self {
            job: request.job,
            round: request.round,
            agreement: request.agreement.clone(),
            opener: request.opener,
            contributions: name_contributions(
                request.entries.iter().map(|entry| entry.digest(statement)),
            ),
            salt: *random::bytes()?,
            sealed: vec![],
            prekey,
            signature: [0; SIGNATURE_BYTES],
        };
        let context = answer.context(statement, &contributors);
        let key = answer.sealing_key(secret);
        answer.sealed = sealing::seal(&key, &context, &sharing.pack(sum));
        answer.signature = identity.sign(PURPOSE, &answer.digest(&context));
        Ok(answer)
    }

    fn sealing_key(&self, secret: &JobSecret) -> Zeroizing<[u8; 32]> {
        let key = Zeroizing::new(blake3::derive_key("ciphergram 2026 answers", &**secret));
        Zeroizing::new(*blake3::keyed_hash(&key, &self.salt).as_bytes())
    }

    /// Returns what the answer is about.
    fn context(&self, statement: &[u8; 32], contributors: &[Contributor]) -> Vec<u8> {
        let mut w = Writer::default();
        w.bytes(statement);
        w.u8(self.opener);
        w.bytes(&self.contributions);
        contributors.iter().for_each(|contributor| contributor.write(&mut w));
        w.0
    }

    fn digest(&self, context: &[u8]) -> [u8; 32] {
        let mut w = Writer::default();
        w.prefixed(context);
        w.bytes(&self.salt);
        w.prefixed(&self.sealed);
        self.prekey.write(&mut w);
        *blake3::hash(&w.0).as_bytes()
    }

    /// Refuses an answer that its opener did not sign, or not of these contributors; returns what it is about.
    pub(super) fn check(
        &self,
        opener: &MemberId,
        (statement, contributors): (&[u8; 32], &[Contributor]),
    ) -> Result<Vec<u8>, &'static str> {
        let context = self.context(statement, contributors);
        let is_signed = opener.has_signed(PURPOSE, &self.digest(&context), &self.signature);
        is_signed.then_some(context).ok_or("its answer is not signed by it, or is of another sum")
    }

    /// Opens the sum of shares of contributors under a statement.
    ///
    /// # Errors
    /// Its opener did not sign it, or not of these; it is no sum of shares.
    pub(super) fn open(
        &self,
        opener: &MemberId,
        (statement, contributors): (&[u8; 32], &[Contributor]),
        (secret, sharing): (&JobSecret, &Sharing),
    ) -> Result<Share, &'static str> {
        let context = self.check(opener, (statement, contributors))?;
        let sum = sealing::open(&self.sealing_key(secret), &context, &self.sealed);
        sum.and_then(|sum| sharing.unpack_sum(&sum)).ok_or("its answer has no sum of shares")
    }

    /// Returns whether it is as long as a sum of shares.
    pub(super) fn has_length_of(&self, sharing: &Sharing) -> bool {
        self.sealed.len() == sharing.sum_bytes() + SEAL_BYTES
    }

    /// Returns the prekey of the opener's next answer.
    #[must_use]
    pub fn prekey(&self) -> &Prekey {
        &self.prekey
    }

    /// Writes the file's bytes.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        let header =
            Header::of_sums(Kind::OpenAnswer, key, self.agreement.fields(key.parameters()));
        frame::seal(&header, self.sealed.len() + 4096, |w| {
            self.job.write(w);
            w.u64(self.round);
            self.agreement.write(w);
            w.u8(self.opener);
            w.bytes(&self.contributions);
            w.bytes(&self.salt);
            w.prefixed(&self.sealed);
            self.prekey.write(w);
            w.bytes(&self.signature);
        })
    }

    /// Writes several, one after the other.
    #[must_use]
    pub fn list_to_bytes(answers: &[Self], key: &PublicKey) -> Vec<u8> {
        let mut w = Writer::default();
        answers.iter().for_each(|answer| w.prefixed(&answer.to_bytes(key)));
        w.0
    }

    /// Reads that.
    ///
    /// # Errors
    /// As [`from_bytes`](Self::from_bytes), of the first that is none.
    pub fn list_from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Vec<Self>, Error> {
        let (r, mut answers) = (&mut Reader(bytes), vec![]);
        while !r.0.is_empty() {
            answers.push(Self::from_bytes(r.prefixed()?, key)?);
        }
        Ok(answers)
    }

    /// Reads a file made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be.
    pub fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, Error> {
        Self::from_frame(&frame::open(bytes, Kind::OpenAnswer, key)?)
    }

    /// Reads a frame under whatever key.
    ///
    /// # Errors
    /// Its kind or body is not as it should be.
    pub fn from_frame(frame: &Frame<'_>) -> Result<Self, Error> {
        frame.check_kind(Kind::OpenAnswer)?;
        let r = &mut Reader(frame.body);
        let (job, round) = (JobId::read(r)?, r.u64()?);
        let agreement = Agreement::read(r)?;
        frame.chunks_of(&agreement)?;
        let (opener, contributions, salt) = (r.u8()?, r.array()?, r.array()?);
        let sealed = r.prefixed()?.to_vec();
        let (prekey, signature) = (Prekey::read(r)?, r.array()?);
        r.end()?;
        Ok(Self { job, round, agreement, opener, contributions, salt, sealed, prekey, signature })
    }
}
