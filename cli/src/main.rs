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
mod nodes;
mod progress;
mod report;
mod signals;

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    process::ExitCode,
};

use clap::error::ErrorKind;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;

use args::{Arguments, Command, LogFormat, Show, Vectors};
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
        Command::Demo(args) => demo::run(&args, arguments.log),
        Command::DemoClient(args) => demo::client::run(&args),
        Command::Keygen(args) => commands::keygen::run(&args),
        Command::Key(args) => commands::key::run(&args),
        Command::Job(args) => commands::job::run(&args),
        Command::Bundle(args) => commands::bundle::run(&args),
        Command::Identity(args) => commands::identity::run(&args),
        Command::Ranges(args) => commands::ranges::run(&args),
        Command::Encrypt(args) => commands::encrypt::run(&args),
        Command::Aggregate(args) => commands::aggregate::run(&args),
        Command::Decrypt(args) => commands::decrypt::run(&args),
        Command::Vectors(Vectors::Screen(args)) => commands::screen::run(&args),
        Command::Vectors(Vectors::Scores(args)) => commands::screen::scores(&args),
        Command::Vectors(Vectors::Predict(args)) => commands::predict::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Join(args) => commands::join::run(&args),
        Command::Relay(args) => commands::relay::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Show(Show::Params(args)) => commands::params::run(&args),
        Command::Show(Show::Program(args)) => commands::program::run(&args),
        Command::Show(Show::Devices(args)) => commands::devices::run(&args),
        Command::Show(Show::Noise(args)) => commands::noise::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Complete(args) => commands::complete::run(&args),
        Command::Man(args) => commands::man::run(&args),
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
        .with_writer(|| progress::Beside);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().with_span_events(FmtSpan::CLOSE).init(),
    }
    Ok(())
}
