//! The stage that installs what other stages start and is missing: cargo-nextest, by cargo, and system packages,
//! only as root on Debian.

use std::{fs, io, path::Path};

use crate::{
    command::{cargo, output, program, run as run_seen, target},
    gpu::swiftshader,
    outcome::Outcome,
};

/// Something that other stages start.
struct Need {
    /// A command that succeeds where the packages are present.
    probe: &'static [&'static str],
    /// Debian's names.
    packages: &'static [&'static str],
}

const NEEDS: &[Need] = &[
    Need { probe: &["cc", "--version"], packages: &["gcc", "libc6-dev"] },
    Need { probe: &["python3", "-c", "import ensurepip, venv"], packages: &["python3-venv"] },
    Need { probe: &["ip", "-Version"], packages: &["iproute2"] },
    Need { probe: &["nft", "--version"], packages: &["nftables"] },
    // What the models of the hardware are compiled by, and what their benches are tied to.
    Need { probe: &["c++", "--version"], packages: &["g++"] },
    Need { probe: &["make", "--version"], packages: &["make"] },
    Need { probe: &["iverilog", "-V"], packages: &["iverilog"] },
    Need { probe: &["sh", "-c", FINDS_PYTHON], packages: &["libpython3-dev"] },
    // A Vulkan driver that is a program, and what finds drivers. They have no command that shows that they are there.
    Need { probe: &["sh", "-c", FINDS_VULKAN], packages: &["mesa-vulkan-drivers", "libvulkan1"] },
];
/// Succeeds where a shared library of Python is.
const FINDS_PYTHON: &str = "PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q libpython3";
/// Succeeds where both are.
const FINDS_VULKAN: &str = "ls /usr/share/vulkan/icd.d/lvp_icd.*.json && \
                            PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q libvulkan.so.1";

/// Installs what is missing, or prints how to.
pub(crate) fn run() -> Outcome {
    if output(&mut cargo("nextest --version")).is_err()
        && let Err(why) = run_seen(&mut cargo("install --locked cargo-nextest"))
    {
        return Outcome::Skipped(why);
    }
    let missing = missing_packages(NEEDS);
    let driver = (!swiftshader().is_file()).then_some(CHROMIUM);
    if missing.is_empty() && driver.is_none() {
        println!("nothing is missing");
        return Outcome::Passed;
    }
    if !is_root_on_debian() {
        if missing.is_empty() {
            return Outcome::Skipped(format!("{CHROMIUM}, which only root on Debian unpacks"));
        }
        let names = missing.join(" ");
        println!("missing: {names}; on Debian, as root:\n  {INSTALL} {names}");
        return Outcome::Skipped(format!("missing {names}, which only root on Debian installs"));
    }
    // Stages that cannot do without a package fail or skip by themselves, with their own reason.
    let mut lines = vec!["apt-get update --quiet".to_owned()];
    if !missing.is_empty() {
        lines.push(format!("{INSTALL} {}", missing.join(" ")));
    }
    let installed = lines.iter().try_for_each(|line| install(line));
    installed
        .and_then(|()| driver.map_or(Ok(()), unpack))
        .map_or_else(Outcome::Skipped, |()| Outcome::Passed)
}

const INSTALL: &str = "apt-get install --yes --no-install-recommends";
/// Debian's package that SwiftShader is in, among much that nobody needs here: it is unpacked under the
/// target folder, not installed.
const CHROMIUM: &str = "chromium-common";

fn unpack(package: &str) -> Result<(), String> {
    let folder = target().join("swiftshader");
    let wrong = |error: io::Error| format!("{package}: {error}");
    // An earlier try may have left some.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(wrong)?;
    let download = ["-o", "APT::Sandbox::User=root", "download", package];
    run_seen(program("apt-get").args(download).current_dir(&folder))?;
    let files = fs::read_dir(&folder).map_err(wrong)?.map(|entry| entry.map(|entry| entry.path()));
    for file in files.collect::<Result<Vec<_>, _>>().map_err(wrong)? {
        run_seen(program("dpkg").arg("-x").args([&file, &folder]))?;
        fs::remove_file(file).map_err(wrong)?;
    }
    Ok(())
}

fn missing_packages(needs: &[Need]) -> Vec<&'static str> {
    let absent = |need: &&Need| output(program(need.probe[0]).args(&need.probe[1..])).is_err();
    needs.iter().filter(absent).flat_map(|need| need.packages).copied().collect()
}

/// Never by way of sudo: a test must not ask for a password.
fn is_root_on_debian() -> bool {
    let root = output(program("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    root && Path::new("/etc/debian_version").exists()
}

fn install(line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let mut command = program(words.next().unwrap_or_default());
    run_seen(command.args(words).env("DEBIAN_FRONTEND", "noninteractive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_named() {
        let needs = [
            Need { probe: &["ciphergram-no-such-program"], packages: &["absent"] },
            Need { probe: &["cargo", "--version"], packages: &["present"] },
        ];
        assert_eq!(missing_packages(&needs), ["absent"]);
    }
}
