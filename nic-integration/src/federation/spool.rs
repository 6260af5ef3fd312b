//! A contribution's sealed chunks on disk, so that a restarted client re-issues the same bytes.
//!
//! Sealing anew would make other ciphertexts of the same chunks, which the aggregator must take for
//! an attack, and would put two messages under one seed. So every chunk is on disk, synced, before
//! the first datagram of it leaves; what is not in the spool was never sent, and may be sealed.
//!
//! # Form
//! The magic, a header record, then one record for each batch of chunks. A record is a 32-bit
//! length, 4 bytes that vouch for the length, the content, and a tag of 16 bytes; both are BLAKE3
//! over the tag before them, the length, and for the tag the content. So what is read is always a
//! beginning of what was written.
//!
//! In a job with openers a record of shares follows all chunks. The last record is the sum, once all of it
//! came back: how many values of each tensor were clipped (a count (4), and as many counts (8)), the answers
//! of openers (a length (4), and each with its length), then the file of the sum. The 4 bytes that vouch for
//! the length of either are over the word `shares` or `sum` besides. Space for it is reserved before the
//! first chunk is sealed, so that a disk that fills up in the meantime costs no round.
//!
//! A file that ends within a record was cut while that record was written: the record was never
//! sent, and is cut off. Anything else that does not fit is damage: chunks that were sent may be
//! behind it, and sealing those again under the same seed would give them away, so the file is
//! refused.

use std::{
    fmt,
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    ops::Range,
    path::{Path, PathBuf},
    thread::{Builder, JoinHandle},
};

use ciphergram_he::{
    PublicKey, Scheme, Sum, Update, error::FrameError, exchange::Announcement,
    threshold::OpenAnswer,
};
use tracing::warn;
use zeroize::Zeroizing;

use super::Error;
use crate::round::Resume;

const MARK_BYTES: usize = 4;
const TAG_BYTES: usize = 16;
const MAGIC: &[u8; 8] = b"CGSPOOL1";
const FIXED_BYTES: usize = 2 + 4 + 4 + 32 + 32;
/// Bytes reserved beside chunks and sum: for headers, and what is around records.
const RESERVED_FURTHER: u64 = 1 << 16;
/// What vouches for the length of a record of this kind is over this besides.
const SUM: &[u8] = b"sum";
const SHARES: &[u8] = b"shares";
const CHUNKS: &[u8] = b"";

/// The contribution and the round that a spool is of.
#[derive(Clone, PartialEq)]
pub struct SpoolHeader {
    /// The client's number.
    pub contributor: u16,
    /// The round that the chunks were sealed for.
    pub resume: Resume,
    /// [`fingerprint`] of the update.
    pub fingerprint: [u8; 32],
    /// The seed of the rounding, as secret as the update: a client that goes on rounds the same way.
    pub rounding: Zeroizing<[u8; 32]>,
    /// Seed and agreement.
    pub announcement: Announcement,
}

impl fmt::Debug for SpoolHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SpoolHeader");
        shown.field("contributor", &self.contributor).field("resume", &self.resume);
        shown.finish_non_exhaustive()
    }
}

impl SpoolHeader {
    fn to_bytes(&self, key: &PublicKey) -> Zeroizing<Vec<u8>> {
        let announcement = self.announcement.to_bytes(key);
        let mut out = Zeroizing::new(Vec::with_capacity(FIXED_BYTES + announcement.len()));
        out.extend(self.contributor.to_le_bytes());
        out.extend(self.resume.incarnation.to_le_bytes());
        out.extend(self.resume.round.to_le_bytes());
        out.extend(self.fingerprint);
        out.extend(*self.rounding);
        out.extend(announcement);
        out
    }

    fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, String> {
        let (fixed, announcement) =
            bytes.split_at_checked(FIXED_BYTES).ok_or("its header is too short")?;
        let number = |at: usize| u32::from_le_bytes(array(fixed, at));
        Ok(Self {
            contributor: u16::from_le_bytes(array(fixed, 0)),
            resume: Resume { incarnation: number(2), round: number(6) },
            fingerprint: array(fixed, 10),
            rounding: Zeroizing::new(array(fixed, 42)),
            announcement: Announcement::from_bytes(announcement, key).map_err(|e| e.to_string())?,
        })
    }
}

