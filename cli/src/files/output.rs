//! Outputs of commands: opened before the work, and in place only when they are whole and on disk.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, BufWriter, ErrorKind, IsTerminal as _, Seek as _, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use super::kind::FileKind;
use crate::{
    failure::Failure,
    report,
    signals::{self, AtStop},
};

/// Bytes that are handed to the system at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Links that are followed before they are taken for a circle, as Linux has it.
const MAX_LINKS: usize = 40;

/// An output that a person named. It is opened before the work, so that a name which cannot be written to is found
/// first, and [`commit`](Self::commit) puts it in place; without, nothing that stands there changes.
///
/// - A file is written to a temporary one beside it, which nobody but the owner may open, and which is removed on
///   failure and on signals. One that stands there is replaced only if it is empty or of the kind that is written.
///   Links are followed: the file that they lead to is replaced.
/// - FIFOs and devices are written to.
/// - `-` is standard output, and so is any other name of it. Reports then go to standard error.
pub(crate) struct OutputFile {
    name: OutputName,
    to: BufWriter<OutputTarget>,
}

/// A name in errors.
#[derive(Clone)]
struct OutputName(PathBuf);

enum OutputTarget {
    Standard(io::Stdout),
    /// A FIFO or a device.
    Stream(File),
    File(PendingFile),
}

/// A temporary file, and the file that it becomes.
struct PendingFile {
    temporary: NamedTempFile<File>,
    target: PathBuf,
    kind: FileKind,
    /// Those of the file that stands there, or of a new one.
    permissions: Permissions,
    /// Bytes set aside on disk, to be cut to what was written.
    reserved: bool,
    written: u64,
    _at_stop: AtStop,
}

impl OutputFile {
    /// Opens the output at `path` for content of a kind. `inputs` are the files that the command reads.
    ///
    /// # Errors
    /// It is a folder, an input, or a file of another kind; or it cannot be written.
    pub(crate) fn create(path: &Path, kind: FileKind, inputs: &[&Path]) -> Result<Self, Failure> {
        let name = OutputName(path.into());
        let to = match check(path, kind, inputs)? {
            Standing::StandardOutput => {
                report::to_standard_error();
                OutputTarget::Standard(io::stdout())
            }
            Standing::Stream => {
                let stream = OpenOptions::new().write(true).open(path);
                OutputTarget::Stream(stream.map_err(|e| name.fault(e))?)
            }
            Standing::File(target) => OutputTarget::File(PendingFile::create(&name, target, kind)?),
        };
        Ok(Self { name, to: BufWriter::with_capacity(BUFFER_BYTES, to) })
    }

    /// Sets `bytes` aside on disk where the filesystem can, so that a full one is found before the work. No more than
    /// a hint: fewer or more may be written.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<(), Failure> {
        let OutputTarget::File(pending) = self.to.get_mut() else { return Ok(()) };
        #[cfg(target_os = "linux")]
        {
            use rustix::{fs, io::Errno};
            let file = pending.temporary.as_file();
            match fs::fallocate(file, fs::FallocateFlags::KEEP_SIZE, 0, bytes) {
                Err(full @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                    return Err(self.name.fault(full.into()));
                }
                set_aside => pending.reserved |= set_aside.is_ok(),
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (pending, bytes);
        Ok(())
    }

    /// Writes bytes that are whole already.
    ///
    /// # Errors
    /// They cannot be written.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to.write_all(bytes).map_err(|e| self.name.fault(e))
    }

    /// Fills the output by `fill`, which writes to places of the file that it is shown, not from its start on. A
    /// stream gets it as a whole.
    ///
    /// # Errors
    /// It cannot be written; those of `fill` as `describe` has them, or with the output's name if it gives a text.
    pub(crate) fn fill<E>(
        &mut self,
        fill: impl FnOnce(&File) -> Result<(), E>,
        describe: impl FnOnce(E) -> Result<Failure, String>,
    ) -> Result<(), Failure> {
        let fault = |e| self.name.fault(e);
        let fill = |file: &File| {
            fill(file).map_err(|e| describe(e).unwrap_or_else(|why| self.name.refuse(why)))
        };
        if let OutputTarget::File(pending) = self.to.get_mut() {
            let file = pending.temporary.as_file();
            fill(file)?;
            pending.written = file.metadata().map_err(fault)?.len();
            return Ok(());
        }
        let mut file = tempfile::tempfile().map_err(fault)?;
        fill(&file)?;
        file.rewind().and_then(|()| io::copy(&mut file, &mut self.to)).map_err(fault)?;
        Ok(())
    }

