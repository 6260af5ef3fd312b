//! The file of a sum.

use super::frame::{self, Frame, Header, Kind};
use crate::{
    Agreement, Error, PublicKey,
    bytes::{Reader, Writer},
    contributors::{Contributor, ContributorSet, Distinct},
    error::{FrameError, WRONG_LENGTH},
    ids::JobId,
    job::Job,
};

/// The sum of several contributions.
#[derive(Debug, Clone, PartialEq)]
pub struct Sum {
    /// The contributors.
    pub contributors: Vec<Contributor>,
    /// The job.
    pub job: JobId,
    /// The round's number.
    pub round: u64,
    /// The agreement that they share.
    pub agreement: Agreement,
    /// For each chunk, which of the contributors it holds.
    pub sets: Vec<ContributorSet>,
    /// The chunks' wire bytes.
    pub stream: Vec<u8>,
}

impl Sum {
    /// Refuses a sum whose parts do not fit together, that is not of the job, or of too few, however it was
    /// made: all that takes neither its ciphertexts nor a secret.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, key: &PublicKey, job: &Job) -> Result<(), Error> {
        self.check_parts(key, job)?;
        let min_clients = job.min_clients();
        let few = |set: &ContributorSet| set.count() < usize::from(min_clients);
        if let Some(chunk) = self.sets.iter().position(few) {
            let found = self.sets[chunk].count();
            return Err(Error::TooFewContributors { chunk: chunk as u32, found, min_clients });
        }
        Ok(())
    }

    /// Refuses the same as [`check`](Self::check), but not a sum of few: more may be added to it.
    ///
    /// # Errors
    /// The first fault.
    pub(crate) fn check_parts(&self, key: &PublicKey, job: &Job) -> Result<(), Error> {
        let chunks = &self.agreement.chunks(key.parameters());
        job.check_key(key)?;
        job.check_id(self.job)?;
        job.check_agreement(&self.agreement)?;
        Distinct::check(&self.contributors)?;
        self.contributors.iter().try_for_each(|c| job.check_number(c.number))?;
        let known = |set: &ContributorSet| set.iter().all(|i| i < self.contributors.len());
        let whole = self.sets.len() == chunks.count() as usize
            && self.stream.len() == chunks.total_bytes()
            && self.sets.iter().all(known);
        if !whole {
            return Err(WRONG_LENGTH.into());
        }
        if let Some(chunk) = self.sets.iter().position(|set| set.count() == 0) {
            return Err(Error::Empty { chunk: chunk as u32 });
        }
        Ok(())
    }

    /// Returns the fewest contributors of any chunk.
    #[must_use]
    pub fn fewest_contributors(&self) -> usize {
        self.sets.iter().map(ContributorSet::count).min().unwrap_or(0)
    }

    /// Writes the file's bytes. Runs of chunks with the same contributors are stored once.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        let (mut bytes, stream, digest) = self.to_parts(key);
        bytes.reserve_exact(stream.len() + digest.len());
        bytes.extend(stream);
        bytes.extend(digest);
        bytes
    }

    /// Returns the file's bytes as three parts, one after the other, without a copy of the stream.
    #[must_use]
    pub fn to_parts(&self, key: &PublicKey) -> (Vec<u8>, &[u8], [u8; 32]) {
        let write = |w: &mut Writer| {
            self.write_header(w);
            w.align();
        };
        let header = Header::of_sums(Kind::Sum, key, self.agreement.fields(key.parameters()));
        let (head, digest) = frame::seal_around(&header, 4096, write, &self.stream);
        (head, &self.stream, digest)
    }

    /// Writes all but the stream.
    fn write_header(&self, w: &mut Writer) {
        w.u32(self.contributors.len() as u32);
        self.contributors.iter().for_each(|contributor| contributor.write(w));
        self.job.write(w);
        w.u64(self.round);
        self.agreement.write(w);
        let runs: Vec<_> = self.sets.chunk_by(|a, b| a == b).collect();
        w.u32(runs.len() as u32);
        for run in runs {
            w.u32(run.len() as u32);
            run[0].write(w);
        }
    }

    /// Returns a digest of all that it says and holds.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut header = Writer::default();
        self.write_header(&mut header);
        *blake3::Hasher::new().update(&header.0).update(&self.stream).finalize().as_bytes()
    }

    /// Reads a file made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be, or it lists more
    /// contributors than the key admits. Ciphertexts are not checked yet.
    pub fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, Error> {
        Self::from_frame(&frame::open(bytes, Kind::Sum, key)?)
    }

    /// Reads a frame under whatever key.
    ///
    /// # Errors
    /// Its kind or body is not as it should be.
    pub fn from_frame(frame: &Frame<'_>) -> Result<Self, Error> {
        let (sum, stream) = Self::parts_of(frame)?;
        Ok(Self { stream: stream.to_vec(), ..sum })
    }

    /// Reads a file made under `key`, in whose memory the stream stays.
    ///
    /// # Errors
    /// As [`from_bytes`](Self::from_bytes).
    pub fn from_vec(bytes: Vec<u8>, key: &PublicKey) -> Result<Self, Error> {
        let (sum, stream) = Self::parts_of(&frame::open(&bytes, Kind::Sum, key)?)?;
        let length = stream.len();
        Ok(Self { stream: frame::last_of(bytes, length), ..sum })
    }

    /// Reads all but the stream, and finds that.
    fn parts_of<'a>(frame: &Frame<'a>) -> Result<(Self, &'a [u8]), Error> {
        frame.check_kind(Kind::Sum)?;
        let (mut r, parameters) = (Reader(frame.body), frame.parameters()?);
        let (found, admitted) = (r.u32()? as usize, parameters.clients() as usize);
        if found > admitted {
            return Err(Error::TooManyContributors { found, admitted });
        }
        let contributors =
            (0..found).map(|_| Contributor::read(&mut r)).collect::<Result<Vec<_>, _>>()?;
        Distinct::check(&contributors)?;
        let (job, round) = (JobId::read(&mut r)?, r.u64()?);
        let agreement = Agreement::read(&mut r)?;
        let chunks = frame.chunks_of(&agreement)?;
        let (count, total) = (chunks.count() as usize, chunks.total_bytes());
        // Before anything is allocated for so many chunks: the stream itself must be there.
        if r.0.len() < total {
            return Err(WRONG_LENGTH.into());
        }
        let mut sets = vec![];
        for _ in 0..r.u32()? {
            let run = r.u32()? as usize;
            let set = ContributorSet::read(&mut r, found)?;
            if run == 0 || run > count - sets.len() {
                return Err(
                    FrameError::Malformed { what: "more chunks than the tensors need" }.into()
                );
            }
            sets.resize(sets.len() + run, set);
        }
        if sets.len() != count {
            return Err(WRONG_LENGTH.into());
        }
        let stream = r.aligned_end(total)?;
        Ok((Self { contributors, job, round, agreement, sets, stream: vec![] }, stream))
    }
}
