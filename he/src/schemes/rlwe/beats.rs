//! Polynomials of a sum in beats: how they add, and which beats are ciphertexts.

use std::{borrow::Cow, ops::Range, sync::Arc};

use ciphergram_accel::{Builder, Engine, Operand, Program, RunError, beats};

use super::parameters::RlweParameters;
use crate::{
    Error,
    error::CiphertextFault,
    params::{Chunks, MAX_CLIENTS},
    schemes::{RunningSum, SumScheme},
};

// A lane has room for one residue of each client.
const _: () = assert!(MAX_CLIENTS <= beats::MAX_ADDITIONS);

impl SumScheme for RlweParameters {
    /// Adds lanes in place, those of a chunk an item.
    fn sum_program(&self) -> Arc<Program> {
        let beats = self.geometry.chunk_beats();
        let mut b = Builder::new("ckks-sum.sum");
        let sum = b.lane_sums("sum", &self.ring, beats);
        let x = b.beats("x", &self.ring, beats);
        let next = b.add_lanes("next", sum, x);
        b.update(sum, next);
        b.build().into()
    }

    fn running_sum(&self, chunks: &Chunks, own: Range<u32>) -> Box<dyn RunningSum> {
        Box::new(LaneSums::new(self, chunks, own))
    }

    fn places_per_chunk(&self, chunks: &Chunks) -> usize {
        chunks.geometry().chunk_beats() * beats::LANES
    }

    /// Finds the first lane that is not below its prime.
    fn range_fault(&self, engine: &dyn Engine, words: &[u64]) -> Option<CiphertextFault> {
        self.range.first_bad_lane(engine, words).map(CiphertextFault::residue)
    }
}

/// Sums of lanes, not reduced: a word each, and a word for each chunk that counts what is no residue.
struct LaneSums {
    scheme: RlweParameters,
    chunks: Chunks,
    first: u32,
    add: Arc<Program>,
    reduce: Program,
    /// Words of a chunk's beats, and of the sums of their lanes.
    beat_words: usize,
    sum_words: usize,
    words: Vec<u64>,
}

impl LaneSums {
    fn new(scheme: &RlweParameters, chunks: &Chunks, own: Range<u32>) -> Self {
        let beats = scheme.geometry.chunk_beats();
        let mut b = Builder::new("ckks-sum.reduce");
        let sums = b.lanes("sums", &scheme.ring, beats);
        let reduced = b.reduce_lanes("reduced", sums);
        b.output(reduced);
        Self {
            scheme: scheme.clone(),
            chunks: *chunks,
            first: own.start,
            add: scheme.sum_program(),
            reduce: b.build(),
            beat_words: beats * beats::WORDS,
            sum_words: beats::lane_words(beats),
            words: vec![0; own.len() * beats::lane_words(beats)],
        }
    }

    /// Returns the place of chunks among the words.
    fn range(&self, own: &Range<u32>) -> Range<usize> {
        let place = |chunk: u32| (chunk - self.first) as usize * self.sum_words;
        place(own.start)..place(own.end)
    }
}

impl RunningSum for LaneSums {
    fn add(
        &mut self,
        engine: &dyn Engine,
        own: Range<u32>,
        words: &[u64],
    ) -> Result<Option<CiphertextFault>, Error> {
        let (beats, each) = (self.beat_words, self.sum_words);
        let range = self.range(&own);
        let sums = &mut self.words[range];
        let mut words = Cow::Borrowed(words);
        if words.len() < own.len() * beats {
            // A chunk that was cut goes on with zeros, which are residues.
            words.to_mut().resize(own.len() * beats, 0);
        }
        match engine.run(&self.add, &mut [Operand::InOut(sums), Operand::In(&words)]) {
            // A device alone lacks the step: the definition takes its place.
            Err(RunError::Unsupported { .. }) => {
                for (sums, words) in sums.chunks_exact_mut(each).zip(words.chunks_exact(beats)) {
                    beats::add_lanes(sums, words, self.scheme.ring.primes());
                }
            }
            added => added?,
        }
        if sums.chunks_exact(each).all(|sums| sums.last() == Some(&0)) {
            return Ok(None);
        }
        for (sums, words) in sums.chunks_exact_mut(each).zip(words.chunks_exact(beats)) {
            beats::take_lanes(sums, words, self.scheme.ring.primes());
        }
        let fault = self.scheme.range_fault(engine, &words);
        // What was taken back is not in the sum, whatever another step says of it.
        Ok(fault.or(Some(CiphertextFault::residue(0))))
    }

    fn finish(
        &mut self,
        engine: &dyn Engine,
        own: Range<u32>,
        _additions: u32,
    ) -> Result<Vec<u64>, Error> {
        let mut out = vec![0; own.len() * self.beat_words];
        let sums = &self.words[self.range(&own)];
        match engine.run(&self.reduce, &mut [Operand::In(sums), Operand::Out(&mut out)]) {
            Err(RunError::Unsupported { .. }) => {
                let chunks = out.chunks_exact_mut(self.beat_words);
                for (out, sums) in chunks.zip(sums.chunks_exact(self.sum_words)) {
                    beats::reduce_lanes(out, sums, self.scheme.ring.primes());
                }
            }
            reduced => reduced?,
        }
        out.truncate(self.chunks.range_of(&own).len() / 8);
        Ok(out)
    }
}
