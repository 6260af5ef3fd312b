//! A member of a job: what its clients do, each with a key, the job and the record of the key's use.
//!
//! Files, rounds over a network and rounds within another framework differ in how bytes travel. What a client proposes,
//! enters in the ledger and opens is the same, and is here; and how it seals, but in rounds over a network, which seal
//! chunk by chunk and go on after a crash.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ciphergram_accel::Engine;
use rayon::ThreadPool;

use crate::{
    Agreement, AnyKey, Error, IdentityKey, Job, KeyRef, Ledger, SecretKey, Seed, Sum, Update,
    codec::Output,
    exchange::Announcement,
    job::Terms,
    random,
    threshold::{MemberKey, OpenAnswer, OpenerKey, Prekey, PrekeyChain, SumSecret},
    update::{Destination, OpenedSum, SealPermit, Sealer, SumOpener, open_to},
};

/// A client of a job, as it seals updates and opens sums.
#[derive(Clone)]
pub struct Member<'a> {
    /// The key, and the client's number.
    pub key: KeyRef<'a>,
    /// The job, which the aggregator is held to: no sum of fewer than it requires is opened.
    pub job: &'a Job,
    /// The record of rounds sealed and sums opened.
    pub ledger: &'a Ledger,
    /// The engine that encrypts and decrypts.
    pub engine: Arc<dyn Engine>,
    /// The threads to open sums on, and for [`compute`](Self::compute); if none, those of the process.
    pub threads: Option<Arc<ThreadPool>>,
}

impl<'a> Member<'a> {
    /// Makes a member that computes on the threads of the process.
    #[must_use]
    pub fn new(key: KeyRef<'a>, job: &'a Job, ledger: &'a Ledger, engine: Arc<dyn Engine>) -> Self {
        Self { key, job, ledger, engine, threads: None }
    }

