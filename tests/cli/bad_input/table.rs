//! Rows of the table: a command, its exit code and what its one line holds; and running many at once.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, lchown, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::support::place::{self, Place};

/// Longer than any row takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rows that run at once: most of a row is waiting for the system.
const WORKERS: usize = 4;
/// The user and group that rows run as where the tests are root: nobody's.
const ORDINARY: u32 = 65534;

/// The end that a command must have.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// With this exit code and one line `error: …`, and without a change to any file.
    Fails(i32),
    /// In one of these ways: exit code 1 or 2 as above, or done.
    FailsOrNot,
    /// Without a word, by SIGPIPE or as if all had been read.
    Quietly,
}

/// The destination of standard output.
#[derive(Clone, Copy, PartialEq)]
enum Output {
    Kept,
    /// To a device that is full.
    Full,
    /// To a pipe that nobody reads.
    Unread,
}

/// A command, how it must end, and what it needs.
pub(crate) struct Row {
    words: Vec<OsString>,
    end: End,
    parts: Vec<String>,
    files: Vec<(PathBuf, Vec<u8>)>,
    modes: Vec<(PathBuf, u32)>,
    environment: Vec<(&'static str, &'static str)>,
    /// Shell words before the command.
    before: Option<&'static str>,
    output: Output,
    may_seal: bool,
}

/// Returns a row: `ciphergram WORDS`, split at spaces, fails with `code` and a line that holds `part`.
pub(crate) fn row(code: i32, words: &str, part: &str) -> Row {
    Row {
        words: words.split(' ').map(OsString::from).collect(),
        end: End::Fails(code),
        parts: vec![part.to_owned()],
        files: vec![],
        modes: vec![],
        environment: vec![],
        before: None,
        output: Output::Kept,
        may_seal: false,
    }
}

impl Row {
    /// Also demands this of the line.
    pub(crate) fn and(mut self, part: &str) -> Self {
        self.parts.push(part.to_owned());
        self
    }

    /// Puts `value` where a word holds `{}`.
    pub(crate) fn put(mut self, value: &[u8]) -> Self {
        for word in &mut self.words {
            let bytes = word.as_bytes();
            if let Some(at) = bytes.windows(2).position(|pair| pair == b"{}") {
                *word = OsString::from_vec([&bytes[..at], value, &bytes[at + 2..]].concat());
            }
        }
        self
    }

    /// Makes two words of the last: an option and its value.
    pub(crate) fn apart(mut self) -> Self {
        let last = self.words.pop().unwrap();
        let (option, value) = last.to_str().unwrap().split_once('=').unwrap();
        self.words.extend([option.into(), value.into()]);
        self
    }

    /// Lets it succeed as well.
    pub(crate) fn or_not(mut self) -> Self {
        self.end = End::FailsOrNot;
        self
    }

