//! A card that is open: its sizes, its memory, and what waits to be overwritten.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    FpgaError,
    link::Link,
    memory::Free,
    registers,
    ring::{Card, wipes},
};
use crate::engine::{Cycles, DeviceFault};

/// The most descriptors of the ring.
const MOST_ENTRIES: u64 = 1024;
/// What the card says of itself.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) arrays: u64,
    /// Rows of each array, 2 or more.
    pub(super) rows: u64,
    /// Numbers that each array has in flight.
    pub(super) numbers: u64,
    /// Descriptors in flight.
    pub(super) descriptors: u64,
    /// Beats of memory.
    pub(super) beats: u64,
}

/// A card, for all threads.
pub(crate) struct CardDevice {
    pub(super) sizes: Sizes,
    description: String,
    is_emulated: bool,
    card: Mutex<Card>,
    /// Memory that nothing needs any more, and that may hold secrets.
    dead: Mutex<Vec<Range<u64>>>,
}

/// Memory that outlives a run.
pub(crate) struct ResidentBeats {
    device: Arc<CardDevice>,
    beats: Range<u64>,
}

impl ResidentBeats {
    /// Returns its first beat.
    pub(super) fn start(&self) -> u64 {
        self.beats.start
    }
}

impl Drop for ResidentBeats {
    fn drop(&mut self) {
        // The card may be at work for a caller who lets go of this: it is wiped later.
        locked(&self.device.dead).push(self.beats.clone());
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under the lock but by a mistake of this program, and then the run is over.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CardDevice {
    /// Takes a card into use, if it is one.
    pub(super) fn open(mut link: Box<dyn Link>, patience: Duration) -> Result<Self, FpgaError> {
        let (id, version) =
            (link.read(registers::REGISTER_ID)?, link.read(registers::REGISTER_VERSION)?);
        if (id, version) != (registers::ID, registers::VERSION) {
            return Err(FpgaError::Other { id, version });
        }
        let sizes = link.read(registers::REGISTER_SIZES)?;
        let size = |byte: u32| u64::from(sizes >> (8 * byte) & 0xff);
        let sizes = Sizes {
            arrays: size(0),
            rows: size(1),
            numbers: size(2),
            descriptors: size(3),
            beats: link.read(registers::REGISTER_MEMORY)?.into(),
        };
        let entries = (sizes.beats / 8).min(MOST_ENTRIES).checked_ilog2().map_or(0, |log| 1 << log);
        if sizes.arrays == 0 || sizes.rows < 2 || entries < 2 {
            return Err(FpgaError::TooSmall { rows: sizes.rows as u32, beats: sizes.beats as u32 });
        }
        let (description, is_emulated) = (link.describe(), link.is_emulated());
        let free = Free::new(u64::from(entries)..sizes.beats);
        let (beats, tail, lost) = (sizes.beats, 0, None);
        let mut card = Card { link, patience, free, beats, entries, tail, lost };
        card.restart()?;
        if !is_emulated {
            // What a process that was killed left there.
            card.issue(&wipes(&(u64::from(entries)..sizes.beats)), |_| Ok(()))?;
            card.zero(0..entries.into())?;
        }
        let (card, dead) = (Mutex::new(card), Mutex::default());
        Ok(Self { sizes, description, is_emulated, card, dead })
    }

    pub(super) fn describe(&self) -> String {
        let Sizes { arrays, rows, .. } = self.sizes;
        format!("{}, {arrays} arrays of {rows} rows", self.description)
    }

    pub(super) fn is_emulated(&self) -> bool {
        self.is_emulated
    }

    pub(super) fn set_patience(&self, patience: Duration) {
        self.card().patience = patience;
    }

    /// Returns what the card counts; none while it is at work, or lost.
    pub(super) fn cycles(&self) -> Option<Cycles> {
        let mut card = self.card.try_lock().ok()?;
        let mut counter = |at| {
            let both = card.with(|card| Ok((card.link.read(at)?, card.link.read(at + 4)?)));
            both.ok().map(|(low, high)| u64::from(low) | u64::from(high) << 32)
        };
        Some(Cycles {
            cycles: counter(registers::REGISTER_CYCLES)?,
            busy: counter(registers::REGISTER_BUSY)?,
            products: counter(registers::REGISTER_PRODUCTS)?,
            beats: counter(registers::REGISTER_BEATS)?,
            // Each row has two.
            multipliers: 2 * self.sizes.arrays * self.sizes.rows,
        })
    }

    /// Does something with the link.
    #[cfg(test)]
    pub(super) fn with_link<T>(&self, work: impl FnOnce(&mut dyn Link) -> T) -> T {
        work(&mut *self.card().link)
    }

    /// Returns the beats that a run could have now.
    pub(super) fn room(&self) -> u64 {
        let room = self.card().free.largest();
        room.end - room.start
    }

    /// Makes memory that stays, with anything in it.
    pub(super) fn resident(
        self: &Arc<Self>,
        beats: u64,
    ) -> Result<Arc<ResidentBeats>, DeviceFault> {
        let taken = self.card().free.take(beats.max(1));
        let beats = taken.ok_or(DeviceFault::OutOfMemory)?;
        Ok(Arc::new(ResidentBeats { device: self.clone(), beats }))
    }

    /// Returns the card, for this thread alone.
    pub(super) fn card(&self) -> MutexGuard<'_, Card> {
        locked(&self.card)
    }

    /// Overwrites memory that nothing needs any more, and makes it free.
    pub(super) fn sweep(&self) -> Result<(), DeviceFault> {
        let dead = std::mem::take(&mut *locked(&self.dead));
        if dead.is_empty() {
            return Ok(());
        }
        let mut card = self.card();
        let wiped = card.with(|card| {
            let wipes: Vec<_> = dead.iter().flat_map(wipes).collect();
            card.issue(&wipes, |_| Ok(()))?;
            card.zero(0..card.entries.into())
        });
        match &wiped {
            // It still holds what it held.
            Err(DeviceFault::Failed { .. }) => locked(&self.dead).extend(dead),
            _ => dead.into_iter().for_each(|beats| card.free.give(beats)),
        }
        wiped
    }
}
