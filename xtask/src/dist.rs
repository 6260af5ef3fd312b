//! `cargo xtask dist`: an archive to install from, the same bytes from the same commit, and on request the Python
//! package.
//!
//! The binary is built without the names of folders on this machine, in a target folder of its own: other flags
//! would make every other build anew. Entries are sorted, of one owner and one time.

mod licences;
mod python;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::command::{cargo, output, program, root, run as run_seen, target};

/// Files of the repository that are in the archive as they are, if they are there.
const FILES: [&str; 11] = [
    "README.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "benches/README.md",
    "cli/data/README.md",
    "nic-integration/PROTOCOL.md",
    "python/README.md",
];
/// Folders of the repository that are in it.
const FOLDERS: [&str; 3] = ["docs", "he/docs", "packaging"];
/// Shells, and where each looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/ciphergram"),
    ("zsh", "share/zsh/site-functions/_ciphergram"),
    ("fish", "share/fish/vendor_completions.d/ciphergram.fish"),
];

/// Builds the archive, the Python package if that is asked for, and their checksums in `target/dist`.
///
/// # Errors
///
/// Returns one line that says what failed and how.
pub(crate) fn run(with_python: bool) -> Result<(), String> {
    let archive = make(with_python)?;
    println!("{}", archive.strip_prefix(root()).unwrap_or(&archive).display());
    Ok(())
}

fn make(with_python: bool) -> Result<PathBuf, String> {
    let out = target().join("dist");
    let folder = out.join("build");
    let binary = build(&folder)?;
    let packages = licences::packages(licences::OWN)?;
    let own = packages.iter().find(|package| package.name == licences::OWN);
    let version = own.map(|package| &*package.version).ok_or("no package of our own")?;
    let name = format!("ciphergram-{version}-{}-linux", env::consts::ARCH);
    let filled = out.join(&name);
    fill(&filled, &binary, &packages).map_err(|e| format!("{}: {e}", filled.display()))?;
    let archive = out.join(format!("{name}.tar.gz"));
    pack(&out, &name, &archive, &time()?)?;
    let mut names = vec![format!("{name}.tar.gz")];
    if with_python {
        names.extend(python::make(&out, &folder)?);
    }
    let sums = output(program("sha256sum").args(names).current_dir(&out))?;
    let path = out.join("SHA256SUMS");
    fs::write(&path, sums).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(archive)
}

/// Builds the stripped binary in a target folder.
fn build(folder: &Path) -> Result<PathBuf, String> {
    let mut command = cargo("build --release --locked --package ciphergram");
    run_seen(release(&mut command, folder)?)?;
    Ok(folder.join("release/ciphergram"))
}

/// Makes a build one of a release: in a target folder, stripped, and without the names of this machine's folders.
fn release<'a>(command: &'a mut Command, folder: &Path) -> Result<&'a mut Command, String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo"))).ok_or("no home folder")?;
    // The folder of the build may lie outside of the root.
    let named = [(folder, "/build"), (&*home, "/cargo"), (root(), "/ciphergram")];
    let maps = |option: &str| {
        // Of several that fit, the compilers take the last.
        let maps = named.iter().rev().map(|(from, to)| format!("{option}={}={to}", from.display()));
        maps.collect::<Vec<_>>()
    };
    command.env("CARGO_ENCODED_RUSTFLAGS", maps("--remap-path-prefix").join("\u{1f}"));
    command.env("CFLAGS", maps("-ffile-prefix-map").join(" "));
    command.env("CARGO_INCREMENTAL", "0").env("CARGO_TARGET_DIR", folder);
    command
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    Ok(command)
}

