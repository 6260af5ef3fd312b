//! Key files.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{ClientKey, KeyRef, LevelledKey, PublicKey, SecretKey, json};
use crate::{
    Error, Job,
    private_ranges::{RangesEvaluationKey, RangesSecret},
    text,
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

/// What those need who open sums.
pub(super) const OPENS: &str = "this needs the secret key, keys/secret.json";

/// A key file of any scheme.
pub enum KeyFile {
    /// A key of sums.
    Sums(AnyKey),
    /// A key of the levelled scheme, and a warning if it is secret and others can read its file.
    Levelled(LevelledKey, Option<String>),
}

impl KeyFile {
    /// Reads a key file.
    ///
    /// # Errors
    /// It is missing or not a valid key file; the path is named.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let read = || json::read(&text::read("key file", path)?);
        let warning = || permission_warning(path);
        Ok(match read().map_err(|e| e.within(path.display()))? {
            Self::Sums(AnyKey::Client(key, _)) => Self::Sums(AnyKey::Client(key, warning())),
            Self::Sums(AnyKey::Secret(key, _)) => Self::Sums(AnyKey::Secret(key, warning())),
            Self::Levelled(key @ LevelledKey::Secret(_), _) => Self::Levelled(key, warning()),
            public => public,
        })
    }

    /// Reads the text of a key file.
    ///
    /// # Errors
    /// It is not a valid key file.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        json::read(text)
    }

    /// Returns the warning that others can read the file, if they can and must not.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        match self {
            Self::Sums(key) => key.warning(),
            Self::Levelled(_, warning) => warning.as_deref(),
        }
    }

    /// Returns the key, of sums.
    fn sums(self) -> Result<AnyKey, Error> {
        match self {
            Self::Sums(key) => Ok(key),
            Self::Levelled(..) => Err(Error::KeyKind {
                found: "levelled",
                needed: "it is for vectors: rounds, jobs and proven sums need one of sums",
            }),
        }
    }
}

/// A key of sums of any kind.
pub enum AnyKey {
    /// A public key.
    Public(PublicKey),
    /// A client's key, and a warning if others can read its file.
    Client(Box<ClientKey>, Option<String>),
    /// A secret key, and a warning if others can read its file.
    Secret(Box<SecretKey>, Option<String>),
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
        json::read(text)?.sums()
    }

    /// Returns the public half.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        match self {
            Self::Public(key) => key,
            Self::Client(key, _) => key.public(),
            Self::Secret(key, _) => key.public(),
        }
    }

    /// Returns the secret of private ranges beside it, if there is one.
    #[must_use]
    pub fn ranges_secret(&self) -> Option<&RangesSecret> {
        match self {
            Self::Public(_) => None,
            Self::Client(key, _) => KeyRef::Client(key).ranges_secret(),
            Self::Secret(key, _) => key.ranges_secret(),
        }
    }

    /// Returns it as a client contributes with it; `number` says as which one, and may be left out where the
    /// key does.
    ///
    /// # Errors
    /// A public key; a client's of another number; a secret key and no number.
    pub fn as_client(&self, number: Option<u16>) -> Result<KeyRef<'_>, Error> {
        match (self, number) {
            (Self::Public(_), _) => Err(Error::KeyKind {
                found: "public",
                needed: "it sums; clients encrypt with a key of their own, keys/clients/NUMBER.json, or \
                         under ckks-sum with keys/secret.json",
            }),
            (Self::Client(key, _), Some(asked)) if asked != key.number() => {
                Err(Error::AnotherClient { found: key.number(), asked })
            }
            (Self::Client(key, _), _) => Ok(KeyRef::Client(key)),
            (Self::Secret(key, _), Some(number)) => Ok(key.as_client(number)),
            (Self::Secret(..), None) => Err(Error::NoNumber),
        }
    }

    /// Returns the secret key.
    ///
    /// # Errors
    /// [`Error::KeyKind`].
    pub fn secret(&self) -> Result<&SecretKey, Error> {
        match self {
            Self::Secret(key, _) => Ok(key),
            other => Err(other.not(OPENS)),
        }
    }

    /// Returns the warning that others can read its file, if they can and must not.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        match self {
            Self::Public(_) => None,
            Self::Client(_, warning) | Self::Secret(_, warning) => warning.as_deref(),
        }
    }

    /// Takes the key as an aggregator holds it.
    ///
    /// # Errors
    /// [`Error::KeyKind`]: it is more than public.
    pub fn into_public(self) -> Result<PublicKey, Error> {
        match self {
            Self::Public(key) => Ok(key),
            other => {
                Err(other
                    .not("an aggregator must hold public material only: give it keys/public.json"))
            }
        }
    }

    /// Takes the key as those who open sums hold it.
    ///
    /// # Errors
    /// [`Error::KeyKind`].
    pub fn into_secret(self) -> Result<SecretKey, Error> {
        match self {
            Self::Secret(key, _) => Ok(*key),
            other => Err(other.not(OPENS)),
        }
    }

    fn not(&self, needed: &'static str) -> Error {
        let found = match self {
            Self::Public(_) => "public",
            Self::Client(..) => "client's",
            Self::Secret(..) => "secret",
        };
        Error::KeyKind { found, needed }
    }
}

/// Returns the warning that others can read a file of a secret, if they can.
#[cfg(unix)]
#[must_use]
pub fn permission_warning(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let warning = || {
        let path = path.display();
        format!("{path} is readable by others (mode {mode:04o}): run chmod 600 {path}")
    };
    (mode & 0o077 != 0).then(warning)
}

/// Returns the warning that others can read a file of a secret, if they can.
#[cfg(not(unix))]
#[must_use]
pub fn permission_warning(_path: &Path) -> Option<String> {
    None
}

/// Returns the file of this name beside a key's; beside that of a client, in `clients/`, also the one in the folder
/// above.
#[must_use]
pub fn beside(key: &Path, name: &str) -> PathBuf {
    let beside = key.with_file_name(name);
    let folder = beside.parent().filter(|folder| folder.file_name() == Some("clients".as_ref()));
    let above = folder.and_then(Path::parent).map(|folder| folder.join(name));
    if beside.exists() { beside } else { above.filter(|above| above.exists()).unwrap_or(beside) }
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

/// Writes a file of these permissions where there is none, and waits until it is on disk. Nothing is left of one that
/// cannot be written whole.
///
/// # Errors
/// The path exists or cannot be written.
pub fn write_new(path: &Path, text: &[u8], mode: u32) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    let here = |e: std::io::Error| Error::from(e).within(path.display());
    let mut file = options.open(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => Error::Exists { path: path.into() },
        _ => here(e),
    })?;
    file.write_all(text).and_then(|()| file.sync_all()).map_err(|e| {
        // Half a file would stand in the way of the next attempt.
        let _ = fs::remove_file(path);
        here(e)
    })
}