    /// Computes something on the threads of this member.
    pub fn compute<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.threads {
            Some(threads) => threads.install(work),
            None => work(),
        }
    }

    /// Proposes what the job leaves open, for the next round of this client and a contribution of a seed.
    ///
    /// # Errors
    /// As [`Announcement::propose`]; the ledger's.
    pub fn propose(&self, seed: Seed, update: &Update, weight: u64) -> Result<Announcement, Error> {
        let standing = self.ledger.standing(self.job, self.key)?;
        Announcement::propose(seed, self.job, standing, update, weight, self.key.ranges_secret())
    }

    /// Seals an update of a weight under an agreement: clips and rounds it over the agreed ranges, under a fresh seed.
    /// That the client contributes to this round, or to the next one if none is given, is in the ledger before anything
    /// is sealed and after everything was checked: what is refused takes no round.
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare); the ledger cannot be written.
    pub fn seal(
        &self,
        update: &Update,
        weight: u64,
        agreement: &Agreement,
        round: Option<u64>,
    ) -> Result<Sealer, Error> {
        // Masks, noise and tags are all of the round's statement: what has begun cannot change to another round.
        let begin = |round| self.begin(update, weight, &self.job.terms(round, agreement)?);
        let Some(round) = round else {
            return self.ledger.seal_next(self.job, self.key.number(), begin);
        };
        let begun = begin(round)?;
        self.enter(round)?;
        Ok(begun)
    }

    /// Prepares the same for bytes that nobody has until all of them are in place: just before that the caller
    /// [enters](Self::enter) the sealer's round. Until then it is not used, so a contribution that was cut short costs
    /// none. To seal the round again is safe then: nothing of the first attempt left, and another one draws a seed
    /// anew, from which masks and noise follow.
    ///
    /// # Errors
    /// A key that seals no updates, or not under this job; an update that is not laid out as agreed, or has a value
    /// that is not finite; a weight that is not from 1 to the agreed largest; [`Error::RoundOver`]; the engine's, or
    /// no randomness; those of [`Job::terms`].
    pub fn prepare(
        &self,
        update: &Update,
        weight: u64,
        agreement: &Agreement,
        round: Option<u64>,
    ) -> Result<Sealer, Error> {
        let round = self.ledger.open_round(self.job, self.key.number(), round)?;
        self.begin(update, weight, &self.job.terms(round, agreement)?)
    }

    fn begin(&self, update: &Update, weight: u64, terms: &Terms<'_>) -> Result<Sealer, Error> {
        let seed = random::bytes()?;
        let update = terms.quantise(update, weight, self.key.public().parameters(), &seed)?;
        Sealer::new(self.key, self.engine.clone(), update, SealPermit::draw()?, terms)
    }

    /// Enters in the ledger that this client seals to a round.
    ///
    /// # Errors
    /// [`Error::RoundOver`]; the ledger cannot be written.
    pub fn enter(&self, round: u64) -> Result<(), Error> {
        self.ledger.seal(self.job, self.key.number(), round)
    }

    /// Records prekeys that openers told, each by the opener's place. What is none of theirs is left aside.
    ///
    /// # Errors
    /// A key without openers; the ledger cannot be written.
    pub fn learn<'p>(&self, told: impl Iterator<Item = (u8, &'p Prekey)>) -> Result<(), Error> {
        let KeyRef::Member(key) = self.key else { return Err(Error::NoOpeners) };
        let own = told.filter(|(opener, told)| key.openers().check_prekey(*opener, told).is_ok());
        self.ledger.learn(self.job, own.collect())
    }

    /// Opens a sum to a destination, by the secret key or, in a job with openers, by their answers, with a record of it
    /// in the ledger.
    ///
    /// Not to be called on the threads to compute on: a thread that waits there for parts of its own sum may begin
    /// another's opening, which waits for this one's turn.
    ///
    /// # Errors
    /// A client's own key, which opens nothing; those of [`SumSecret::recover`], of [`open_to`] and of
    /// [`Ledger::open`].
    pub fn open_sum(
        &self,
        sum: &Sum,
        answers: &[OpenAnswer],
        output: Output,
        mut to: Destination<'_, '_>,
    ) -> Result<(), Error> {
        self.open_by(sum, answers, |by| {
            open_to(by, &*self.engine, sum, self.job, output, to.again())
        })
    }

    /// Opens a sum to its exact integers, likewise.
    ///
    /// # Errors
    /// As [`open_sum`](Self::open_sum), but for the destination's.
    pub fn open_integers(&self, sum: &Sum, answers: &[OpenAnswer]) -> Result<OpenedSum, Error> {
        self.open_by(sum, answers, |by| OpenedSum::open(by, &*self.engine, sum, self.job))
    }

    /// Opens a sum by whatever opens sums of the job.
    fn open_by<T: Send>(
        &self,
        sum: &Sum,
        answers: &[OpenAnswer],
        mut attempt: impl FnMut(SumOpener<'_>) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let KeyRef::Member(key) = self.key else {
            let key = self.secret()?;
            let open = || attempt(key.into());
            return self.ledger.open(key.public(), self.job, sum, || self.compute(open));
        };
        // The next contribution is sealed under them, whether this sum opens or not.
        self.learn(answers.iter().map(|answer| (answer.opener, answer.prekey())))?;
        let candidates = SumSecret::candidates(key, self.job, sum, answers)?;
        let open = || {
            for secret in candidates {
                let opened = attempt((&secret?).into());
                // By another set of answers it may open. It says nothing of any secret, and is no failure of the sum.
                if !matches!(opened, Err(Error::NotTheirs { .. })) {
                    return opened;
                }
            }
            Err(Error::FalseAnswers { found: answers.len() })
        };
        self.ledger.open(key.public(), self.job, sum, || self.compute(open))
    }

    fn secret(&self) -> Result<&'a SecretKey, Error> {
        match self.key {
            KeyRef::Member(_) => {
                let needed = "the sums of this job take the answers of its openers";
                Err(Error::KeyKind { found: "member's", needed })
            }
            KeyRef::Secret(key, _) => Ok(key),
            KeyRef::Client(_) => {
                Err(Error::KeyKind { found: "client's", needed: "only the secret key opens sums" })
            }
        }
    }
}

/// The files of a client: its key, the job that this is used under, and the record of its use.
pub struct MemberFiles {
    path: PathBuf,
    /// The key.
    pub key: AnyKey,
    /// The job.
    pub job: Job,
    /// The record.
    pub ledger: Ledger,
    /// The key of the client that an identity is in the job, if it is one.
    client: Option<Result<MemberKey, Error>>,
}

impl MemberFiles {
    /// Finds what is beside a key that was read from a file: the job named or else as [`Job::of_key`] says, and the
    /// ledger named or else as [`Ledger::path_of`] says.
    ///
    /// # Errors
    /// Those of both.
    pub fn of_key(
        key: AnyKey,
        path: &Path,
        job: Option<&Path>,
        ledger: Option<PathBuf>,
    ) -> Result<Self, Error> {
        let job = Job::of_key(path, key.public(), job)?;
        let ledger = Ledger::at(Ledger::path_of(path, ledger)?);
        // One that is an opener alone is no client.
        let client = match &key {
            AnyKey::Identity(own, _) => Some(own.client(&job, &ledger)),
            _ => None,
        };
        Ok(Self { path: path.into(), key, job, ledger, client })
    }

