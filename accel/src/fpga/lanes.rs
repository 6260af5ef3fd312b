//! Sums of beats, as operations of the card.

use super::{
    FpgaEngine,
    descriptor::CardOperation,
    record::{Call, CardNumbers, CardRecorder},
    registers,
};
use crate::{
    device::{Applied, DeviceValue},
    engine::DeviceFault,
    program::LaneStep,
};

impl FpgaEngine {
    /// Records sums of beats lane by lane, modulo the primes of the lanes.
    pub(super) fn add_beats(
        &self,
        recorder: &mut CardRecorder<'_>,
        LaneStep { ring, count: beats, .. }: &LaneStep,
        applied: Applied<'_>,
    ) -> Result<(), DeviceFault> {
        let Applied { out, args, .. } = applied;
        let count = applied.items();
        let kept = self.lanes(ring)?;
        let (primes, beats) = (kept.number(recorder, 0), *beats as u64);
        // Whole turns of the primes are an item of the card: as long as it may be.
        let turn = primes.length;
        let most = u64::from(registers::FIELD_A_LENGTH.max()) / turn * turn;
        let is_even = beats.is_multiple_of(turn) && !args.iter().any(|arg| arg.shared);
        let all = if is_even { beats * count } else { beats };
        let divides = |length: &u64| all.is_multiple_of(*length);
        let length = match is_even {
            true => (turn..=most).rev().step_by(turn as usize).find(divides).unwrap_or(turn),
            false => most,
        };
        for first in (0..if is_even { 1 } else { beats }).step_by(length as usize) {
            let (length, stride, count) = match is_even {
                true => (length, Some(length), all / length),
                false => (length.min(beats - first), None, count),
            };
            let part = |view: &DeviceValue<'_>| {
                let numbers: CardNumbers = view.number(0).after(first).of_length(length);
                stride.map_or(numbers, |stride| numbers.every(stride))
            };
            let (a, b, c) = (Some(part(&args[0])), Some(part(&args[1])), Some(primes));
            let call = Call::new(CardOperation::AddBeats, part(out), count);
            recorder.call(Call { a, b, c, ..call });
        }
        Ok(())
    }
}
