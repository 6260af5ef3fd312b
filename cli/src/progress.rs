//! Progress of a command that takes over a second: one line on standard error, if that is a terminal, erased at the
//! end. What is printed beside it goes above it: see [`above_line`].

use std::{
    borrow::Cow,
    io::{self, IsTerminal as _, Write},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The time after which the line appears: what takes less needs none.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time between two drawings.
const TICK: Duration = Duration::from_millis(100);
/// A line about work whose end is not known, and one about work that is counted.
const OPEN: &str = "{spinner:.cyan} {elapsed}  {wide_msg}";
const COUNTED: &str = "{bar:24.cyan/dim} {percent:>3} %  {wide_msg}";

/// The line on the terminal, if there is one.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints something, above the line if there is one.
pub(crate) fn above_line<T>(print: impl FnOnce() -> T) -> T {
    match &*shown() {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// Prints a line on standard error, as long as anyone listens there.
pub(crate) fn complain(line: &str) {
    let _ = above_line(|| writeln!(io::stderr(), "{line}"));
}

/// Standard error, whose lines stand above the line of progress.
pub(crate) struct AboveProgress;

impl Write for AboveProgress {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        above_line(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line, erased when dropped.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    /// The thread that draws it, and what ends that.
    drawer: Option<(Sender<()>, JoinHandle<()>)>,
}

impl ProgressLine {
    /// Begins a line about work whose end is not known. There is none if the command reports to a program (`json`).
    pub(crate) fn new(json: bool, what: impl Into<Cow<'static, str>>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(style(OPEN));
        bar.set_message(what);
        let is_wanted = !json && io::stderr().is_terminal();
        let drawer = is_wanted.then(|| {
            let (end, ended) = mpsc::channel();
            let own = bar.clone();
            (end, thread::spawn(move || draw(&own, &ended)))
        });
        Self { bar, drawer }
    }

    /// Returns whether the line is what a person sees of the work, who then needs none for each of its steps.
    pub(crate) fn is_seen(&self) -> bool {
        self.drawer.is_some() && io::stdout().is_terminal()
    }

    /// Says what the work is now.
    pub(crate) fn say(&self, what: impl Into<Cow<'static, str>>) {
        if self.drawer.is_some() {
            self.bar.set_message(what);
        }
    }

    /// Says how much of the work is done, out of `total`.
    pub(crate) fn at(&self, done: u64, total: u64) {
        if self.bar.length().is_none() {
            self.bar.set_style(style(COUNTED));
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Returns a function that says, on any thread, how much more of `total` is done.
    pub(crate) fn counter(&self, total: u64) -> impl Fn(u32) + Sync {
        let done = AtomicU64::new(0);
        move |count| {
            let count = u64::from(count);
            self.at(done.fetch_add(count, Ordering::Relaxed) + count, total);
        }
    }

    /// Returns `out`, which says of what is written to it how much of `total_bytes` it is.
    pub(crate) fn count<'a, W: Write>(
        &'a self,
        out: &'a mut W,
        total_bytes: u64,
    ) -> CountedWriter<'a, W> {
        CountedWriter { progress: self, out, written_bytes: 0, total_bytes }
    }

    /// Says that the end of the work is not known from here on.
    pub(crate) fn go_on(&self, what: impl Into<Cow<'static, str>>) {
        self.bar.unset_length();
        self.bar.set_style(style(OPEN));
        self.say(what);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        let Some((end, drawer)) = self.drawer.take() else { return };
        drop(end);
        // It has nothing that it could panic over.
        let _ = drawer.join();
    }
}

/// A writer that says how far it is.
pub(crate) struct CountedWriter<'a, W> {
    progress: &'a ProgressLine,
    out: &'a mut W,
    written_bytes: u64,
    total_bytes: u64,
}

impl<W: Write> Write for CountedWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.written_bytes += count as u64;
        self.progress.at(self.written_bytes, self.total_bytes);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn style(template: &str) -> ProgressStyle {
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("━╸─")
}

/// Draws a line from its first second until it ends.
fn draw(bar: &ProgressBar, ended: &Receiver<()>) {
    let passes = |span| ended.recv_timeout(span) == Err(RecvTimeoutError::Timeout);
    if !passes(PATIENCE) {
        return;
    }
    bar.set_draw_target(ProgressDrawTarget::stderr());
    *shown() = Some(bar.clone());
    while passes(TICK) {
        bar.tick();
    }
    *shown() = None;
    bar.finish_and_clear();
}