/// Returns the `N` bytes at `at`; in bounds by construction of every call.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| bytes[at + byte])
}

/// Returns a digest of an update and its weight, by which a spool is known to be of this very
/// update.
///
/// # Errors
///
/// The update's file cannot be read.
pub fn fingerprint(update: &Update, weight: u64) -> Result<[u8; 32], Error> {
    let mut hasher = blake3::Hasher::new_derive_key("ciphergram 2026 spool fingerprint");
    hasher.update(&weight.to_le_bytes());
    if let Some(limit) = update.limit() {
        hasher.update(b"clipped").update(&limit.to_bits().to_le_bytes());
    }
    for tensor in update.tensors() {
        hasher.update(format!("{:?}", tensor.spec).as_bytes());
        tensor.try_for_bytes(|bytes| {
            hasher.update(bytes);
            Ok::<_, Error>(())
        })?;
    }
    Ok(*hasher.finalize().as_bytes())
}

/// A spool as it was found.
pub struct FoundSpool {
    /// The file, to go on with.
    pub spool: Spool,
    /// The contribution that it is of.
    pub header: SpoolHeader,
    /// The content of the file.
    pub content: SpoolContent,
}

/// The content of a spool.
#[derive(Debug, Clone, PartialEq)]
pub enum SpoolContent {
    /// The first chunks, sealed, and the shares that the contribution opens by, if they are.
    Chunks(Vec<u8>, Option<Vec<u8>>),
    /// The sum that came back: the round is over.
    Sum(Box<SavedSum>),
}

/// A sum that came back and that a spool keeps.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedSum {
    /// The sum.
    pub sum: Sum,
    /// Values of this client out of range, for each tensor.
    pub clipped: Vec<usize>,
    /// The answers of openers, in a job that has such.
    pub answers: Vec<OpenAnswer>,
}

/// An open spool file. It is locked: no other process goes on with the same contribution.
pub struct Spool {
    path: PathBuf,
    file: File,
    /// The tag of the last record, which the next one continues.
    tag: [u8; TAG_BYTES],
    /// Whether the file has its header: without, it goes with this.
    has_header: bool,
    /// The sum on its way to the disk.
    keeping: Option<JoinHandle<io::Result<()>>>,
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Some(Ok(Err(error))) = self.keeping.take().map(JoinHandle::join) {
            // The aggregator has the sum still, for a while.
            warn!(spool = %self.path.display(), %error, "the sum is not kept");
        }
        if !self.has_header {
            // The next run removes it if this one cannot.
            let _ = remove(&self.path);
        }
    }
}

