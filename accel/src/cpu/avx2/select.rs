//! Entries of tables by secret digits: every entry is read, and masks keep what digits name.

use std::arch::x86_64::{
    _mm256_add_epi64 as add, _mm256_and_si256 as and, _mm256_cmpeq_epi64 as equal,
    _mm256_or_si256 as or, _mm256_permutevar8x32_epi32, _mm256_set1_epi64x as all,
    _mm256_setzero_si256 as zero, _mm256_slli_epi64, _mm256_srli_epi64,
};

use zeroize::{Zeroize, Zeroizing};

use super::{Quad as Word, four};
use crate::cpu::backend::Line;

/// Bits of a digit that name one of four entries of a vector.
const PLACE_BITS: i32 = 2;

/// A digit of each lane.
pub(in crate::cpu) struct LaneDigits {
    index: Word,
    width: usize,
}

impl Drop for LaneDigits {
    fn drop(&mut self) {
        self.index.zeroize();
    }
}

impl LaneDigits {
    #[target_feature(enable = "avx2")]
    pub(super) fn new(index: Word, width: usize) -> Self {
        Self { index, width }
    }
}

/// Returns, for each number below `count`, the lanes where x is that.
#[inline]
#[target_feature(enable = "avx2")]
fn masks(x: Word, count: usize) -> Zeroizing<Vec<Word>> {
    Zeroizing::new((0..count as i64).map(|number| equal(x, all(number))).collect())
}

/// See [`Backend::pick_own`](crate::cpu::backend::Backend::pick_own).
#[target_feature(enable = "avx2")]
pub(super) fn pick_own(out: &mut [Word], table: &[Word], digits: &LaneDigits) {
    let masks = masks(digits.index, 1 << digits.width);
    for (out, entries) in out.iter_mut().zip(table.chunks_exact(masks.len())) {
        let each = entries.iter().zip(&*masks);
        *out = each.fold(zero(), |picked, (&entry, &mask)| or(picked, and(entry, mask)));
    }
}

/// See [`Backend::pick_shared`](crate::cpu::backend::Backend::pick_shared): of four entries in a vector the low bits of
/// a digit pick by a permutation, among the vectors the others by masks. Limb by limb, so that all groups read entries
/// while they are in cache.
#[target_feature(enable = "avx2")]
pub(super) fn pick_shared(out: &mut [Word], table: &[Line], digits: &[LaneDigits]) {
    let Some(first) = digits.first() else { return };
    let (len, vectors) = (out.len() / digits.len(), 1 << (first.width - PLACE_BITS as usize));
    let keys = digits.iter().map(|digit| {
        let above = _mm256_srli_epi64::<PLACE_BITS>(digit.index);
        (Zeroizing::new(halves(digit.index)), masks(above, vectors))
    });
    let keys: Vec<_> = keys.collect();
    for (limb, lines) in table.chunks_exact(vectors / 2).enumerate() {
        for (out, (halves, masks)) in out.chunks_exact_mut(len).zip(&keys) {
            let mut picked = zero();
            for (Line(entries), masks) in lines.iter().zip(masks.as_chunks::<2>().0) {
                for (entries, &mask) in entries.as_chunks::<4>().0.iter().zip(masks) {
                    let entry = _mm256_permutevar8x32_epi32(four(entries), **halves);
                    picked = or(picked, and(entry, mask));
                }
            }
            out[limb] = picked;
        }
    }
}

/// Returns for each lane the places of both halves of the word that the low bits of x name, in a vector of half words.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(x: Word) -> Word {
    let place = and(x, all((1 << PLACE_BITS) - 1));
    let low = add(place, place);
    or(low, _mm256_slli_epi64::<32>(add(low, all(1))))
}
