//! Which items of a batch go to an adapter together.

use super::{GpuEngine, execute::PARTS_AT_ONCE, record::GpuRecording};
use crate::{
    device::{self, DeviceBatch},
    engine::DeviceFault,
    program::Program,
};

/// The least bytes of a part that go up and come down, where there are more in a batch. The host
/// copies them in some milliseconds: much longer than to submit takes, short beside a whole batch,
/// whose first part nothing overlaps.
const PART_BYTES: u64 = 32 << 20;

/// Returns whether a device may hold it: kernels see every buffer, and count its words in 32 bits.
fn is_visible(engine: &GpuEngine, recording: &GpuRecording<'_>) -> bool {
    recording.largest() <= engine.device.binding_bytes().min(u64::from(u32::MAX))
}

/// Returns the items of a batch that go to the device at once: enough to fill it, and about as many
/// in each part. Their memory and threads are those of recordings.
///
/// # Errors
/// Out of memory, if the device cannot hold even one; or constants could not be made.
pub(super) fn part(
    engine: &GpuEngine,
    program: &Program,
    batch: &DeviceBatch<'_>,
) -> Result<usize, DeviceFault> {
    let count = batch.count;
    let memory = engine.device.memory_bytes();
    let fits = |recording: &GpuRecording<'_>, items: usize| {
        let at_once = PARTS_AT_ONCE.min(count.div_ceil(items)) as u64;
        is_visible(engine, recording) && at_once * recording.all_bytes() <= memory / 2
    };
    let (mut items, mut recording) = (1, device::record(engine, program, batch, 1)?);
    if !is_visible(engine, &recording) {
        return Err(DeviceFault::OutOfMemory);
    }
    while items < count {
        // How many times as many would be enough.
        let ratio = |want: u64, has: u64| want.div_ceil(has.max(1));
        let bytes = ratio(PART_BYTES, recording.item_bytes().iter().sum());
        let times = bytes.max(ratio(engine.device.part_threads(), recording.threads()));
        if times <= 1 {
            break;
        }
        // Below 2^31 words, however they grow.
        let most = ((1 << 33) / recording.largest().max(1)).max(2);
        let more = usize::try_from(times.min(most)).unwrap_or(usize::MAX);
        let next = items.saturating_mul(more).min(count);
        let larger = device::record(engine, program, batch, next)?;
        if fits(&larger, next) {
            (items, recording) = (next, larger);
            continue;
        }
        // Between the two; what they take grows with them, but for what is the same for all.
        let room = [memory / 2 / PARTS_AT_ONCE as u64, engine.device.binding_bytes()];
        let bytes = |r: &GpuRecording<'_>| [r.all_bytes(), r.largest()];
        let limits = std::iter::zip(room, std::iter::zip(bytes(&recording), bytes(&larger)));
        let between = limits.map(|(room, (low, high))| {
            let spare = u128::from(room.saturating_sub(low)) * (next - items) as u128;
            items + usize::try_from(spare / u128::from((high - low.min(high)).max(1))).unwrap_or(0)
        });
        let between = between.min().unwrap_or(items).min(next - 1);
        if between > items && fits(&device::record(engine, program, batch, between)?, between) {
            items = between;
        }
        break;
    }
    Ok(count.div_ceil(count.div_ceil(items)))
}
