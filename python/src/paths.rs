//! Files and folders that are read and written whole.

use std::{
    fmt::Display,
    fs,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use ciphergram_he::Error as SchemeError;

use crate::errors::{Error, Result};

/// Reads something from the bytes of a file, which errors name.
pub(crate) fn read_file<T>(path: &Path, read: impl FnOnce(Vec<u8>) -> Result<T>) -> Result<T> {
    let bytes = fs::read(path).map_err(|e| Error::from(SchemeError::from(e)));
    bytes.and_then(read).map_err(|error| within(error, path.display()))
}

/// Names the place of an error of the crates beneath.
pub(crate) fn within(error: Error, place: impl Display) -> Error {
    match error {
        Error::Scheme(error) => error.within(place).into(),
        error => error,
    }
}

/// Makes a folder, whole or not at all: what `write` puts into one beside it, and `finish` does once it is in place.
///
/// # Errors
/// There is such a folder, or it cannot be written.
pub(crate) fn whole_folder(
    folder: &Path,
    write: impl FnOnce(&Path) -> Result<()>,
    finish: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    // Without a slash at its end, of which a name beside it could not be made.
    let folder: PathBuf = folder.components().collect();
    if folder.exists() {
        return Err(SchemeError::Exists { path: folder }.into());
    }
    let here = |e: std::io::Error| SchemeError::from(e).within(folder.display());
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above).map_err(here)?;
    }
    let temporary = temporary(&folder);
    fs::create_dir(&temporary).map_err(here)?;
    let placed = write(&temporary).and_then(|()| {
        fs::rename(&temporary, &folder).map_err(here)?;
        finish(&folder)
    });
    if placed.is_err() {
        // What is left of it is of no use to anyone.
        for left in [&temporary, &folder] {
            let _ = fs::remove_dir_all(left);
        }
    }
    placed
}

/// Returns a name beside this one for what is not whole yet.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.to_path_buf().into_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    name.into()
}

/// Writes a file, whole or not at all, where there is none or one of its own kind.
///
/// # Errors
/// There is a file of another kind, or it cannot be written.
pub(crate) fn replace(path: &Path, bytes: &[u8], is_own: impl Fn(&[u8]) -> bool) -> Result<()> {
    let here = |e: std::io::Error| SchemeError::from(e).within(path.display());
    match fs::read(path) {
        Ok(found) if !is_own(&found) => {
            return Err(SchemeError::Exists { path: path.into() }.into());
        }
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(here(e).into()),
        _ => {}
    }
    let temporary = temporary(path);
    let write = || {
        let mut file = fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|e| {
        // Half of it is of no use.
        let _ = fs::remove_file(&temporary);
        here(e).into()
    })
}
