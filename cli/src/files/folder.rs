//! Folders of several files that stand together or not at all.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use ciphergram_he::{Error, keys::RANGES_KEY};
use ciphergram_nic::federation::nodes::LocalNodes;

use super::output::{folder_of, sync};
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
    let parent = if stands { out } else { folder_of(out) };
    let parents = MadeFolders::make(parent).map_err(|e| match fs::metadata(out) {
        // It is in a file: that the file exists would say less.
        Err(found) if found.kind() == io::ErrorKind::NotADirectory => found,
        _ => e,
    });
    let parents = Arc::new(parents.map_err(at(out))?);
    let made = signals::at_stop(|| {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let temporary = builder.tempdir_in(parent)?;
        let (path, parents) = (temporary.path().to_owned(), parents.clone());
        let clean_up = move || {
            remove(&path);
            parents.remove();
        };
        Ok((temporary, clean_up))
    });
    let (temporary, _at_stop) = made.map_err(|e: io::Error| at(out)(plain(e)))?;
    fill(temporary.path()).map_err(|failure| failure.renamed(temporary.path(), out))?;
    sync_all(temporary.path()).map_err(at(out))?;
    match stands {
        // A signal would remove what is not moved yet, and leave the rest.
        true => signals::unstopped(|| move_entries(temporary.path(), out))?,
        false => fs::rename(temporary.path(), out).map_err(at(out))?,
    }
    sync(parent).map_err(at(out))
}

/// Folders that were made for what is to stand in them. Those in which nothing stands go with this.
struct MadeFolders(Vec<PathBuf>);

impl MadeFolders {
    /// Makes a folder, and those around it that are missing.
    fn make(folder: &Path) -> io::Result<Self> {
        let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.is_dir();
        let missing: Vec<_> = folder.ancestors().take_while(is_missing).collect();
        let mut made = Self(vec![]);
        for folder in missing.into_iter().rev() {
            match fs::create_dir(folder) {
                Ok(()) => made.0.push(folder.to_owned()),
                // Somebody else made it.
                Err(_) if folder.is_dir() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(made)
    }

    fn remove(&self) {
        let _ = self.0.iter().rev().try_for_each(fs::remove_dir);
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes a folder that somebody may still write to: a file that came into it meanwhile keeps it from going.
fn remove(folder: &Path) {
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        match fs::remove_dir_all(folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {}
            // What is left has a name that says that it is temporary.
            _ => return,
        }
    }
}

/// As [`sync`], with the folders in it.
fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(&entry.path())?;
        }
    }
    sync(folder)
}

/// Returns the system's own error, without the temporary name that the library adds to it.
fn plain(error: io::Error) -> io::Error {
    let text = error.to_string();
    let own = text.split(" at path ").next().unwrap_or_default();
    io::Error::new(error.kind(), own)
}

/// Moves all entries of a folder into another one, or none: one that has come to stand there is not replaced.
fn move_entries(from: &Path, to: &Path) -> Result<(), Failure> {
    let mut moved: Vec<(PathBuf, PathBuf)> = vec![];
    let mut move_all = || {
        for entry in fs::read_dir(from).map_err(at(to))? {
            let entry = entry.map_err(at(to))?;
            let (old, new) = (entry.path(), to.join(entry.file_name()));
            rename_new(&old, &new).map_err(at(&new))?;
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

/// Renames to a name that nothing has.
fn rename_new(old: &Path, new: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::{
            fs::{CWD, RenameFlags, renameat_with},
            io::Errno,
        };
        match renameat_with(CWD, old, CWD, new, RenameFlags::NOREPLACE) {
            // A filesystem that cannot promise it.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            renamed => return Ok(renamed?),
        }
    }
    if fs::symlink_metadata(new).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(old, new)
}

/// The files of a key, and the folder of clients' keys.
pub(crate) const KEY_FILES: [&str; 4] = ["public.json", "secret.json", "clients", "job.json"];

/// Refuses a folder that holds a file of a key, before work is spent on one.
pub(crate) fn refuse_keys(out: &Path) -> Result<(), Failure> {
    if out.exists() && !out.is_dir() {
        return Err(Failure::Work(format!("{}: is no folder", out.display())));
    }
    let own: Vec<_> = KEY_FILES.iter().chain([&RANGES_KEY]).map(|name| out.join(name)).collect();
    let nodes = LocalNodes::of_folder(out);
    match own.iter().map(PathBuf::as_path).chain(nodes.all()).find(|path| path.exists()) {
        Some(path) => Err(Error::Exists { path: path.into() }.into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_that_were_made_go_if_it_fails() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().join("of/parents/out");
        let fails = |_: &Path| Err(Failure::Work("no".into()));
        assert!(fill(&out, fails).is_err() && !place.path().join("of").exists());
        fs::create_dir(place.path().join("of")).unwrap();
        assert!(fill(&out, fails).is_err() && place.path().join("of").exists());
        assert!(fill(&out, |_| Ok(())).is_ok() && out.is_dir());
    }

    #[test]
    fn what_comes_to_stand_there_meanwhile_stays_and_nothing_joins_it() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path();
        let filled = fill(out, |folder| {
            for name in ["a", "b", "c"] {
                fs::write(folder.join(name), "ours").unwrap();
            }
            fs::write(out.join("b"), "another's").unwrap();
            Ok(())
        });
        let Err(Failure::Work(text)) = filled else { panic!("b is another's") };
        assert!(text.starts_with(&out.join("b").display().to_string()), "{text}");
        let names = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["b"]);
        assert_eq!(fs::read(out.join("b")).unwrap(), b"another's");
        fs::remove_file(out.join("b")).unwrap();
        let filled = fill(out, |folder| fs::write(folder.join("a"), "ours").map_err(at(folder)));
        assert!(filled.is_ok());
        assert_eq!(fs::read(out.join("a")).unwrap(), b"ours");
    }
}
