//! The commands of README.md and docs/, as written, and the links of all pages.
//!
//! Each page is one script, in a folder with three tensor files and a model. Its `sh` blocks run; its `console`
//! blocks run and print what they show, where `…` stands for anything and a decimal number for any
//! other.

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::Command,
};

use ciphergram_he::{Dtype, Tensor, TensorSpec, Update};
use safetensors::tensor::TensorView;

use crate::support::place;

/// A limit of five minutes, and stand-ins for commands that a test must not run: builds,
/// comparisons, an HTTP client that may be missing, and a service manager, which runs the unit's
/// own command.
const STAND_INS: &str = r#"
set -eu
(trap 'kill $!; exit' TERM; sleep 300 & wait $! && kill $$) >&- 2>&- & watchdog=$!; disown
trap 'kill $watchdog $(jobs -p) $(cat pid 2>&-) 2>&- || true' EXIT
python3() { [ -e "$ROOT/$1" ]; }
cargo() {
    case "$1 $2" in
        run*) shift 3; ciphergram "$@" ;;
        "xtask relay") shift 2; exec relay "$@" ;;
    esac
}
curl() {
    local url=${!#}; url=${url#http://}; local host=${url%%/*}
    exec 9<>"/dev/tcp/${host%:*}/${host#*:}"
    printf 'GET /%s HTTP/1.1\r\n\r\n' "${url#*/}" >&9
    sed '1,/^\r$/d' <&9
}
systemctl() {
    if [ "$1" = reload ]; then kill -HUP "$(cat pid)"; return; fi
    if [ -e pid ]; then kill "$(cat pid)"; while kill -0 "$(cat pid)" 2>&-; do sleep 0.01; done; rm pid; fi
    [ "$1" = stop ] || (unit >>journal 2>&1 & echo $! >pid)
}
journalctl() { cat journal; }
export CREDENTIALS_DIRECTORY=etc CIPHERGRAM_GPU=none HOME=$PWD
"#;

/// A page, and the folder in which its script runs.
struct Page {
    text: String,
    /// The unit of systemd.
    unit: String,
    folder: tempfile::TempDir,
}

/// A command of a `console` block and the lines that it shows.
struct Shown {
    command: String,
    lines: Vec<String>,
}

impl Page {
    /// Reads a page, its ports replaced by free ones and the folder of a service's files by one of
    /// the script's own.
    fn new(name: &str) -> Self {
        let text = fs::read_to_string(root().join(name)).unwrap();
        let udp = free_ports();
        let http = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let own = |text: String| {
            text.replace(":7700", &format!(":{}", udp[0]))
                .replace(":7710", &format!(":{}", udp[1]))
                .replace(":9464", &format!(":{http}"))
                .replace("/etc/ciphergram", "etc")
                .replace("/etc/systemd/system", "etc")
        };
        let folder = tempfile::tempdir().unwrap();
        let packaging = folder.path().join("packaging");
        fs::create_dir(&packaging).unwrap();
        let packaged = |name: &str| {
            let text = own(fs::read_to_string(root().join("packaging").join(name)).unwrap());
            fs::write(packaging.join(name), &text).unwrap();
            text
        };
        let page = Self { text: own(text), unit: packaged("ciphergram.service"), folder };
        make_tensors(page.folder.path());
        make_model(page.folder.path());
        page
    }

    /// Runs the page's script, and compares what its commands printed with what the page shows.
    fn run(&self) {
        let (script, shown) = self.script();
        assert!(!script.contains("/etc/") && !script.contains("sudo"), "{script}");
        let binary = Path::new(place::binary());
        let path = std::env::var("PATH").unwrap();
        let output = Command::new("bash")
            .args(["-c", &script])
            .current_dir(self.folder.path())
            .env("ROOT", root())
            .env("PATH", format!("{0}:{0}/examples:{path}", binary.parent().unwrap().display()))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}{stderr}", String::from_utf8_lossy(&output.stdout));
        for error in stderr.lines() {
            // What is killed says no more than that.
            assert!(error.starts_with("warning: ") || error == "stopped", "{error}");
        }
        for (index, Shown { command, lines }) in shown.iter().enumerate() {
            let printed = fs::read_to_string(self.folder.path().join(output_name(index))).unwrap();
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            assert!(matches(&lines, &printed.lines().collect::<Vec<_>>()), "{command}\n{printed}");
        }
    }

    /// Returns the page's commands, and those whose output it shows.
    fn script(&self) -> (String, Vec<Shown>) {
        let (mut script, mut shown) = (STAND_INS.to_owned(), vec![]);
        let unit = self.unit.replace("\\\n", " ");
        let value = |key| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        let (variable, command) = (value("Environment="), value("ExecStart=/usr/local/bin/"));
        script += &format!("unit() {{ {variable} exec {command}; }}\n");
        for (language, lines) in blocks(&self.text) {
            match language {
                "sh" => script += &(lines.join("\n") + "\n"),
                "console" => {
                    for command in console(&lines) {
                        script +=
                            &format!("{{ {}\n}} > {}\n", command.command, output_name(shown.len()));
                        shown.push(command);
                    }
                }
                _ => {}
            }
        }
        assert!(
            blocks(&self.text).iter().any(|(language, _)| ["sh", "console"].contains(language)),
            "a page without commands shows nothing"
        );
        (script, shown)
    }

    /// Returns a file that the script left.
    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(name)).unwrap()
    }
}

