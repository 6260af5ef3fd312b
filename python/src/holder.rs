//! A key of sums as Python has it, whatever the class, and what is done with it.

use std::{
    path::{Path, PathBuf},
    process,
    sync::{Arc, OnceLock},
};

use ciphergram_he::{
    self as he, AnyKey, Ledger, Member, Update, codec::most_clipped, private_ranges::RangesSecret,
};
use pyo3::prelude::*;

use crate::{
    contribution::PyContribution,
    engines::engine,
    errors::{Error, Result, warn, warn_clipped},
    exchange::{PyAnnouncement, PyRoundTerms},
    job::PyJob,
    keys::{PyClientKey, PyPublicKey, PySecretKey},
    pool::{self, run},
    ranges::{self, PyRanges},
};

/// A key, the job that it is used under unless another is given, and the record of its use: the same for all that came
/// of one key.
#[derive(Clone)]
pub(crate) struct Holder {
    pub(crate) key: Arc<AnyKey>,
    pub(crate) job: Option<Arc<he::Job>>,
    ledger: Ledger,
    /// The file of the ledger, once there is one.
    file: Arc<OnceLock<PathBuf>>,
    /// The process that the ledger is of.
    owner: u32,
}

impl Holder {
    /// Takes a key that no file has.
    pub(crate) fn new(key: AnyKey, job: Option<Arc<he::Job>>) -> Self {
        let (ledger, file) = (Ledger::in_memory(), Arc::default());
        Self { key: Arc::new(key), job, ledger, file, owner: process::id() }
    }

    /// Takes a key of a file, with the job beside it, and the ledger there or where a person has put it. It is for
    /// `rounds` rounds at a time.
    pub(crate) fn of_file(
        key: AnyKey,
        path: &Path,
        ledger: Option<PathBuf>,
        rounds: u64,
    ) -> Result<Self> {
        let job = he::keys::beside(path, "job.json");
        let job = job.is_file().then(|| he::Job::load(&job, key.public())).transpose()?;
        let job = job.map(Arc::new);
        if let AnyKey::Public(_) = key {
            return Ok(Self::new(key, job));
        }
        let file = Ledger::path_of(path, ledger)?;
        let ledger = Ledger::reserving(file.clone(), rounds);
        Ok(Self { ledger, file: Arc::new(file.into()), ..Self::new(key, job) })
    }

    /// Reads a key's file, and what is beside it. Warns if others can read a secret one.
    pub(crate) fn load(
        py: Python<'_>,
        path: &Path,
        ledger: Option<PathBuf>,
        rounds: u64,
    ) -> Result<Self> {
        let key = run(py, || Ok(AnyKey::load(path)?))?;
        warn(py, key.warning())?;
        Self::of_file(key, path, ledger, rounds)
    }