    /// Writes a file first.
    pub(crate) fn with(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.into(), bytes.into()));
        self
    }

    /// Gives a file or folder this mode first.
    pub(crate) fn with_mode(mut self, name: &str, mode: u32) -> Self {
        self.modes.push((name.into(), mode));
        self
    }

    pub(crate) fn with_variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Runs these shell words first, in the process that becomes the command.
    pub(crate) fn after(mut self, words: &'static str) -> Self {
        self.before = Some(words);
        self
    }

    /// Sends standard output to a device that is full.
    pub(crate) fn into_full(mut self) -> Self {
        self.output = Output::Full;
        self
    }

    /// Sends standard output to a pipe that nobody reads, where it must end quietly.
    pub(crate) fn into_unread(mut self) -> Self {
        self.output = Output::Unread;
        self.end = End::Quietly;
        self
    }

    /// Lets it write down that it sealed: what fails after sealing has.
    pub(crate) fn may_seal(mut self) -> Self {
        self.may_seal = true;
        self
    }

    /// Returns the command as a person would type it.
    pub(crate) fn typed(&self) -> String {
        let words = self.words.iter().map(|word| word.to_string_lossy());
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Runs every row in a copy of what is in `place`, several at once.
///
/// # Panics
///
/// Panics with a list of the rows that did not end as they must.
pub(crate) fn check(place: &Place, rows: Vec<Row>) {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let secrets = Arc::new(place.secrets());
    thread::scope(|scope| {
        for _ in 0..WORKERS.min(rows.len()) {
            scope.spawn(|| {
                let mut scene = Scene::copy(place, &secrets);
                while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let played = scene.play(row);
                    if !matches!(played, Ok(true)) {
                        scene = Scene::copy(place, &secrets);
                    }
                    if let Err(why) = played {
                        failures.lock().unwrap().push(format!("`{}`: {why}", row.typed()));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let count = rows.len();
    assert!(count > 0, "an empty table");
    assert!(failures.is_empty(), "{} of {count} rows:\n{}", failures.len(), failures.join("\n"));
}

/// Facts of the system about each file and folder, by its path.
type State = BTreeMap<PathBuf, Stamp>;

/// A file's mode, number, length and the time of its last change; a folder's mode alone, which files in it do not
/// change.
#[derive(Clone, Copy, PartialEq)]
struct Stamp(u32, u64, u64, (i64, i64));

/// A copy of a place in which rows run one after the other, as an ordinary user.
struct Scene {
    folder: TempDir,
    /// For the binary, where it must be copied.
    elsewhere: TempDir,
    secrets: Arc<Vec<String>>,
}

/// The exit code and output of a row.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Scene {
    fn copy(place: &Place, secrets: &Arc<Vec<String>>) -> Self {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        copy_into(&place.path(""), folder.path()).unwrap();
        Self { folder, elsewhere, secrets: secrets.clone() }
    }

    /// Runs a row, and takes back what it was given. Returns whether all is as it was.
    fn play(&self, row: &Row) -> Result<bool, String> {
        let path = |name: &Path| self.folder.path().join(name);
        for (name, bytes) in &row.files {
            fs::write(path(name), bytes).unwrap();
            own(&path(name)).unwrap();
        }
        let mut modes = vec![];
        for (name, mode) in &row.modes {
            modes.push((path(name), fs::metadata(path(name)).unwrap().permissions()));
            fs::set_permissions(path(name), Permissions::from_mode(*mode)).unwrap();
        }
        let given = state_of(self.folder.path());
        let ended = self.run(row)?;
        let changes = changes(&given, &state_of(self.folder.path()));
        self.judge(row, &ended)?;
        let may_change = ended.code == Some(0) && row.end != End::Quietly;
        let is_ledger = |name: &&String| row.may_seal && name.contains(".ledger");
        if let Some(change) = changes.iter().find(|name| !may_change && !is_ledger(name)) {
            return Err(format!("{change}: {}", ended.stderr.trim_end()));
        }
        for (path, mode) in modes {
            fs::set_permissions(path, mode).unwrap();
        }
        for (name, _) in &row.files {
            // What it was given it may have taken away, where it may change anything.
            let _ = fs::remove_file(path(name));
        }
        Ok(changes.is_empty())
    }

    fn run(&self, row: &Row) -> Result<Ended, String> {
        let mut command = self.command(row);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(match row.output {
            Output::Kept => Stdio::piped(),
            Output::Full => Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap()),
            // The end that reads is closed at once.
            Output::Unread => Stdio::from(io::pipe().unwrap().1),
        });
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
        let late = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > late => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    return Err(format!("does not end within {PATIENCE:?}"));
                }
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        let text = |reader: JoinHandle<String>| reader.join().unwrap();
        Ok(Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) })
    }

    fn command(&self, row: &Row) -> Command {
        let binary = binary(self.elsewhere.path());
        let mut command = match row.before {
            None => Command::new(binary),
            Some(words) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("{words}; exec \"$0\" \"$@\"")]).arg(binary);
                shell
            }
        };
        command.args(&row.words).current_dir(self.folder.path());
        command.env("CIPHERGRAM_GPU", "none").env("CIPHERGRAM_LOG", "warn");
        command.envs(row.environment.iter().copied());
        if is_root() {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        command
    }

    fn judge(&self, row: &Row, ended: &Ended) -> Result<(), String> {
        let Ended { code, stdout, stderr } = ended;
        let all = format!("exit {code:?}: {}", stderr.trim_end());
        let shown = self.secrets.iter().any(|s| stdout.contains(s) || stderr.contains(s));
        if shown {
            return Err("shows a secret".into());
        }
        if stderr.contains("panicked") {
            return Err(all);
        }
        match (row.end, *code) {
            // Its signal ends a process that writes to a pipe without readers.
            (End::Quietly, None | Some(0 | 141)) if stderr.is_empty() => return Ok(()),
            (End::FailsOrNot, Some(0)) => return Ok(()),
            (End::FailsOrNot, Some(1 | 2)) => {}
            (End::Fails(expected), Some(code)) if code == expected => {}
            _ => return Err(all),
        }
        let mut lines = stderr.lines().filter(|line| !line.starts_with("warning: "));
        let line = lines.next().unwrap_or_default();
        if !line.starts_with("error: ") || lines.next().is_some() {
            return Err(format!("not one line of an error: {all}"));
        }
        let missing = row.parts.iter().find(|part| !line.contains(*part));
        missing.map_or(Ok(()), |part| Err(format!("without {part:?}: {all}")))
    }
}