    /// Returns whether readers have what is written at once: it is no file.
    pub(crate) fn is_stream(&self) -> bool {
        !matches!(self.to.get_ref(), OutputTarget::File(_))
    }

    /// Puts the content in place and waits until it is on disk.
    ///
    /// # Errors
    /// It cannot be written, or something else has come to stand there.
    pub(crate) fn commit(self) -> Result<(), Failure> {
        self.commit_after(|| Ok(()))
    }

    /// Does the same, and `last` when all but the file's name is there.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit); that of `last`, after which nothing is in place.
    pub(crate) fn commit_after(
        self,
        last: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Self { name, to } = self;
        let mut to = to.into_inner().map_err(|e| name.fault(e.into_error()))?;
        to.flush().map_err(|e| name.fault(e))?;
        match to {
            OutputTarget::Standard(_) | OutputTarget::Stream(_) => last(),
            OutputTarget::File(pending) => pending.settle(&name, last),
        }
    }
}

/// Errors name the file that the person named, so that libraries can pass them on.
impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes).map_err(|e| self.name.named(e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().map_err(|e| self.name.named(e))
    }
}

impl Write for OutputTarget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self {
            Self::Standard(out) => out.write(bytes),
            Self::Stream(file) => file.write(bytes),
            Self::File(pending) => {
                // Errors of the library's own type name the temporary file.
                let count = pending.temporary.as_file_mut().write(bytes)?;
                pending.written += count as u64;
                Ok(count)
            }
        };
        unless_unread(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(out) => unless_unread(out.flush()),
            Self::Stream(_) | Self::File(_) => Ok(()),
        }
    }
}

/// Ends the process if nobody reads any more.
fn unless_unread<T>(written: io::Result<T>) -> io::Result<T> {
    match written {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => signals::end_of_broken_pipe(),
        written => written,
    }
}

impl PendingFile {
    fn create(name: &OutputName, target: PathBuf, kind: FileKind) -> Result<Self, Failure> {
        let folder = folder_of(&target);
        let standing = fs::metadata(&target).ok();
        // A file that may not be written is not replaced either, whoever owns the folder.
        if standing.is_some() {
            OpenOptions::new().write(true).open(&target).map_err(|e| name.fault(e))?;
        }
        let made = signals::at_stop(|| {
            let temporary = tempfile::Builder::new().make_in(folder, |path| {
                let mut options = OpenOptions::new();
                options.write(true).create_new(true);
                // From the start: who had it open would read on, whatever is changed later.
                #[cfg(unix)]
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                options.open(path)
            })?;
            let path = temporary.path().to_owned();
            Ok((temporary, move || drop(fs::remove_file(path))))
        });
        let (temporary, at_stop) = made.map_err(|e: io::Error| name.fault(e))?;
        let permissions = match standing {
            Some(standing) => standing.permissions(),
            None => of_new(temporary.as_file()).map_err(|e| name.fault(e))?,
        };
        Ok(Self {
            temporary,
            target,
            kind,
            permissions,
            reserved: false,
            written: 0,
            _at_stop: at_stop,
        })
    }

    fn settle(
        self,
        name: &OutputName,
        last: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Self { temporary, target, kind, permissions, reserved, written, _at_stop } = self;
        let fault = |e| name.fault(e);
        let file = temporary.as_file();
        if reserved {
            file.set_len(written).map_err(fault)?;
        }
        file.set_permissions(permissions).map_err(fault)?;
        file.sync_all().map_err(fault)?;
        // Hours may have passed.
        check_replaceable(name, &target, kind)?;
        // A round that is used has its file.
        signals::unstopped(|| {
            last()?;
            temporary.persist(&target).map_err(|e| name.fault(e.error))
        })?;
        sync(folder_of(&target)).map_err(fault)
    }
}

impl OutputName {
    /// Adds the name to an error.
    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), self.with(&error))
    }

    fn fault(&self, error: io::Error) -> Failure {
        Failure::Work(self.with(&error))
    }

    fn refuse(&self, why: impl std::fmt::Display) -> Failure {
        Failure::Work(self.with(&why))
    }

    fn with(&self, why: &dyn std::fmt::Display) -> String {
        match self.0.as_os_str().as_encoded_bytes() {
            b"-" => format!("standard output: {why}"),
            _ => format!("{}: {why}", self.0.display()),
        }
    }
}

