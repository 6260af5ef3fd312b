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
//! A file that ends within a record was cut while that record was written: the record was never
//! sent, and is cut off. Anything else that does not fit is damage: chunks that were sent may be
//! behind it, and sealing those again under the same seed would give them away, so the file is
//! refused.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    ops::Range,
    path::{Path, PathBuf},
};

use ciphergram_he::{PublicKey, Update, exchange::Announcement};

use super::Error;
use crate::round::Resume;

const MARK_BYTES: usize = 4;
const TAG_BYTES: usize = 16;
const MAGIC: &[u8; 8] = b"CGSPOOL1";
const FIXED_BYTES: usize = 2 + 4 + 4 + 32 + 32;

/// The contribution and the round that a spool is of.
#[derive(Debug, Clone, PartialEq)]
pub struct SpoolHeader {
    /// The client's number.
    pub contributor: u16,
    /// The round that the chunks were sealed for.
    pub resume: Resume,
    /// [`fingerprint`] of the update.
    pub fingerprint: [u8; 32],
    /// The seed of the rounding: a client that goes on rounds the same way.
    pub rounding: [u8; 32],
    /// Seed and agreement.
    pub announcement: Announcement,
}

impl SpoolHeader {
    fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        let mut out = self.contributor.to_le_bytes().to_vec();
        out.extend(self.resume.incarnation.to_le_bytes());
        out.extend(self.resume.round.to_le_bytes());
        out.extend(self.fingerprint);
        out.extend(self.rounding);
        out.extend(self.announcement.to_bytes(key));
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
            rounding: array(fixed, 42),
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
#[must_use]
pub fn fingerprint(update: &Update, weight: u64) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("ciphergram 2026 spool fingerprint");
    hasher.update(&weight.to_le_bytes());
    for tensor in update.tensors() {
        hasher.update(format!("{:?}", tensor.spec).as_bytes());
        hasher.update(tensor.bytes());
    }
    *hasher.finalize().as_bytes()
}

/// An open spool file. It is locked: no other process goes on with the same contribution.
pub struct Spool {
    path: PathBuf,
    file: File,
    /// The tag of the last record, which the next one continues.
    tag: [u8; TAG_BYTES],
}

impl Spool {
    /// Reads the spool at `path`, if there is one, with the chunks that it holds, and goes on after
    /// them. A spool that was cut before anything could be sent is removed.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is in use, is damaged, or is no spool under this key.
    pub fn open(
        path: &Path,
        key: &PublicKey,
    ) -> Result<Option<(Self, SpoolHeader, Vec<u8>)>, Error> {
        let fail = |why: String| Error::Spool { path: path.into(), why };
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(fail(e.to_string())),
        };
        lock(&file).map_err(fail)?;
        let mut bytes = vec![];
        file.read_to_end(&mut bytes).map_err(|e| fail(e.to_string()))?;
        let records = Records::read(&bytes).map_err(fail)?;
        let Some((header, chunks)) = records.contents.split_first() else {
            return remove(path).map(|()| None);
        };
        let header = SpoolHeader::from_bytes(&bytes[header.clone()], key).map_err(fail)?;
        // Closes the gaps between the chunks in place, so that they are held once.
        let mut length = 0;
        for part in chunks {
            bytes.copy_within(part.clone(), length);
            length += part.len();
        }
        bytes.truncate(length);
        let cut = file.set_len(records.bytes as u64).and_then(|()| file.seek(SeekFrom::End(0)));
        cut.map_err(|e| fail(e.to_string()))?;
        Ok(Some((Self { path: path.into(), file, tag: records.tag }, header, bytes)))
    }

    /// Begins a spool, readable by its owner only.
    ///
    /// # Errors
    ///
    /// The file exists or cannot be written.
    pub fn create(path: &Path, key: &PublicKey, header: &SpoolHeader) -> Result<Self, Error> {
        let fail = |why: String| Error::Spool { path: path.into(), why };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(|e| fail(e.to_string()))?;
        lock(&file).map_err(fail)?;
        file.write_all(MAGIC).map_err(|e| fail(e.to_string()))?;
        let mut spool = Self { path: path.into(), file, tag: first_tag() };
        spool.append(&header.to_bytes(key))?;
        sync_folder_of(path).map_err(|e| fail(e.to_string()))?;
        Ok(spool)
    }

    /// Appends sealed chunks and waits until they are on disk.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn append(&mut self, chunks: &[u8]) -> Result<(), Error> {
        let length = (chunks.len() as u32).to_le_bytes();
        let tag = link(&self.tag, &length, chunks);
        let mark: [u8; MARK_BYTES] = link(&self.tag, &length, &[]);
        let mut parts = [&length[..], &mark, chunks, &tag].into_iter();
        let written = parts.try_for_each(|part| self.file.write_all(part));
        let written = written.and_then(|()| self.file.sync_data());
        written.map_err(|e| Error::Spool { path: self.path.clone(), why: e.to_string() })?;
        self.tag = tag;
        Ok(())
    }
}

