//! Files of node keys: identities, and who may take part.
//!
//! A comment says what a file is and of which version: `# ciphergram identity 1` and `# ciphergram allow 1` in the
//! first line; and behind a node key, which is an argument of shells too, `#ciphergram-node-1`. Files of the first
//! version need not have it, and may be written by hand.

mod local;

use std::{collections::BTreeMap, fs, path::Path};

use ciphergram_he::{keys::write_new, random, versions};
use zeroize::Zeroizing;

use super::Error;
use crate::proto::{Identity, NodeId};
pub use local::{LocalNodes, allowed_by};

/// The version of all three files.
const VERSION: u32 = 1;

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
    identity_of(&read(path)?, path)
}

/// Reads the text of an identity file, which errors name.
///
/// # Errors
///
/// It is no identity.
pub fn identity_of(text: &str, path: &Path) -> Result<Identity, Error> {
    let none = "no identity: make a new one";
    check(text, path, "identity", none)?;
    let line = content(text).next().map_or("", |(_, line)| line);
    Identity::from_text(line).map_err(|_| bad(path, none.into()))
}

/// Writes an identity file, readable by its owner only, which names the node in a comment.
///
/// # Errors
///
/// The path exists or cannot be written.
pub fn write_identity(path: &Path, identity: &Identity) -> Result<(), Error> {
    let secret = identity.to_text();
    let first = versions::first_line("identity", VERSION);
    let text =
        Zeroizing::new(format!("{first}# secret key of node {}\n{}\n", identity.id(), *secret));
    Ok(write_new(path, text.as_bytes(), 0o600)?)
}

/// Reads a file of the nodes that may take part: a node key and a contributor's number a line, `*`
/// in place of the number for any; `#` begins a comment.
///
/// # Errors
///
/// It is missing or empty, a line is something else, or one node is there twice; path and line are named.
pub fn read_allowed(path: &Path) -> Result<Allowed, Error> {
    allowed_of(&read(path)?, path)
}

/// Reads the text of a file of the nodes that may take part, which errors name.
///
/// # Errors
///
/// It is empty, a line is something else, or one node is there twice; the line is named.
pub fn allowed_of(text: &str, path: &Path) -> Result<Allowed, Error> {
    check(text, path, "allow", "no allow list")?;
    let mut allowed = Allowed::new();
    for (number, line) in content(text) {
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
    let text = versions::first_line("allow", VERSION) + "# node key, contributor\n" + &lines;
    Ok(write_new(path, text.as_bytes(), 0o644)?)
}

/// Reads a file with one node key.
///
/// # Errors
///
/// It is missing or holds something else; the path is named.
pub fn read_node(path: &Path) -> Result<NodeId, Error> {
    node_of(&read(path)?, path)
}

/// Reads the text of a file with one node key, which errors name.
///
/// # Errors
///
/// It holds something else.
pub fn node_of(text: &str, path: &Path) -> Result<NodeId, Error> {
    let none = "no node key: 43 characters of base64";
    check(text, path, "node", none)?;
    let line = content(text).next().map_or("", |(_, line)| line);
    line.parse().map_err(|_| bad(path, none.into()))
}

/// Writes a file with one node key.
///
/// # Errors
///
/// The path exists or cannot be written.
pub fn write_node(path: &Path, node: NodeId) -> Result<(), Error> {
    Ok(write_new(path, format!("{node}#ciphergram-node-{VERSION}\n").as_bytes(), 0o644)?)
}

/// Returns the lines that hold more than a comment, and their numbers.
fn content(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    (1..).zip(lines).filter(|(_, line)| !line.is_empty())
}

fn bad(path: &Path, why: String) -> Error {
    Error::NodeFile { path: path.into(), why }
}

fn read(path: &Path) -> Result<Zeroizing<String>, Error> {
    let text = fs::read_to_string(path).map_err(|e| bad(path, e.to_string()))?;
    Ok(Zeroizing::new(text))
}

/// Refuses a text that says that it is of another kind or of a later version; `none` are the words if it is of
/// another kind.
fn check(text: &str, path: &Path, kind: &'static str, none: &str) -> Result<(), Error> {
    versions::check_lines(text, kind, VERSION).map_err(|e| match e {
        ciphergram_he::Error::Frame(_) => bad(path, e.to_string()),
        _ => bad(path, none.into()),
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
            let reported = read_allowed(&path).unwrap_err().to_string();
            assert!(
                reported.contains(word) && reported.contains(&path.display().to_string()),
                "{reported}"
            );
        }
        let path = place.path().join("1");
        assert!(
            read_identity(&path)
                .err()
                .unwrap()
                .to_string()
                .ends_with("no identity: make a new one")
        );
        assert!(read_identity(&place.path().join("none")).is_err());
    }
}
