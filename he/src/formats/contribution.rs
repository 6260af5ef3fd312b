//! The file of a contribution.

use std::borrow::Cow;

use super::frame::{self, Frame, Header, Kind};
use crate::{
    Agreement, Error, PublicKey, Scheme,
    bytes::{Reader, Writer},
    contributors::Contributor,
    ids::JobId,
    threshold::KeyMessage,
};

/// One client's encrypted update, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Contribution<'a> {
    /// The client's number, and the seed, which names the contribution.
    pub contributor: Contributor,
    /// The job.
    pub job: JobId,
    /// The round's number.
    pub round: u64,
    /// The agreement that it must share with others to be summed.
    pub agreement: Agreement,
    /// The chunks' wire bytes.
    pub stream: Cow<'a, [u8]>,
    /// The shares of its secret, and a signature, where it is under one of its own.
    pub keys: Option<KeyMessage>,
}

impl<'a> Contribution<'a> {
    /// Writes the file's bytes.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        let keys = self.keys.as_ref().map(KeyMessage::to_bytes);
        frame::seal(&self.header(key), self.stream.len() + 1024, |w| {
            self.write_head(w, keys.as_ref().map(Vec::len));
            w.bytes(&self.stream);
            w.bytes(keys.as_deref().unwrap_or_default());
        })
    }

    /// Returns what the file begins with before a stream of `bytes` bytes and a key message of `keys`, if it has one,
    /// which the digest of all follows. The stream and the message that are here do not matter.
    pub(crate) fn head(&self, key: &PublicKey, bytes: usize, keys: Option<usize>) -> Vec<u8> {
        let rest = bytes + keys.unwrap_or(0);
        frame::begin(&self.header(key), 1024, |w| self.write_head(w, keys), rest)
    }

    fn header(&self, key: &PublicKey) -> Header {
        Header::of_sums(Kind::Contribution, key, self.agreement.fields(key.parameters()))
    }

    /// Writes all but the stream and the key message, of which it says the length.
    fn write_head(&self, w: &mut Writer, keys: Option<usize>) {
        self.contributor.write(w);
        self.job.write(w);
        w.u64(self.round);
        self.agreement.write(w);
        if let Some(bytes) = keys {
            w.u32(bytes as u32);
        }
        w.align();
    }

    /// Reads a file made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be. Ciphertexts are not
    /// checked yet.
    pub fn from_bytes(bytes: &'a [u8], key: &PublicKey) -> Result<Self, Error> {
        Self::from_frame(&frame::open(bytes, Kind::Contribution, key)?)
    }

    /// Reads a file made under `key`, in whose memory the stream stays.
    ///
    /// # Errors
    /// As [`from_bytes`](Self::from_bytes).
    pub fn from_vec(bytes: Vec<u8>, key: &PublicKey) -> Result<Contribution<'static>, Error> {
        let Contribution { contributor, job, round, agreement, stream, keys } =
            Contribution::from_bytes(&bytes, key)?;
        let (length, after) = (stream.len(), keys.as_ref().map_or(0, KeyMessage::bytes));
        let mut stream = frame::last_of(bytes, length + after);
        stream.truncate(length);
        Ok(Contribution { contributor, job, round, agreement, stream: stream.into(), keys })
    }

    /// Reads a frame under whatever key.
    ///
    /// # Errors
    /// Its kind or body is not as it should be.
    pub fn from_frame(frame: &Frame<'a>) -> Result<Self, Error> {
        frame.check_kind(Kind::Contribution)?;
        let mut r = Reader(frame.body);
        let contributor = Contributor::read(&mut r)?;
        let (job, round) = (JobId::read(&mut r)?, r.u64()?);
        let agreement = Agreement::read(&mut r)?;
        let bytes = frame.chunks_of(&agreement)?.total_bytes();
        let has_keys = frame.literal()?.scheme == Scheme::CkksSumThreshold;
        let after = if has_keys { r.u32()? as usize } else { 0 };
        let (stream, after) = r.aligned_end(bytes.saturating_add(after))?.split_at(bytes);
        let keys = has_keys.then(|| KeyMessage::from_bytes(after)).transpose()?;
        Ok(Self { contributor, job, round, agreement, stream: stream.into(), keys })
    }
}
