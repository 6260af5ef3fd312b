//! A temporary folder, the real binary at work in it, and what it said.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        LazyLock,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes, shorter than anyone waits.
const PATIENCE: Duration = Duration::from_secs(180);

/// A deadline by which every client that lives is through, on a slow machine beside other work too: only those that
/// were killed miss it.
pub(crate) const DEADLINE: &str = "--deadline 15";

/// Returns the path of the program under test, which `cargo xtask test` builds.
pub(crate) fn binary() -> &'static str {
    static BINARY: LazyLock<String> = LazyLock::new(|| built("ciphergram"));
    &BINARY
}

fn built(name: &str) -> String {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().and_then(Path::parent).unwrap();
    let binary = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(binary.is_file(), "{}: `cargo build --release` makes it", binary.display());
    binary.to_str().unwrap().to_owned()
}

/// Returns the program that words are for, and its words: `relay` is one of its own.
fn program(words: &str) -> (String, &str) {
    let relay = words.strip_prefix("relay ").map(|words| (built("examples/relay"), words));
    relay.unwrap_or_else(|| (binary().to_owned(), words))
}

/// A folder. Paths in commands are relative to it, and commands are words with blanks between.
pub(crate) struct Place {
    folder: TempDir,
    /// Whether processes may open GPU adapters.
    has_adapters: bool,
}

/// The exit code and output of a process.
#[derive(Debug)]
pub(crate) struct Ran {
    /// None if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Exit code 0, and nothing but warnings on standard error.
    pub(crate) fn done(self) -> Self {
        let unwarned = self.stderr.lines().all(|line| line.starts_with("warning: "));
        assert!(self.code == Some(0) && unwarned, "{self:?}");
        self
    }

