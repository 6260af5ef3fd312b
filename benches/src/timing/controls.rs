//! Controls: a leak that a run must see, or it sees nothing.

use std::hint::black_box;

use ciphergram_accel::random::StreamRng;

use super::subject::{Subject, Words, uniform_into};

/// Words of the compared buffers: 512 bytes, the size of a ciphertext.
const WORDS: usize = 64;

/// Times a comparison that returns at the first difference: of equal buffers in class A, of buffers
/// whose first words differ in class B. The classic leak.
#[must_use]
pub fn compare<'a>(rng: &mut StreamRng) -> Box<dyn Subject + 'a> {
    let mut secret = vec![0; WORDS];
    uniform_into(&mut secret, rng);
    let draw = |[_, b]: &mut [Vec<u64>; 2], rng: &mut StreamRng| uniform_into(b, rng);
    let candidates = [secret.clone(), secret.clone()];
    let run = move |guess: &[u64]| {
        black_box(is_equal_vartime(black_box(guess), &secret));
        Ok(())
    };
    Box::new(Words::new(candidates, draw, run))
}

#[inline(never)]
fn is_equal_vartime(a: &[u64], b: &[u64]) -> bool {
    for (a, b) in a.iter().zip(b) {
        if black_box(a) != b {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comparison_compares() {
        assert!(is_equal_vartime(&[1, 2], &[1, 2]));
        assert!(!is_equal_vartime(&[1, 2], &[1, 3]));
    }
}