    /// Reads a key's file, and finds what is beside it.
    ///
    /// # Errors
    /// As [`AnyKey::load`] and [`of_key`](Self::of_key).
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::of_key(AnyKey::load(path)?, path, None, None)
    }

    /// Returns the client of this number, which may be left out where the key has it.
    ///
    /// # Errors
    /// Those of [`AnyKey::as_client`]; the job has no such client.
    pub fn member(
        &self,
        number: Option<u16>,
        engine: Arc<dyn Engine>,
    ) -> Result<Member<'_>, Error> {
        let here = |e: Error| e.within(self.path.display());
        let key = match &self.client {
            Some(client) => client.as_ref().map(KeyRef::Member).map_err(|e| here(e.clone()))?,
            None => self.key.as_client(number).map_err(here)?,
        };
        if let (KeyRef::Member(key), Some(asked)) = (key, number)
            && asked != key.number()
        {
            return Err(here(Error::AnotherClient { found: key.number(), asked }));
        }
        self.job.check_number(key.number()).map_err(|e| match key {
            KeyRef::Client(_) => here(e),
            KeyRef::Secret(..) | KeyRef::Member(_) => e,
        })?;
        Ok(Member::new(key, &self.job, &self.ledger, engine))
    }

    /// Returns whoever decrypts sums: by the secret key, as no client in particular, or as the client that an identity
    /// is, by openers' answers.
    ///
    /// # Errors
    /// It is neither.
    pub fn decryptor(&self, engine: Arc<dyn Engine>) -> Result<Member<'_>, Error> {
        if let AnyKey::Identity(..) = self.key {
            return self.member(None, engine);
        }
        let key = self.key.secret().map_err(|e| e.within(self.path.display()))?;
        Ok(Member::new(key.as_client(0), &self.job, &self.ledger, engine))
    }

    /// Returns the opener that the client is as well, if it is one.
    ///
    /// # Errors
    /// Its prekeys cannot be read.
    pub fn opener_if_any(&self) -> Result<Option<OpenerKey>, Error> {
        let AnyKey::Identity(own, _) = &self.key else { return Ok(None) };
        own.opener_if_any(&self.path, &self.job)
    }

    /// Returns the opener that an identity is in the job.
    ///
    /// # Errors
    /// It is no identity; [`Error::NoMember`]; its prekeys cannot be read.
    pub fn opener(&self) -> Result<OpenerKey, Error> {
        let here = |e: Error| e.within(self.path.display());
        let AnyKey::Identity(own, _) = &self.key else {
            let needed = "openers answer with an identity";
            return Err(here(Error::KeyKind { found: "sums'", needed }));
        };
        own.opener(&self.path, &self.job)
    }
}

impl IdentityKey {
    /// Finds the client that it is in a job, with the prekeys that openers told last.
    ///
    /// # Errors
    /// Those of [`MemberKey::new`]; the ledger cannot be read.
    pub fn client(&self, job: &Job, ledger: &Ledger) -> Result<MemberKey, Error> {
        let told = ledger.prekeys(job)?;
        let told = told.iter().map(|(opener, prekey)| (*opener, prekey));
        Ok(MemberKey::new(&self.public, self.identity.clone(), job)?.with_told(told))
    }

    /// Finds the opener that it is in a job, by the prekeys beside its file; nothing if it is none, or has no such
    /// file.
    ///
    /// # Errors
    /// Its prekeys cannot be read.
    pub fn opener_if_any(&self, path: &Path, job: &Job) -> Result<Option<OpenerKey>, Error> {
        let Ok(openers) = job.openers() else { return Ok(None) };
        let id = self.identity.id();
        let is_one = openers.openers().iter().any(|opener| opener.id == id);
        let can_answer = is_one && PrekeyChain::exists(path);
        can_answer.then(|| self.opener(path, job)).transpose()
    }

    /// Finds the opener that it is in a job, by the prekeys beside its file.
    ///
    /// # Errors
    /// Those of [`OpenerKey::new`]; its prekeys cannot be read.
    pub fn opener(&self, path: &Path, job: &Job) -> Result<OpenerKey, Error> {
        let chain = PrekeyChain::load(path)?;
        OpenerKey::new(&self.public, self.identity.clone(), chain, job)
            .map_err(|e| e.within(path.display()))
    }
}
