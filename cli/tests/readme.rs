//! README's commands, as written.

#![allow(clippy::unwrap_used, reason = "tests, where a panic is the report")]

use std::{fs, path::Path, process::Command};

use ciphergram_he::{Dtype, Tensor, TensorSpec, Update};

/// What the Python lines of the README make: three files of normal-looking values.
fn make_tensors(folder: &Path) {
    for client in 0..3u32 {
        let tensor = |name: &str, shape: Vec<u64>| {
            let spec = TensorSpec { name: name.into(), dtype: Dtype::F32, shape };
            let count = spec.values().unwrap() as u32;
            let value = |i: u32| f64::from((i + client).wrapping_mul(2_654_435_761) >> 20) / 4e5;
            let values: Vec<_> = (0..count).map(|i| value(i) - 0.005).collect();
            Tensor::from_values(spec, &values).unwrap()
        };
        let weight = tensor("layer.weight", vec![300, 70]);
        let update = Update::new(vec![weight, tensor("layer.bias", vec![70])]);
        let path = folder.join(format!("g{client}.safetensors"));
        fs::write(path, update.to_safetensors().unwrap()).unwrap();
    }
}

/// Every line of the README's `bash` blocks, in order.
fn script() -> String {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let text = fs::read_to_string(readme).unwrap();
    let mut inside = false;
    let mut script = String::from("set -eu\n");
    for line in text.lines() {
        match line {
            "```bash" => inside = true,
            "```" => inside = false,
            _ if inside => script += &format!("{line}\n"),
            _ => {}
        }
    }
    script
}

#[test]
fn every_command_of_the_readme_runs() {
    let folder = tempfile::tempdir().unwrap();
    make_tensors(folder.path());
    let script = script();
    assert!(script.lines().count() > 15, "the README has its commands in bash blocks");
    // The port of the README may be taken on this machine; any free one serves as well.
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let script = script.replace("127.0.0.1:7700", &free.to_string());
    let binary = Path::new(env!("CARGO_BIN_EXE_ciphergram"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder.path())
        .env("PATH", path)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{stderr}", String::from_utf8_lossy(&output.stdout));
    for error in stderr.lines() {
        assert!(error.starts_with("warning: "), "{error}");
    }
    let mean = |i: u32| fs::read(folder.path().join(format!("mean{i}.safetensors"))).unwrap();
    assert!(mean(0) == mean(1) && mean(1) == mean(2), "all clients have the same mean");
    let update = Update::from_safetensors(&mean(0)).unwrap();
    assert_eq!(update.specs().len(), 2);
}
