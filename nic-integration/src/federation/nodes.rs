//! Files of node keys: identities, and who may take part.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

use ciphergram_he::random;
use zeroize::Zeroizing;

use super::Error;
use crate::proto::{Identity, NodeId};

/// The nodes that may take part, each with the one contributor that it may be, or none for any.
pub type Allowed = BTreeMap<NodeId, Option<u16>>;

/// Draws a fresh identity.
///
/// # Errors
///
/// No randomness.
pub fn draw_identity() -> Result<Identity, Error> {
    Ok(Identity::from_secret(&*random::bytes::<32>()?)?)
}

/// Reads an identity file: the secret key as one line of base64, after comments.
///
/// # Errors
///
/// It is missing, or no identity; the path is named.
pub fn read_identity(path: &Path) -> Result<Identity, Error> {
    let text = Zeroizing::new(read(path)?);
    let line = content(&text).next().map_or("", |(_, line)| line);
    let identity = Identity::from_text(line);
    identity
        .map_err(|_| bad(path, "no identity; `ciphergram identity --out FILE` makes one".into()))
}

/// Writes an identity file, readable by its owner only, which names the node in a comment.
///
/// # Errors
///
/// The path exists or cannot be written.
pub fn write_identity(path: &Path, identity: &Identity) -> Result<(), Error> {
    let secret = identity.to_text();
    let text = Zeroizing::new(format!("# secret key of node {}\n{}\n", identity.id(), *secret));
    write(path, text.as_bytes(), 0o600)
}

/// Reads a file of the nodes that may take part: a node key and a contributor's number a line, `*`
/// in place of the number for any; `#` begins a comment.
///
/// # Errors
///
/// It is missing or empty, a line is something else, or one node is there twice; path and line are named.
pub fn read_allowed(path: &Path) -> Result<Allowed, Error> {
    let text = read(path)?;
    let mut allowed = Allowed::new();
    for (number, line) in content(&text) {
        let entry = || {
            let (node, contributor) = line.split_once(char::is_whitespace)?;
            let contributor = match contributor.trim() {
                "*" => None,
                number => Some(number.parse().ok()?),
            };
            Some((node.parse().ok()?, contributor))
        };
        let why = |what: &str| bad(path, format!("line {number}: {what}"));
        let (node, contributor) = entry().ok_or_else(|| {
            why("expected a node key and a contributor's number, or * for any number")
        })?;
        if allowed.insert(node, contributor).is_some() {
            return Err(why("this node is on an earlier line already"));
        }
    }
    if allowed.is_empty() {
        return Err(bad(path, "it lists no node, so that none could take part".into()));
    }
    Ok(allowed)
}

/// Writes a file of the nodes that may take part.
///
/// # Errors
///
/// The path exists or cannot be written.
pub fn write_allowed(path: &Path, allowed: &Allowed) -> Result<(), Error> {
    let line = |(node, contributor): (&NodeId, &Option<u16>)| match contributor {
        Some(number) => format!("{node} {number}\n"),
        None => format!("{node} *\n"),
    };
    let lines: String = allowed.iter().map(line).collect();
    write(path, format!("# node key, contributor\n{lines}").as_bytes(), 0o644)
}

/// Reads a file with one node key.
///
/// # Errors
///
/// It is missing or holds something else; the path is named.
pub fn read_node(path: &Path) -> Result<NodeId, Error> {
    let text = read(path)?;
    let line = content(&text).next().map_or("", |(_, line)| line);
    line.parse().map_err(|_| bad(path, "no node key: 43 characters of base64".into()))
}

/// Writes a file with one node key.
///
/// # Errors
///
/// The path exists or cannot be written.
pub fn write_node(path: &Path, node: NodeId) -> Result<(), Error> {
    write(path, format!("{node}\n").as_bytes(), 0o644)
}

/// Returns the lines that hold more than a comment, and their numbers.
fn content(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    (1..).zip(lines).filter(|(_, line)| !line.is_empty())
}

fn bad(path: &Path, why: String) -> Error {
    Error::NodeFile { path: path.into(), why }
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|e| bad(path, e.to_string()))
}

fn write(path: &Path, text: &[u8], mode: u32) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    let mut file = options.open(path).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            bad(path, "it exists already, and is not overwritten".into())
        }
        _ => bad(path, e.to_string()),
    })?;
    file.write_all(text).and_then(|()| file.sync_all()).map_err(|e| {
        // Half a file would stand in the way of the next attempt.
        let _ = fs::remove_file(path);
        bad(path, e.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_read_back_and_are_not_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let path = |name| place.path().join(name);
        let identity = draw_identity().unwrap();
        write_identity(&path("me"), &identity).unwrap();
        assert_eq!(read_identity(&path("me")).unwrap().id(), identity.id());
        assert!(write_identity(&path("me"), &identity).is_err());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(path("me")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        write_node(&path("node"), identity.id()).unwrap();
        assert_eq!(read_node(&path("node")).unwrap(), identity.id());
        let other = draw_identity().unwrap().id();
        let allowed = Allowed::from([(identity.id(), Some(7)), (other, None)]);
        write_allowed(&path("allowed"), &allowed).unwrap();
        assert_eq!(read_allowed(&path("allowed")).unwrap(), allowed);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let place = tempfile::tempdir().unwrap();
        let node = draw_identity().unwrap().id();
        for (at, text, word) in [
            (0, format!("# me\n{node}\n"), "line 2: expected a node key"),
            (1, format!("{node} x\n"), "line 1: expected a node key"),
            (2, format!("{node} 70000\n"), "line 1: expected a node key"),
            (3, format!("\n{node} 1\n{node} 2 # again\n"), "line 3: this node is on an earlier"),
        ] {
            let path = place.path().join(at.to_string());
            fs::write(&path, text).unwrap();
            let told = read_allowed(&path).unwrap_err().to_string();
            assert!(told.contains(word) && told.contains(&path.display().to_string()), "{told}");
        }
        let path = place.path().join("1");
        assert!(read_identity(&path).err().unwrap().to_string().contains("ciphergram identity"));
        assert!(read_identity(&place.path().join("none")).is_err());
    }
}