    /// Returns the one line of an error, warnings aside.
    pub(crate) fn error(&self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        let mut lines = self.stderr.lines().filter(|line| !line.starts_with("warning: "));
        let line = lines.next().unwrap_or_default().to_owned();
        assert!(line.starts_with("error: ") && lines.next().is_none(), "{self:?}");
        line
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), has_adapters: false }
    }

    /// Makes a place where processes find the GPU adapters that are there, or the one that the
    /// environment names.
    pub(crate) fn with_adapters() -> Self {
        Self { has_adapters: true, ..Self::new() }
    }

    /// Makes a place with a key in `keys/`, for at most `clients` at 16 bits.
    pub(crate) fn with_key(scheme: &str, clients: u32) -> Self {
        let place = Self::new();
        place.keygen(scheme, clients, "keys");
        place
    }

    pub(crate) fn keygen(&self, scheme: &str, clients: u32, out: &str) {
        self.done(&format!("keygen --scheme {scheme} --clients {clients} --bits 16 --out {out}"));
    }

    /// Puts another job into `keys/`, as `job WORDS` makes it.
    pub(crate) fn job(&self, words: &str) {
        fs::remove_file(self.path("keys/job.json")).unwrap();
        self.done(format!("job --key keys/public.json --out keys/job.json {words}").trim_end());
    }

    /// Puts a job into `keys/` that settles one range for the tensors of a file, and a largest weight.
    pub(crate) fn settle(&self, file: &str, range: f64, max_weight: u64, words: &str) {
        let ranges = "keys/ranges.json";
        let policy = format!("--policy fixed:{range} --weight {max_weight}");
        self.done(&format!("ranges {policy} --out {ranges} {file}"));
        self.job(&format!("--max-range {range} --ranges {ranges} {words}"));
    }

    /// Lets a key begin anew, as on a machine that knows nothing of what it sealed and opened.
    pub(crate) fn forget(&self, key: &str) {
        // Nothing may be known yet.
        let _ = fs::remove_file(self.path(&format!("{key}.ledger")));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// Starts `ciphergram WORDS`, or `relay WORDS`.
    pub(crate) fn start(&self, words: &str) -> Process {
        self.start_logging("warn", words)
    }

    /// Returns the same, with as much of a log as `level` asks for.
    pub(crate) fn start_logging(&self, level: &str, words: &str) -> Process {
        // Tests under nohup, or in the background of a script, have these ignored.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP,INT");
        self.spawn(command, level, words)
    }

    /// Starts it by way of a command that runs what follows its own words in its own place.
    pub(crate) fn start_by(&self, before: &str, words: &str) -> Process {
        let mut before = before.split(' ');
        let mut command = Command::new(before.next().unwrap());
        command.args(before);
        self.spawn(command, "warn", words)
    }

    fn spawn(&self, mut command: Command, level: &str, words: &str) -> Process {
        let (program, own) = program(words);
        command.arg(program).args(own.split(' ').filter(|word| !word.is_empty()));
        command.current_dir(self.folder.path());
        if !self.has_adapters {
            command.env("CIPHERGRAM_GPU", "none");
        }
        command.env("CIPHERGRAM_LOG", level);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let secrets = self.secrets();
        Process::new(words.to_owned(), command.spawn().unwrap(), secrets)
    }

    /// Starts `serve WORDS --json` on a free port; the server and its address.
    pub(crate) fn serve(&self, words: &str) -> (Process, String) {
        let serve = "serve --key keys/public.json --listen 127.0.0.1:0 --json";
        let mut server = self.start(&format!("{serve} {words}"));
        let address = server.event("listening")["address"].as_str().unwrap().to_owned();
        (server, address)
    }

    /// Starts a client with the tensors `gNUMBER`, for `meanNUMBER`.
    pub(crate) fn join(&self, address: &str, number: usize, words: &str) -> Process {
        self.join_with("secret.json", address, number, words)
    }

    /// Returns the same with a key of this name in `keys/`.
    pub(crate) fn join_with(
        &self,
        key: &str,
        address: &str,
        number: usize,
        words: &str,
    ) -> Process {
        let (key, input) = (format!("--key keys/{key}"), format!("--in g{number}"));
        let server = format!("--server {address} --client {number} --out mean{number}");
        self.start(format!("join {key} {input} {server} {words}").trim_end())
    }

    /// Runs `ciphergram WORDS` to its end.
    pub(crate) fn run(&self, words: &str) -> Ran {
        self.start(words).finish()
    }

    /// Runs what must succeed; its standard output.
    pub(crate) fn done(&self, words: &str) -> String {
        self.run(words).done().stdout
    }

    /// Runs what must succeed with `--json`.
    pub(crate) fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.done(&format!("{words} --json"))).unwrap()
    }

    /// Runs what must fail with one line, and leave what stands behind `--out` as it was.
    pub(crate) fn fails(&self, code: i32, words: &str) -> String {
        let out = words.split("--out ").nth(1).and_then(|rest| rest.split(' ').next());
        let state = || out.map(|name| self.content(name));
        let before = state();
        let error = self.run(words).error(code);
        assert!(state() == before, "`{words}` touched its output: {error}");
        error
    }

    /// As [`Self::fails`]; the error must hold each of `parts`.
    pub(crate) fn fails_with(&self, code: i32, words: &str, parts: &[&str]) {
        let error = self.fails(code, words);
        assert!(parts.iter().all(|part| error.contains(part)), "`{words}`: {error}, not {parts:?}");
    }

    /// Returns a file, or the files of a folder; nothing if there is none.
    fn content(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let path = self.path(name);
        let folder = fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path());
        let paths = folder.chain([path.clone()]);
        paths.filter_map(|p| fs::read(&p).ok().map(|bytes| (p, bytes))).collect()
    }

    /// Returns what must never be printed: secret numbers of all keys here, in base64 and word by
    /// word.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let folders = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let files = folders.flat_map(|folder| {
            let clients = fs::read_dir(folder.join("clients")).into_iter().flatten();
            let clients = clients.map(|entry| entry.unwrap().path());
            clients.chain([folder.join("secret.json")]).collect::<Vec<_>>()
        });
        let texts = files.filter_map(|file| fs::read_to_string(file).ok());
        let keys = texts.filter_map(|text| serde_json::from_str::<Value>(&text).ok());
        let numbers = keys.flat_map(|key| {
            let own = ["p", "q", "seed", "sum_key", "ranges_secret"].map(|name| key[name].clone());
            let tags =
                ["coefficients", "pads", "ranges_secret"].map(|name| key["client"][name].clone());
            let all = own.into_iter().chain(tags);
            all.filter_map(|number| number.as_str().map(str::to_owned)).collect::<Vec<_>>()
        });
        // Node keys are in standard base64.
        let identities = ["server.identity", "client.identity"].map(|name| {
            let text = fs::read_to_string(self.path(&format!("keys/{name}"))).ok()?;
            Some(text.lines().last()?.replace('+', "-").replace('/', "_"))
        });
        let all = numbers.chain(identities.into_iter().flatten());
        all.flat_map(|text| secret_forms(&text)).collect()
    }
}

