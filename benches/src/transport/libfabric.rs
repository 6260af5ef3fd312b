//! libfabric's `fi_write` over TCP, the rival of WRITE that does not encrypt: a program in C, since
//! libfabric is a library of C, which is compiled where that library is installed.

use std::{
    io::{ErrorKind, Write as _},
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use super::Failure;

const SOURCE: &str = include_str!("../../peers/rivals/fi_write.c");

/// The way in which the processes wait for each other.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// They ask without pause.
    Poll,
    /// The kernel wakes them.
    Sleep,
}

/// The program, compiled.
#[derive(Clone, Debug)]
pub struct Libfabric {
    program: PathBuf,
}

impl Libfabric {
    /// Compiles the C program beside the program that runs.
    ///
    /// # Errors
    /// One line that says what is missing.
    pub fn find() -> Result<Self, Failure> {
        let program = std::env::current_exe()?.with_file_name("fi_write");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-x", "c", "-", "-lfabric", "-o"]).arg(&program);
        let output = match fed(&mut compiler, SOURCE) {
            Err(failure) if failure.kind() == ErrorKind::NotFound => {
                return Err("there is no C compiler `cc`".into());
            }
            output => output?,
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        let lacks = ["rdma/fabric.h: No such file", "cannot find -lfabric"];
        match output.status.success() {
            true => Ok(Self { program }),
            false if lacks.iter().any(|lack| errors.contains(lack)) => {
                Err("libfabric is not installed (Debian: libfabric-dev)".into())
            }
            false => Err(format!("cc: {}", line_of(&errors)).into()),
        }
    }

    /// Measures the goodput of `fi_write` of a mebibyte between two processes, in Gbit/s: what was
    /// delivered, unencrypted, over the provider `tcp;ofi_rxm`.
    ///
    /// # Errors
    /// The complaint of the program.
    pub fn writes(&self, wait: Wait, span: Duration) -> Result<f64, Failure> {
        let wait = match wait {
            Wait::Poll => "poll",
            Wait::Sleep => "sleep",
        };
        let output = Command::new(&self.program)
            .args([span.as_secs_f64().to_string().as_str(), wait])
            .output()?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(format!("fi_write: {}", line_of(&complaint)).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
    }
}

/// Runs a command with a text for its input.
fn fed(command: &mut Command, text: &str) -> std::io::Result<Output> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // One that ends early says why itself.
        let _ = input.write_all(text.as_bytes());
    }
    child.wait_with_output()
}

/// Returns the first line, or that there is none.
fn line_of(text: &str) -> &str {
    text.lines().next().unwrap_or("it failed and did not say why")
}
