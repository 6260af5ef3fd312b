//! Memory for words that begins where a line of the cache does.

use std::ops::{Deref, DerefMut};

use zeroize::Zeroize;

/// Bytes of a cache line, and of the widest register.
const LINE: usize = 64;

/// Words that begin at the start of a cache line: registers as wide as a line then read and write one line each, not
/// two. An allocator promises 16 bytes only, and large blocks of most begin 16 bytes behind a line.
///
/// Wipe secrets before they are dropped.
#[derive(Default)]
pub(crate) struct Words {
    memory: Vec<u64>,
    first: usize,
    count: usize,
}

impl Words {
    /// Makes `count` zeros.
    pub(crate) fn zeros(count: usize) -> Self {
        let memory = vec![0u64; count + LINE / 8 - 1];
        // It may say that it does not know.
        let first = memory.as_ptr().align_offset(LINE).min(memory.len() - count);
        Self { memory, first, count }
    }
}

impl From<&[u64]> for Words {
    fn from(words: &[u64]) -> Self {
        let mut copy = Self::zeros(words.len());
        copy.copy_from_slice(words);
        copy
    }
}

impl Clone for Words {
    fn clone(&self) -> Self {
        (&**self).into()
    }
}

impl Deref for Words {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.memory[self.first..][..self.count]
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.memory[self.first..][..self.count]
    }
}

impl Zeroize for Words {
    fn zeroize(&mut self) {
        self.memory.zeroize();
    }
}

/// Returns `COUNT` neighbours, from number `first` on: their number is known where they are taken one by one, so that
/// no check stands between them.
#[inline(always)]
pub(crate) fn run<T, const COUNT: usize>(list: &[T], first: usize) -> &[T; COUNT] {
    match list[first..].first_chunk() {
        Some(run) => run,
        None => unreachable!("lists have as many as a block needs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_with_a_line_and_a_copy_is_the_same() {
        for count in [0, 1, 7, 8, 1000, 100_000] {
            let mut words = Words::zeros(count);
            assert!(
                words.as_ptr().addr().is_multiple_of(LINE) && words.iter().all(|&word| word == 0)
            );
            (0..).zip(words.iter_mut()).for_each(|(i, word)| *word = i);
            let copy = words.clone();
            assert!(
                copy.as_ptr().addr().is_multiple_of(LINE) && *copy == *words && copy.len() == count
            );
        }
    }
}