/// Fills a folder, anew, with all that is in the archive.
fn fill(folder: &Path, binary: &Path, packages: &[licences::Package]) -> Result<(), String> {
    let wrong = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
        parent.and_then(|()| fs::write(&path, bytes)).map_err(|e| wrong(&path, e))
    };
    // An earlier one may stand there.
    let _ = fs::remove_dir_all(folder);
    put("THIRD-PARTY.txt", licences::text(packages, &licences::DATA)?.as_bytes())?;
    for name in files()? {
        let path = root().join(&name);
        put(&name, &fs::read(&path).map_err(|e| wrong(&path, e))?)?;
    }
    put("bin/ciphergram", &[])?;
    // With its mode: it may be executed.
    let copied = fs::copy(binary, folder.join("bin/ciphergram"));
    copied.map_err(|e| wrong(binary, e))?;
    for (shell, name) in COMPLETIONS {
        put(name, output(Command::new(binary).args(["complete", shell]))?.as_bytes())?;
    }
    let pages = folder.join("share/man/man1");
    fs::create_dir_all(&pages).map_err(|e| wrong(&pages, e))?;
    output(Command::new(binary).arg("man").arg(&pages)).map(drop)
}

/// Returns the files of the repository that are in the archive: those that git knows.
fn files() -> Result<Vec<String>, String> {
    let names = output(program("git").args(["ls-files", "-z", "--"]).args(FILES).args(FOLDERS))?;
    Ok(names.split_terminator('\0').map(str::to_owned).collect())
}

/// Returns the time of all entries, in seconds since 1970: that of the commit, unless `SOURCE_DATE_EPOCH` says another.
fn time() -> Result<String, String> {
    match env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => Ok(seconds),
        Err(_) => {
            output(program("git").args(["log", "-1", "--format=%ct"])).map(|s| s.trim().to_owned())
        }
    }
}

/// Packs a folder of `parent` so that nothing but what it holds decides on the bytes.
fn pack(parent: &Path, name: &str, archive: &Path, time: &str) -> Result<(), String> {
    let mut tar = program("tar");
    tar.args([
        "--create",
        "--sort=name",
        "--format=ustar",
        "--numeric-owner",
        "--owner=0",
        "--group=0",
    ]);
    // What may be executed is so for all, and only its owner writes.
    tar.args([
        "--mode=u=rwX,go=rX",
        &format!("--mtime=@{time}"),
        "--use-compress-program=gzip -9n",
    ]);
    tar.arg("--file").arg(archive).arg("--directory").arg(parent).arg(name);
    run_seen(&mut tar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_content_decides_on_the_bytes_of_an_archive() {
        let place = env::temp_dir().join(format!("ciphergram-dist-{}", std::process::id()));
        let made = ["one", "two"].map(|name| {
            let folder = place.join(name).join("it");
            fs::create_dir_all(folder.join("b")).unwrap();
            let mut files = vec![("b/z", "zz"), ("a", "aa"), ("c", "")];
            if name == "two" {
                files.reverse();
            }
            for (file, text) in files {
                fs::write(folder.join(file), text).unwrap();
            }
            let archive = place.join(format!("{name}.tar.gz"));
            pack(&place.join(name), "it", &archive, "1700000000").unwrap();
            archive
        });
        let [one, two] = made.each_ref().map(|archive| fs::read(archive).unwrap());
        assert_eq!(one, two);
        let list = output(program("tar").args(["-tvzf"]).arg(&made[0])).unwrap();
        let lines: Vec<_> = list.lines().collect();
        assert_eq!(lines.len(), 5, "{list}");
        assert!(
            lines.iter().all(|line| line.contains(" 0/0 ") && line.contains("2023-11-1")),
            "{list}"
        );
        fs::write(place.join("one/it/c"), "changed").unwrap();
        pack(&place.join("one"), "it", &made[0], "1700000000").unwrap();
        assert_ne!(fs::read(&made[0]).unwrap(), two);
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn what_the_archive_holds_of_the_repository_is_there() {
        let files = files().unwrap();
        for name in FILES.into_iter().chain(["docs/operations.md"]) {
            assert!(files.iter().any(|file| file == name), "{name}");
        }
    }
}
