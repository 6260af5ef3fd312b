//! An opener of a job: it answers once a round, and needs to be there for nothing else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zeroize::Zeroizing;

use super::{
    answer::OpenAnswer,
    identity::Identity,
    openers::{JobSecret, Openers},
    prekey::{AnswerKey, Prekey, PrekeyChain},
    request::{OpenRequest, RequestEntry},
    sharing::Share,
};
use crate::{Error, Job, Ledger, PublicKey, contributors::Distinct};

/// The key of an opener of one job.
pub struct OpenerKey {
    public: PublicKey,
    job: Job,
    identity: Arc<Identity>,
    place: usize,
    secret: JobSecret,
    openers: Arc<Openers>,
    /// Locked for a whole answer.
    chain: Mutex<PrekeyChain>,
}

impl OpenerKey {
    /// Finds the opener of a job that an identity is.
    ///
    /// # Errors
    /// The job has no openers; [`Error::NoMember`].
    pub fn new(
        public: &PublicKey,
        identity: Arc<Identity>,
        chain: PrekeyChain,
        job: &Job,
    ) -> Result<Self, Error> {
        let openers = job.openers()?.clone();
        let (place, secret) = openers.opener(&identity)?;
        let (public, job) = (public.clone(), job.clone());
        let chain = Mutex::new(chain);
        Ok(Self { public, job, identity, place, secret, openers, chain })
    }

    /// Returns the key that sums are encrypted under.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns its place among the openers of the job.
    #[must_use]
    pub fn place(&self) -> usize {
        self.place
    }

    /// Returns the prekey of its next answer, for another thirty days.
    ///
    /// # Errors
    /// The clock stands before 1970.
    pub fn prekey(&self) -> Result<Prekey, Error> {
        self.chain()?.prekey(&self.identity)
    }

    /// Answers a request: adds the shares of those whose contributions are in the sum, if they are as many as the job
    /// demands and each signed its own. That it answers for the round is in the ledger first; then the key of the
    /// answer is erased, and the answer is kept in its place, so that one that gets lost is given again for the same
    /// request. It answers no other of that round, nor of an earlier one.
    ///
    /// # Errors
    /// A request of another job, opener or round, or beyond the job; [`Error::Contributor`], whose contribution is not
    /// what it signed; [`Error::Answered`]; a file cannot be written. Only after the last two is the round over.
    pub fn answer(&self, ledger: &Ledger, request: &OpenRequest) -> Result<OpenAnswer, Error> {
        let (job, mut chain) = (&self.job, self.chain()?);
        let asked = *blake3::hash(&request.to_bytes(&self.public)).as_bytes();
        if let Some(answer) = chain.answer_to(&asked) {
            return OpenAnswer::from_bytes(answer, &self.public);
        }
        job.check_id(request.job)?;
        if usize::from(request.opener) != self.place {
            let (found, expected) = (request.opener.to_string(), self.place.to_string());
            return Err(Error::JobMismatch { what: "it is a request to opener", found, expected });
        }
        ledger.check_unanswered(job, self.place, request.round)?;
        let statement = job.terms(request.round, &request.agreement)?.openers_statement();
        let found = request.entries.len();
        if found < job.min_clients().into() {
            return Err(Error::TooFewContributors {
                chunk: 0,
                found,
                min_clients: job.min_clients(),
            });
        }
        let fields = request.agreement.fields(self.public.parameters());
        let (sharing, _) = self.openers.sharing(self.public.parameters(), fields)?;
        let mut distinct = Distinct::default();
        let key = chain.key();
        let mut sum: Share = Zeroizing::new(vec![0; sharing.len()]);
        for entry in &request.entries {
            distinct.add(&entry.contributor)?;
            let share = self
                .share(&statement, entry, (&key, &sharing))
                .map_err(|why| Error::Contributor { number: entry.contributor.number, why })?;
            sharing.add(&mut sum, &share);
        }
        let next = chain.next()?;
        let prekey = next.prekey(&self.identity)?;
        let keys = (&*self.identity, &self.secret);
        let answer = OpenAnswer::new(keys, (request, &statement), (&sharing, &sum), prekey)?;
        ledger.answer(job, self.place, request.round)?;
        chain.advance(next, &asked, answer.to_bytes(&self.public))?;
        Ok(answer)
    }

    /// Locks the prekeys as they are on disk: another process of this opener may have answered. A thread that panicked
    /// amid an answer left them as they were before it.
    fn chain(&self) -> Result<MutexGuard<'_, PrekeyChain>, Error> {
        let mut chain = self.chain.lock().unwrap_or_else(PoisonError::into_inner);
        chain.reload()?;
        Ok(chain)
    }

    /// Checks one contribution, and opens the share of it.
    fn share(
        &self,
        statement: &[u8; 32],
        entry: &RequestEntry,
        (key, sharing): (&AnswerKey, &super::sharing::Sharing),
    ) -> Result<Share, &'static str> {
        let RequestEntry { contributor, signed, hashes, share } = entry;
        let member = self.openers.members().get(usize::from(contributor.number));
        let member = member.filter(|_| self.job.check_number(contributor.number).is_ok());
        let member = member.ok_or("the job has no such client")?;
        let own = (member, share, &hashes[..]);
        signed.open(own, (statement, contributor), (key, sharing, self.place))
    }
}
