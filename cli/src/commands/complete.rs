//! `ciphergram complete`: what completes commands in a shell.

use clap::Command;

use crate::{
    args::{CompleteArgs, command},
    failure::Failure,
    report::print,
};

pub(crate) fn run(args: &CompleteArgs) -> Result<(), Failure> {
    // Bash would complete hidden commands, too.
    let all = command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut shown =
        Command::new("ciphergram").args(all.get_arguments().cloned()).subcommands(shown);
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut shown, "ciphergram", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}
