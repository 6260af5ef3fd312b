//! What a key was used for, on disk beside its file: a client seals one contribution to a round, and an opener
//! opens one sum of it.
//!
//! A ledger is a file of lines, to which lines are only added. A line is on disk before what it is about happens:
//!
//! | line | meaning |
//! |---|---|
//! | `sealed JOB NUMBER ROUND` | client NUMBER seals a contribution to ROUND; none to this or an earlier one follows |
//! | `opening JOB ROUND DIGEST` | the sum of this digest is opened; no other one of the round is |
//! | `failed JOB ROUND DIGEST` | it did not open |
//!
//! Failures are counted for the life of a key, not in a row: an honest round between two would reset the count.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use crate::{Error, Job, PublicKey, Sum, ids::hex};

/// The ledger of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger(PathBuf);

impl Ledger {
    /// Returns the ledger beside a key's file.
    #[must_use]
    pub fn beside(key: &Path) -> Self {
        let mut name = key.as_os_str().to_owned();
        name.push(".ledger");
        Self(name.into())
    }

    /// Returns the round that client `number` may contribute to next: the one after the last.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_round(&self, job: &Job, number: u16) -> Result<u64, Error> {
        let last = self.locked(|lines| Ok(last_sealed(lines, job, number)))?;
        Ok(last.map_or(0, |last| last.saturating_add(1)))
    }

    /// Records that client `number` seals its contribution to a round. Nothing of it may leave if this fails.
    ///
    /// # Errors
    /// [`Error::RoundOver`]; the file cannot be written.
    pub fn seal(&self, job: &Job, number: u16, round: u64) -> Result<(), Error> {
        self.locked(|lines| {
            if let Some(last) = last_sealed(lines, job, number).filter(|&last| last >= round) {
                return Err(Error::RoundOver { number, round, last });
            }
            lines.append(&format!("sealed {} {number} {round}", job.id()))
        })
    }

    /// Opens a sum by `open`, unless another one of its round was opened or too many did not open. The ledger is kept
    /// from all others meanwhile: of many that open at once no more may fail than one after the other.
    ///
    /// # Errors
    /// That of `open`; those of [`Sum::check`], after which another sum of the round may still be opened;
    /// [`Error::SecondSum`], [`Error::KeySpent`], [`Error::NotTheirs`] if it did not open before; the file cannot be
    /// written.
    pub fn open<T>(
        &self,
        key: &PublicKey,
        job: &Job,
        sum: &Sum,
        open: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        sum.check(key, job)?;
        let (job, round, most) = (sum.job, sum.round, key.parameters().scheme().max_failures());
        let digest = hex(&sum.digest());
        let line = |verb| format!("{verb} {job} {round} {digest}");
        self.locked(|lines| {
            let failures = lines.failures();
            if failures >= most {
                return Err(Error::KeySpent { failures });
            }
            if lines.all().any(|found| found == line("failed")) {
                return Err(Error::NotTheirs { contributors: sum.contributors.len() });
            }
            let own = format!("opening {job} {round} ");
            let before = lines.all().find_map(|found| found.strip_prefix(&own).map(String::from));
            match before {
                None => lines.append(&line("opening"))?,
                Some(found) if found == digest => {}
                Some(_) => return Err(Error::SecondSum { round }),
            }
            let opened = open();
            if opened.as_ref().is_err_and(is_not_theirs) {
                lines.append(&line("failed"))?;
            }
            opened
        })
    }

    /// Returns the number of sums that did not open, and the number after which none is opened.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn failures(&self, key: &PublicKey) -> Result<(usize, usize), Error> {
        Ok((self.locked(|lines| Ok(lines.failures()))?, key.parameters().scheme().max_failures()))
    }

    /// Does something with all lines while no other process does.
    fn locked<T>(&self, act: impl FnOnce(&mut Lines) -> Result<T, Error>) -> Result<T, Error> {
        let here = |e: std::io::Error| Error::from(e).within(self.0.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&self.0).map_err(here)?;
        // Let go when the file is closed.
        file.lock().map_err(here)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(here)?;
        // A line that was cut while it was written counts for nothing: nothing followed it.
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        let mut lines = Lines { file, text, path: &self.0 };
        act(&mut lines)
    }
}

/// The lines of a ledger that no other process has.
struct Lines<'a> {
    file: File,
    text: String,
    path: &'a Path,
}

impl Lines<'_> {
    fn all(&self) -> impl Iterator<Item = &str> {
        self.text.lines()
    }

    fn failures(&self) -> usize {
        self.all().filter(|line| line.starts_with("failed ")).count()
    }

    /// Appends a line and waits until it is on disk.
    fn append(&mut self, line: &str) -> Result<(), Error> {
        let end = self.text.len() as u64;
        let line = format!("{line}\n");
        let mut write = || -> std::io::Result<()> {
            self.file.set_len(end)?;
            self.file.seek(SeekFrom::Start(end))?;
            self.file.write_all(line.as_bytes())?;
            self.file.sync_all()
        };
        write().map_err(|e| Error::from(e).within(self.path.display()))?;
        self.text.push_str(&line);
        Ok(())
    }
}

/// Returns whether a sum did not open, wherever that was said to be.
fn is_not_theirs(error: &Error) -> bool {
    match error {
        Error::In { error, .. } => is_not_theirs(error),
        error => matches!(error, Error::NotTheirs { .. }),
    }
}

/// Returns the last round of a job that a client sealed a contribution to.
fn last_sealed(lines: &Lines<'_>, job: &Job, number: u16) -> Option<u64> {
    let own = format!("sealed {} {number} ", job.id());
    lines.all().filter_map(|line| line.strip_prefix(&own)?.parse().ok()).max()
}
