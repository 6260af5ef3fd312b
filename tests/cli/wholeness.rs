//! Keys stand whole or not at all, full disks cost nothing, and what is out of bounds is an error.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::support::place::{Place, binary};
use crate::support::tensors::{self, mixed, to_file};

fn command(place: &Place, words: &str) -> Command {
    let mut command = Command::new(binary());
    command.args(words.split(' ')).current_dir(place.path(".")).env("CIPHERGRAM_GPU", "none");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Returns the names in a folder.
fn names(place: &Place, folder: &str) -> Vec<String> {
    let names = fs::read_dir(place.path(folder)).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

/// Starts `keygen` of many clients, and returns it when the first keys are written.
fn half_a_key(place: &Place, folder: &str) -> Child {
    let words = "keygen --scheme paillier-2048 --clients 900 --bits 16 --out";
    let mut child = command(place, &format!("{words} keys")).spawn().unwrap();
    for _ in 0..6000 {
        let temporary = names(place, folder).into_iter().find(|name| name.starts_with(".tmp"));
        let secret = temporary.map(|name| place.path(&format!("{folder}/{name}/secret.json")));
        if secret.is_some_and(|secret| secret.exists()) {
            return child;
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("no key is written: {:?}", child.wait().unwrap());
}

#[test]
fn half_a_key_never_stands() {
    let place = Place::new();
    for folder in [".", "keys"] {
        let before = || names(&place, ".");
        let stood = before();
        let mut child = half_a_key(&place, folder);
        assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(143));
        assert_eq!(before(), stood);
        // What SIGKILL leaves is no key, and not in the way of one.
        let mut child = half_a_key(&place, folder);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!place.path("keys/secret.json").exists());
        place.keygen("ckks-sum", 2, "keys");
        let mode = fs::metadata(place.path("keys")).unwrap();
        assert!(mode.is_dir() && place.path("keys/job.json").exists());
        place.fails_with(1, "keygen --out keys", &["keys/public.json exists"]);
        // Next, into a folder that stands.
        fs::remove_dir_all(place.path("keys")).unwrap();
        fs::create_dir(place.path("keys")).unwrap();
    }
    place.write("file", "");
    place.fails_with(1, "keygen --out file", &["file: is no folder"]);
    place.fails_with(1, "keygen --out file/keys", &["file/keys: "]);
}

#[test]
fn a_full_disk_is_named_costs_nothing() {
    let place = Place::with_key("ckks-sum", 2);
    place.write("g", to_file(&mixed(1)));
    place.done("ranges --out r.json g");
    fs::create_dir(place.path("full")).unwrap();
    let line = |words: &str, size: &str| {
        format!(
            "mount -t tmpfs -o size={size} tmpfs full && cd full && $C {words}; code=$?; ls -A >&2; \
             exit $code"
        )
    };
    let run = |words: &str, size: &str| among_own_mounts(&place, &line(words, size));
    if run("identity --out me", "1m").0 != Some(0) {
        eprintln!("skipped: no user namespaces here");
        return;
    }
    let full = |path: &str| format!("error: {path}: No space left on device (os error 28)\n");
    let keygen = "keygen --scheme paillier-2048 --clients 900 --bits 16 --out keys";
    let (code, stderr) = run(keygen, "1m");
    assert!(code == Some(1) && stderr.contains("\nerror: keys/clients/"), "{stderr}");
    assert!(stderr.ends_with(": No space left on device (os error 28)\n"), "{stderr}");
    let (code, stderr) = run("identity --out me", "4k,nr_inodes=1");
    assert_eq!((code, stderr), (Some(1), full("me")));
    // No round is spent on a contribution that has no place to go.
    place.write("big", to_file(&tensors::single(&[0.5; 40_000])));
    place.done("ranges --out big.json big");
    let encrypt = "encrypt --key ../keys/secret.json --client 0 --in ../big --ranges ../big.json";
    let (code, stderr) = run(&format!("{encrypt} --out 0.cgm"), "32k");
    assert_eq!((code, stderr), (Some(1), full("0.cgm")));
    assert!(!place.path("keys/secret.json.ledger").exists());
}

/// Runs a shell line that may mount what it likes, in which the command is `$C`; its exit code and standard error.
fn among_own_mounts(place: &Place, line: &str) -> (Option<i32>, String) {
    let mut command = Command::new("unshare");
    command.args(["-rm", "bash", "-c", line]).current_dir(place.path("."));
    command.env("C", binary()).env("CIPHERGRAM_GPU", "none");
    let ran = command.output().unwrap();
    (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
}

/// A Kubernetes Secret is such a mount.
#[test]
fn keys_in_readonly_folders_have_ledgers_elsewhere() {
    let place = Place::with_key("ckks-sum", 2);
    place.write("g", to_file(&mixed(1)));
    place.settle("g", 10.0, 1, "--min-clients 1");
    let run = |variable: &str, words: &str| {
        let line = format!(
            "mount --bind keys keys && mount -o remount,bind,ro keys && {variable} $C {words}"
        );
        among_own_mounts(&place, &line)
    };
    if run("", "identity --out me").0 != Some(0) {
        eprintln!("skipped: no user namespaces here");
        return;
    }
    let encrypt = "encrypt --key keys/secret.json --client 0 --in g --out 0.cgm";
    let (code, stderr) = run("", encrypt);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("keys/secret.json.ledger: ") && stderr.contains("--ledger FILE"),
        "{stderr}"
    );
    assert_eq!(run("", &format!("{encrypt} --ledger use")).0, Some(0));
    // The variable counts for all commands, as the option does, which goes before it.
    assert_eq!(run("CIPHERGRAM_LEDGER=use", &format!("{encrypt} --round 1")).0, Some(0));
    let (code, stderr) =
        run("CIPHERGRAM_LEDGER=none", &format!("{encrypt} --ledger use --round 1"));
    assert!(code == Some(1) && stderr.contains("its next round is 2"), "{stderr}");
    place.done("aggregate --key keys/public.json --out sum 0.cgm");
    let decrypt = "decrypt --key keys/secret.json --in sum --out mean";
    assert_eq!(run("CIPHERGRAM_LEDGER=use", decrypt).0, Some(0));
    assert_eq!(run("", "inspect keys/secret.json --ledger use").0, Some(0));
    let lines = String::from_utf8(place.read("use")).unwrap();
    let verbs: Vec<_> = lines.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(verbs, ["sealed", "sealed", "opening", "opened"]);
}

#[test]
fn values_out_of_bounds_are_errors() {
    let place = Place::with_key("ckks-sum", 3);
    place.write("g0", to_file(&mixed(1)));
    let serve = "serve --key keys/public.json --listen 127.0.0.1:0 --clients 3";
    let node = fs::read_to_string(place.path("keys/clients.allow")).unwrap();
    let node = node.lines().last().unwrap().split(' ').next().unwrap();
    let beyond = "as client 3, but there are 3 clients, numbered from 0";
    for (text, why, of_job) in [
        (String::new(), "it lists no node", "it lists no node"),
        ("# nobody\n".into(), "it lists no node", "it lists no node"),
        (format!("{node} 3\n"), beyond, "client 3 of 3"),
    ] {
        place.write("list", text);
        place.fails_with(1, &format!("{serve} --allow list"), &["list: ", why]);
        let job = "job --key keys/public.json --out j.json --allow list";
        place.fails_with(1, job, &[of_job]);
    }
    for words in ["encrypt --out 0.cgm", "join --server 127.0.0.1:9 --out mean"] {
        let client = format!("{words} --key keys/secret.json --in g0 --client 3");
        place.fails_with(
            1,
            &client,
            &["--client: client 3 of 3 clients, which are numbered from 0"],
        );
    }
    place.job("--clients 2");
    let client = "join --server 127.0.0.1:9 --out mean --key keys/secret.json --in g0 --client 2";
    place.fails_with(1, client, &["--client: client 2 of 2 clients"]);
    for (name, value, code, choices) in [
        ("CIPHERGRAM_CPU", "avx", 2, "choose \"portable\""),
        ("CIPHERGRAM_LOG", "loud", 2, "choose error, warn, info, debug or trace"),
        ("CIPHERGRAM_CPU", "portable", 0, ""),
        ("CIPHERGRAM_CPU", "", 0, ""),
        ("CIPHERGRAM_LOG", "", 0, ""),
    ] {
        let ran = command(&place, "inspect keys/job.json").env(name, value).output().unwrap();
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(code), "{stderr}");
        let error = format!("error: {name} is {value:?}; {choices}");
        assert!(
            code == 0 || (stderr.starts_with(&error) && stderr.lines().count() == 1),
            "{stderr}"
        );
    }
}
