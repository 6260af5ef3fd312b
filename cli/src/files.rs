//! Reading and writing files, each error with its path.

mod folder;
mod kind;
mod output;

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use ciphergram_accel::Engine;
use ciphergram_he::{
    AnyKey, Error, Integers, Job, KeyFile, Member, MemberFiles, PublicKey, SecretKey, Update,
    codec::RangesFile,
};

use crate::{
    args::{Agreed, Used},
    failure::{Failure, at},
    report::warn,
};
pub(crate) use folder::{KEY_FILES, fill, refuse_keys};
pub(crate) use kind::FileKind;
pub(crate) use output::OutputFile;

/// Reads a file; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    if path.as_os_str() != "-" {
        return fs::read(path).map_err(at(path));
    }
    let mut bytes = vec![];
    let read = std::io::stdin().read_to_end(&mut bytes);
    read.map(|_| bytes).map_err(|e| Failure::Work(format!("standard input: {e}")))
}

/// Opens a file that is written piece by piece, in place: what is there when the process is killed counts. Follows the
/// rules of [`OutputFile`] for what may be replaced.
pub(crate) fn create(path: &Path, kind: FileKind) -> Result<fs::File, Failure> {
    match output::check(path, kind, &[])? {
        output::Standing::StandardOutput => {
            let (path, words) = (path.display(), kind.words());
            Err(Failure::Misuse(format!(
                "{path}: {words} cannot go to standard output, which has lines for people"
            )))
        }
        output::Standing::File(_) | output::Standing::Stream => {
            fs::File::create(path).map_err(at(path))
        }
    }
}

/// Returns the paths that were named.
pub(crate) fn named<'a>(paths: &[Option<&'a PathBuf>]) -> Vec<&'a Path> {
    paths.iter().filter_map(|path| path.map(PathBuf::as_path)).collect()
}

/// Opens a safetensors file, whose values stay in it; `-` is standard input.
pub(crate) fn read_update(path: &Path, integers: Integers) -> Result<Update, Failure> {
    if path.as_os_str() != "-" {
        return Ok(Update::open(path, integers)?);
    }
    Update::from_bytes(read(path)?, integers).map_err(|e| e.within(path.display()).into())
}

pub(crate) fn read_ranges(path: &Path) -> Result<RangesFile, Failure> {
    let text = String::from_utf8(read(path)?)
        .map_err(|_| Failure::Work(format!("{}: not a ranges file: no text", path.display())))?;
    RangesFile::from_json(&text).map_err(|e| e.within(path.display()).into())
}

/// Reads a secret key, and warns if others can read it.
pub(crate) fn read_secret(path: &Path) -> Result<SecretKey, Failure> {
    Ok(read_key(path)?.into_secret().map_err(|e| e.within(path.display()))?)
}

/// Reads a key of sums, and warns if others can read one that they must not.
pub(crate) fn read_key(path: &Path) -> Result<AnyKey, Failure> {
    let key = AnyKey::load(path)?;
    key.warning().into_iter().for_each(warn);
    Ok(key)
}

/// Reads a key of any scheme, and warns if others can read one that they must not.
pub(crate) fn read_any_key(path: &Path) -> Result<KeyFile, Failure> {
    let key = KeyFile::load(path)?;
    key.warning().into_iter().for_each(warn);
    Ok(key)
}

/// Finds the job and the ledger of a command's key.
pub(crate) fn beside_key(
    key: AnyKey,
    agreed: &Agreed,
    used: &Used,
) -> Result<MemberFiles, Failure> {
    let ledger = used.ledger.clone();
    Ok(MemberFiles::of_key(key, &agreed.key.path, agreed.job.as_deref(), ledger)?)
}

/// Returns the client of a command.
pub(crate) fn member(
    files: &MemberFiles,
    client: Option<u16>,
    engine: Arc<dyn Engine>,
) -> Result<Member<'_>, Failure> {
    let member = files.member(client, engine);
    Ok(member.map_err(|e| if matches!(e, Error::In { .. }) { e } else { e.within("--client") })?)
}

/// Reads the job of a command: the one named, or the one beside the key.
pub(crate) fn read_job(agreed: &Agreed, key: &PublicKey) -> Result<Job, Failure> {
    Ok(Job::of_key(&agreed.key.path, key, agreed.job.as_deref())?)
}

/// Reads a client's update and clips it, if it is asked for. Also returns how many values of each tensor were
/// clipped.
pub(crate) fn read_clipped(
    path: &Path,
    integers: Integers,
    clip: Option<f64>,
) -> Result<(Update, Vec<usize>), Failure> {
    let mut update = read_update(path, integers)?;
    if update.tensors().is_empty() && !update.kept().is_empty() {
        let path = path.display();
        return Err(Failure::Work(format!(
            "{path}: all its tensors are of integers, which are kept: --integers sum sums them"
        )));
    }
    let clipped = clip.map(|limit| update.clip(limit)).transpose();
    let clipped = clipped.map_err(|e| e.within(path.display()))?;
    Ok((update, clipped.unwrap_or_default()))
}