/// Returns a base64url number as it might slip out: a part of its text, and 64-bit words of either
/// order in either base.
fn secret_forms(text: &str) -> Vec<String> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digit = |c| DIGITS.iter().position(|&d| d == c).unwrap() as u32;
    let group = |g: &[u8]| g.iter().fold(0, |acc, &c| (acc << 6) | digit(c)).to_be_bytes();
    let bytes: Vec<u8> =
        text.as_bytes().chunks_exact(4).flat_map(|g| group(g)[1..].to_vec()).collect();
    let words = bytes.chunks_exact(8).flat_map(|w| {
        let word = |order: fn([u8; 8]) -> u64| order(w.try_into().unwrap());
        let (big, little) = (word(u64::from_be_bytes), word(u64::from_le_bytes));
        [format!("{big:016x}"), format!("{big}"), format!("{little:016x}"), format!("{little}")]
    });
    words.chain([text[..12].to_owned()]).collect()
}

/// Returns the words by which client `number` uses a key in `keys/`: the secret one, or its own in `clients`.
pub(crate) fn as_client(key: &str, number: usize) -> String {
    match key {
        "clients" => format!("--key keys/clients/{number}.json"),
        key => format!("--key keys/{key} --client {number}"),
    }
}

/// A running `ciphergram`. Killed when dropped, so that a failed test leaves nobody behind.
pub(crate) struct Process {
    words: String,
    child: Child,
    lines: Receiver<String>,
    stdout: String,
    stderr: Option<JoinHandle<String>>,
    secrets: Vec<String>,
}

impl Process {
    fn new(words: String, mut child: Child, secrets: Vec<String>) -> Self {
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|l| sender.send(l))
        });
        let mut pipe = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            text
        });
        Self { words, child, lines, stdout: String::new(), stderr: Some(stderr), secrets }
    }

    /// Returns the next line of standard output.
    fn line(&mut self) -> Option<String> {
        let line = match self.lines.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) => panic!("`{}` hangs: {}", self.words, self.stdout),
            line => line.ok()?,
        };
        self.stdout += &format!("{line}\n");
        Some(line)
    }

    /// Waits for a JSON line about `event`.
    pub(crate) fn event(&mut self, event: &str) -> Value {
        self.first_event(&[event])
    }

    /// Waits for a JSON line about one of several events.
    pub(crate) fn first_event(&mut self, events: &[&str]) -> Value {
        while let Some(line) = self.line() {
            let value: Value = serde_json::from_str(&line).unwrap();
            if events.iter().any(|event| value["event"] == *event) {
                return value;
            }
        }
        let stderr = self.stderr.take().map(|s| s.join().unwrap());
        panic!("`{}` ended without {events:?}: {} {stderr:?}", self.words, self.stdout);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends the signal of a name, such as `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        assert!(
            kill.args([&format!("-{name}"), &self.child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; no secret is in what it said.
    pub(crate) fn finish(mut self) -> Ran {
        while self.line().is_some() {}
        let late = Instant::now() + PATIENCE;
        while self.is_running() {
            assert!(Instant::now() < late, "`{}` does not end: {}", self.words, self.stdout);
            thread::sleep(Duration::from_millis(1));
        }
        let code = self.child.wait().unwrap().code();
        let stderr = self.stderr.take().unwrap().join().unwrap();
        let ran = Ran { code, stdout: std::mem::take(&mut self.stdout), stderr };
        for secret in &self.secrets {
            let shown = ran.stdout.contains(secret) || ran.stderr.contains(secret);
            assert!(!shown, "`{}` shows a secret", self.words);
        }
        ran
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only for a process that has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
