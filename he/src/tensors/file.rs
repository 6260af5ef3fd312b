//! Safetensors files: where their tensors lie, read by the block and written at places.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use safetensors::{
    SafeTensorError, SafeTensors,
    tensor::{Metadata, TensorInfo},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use zeroize::Zeroizing;

use super::{Dtype, Tensor, TensorSpec};
use crate::Error;

/// Returns the metadata of a safetensors file: texts by name.
///
/// # Errors
/// It is none.
pub(crate) fn metadata(bytes: &[u8]) -> Result<BTreeMap<String, String>, Error> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| invalid(&e))?;
    Ok(metadata.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect())
}

/// Bytes at the start of a file that tell its format: a zip archive names its first member there.
const MAGIC_WINDOW_BYTES: u64 = 128;

/// Bytes that are read from a file at a time.
pub(crate) const WINDOW_BYTES: usize = 1 << 18;
/// Bytes before the header: its length.
const LENGTH_BYTES: usize = 8;
/// The longest header that the library reads.
const MAX_HEADER_BYTES: usize = 100_000_000;

/// Memory for what is read from a file, kept from one reading to the next.
#[derive(Default)]
pub(crate) struct Window(Zeroizing<Vec<u8>>);

/// The bytes of a file of tensors.
pub(super) enum Content {
    /// In memory that someone may own together with others, as arrays of another language.
    Memory(Box<dyn AsRef<[u8]> + Send + Sync>),
    /// Read when it is asked for, so that none of it need be in memory.
    File(Opened),
}

/// An open file of tensors, and when it was last written to before.
pub(super) struct Opened {
    path: PathBuf,
    file: File,
    modified: Option<SystemTime>,
}

impl Opened {
    /// Reads bytes from `start` on. Refuses a file that was written to since it was opened: its values were checked,
    /// and some of them may be sealed already.
    fn read(&self, out: &mut [u8], start: u64) -> io::Result<()> {
        let read = read_at(&self.file, out, start);
        if modified(&self.file)? != self.modified {
            return Err(io::Error::other("it was written to while it was read"));
        }
        read
    }
}

/// Returns when a file was last written to, where the system says.
fn modified(file: &File) -> io::Result<Option<SystemTime>> {
    Ok(file.metadata()?.modified().ok())
}