impl Spool {
    /// Reads the spool at `path`, if there is one, with what it holds, and goes on after
    /// that. A spool that was cut before anything could be sent is removed.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is in use, is damaged, or is no spool under this key.
    pub fn open(path: &Path, key: &PublicKey) -> Result<Option<FoundSpool>, Error> {
        let fail = |why: String| Error::Spool { path: path.into(), why };
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(fail(e.to_string())),
        };
        // One without content is removed, which no device must be.
        if !file.metadata().map_err(|e| fail(e.to_string()))?.is_file() {
            return Err(fail("it is no regular file, and keeps nothing".into()));
        }
        lock(&file).map_err(fail)?;
        let mut bytes = vec![];
        file.read_to_end(&mut bytes).map_err(|e| fail(e.to_string()))?;
        let records = Records::read(&bytes).map_err(fail)?;
        let Some((header, chunks)) = records.contents.split_first() else {
            return remove(path).map(|()| None);
        };
        let header = SpoolHeader::from_bytes(&bytes[header.clone()], key).map_err(fail)?;
        let content = match &records.sum {
            Some(sum) => {
                bytes.truncate(sum.end);
                SpoolContent::Sum(Box::new(
                    SavedSum::from_vec(bytes, sum.start, key).map_err(fail)?,
                ))
            }
            None => {
                let shares = records.shares.map(|shares| bytes[shares].to_vec());
                SpoolContent::Chunks(joined(&mut bytes, chunks), shares)
            }
        };
        let cut = file.set_len(records.bytes as u64);
        // What a process wrote that died before it was on disk was read, and is sent next.
        let cut = cut.and_then(|()| file.sync_data()).and_then(|()| file.seek(SeekFrom::End(0)));
        cut.map_err(|e| fail(e.to_string()))?;
        let spool = Self::of_file(path, file, records.tag, true);
        Ok(Some(FoundSpool { spool, header, content }))
    }

    /// Makes the file of a spool, readable by its owner only, with [space](Self::reserve) for chunks of `bytes`.
    /// It is removed again unless it [begins](Self::begin).
    ///
    /// # Errors
    ///
    /// The file exists or cannot be written, or there is no space.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, Error> {
        let fail = |why: String| Error::Spool { path: path.into(), why };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|e| fail(e.to_string()))?;
        // Who has it already, as found empty, removes it: there may be another one by then.
        lock(&file).map_err(fail)?;
        let spool = Self::of_file(path, file, first_tag(), false);
        spool.reserve(bytes)?;
        Ok(spool)
    }

    fn of_file(path: &Path, file: File, tag: [u8; TAG_BYTES], has_header: bool) -> Self {
        Self { path: path.into(), file, tag, has_header, keeping: None }
    }

    /// Writes the header, which reaches the disk with the first chunk.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn begin(&mut self, key: &PublicKey, header: &SpoolHeader) -> Result<(), Error> {
        let written = self.file.write_all(MAGIC).and_then(|()| sync_folder_of(&self.path));
        written.map_err(|e| self.fault(&e))?;
        self.write_record(CHUNKS, &[&header.to_bytes(key)])?;
        self.has_header = true;
        Ok(())
    }

    /// Reserves space on the disk for a stream of `bytes` and for the sum, which is as long, so that a disk that
    /// fills up later does not cut either short. Where a file system cannot, nothing is reserved.
    ///
    /// # Errors
    ///
    /// There is no such space.
    pub fn reserve(&self, bytes: u64) -> Result<(), Error> {
        #[cfg(target_os = "linux")]
        {
            use rustix::{
                fs::{FallocateFlags, fallocate},
                io::Errno,
            };
            let space = bytes.saturating_mul(2).saturating_add(RESERVED_FURTHER);
            let reserved = fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, space);
            if let Err(error @ (Errno::NOSPC | Errno::DQUOT)) = reserved {
                let why = format!("{}: it and the sum need {space} bytes", io::Error::from(error));
                return Err(Error::Spool { path: self.path.clone(), why });
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = bytes;
        Ok(())
    }

    /// Appends sealed chunks and waits until they are on disk.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn append(&mut self, chunks: &[u8]) -> Result<(), Error> {
        self.write_record(CHUNKS, &[chunks])?;
        self.file.sync_data().map_err(|e| self.fault(&e))
    }

    /// Appends the shares that the contribution opens by, behind all of its chunks, likewise.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn append_shares(&mut self, shares: &[u8]) -> Result<(), Error> {
        self.write_record(SHARES, &[shares])?;
        self.file.sync_data().map_err(|e| self.fault(&e))
    }

    /// Appends the sum that came back, after which there is no more to append. It reaches the disk while the caller
    /// opens it; dropping the spool waits for that. `clipped` are this client's values out of range, for each tensor;
    /// `answers` are those of openers.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn keep(
        &mut self,
        sum: &Sum,
        (clipped, answers): (&[usize], &[OpenAnswer]),
        key: &PublicKey,
    ) -> Result<(), Error> {
        let (head, stream, digest) = sum.to_parts(key);
        let mut counts = (clipped.len() as u32).to_le_bytes().to_vec();
        clipped.iter().for_each(|count| counts.extend((*count as u64).to_le_bytes()));
        if has_openers(key) {
            let answers = OpenAnswer::list_to_bytes(answers, key);
            counts.extend((answers.len() as u32).to_le_bytes());
            counts.extend(answers);
        }
        self.write_record(SUM, &[&counts, &head, stream, &digest])?;
        let file = self.file.try_clone().map_err(|e| self.fault(&e))?;
        let keep = Builder::new().name("spool".into()).spawn(move || file.sync_data());
        self.keeping = Some(keep.map_err(|e| self.fault(&e))?);
        Ok(())
    }

    /// Removes the file: the result of the round is where it should be, or there will be none.
    ///
    /// # Errors
    ///
    /// It cannot be removed.
    pub fn remove(mut self) -> Result<(), Error> {
        // Nobody waits for what is no longer wanted.
        self.keeping = None;
        remove(&self.path)
    }

    /// Appends a record of a kind, its content in parts.
    fn write_record(&mut self, kind: &[u8], content: &[&[u8]]) -> Result<(), Error> {
        let bytes = content.iter().map(|part| part.len()).sum::<usize>();
        let too_long = |_| self.fault(&ErrorKind::FileTooLarge.into());
        let length = u32::try_from(bytes).map_err(too_long)?;
        let length = length.to_le_bytes();
        let tag = link(&self.tag, &length, content);
        let mark: [u8; MARK_BYTES] = link(&self.tag, &length, &[kind]);
        let around = [&length[..], &mark].into_iter();
        let mut parts = around.chain(content.iter().copied()).chain([&tag[..]]);
        let written = parts.try_for_each(|part| self.file.write_all(part));
        written.map_err(|e| self.fault(&e))?;
        self.tag = tag;
        Ok(())
    }

    fn fault(&self, error: &io::Error) -> Error {
        Error::Spool { path: self.path.clone(), why: error.to_string() }
    }
}

