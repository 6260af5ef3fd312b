//! `ciphergram complete`: what completes commands in a shell.

use crate::{
    args::{Complete, command},
    failure::Failure,
    report::print,
};

pub(crate) fn run(args: &Complete) -> Result<(), Failure> {
    let mut script = vec![];
    clap_complete::generate(args.shell, &mut command(), "ciphergram", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}
