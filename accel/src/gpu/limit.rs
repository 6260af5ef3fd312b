//! How fast a device multiplies at most: what its kernels are held against.

use std::time::{Duration, Instant};

use super::{
    device::GpuDevice,
    record::{Bindings, GpuRecorder},
    shaders::{MAX_ROUNDS, OverRings, RingParams},
};
use crate::engine::DeviceFault;

/// Chains of a thread, as `limit.wgsl` has them.
const CHAINS: u32 = 8;
/// Threads: what the largest cards hold at once, and what a program on a few cores needs to show
/// its rate.
const THREADS: u32 = 1 << 18;
const THREADS_EMULATED: u32 = 1 << 12;
/// Rounds of the shorter of two runs, at first. The longer has `TIMES` as many.
const FIRST_ROUNDS: u32 = 16;
const TIMES: u32 = 4;
/// How long the longer is to take, for a clock and for a device to speed up.
const ENOUGH: Duration = Duration::from_millis(5);
/// Runs of a measurement, of which the fastest counts.
const TRIES: usize = 3;

/// Measures the products of two numbers of 32 bits, added to one of 64, that a device does in a
/// second. Two runs that differ in their rounds alone give it: everything else that a run takes is
/// in both. Nothing if others' work hid the difference.
///
/// # Errors
/// The device's.
pub(super) fn multiply_rate(device: &GpuDevice) -> Result<Option<f64>, DeviceFault> {
    let threads = if device.is_software() { THREADS_EMULATED } else { THREADS };
    let seconds = |rounds: u32| {
        let mut best = Duration::MAX;
        for _ in 0..TRIES {
            let clock = Instant::now();
            run(device, threads, rounds)?;
            best = best.min(clock.elapsed());
        }
        Ok(best)
    };
    let mut rounds = FIRST_ROUNDS;
    // The first makes the pipeline.
    run(device, threads, 1)?;
    while TIMES * TIMES * rounds <= MAX_ROUNDS && seconds(TIMES * rounds)? < ENOUGH {
        rounds *= TIMES;
    }
    let (short, long) = (seconds(rounds)?, seconds(TIMES * rounds)?);
    let more = f64::from(threads) * f64::from(CHAINS * (TIMES - 1) * rounds);
    let difference = long.checked_sub(short).filter(|difference| !difference.is_zero());
    Ok(difference.map(|seconds| more / seconds.as_secs_f64()))
}

/// Runs `rounds` rounds on each of `threads` threads.
pub(super) fn run(device: &GpuDevice, threads: u32, rounds: u32) -> Result<(), DeviceFault> {
    let mut recorder = GpuRecorder::default();
    let (nothing, out) = (recorder.zeros(2), recorder.buffer(2 * threads as usize));
    let params = RingParams { count: threads, words: rounds, ..RingParams::default() };
    let bindings = Bindings { constants: nothing, a: nothing, b: nothing, out, state: None };
    recorder.over_rings(OverRings::Limit, threads, &bindings, params);
    device.once(&recorder.finish()?)
}
