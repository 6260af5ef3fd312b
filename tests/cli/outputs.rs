//! Outputs of commands: what they replace, what they refuse, and that they leave nothing behind.

use std::{
    ffi::OsStr,
    fs,
    io::{Read as _, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
        process::ExitStatusExt as _,
    },
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use crate::support::place::{Place, binary};
use crate::support::tensors::{self, mixed, to_file};

const ENCRYPT: &str = "encrypt --key keys/secret.json --client 0 --in g --ranges r.json";

/// Returns a place with a key, the tensors `g` and their ranges `r.json`.
fn place() -> Place {
    let place = Place::with_key("ckks-sum", 2);
    place.write("g", to_file(&mixed(1)));
    place.done("ranges --out r.json g");
    place
}

/// Returns the command, in the place, of a binary that a shell line calls `$C`.
fn shell(place: &Place, line: &str) -> Output {
    // Tests under nohup, or in the background of a script, have these ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT", "bash", "-c", line]).current_dir(place.path("."));
    command.env("C", binary()).env("CIPHERGRAM_GPU", "none");
    command.stdin(Stdio::null()).output().unwrap()
}

/// Runs a shell line that must end with this code; its standard output and error.
fn shell_ends(place: &Place, code: i32, line: &str) -> (Vec<u8>, String) {
    let ran = shell(place, line);
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(code), "{line}: {stderr}");
    (ran.stdout, stderr)
}

fn temporaries(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".tmp")).collect()
}

