//! Memory that Python owns, and memory of ours that it reads: the only unsafe code of this package.
#![allow(unsafe_code)]

use std::{ffi::c_int, ptr, slice, sync::OnceLock};

use pyo3::{buffer::PyBuffer, exceptions::PyBufferError, ffi, prelude::*, types::PyBytes};

use crate::errors::{Error, Result};

/// Bytes of an object with the buffer protocol, contiguous, which it keeps for as long as this is there.
pub(crate) struct Borrowed(PyBuffer<u8>);

impl Borrowed {
    /// Takes the bytes of an object.
    ///
    /// # Errors
    /// It has no buffer of bytes, or one that is not contiguous.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::get(object)?;
        match buffer.is_c_contiguous() {
            true => Ok(Self(buffer)),
            false => Err(PyBufferError::new_err("its bytes do not lie one after the other")),
        }
    }
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        let length = self.0.len_bytes();
        if length == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `length` bytes at this place, initialised, until the buffer is released, which
        // takes `self`. That nobody writes to them meanwhile is what callers of this package are asked for: arrays
        // must not be written to during a call. One that is all the same is a data race of theirs, as in any extension
        // that computes without the interpreter's lock. Of tensors nothing but values depends on what is read, never a
        // length, an index or a branch to memory; what is parsed is read from `Frozen`.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), length) }
    }
}

/// Bytes that are parsed, and so must not change: those of Python's own `bytes`, or ours.
pub(crate) enum Frozen {
    Own(Borrowed),
    Ours(Vec<u8>),
}

impl Frozen {
    /// Takes the bytes of an object, a copy if it is another than Python's own `bytes`.
    ///
    /// # Errors
    /// It has none; `BadFrame`, if they are something else than bytes.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> Result<Self> {
        let none = |error: PyErr| match error.is_instance_of::<PyBufferError>(object.py()) {
            true => Error::Own("BadFrame", format!("it holds no plain bytes: {error}")),
            false => error.into(),
        };
        let bytes = Borrowed::new(object).map_err(none)?;
        match object.is_exact_instance_of::<PyBytes>() {
            true => Ok(Self::Own(bytes)),
            false => Ok(Self::Ours(bytes.as_ref().to_vec())),
        }
    }
}

impl From<Vec<u8>> for Frozen {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Ours(bytes)
    }
}

impl AsRef<[u8]> for Frozen {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes.as_ref(),
            Self::Ours(bytes) => bytes,
        }
    }
}

/// Returns the bytes of something's file, made when they are first asked for.
pub(crate) fn once(
    frame: &OnceLock<Frozen>,
    make: impl FnOnce() -> Result<Vec<u8>>,
) -> Result<&[u8]> {
    if let Some(frame) = frame.get() {
        return Ok(frame.as_ref());
    }
    let bytes = make()?;
    Ok(frame.get_or_init(|| bytes.into()).as_ref())
}

/// The parts of a pickle: what reads bytes, and the bytes.
pub(crate) type Pickle<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>,));

/// Bytes of an array that was made for a result, and that nobody else has yet.
pub(crate) struct Writable(PyBuffer<u8>);

impl Writable {
    /// Takes the bytes of an array.
    ///
    /// # Errors
    /// It is not writable, or not contiguous.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::get(object)?;
        match !buffer.readonly() && buffer.is_c_contiguous() {
            true => Ok(Self(buffer)),
            false => Err(PyBufferError::new_err("there is nothing to write to")),
        }
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let length = self.0.len_bytes();
        if length == 0 {
            return &mut [];
        }
        // SAFETY: as in `Borrowed`; and the array was allocated for this by `_arrays.empty`, which gives it to no
        // one else before the call returns, so that this is the only way to its bytes.
        unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast::<u8>(), length) }
    }
}

/// Fills a view with bytes that a frozen object of ours holds, for `__getbuffer__`.
///
/// # Safety
/// `view` is what Python gave to `__getbuffer__`, and `bytes` stay where they are for as long as `owner` lives.
pub(crate) unsafe fn show(
    owner: &Bound<'_, PyAny>,
    bytes: Result<&[u8]>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> Result<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no view to fill").into());
    }
    // SAFETY: it is Python's, and there is one: it is of nothing, as it must be if this fails.
    unsafe { (*view).obj = ptr::null_mut() };
    let bytes = bytes?;
    // SAFETY: the view is Python's; it takes a reference to the owner, which keeps the bytes.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            owner.as_ptr(),
            bytes.as_ptr().cast_mut().cast(),
            bytes.len() as ffi::Py_ssize_t,
            1,
            flags,
        )
    };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py()).into()) }
}
