//! The file of a contribution.

use std::borrow::Cow;

use super::frame::{self, Frame, Header, Kind};
use crate::{
    Agreement, Error, PublicKey,
    bytes::{Reader, Writer},
    contributors::Contributor,
    ids::JobId,
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
}

impl<'a> Contribution<'a> {
    /// Writes the file's bytes.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        frame::seal(&self.header(key), self.stream.len() + 1024, |w| {
            self.write_head(w);
            w.bytes(&self.stream);
        })
    }

    /// Returns what the file begins with before a stream of `bytes` bytes, which the digest of both follows. The
    /// stream that is here does not matter.
    pub(crate) fn head(&self, key: &PublicKey, bytes: usize) -> Vec<u8> {
        frame::begin(&self.header(key), 1024, |w| self.write_head(w), bytes)
    }

    fn header(&self, key: &PublicKey) -> Header {
        Header::of_sums(Kind::Contribution, key, self.agreement.fields(key.parameters()))
    }

    /// Writes all but the stream.
    fn write_head(&self, w: &mut Writer) {
        self.contributor.write(w);
        self.job.write(w);
        w.u64(self.round);
        self.agreement.write(w);
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
        let Contribution { contributor, job, round, agreement, stream } =
            Contribution::from_bytes(&bytes, key)?;
        let length = stream.len();
        let stream = frame::last_of(bytes, length).into();
        Ok(Contribution { contributor, job, round, agreement, stream })
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
        let stream = r.aligned_end(frame.chunks_of(&agreement)?.total_bytes())?;
        Ok(Self { contributor, job, round, agreement, stream: stream.into() })
    }
}
