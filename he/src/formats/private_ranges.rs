//! The files of private ranges: a client's proposal, and the ranges that are agreed.

use super::frame::{self, Frame, Header, Kind};
use crate::{
    Agreement, Error, Job, KeyRef, PublicKey, TensorSpec, Update,
    bytes::{Reader, Writer},
    codec::{Policy, check_layout, check_specs, read_specs, write_specs},
    contributors::{Contributor, Distinct},
    error::FrameError,
    ids::JobId,
    private_ranges::{EncryptedRanges, Proposal, RangesEvaluationKey, RangesSecret},
};

/// What both files begin with.
#[derive(Debug, Clone, PartialEq)]
struct Head {
    job: JobId,
    specs: Vec<TensorSpec>,
    values: usize,
}

impl Head {
    fn new(job: JobId, specs: Vec<TensorSpec>) -> Result<Self, Error> {
        let values = check_specs(&specs).map_err(|why| Error::Tensors { why })?;
        Ok(Self { job, specs, values })
    }

    fn write(&self, w: &mut Writer) {
        self.job.write(w);
        write_specs(w, &self.specs);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let job = JobId::read(r)?;
        Self::new(job, read_specs(r)?)
    }

    /// Refuses what is of another job, or has other tensors.
    fn check(&self, job: &Job) -> Result<(), Error> {
        job.check_id(self.job)?;
        job.check_layout(&self.specs)
    }
}

/// A client's proposal.
#[derive(Debug, Clone, PartialEq)]
pub struct RangesProposal {
    /// The client's number, as it says.
    number: u16,
    head: Head,
    proposal: Proposal,
}

impl RangesProposal {
    /// Encrypts the ranges of an update, as `policy` finds them.
    ///
    /// # Errors
    /// The job agrees on no private ranges; the key has no secret of ranges, or another than the job's; a value is not
    /// finite; other tensors than the job settles; no randomness.
    pub fn new(key: KeyRef<'_>, job: &Job, update: &Update, policy: Policy) -> Result<Self, Error> {
        job.check_key(key.public())?;
        job.check_number(key.number())?;
        let own = job.measure(update, policy, 1)?;
        job.check_layout(own.specs())?;
        let proposal = job.propose_ranges(key.ranges_secret(), &own)?;
        let head = Head::new(job.id(), own.specs().to_vec())?;
        Ok(Self { number: key.number(), head, proposal })
    }

    /// Returns the client's number, as it says.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the job that it is for.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.head.job
    }

    /// Returns the tensors.
    #[must_use]
    pub fn specs(&self) -> &[TensorSpec] {
        &self.head.specs
    }

    /// Returns the number of levels that each range is written in.
    #[must_use]
    pub fn levels(&self) -> u8 {
        self.proposal.levels()
    }

    /// Writes the file's bytes.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        let header = Header::of_sums(Kind::RangesProposal, key, self.head.values);
        frame::seal(&header, 1024, |w| {
            w.u16(self.number);
            self.head.write(w);
            self.proposal.write(w);
        })
    }

    /// Reads a file made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be.
    pub fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, Error> {
        Self::from_frame(&frame::open(bytes, Kind::RangesProposal, key)?)
    }

    /// Reads a frame under whatever key.
    ///
    /// # Errors
    /// Its kind or body is not as it should be.
    pub fn from_frame(frame: &Frame<'_>) -> Result<Self, Error> {
        frame.check_kind(Kind::RangesProposal)?;
        let mut r = Reader(frame.body);
        let number = r.u16()?;
        let head = Head::read(&mut r)?;
        let proposal = Proposal::read(&mut r)?;
        r.end()?;
        frame.check_set_of(head.values)?;
        Ok(Self { number, head, proposal })
    }

    /// Refuses a proposal that the job does not admit, whoever else proposes.
    ///
    /// # Errors
    /// Of another job; a number that is no client's; other levels, tensors or rows.
    pub fn check(&self, job: &Job) -> Result<(), Error> {
        self.head.check(job)?;
        job.private_ranges()?.check_proposal(&self.proposal, self.head.specs.len())?;
        job.check_number(self.number)
    }

    fn contributor(&self) -> Contributor {
        Contributor { number: self.number, seed: self.proposal.seed() }
    }
}

