//! The stage that reads every file of the repository for what must not be published or grow.
//!
//! It sees files that git tracks and files that a commit would add, and looks for:
//!
//! - paths of somebody's machine, or outside the repository, that no clone has;
//! - package registries other than the public one, in the lock file;
//! - hosts of registries that this machine is set up to use;
//! - Rust files that have grown too long to read.

use std::path::Path;

use crate::command::{output, program, root};
use crate::stages::Outcome;

/// A Rust file above this many lines is several.
const MAX_RUST_LINES: usize = 700;
/// The only registry that the lock file may name.
const PUBLIC_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Hosts that settings may name without making them a secret, in halves so that this file has none.
const PUBLIC_HOSTS: [&str; 7] = [
    "127.0.0.1",
    "crates.io",
    concat!("files.python", "hosted.org"),
    "github.com",
    concat!("index.", "crates.io"),
    concat!("py", "pi.org"),
    concat!("static.", "crates.io"),
];
/// Beginnings of paths outside the repository, in halves so that this file has none.
const MACHINE_PATHS: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Use", "rs/"),
    concat!("sha", "red/"),
];

/// Names the first few offences.
pub(crate) fn run() -> Outcome {
    let list = "ls-files --cached --others --exclude-standard -z";
    let names = match output(program("git").args(list.split(' '))) {
        Ok(names) => names,
        Err(reason) => return Outcome::Skipped(reason),
    };
    let hosts = configured_hosts();
    let names: Vec<&str> = names.split_terminator('\0').collect();
    let offences: Vec<String> = names.iter().flat_map(|name| offences_in(name, &hosts)).collect();
    for offence in &offences {
        println!("{offence}");
    }
    println!("{} files read, {} offences", names.len(), offences.len());
    match offences.first() {
        None => Outcome::Passed,
        Some(first) => Outcome::Failed(format!("{} offences, first {first}", offences.len())),
    }
}

fn offences_in(name: &str, hosts: &[String]) -> Vec<String> {
    // A file that was deleted but not yet removed from git has no content to judge.
    std::fs::read(root().join(name)).map_or_else(|_| Vec::new(), |bytes| judge(name, &bytes, hosts))
}

/// What is wrong with one file.
fn judge(name: &str, bytes: &[u8], hosts: &[String]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut offences = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(complaint) = judge_line(name, line, hosts) {
            offences.push(format!("{name}:{}: {complaint}", index + 1));
        }
    }
    let lines = text.lines().count();
    if name.ends_with(".rs") && lines > MAX_RUST_LINES {
        offences.push(format!("{name}: {lines} lines, more than {MAX_RUST_LINES}"));
    }
    offences
}

fn judge_line(name: &str, line: &str, hosts: &[String]) -> Option<String> {
    if let Some(path) = MACHINE_PATHS.iter().find(|path| begins_a_path(line, path)) {
        return Some(format!("{path} begins a path that no clone has"));
    }
    if hosts.iter().any(|host| line.contains(host)) {
        return Some("names a host of this machine's registry settings".to_owned());
    }
    let source = line.strip_prefix("source = ").map(|source| source.trim_matches('"'));
    let foreign = |source: &str| name == "Cargo.lock" && source != PUBLIC_REGISTRY;
    source.filter(|source| foreign(source)).map(|source| format!("{source} is not crates.io"))
}

/// Whether `path` stands in `line` other than in the middle of a longer relative path or name.
fn begins_a_path(line: &str, path: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "-_~}".contains(c);
    let dots = |before: &str| path.starts_with('/') && before.ends_with('.');
    line.match_indices(path).any(|(at, _)| {
        let before = &line[..at];
        !before.ends_with(inside) && !dots(before)
    })
}

/// Hosts through which this machine's settings reach registries, the public ones left out.
fn configured_hosts() -> Vec<String> {
    let settings = [
        output(program("python3").args(["-m", "pip", "config", "list"])).unwrap_or_default(),
        std::env::vars()
            .filter(|(key, _)| is_registry_setting(key))
            .map(|(_, url)| url + "\n")
            .collect(),
        cargo_settings(),
    ];
    let mut hosts: Vec<String> = settings.iter().flat_map(|text| hosts_in(text)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

fn is_registry_setting(key: &str) -> bool {
    ["INDEX", "PROXY", "REGISTR"].iter().any(|word| key.to_uppercase().contains(word))
}

fn cargo_settings() -> String {
    let home = std::env::var_os("CARGO_HOME").unwrap_or_default();
    let files = ["config.toml", "config"].map(|file| Path::new(&home).join(file));
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect()
}

/// The host of every URL in `text`. One without a dot could be an ordinary word, so it is left out.
fn hosts_in(text: &str) -> Vec<String> {
    let authorities = text.split("://").skip(1).map(|rest| {
        let end = rest.find(|c: char| "/'\" \n,]".contains(c)).unwrap_or(rest.len());
        rest[..end].rsplit('@').next().unwrap_or_default()
    });
    let hosts = authorities.filter_map(|authority| authority.split(':').next());
    hosts
        .filter(|host| host.contains('.') && !PUBLIC_HOSTS.contains(host))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_are_found_where_they_begin() {
        let [work, root, ..] = MACHINE_PATHS;
        let notes = MACHINE_PATHS[4];
        for line in [
            format!("see {work}x"),
            format!("\"{root}x\""),
            format!("file://{work}x"),
            format!("see ../{notes}NOTES.md"),
            format!("{notes}NOTES.md"),
        ] {
            assert_eq!(judge("a.md", line.as_bytes(), &[]).len(), 1, "{line}");
        }
        for line in [format!("art{work}x"), format!("..{work}x"), format!("pre{notes}x")] {
            assert_eq!(judge("a.md", line.as_bytes(), &[]), [] as [&str; 0], "{line}");
        }
    }

    #[test]
    fn foreign_registries_are_found_in_the_lock_file() {
        let public = format!("[[package]]\nsource = \"{PUBLIC_REGISTRY}\"\n");
        assert_eq!(judge("Cargo.lock", public.as_bytes(), &[]), [] as [&str; 0]);
        let foreign = b"version = 4\nsource = \"sparse+https://mirror.example/index/\"\n";
        assert_eq!(
            judge("Cargo.lock", foreign, &[]),
            ["Cargo.lock:2: sparse+https://mirror.example/index/ is not crates.io"]
        );
    }

    #[test]
    fn configured_hosts_are_taken_from_urls() {
        let text = "index-url='https://me:word@mirror.example:81/simple'\n\
                    a = \"https://crates.io/simple\"\n\
                    proxy = http://10.0.0.7:3128\n\
                    registry = \"sparse+https://other.example/\"\n\
                    http://localhost:1/ http://127.0.0.1:2";
        assert_eq!(hosts_in(text), ["mirror.example", "10.0.0.7", "other.example"]);
        let hosts = hosts_in(text);
        let offences = judge("a.toml", b"x = \"https://mirror.example/y\"", &hosts);
        assert_eq!(offences, ["a.toml:1: names a host of this machine's registry settings"]);
    }

    #[test]
    fn overlong_rust_files_are_found() {
        let lines = "//\n".repeat(MAX_RUST_LINES);
        assert_eq!(judge("a.rs", lines.as_bytes(), &[]), [] as [&str; 0]);
        let longer = lines + "//\n";
        assert_eq!(judge("a.rs", longer.as_bytes(), &[]), ["a.rs: 701 lines, more than 700"]);
        assert_eq!(judge("a.json", longer.as_bytes(), &[]), [] as [&str; 0]);
    }
}
