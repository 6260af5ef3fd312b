//! JSON files as text.

use std::{fs, path::Path};

use zeroize::Zeroizing;

use crate::Error;

/// Reads a JSON file, which may hold secrets.
///
/// # Errors
/// It cannot be read, or is not text.
pub fn read(what: &'static str, path: &Path) -> Result<Zeroizing<String>, Error> {
    let bytes = Zeroizing::new(fs::read(path)?);
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.into())),
        Err(_) => {
            let why =
                "it is not text, as JSON files are; encrypted files and evaluation keys are binary";
            Err(Error::Format { what, why: why.into() })
        }
    }
}