    /// Takes the key of an object of any class of keys.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> Result<Self> {
        if let Ok(key) = object.cast::<PyPublicKey>() {
            return Ok(key.get().0.clone());
        }
        if let Ok(key) = object.cast::<PySecretKey>() {
            return Ok(key.get().0.clone());
        }
        if let Ok(key) = object.cast::<PyClientKey>() {
            return Ok(key.get().0.clone());
        }
        Err(Error::Own("KeyKind", format!("{} is no key", object.get_type().name()?)))
    }

    /// Returns another key that is used as this one is.
    pub(crate) fn with(&self, key: AnyKey) -> Self {
        Self { key: Arc::new(key), ..self.clone() }
    }

    /// Returns the half that anyone may have.
    pub(crate) fn public(&self) -> PyPublicKey {
        self.public_of(self.job.clone())
    }

    /// Returns the same half, to be used under a job.
    pub(crate) fn public_of(&self, job: Option<Arc<he::Job>>) -> PyPublicKey {
        PyPublicKey(Self::new(AnyKey::Public(self.key.public().clone()), job))
    }

    pub(crate) fn id(&self) -> String {
        self.key.public().id().to_string()
    }

    pub(crate) fn scheme(&self) -> &'static str {
        self.key.public().parameters().scheme().name()
    }

    /// Describes it as of a class, with what else there is to tell.
    pub(crate) fn describe(&self, class: &str, more: &str) -> String {
        let (id, parameters) = (self.id(), self.key.public().parameters());
        let (scheme, clients, bits) =
            (parameters.scheme(), parameters.clients(), parameters.bits());
        format!("<{class} {id} of {scheme}, {clients} clients, {bits} bits{more}>")
    }

    /// Returns the key's own job, if it has one.
    pub(crate) fn own_job(&self) -> Option<PyJob> {
        self.job.clone().map(PyJob)
    }

    /// Returns the job given, or the key's own.
    pub(crate) fn job(&self, given: Option<&PyJob>) -> Result<Arc<he::Job>> {
        given.map(|job| job.0.clone()).or_else(|| self.job.clone()).ok_or_else(|| {
            Error::Own("NoJob", "the key has no job beside it: give one as job=".into())
        })
    }

    /// Returns the secret of private ranges, if there is one.
    ///
    /// # Errors
    /// The key is public, which never has one.
    pub(crate) fn ranges_secret(&self) -> Result<Option<&RangesSecret>> {
        match &*self.key {
            AnyKey::Public(_) => {
                let text = "private ranges take a secret key, or a client's own: PublicKey is none";
                Err(Error::Own("KeyKind", text.into()))
            }
            key => Ok(key.ranges_secret()),
        }
    }

    /// Returns the record. A process that was forked reads it anew: locks of its parent may be held for ever.
    fn ledger(&self) -> Result<Ledger> {
        if self.owner == process::id() {
            return Ok(self.ledger.clone());
        }
        self.file.get().cloned().map(Ledger::at).ok_or_else(|| {
            let text = format!(
                "no file has this key, and the record of its use is in the memory of process {}: save it, and load it \
                 here",
                self.owner
            );
            Error::Own("ForkedError", text)
        })
    }

    /// Writes the key's file, and the record of a secret one's use beside it.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        match &*self.key {
            AnyKey::Public(key) => return Ok(key.save(path)?),
            AnyKey::Client(key, _) => key.save(path)?,
            AnyKey::Secret(key, _) => key.save(path)?,
        }
        self.save_record(path)
    }

    /// Moves the record beside the file that the key was saved to; that is removed if it cannot be.
    pub(crate) fn save_record(&self, path: &Path) -> Result<()> {
        let moved = self.ledger().and_then(|ledger| Ok(ledger.move_beside(path)?));
        let file = moved.inspect_err(|_| {
            // Without its record it could seal to a round twice.
            let _ = std::fs::remove_file(path);
        })?;
        // One that has a file keeps that.
        let _ = self.file.set(file);
        Ok(())
    }

    /// Acts as the client of this number, which may be left out where the key has it.
    pub(crate) fn act<T>(
        &self,
        number: Option<u16>,
        job: &he::Job,
        on: &str,
        act: impl FnOnce(&Member<'_>) -> Result<T>,
    ) -> Result<T> {
        let (ledger, threads) = (self.ledger()?, Some(pool::pool()?));
        let member = Member::new(self.key.as_client(number)?, job, &ledger, engine(on)?);
        act(&Member { threads, ..member })
    }

    /// Encrypts an update, of which a count of values for each tensor was clipped before.
    pub(crate) fn encrypt(
        &self,
        py: Python<'_>,
        number: Option<u16>,
        (update, outside): (Update, Vec<usize>),
        given: &GivenTerms<'_, '_>,
        (job, engine): (Option<&PyJob>, &str),
    ) -> Result<PyContribution> {
        let job = self.job(job)?;
        let (contribution, clipped) = self.act(number, &job, engine, |member| {
            let (round, agreement) = given.settle(member, &update)?;
            let weight = given.weight.unwrap_or(1);
            if !given.says_max_weight() {
                let bits = self.key.public().parameters().bits();
                warn(py, coarse(weight, agreement.max_weight(), bits).as_deref())?;
            }
            let public = self.public_of(Some(job.clone()));
            run(py, || {
                let sealer = member.seal(&update, weight, &agreement, round)?;
                let (round, clipped) = (sealer.round(), sealer.clipped().to_vec());
                let mut bytes = Vec::with_capacity(sealer.chunks().total_bytes() + 4096);
                sealer.write_to(&mut bytes)?;
                let most = most_clipped(&outside, &clipped);
                let sealed = (bytes, round, agreement, most);
                Ok((PyContribution::sealed(member, sealed, public), clipped))
            })
        })?;
        warn_clipped(py, &clipped);
        Ok(contribution)
    }

    /// Proposes ranges and a weight for a round.
    pub(crate) fn propose(
        &self,
        py: Python<'_>,
        number: Option<u16>,
        update: &Update,
        exact: u64,
        job: Option<&PyJob>,
    ) -> Result<PyAnnouncement> {
        let job = self.job(job)?;
        // The exact weight stays with the client.
        let largest = u64::from(job.limits().max_weight);
        let weight = exact.checked_next_power_of_two().unwrap_or(exact);
        let weight = if exact <= largest { weight.min(largest) } else { exact };
        self.act(number, &job, "cpu", |member| {
            let announcement =
                run(py, || Ok(member.propose(he::Seed::draw()?, update, weight)?))?;
            let (client, bytes) = (member.key.number(), announcement.to_bytes(member.key.public()));
            Ok(PyAnnouncement { announcement, client, bytes })
        })
    }
}