impl Content {
    /// Returns `length` bytes from `start` on: no more than a window has.
    pub(super) fn window<'a>(
        &'a self,
        start: u64,
        length: usize,
        Window(room): &'a mut Window,
    ) -> Result<&'a [u8], Error> {
        match self {
            Self::Memory(bytes) => Ok(&(**bytes).as_ref()[start as usize..][..length]),
            Self::File(file) => {
                // At once: a vector that grew would leave a copy behind.
                if room.capacity() == 0 {
                    room.reserve_exact(WINDOW_BYTES);
                }
                room.resize(length, 0);
                let read = file.read(room, start);
                read.map_err(|e| Error::from(e).within(file.path.display()))?;
                Ok(room)
            }
        }
    }

    /// Opens a file, or reads what is none but can be read, as a FIFO.
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        if file.metadata()?.is_file() {
            let modified = modified(&file)?;
            return Ok(Self::File(Opened { path: path.into(), file, modified }));
        }
        let mut bytes = vec![];
        file.read_to_end(&mut bytes)?;
        Ok(Self::Memory(Box::new(bytes)))
    }

    fn len(&self) -> io::Result<u64> {
        match self {
            Self::Memory(bytes) => Ok((**bytes).as_ref().len() as u64),
            Self::File(opened) => Ok(opened.file.metadata()?.len()),
        }
    }

    /// Names PyTorch's or NumPy's format, which all begin with what would be the length of a huge header, and what
    /// converts it.
    fn other_format(&self) -> Option<Error> {
        let mut start = vec![0; self.len().ok()?.min(MAGIC_WINDOW_BYTES) as usize];
        self.read(&mut start, 0).ok()?;
        let holds = |part: &[u8]| start.windows(part.len()).any(|window| window == part);
        let is_pickle = matches!(start[..], [0x80, 2..=5, ..]);
        let (is_zip, is_npy) = (start.starts_with(b"PK\x03\x04"), start.starts_with(b"\x93NUMPY"));
        let (name, package, load) = if is_pickle || is_zip && holds(b"data.pkl") {
            ("PyTorch", "torch", "torch.load(FILE, weights_only=True)")
        } else if is_zip && holds(b".npy") {
            ("NumPy", "numpy", "dict(numpy.load(FILE))")
        } else if is_npy {
            ("NumPy", "numpy", "{\"tensor\": numpy.load(FILE)}")
        } else {
            return None;
        };
        let why = format!(
            "it is a file of {name}; convert it in Python: import {package}, safetensors.{package}; \
             safetensors.{package}.save_file({load}, \"NAME.safetensors\")"
        );
        Some(Error::Format { what: "safetensors file", why })
    }

    /// Returns the bytes of the header, its length before it.
    fn header(&self) -> Result<Vec<u8>, Error> {
        let has = self.len()?;
        let mut length = [0; LENGTH_BYTES];
        if has < LENGTH_BYTES as u64 {
            return Err(invalid(&SafeTensorError::HeaderTooSmall));
        }
        self.read(&mut length, 0)?;
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_HEADER_BYTES {
            return Err(self.other_format().unwrap_or(invalid(&SafeTensorError::HeaderTooLarge)));
        }
        if (LENGTH_BYTES + length) as u64 > has {
            return Err(self
                .other_format()
                .unwrap_or(invalid(&SafeTensorError::InvalidHeaderLength)));
        }
        let mut header = vec![0; LENGTH_BYTES + length];
        self.read(&mut header, 0)?;
        Ok(header)
    }

    fn read(&self, out: &mut [u8], start: u64) -> io::Result<()> {
        match self {
            Self::Memory(bytes) => {
                out.copy_from_slice(&(**bytes).as_ref()[start as usize..][..out.len()]);
            }
            Self::File(file) => file.read(out, start)?,
        }
        Ok(())
    }
}

/// A header whose names differ: of tensors with one name the library would keep the last.
struct DistinctNames;

impl<'de> Deserialize<'de> for DistinctNames {
    fn deserialize<D: Deserializer<'de>>(header: D) -> Result<Self, D::Error> {
        header.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for DistinctNames {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensors by their names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut header: A) -> Result<Self, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, IgnoredAny)) = header.next_entry::<String, _>()? {
            if let Some(name) = names.replace(name) {
                return Err(A::Error::custom(format!("two tensors are named {name:?}")));
            }
        }
        Ok(self)
    }
}

/// A file's tensors, and where they lie.
pub(super) struct Parsed {
    pub(super) layout: FileLayout,
    pub(super) content: Arc<Content>,
}

impl Parsed {
    /// Opens a file; errors name it.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let open = || Self::of(Content::open(path)?);
        open().map_err(|e| e.within(path.display()))
    }

    /// Reads the header, and checks that it says what there is.
    pub(super) fn of(content: Content) -> Result<Self, Error> {
        let header = content.header()?;
        // Of all but the values, which the library would have in memory.
        match SafeTensors::read_metadata(&header) {
            Ok(_) | Err(SafeTensorError::MetadataIncompleteBuffer) => {}
            Err(e) => return Err(invalid(&e)),
        }
        let text = &header[LENGTH_BYTES..];
        let unread = |e| invalid(&SafeTensorError::InvalidHeaderDeserialization(e));
        let DistinctNames = serde_json::from_slice(text).map_err(unread)?;
        let metadata: Metadata = serde_json::from_slice(text).map_err(unread)?;
        let bytes = (header.len() + metadata.data_len()) as u64;
        if bytes != content.len()? {
            return Err(invalid(&SafeTensorError::MetadataIncompleteBuffer));
        }
        let mut places = vec![];
        for (name, info) in metadata.tensors() {
            let found = format!("{:?}", info.dtype);
            let dtype = Dtype::from_name(&found)
                .ok_or_else(|| Error::Dtype { tensor: name.clone(), dtype: found })?;
            let shape = info.shape.iter().map(|&d| d as u64).collect();
            places.push((
                TensorSpec { name, dtype, shape },
                header.len() as u64 + info.data_offsets.0 as u64,
            ));
        }
        places.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        Ok(Self { layout: FileLayout { header, places, bytes }, content: content.into() })
    }

    /// Returns the tensors, sorted by name.
    pub(super) fn tensors(&self) -> impl Iterator<Item = Tensor> + '_ {
        self.layout.places.iter().map(|(spec, start)| Tensor {
            spec: spec.clone(),
            content: self.content.clone(),
            start: *start,
            limit: f64::INFINITY,
        })
    }
}

