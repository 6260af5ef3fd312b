//! What an aggregator asks an opener: the set that a sum is of, and the shares of it.

use super::{
    boxes::{KeyMessage, ShareBox, Signed},
    sharing::{MAX_OPENERS, Sharing},
};
use crate::{
    Agreement, Error, PublicKey,
    bytes::{Reader, Writer},
    contributors::Contributor,
    error::FrameError,
    formats::frame::{self, Frame, Header, Kind},
    ids::JobId,
};

/// A request to one opener.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenRequest {
    /// The job.
    pub job: JobId,
    /// The round's number.
    pub round: u64,
    /// The agreement of the round.
    pub agreement: Agreement,
    /// The place of the opener in the job.
    pub opener: u8,
    /// Those whose contributions are in the sum.
    pub(super) entries: Vec<RequestEntry>,
}

/// One contribution, as an opener sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestEntry {
    pub(super) contributor: Contributor,
    pub(super) signed: Signed,
    /// Names of the boxes of all openers.
    pub(super) hashes: Vec<[u8; 32]>,
    /// The opener's own.
    pub(super) share: ShareBox,
}

impl OpenRequest {
    /// Makes the request to each opener, of contributions that have a key message each.
    pub(crate) fn to_each(
        (job, round, agreement): (JobId, u64, &Agreement),
        contributions: &[(Contributor, KeyMessage)],
    ) -> Vec<Self> {
        let openers = contributions.first().map_or(0, |(_, message)| message.boxes.len());
        // Of all boxes once, not again for each opener.
        let hashes: Vec<_> = contributions.iter().map(|(_, message)| message.hashes()).collect();
        let entry = |opener: usize| {
            move |((contributor, message), hashes): (&(Contributor, KeyMessage), &Vec<_>)| {
                RequestEntry {
                    contributor: *contributor,
                    signed: message.signed.clone(),
                    hashes: hashes.clone(),
                    share: message.boxes[opener].clone(),
                }
            }
        };
        let request = |opener: usize| Self {
            job,
            round,
            agreement: agreement.clone(),
            opener: opener as u8,
            entries: contributions.iter().zip(&hashes).map(entry(opener)).collect(),
        };
        (0..openers).map(request).collect()
    }

    /// Returns those whose contributions are in the sum.
    pub fn contributors(&self) -> impl Iterator<Item = &Contributor> {
        self.entries.iter().map(|entry| &entry.contributor)
    }

    /// Writes the file's bytes.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        let header =
            Header::of_sums(Kind::OpenRequest, key, self.agreement.fields(key.parameters()));
        frame::seal(&header, 4096 * self.entries.len(), |w| {
            self.job.write(w);
            w.u64(self.round);
            self.agreement.write(w);
            w.u8(self.opener);
            w.u16(self.entries.len() as u16);
            self.entries.iter().for_each(|entry| entry.write(w));
        })
    }

    /// Reads a file made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be. Nothing is checked against a job yet.
    pub fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, Error> {
        Self::from_frame(&frame::open(bytes, Kind::OpenRequest, key)?)
    }

    /// Reads a frame under whatever key.
    ///
    /// # Errors
    /// Its kind or body is not as it should be.
    pub fn from_frame(frame: &Frame<'_>) -> Result<Self, Error> {
        frame.check_kind(Kind::OpenRequest)?;
        let r = &mut Reader(frame.body);
        let (job, round) = (JobId::read(r)?, r.u64()?);
        let agreement = Agreement::read(r)?;
        frame.chunks_of(&agreement)?;
        let (opener, count) = (r.u8()?, r.u16()?);
        let entries = (0..count).map(|_| RequestEntry::read(r)).collect::<Result<_, _>>()?;
        r.end()?;
        Ok(Self { job, round, agreement, opener, entries })
    }
}

impl RequestEntry {
    /// Returns the most bytes that one has.
    pub(super) fn bytes_of(sharing: &Sharing) -> usize {
        let hashes = 1 + 32 * sharing.openers();
        Contributor::BYTES + Signed::bytes_of(sharing) + hashes + ShareBox::bytes_of(sharing)
    }

    /// Returns what the contributor signs.
    pub(super) fn digest(&self, statement: &[u8; 32]) -> [u8; 32] {
        self.signed.digest((statement, &self.contributor), &self.hashes)
    }

    fn write(&self, w: &mut Writer) {
        self.contributor.write(w);
        self.signed.write(w);
        w.u8(self.hashes.len() as u8);
        self.hashes.iter().for_each(|hash| w.bytes(hash));
        self.share.write(w);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (contributor, signed) = (Contributor::read(r)?, Signed::read(r)?);
        let count = r.u8()?;
        if usize::from(count) > MAX_OPENERS {
            return Err(FrameError::Malformed { what: "more openers than there may be" });
        }
        let hashes = (0..count).map(|_| r.array()).collect::<Result<_, _>>()?;
        Ok(Self { contributor, signed, hashes, share: ShareBox::read(r)? })
    }
}
