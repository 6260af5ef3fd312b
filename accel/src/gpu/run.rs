//! Runs on an adapter: how steps are recorded, and which items of a batch go there together.

use super::{
    GpuEngine,
    device::GpuDevice,
    execute::PARTS_AT_ONCE,
    multiplies,
    record::{GpuRecorder, GpuRecording},
};
use crate::{
    device::{self, Applied, DeviceBatch, DeviceJob, Runner},
    engine::DeviceFault,
    program::{LaneOp, Program, Step},
};

/// The least bytes of a part that go up and come down, where there are more in a batch. The host
/// copies them in some milliseconds: much longer than to submit takes, short beside a whole batch,
/// whose first part nothing overlaps.
const PART_BYTES: u64 = 32 << 20;

/// Returns whether a device may hold it: kernels see every buffer, and count its words in 32 bits.
fn is_visible(engine: &GpuEngine, recording: &GpuRecording<'_>) -> bool {
    recording.largest() <= engine.device.binding_bytes().min(u64::from(u32::MAX))
}

impl Runner for GpuEngine {
    type Target = GpuDevice;

    fn step<'o>(
        &self,
        recorder: &mut GpuRecorder<'o>,
        step: &'o Step,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        match step {
            Step::Residue(step) => self.residue_step(recorder, step, applied),
            Step::Limb(step) => self.limb_step(recorder, step, applied),
            Step::Ring(step) => self.ring_step(recorder, step, applied),
            Step::Lane(lanes) => match lanes.op {
                LaneOp::AddBeats => self.add_beats(recorder, lanes, applied),
                LaneOp::FirstBadLane | LaneOp::AddLanes | LaneOp::ReduceLanes => {
                    Err(DeviceFault::no_kernel(step.name()))
                }
            },
        }
    }

    /// Returns the items of a batch that go to the device at once: enough to fill it, and about as many
    /// in each part. Their memory and threads are those of recordings.
    fn part(&self, program: &Program, batch: &DeviceBatch<'_>) -> Result<usize, DeviceFault> {
        let count = batch.count;
        let memory = self.device.memory_bytes();
        let fits = |recording: &GpuRecording<'_>, items: usize| {
            let at_once = PARTS_AT_ONCE.min(count.div_ceil(items)) as u64;
            is_visible(self, recording) && at_once * recording.all_bytes() <= memory / 2
        };
        let (mut items, mut recording) = (1, device::record(self, program, batch, 1)?);
        if !is_visible(self, &recording) {
            return Err(DeviceFault::OutOfMemory);
        }
        while items < count {
            // How many times as many would be enough.
            let ratio = |want: u64, has: u64| want.div_ceil(has.max(1));
            let bytes = ratio(PART_BYTES, recording.item_bytes().iter().sum());
            let times = bytes.max(ratio(self.device.part_threads(), recording.threads()));
            if times <= 1 {
                break;
            }
            // Below 2^31 words, however they grow.
            let most = ((1 << 33) / recording.largest().max(1)).max(2);
            let more = usize::try_from(times.min(most)).unwrap_or(usize::MAX);
            let next = items.saturating_mul(more).min(count);
            let larger = device::record(self, program, batch, next)?;
            if fits(&larger, next) {
                (items, recording) = (next, larger);
                continue;
            }
            // Between the two; what they take grows with them, but for what is the same for all.
            let room = [memory / 2 / PARTS_AT_ONCE as u64, self.device.binding_bytes()];
            let bytes = |r: &GpuRecording<'_>| [r.all_bytes(), r.largest()];
            let limits = std::iter::zip(room, std::iter::zip(bytes(&recording), bytes(&larger)));
            let between = limits.map(|(room, (low, high))| {
                let spare = u128::from(room.saturating_sub(low)) * (next - items) as u128;
                items
                    + usize::try_from(spare / u128::from((high - low.min(high)).max(1)))
                        .unwrap_or(0)
            });
            let between = between.min().unwrap_or(items).min(next - 1);
            if between > items && fits(&device::record(self, program, batch, between)?, between) {
                items = between;
            }
            break;
        }
        Ok(count.div_ceil(count.div_ceil(items)))
    }

    fn execute(&self, job: &mut DeviceJob<'_, '_, GpuRecording<'_>>) -> Result<(), DeviceFault> {
        self.device.run(job)
    }

    fn products(&self, recording: &GpuRecording<'_>) -> u64 {
        multiplies::of(recording)
    }
}
