//! Runs on the card: how steps are recorded, and which items of a batch go there together.

use super::{
    FpgaEngine,
    card::CardDevice,
    link::LinkError,
    record::{CardRecorder, CardRecording},
    ring::Card,
};
use crate::{
    device::{self, Applied, BatchPart, DeviceBatch, DeviceJob, Runner, Transfer},
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

impl CardDevice {
    /// Does once what is recorded, which has no operands; whatever it holds may be secret.
    pub(super) fn once(&self, recording: &CardRecording<'_>) -> Result<(), DeviceFault> {
        let mut batch = DeviceBatch::empty();
        let recordings = [recording; 2];
        self.run(&mut DeviceJob { batch: &mut batch, size: 1, recordings, secret: true })
    }

    /// Does all parts that are left of a job.
    ///
    /// # Errors
    /// Out of memory, where nothing was done; or the card failed, and parts are done.
    pub(super) fn run(
        &self,
        job: &mut DeviceJob<'_, '_, CardRecording<'_>>,
    ) -> Result<(), DeviceFault> {
        self.card().run(job)
    }
}

impl Card {
    fn run(&mut self, job: &mut DeviceJob<'_, '_, CardRecording<'_>>) -> Result<(), DeviceFault> {
        if let Some(why) = &self.lost {
            return Err(why.clone());
        }
        let room = self.free.largest();
        let space = room.end - room.start;
        let need = job.recordings.iter().map(|recording| recording.beats()).max().unwrap_or(0);
        if need > space {
            return Err(DeviceFault::OutOfMemory);
        }
        // While the card computes a part in one place, others go up and come down in another.
        let places = if 2 * need <= space && job.batch.count > job.size { 2 } else { 1 };
        let used = room.start..room.start + places * need;
        let bases = [room.start, room.start + (places - 1) * need];
        let ran = self.with(|card| match places {
            1 => card.in_turn(job, room.start),
            _ => card.at_once(job, bases),
        });
        if ran.is_err() || job.secret {
            // What cannot be overwritten is of no use.
            let clean = |card: &mut Self| card.clean(&used, ran.is_err()).map_err(LinkError::lost);
            return self.with(clean).and(ran);
        }
        ran
    }

    /// Does one part after the other.
    fn in_turn(
        &mut self,
        job: &mut DeviceJob<'_, '_, CardRecording<'_>>,
        base: u64,
    ) -> Result<(), LinkError> {
        let mut there = None;
        for part in job.parts() {
            self.put(job, &part, base, &mut there)?;
            let descriptors: Vec<_> = job.recordings[part.1].descriptors(base).collect();
            self.issue(&descriptors, |_| Ok(()))?;
            self.take(job, &part, base)?;
        }
        Ok(())
    }

    /// Does one part after the other, and meanwhile copies those before and after it.
    fn at_once(
        &mut self,
        job: &mut DeviceJob<'_, '_, CardRecording<'_>>,
        bases: [u64; 2],
    ) -> Result<(), LinkError> {
        let parts: Vec<_> = job.parts().collect();
        let mut there = [None; 2];
        self.put(job, &parts[0], bases[0], &mut there[0])?;
        for (index, part) in parts.iter().enumerate() {
            let (own, other) = (index % 2, (index + 1) % 2);
            let descriptors: Vec<_> = job.recordings[part.1].descriptors(bases[own]).collect();
            self.issue(&descriptors, |card| {
                if let Some(before) = index.checked_sub(1) {
                    card.take(job, &parts[before], bases[other])?;
                }
                let next = parts.get(index + 1);
                next.map_or(Ok(()), |next| card.put(job, next, bases[other], &mut there[other]))
            })?;
        }
        let last = parts.len() - 1;
        self.take(job, &parts[last], bases[last % 2])
    }

    /// Copies what goes up of a part, with the constants unless they are there already.
    fn put(
        &mut self,
        job: &DeviceJob<'_, '_, CardRecording<'_>>,
        (items, which): &BatchPart,
        base: u64,
        there: &mut Option<usize>,
    ) -> Result<(), LinkError> {
        let recording = job.recordings[*which];
        let is_new = there.replace(*which) != Some(*which);
        let constants = recording.constants.iter().filter(|_| is_new);
        for Transfer { buffer, start, form, data } in constants {
            if let Some(place) = recording.place(*buffer, base) {
                self.upload(place + start, *form, data.as_slice())?;
            }
        }
        for Transfer { buffer, start, form, data } in &recording.inputs {
            if let Some(place) = recording.place(*buffer, base) {
                self.upload(place + start, *form, job.batch.input(*data, items))?;
            }
        }
        Ok(())
    }

    /// Copies what comes down of a part.
    fn take(
        &mut self,
        job: &mut DeviceJob<'_, '_, CardRecording<'_>>,
        (items, which): &BatchPart,
        base: u64,
    ) -> Result<(), LinkError> {
        let recording = job.recordings[*which];
        for Transfer { buffer, start, form, data } in &recording.outputs {
            if let Some(place) = recording.place(*buffer, base) {
                self.download(place + start, *form, job.batch.output(*data, items))?;
            }
        }
        job.batch.done = items.end;
        Ok(())
    }
}
