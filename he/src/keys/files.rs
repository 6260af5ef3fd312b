//! Key files.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;

use super::{
    AnyKey, ClientKey, IdentityKey, KeyFile, LevelledKey, PublicKey, SecretKey, json, levelled,
};
use crate::{
    Error, Job, Limits, Scheme,
    ckks::Preset,
    error::FrameError,
    files::{beside, permission_warning, read_text, write_new},
    private_ranges::RangesEvaluationKey,
    threshold::{MAX_OPENERS, OpenerId, Openers, PrekeyChain, Quorum},
    versions,
};

impl PublicKey {
    /// Reads a key file.
    ///
    /// # Errors
    /// It is missing, not a key file, a secret key, or holds a modulus that is not safe to use.
    pub fn load(path: &Path) -> Result<Self, Error> {
        AnyKey::load(path)?.into_public().map_err(|e| e.within(path.display()))
    }

    /// Writes the key file.
    ///
    /// # Errors
    /// The path exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        write_new(path, self.to_json()?.as_bytes(), 0o644)
    }

    /// Returns the text of the key file.
    ///
    /// # Errors
    /// None is known; the library's are passed on.
    pub fn to_json(&self) -> Result<String, Error> {
        json::write_public(self)
    }
}

impl SecretKey {
    /// Reads a key file. The warning, if any, says that others on this machine can read it too.
    ///
    /// # Errors
    /// It is missing, not a key file, or a public key.
    pub fn load(path: &Path) -> Result<(Self, Option<String>), Error> {
        let key = AnyKey::load(path)?;
        let warning = key.warning().map(String::from);
        Ok((key.into_secret().map_err(|e| e.within(path.display()))?, warning))
    }

    /// Writes the key file, readable by its owner only.
    ///
    /// # Errors
    /// The path exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        write_new(path, json::write_secret(self)?.as_bytes(), 0o600)
    }
}

impl ClientKey {
    /// Writes the key file, readable by its owner only.
    ///
    /// # Errors
    /// The path exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        write_new(path, json::write_client(self)?.as_bytes(), 0o600)
    }
}

impl IdentityKey {
    /// Writes the file, readable by its owner only, and that of its prekeys beside it. Returns what others know it by.
    ///
    /// # Errors
    /// A path exists or cannot be written; no randomness.
    pub fn save(&self, path: &Path) -> Result<OpenerId, Error> {
        write_new(path, json::write_identity(self)?.as_bytes(), 0o600)?;
        let prekey = PrekeyChain::create(path)?.prekey(&self.identity)?;
        Ok(OpenerId { id: self.identity.id(), prekey })
    }
}

/// Writes the files of a job whose clients have identities that are made here, of whom the first ones open its sums,
/// all or at most 32: those of clients in `clients/`, `public.json` and `job.json`.
///
/// # Errors
/// [`Error::Limits`]: no quorum of so many is `open`; a path exists or cannot be written; no randomness.
pub fn write_identities(
    public: &PublicKey,
    limits: Limits,
    open: Option<usize>,
    folder: &Path,
) -> Result<Job, Error> {
    let clients = folder.join("clients");
    fs::create_dir(&clients).map_err(|e| Error::from(e).within(clients.display()))?;
    let job = draw_members(public, limits, open, |number| clients.join(format!("{number}.json")))?;
    public.save(&folder.join("public.json"))?;
    job.save(&folder.join("job.json"))?;
    Ok(job)
}

/// Draws an identity for each client of these limits, writes it to the path of its number, and returns their job, whose
/// sums the first clients open, all or at most 32.
///
/// # Errors
/// As [`write_identities`].
pub fn draw_members(
    public: &PublicKey,
    limits: Limits,
    open: Option<usize>,
    path: impl Fn(u16) -> PathBuf,
) -> Result<Job, Error> {
    let quorum = Quorum::new(usize::from(limits.clients).min(MAX_OPENERS), open)?;
    let save = |number| IdentityKey::generate(public.clone())?.save(&path(number));
    let mut openers = (0..limits.clients).map(save).collect::<Result<Vec<_>, Error>>()?;
    let members = openers.iter().map(|opener| opener.id).collect();
    openers.truncate(MAX_OPENERS);
    let openers = Openers::new(quorum, openers, members)?;
    Job::new(public, Limits { openers: Some(Arc::new(openers)), ..limits })
}

impl KeyFile {
    /// Reads a key file.
    ///
    /// # Errors
    /// It is missing or not a valid key file; the path is named.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let read = || read(&read_text("key file", path)?);
        let warning = || permission_warning(path);
        Ok(match read().map_err(|e| e.within(path.display()))? {
            Self::Sums(AnyKey::Client(key, _)) => Self::Sums(AnyKey::Client(key, warning())),
            Self::Sums(AnyKey::Secret(key, _)) => Self::Sums(AnyKey::Secret(key, warning())),
            Self::Sums(AnyKey::Identity(key, _)) => Self::Sums(AnyKey::Identity(key, warning())),
            Self::Levelled(key @ LevelledKey::Secret(_), _) => Self::Levelled(key, warning()),
            public => public,
        })
    }

    /// Reads the text of a key file.
    ///
    /// # Errors
    /// It is not a valid key file.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        read(text)
    }
}

