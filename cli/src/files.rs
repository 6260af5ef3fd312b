//! Reading and writing files, each error with its path.

use std::{fs, io::Write as _, path::Path};

use ciphergram_he::{Agreement, AnyKey, SecretKey, Update, codec::RangesFile};

use crate::{
    args::Weighting,
    failure::{Failure, at},
    report::warn,
};

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(at(path))
}

/// Writes a whole file or none: to a temporary name beside it, then into place.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
        let mut file = builder.tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    write().map_err(at(path))
}

/// Creates or empties a file that is written piece by piece.
pub(crate) fn create(path: &Path) -> Result<fs::File, Failure> {
    fs::File::create(path).map_err(at(path))
}

pub(crate) fn read_update(path: &Path) -> Result<Update, Failure> {
    let bytes = read(path)?;
    Update::from_safetensors(&bytes).map_err(|e| e.within(path.display()).into())
}

pub(crate) fn read_ranges(path: &Path) -> Result<RangesFile, Failure> {
    let text = fs::read_to_string(path).map_err(at(path))?;
    RangesFile::from_json(&text).map_err(|e| e.within(path.display()).into())
}

/// Reads a secret key, and warns if others can read it.
pub(crate) fn read_secret(path: &Path) -> Result<SecretKey, Failure> {
    let (key, warning) = SecretKey::load(path)?;
    if let Some(warning) = warning {
        warn(&warning);
    }
    Ok(key)
}

/// Reads a key of either kind, and warns if others can read a secret one.
pub(crate) fn read_key(path: &Path) -> Result<AnyKey, Failure> {
    let key = AnyKey::load(path)?;
    if let AnyKey::Secret(_, Some(warning)) = &key {
        warn(warning);
    }
    Ok(key)
}

/// Returns the ranges given on the command line, if any.
pub(crate) fn settled(
    weighting: &Weighting,
    update: &Update,
) -> Result<Option<Agreement>, Failure> {
    if let Some(path) = &weighting.ranges {
        let agreement = read_ranges(path)?.agreement().map_err(|e| e.within(path.display()))?;
        return Ok(Some(agreement));
    }
    let Some(clip) = weighting.clip else { return Ok(None) };
    let specs = update.specs();
    let ranges = vec![clip; specs.len()];
    Ok(Some(Agreement::new(specs, ranges, weighting.max_weight.unwrap_or(1))?))
}
