//! The record of a key's use, on disk beside its file: a client seals one contribution to a round, and an opener
//! opens one sum of it. That of a key that is in one process alone is in its memory, until the key is saved.
//!
//! A ledger is a file of lines, to which lines are only added. The first one says of which version it is; that of the
//! first version may be without. A line is on disk before what it is about happens:
//!
//! | line | meaning |
//! |---|---|
//! | `sealed JOB NUMBER ROUND` | client NUMBER seals a contribution to ROUND; none to this or an earlier one follows |
//! | `opening KEY JOB ROUND DIGEST` | the sum of this digest is opened; no other one of the round is |
//! | `opened …`, `failed …`, `refused …` | it opened, it did not, or anyone can see that it is none |
//!
//! A sum that did not open is a failure, and so is one of which no end is recorded: its opening may have been cut
//! short. Failures are counted for the life of a key, not in a row: an honest round between two would reset the
//! count.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    mem,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{Error, Job, PublicKey, Sum, ids::hex, keys::write_new, versions};

/// The verbs of lines, each with the number of words that follow it.
const VERBS: [(&str, usize); 5] =
    [("sealed", 3), ("opening", 4), ("opened", 4), ("failed", 4), ("refused", 4)];

const KIND: &str = "ledger";
const VERSION: u32 = 1;

/// The ledger of a key. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    place: Mutex<Place>,
    /// Held while a sum is opened.
    turn: Mutex<()>,
}

/// The place of a ledger's lines.
#[derive(Debug)]
enum Place {
    File(PathBuf),
    Memory(String),
}

impl Ledger {
    /// Returns the ledger beside a key's file, wherever links to that lead.
    #[must_use]
    pub fn beside(key: &Path) -> Self {
        Self::at(Place::File(path_beside(key)))
    }

    /// Makes the ledger of a key that no file has.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::at(Place::Memory(String::new()))
    }

    fn at(place: Place) -> Self {
        Self(Arc::new(Shared { place: Mutex::new(place), turn: Mutex::default() }))
    }

    /// Moves a ledger from memory to beside the file that its key is saved to, and all clones with it. One that is
    /// on disk stays where it is.
    ///
    /// # Errors
    /// There is a ledger beside that file already, or it cannot be written.
    pub fn move_beside(&self, key: &Path) -> Result<(), Error> {
        let place = &mut *held(&self.0.place);
        if let Place::Memory(text) = place {
            let path = path_beside(key);
            // Also one without a line: a ledger that is there already would become this key's.
            write_new(&path, text.as_bytes(), 0o600)?;
            *place = Place::File(path);
        }
        Ok(())
    }

    /// Returns the round that client `number` may contribute to next: the one after the last that it sealed a
    /// contribution to, and after the last that was opened here. Of a round that was opened no other sum is.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_round(&self, job: &Job, number: u16) -> Result<u64, Error> {
        let text = self.read()?;
        let last = last_sealed(&text, job, number).max(last_opened(&text, job));
        Ok(last.map_or(0, |last| last.saturating_add(1)))
    }

    /// Records that client `number` seals its contribution to a round. Nothing of it may leave if this fails.
    ///
    /// # Errors
    /// [`Error::RoundOver`]; the file cannot be written.
    pub fn seal(&self, job: &Job, number: u16, round: u64) -> Result<(), Error> {
        self.locked(|lines| match last_sealed(&lines.text, job, number) {
            Some(last) if last >= round => Err(Error::RoundOver { number, round, last }),
            _ => lines.append(&sealed(job, number, round)),
        })
    }

    /// Records the same of a contribution that was sealed before, and goes on: the record may be in another place.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn resume(&self, job: &Job, number: u16, round: u64) -> Result<(), Error> {
        self.locked(|lines| match last_sealed(&lines.text, job, number) {
            Some(last) if last >= round => Ok(()),
            _ => lines.append(&sealed(job, number, round)),
        })
    }

    /// Opens a sum by `open`, unless another one of its round was opened or too many did not open. One sum is opened
    /// at a time: of many at once no more may fail than one after the other.
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
        let _turn = self.turn()?;
        let round = format!("{} {} {}", key.id(), sum.job, sum.round);
        let own = format!("{round} {}", hex(&sum.digest()));
        self.locked(|lines| {
            let text = &lines.text;
            let failures = failures(text, key);
            if failures >= key.parameters().scheme().max_failures() {
                return Err(Error::KeySpent { failures });
            }
            if has(text, "failed", &own) {
                return Err(Error::NotTheirs { contributors: sum.contributors.len() });
            }
            if has(text, "opening", &own) {
                return Ok(());
            }
            if has(text, "opening", &round) {
                return Err(Error::SecondSum { round: sum.round });
            }
            lines.append(&format!("opening {own}"))
        })?;
        let opened = open();
        if let Some(verb) = end_of(&opened) {
            self.locked(|lines| {
                let known = has(&lines.text, verb, &own);
                if known { Ok(()) } else { lines.append(&format!("{verb} {own}")) }
            })?;
        }
        opened
    }

    /// Returns the number of sums that did not open under a key, and the number after which none is opened.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn failures(&self, key: &PublicKey) -> Result<(usize, usize), Error> {
        Ok((failures(&self.read()?, key), key.parameters().scheme().max_failures()))
    }

    /// Returns all whole lines. They are only added, so nothing needs to be locked against other processes.
    fn read(&self) -> Result<String, Error> {
        let path = match &*held(&self.0.place) {
            Place::Memory(text) => return Ok(text.clone()),
            Place::File(path) => path.clone(),
        };
        match fs::read_to_string(&path) {
            Ok(text) => whole_lines(&path, text),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
            Err(e) => Err(fault(&path, e)),
        }
    }

    /// Waits until nobody else opens a sum, in this process or another.
    fn turn(&self) -> Result<(MutexGuard<'_, ()>, Option<File>), Error> {
        let turn = held(&self.0.turn);
        let path = match &*held(&self.0.place) {
            Place::Memory(_) => return Ok((turn, None)),
            Place::File(path) => path.clone(),
        };
        Ok((turn, Some(lock(&path, &with_end(&path, ".lock"))?)))
    }

    /// Does something with all lines while nobody else does.
    fn locked<T>(&self, act: impl FnOnce(&mut Lines) -> Result<T, Error>) -> Result<T, Error> {
        match &mut *held(&self.0.place) {
            Place::Memory(text) => {
                let mut lines = Lines { file: None, text: mem::take(text) };
                let done = act(&mut lines);
                *text = lines.text;
                done
            }
            Place::File(path) => {
                let mut file = lock(path, path)?;
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(|e| fault(path, e))?;
                let text = whole_lines(path, text)?;
                act(&mut Lines { file: Some((file, path)), text })
            }
        }
    }
}

