//! Runs on the card: how steps are recorded, and which items of a batch go there together.

use super::{
    FpgaEngine,
    card::CardDevice,
    record::{CardRecorder, CardRecording},
};
use crate::{
    device::{self, Applied, DeviceBatch, DeviceJob, Runner},
    engine::DeviceFault,
    program::{LaneOp, Program, Step},
};

/// The most shares of a part.
const SHARES: usize = 4;
/// The beats of a part that go up and come down, where there are more in a batch: 32 MiB. The card
/// computes one part while the one before it comes down and the next goes up.
const PART_BEATS: u64 = 1 << 19;

impl Runner for FpgaEngine {
    type Target = CardDevice;

    fn step<'o>(
        &self,
        recorder: &mut CardRecorder<'o>,
        step: &'o Step,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        match step {
            Step::Residue(step) => self.residue_step(recorder, step, applied),
            Step::Lane(lanes) if matches!(lanes.op, LaneOp::AddBeats) => {
                self.add_beats(recorder, lanes, applied)
            }
            Step::Lane(_) | Step::Limb(_) | Step::Ring(_) => {
                Err(DeviceFault::no_kernel(step.name()))
            }
        }
    }

    /// Returns the items of a batch that go to the card at once, about as many in each part: all where
    /// there are few, else so many that two parts have room in its memory.
    fn part(&self, program: &Program, batch: &DeviceBatch<'_>) -> Result<usize, DeviceFault> {
        let count = batch.count;
        let one = device::record(self, program, batch, 1)?;
        let beats =
            |items| Ok::<u64, DeviceFault>(device::record(self, program, batch, items)?.beats());
        let (first, second) = (one.beats(), if count > 1 { beats(2)? } else { 0 });
        // What was made for the first recording takes room as well.
        let room = self.device.room();
        if first > room {
            return Err(DeviceFault::OutOfMemory);
        }
        let fits = |room: u64| {
            let more = room.saturating_sub(first) / second.saturating_sub(first).max(1);
            usize::try_from(more).map_or(count, |more| count.min(more.saturating_add(1)))
        };
        let worth = PART_BEATS
            .div_ceil(one.item_sizes().iter().sum::<u64>().max(1))
            .max(self.full_batch()) as usize;
        let items = if fits(room) == count { count.min(worth) } else { fits(room / 2).min(worth) };
        let mut items = count.div_ceil(count.div_ceil(items));
        while items > 1 && beats(items)? > room {
            items = items.div_ceil(2);
        }
        Ok(items)
    }

    /// The descriptors of a share wait for each other, those of another do not, and so the units that it leaves idle
    /// work on the next. None is so small that arrays idle.
    fn shares(&self, count: usize) -> usize {
        let least = (self.full_batch() as usize / 2).max(1);
        (count / least).clamp(1, SHARES)
    }

    /// A modulus may be secret even where no value is.
    fn is_secret(&self, program: &Program) -> bool {
        program.has_secrets() || program.steps().any(Step::is_of_residues)
    }

    fn execute(&self, job: &mut DeviceJob<'_, '_, CardRecording<'_>>) -> Result<(), DeviceFault> {
        self.device.run(job)
    }

    fn products(&self, recording: &CardRecording<'_>) -> u64 {
        recording.multiplies(self.device.sizes.rows)
    }
}
