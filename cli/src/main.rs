//! `ciphergram`: encrypted gradient sums over reliable datagrams, from the command line.
//!
//! Names that people type, files, progress and exit codes. Exit 0: done; 1: the work failed, with
//! one line on stderr that names what and where; 2: the command was not understood.

mod args;
mod bench;
mod cohorts;
mod commands;
mod demo;
mod engines;
mod failure;
mod files;
mod hints;
mod nodes;
mod progress;
mod report;
mod responder;
mod signals;

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use clap::error::ErrorKind;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;

use args::{Arguments, CliCommand, LogFormat, ShowCommand, VectorsCommand};
use failure::Failure;

/// Keeps memory that was freed for a while: results are megabytes, for which the C library asks the system each time.
/// For a program, which no one forks: locks of its own may be held in a child for ever.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match Arguments::parse_words(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        // Help and version go to standard output.
        Err(error) if !error.use_stderr() => return show(&error),
        // Nobody who typed nothing knows what there is.
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            show(&error);
            return ExitCode::from(2);
        }
        Err(error) => return misuse(&error),
    };
    match try_run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.end(),
    }
}

fn try_run(arguments: Arguments) -> Result<(), Failure> {
    start_logging(arguments.log)?;
    ciphergram_accel::cpu::check_choice().map_err(Failure::Misuse)?;
    signals::start().map_err(|e| Failure::Work(format!("signals: {e}")))?;
    run(arguments)?;
    report::check_said()
}

/// Prints help or the version.
fn show(text: &clap::Error) -> ExitCode {
    match text.print() {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Failure::Work(format!("standard output: {e}")).end()
        }
        _ => ExitCode::SUCCESS,
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        CliCommand::Demo(args) => demo::run(&args, arguments.log),
        CliCommand::DemoClient(args) => demo::client::run(&args),
        CliCommand::Keygen(args) => commands::keygen::run(&args),
        CliCommand::Job(args) => commands::job::run(&args),
        CliCommand::Bundle(args) => commands::bundle::run(&args),
        CliCommand::Identity(args) => commands::identity::run(&args),
        CliCommand::Ranges(args) => commands::ranges::run(&args),
        CliCommand::Encrypt(args) => commands::encrypt::run(&args),
        CliCommand::Aggregate(args) => commands::aggregate::run(&args),
        CliCommand::Opener(args) => commands::opener::run(&args),
        CliCommand::Decrypt(args) => commands::decrypt::run(&args),
        CliCommand::Vectors(VectorsCommand::Screen(args)) => commands::screen::run(&args),
        CliCommand::Vectors(VectorsCommand::Scores(args)) => commands::screen::scores(&args),
        CliCommand::Vectors(VectorsCommand::Predict(args)) => commands::predict::run(&args),
        CliCommand::Serve(args) => commands::serve::run(&args),
        CliCommand::Join(args) => commands::join::run(&args),
        CliCommand::Inspect(args) => commands::inspect::run(&args),
        CliCommand::Show(ShowCommand::Params(args)) => commands::params::run(&args),
        CliCommand::Show(ShowCommand::Program(args)) => commands::program::run(&args),
        CliCommand::Show(ShowCommand::Devices(args)) => commands::devices::run(&args),
        CliCommand::Show(ShowCommand::Noise(args)) => commands::noise::run(&args),
        CliCommand::Bench(args) => bench::run(&args),
        CliCommand::Complete(args) => commands::complete::run(&args),
        CliCommand::Man(args) => commands::man::run(&args),
    }
}

/// Prints the parser's message as one line.
fn misuse(error: &clap::Error) -> ExitCode {
    progress::complain(&format!("{}; see --help", args::line(error)));
    ExitCode::from(2)
}

/// Returns whether standard error shows colours, and whoever runs this wants them: see <https://no-color.org>.
fn has_colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !refused
}

/// Sends log lines to standard error, from the level in `CIPHERGRAM_LOG` up (`warn` by default). As
/// JSON there is also one for each span that ends, with its duration.
fn start_logging(format: LogFormat) -> Result<(), Failure> {
    let asked = std::env::var_os("CIPHERGRAM_LOG").filter(|level| !level.is_empty());
    let parse = |level: &OsString| level.to_str().and_then(|level| level.parse::<Level>().ok());
    let level = match &asked {
        None => Level::WARN,
        Some(asked) => parse(asked).ok_or_else(|| {
            let choices = "choose error, warn, info, debug or trace";
            Failure::Misuse(format!("CIPHERGRAM_LOG is {asked:?}; {choices}"))
        })?,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        // It would panic where standard error cannot be written.
        .log_internal_errors(false)
        .with_ansi(has_colours())
        .with_writer(|| progress::AboveProgress);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().with_span_events(FmtSpan::CLOSE).init(),
    }
    Ok(())
}