/// Returns the file that holds what the command of this index printed.
fn output_name(index: usize) -> String {
    format!("printed.{index}")
}

/// Returns the root of the repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Two free UDP ports, the first with a free one after it for a second pipeline.
fn free_ports() -> [u16; 2] {
    let bind = |port| UdpSocket::bind(("127.0.0.1", port));
    loop {
        let sockets = [bind(0).unwrap(), bind(0).unwrap()];
        let ports = sockets.each_ref().map(|socket| socket.local_addr().unwrap().port());
        if ports[0].checked_add(1).is_some_and(|next| bind(next).is_ok()) {
            return ports;
        }
    }
}

/// Writes the files that the Python lines of `docs/files.md` make: three of normal-looking values.
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

/// Writes the files that the Python lines of `docs/vectors.md` make: a layer, and samples for it.
fn make_model(folder: &Path) {
    let tensor = |shape: &[usize]| {
        let count = shape.iter().product::<usize>() as u32;
        let values = (0..count).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as f32 / 4e5 - 0.005);
        (shape.to_vec(), values.flat_map(f32::to_le_bytes).collect::<Vec<_>>())
    };
    let write = |name: &str, tensors: &[(&str, &[usize])], metadata| {
        let made: Vec<_> = tensors.iter().map(|(name, shape)| (*name, tensor(shape))).collect();
        let views = made.iter().map(|(name, (shape, bytes))| {
            (*name, TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes).unwrap())
        });
        fs::write(folder.join(name), safetensors::serialize(views, metadata).unwrap()).unwrap();
    };
    let metadata = [("output", "sigmoid"), ("degree", "15"), ("interval", "8")];
    let metadata = metadata.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let layer: [(&str, &[usize]); 2] = [("weight", &[10, 64]), ("bias", &[10])];
    write("model.safetensors", &layer, Some(metadata.into()));
    write("x.safetensors", &[("x", &[5, 64])], None);
}

/// Returns the fenced blocks of a page: their language and lines, without the indentation of a
/// list.
fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let (mut blocks, mut inside) = (vec![], false);
    for line in text.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            inside = !inside;
            if inside {
                blocks.push((language, vec![]));
            }
        } else if let (true, Some((_, lines))) = (inside, blocks.last_mut()) {
            lines.push(line);
        }
    }
    blocks
}

/// Returns the commands of a `console` block.
fn console(lines: &[&str]) -> Vec<Shown> {
    let mut all: Vec<Shown> = vec![];
    for line in lines {
        match (line.split_once(' '), all.last_mut()) {
            (Some(("$", command)), _) => {
                all.push(Shown { command: command.into(), lines: vec![] });
            }
            (Some((">", more)), Some(shown)) => shown.command += &format!("\n{more}"),
            (_, Some(shown)) => shown.lines.push((*line).into()),
            (_, None) => panic!("a console block begins with a command: {line}"),
        }
    }
    all
}

