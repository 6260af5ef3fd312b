//! Files of keys, jobs and ledgers: read as text, made, and found beside one another.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use zeroize::Zeroizing;

use crate::Error;

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

/// Returns the path of a file whose name is that of another and this end, wherever links to that lead.
pub(crate) fn sibling_of(path: &Path, end: &str) -> PathBuf {
    with_end(&fs::canonicalize(path).unwrap_or_else(|_| path.into()), end)
}

/// Returns a path with some more at its end.
pub(crate) fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
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

/// Writes a file of these permissions in the place of one that may be there, and waits until it is on disk. Whoever
/// reads it finds one or the other whole.
///
/// # Errors
/// It cannot be written.
pub(crate) fn replace(path: &Path, text: &[u8], mode: u32) -> Result<(), Error> {
    let next = with_end(path, ".next");
    // One that was cut short.
    let _ = fs::remove_file(&next);
    write_new(&next, text, mode)?;
    fs::rename(&next, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if cfg!(unix) {
        fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// Reads a JSON file, which may hold secrets.
///
/// # Errors
/// It cannot be read, or is not text.
pub(crate) fn read_text(what: &'static str, path: &Path) -> Result<Zeroizing<String>, Error> {
    let bytes = Zeroizing::new(fs::read(path)?);
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.into())),
        Err(_) => {
            let why =
                "it is not text, as JSON files are; encrypted files and evaluation keys are binary";
            Err(Error::Format { what, why: why.into() })
        }
    }
}
