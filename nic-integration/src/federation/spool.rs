//! A contribution's sealed chunks on disk, so that a restarted client re-issues the same bytes.
//!
//! Sealing anew would make other ciphertexts of the same chunks, which the aggregator must take for
//! an attack, and would put two messages under one seed. So every chunk is on disk, synced, before
//! the first datagram of it leaves; what is not in the spool was never sent, and may be sealed.
//!
//! # Form
//! A header record, then one record for each batch of chunks. A record is a 32-bit length, the
//! content, and 16 bytes of its BLAKE3. Reading stops at the first record that is not whole.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use ciphergram_he::{PublicKey, Update, exchange::Announcement};

use super::Error;
use crate::round::Resume;

const TAG_BYTES: usize = 16;
const MAGIC: &[u8; 8] = b"CGSPOOL1";
const FIXED_BYTES: usize = 8 + 2 + 4 + 4 + 32;

/// What a spool is of.
#[derive(Debug, Clone, PartialEq)]
pub struct SpoolHeader {
    /// The client's number.
    pub contributor: u16,
    /// The round that it was sealed for.
    pub resume: Resume,
    /// [`fingerprint`] of the update.
    pub fingerprint: [u8; 32],
    /// Ticket and agreement.
    pub announcement: Announcement,
}

impl SpoolHeader {
    fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(self.contributor.to_le_bytes());
        out.extend(self.resume.incarnation.to_le_bytes());
        out.extend(self.resume.round.to_le_bytes());
        out.extend(self.fingerprint);
        out.extend(self.announcement.to_bytes(key));
        out
    }

    fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, String> {
        let (fixed, announcement) =
            bytes.split_at_checked(FIXED_BYTES).ok_or("it is no spool of Ciphergram")?;
        let number =
            |at: usize| fixed[at..at + 4].iter().rev().fold(0, |acc, &b| (acc << 8) | u32::from(b));
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(&fixed[18..]);
        if !fixed.starts_with(MAGIC) {
            return Err("it is no spool of Ciphergram".into());
        }
        Ok(Self {
            contributor: u16::from_le_bytes([fixed[8], fixed[9]]),
            resume: Resume { incarnation: number(10), round: number(14) },
            fingerprint,
            announcement: Announcement::from_bytes(announcement, key).map_err(|e| e.to_string())?,
        })
    }
}

/// A digest of an update and its weight: tells whether a spool is of this very update.
#[must_use]
pub fn fingerprint(update: &Update, weight: u64) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("ciphergram 2026 spool fingerprint");
    hasher.update(&weight.to_le_bytes());
    for tensor in update.tensors() {
        hasher.update(format!("{:?}", tensor.spec).as_bytes());
        tensor.values().for_each(|x| {
            hasher.update(&x.to_bits().to_le_bytes());
        });
    }
    *hasher.finalize().as_bytes()
}

/// An open spool file.
pub struct Spool {
    path: PathBuf,
    file: File,
}

impl Spool {
    /// Reads the spool at `path`, if there is one, with the chunks that it holds, and goes on after
    /// them.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is no spool under this key.
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
        let mut bytes = vec![];
        file.read_to_end(&mut bytes).map_err(|e| fail(e.to_string()))?;
        let mut rest = &bytes[..];
        let Some(header) = next_record(&mut rest) else {
            // It was cut before anything could be sent.
            drop(file);
            return remove(path).map(|()| None);
        };
        let header = SpoolHeader::from_bytes(header, key).map_err(fail)?;
        let mut stream = vec![];
        while let Some(record) = next_record(&mut rest) {
            stream.extend(record);
        }
        let whole = (bytes.len() - rest.len()) as u64;
        let cut = file.set_len(whole).and_then(|()| file.seek(SeekFrom::End(0)));
        cut.map_err(|e| Error::Spool { path: path.into(), why: e.to_string() })?;
        Ok(Some((Self { path: path.into(), file }, header, stream)))
    }

    /// Begins a spool, readable by its owner only.
    ///
    /// # Errors
    ///
    /// The file exists or cannot be written.
    pub fn create(path: &Path, key: &PublicKey, header: &SpoolHeader) -> Result<Self, Error> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options
            .open(path)
            .map_err(|e| Error::Spool { path: path.into(), why: e.to_string() })?;
        let mut spool = Self { path: path.into(), file };
        spool.append(&header.to_bytes(key))?;
        Ok(spool)
    }

    /// Appends sealed chunks and waits until they are on disk.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn append(&mut self, chunks: &[u8]) -> Result<(), Error> {
        let mut record = (chunks.len() as u32).to_le_bytes().to_vec();
        record.extend(chunks);
        record.extend(&blake3::hash(chunks).as_bytes()[..TAG_BYTES]);
        let written = self.file.write_all(&record).and_then(|()| self.file.sync_data());
        written.map_err(|e| Error::Spool { path: self.path.clone(), why: e.to_string() })
    }
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

/// Takes the next whole record.
fn next_record<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_at_checked(4)?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let (content, after) = after.split_at_checked(length)?;
    let (tag, after) = after.split_at_checked(TAG_BYTES)?;
    if blake3::hash(content).as_bytes()[..TAG_BYTES] != *tag {
        return None;
    }
    *rest = after;
    Some(content)
}
