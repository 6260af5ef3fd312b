//! Folders of several files that stand together or not at all.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::output::folder_of;
use crate::{
    failure::{Failure, at},
    signals,
};

/// Fills the folder `out`, which `fill` writes elsewhere: all of it is put in place when it is whole and on disk, or
/// nothing on failure and on signals. A folder that stands there is filled up.
///
/// # Errors
/// Those of `fill`, and those of the folder; `out` is named.
pub(crate) fn fill(
    out: &Path,
    fill: impl FnOnce(&Path) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let stands = out.is_dir();
    let beside = if stands { out } else { folder_of(out) };
    fs::create_dir_all(beside).map_err(at(out))?;
    let made = signals::at_stop(|| {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let temporary = builder.tempdir_in(beside)?;
        let path = temporary.path().to_owned();
        Ok((temporary, move || drop(fs::remove_dir_all(path))))
    });
    let (temporary, _at_stop) = made.map_err(|e: io::Error| at(out)(plain(e)))?;
    fill(temporary.path()).map_err(|failure| failure.renamed(temporary.path(), out))?;
    let sync = |folder: &Path| if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) };
    sync(temporary.path()).map_err(at(out))?;
    let moved = match stands {
        true => move_entries(temporary.path(), out),
        false => fs::rename(temporary.path(), out),
    };
    moved.and_then(|()| sync(beside)).map_err(at(out))
}

/// Returns the system's own error, without the temporary name that the library adds to it.
fn plain(error: io::Error) -> io::Error {
    io::Error::from(error.kind())
}

/// Moves all entries of a folder into another one, or none.
fn move_entries(from: &Path, to: &Path) -> io::Result<()> {
    let mut moved: Vec<(PathBuf, PathBuf)> = vec![];
    let mut move_all = || {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let (old, new) = (entry.path(), to.join(entry.file_name()));
            fs::rename(&old, &new)?;
            moved.push((old, new));
        }
        Ok(())
    };
    let done = move_all();
    if done.is_err() {
        for (old, new) in moved {
            // What cannot go back either is named by the failure that follows.
            let _ = fs::rename(new, old);
        }
    }
    done
}
