//! Which items of a batch go to the card together.

use super::FpgaEngine;
use crate::{
    device::{self, DeviceBatch},
    engine::DeviceFault,
    program::Program,
};

/// The beats of a part that go up and come down, where there are more in a batch: 32 MiB. The card
/// computes one part while the one before it comes down and the next goes up.
const PART_BEATS: u64 = 1 << 19;

/// Returns the items of a batch that go to the card at once, about as many in each part: all where
/// there are few, else so many that two parts have room in its memory.
///
/// # Errors
/// Out of memory, if the card cannot hold even one; or constants could not be made.
pub(super) fn part(
    engine: &FpgaEngine,
    program: &Program,
    batch: &DeviceBatch<'_>,
) -> Result<usize, DeviceFault> {
    let count = batch.count;
    let one = device::record(engine, program, batch, 1)?;
    let beats =
        |items| Ok::<u64, DeviceFault>(device::record(engine, program, batch, items)?.beats());
    let (first, second) = (one.beats(), if count > 1 { beats(2)? } else { 0 });
    // What was made for the first recording takes room as well.
    let room = engine.device.room();
    if first > room {
        return Err(DeviceFault::OutOfMemory);
    }
    let fits = |room: u64| {
        let more = room.saturating_sub(first) / second.saturating_sub(first).max(1);
        usize::try_from(more).map_or(count, |more| count.min(more.saturating_add(1)))
    };
    let worth = PART_BEATS
        .div_ceil(one.item_sizes().iter().sum::<u64>().max(1))
        .max(engine.full_batch()) as usize;
    let items = if fits(room) == count { count.min(worth) } else { fits(room / 2).min(worth) };
    let mut items = count.div_ceil(count.div_ceil(items));
    while items > 1 && beats(items)? > room {
        items = items.div_ceil(2);
    }
    Ok(items)
}
