//! `ciphergram man`: a manual page for each command, from what `--help` prints.

use crate::{
    args::{ManArgs, command},
    failure::{Failure, at},
};

pub(crate) fn run(args: &ManArgs) -> Result<(), Failure> {
    // A page on the help of each command would say nothing.
    let command = command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, &args.folder).map_err(at(&args.folder))
}