fn lock(file: &File) -> Result<(), String> {
    file.try_lock().map_err(|e| match e {
        TryLockError::WouldBlock => "another process is at work on this contribution".into(),
        TryLockError::Error(e) => e.to_string(),
    })
}

/// Makes a new file's name as durable as its bytes.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Elsewhere a folder cannot be opened, and its names are durable without.
    if cfg!(unix) { File::open(folder.unwrap_or(Path::new(".")))?.sync_all() } else { Ok(()) }
}

/// Removes a spool whose sum has come back.
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
    /// The place of each one's content.
    contents: Vec<Range<usize>>,
    /// The last one's tag.
    tag: [u8; TAG_BYTES],
    /// The number of bytes to the end of the last one.
    bytes: usize,
}

impl Records {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut records = Self { contents: vec![], tag: first_tag(), bytes: MAGIC.len() };
        if MAGIC.starts_with(bytes) {
            return Ok(records);
        }
        let (start, version) = MAGIC.split_at(MAGIC.len() - 1);
        if let Some([later, ..]) = bytes.strip_prefix(start)
            && (version[0] + 1..=b'9').contains(later)
        {
            let (found, known) = (later - b'0', version[0] - b'0');
            return Err(ciphergram_he::Error::Newer { found: found.into(), known: known.into() }
                .to_string());
        }
        let mut rest = bytes.strip_prefix(MAGIC).ok_or("it is no spool of Ciphergram")?;
        while let Some((content, tag, after)) = next_record(rest, &records.tag).map_err(|()| {
            let at = records.bytes;
            format!(
                "it is damaged at byte {at}, and what followed may have been sent: delete the \
                 file to give this contribution up"
            )
        })? {
            (records.tag, rest) = (tag, after);
            records.bytes = bytes.len() - rest.len();
            let end = records.bytes - TAG_BYTES;
            records.contents.push(end - content.len()..end);
        }
        Ok(records)
    }
}

type Record<'a> = (&'a [u8], [u8; TAG_BYTES], &'a [u8]);

/// Returns the next record, its tag and the rest; none if the file ends before the record does.
fn next_record<'a>(rest: &'a [u8], last: &[u8; TAG_BYTES]) -> Result<Option<Record<'a>>, ()> {
    let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
    let Some((mark, rest)) = rest.split_first_chunk::<MARK_BYTES>() else { return Ok(None) };
    if *mark != link(last, length, &[]) {
        return Err(());
    }
    let whole = rest.split_at_checked(u32::from_le_bytes(*length) as usize);
    let Some((content, rest)) = whole else { return Ok(None) };
    let Some((tag, rest)) = rest.split_first_chunk::<TAG_BYTES>() else { return Ok(None) };
    if *tag != link(last, length, content) {
        return Err(());
    }
    Ok(Some((content, *tag, rest)))
}

/// Returns the tag that the first record continues.
fn first_tag() -> [u8; TAG_BYTES] {
    link(&[0; TAG_BYTES], &[0; 4], MAGIC)
}

/// Returns the first `N` bytes of BLAKE3 over the last tag, a length and a content.
fn link<const N: usize>(last: &[u8; TAG_BYTES], length: &[u8; 4], content: &[u8]) -> [u8; N] {
    let mut hasher = blake3::Hasher::new();
    let hash = hasher.update(last).update(length).update(content).finalize();
    array(hash.as_bytes(), 0)
}