impl SavedSum {
    /// Reads what `bytes` end with, `start` onwards, in whose memory the stream stays.
    fn from_vec(mut bytes: Vec<u8>, start: usize, key: &PublicKey) -> Result<Self, String> {
        const SHORT: &str = "its sum is too short";
        let (count, rest) = bytes[start..].split_first_chunk::<4>().ok_or(SHORT)?;
        let length = (u32::from_le_bytes(*count) as usize).checked_mul(8).ok_or(SHORT)?;
        let counts = rest.get(..length).ok_or(SHORT)?.as_chunks::<8>().0.iter();
        let clipped = counts.map(|count| u64::from_le_bytes(*count) as usize).collect();
        let (mut end, mut answers) = (start + count.len() + length, vec![]);
        if has_openers(key) {
            let (found, rest) = rest[length..].split_first_chunk::<4>().ok_or(SHORT)?;
            let list = rest.get(..u32::from_le_bytes(*found) as usize).ok_or(SHORT)?;
            answers = OpenAnswer::list_from_bytes(list, key).map_err(|e| e.to_string())?;
            end += found.len() + list.len();
        }
        bytes.drain(..end);
        Ok(Self { sum: Sum::from_vec(bytes, key).map_err(|e| e.to_string())?, clipped, answers })
    }
}

/// Returns whether sums under a key open by answers of openers.
fn has_openers(key: &PublicKey) -> bool {
    key.parameters().scheme() == Scheme::CkksSumThreshold
}

/// Returns parts of `bytes` one after the other, moved where they are, so that they are held once.
fn joined(bytes: &mut Vec<u8>, parts: &[Range<usize>]) -> Vec<u8> {
    let mut length = 0;
    for part in parts {
        bytes.copy_within(part.clone(), length);
        length += part.len();
    }
    bytes.truncate(length);
    std::mem::take(bytes)
}

/// Locks a file for as long as it is open, unless it was removed before it was locked.
fn lock(file: &File) -> Result<(), String> {
    const TAKEN: &str = "another process is at work on this contribution";
    file.try_lock().map_err(|e| match e {
        TryLockError::WouldBlock => TAKEN.into(),
        TryLockError::Error(e) => e.to_string(),
    })?;
    #[cfg(unix)]
    if std::os::unix::fs::MetadataExt::nlink(&file.metadata().map_err(|e| e.to_string())?) == 0 {
        return Err(TAKEN.into());
    }
    Ok(())
}

/// Makes a new file's name as durable as its bytes.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Elsewhere a folder cannot be opened, and its names are durable without.
    if cfg!(unix) { File::open(folder.unwrap_or(Path::new(".")))?.sync_all() } else { Ok(()) }
}

/// Removes a spool, if there is one.
///
/// # Errors
///
/// It cannot be removed.
pub fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(Error::Spool { path: path.into(), why: e.to_string() })
        }
        _ => Ok(()),
    }
}