/// The terms that an update is encrypted under, as a caller gives them.
pub(crate) struct GivenTerms<'a, 'py> {
    pub(crate) ranges: Option<&'a Bound<'py, PyAny>>,
    pub(crate) weight: Option<u64>,
    pub(crate) max_weight: Option<u32>,
    pub(crate) round: Option<u64>,
    pub(crate) terms: Option<&'a PyRoundTerms>,
    pub(crate) announcement: Option<&'a PyAnnouncement>,
}

impl GivenTerms<'_, '_> {
    /// Returns the number of the round, if it is not the next one, and the agreement that it is sealed under.
    fn settle(&self, member: &Member<'_>, update: &Update) -> Result<(Option<u64>, he::Agreement)> {
        let (key, job) = (member.key, member.job);
        match (self.terms, self.announcement) {
            (Some(terms), Some(own)) => {
                let terms = terms.terms.clone().opened(job, key.ranges_secret(), None)?;
                terms.check(key, &own.announcement, job)?;
                Ok((Some(terms.round), terms.agreement))
            }
            (None, None) => {
                let ranges = (self.ranges, self.max_weight);
                let specs = update.specs();
                Ok((self.round, ranges::agreement(ranges, self.weight.is_some(), job, &specs)?))
            }
            _ => Err(Error::parameter("terms= and announcement= belong together")),
        }
    }

    /// Returns whether the caller said a largest weight, here or in ranges that are shared, and meant it.
    fn says_max_weight(&self) -> bool {
        let is_shared = self.ranges.is_some_and(|ranges| ranges.is_instance_of::<PyRanges>());
        self.max_weight.is_some() || self.terms.is_some() || is_shared
    }
}

/// Returns what to warn of where a weight is so far below the largest that values lose more than four bits.
fn coarse(weight: u64, max_weight: u32, bits: u32) -> Option<String> {
    let lost = (f64::from(max_weight) / weight as f64).log2();
    (lost > 4.0).then(|| {
        let left = (f64::from(bits) - lost).max(0.0);
        format!(
            "weights up to {max_weight} leave {left:.0} of {bits} bits of a value of this weight: say max_weight=, the \
             largest of any client, of the job or here"
        )
    })
}