impl AnyKey {
    /// Reads a key file.
    ///
    /// # Errors
    /// It is missing, not a valid key file, or of the levelled scheme; the path is named.
    pub fn load(path: &Path) -> Result<Self, Error> {
        KeyFile::load(path)?.sums().map_err(|e| e.within(path.display()))
    }

    /// Reads the text of a key file.
    ///
    /// # Errors
    /// It is not a valid key file, or of the levelled scheme.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        read(text)?.sums()
    }
}

/// The name of the evaluation key of private ranges, beside the aggregator's key.
pub const RANGES_KEY: &str = "ranges-evaluation.cgk";

impl RangesEvaluationKey {
    /// Reads the file of an evaluation key that was made beside `key`: see [`from_bytes`](Self::from_bytes).
    ///
    /// # Errors
    /// It cannot be read, or is none of this key; the path is named.
    pub fn load(path: &Path, key: &PublicKey) -> Result<Self, Error> {
        let read = || Self::from_bytes(&fs::read(path)?, key);
        read().map_err(|e| e.within(path.display()))
    }

    /// Reads the one that a job with private ranges takes, from the file named or [`beside`] the aggregator's key.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn of_job(
        job: &Job,
        key: &PublicKey,
        key_path: &Path,
        named: Option<&Path>,
    ) -> Result<Option<Arc<Self>>, Error> {
        if job.private_ranges().is_err() {
            return Ok(None);
        }
        let path = named.map_or_else(|| beside(key_path, RANGES_KEY), Path::to_path_buf);
        Self::load(&path, key).map(|key| Some(Arc::new(key)))
    }
}

/// Writes the files of a key and its job into a folder: `secret.json`, `public.json`, `job.json`, if its clients have
/// keys of their own, those in `clients/`, and [`RANGES_KEY`] if it has a secret of private ranges.
///
/// # Errors
/// A file exists or cannot be written; the job is of another key; a secret of private ranges, and this is built without
/// `tfhe`.
pub fn write_folder(key: &SecretKey, job: &Job, folder: &Path) -> Result<(), Error> {
    job.check_key(key.public())?;
    key.save(&folder.join("secret.json"))?;
    key.public().save(&folder.join("public.json"))?;
    if key.public().encrypts() {
        let clients = folder.join("clients");
        fs::create_dir(&clients).map_err(|e| Error::from(e).within(clients.display()))?;
        for number in 0..key.public().parameters().clients() as u16 {
            key.client_key(number)?.save(&clients.join(format!("{number}.json")))?;
        }
    }
    if let Some(secret) = key.ranges_secret() {
        let evaluation = RangesEvaluationKey::generate(secret, key.public())?;
        write_new(&folder.join(RANGES_KEY), &evaluation, 0o644)?;
    }
    job.save(&folder.join("job.json"))
}

/// Reads any kind: a secret key file is one with a public key inside, a client's one that names a client too.
fn read(text: &str) -> Result<KeyFile, Error> {
    #[derive(Deserialize)]
    struct Version {
        version: u64,
        #[serde(default)]
        scheme: String,
    }
    #[derive(Deserialize)]
    struct PublicProbe {
        ciphergram: Option<Version>,
    }
    #[derive(Deserialize)]
    struct Probe {
        kty: Option<String>,
        #[serde(rename = "pub")]
        public: Option<PublicProbe>,
        client: Option<serde::de::IgnoredAny>,
        ciphergram: Option<Version>,
    }
    let probe: Probe = json::parse(text)?;
    // Before other members are looked at: those of a later version may be others.
    let inner = probe.public.as_ref().and_then(|public| public.ciphergram.as_ref());
    let is_identity = inner.is_some_and(|inner| inner.scheme == Scheme::CkksSumThreshold.name());
    match probe.ciphergram.as_ref().or(inner) {
        Some(Version { version: 0, .. }) => return Err(json::invalid("version 0")),
        Some(Version { version, scheme }) => {
            versions::check(*version, json::VERSION)?;
            if *version < json::VERSION.into() && scheme.parse::<Preset>().is_ok() {
                return Err(FrameError::FormerExpansion.into());
            }
        }
        // One of python-paillier.
        None => {}
    }
    if probe.kty.as_deref() == Some(levelled::KTY) {
        let key = LevelledKey::read(text, probe.public.is_some())?;
        return Ok(KeyFile::Levelled(key, None));
    }
    Ok(KeyFile::Sums(if probe.client.is_some() {
        AnyKey::Client(Box::new(json::read_client(&json::parse(text)?)?), None)
    } else if is_identity {
        AnyKey::Identity(Box::new(json::read_identity(&json::parse(text)?)?), None)
    } else if probe.public.is_some() {
        AnyKey::Secret(Box::new(json::read_secret(&json::parse(text)?)?), None)
    } else {
        AnyKey::Public(json::read_public(&json::parse(text)?)?)
    }))
}