/// Returns whether `bytes` begin as a spool does.
#[must_use]
pub fn is_spool(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// The whole records of a file.
struct Records {
    /// The place of each one's content, but for those of shares and of the sum.
    contents: Vec<Range<usize>>,
    /// The place of the shares.
    shares: Option<Range<usize>>,
    /// The place of the sum's content, which is the last.
    sum: Option<Range<usize>>,
    /// The last one's tag.
    tag: [u8; TAG_BYTES],
    /// The number of bytes to the end of the last one.
    bytes: usize,
}

impl Records {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut records = Self {
            contents: vec![],
            shares: None,
            sum: None,
            tag: first_tag(),
            bytes: MAGIC.len(),
        };
        if MAGIC.starts_with(bytes) {
            return Ok(records);
        }
        let (start, version) = MAGIC.split_at(MAGIC.len() - 1);
        if let Some([later, ..]) = bytes.strip_prefix(start)
            && (version[0] + 1..=b'9').contains(later)
        {
            let (found, known) = (later - b'0', version[0] - b'0');
            let (found, known) = (found.into(), known.into());
            return Err(FrameError::Version { found, known }.to_string());
        }
        let mut rest = bytes.strip_prefix(MAGIC).ok_or("it is no spool of Ciphergram")?;
        loop {
            let at = records.bytes;
            let damaged = || {
                format!(
                    "it is damaged at byte {at}, and what followed may have been sent: delete the \
                     file to give this contribution up"
                )
            };
            let Some(record) = next_record(rest, &records.tag).map_err(|()| damaged())? else {
                return Ok(records);
            };
            let is_in_order = match record.kind {
                RecordKind::Chunks => records.shares.is_none(),
                RecordKind::Shares => records.shares.is_none() && !records.contents.is_empty(),
                RecordKind::Sum => !records.contents.is_empty(),
            };
            if records.sum.is_some() || !is_in_order {
                return Err(damaged());
            }
            (records.tag, rest) = (record.tag, record.rest);
            records.bytes = bytes.len() - rest.len();
            let end = records.bytes - TAG_BYTES;
            let content = end - record.content.len()..end;
            match record.kind {
                RecordKind::Chunks => records.contents.push(content),
                RecordKind::Shares => records.shares = Some(content),
                RecordKind::Sum => records.sum = Some(content),
            }
        }
    }
}

/// The kind of a record.
#[derive(Clone, Copy)]
enum RecordKind {
    /// The header, or chunks.
    Chunks,
    Shares,
    Sum,
}

/// A whole record, and what follows it.
struct SpoolRecord<'a> {
    content: &'a [u8],
    kind: RecordKind,
    tag: [u8; TAG_BYTES],
    rest: &'a [u8],
}

/// Returns the next record; none if the file ends before the record does.
fn next_record<'a>(rest: &'a [u8], last: &[u8; TAG_BYTES]) -> Result<Option<SpoolRecord<'a>>, ()> {
    let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
    let Some((mark, rest)) = rest.split_first_chunk::<MARK_BYTES>() else { return Ok(None) };
    let kinds =
        [(RecordKind::Chunks, CHUNKS), (RecordKind::Shares, SHARES), (RecordKind::Sum, SUM)];
    let kind = kinds.into_iter().find(|(_, word)| *mark == link(last, length, &[*word]));
    let (kind, _) = kind.ok_or(())?;
    let whole = rest.split_at_checked(u32::from_le_bytes(*length) as usize);
    let Some((content, rest)) = whole else { return Ok(None) };
    let Some((tag, rest)) = rest.split_first_chunk::<TAG_BYTES>() else { return Ok(None) };
    if *tag != link(last, length, &[content]) {
        return Err(());
    }
    Ok(Some(SpoolRecord { content, kind, tag: *tag, rest }))
}

/// Returns the tag that the first record continues.
fn first_tag() -> [u8; TAG_BYTES] {
    link(&[0; TAG_BYTES], &[0; 4], &[MAGIC])
}

/// Returns the first `N` bytes of BLAKE3 over the last tag, a length and a content in parts.
fn link<const N: usize>(last: &[u8; TAG_BYTES], length: &[u8; 4], content: &[&[u8]]) -> [u8; N] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(last).update(length);
    content.iter().for_each(|part| _ = hasher.update(part));
    array(hasher.finalize().as_bytes(), 0)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_its_owner_has_removed_is_not_taken() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("spool");
        let [first, second] = [(); 2].map(|()| {
            OpenOptions::new().create(true).truncate(false).write(true).open(&path).unwrap()
        });
        assert_eq!(lock(&first), Ok(()));
        let taken = lock(&second).unwrap_err();
        remove(&path).unwrap();
        drop(first);
        assert_eq!(lock(&second), Err(taken));
    }
}
