//! The range check of beats, as a program that is built once for a ring.

use std::{fmt, sync::Arc};

use ciphergram_accel::{Builder, Engine, Operand, Program, Ring, beats};

/// Units of a short run, and the most of one run: results lie on the stack, so that no check allocates.
const SHORT: usize = 64;
const LONG: usize = 1024;

/// A check that every lane of some beats is below its prime.
#[derive(Clone)]
pub(crate) struct RangeCheck {
    ring: Arc<Ring>,
    /// Over units, the fewest beats that hold whole coefficients.
    program: Arc<Program>,
    unit_beats: usize,
}

impl RangeCheck {
    /// Builds the check of beats over `ring`.
    pub(crate) fn new(ring: &Arc<Ring>) -> Self {
        let unit_beats = beats::beats_per_unit(ring.primes().len());
        let mut b = Builder::new("ckks-sum.range");
        let unit = b.beats("beats", ring, unit_beats);
        let lane = b.first_bad_lane("lane", unit);
        b.output(lane);
        Self { ring: ring.clone(), program: Arc::new(b.build()), unit_beats }
    }

    /// Returns the first lane of `words` that is not below its prime, if any: see [`beats::first_bad_lane`].
    /// `words` begin with limb 0 of a coefficient. Where the engine fails, or beats are no whole units, the
    /// definition decides.
    pub(crate) fn first_bad_lane(&self, engine: &dyn Engine, words: &[u64]) -> Option<usize> {
        if words.len() <= SHORT * self.unit_beats * beats::WORDS {
            self.in_runs::<SHORT>(engine, words)
        } else {
            self.in_runs::<LONG>(engine, words)
        }
    }

    /// Checks `UNITS` units a run.
    fn in_runs<const UNITS: usize>(&self, engine: &dyn Engine, words: &[u64]) -> Option<usize> {
        let mut lanes = [0; UNITS];
        let (unit_words, unit_lanes) =
            (self.unit_beats * beats::WORDS, self.unit_beats * beats::LANES);
        let mut runs = words.chunks(UNITS * unit_words).enumerate();
        runs.find_map(|(run, words)| {
            let lanes = &mut lanes[..words.len() / unit_words];
            let operands = &mut [Operand::In(words), Operand::Out(lanes)];
            let bad = match engine.run(&self.program, operands) {
                Ok(()) => {
                    // All at once first: no branch for each.
                    let none = unit_lanes as u64;
                    let is_bad = lanes.iter().fold(0, |bad, lane| bad | (lane ^ none)) != 0;
                    let unit = is_bad.then(|| lanes.iter().position(|&lane| lane != none));
                    unit.flatten().map(|unit| unit * unit_lanes + lanes[unit] as usize)
                }
                Err(_) => beats::first_bad_lane(words, self.ring.primes()),
            };
            bad.map(|lane| run * UNITS * unit_lanes + lane)
        })
    }
}

impl PartialEq for RangeCheck {
    fn eq(&self, other: &Self) -> bool {
        self.ring == other.ring
    }
}

impl Eq for RangeCheck {}

impl fmt::Debug for RangeCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RangeCheck")
    }
}

#[cfg(test)]
mod tests {
    use ciphergram_accel::{CpuEngine, ring::largest_primes};

    use super::*;

    /// Whole units and not, in one run and in several, with a bad lane anywhere or none.
    #[test]
    fn it_finds_what_the_definition_finds() {
        let engine = CpuEngine::new();
        for limbs in [2, 4, 8, 16] {
            let ring = Arc::new(Ring::new(4096, &largest_primes(50, 4096, limbs)).unwrap());
            let check = RangeCheck::new(&ring);
            for beats in [0, 1, 2, 20, 127, 128, 129, 2048, 5000] {
                let mut words = vec![1; beats * beats::WORDS];
                assert_eq!(check.first_bad_lane(&engine, &words), None, "{beats} beats");
                for beat in (0..beats).rev().step_by(19) {
                    beats::set_lane(&mut words[beat * beats::WORDS..], beat % 10, (1 << 51) - 2);
                    let expected = beats::first_bad_lane(&words, ring.primes());
                    assert!(expected.is_some());
                    assert_eq!(check.first_bad_lane(&engine, &words), expected, "beat {beat}");
                }
            }
        }
    }
}
