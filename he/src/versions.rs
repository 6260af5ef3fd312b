//! Versions of files. What reads a version reads the one before it too, and says of a later one that it is later.

use serde::Deserialize;

use crate::{Error, error::FrameError};

/// Refuses a version later than the last one known.
///
/// # Errors
/// [`FrameError::Version`].
pub fn check(found: u64, known: u32) -> Result<(), Error> {
    if found <= known.into() { Ok(()) } else { Err(FrameError::Version { found, known }.into()) }
}

/// Checks what a JSON file says of its kind and version, before its other members are looked at: those of a later
/// version may be others.
///
/// # Errors
/// It is of another kind, of a later version, or no JSON.
pub(crate) fn check_json(
    text: &str,
    what: &'static str,
    kind: &str,
    known: u32,
) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Members {
        kind: String,
        version: u64,
    }
    let invalid = |why: String| Error::Format { what, why };
    let found: Members = serde_json::from_str(text).map_err(|e| invalid(e.to_string()))?;
    if found.kind != kind || found.version == 0 {
        return Err(invalid(format!("kind {:?}, version {}", found.kind, found.version)));
    }
    check(found.version, known)
}

/// Returns the first line of a file of lines of this kind and version.
#[must_use]
pub fn first_line(kind: &str, version: u32) -> String {
    format!("# ciphergram {kind} {version}\n")
}

/// Checks what a file of lines says of its kind and version in a comment, `# ciphergram KIND VERSION` or
/// `#ciphergram-KIND-VERSION`. Files of the first version may say nothing.
///
/// # Errors
/// It is of another kind, or of a later version.
pub fn check_lines(text: &str, kind: &'static str, known: u32) -> Result<(), Error> {
    for comment in text.lines().filter_map(declaring) {
        let mut words = comment.split([' ', '-', ':']).filter(|word| !word.is_empty());
        if words.next() != Some("ciphergram") {
            continue;
        }
        let (found, version) = (words.next().unwrap_or_default(), words.next());
        if found != kind {
            return Err(Error::Format { what: kind, why: format!("it is of kind {found:?}") });
        }
        return match version.and_then(|version| version.parse().ok()) {
            Some(version) => check(version, known),
            None => Err(Error::Format { what: kind, why: "it names no version".into() }),
        };
    }
    Ok(())
}

/// Returns the comment of a line, if it may say of which kind the file is: one behind a blank is a person's.
fn declaring(line: &str) -> Option<&str> {
    let (before, comment) = line.split_once('#')?;
    (!before.ends_with(char::is_whitespace)).then_some(comment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_tell_kind_and_version() {
        let check = |text: &str| check_lines(text, "allow", 2);
        for old in [
            "",
            "# mine\nkey 1\n",
            "# ciphergram allow 1\n",
            "key#ciphergram-allow-2: x",
            "key 1 # ciphergram-client-1\n",
        ] {
            assert_eq!(check(old), Ok(()), "{old}");
        }
        let newer = FrameError::Version { found: 3, known: 2 };
        assert_eq!(check("# ciphergram allow 3"), Err(newer.into()));
        for wrong in ["# ciphergram node 1", "# ciphergram allow", "# ciphergram allow x"] {
            assert!(matches!(check(wrong), Err(Error::Format { .. })), "{wrong}");
        }
    }
}