/// Reads a pipe to its end, if there is one, beside what else is done.
fn read_all(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = vec![];
        pipe.map(|mut pipe| pipe.read_to_end(&mut bytes).unwrap());
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Returns the binary, or a copy in `folder` where an ordinary user cannot reach it.
fn binary(folder: &Path) -> PathBuf {
    let binary = Path::new(place::binary());
    let is_open = |path: &Path| fs::metadata(path).is_ok_and(|data| data.mode() & 0o1 == 1);
    if !is_root() || binary.ancestors().filter(|path| path.is_absolute()).all(is_open) {
        return binary.to_owned();
    }
    let copy = folder.join("ciphergram");
    if !copy.exists() {
        fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        fs::copy(binary, &copy).unwrap();
    }
    copy
}

/// Returns whether these tests may read and write everything.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0)
}

/// Gives a file to the user whom rows run as.
fn own(path: &Path) -> io::Result<()> {
    if is_root() {
        return lchown(path, Some(ORDINARY), Some(ORDINARY));
    }
    Ok(())
}

/// Copies what is in a folder, links and pipes as what they are.
fn copy_into(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy_into(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &target)?;
        } else if kind.is_fifo() {
            make_pipe(&target);
        } else {
            fs::copy(entry.path(), &target)?;
        }
        own(&target)?;
    }
    own(to)
}

/// Makes a pipe that has a name.
pub(crate) fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Returns the stamp of every file and folder below one, by its path from there.
fn state_of(folder: &Path) -> State {
    let mut state = State::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        // What tests that are not root may not list was not changed either.
        for entry in fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            let data = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(folder).unwrap().to_owned();
            let stamp = if data.is_dir() {
                Stamp(data.mode(), 0, 0, (0, 0))
            } else {
                Stamp(data.mode(), data.ino(), data.len(), (data.ctime(), data.ctime_nsec()))
            };
            state.insert(name, stamp);
            if data.is_dir() {
                folders.push(path);
            }
        }
    }
    state
}

/// Returns a line for each file and folder that differs.
fn changes(before: &State, after: &State) -> Vec<String> {
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let change = |name: &PathBuf| {
        let what = match (before.get(name), after.get(name)) {
            (Some(old), Some(new)) if old == new => return None,
            (None, _) => "was left",
            (_, None) => "is gone",
            _ => "was changed",
        };
        Some(format!("{} {what}", name.display()))
    };
    names.filter_map(change).collect()
}
