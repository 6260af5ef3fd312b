//! The lines of a ledger: on disk, where other processes add some too, or in memory.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use super::record::Record;
use crate::{
    Error,
    files::{sibling_of, write_new},
    versions,
};

const KIND: &str = "ledger";
const VERSION: u32 = 1;
/// The end of a ledger's name, behind that of its key's file.
pub(super) const ENDING: &str = ".ledger";

/// The lines of a ledger. Of those in memory only what they say is kept, which a client's rounds do not add to.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The file that they are in; none in memory.
    path: Option<PathBuf>,
    /// All of them that were read.
    text: Text,
}

/// Lines and what they say.
#[derive(Debug, Default)]
struct Text {
    record: Record,
    /// Whole lines so far, and their bytes.
    count: usize,
    bytes: u64,
    /// The file's own name, so that another file in its place is read from the start.
    #[cfg(unix)]
    inode: u64,
}

/// Whether a line must be on disk before anything follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    /// It must: what it is about must not happen twice.
    Now,
    /// It need not: without it, what it is about counts as worse than it was.
    Later,
}

impl Lines {
    /// Returns those of a file.
    pub(super) fn of_file(path: PathBuf) -> Self {
        Self { path: Some(path), text: Text::default() }
    }

    /// Returns the file that they are in.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Moves lines from memory to a file where there is none; copies those of a file.
    pub(super) fn move_to(&mut self, path: PathBuf) -> Result<(), Error> {
        let text = match &self.path {
            Some(own) if *own == path => return Ok(()),
            Some(own) => match fs::read(own) {
                Err(e) if e.kind() == ErrorKind::NotFound => vec![],
                read => read.map_err(|e| fault(own, e))?,
            },
            None => of_file(self.text.record.lines().iter().map(String::as_str)).into_bytes(),
        };
        if !text.is_empty() {
            write_new(&path, &text, 0o600)?;
        } else if path.exists() {
            // It would become this key's.
            return Err(Error::Exists { path });
        }
        if self.path.is_none() {
            *self = Self::of_file(path);
        }
        Ok(())
    }

    /// Returns what they say by now. They are only added, so nothing needs to be locked against other processes.
    pub(super) fn read(&mut self) -> Result<&Record, Error> {
        if let Some(path) = &self.path {
            match File::open(path) {
                Ok(mut file) => self.text.catch_up(&mut file).map_err(|e| fault(path, e))?,
                Err(e) if e.kind() == ErrorKind::NotFound => self.text = Text::default(),
                Err(e) => return Err(fault(path, e)),
            }
        }
        Ok(&self.text.record)
    }

    /// Does something with all lines while nobody else does, and adds the line that it returns, if it does.
    pub(super) fn change(
        &mut self,
        sync: Sync,
        act: impl FnOnce(&Record) -> Result<Option<String>, Error>,
    ) -> Result<(), Error> {
        let text = &mut self.text;
        let Some(path) = &self.path else {
            return act(&text.record)?.map_or(Ok(()), |line| text.take(&line));
        };
        let Locked(file) = &mut lock(path, path)?;
        text.catch_up(file).map_err(|e| fault(path, e))?;
        let Some(line) = act(&text.record)? else { return Ok(()) };
        let end = text.bytes;
        let lines = if end == 0 { of_file([line.as_str()]) } else { format!("{line}\n") };
        write(file, path, end, &lines, sync).map_err(|e| fault(path, e))?;
        text.bytes += lines.len() as u64;
        text.count += usize::from(end == 0);
        text.take(&line).map_err(|e| fault(path, e))
    }
}

impl Text {
    fn take(&mut self, line: &str) -> Result<(), Error> {
        self.count += 1;
        if self.record.take(line) {
            return Ok(());
        }
        let why = format!("line {} is not one of a ledger", self.count);
        Err(Error::Format { what: "ledger", why })
    }