/// The places of tensors in a safetensors file, and all of it that is before them.
#[derive(Clone)]
pub(crate) struct FileLayout {
    /// The length of the header, and the header: names, types, shapes, offsets and metadata.
    header: Vec<u8>,
    /// The tensors, sorted by name, and where their values start.
    places: Vec<(TensorSpec, u64)>,
    /// Bytes of the whole file.
    bytes: u64,
}

impl FileLayout {
    /// Lays tensors out as the library does: those of the widest types first, then by name.
    ///
    /// # Errors
    /// The library refuses a name or shape.
    pub(crate) fn new(specs: &[TensorSpec]) -> Result<Self, Error> {
        let mut sorted: Vec<_> = specs.iter().collect();
        let width = |spec: &TensorSpec| spec.dtype.safetensors();
        sorted.sort_by(|a, b| width(b).cmp(&width(a)).then(a.name.cmp(&b.name)));
        let mut end = 0;
        let infos = sorted.iter().map(|spec| {
            let start = end;
            end += spec.values().unwrap_or(0) * spec.dtype.bytes();
            let shape = spec.shape.iter().map(|&d| d as usize).collect();
            let info = TensorInfo { dtype: width(spec), shape, data_offsets: (start, end) };
            (spec.name.clone(), info)
        });
        let infos: Vec<_> = infos.collect();
        let starts: Vec<_> = infos.iter().map(|(_, info)| info.data_offsets.0 as u64).collect();
        let metadata = Metadata::new(None, infos).map_err(|e| invalid(&e))?;
        let text = serde_json::to_string(&metadata)
            .map_err(|e| invalid(&SafeTensorError::JsonError(e)))?;
        let length = text.len().next_multiple_of(LENGTH_BYTES);
        let mut header = (length as u64).to_le_bytes().to_vec();
        header.extend(text.as_bytes());
        header.resize(LENGTH_BYTES + length, b' ');
        let first = header.len() as u64;
        let places = sorted.into_iter().zip(starts);
        let mut places: Vec<_> = places.map(|(spec, at)| (spec.clone(), first + at)).collect();
        places.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        Ok(Self { header, places, bytes: first + end as u64 })
    }

    /// Returns the length of the header, and the header.
    pub(crate) fn header(&self) -> &[u8] {
        &self.header
    }

    /// Returns the bytes of the whole file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns where the values of a tensor start, if there is one of that name.
    pub(crate) fn start_of(&self, name: &str) -> Option<u64> {
        let found = self.places.binary_search_by(|(spec, _)| spec.name.as_str().cmp(name));
        found.ok().map(|place| self.places[place].1)
    }
}

fn invalid(error: &SafeTensorError) -> Error {
    Error::Format { what: "safetensors file", why: error.to_string() }
}

/// Reads bytes of a file from `start` on.
fn read_at(file: &File, out: &mut [u8], start: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, out, start);
    #[cfg(windows)]
    {
        let mut done = 0;
        while done < out.len() {
            let at = start + done as u64;
            match std::os::windows::fs::FileExt::seek_read(file, &mut out[done..], at)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => done += count,
            }
        }
        Ok(())
    }
}

/// Writes bytes of a file from `start` on.
pub(crate) fn write_at(file: &File, bytes: &[u8], start: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_all_at(file, bytes, start);
    #[cfg(windows)]
    {
        let mut done = 0;
        while done < bytes.len() {
            let at = start + done as u64;
            done += std::os::windows::fs::FileExt::seek_write(file, &bytes[done..], at)?;
        }
        Ok(())
    }
}
