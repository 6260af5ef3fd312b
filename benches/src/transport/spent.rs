//! The processor's time that a thread takes.

use std::fs;

use super::Failure;

/// What passed between two ends, and what it took.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Gbit/s.
    pub rate: f64,
    /// The time of the thread that sends, and of the one that receives.
    pub ends: [Spent; 2],
}

/// The processor's time for each byte, in picoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// In the system.
    pub system: f64,
    /// Outside of it.
    pub user: f64,
}

impl Spent {
    /// Returns all of it.
    #[must_use]
    pub fn total(self) -> f64 {
        self.system + self.user
    }
}

/// The time that a thread has had so far.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    nanoseconds: u64,
    /// Ticks outside of the system and in it: they say how the time divides.
    ticks: [u64; 2],
}

impl Clock {
    /// Reads the clock of the calling thread, as Linux keeps it.
    ///
    /// # Errors
    /// There is no such file, as elsewhere.
    pub(super) fn read() -> Result<Self, Failure> {
        let number = |text: Option<&str>| -> Result<u64, Failure> {
            Ok(text.ok_or("a file of the system is shorter than it was")?.parse()?)
        };
        let slept = fs::read_to_string("/proc/thread-self/schedstat")?;
        let stat = fs::read_to_string("/proc/thread-self/stat")?;
        // Behind the name, which may have spaces, the state and ten numbers.
        let (_, fields) = stat.rsplit_once(')').ok_or("a thread has no name")?;
        let mut fields = fields.split_whitespace().skip(11);
        let ticks = [number(fields.next())?, number(fields.next())?];
        Ok(Self { nanoseconds: number(slept.split_whitespace().next())?, ticks })
    }

    /// Returns the time since then, for each of `bytes` bytes.
    pub(super) fn since(self, before: Self, bytes: u64) -> Spent {
        let [user, system] = [0, 1].map(|i| (self.ticks[i] - before.ticks[i]) as f64);
        let each = (self.nanoseconds - before.nanoseconds) as f64 * 1e3 / bytes.max(1) as f64;
        let share = if user + system > 0.0 { system / (user + system) } else { 0.0 };
        Spent { system: each * share, user: each * (1.0 - share) }
    }
}