/// Returns the permissions of a new file that anyone may read whom the user lets.
#[cfg(unix)]
fn of_new(_file: &File) -> io::Result<Permissions> {
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::{fs::Mode, process::umask};
    // The system tells the mask only to who sets one.
    let mask = umask(Mode::RWXG | Mode::RWXO);
    umask(mask);
    Ok(Permissions::from_mode(0o644 & !mask.as_raw_mode()))
}

#[cfg(not(unix))]
fn of_new(file: &File) -> io::Result<Permissions> {
    Ok(file.metadata()?.permissions())
}

/// The thing that stands at a path.
pub(super) enum Standing {
    /// A file or nothing, where links lead to.
    File(PathBuf),
    /// A FIFO or a device.
    Stream,
    /// The file or device that standard output leads to.
    StandardOutput,
}

/// Returns what stands at a path, if content of a kind may be written to it.
pub(super) fn check(path: &Path, kind: FileKind, inputs: &[&Path]) -> Result<Standing, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Standing::StandardOutput);
    }
    let name = OutputName(path.into());
    let standing = match fs::metadata(path) {
        Ok(standing) => Some(standing),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(name.fault(e)),
    };
    if let Some(standing) = &standing {
        if standing.is_dir() {
            return Err(name.refuse("is a folder"));
        }
        if let Some(input) = inputs.iter().find(|input| is_same(path, standing, input)) {
            let input = input.display();
            return Err(name.refuse(format!("is the input {input}, and is not overwritten")));
        }
        if is_standard_output(standing) {
            return Ok(Standing::StandardOutput);
        }
        if !standing.is_file() {
            return Ok(Standing::Stream);
        }
    }
    let target = follow(path).map_err(|e| name.fault(e))?;
    if target.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(name.refuse("names a folder"));
    }
    check_replaceable(&name, &target, kind)?;
    Ok(Standing::File(target))
}

/// Refuses to replace a file that holds anything but nothing or the kind that is written.
fn check_replaceable(name: &OutputName, target: &Path, kind: FileKind) -> Result<(), Failure> {
    let found = match File::open(target) {
        Ok(mut file) => FileKind::of_file(&mut file).map_err(|e| name.fault(e))?,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(name.fault(e)),
    };
    match found {
        FileKind::Empty => Ok(()),
        found if found == kind => Ok(()),
        FileKind::Other => {
            Err(name.refuse(format!("does not hold {}, and is not overwritten", kind.words())))
        }
        found => Err(name.refuse(format!(
            "holds {}, and is not overwritten with {}",
            found.words(),
            kind.words()
        ))),
    }
}

/// Returns the file that links lead to, which may not be there yet.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = folder_of(&path).join(next),
            // No link, or nothing.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("its links lead in a circle"))
}

/// Returns the folder that a path is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the names in a folder as durable as the bytes of its files, where the system can: a folder that may not be
/// listed, or whose filesystem knows no such thing, holds them all the same.
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    use ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(e) if matches!(e.kind(), InvalidInput | PermissionDenied | Unsupported) => Ok(()),
        synced => synced,
    }
}

/// Returns whether another path leads to the same file.
#[cfg(unix)]
fn is_same(_path: &Path, standing: &Metadata, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let same = |other: Metadata| (other.dev(), other.ino()) == (standing.dev(), standing.ino());
    standing.is_file() && fs::metadata(other).is_ok_and(same)
}

#[cfg(not(unix))]
fn is_same(path: &Path, _standing: &Metadata, other: &Path) -> bool {
    fs::canonicalize(path).ok().is_some_and(|path| fs::canonicalize(other).ok() == Some(path))
}

/// Returns whether it is what standard output leads to, as `/dev/stdout` is: a pipe, a redirection or a terminal.
#[cfg(unix)]
fn is_standard_output(standing: &Metadata) -> bool {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
    let out = rustix::fs::fstat(io::stdout());
    let same = out.is_ok_and(|out| (out.st_dev, out.st_ino) == (standing.dev(), standing.ino()));
    same && (io::stdout().is_terminal() || !standing.file_type().is_char_device())
}

#[cfg(not(unix))]
fn is_standard_output(_standing: &Metadata) -> bool {
    false
}