/// Waits until something is so, or long enough.
fn wait_until(mut so: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nothing_of_another_kind_is_overwritten() {
    let place = place();
    place.done(&format!("{ENCRYPT} --out 0.cgm"));
    place.write("notes", "to be kept");
    place.write("other.json", r#"{"kind": "of another program"}"#);
    place.done("encrypt --key keys/secret.json --client 1 --in g --ranges r.json --out 1.cgm");
    place.done("aggregate --key keys/public.json --out sum.cgm 0.cgm 1.cgm");
    let before = place.read("keys/secret.json.ledger");
    for (out, words) in [
        ("keys/secret.json", "is the input keys/secret.json, and is not overwritten"),
        ("keys/../keys/secret.json", "is the input keys/secret.json"),
        ("g", "is the input g, and is not overwritten"),
        ("r.json", "is the input r.json"),
        ("keys/public.json", "holds a public key, and is not overwritten with a contribution"),
        ("keys/job.json", "holds a job"),
        ("keys/server.identity", "holds an identity"),
        ("keys/server.node", "holds a node key"),
        ("keys/clients.allow", "holds an allow list"),
        ("keys/secret.json.ledger", "holds a ledger"),
        ("notes", "does not hold a contribution, and is not overwritten"),
        ("other.json", "does not hold a contribution"),
        ("keys", "keys: is a folder"),
        ("new/", "new/: names a folder"),
        ("none/0.cgm", "none/0.cgm: No such file or directory"),
        ("g/0.cgm", "g/0.cgm: Not a directory"),
    ] {
        place.fails_with(1, &format!("{ENCRYPT} --out {out}"), &[words]);
    }
    // Each was refused before a round was spent.
    assert_eq!(place.read("keys/secret.json.ledger"), before);
    // And every other command keeps to the same.
    for words in [
        "ranges --out keys/secret.json g",
        "ranges --out 0.cgm g",
        "aggregate --key keys/public.json --out keys/secret.json 0.cgm",
        "aggregate --key keys/public.json --out 0.cgm 0.cgm",
        "decrypt --key keys/secret.json --in sum.cgm --out keys/job.json",
        "serve --key keys/public.json --listen 127.0.0.1:0 --capture keys/secret.json",
    ] {
        let error = place.run(words).error(1);
        assert!(error.contains("not overwritten"), "{words}: {error}");
    }
    let serve = "serve --key keys/public.json --listen 127.0.0.1:0 --capture -";
    place.fails_with(2, serve, &["-: ", "cannot go to standard output"]);
    // A file of the kind is replaced, and so is an empty one.
    place.write("empty", "");
    place.done(&format!("{ENCRYPT} --out empty"));
    let first = place.read("empty");
    place.done(&format!("{ENCRYPT} --out empty"));
    assert_ne!(place.read("empty"), first);
}

#[test]
fn links_and_permissions_stay() {
    let place = place();
    fs::create_dir(place.path("sub")).unwrap();
    symlink("sub/0.cgm", place.path("link")).unwrap();
    symlink("link", place.path("again")).unwrap();
    place.done(&format!("{ENCRYPT} --out again"));
    assert!(place.path("link").is_symlink() && !place.path("sub/0.cgm").is_symlink());
    let mode =
        |mode| fs::set_permissions(place.path("sub/0.cgm"), fs::Permissions::from_mode(mode));
    mode(0o640).unwrap();
    let first = place.read("sub/0.cgm");
    place.done(&format!("{ENCRYPT} --out link"));
    assert_ne!(place.read("sub/0.cgm"), first);
    let kept = fs::metadata(place.path("sub/0.cgm")).unwrap().permissions().mode();
    assert_eq!(kept & 0o777, 0o640);
    // Of a new one, those that the user's mask leaves.
    shell_ends(
        &place,
        0,
        "umask 027; $C ranges --out new.json g; test $(stat -c %a new.json) = 640",
    );
    symlink("keys/secret.json", place.path("trap")).unwrap();
    place.fails_with(1, &format!("{ENCRYPT} --out trap"), &["trap: is the input"]);
    symlink("circle", place.path("circle")).unwrap();
    place.fails_with(1, &format!("{ENCRYPT} --out circle"), &["circle: "]);
    assert_eq!(temporaries(&place.path("sub")), [""; 0]);
}

#[test]
fn streams_are_written_to_and_read() {
    let place = place();
    let line = "cat g | $C encrypt --key keys/secret.json --client 0 --in - --ranges r.json --out - \
                | tee 0.cgm | $C inspect - --json";
    let (stdout, stderr) = shell_ends(&place, 0, line);
    let found: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(found["kind"], "contribution");
    assert!(stderr.contains("-: "), "the report goes to standard error: {stderr}");
    let line = "mkfifo fifo; cat fifo > copy & $C encrypt --key keys/secret.json --client 1 --in g \
                --ranges r.json --out fifo && wait && test -p fifo";
    shell_ends(&place, 0, line);
    let line = "$C aggregate --key keys/public.json --out /dev/stdout 0.cgm copy > sum.cgm";
    shell_ends(&place, 0, line);
    let line =
        "$C decrypt --key keys/secret.json --in - --out /dev/stdout < sum.cgm | $C inspect -";
    let (stdout, _) = shell_ends(&place, 0, line);
    assert!(String::from_utf8(stdout).unwrap().contains("tensors in clear"));
    // What is described is read once.
    for file in ["secret.json", "server.identity", "server.node", "clients.allow"] {
        shell_ends(&place, 0, &format!("$C inspect - < keys/{file}"));
        let line = format!("cat keys/{file} > fifo & timeout 20 $C inspect fifo");
        shell_ends(&place, 0, &line);
    }
    shell_ends(&place, 0, "$C ranges --out /dev/null g && test -c /dev/null");
    let (_, stderr) = shell_ends(&place, 1, "$C ranges --out /dev/full g");
    assert_eq!(stderr, "error: /dev/full: No space left on device (os error 28)\n");
    // A file that finds no space is named, and not the temporary one.
    let line = "ulimit -f 1; $C aggregate --key keys/public.json --out full.cgm 0.cgm";
    let (_, stderr) = shell_ends(&place, 1, line);
    assert_eq!(stderr, "error: full.cgm: File too large (os error 27)\n");
    assert_eq!(temporaries(&place.path(".")), [""; 0]);
}

#[test]
fn closed_and_full_outputs_end_commands_orderly() {
    let place = place();
    // As coreutils end: 128 and SIGPIPE, without a word.
    for words in [
        "ranges --out - g",
        "inspect r.json",
        "show devices",
        "show noise --sigma 1 --clip 1 --clients 3 --rounds 1",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(binary());
        command.args(words.split(' ')).current_dir(place.path(".")).env("CIPHERGRAM_GPU", "none");
        let ran = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let ran = ran.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!((ran.status.code(), &*stderr), (Some(141), ""), "{words}");
    }
    for words in ["show devices", "--help", "--version", "inspect g", "ranges --out s.json g"] {
        let (_, stderr) = shell_ends(&place, 1, &format!("$C {words} > /dev/full"));
        assert_eq!(stderr, "error: standard output: No space left on device (os error 28)\n");
    }
    // Nobody hears of it, and it is no reason to panic.
    shell_ends(&place, 2, "$C nothing 2> /dev/full");
    shell_ends(&place, 1, "$C inspect none 2> /dev/full");
}

#[test]
fn names_need_not_be_text() {
    let place = place();
    let name = OsStr::from_bytes(b"g\xff.safetensors");
    fs::copy(place.path("g"), place.path(".").join(name)).unwrap();
    for json in ["", "--json"] {
        for line in [
            "ranges --out $'r\\xff' $'g\\xff.safetensors'",
            "encrypt --key keys/secret.json --client 0 --in $'g\\xff.safetensors' --out $'0\\xff'",
            "aggregate --key keys/public.json --out $'s\\xff' --min-clients 1 $'0\\xff'",
            "inspect $'s\\xff'",
            "keygen --out $'k\\xff'",
            "identity --out $'i\\xff'",
            "job --key keys/public.json --out $'j\\xff'",
        ] {
            let line = line.replace(" --min-clients 1", "");
            let new = line.replace("k\\xff", &format!("k\\xff{json}"));
            let new = new.replace("i\\xff'", &format!("i\\xff{json}'"));
            let new = new.replace("j\\xff'", &format!("j\\xff{json}'"));
            shell_ends(&place, 0, &format!("$C {new} {json}"));
        }
    }
    let (_, stderr) = shell_ends(&place, 1, "$C inspect $'none\\xff\\x1b'");
    assert!(stderr.starts_with("error: none\u{fffd}\\u{1b}: No such file"), "{stderr}");
    shell_ends(&place, 2, "$C $'\\xff'");
}

#[test]
fn signals_leave_nothing_behind() {
    let place = place();
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        // It waits for input with its output open.
        let line = format!(
            "mkfifo in; trap '' EXIT; $C aggregate --key keys/public.json --out sum.cgm in & \
             child=$!; for i in $(seq 500); do ls -A | grep -q '^.tmp' && break; sleep 0.01; done; \
             stat -c '%n %a' .tmp*; kill -{signal} $child; wait $child; code=$?; rm in; exit $code"
        );
        // A shell without job control has its background commands ignore SIGINT.
        let (stdout, stderr) = shell_ends(&place, code, &format!("set -m; {line}"));
        let stdout = String::from_utf8(stdout).unwrap();
        assert!(stdout.starts_with(".tmp") && stdout.ends_with(" 600\n"), "{stdout:?}");
        assert_eq!(stderr.lines().next(), Some("stopped"), "{stderr}");
        assert_eq!(temporaries(&place.path(".")), [""; 0]);
        assert!(!place.path("sum.cgm").exists());
    }
    let (_, _) = shell_ends(
        &place,
        0,
        "mkfifo in; trap '' HUP; $C aggregate --key keys/public.json --out sum.cgm in 2> /dev/null & \
         sleep 0.3; kill -HUP $!; sleep 0.1; kill -0 $! && kill $!; rm in",
    );
}

#[test]
fn a_stopped_encryption_uses_no_round() {
    let place = place();
    place.write("big", to_file(&tensors::single(&vec![0.5; 8_000_000])));
    place.done("ranges --policy fixed:1 --out big.json big");
    let encrypt =
        "encrypt --key keys/secret.json --client 0 --in big --ranges big.json --out big.cgm";
    let process = place.start(encrypt);
    let is_written =
        |name: &String| fs::metadata(place.path(name)).is_ok_and(|file| file.len() > 0);
    wait_until(|| temporaries(&place.path(".")).iter().any(is_written));
    process.signal("INT");
    assert_eq!(process.finish().code, Some(130));
    // It may have come to its end meanwhile.
    let ended = place.path("big.cgm").exists();
    assert_eq!(place.path("keys/secret.json.ledger").exists(), ended);
    let said = place.done(&encrypt.replace("big", "g").replace("g.json", "r.json"));
    assert!(said.contains(&format!("g.cgm: round {}, ", u8::from(ended))), "{said}");
}

#[test]
fn signals_end_commands_with_blocked_stderr() {
    let place = place();
    shell_ends(&place, 0, "mkfifo in");
    let (_reader, mut writer) = std::io::pipe().unwrap();
    // As much as a pipe holds.
    writer.write_all(&[0; 1 << 16]).unwrap();
    let mut command = Command::new(binary());
    command.args("aggregate --key keys/public.json --out sum.cgm in".split(' '));
    command.current_dir(place.path(".")).env("CIPHERGRAM_GPU", "none").stderr(writer);
    let mut child = command.spawn().unwrap();
    wait_until(|| !temporaries(&place.path(".")).is_empty());
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    wait_until(|| child.try_wait().unwrap().is_some());
    let ended = child.try_wait().unwrap().and_then(|status| status.code());
    if ended.is_none() {
        child.kill().unwrap();
    }
    assert_eq!((ended, temporaries(&place.path("."))), (Some(143), vec![]));
}

#[test]
fn a_stopped_demo_leaves_no_process() {
    let place = Place::new();
    let own = place.path(".").canonicalize().unwrap();
    let mut demo = Command::new(binary());
    demo.args(["demo", "--clients", "2", "--rounds", "1000"]).env("TMPDIR", &own);
    demo.env("CIPHERGRAM_GPU", "none").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut demo = demo.spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", demo.id());
    let children = || fs::read_to_string(&children).unwrap().split_whitespace().count();
    let left = || {
        let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let lines = processes.filter_map(|path| fs::read(path.join("cmdline")).ok());
        let own = own.as_os_str().as_bytes();
        lines.filter(|line| line.windows(own.len()).any(|part| part == own)).count()
    };
    wait_until(|| children() == 3 && left() == 3);
    assert!(children() == 3 && left() == 3, "{} processes, {} of them here", children(), left());
    assert!(Command::new("kill").arg(demo.id().to_string()).status().unwrap().success());
    let status = demo.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    let mut stderr = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let lines: Vec<_> = stderr.lines().filter(|line| !line.starts_with("warning: ")).collect();
    assert_eq!(lines, ["stopped"]);
    // A killed process is there until its parent, who is gone, has received its status.
    wait_until(|| left() == 0);
    assert_eq!((left(), temporaries(&own)), (0, vec![]));
}
