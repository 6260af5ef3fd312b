//! The processor: its name, its numbers, and the microarchitecture that they stand for.

use std::fs;

use serde::{Deserialize, Serialize};

/// A processor as it describes itself. All but the name are left out where it has no such figures.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Processor {
    /// The model that the processor names, else the system; else the architecture.
    #[serde(rename = "cpu")]
    pub(crate) name: String,
    /// Family, model and stepping, which tell processors of one name apart.
    #[serde(default)]
    pub(crate) signature: Option<[u32; 3]>,
    /// The design, Zen 4 say, where these numbers are known.
    #[serde(default)]
    pub(crate) microarchitecture: Option<String>,
    /// The instructions that the CPU engine has paths for.
    #[serde(default)]
    pub(crate) features: Vec<String>,
}

impl Processor {
    /// Returns the processor that this runs on.
    pub(crate) fn here() -> Self {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))
        };
        let system = field("model name").map(|name| name.trim().to_owned());
        let name = brand().or(system).unwrap_or_else(|| std::env::consts::ARCH.into());
        let number = |name| field(name)?.trim().parse().ok();
        let signature = || Some([number("cpu family")?, number("model\t")?, number("stepping")?]);
        let (signature, vendor) = (signature(), field("vendor_id").unwrap_or_default().trim());
        let known = signature.and_then(|[family, model, stepping]| match vendor {
            "AuthenticAMD" => amd(family, model),
            "GenuineIntel" => intel(family, model, stepping),
            _ => None,
        });
        Self {
            name,
            signature,
            microarchitecture: known.map(str::to_owned),
            features: features().into_iter().map(str::to_owned).collect(),
        }
    }

    /// Returns the name, the design and the numbers, as far as they are known.
    pub(crate) fn describe(&self) -> String {
        let numbers = self.signature.map(|[family, model, stepping]| {
            format!("family {family:#x}, model {model:#x}, stepping {stepping}")
        });
        let more: Vec<_> = self.microarchitecture.clone().into_iter().chain(numbers).collect();
        match more.is_empty() {
            true => self.name.clone(),
            false => format!("{} ({})", self.name, more.join("; ")),
        }
    }
}

/// Returns the name that the processor gives itself.
#[cfg(target_arch = "x86_64")]
fn brand() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    const LEAVES: std::ops::RangeInclusive<u32> = 0x8000_0002..=0x8000_0004;
    if __cpuid(0x8000_0000).eax < *LEAVES.end() {
        return None;
    }
    let words = LEAVES.map(__cpuid).flat_map(|leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]);
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).take_while(|&byte| byte != 0).collect();
    let name = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!name.is_empty()).then_some(name)
}

#[cfg(not(target_arch = "x86_64"))]
fn brand() -> Option<String> {
    None
}

/// Returns those instructions of the processor that the CPU engine has paths for.
#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    let all = [
        ("avx512ifma", is_x86_feature_detected!("avx512ifma")),
        ("avx512vbmi", is_x86_feature_detected!("avx512vbmi")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("adx", is_x86_feature_detected!("adx")),
    ];
    all.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<&'static str> {
    vec![]
}

/// Returns AMD's design of these numbers, by its guides to processor programming.
fn amd(family: u32, model: u32) -> Option<&'static str> {
    Some(match (family, model) {
        (0x17, 0x00..=0x2f) => "Zen",
        (0x17, 0x30..) => "Zen 2",
        (0x19, 0x10..=0x1f | 0x60..=0x7f) => "Zen 4",
        (0x19, 0xa0..=0xaf) => "Zen 4c",
        (0x19, _) => "Zen 3",
        (0x1a, _) => "Zen 5",
        _ => return None,
    })
}

/// Returns Intel's design of these numbers, by the tables of its software developer's manual.
fn intel(family: u32, model: u32, stepping: u32) -> Option<&'static str> {
    Some(match (family, model) {
        (6, 0x4f | 0x56) => "Broadwell",
        (6, 0x55) => match stepping {
            0..=4 => "Skylake-SP",
            5..=9 => "Cascade Lake",
            _ => "Cooper Lake",
        },
        (6, 0x6a | 0x6c) => "Ice Lake-SP",
        (6, 0x7d | 0x7e) => "Ice Lake",
        (6, 0x8c | 0x8d) => "Tiger Lake",
        (6, 0xa7) => "Rocket Lake",
        (6, 0x97 | 0x9a) => "Alder Lake",
        (6, 0xb7 | 0xba | 0xbf) => "Raptor Lake",
        (6, 0x8f) => "Sapphire Rapids",
        (6, 0xcf) => "Emerald Rapids",
        (6, 0xad | 0xae) => "Granite Rapids",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_designs() {
        assert_eq!(amd(0x19, 0x11), Some("Zen 4"));
        assert_eq!(amd(0x19, 0x01), Some("Zen 3"));
        assert_eq!(intel(6, 0x55, 7), Some("Cascade Lake"));
        assert_eq!(intel(6, 0x8f, 8), Some("Sapphire Rapids"));
        assert_eq!((amd(5, 1), intel(15, 2, 0)), (None, None));
    }

    #[test]
    fn what_is_known_is_said() {
        let mut processor = Processor {
            name: "EPYC".into(),
            signature: Some([25, 17, 1]),
            microarchitecture: Some("Zen 4".into()),
            features: vec![],
        };
        let all = "EPYC (Zen 4; family 0x19, model 0x11, stepping 1)";
        assert_eq!(processor.describe(), all);
        (processor.signature, processor.microarchitecture) = (None, None);
        assert_eq!(processor.describe(), "EPYC");
        assert!(!Processor::here().name.is_empty());
    }
}