/// The ranges that are agreed, encrypted.
#[derive(Debug, Clone, PartialEq)]
pub struct AgreedRanges {
    head: Head,
    proposers: Vec<Contributor>,
    ranges: EncryptedRanges,
}

impl AgreedRanges {
    /// Finds the ranges that a job agrees on among proposals, on all cores. Calls `progress` with the number of levels
    /// found since its last call.
    ///
    /// # Errors
    /// An evaluation key of another job; no proposal, or fewer than the job's rank; one that the job does not admit, of
    /// other tensors than the first, or of a client that has proposed already.
    pub fn find(
        key: &RangesEvaluationKey,
        job: &Job,
        proposals: &[RangesProposal],
        progress: &(dyn Fn(u32) + Sync),
    ) -> Result<Self, Error> {
        let private = job.private_ranges()?;
        let Some(RangesProposal { head, .. }) = proposals.first() else {
            return Err(Error::NothingToSum);
        };
        let mut distinct = Distinct::default();
        for proposal in proposals {
            let fits = proposal
                .check(job)
                .and_then(|()| check_layout(&proposal.head.specs, &head.specs))
                .and_then(|()| distinct.add(&proposal.contributor()));
            fits.map_err(|error| error.within(format!("client {}", proposal.number)))?;
        }
        let all: Vec<_> = proposals.iter().map(|p| &p.proposal).collect();
        let ranges = private.find(key, head.specs.len(), &all, progress)?;
        let mut proposers: Vec<_> = proposals.iter().map(RangesProposal::contributor).collect();
        proposers.sort_by_key(|proposer| proposer.number);
        Ok(Self { head: head.clone(), proposers, ranges })
    }

    /// Returns the job that they are for.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.head.job
    }

    /// Returns the tensors.
    #[must_use]
    pub fn specs(&self) -> &[TensorSpec] {
        &self.head.specs
    }

    /// Returns those who proposed, as the aggregator says: their numbers, and the seeds of their proposals.
    #[must_use]
    pub fn proposers(&self) -> &[Contributor] {
        &self.proposers
    }

    /// Opens the ranges, and returns them with the job's largest weight.
    ///
    /// # Errors
    /// No secret of ranges, or another than the job's; they are of another job, or have other tensors; fewer
    /// proposed than the job's rank.
    pub fn open(&self, secret: Option<&RangesSecret>, job: &Job) -> Result<Agreement, Error> {
        self.head.check(job)?;
        self.proposers.iter().try_for_each(|proposer| job.check_number(proposer.number))?;
        job.private_ranges()?.check_count(self.proposers.len())?;
        let ranges = vec![0.0; self.head.specs.len()];
        let told = Agreement::new(self.head.specs.clone(), ranges, job.limits().max_weight)?;
        job.open_ranges(secret, &self.ranges, &job.at_precision(&told)?)
    }

    /// Writes the file's bytes.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        let header = Header::of_sums(Kind::AgreedRanges, key, self.head.values);
        let capacity = EncryptedRanges::BYTES * self.head.specs.len() + 4096;
        frame::seal(&header, capacity, |w| {
            w.u16(self.proposers.len() as u16);
            self.proposers.iter().for_each(|proposer| proposer.write(w));
            self.head.write(w);
            self.ranges.write(w);
        })
    }

    /// Reads a file made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be.
    pub fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, Error> {
        Self::from_frame(&frame::open(bytes, Kind::AgreedRanges, key)?)
    }

    /// Reads a frame under whatever key.
    ///
    /// # Errors
    /// Its kind or body is not as it should be.
    pub fn from_frame(frame: &Frame<'_>) -> Result<Self, Error> {
        frame.check_kind(Kind::AgreedRanges)?;
        let mut r = Reader(frame.body);
        let count = r.u16()?;
        let proposers =
            (0..count).map(|_| Contributor::read(&mut r)).collect::<Result<Vec<_>, _>>()?;
        if !proposers.is_sorted_by(|a, b| a.number < b.number) {
            return Err(FrameError::Malformed { what: "proposers out of order" }.into());
        }
        Distinct::check(&proposers)?;
        let head = Head::read(&mut r)?;
        let ranges = EncryptedRanges::read(&mut r)?;
        r.end()?;
        frame.check_set_of(head.values)?;
        Ok(Self { head, proposers, ranges })
    }
}
