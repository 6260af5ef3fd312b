//! Files installed beside the binary: completions, which shells understand, and manual pages.

use std::process::{Command, Output};

use crate::support::place::Place;

/// Runs a program on what is in a place; none if it is not on this machine.
fn run(place: &Place, words: &[&str]) -> Option<Output> {
    let (program, words) = words.split_first().unwrap();
    Command::new(program).args(words).current_dir(place.path("")).output().ok()
}

/// Asserts that a program, if there is one, has nothing to say of a file.
fn finds_nothing(place: &Place, words: &[&str]) {
    if let Some(output) = run(place, words) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{words:?}: {said}");
    }
}

#[test]
fn shells_complete_commands_and_options() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.done(&format!("complete {shell}"));
        for word in ["encrypt", "min-clients", "upgrade", "noise"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        place.write(shell, script);
        finds_nothing(&place, &[shell, "-n", shell]);
    }
    let completed = |words: &str| {
        let count = words.split(' ').count() - 1;
        let last = words.rsplit(' ').next().unwrap();
        let script = format!(
            "source ./bash; COMP_WORDS=({words}); COMP_CWORD={count}; _ciphergram ciphergram '{last}' ciphergram; \
             echo \"${{COMPREPLY[*]}}\""
        );
        let output = run(&place, &["bash", "-c", &script]).unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed("ciphergram enc"), "encrypt");
    assert_eq!(completed("ciphergram encrypt --w"), "--weight");
    assert_eq!(completed("ciphergram show no"), "noise");
    // What is hidden stays hidden.
    assert_eq!(completed("ciphergram de"), "demo decrypt");
    place.fails_with(2, "complete cmd", &["'cmd' for '<SHELL>'"]);
}

#[test]
fn every_command_has_a_valid_manual_page() {
    let place = Place::new();
    std::fs::create_dir(place.path("pages")).unwrap();
    place.done("man pages");
    let pages = std::fs::read_dir(place.path("pages")).unwrap();
    let mut pages: Vec<_> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    let help = place.done("--help");
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let mut expected: Vec<_> = commands
        .map(|line| line.split_whitespace().next().unwrap())
        .filter(|name| *name != "help")
        .map(|name| format!("ciphergram-{name}.1"))
        .chain(["ciphergram.1".into()])
        .chain(
            ["devices", "noise", "params", "program"]
                .map(|name| format!("ciphergram-show-{name}.1")),
        )
        .chain(["predict", "scores", "screen"].map(|name| format!("ciphergram-vectors-{name}.1")))
        .collect();
    expected.sort();
    assert_eq!(pages, expected);
    for page in &pages {
        let path = format!("pages/{page}");
        let text = String::from_utf8(place.read(&path)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
        finds_nothing(&place, &["groff", "-man", "-ww", "-Kutf8", "-Tutf8", &path]);
    }
    place.fails_with(1, "man nowhere", &["nowhere: No such file"]);
}
