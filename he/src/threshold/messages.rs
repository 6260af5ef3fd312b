//! The key messages of a sum, as whoever adds contributions holds them until openers have answered.

use std::sync::{Arc, OnceLock};

use super::{
    answer::{self, OpenAnswer},
    boxes::{KeyMessage, NOT_SIGNED},
    openers::Openers,
    request::{OpenRequest, RequestEntry},
    sharing::Sharing,
};
use crate::{Agreement, Error, Job, JobId, PublicKey, contributors::Contributor};

/// The key messages of the contributions to one sum.
pub struct KeyMessages {
    job: JobId,
    round: u64,
    agreement: Agreement,
    openers: Arc<Openers>,
    statement: [u8; 32],
    sharing: Sharing,
    /// Ascending by their contributors' numbers, in which order openers answer about them.
    taken: Vec<(Contributor, KeyMessage)>,
    /// What answers name them by, once the first has come.
    name: OnceLock<[u8; 32]>,
}

impl KeyMessages {
    /// Makes those of a round to which nobody has contributed.
    ///
    /// # Errors
    /// The job has no openers, or does not admit the agreement.
    pub fn new(
        key: &PublicKey,
        job: &Job,
        round: u64,
        agreement: &Agreement,
    ) -> Result<Self, Error> {
        let openers = job.openers()?.clone();
        let statement = job.terms(round, agreement)?.openers_statement();
        let parameters = key.parameters();
        let (sharing, _) = openers.sharing(parameters, agreement.fields(parameters))?;
        Ok(Self {
            job: job.id(),
            round,
            agreement: agreement.clone(),
            statement,
            sharing,
            openers,
            taken: vec![],
            name: OnceLock::new(),
        })
    }

    /// Returns the bytes of each.
    #[must_use]
    pub fn each_bytes(&self) -> usize {
        KeyMessage::bytes_of(&self.sharing)
    }

    /// Returns the most bytes that each takes in a request.
    #[must_use]
    pub fn requested_bytes(&self) -> usize {
        RequestEntry::bytes_of(&self.sharing)
    }

    /// Refuses a message that its client did not make so for this sum: all that takes neither a secret nor the
    /// ciphertext.
    ///
    /// # Errors
    /// [`Error::Contributor`].
    pub fn check(&self, contributor: &Contributor, message: &KeyMessage) -> Result<(), Error> {
        let checked = message.check(&self.openers, (&self.statement, contributor));
        checked.map_err(|why| Error::Contributor { number: contributor.number, why })
    }

    /// Refuses a ciphertext, of which `upload` is BLAKE3, that is not what the client signed.
    ///
    /// # Errors
    /// [`Error::Contributor`].
    pub fn check_upload(
        contributor: &Contributor,
        message: &KeyMessage,
        upload: &[u8; 32],
    ) -> Result<(), Error> {
        let number = contributor.number;
        let is_signed = message.upload() == upload;
        is_signed.then_some(()).ok_or(Error::Contributor { number, why: NOT_SIGNED })
    }

    /// Takes the message of a contribution that is in the sum, once both are checked.
    pub fn take(&mut self, contributor: Contributor, message: KeyMessage) {
        let place = self.taken.partition_point(|(other, _)| other.number < contributor.number);
        self.taken.insert(place, (contributor, message));
        self.name.take();
    }

    /// Returns the request to each opener.
    #[must_use]
    pub fn requests(&self) -> Vec<OpenRequest> {
        OpenRequest::to_each((self.job, self.round, &self.agreement), &self.taken)
    }

    fn name(&self) -> [u8; 32] {
        let digests = self.taken.iter();
        let digests = digests.map(|(own, message)| message.digest((&self.statement, own)));
        *self.name.get_or_init(|| answer::name_contributions(digests))
    }

    /// Refuses an answer that its opener did not give about this sum. Whether it tells the sum of its shares shows only
    /// to those who open it.
    ///
    /// # Errors
    /// [`Error::Opener`].
    pub fn check_answer(&self, answer: &OpenAnswer) -> Result<(), Error> {
        let opener = usize::from(answer.opener);
        let known = self.openers.openers().get(opener).ok_or("the job has no such opener");
        let contributors: Vec<_> = self.taken.iter().map(|(contributor, _)| *contributor).collect();
        let checked = known.and_then(|known| {
            let of_these = (&self.statement, &contributors[..]);
            answer.check(&known.id, of_these)?;
            if !answer.has_length_of(&self.sharing) {
                return Err("its answer is no sum of shares");
            }
            let is_of_these = answer.contributions == self.name();
            is_of_these.then_some(()).ok_or("its answer is of other contributions")
        });
        checked.map_err(|why| Error::Opener { opener, why: why.into() })
    }
}
