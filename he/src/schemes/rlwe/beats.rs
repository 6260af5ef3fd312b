//! Polynomials of a sum in beats: how they add, and which beats are ciphertexts.

use std::sync::Arc;

use ciphergram_accel::{Builder, Engine, Program, Ring, beats};

use super::parameters::RlweParameters;
use crate::{error::CiphertextFault, params::Chunks, schemes::SumScheme};

impl SumScheme for RlweParameters {
    /// Adds beats in place, the beats of one unit an item.
    fn sum_program(&self) -> Arc<Program> {
        let unit = beats::beats_per_unit(self.ring.primes().len());
        let mut b = Builder::new("ckks-sum.sum");
        let sum = b.beat_sums("sum", &self.ring, unit);
        let x = b.beats("x", &self.ring, unit);
        let next = b.add_beats("next", sum, x);
        b.update(sum, next);
        b.build().into()
    }

    fn places_per_chunk(&self, chunks: &Chunks) -> usize {
        lanes_per_chunk(chunks)
    }

    /// Finds the first lane that is not below its prime, or past the end of a mask but not zero.
    fn range_fault(
        &self,
        engine: &dyn Engine,
        chunks: &Chunks,
        first: u32,
        words: &[u64],
    ) -> Option<CiphertextFault> {
        let bad = self.range.first_bad_lane(engine, words);
        let stray = first_stray((chunks, first), words, &self.ring);
        let stray = stray.filter(|&lane| bad.is_none_or(|bad| lane < bad));
        let stray = stray.map(|lane| CiphertextFault::Stray { lane });
        stray.or(bad.map(|lane| CiphertextFault::Residue { lane }))
    }
}

/// Returns the lanes of a whole chunk.
fn lanes_per_chunk(chunks: &Chunks) -> usize {
    chunks.geometry().chunk_bytes() / beats::BYTES * beats::LANES
}

/// Finds the first lane of a mask in `words` that is past the end of its polynomial, but not zero.
fn first_stray((chunks, first): (&Chunks, u32), words: &[u64], ring: &Ring) -> Option<usize> {
    let g = chunks.geometry();
    // A mask has no more chunks than it needs: only the last goes past its end.
    let last = g.mask_chunks.checked_sub(1)?;
    let (lanes, place) = (lanes_per_chunk(chunks), first as usize % g.group_chunks());
    let end = ring.len_words() - last * lanes;
    let skipped = (last + g.group_chunks() - place) % g.group_chunks();
    let own = words.chunks(g.chunk_bytes() / 8).enumerate().skip(skipped);
    own.step_by(g.group_chunks())
        .find_map(|(i, own)| stray_lane(own, end).map(|lane| i * lanes + lane))
}

/// Finds the first lane of beats, from `end` of a polynomial on, that is not zero.
pub(super) fn stray_lane(words: &[u64], end: usize) -> Option<usize> {
    let lanes = words.len() / beats::WORDS * beats::LANES;
    (end..lanes).find(|lane| {
        let beat = &words[lane / beats::LANES * beats::WORDS..][..beats::WORDS];
        beats::lane(beat, lane % beats::LANES) != 0
    })
}