/// Returns whether the lines shown are those printed; a line that is `…` alone stands for any
/// number of lines.
fn matches(shown: &[&str], printed: &[&str]) -> bool {
    match shown {
        [] => printed.is_empty(),
        ["…", rest @ ..] => (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..])),
        [line, rest @ ..] => {
            let [first, others @ ..] = printed else { return false };
            line_matches(&normal(line), &normal(first)) && matches(rest, others)
        }
    }
}

fn line_matches(shown: &str, printed: &str) -> bool {
    match shown.split_once('…') {
        None => shown == printed,
        Some((start, rest)) => printed.strip_prefix(start).is_some_and(|printed| {
            printed
                .char_indices()
                .map(|(at, _)| at)
                .chain([printed.len()])
                .any(|at| line_matches(rest, &printed[at..]))
        }),
    }
}

/// Returns the words of a line, a decimal number as `0.0`.
fn normal(line: &str) -> String {
    let is_decimal = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
    let words = line.split_whitespace().map(|word| if is_decimal(word) { "0.0" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_readme_runs() {
    Page::new("README.md").run();
}

#[test]
fn sums_through_files_run() {
    Page::new("docs/files.md").run();
}

#[test]
fn the_vectors_page_does_what_it_says() {
    Page::new("docs/vectors.md").run();
}

#[test]
fn rounds_over_the_network_run() {
    let page = Page::new("docs/network.md");
    page.run();
    let mean = |i: u32| page.read(&format!("mean{i}.safetensors"));
    assert!(mean(0) == mean(1) && mean(1) == mean(2), "all clients have the same mean");
    assert_eq!(Update::from_safetensors(&mean(0)).unwrap().specs().len(), 2);
    assert!(page.read("round.pcap").len() > 100_000);
}

#[test]
fn commands_on_a_gpu_run() {
    Page::new("docs/gpu.md").run();
}

#[test]
fn installing_runs() {
    Page::new("docs/install.md").run();
}

#[test]
fn measurements_run() {
    Page::new("docs/bench.md").run();
}

#[test]
fn the_service_runs() {
    Page::new("docs/operations.md").run();
}

#[test]
fn what_is_shown_must_be_printed() {
    let printed = ["a 12 b", "", "x=1 0.25 s", "end"];
    for shown in
        [&printed[..], &["…"], &["a … b", "…", "end"], &["a 12 b", "", "x=… 7.5 s", "end", "…"]]
    {
        assert!(matches(shown, &printed), "{shown:?}");
    }
    for shown in [&printed[..3], &["a 13 b", "…"], &["…", "x=1 s", "end"], &[]] {
        assert!(!matches(shown, &printed), "{shown:?}");
    }
}

/// Returns all Markdown files of the repository.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let kept = entries.filter(|entry| {
        let name = entry.file_name();
        !name.to_string_lossy().starts_with('.') && name != "target"
    });
    kept.flat_map(|entry| match (entry.file_type().unwrap().is_dir(), entry.path()) {
        (true, path) => pages(&path),
        (false, path) if path.extension().is_some_and(|end| end == "md") => vec![path],
        _ => vec![],
    })
    .collect()
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn relative_links_lead_somewhere() {
    let mut links = 0;
    for page in pages(root()) {
        let text = fs::read_to_string(&page).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, place) = target.split_once('#').unwrap_or((target, ""));
            let path =
                if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(path.exists(), "{}: {target}", page.display());
            if !place.is_empty() {
                let linked = fs::read_to_string(path).unwrap();
                let headings = linked.lines().filter(|line| line.starts_with('#'));
                let found = headings
                    .map(|line| anchor(line.trim_start_matches('#').trim()))
                    .any(|a| a == place);
                assert!(found, "{}: {target}", page.display());
            }
            links += 1;
        }
    }
    assert!(links > 20, "{links} links");
}
