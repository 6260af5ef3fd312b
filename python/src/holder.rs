//! A key of sums as Python has it, whatever the class, and what is done with it.

use std::{
    path::{Path, PathBuf},
    process,
    sync::{Arc, OnceLock},
};

use ciphergram_he::{self as he, AnyKey, Ledger, Member, private_ranges::RangesSecret};
use pyo3::prelude::*;

use crate::{
    engines::engine,
    errors::{Error, Result, warn},
    pool::{self, run},
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

    /// Returns another key that is used as this one is.
    pub(crate) fn with(&self, key: AnyKey) -> Self {
        Self { key: Arc::new(key), ..self.clone() }
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
    pub(crate) fn ledger(&self) -> Result<Ledger> {
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
            AnyKey::Identity(..) => {
                let needed = "keygen_members writes identities";
                return Err(he::Error::KeyKind { found: "identity", needed }.into());
            }
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

    /// Returns the number of the client that an identity is in a job; None if it is none.
    pub(crate) fn number_in(&self, job: &he::Job) -> Result<Option<u16>> {
        let AnyKey::Identity(own, _) = &*self.key else { return Ok(None) };
        match own.client(job, &self.ledger()?) {
            Ok(client) => Ok(Some(client.number())),
            Err(he::Error::NoMember { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
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
        let own;
        let key = match &*self.key {
            AnyKey::Identity(key, _) => {
                own = key.client(job, &ledger)?;
                (&own).into()
            }
            key => key.as_client(number)?,
        };
        let member = Member::new(key, job, &ledger, engine(on)?);
        act(&Member { threads, ..member })
    }
}
