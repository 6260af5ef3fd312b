//! The stage that installs system packages: only as root on Debian, and only what is missing.

use std::path::Path;

use crate::command::{output, program, run as run_seen};
use crate::stages::Outcome;

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
    // A Vulkan driver that is a program, and what finds drivers. No command of theirs tells that they are there.
    Need { probe: &["sh", "-c", FINDS_VULKAN], packages: &["mesa-vulkan-drivers", "libvulkan1"] },
];
/// Succeeds where both are.
const FINDS_VULKAN: &str = "ls /usr/share/vulkan/icd.d/lvp_icd.*.json && \
                            PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q libvulkan.so.1";

/// Installs what is missing, or tells how to.
pub(crate) fn run() -> Outcome {
    let missing = missing_packages(NEEDS);
    if missing.is_empty() {
        println!("nothing is missing");
        return Outcome::Passed;
    }
    let names = missing.join(" ");
    let line = format!("apt-get install --yes --no-install-recommends {names}");
    if !is_root_on_debian() {
        println!("missing: {names}; on Debian, as root:\n  {line}");
        return Outcome::Skipped(format!("missing {names}, which only root on Debian installs"));
    }
    // Stages that cannot do without a package fail or skip by themselves, with their own reason.
    install(&line).map_or_else(Outcome::Skipped, |()| Outcome::Passed)
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
    for line in ["apt-get update --quiet", line] {
        let mut words = line.split_whitespace();
        let mut command = program(words.next().unwrap_or_default());
        run_seen(command.args(words).env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    Ok(())
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