    /// Reads the whole lines that were added since; all of them if it is another file. Drops a line that was cut while
    /// it was written: nothing followed it. Refuses lines of another form, which would count for nothing.
    fn catch_up(&mut self, file: &mut File) -> Result<(), Error> {
        let found = file.metadata()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&found);
        #[cfg(unix)]
        let is_same = inode == self.inode;
        #[cfg(not(unix))]
        let is_same = true;
        if !is_same || found.len() < self.bytes {
            *self = Self::default();
        }
        #[cfg(unix)]
        {
            self.inode = inode;
        }
        if found.len() == self.bytes {
            return Ok(());
        }
        file.seek(SeekFrom::Start(self.bytes))?;
        let mut added = String::new();
        file.read_to_string(&mut added)?;
        let begins = self.bytes == 0;
        let first = versions::first_line(KIND, VERSION);
        let whole = added.rfind('\n').map_or(0, |end| end + 1);
        if begins && whole == 0 && !first.starts_with(&added) {
            // Someone's file of one line, which is not to be taken for a line that was cut.
            return Err(Error::Format { what: KIND, why: "line 1 is not one of a ledger".into() });
        }
        added.truncate(whole);
        if begins {
            versions::check_lines(&added, KIND, VERSION)?;
        }
        for (at, line) in added.lines().enumerate() {
            if begins && at == 0 && line == first.trim_end() {
                self.count += 1;
                continue;
            }
            if let Err(error) = self.take(line) {
                *self = Self::default();
                return Err(error);
            }
        }
        self.bytes += added.len() as u64;
        Ok(())
    }
}

/// Returns the text of a file of lines, the first of which says what the file is; none, if there are no others.
fn of_file<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let text: String = lines.into_iter().flat_map(|line| [line, "\n"]).collect();
    if text.is_empty() { text } else { versions::first_line(KIND, VERSION) + &text }
}

fn fault(path: &Path, error: impl Into<Error>) -> Error {
    error.into().within(path.display())
}

/// A file that no other process has until this is dropped: also none that is forked meanwhile, and has it open too.
#[derive(Debug)]
pub(super) struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing it does the same, where nobody else has it open.
        let _ = self.0.unlock();
    }
}

/// Waits until no other process has the ledger's file `locked`.
pub(super) fn lock(ledger: &Path, locked: &Path) -> Result<Locked, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let open = || {
        let file = options.open(locked)?;
        file.lock().map(|()| Locked(file))
    };
    open().map_err(|e: io::Error| fault(ledger, Error::Ledger { why: e.to_string() }))
}

/// Writes lines at the end of a file, and waits until they are on disk if they must be, and with the first one the
/// file's name.
fn write(file: &mut File, path: &Path, end: u64, lines: &str, sync: Sync) -> io::Result<()> {
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    file.write_all(lines.as_bytes())?;
    if sync == Sync::Later {
        return Ok(());
    }
    file.sync_all()?;
    let folder = path.parent().filter(|_| end == 0 && cfg!(unix));
    folder.map_or(Ok(()), |folder| {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(here)?.sync_all()
    })
}

/// Returns the file that a person chose for the ledger of a key's file: the one given, or else that of the environment.
pub(super) fn chosen(key: &Path, given: Option<PathBuf>) -> Result<Option<PathBuf>, Error> {
    let named = || env::var_os("CIPHERGRAM_LEDGER").filter(|path| !path.is_empty());
    let Some(path) = given.or_else(|| named().map(PathBuf::from)) else { return Ok(None) };
    let beside = sibling_of(key, ENDING);
    let is_same = || fs::canonicalize(&path).is_ok_and(|path| path == beside);
    if beside.exists() && !is_same() {
        // Rounds that the key sealed before would count for nothing.
        let beside = beside.display();
        let why = match path.exists() {
            false => format!("move {beside} there first, where this key's use is recorded"),
            true => format!(
                "append {beside} to it and remove that first: this key's use is recorded there"
            ),
        };
        return Err(fault(&path, Error::Io { why }));
    }
    Ok(Some(path))
}
