//! Signals that stop a command: what is cleaned up first, the last line, and commands that end by themselves.
//!
//! One thread waits for them. By default SIGINT, SIGTERM and SIGHUP remove what [`at_stop`] was asked to, print one
//! line on standard error ([`set_last_line`]) and end the process with 128 and the signal's number. A command that has
//! something to bring to an end takes them over ([`take_over`]).

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::Duration,
};

/// The exit code of a process that SIGPIPE ended, as shells see it.
const BROKEN_PIPE: i32 = 128 + 13;
/// The time for which standard error may hold up the end of the process.
const LAST_LINE_PATIENCE: Duration = Duration::from_secs(1);

/// A signal that asks a process to stop, or to read its files anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGHUP: the terminal is gone, or a service is to read its files anew.
    HangUp = 1,
    /// SIGINT: Ctrl-C.
    Interrupt = 2,
    /// SIGTERM: `kill`, and how services are stopped.
    Terminate = 15,
}

impl Signal {
    /// Returns the exit code of a process that this signal ended: 128 and the signal's number.
    pub(crate) fn exit_code(self) -> u8 {
        128 + self as u8
    }
}

type CleanUp = Box<dyn FnOnce() + Send>;
type Handler = Arc<dyn Fn(Signal) -> bool + Send + Sync>;

/// The reaction to a signal.
struct AtSignal {
    clean_ups: BTreeMap<u64, CleanUp>,
    next: u64,
    last_line: String,
    handler: Option<Handler>,
}

static AT_SIGNAL: Mutex<AtSignal> = Mutex::new(AtSignal {
    clean_ups: BTreeMap::new(),
    next: 0,
    last_line: String::new(),
    handler: None,
});

fn at_signal() -> MutexGuard<'static, AtSignal> {
    AT_SIGNAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A clean-up that a signal runs until this is dropped.
#[must_use = "it is forgotten when this is dropped"]
pub(crate) struct AtStop(u64);

impl Drop for AtStop {
    fn drop(&mut self) {
        at_signal().clean_ups.remove(&self.0);
    }
}

/// Makes something that must not be left behind, and has `clean_up` undo it if a signal stops the process. No signal
/// stops it between the two.
pub(crate) fn at_stop<T, E, C: FnOnce() + Send + 'static>(
    make: impl FnOnce() -> Result<(T, C), E>,
) -> Result<(T, AtStop), E> {
    let mut at = at_signal();
    let (made, clean_up) = make()?;
    let id = at.next;
    at.next += 1;
    at.clean_ups.insert(id, Box::new(clean_up));
    Ok((made, AtStop(id)))
}

/// Does something that no signal stops in the middle. It makes and drops no [`AtStop`].
pub(crate) fn unstopped<T>(act: impl FnOnce() -> T) -> T {
    let _guard = at_signal();
    act()
}

/// Sets the last line that a signal prints in place of "stopped", if it is not empty, such as "stopped in round 3; the
/// same command goes on".
pub(crate) fn set_last_line(line: impl Into<String>) {
    at_signal().last_line = line.into();
}

/// Ends the processes of the group that a child of this process leads, which nobody has waited for yet.
pub(crate) fn end_group(leader: u32) {
    #[cfg(unix)]
    if let Some(leader) = rustix::process::Pid::from_raw(leader as i32) {
        // Fails only if all have ended.
        let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::TERM);
    }
    #[cfg(not(unix))]
    let _ = leader;
}

/// Has `handler` called at each signal, on the thread that waits for them. It returns whether the command goes on or
/// comes to an end by itself; otherwise the process stops as if nothing had been taken over.
///
/// A command that ends by itself returns [`Failure::Stopped`](crate::failure::Failure::Stopped).
pub(crate) fn take_over(handler: impl Fn(Signal) -> bool + Send + Sync + 'static) {
    at_signal().handler = Some(Arc::new(handler));
}

/// Ends the process as coreutils end when nobody reads their output any more: at once, without a word, and with
/// nothing left behind.
pub(crate) fn end_of_broken_pipe() -> ! {
    let at = clean_up();
    let code = BROKEN_PIPE;
    exit(at, code)
}

fn stop(signal: Signal) -> ! {
    let at = clean_up();
    let line = if at.last_line.is_empty() { "stopped" } else { &at.last_line };
    // A progress bar may stand in the last line of a terminal.
    let clear = if io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
    let text = format!("{clear}{line}");
    // Nobody may be listening any more, and a terminal that is held or a pipe that nobody empties takes nothing.
    let (done, written) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = writeln!(io::stderr(), "{text}");
        let _ = done.send(());
    });
    let _ = written.recv_timeout(LAST_LINE_PATIENCE);
    exit(at, i32::from(signal.exit_code()))
}

/// Undoes what must not be left behind, the last first: processes before the folder that they work in. Nothing more
/// can be made while the guard is held.
fn clean_up() -> MutexGuard<'static, AtSignal> {
    let mut at = at_signal();
    while let Some((_, clean_up)) = at.clean_ups.pop_last() {
        clean_up();
    }
    at
}

/// Ends the process. Other threads are in the middle of their work, so nothing registered for its end runs.
fn exit(_nothing_more: MutexGuard<'static, AtSignal>, code: i32) -> ! {
    #[cfg(unix)]
    signal_hook::low_level::exit(code);
    #[cfg(not(unix))]
    std::process::exit(code);
}

/// Starts the thread that waits for signals. Those that the process was started to ignore, as `nohup` does, stay
/// ignored.
#[cfg(unix)]
pub(crate) fn start() -> io::Result<()> {
    let all = [Signal::HangUp, Signal::Interrupt, Signal::Terminate];
    let ignored = ignored();
    let heeded = all.into_iter().filter(|&signal| ignored & (1 << (signal as u64 - 1)) == 0);
    // A file that grows beyond a limit is an error where it is written, as a full disk is.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    let mut signals = signal_hook::iterator::Signals::new(heeded.map(|signal| signal as i32))?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for number in signals.forever() {
            let Some(&signal) = all.iter().find(|&&signal| signal as i32 == number) else {
                continue;
            };
            let handler = at_signal().handler.clone();
            if !handler.is_some_and(|handle| handle(signal)) {
                stop(signal);
            }
        }
    })?;
    Ok(())
}

/// Returns the signals that this process ignores, as bits from the lowest; none where the system does not say.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Elsewhere the system ends processes by itself.
#[cfg(not(unix))]
pub(crate) fn start() -> io::Result<()> {
    Ok(())
}