/// Returns what a lock guards: whoever panicked had it whole.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fault(path: &Path, error: impl Into<Error>) -> Error {
    error.into().within(path.display())
}

/// Drops a line that was cut while it was written: nothing followed it. Refuses lines of another form, which would
/// count for nothing.
fn whole_lines(path: &Path, mut text: String) -> Result<String, Error> {
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    let is_one = |line: &str| {
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default();
        VERBS.contains(&(verb, words.count()))
    };
    versions::check_lines(&text, KIND, VERSION).map_err(|e| fault(path, e))?;
    let first = versions::first_line(KIND, VERSION);
    let is_first = |at: usize, line: &str| at == 0 && line == first.trim_end();
    let mut lines = text.lines().enumerate();
    match lines.position(|(at, line)| !is_first(at, line) && !is_one(line)) {
        None => Ok(text),
        Some(line) => {
            let why = format!("line {} is not one of a ledger", line + 1);
            Err(fault(path, Error::Json { what: "ledger", why }))
        }
    }
}

/// Waits until no other process has the ledger's file `locked`; it is let go when it is closed.
fn lock(ledger: &Path, locked: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let open = || {
        let file = options.open(locked)?;
        file.lock().map(|()| file)
    };
    open().map_err(|e: io::Error| fault(ledger, e))
}

/// The lines of a ledger that nobody else has, and the file that they are in.
struct Lines<'a> {
    file: Option<(File, &'a Path)>,
    text: String,
}

impl Lines<'_> {
    /// Appends a line and waits until it is on disk.
    fn append(&mut self, line: &str) -> Result<(), Error> {
        let end = self.text.len() as u64;
        let first = if end == 0 { versions::first_line(KIND, VERSION) } else { String::new() };
        let line = format!("{first}{line}\n");
        if let Some((file, path)) = &mut self.file {
            write(file, path, end, &line).map_err(|e| fault(path, e))?;
        }
        self.text.push_str(&line);
        Ok(())
    }
}

/// Writes lines at the end of a file, and waits until they are on disk, and with the first one the file's name.
fn write(file: &mut File, path: &Path, end: u64, lines: &str) -> io::Result<()> {
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    file.write_all(lines.as_bytes())?;
    file.sync_all()?;
    let folder = path.parent().filter(|_| end == 0 && cfg!(unix));
    folder.map_or(Ok(()), |folder| {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(here)?.sync_all()
    })
}

/// Returns where the ledger beside a key's file is, wherever links to that lead.
fn path_beside(key: &Path) -> PathBuf {
    let key = fs::canonicalize(key).unwrap_or_else(|_| key.into());
    with_end(&key, ".ledger")
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn sealed(job: &Job, number: u16, round: u64) -> String {
    format!("sealed {} {number} {round}", job.id())
}

/// Returns the last round of a job that a client sealed a contribution to.
fn last_sealed(text: &str, job: &Job, number: u16) -> Option<u64> {
    let own = format!("{} {number}", job.id());
    with(text, "sealed", &own).filter_map(|line| line.rsplit(' ').next()?.parse().ok()).max()
}

/// Returns the lines of a verb whose next words are these.
fn with<'a>(text: &'a str, verb: &str, words: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let start = format!("{verb} {words}");
    text.lines().filter(move |line| {
        line.strip_prefix(&start).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    })
}

/// Returns the last round of a job of which a sum opened. One that did not open says nothing of its round.
fn last_opened(text: &str, job: &Job) -> Option<u64> {
    let job = job.id().to_string();
    let round = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        ["opened", _, of, round, _] if of == job => round.parse().ok(),
        _ => None,
    };
    text.lines().filter_map(round).max()
}

/// Returns whether there is such a line.
fn has(text: &str, verb: &str, words: &str) -> bool {
    with(text, verb, words).next().is_some()
}

/// Returns the number of openings under a key that did not end well.
fn failures(text: &str, key: &PublicKey) -> usize {
    let key = key.id().to_string();
    let count = |verb| with(text, verb, &key).count();
    count("opening").saturating_sub(count("opened") + count("refused"))
}

/// Returns the verb of how an opening ended; none if it may be tried again.
fn end_of<T>(opened: &Result<T, Error>) -> Option<&'static str> {
    fn of(error: &Error) -> Option<&'static str> {
        match error {
            Error::In { error, .. } => of(error),
            Error::NotTheirs { .. } => Some("failed"),
            Error::Ciphertext { .. } => Some("refused"),
            _ => None,
        }
    }
    match opened {
        Ok(_) => Some("opened"),
        Err(error) => of(error),
    }
}
