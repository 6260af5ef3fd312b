//! Which buffers of a recording share memory: those that do not hold something at the same time.

use super::record::{Memory, Recorder};

/// Where the buffers of a recording lie.
pub(super) struct Layout {
    /// For each buffer its place; none of those that stay, or that nothing uses.
    pub(super) places: Vec<Option<usize>>,
    /// For each place its bytes.
    pub(super) sizes: Vec<u64>,
}

impl Layout {
    /// Gives each buffer, in the order in which they are first used, the smallest place that is free and
    /// large enough; else the largest that is free, which grows.
    pub(super) fn new(recorder: &Recorder<'_>) -> Self {
        let lives = recorder.lives();
        let mut order: Vec<_> = recorder
            .memory()
            .iter()
            .zip(lives)
            .enumerate()
            .filter_map(|(index, (memory, life))| match (memory, life) {
                (Memory::Own { words }, Some((first, last))) => {
                    Some((first, last, index, 4 * *words as u64))
                }
                _ => None,
            })
            .collect();
        order.sort_unstable();
        let mut places = vec![None; recorder.memory().len()];
        // Bytes of a place, and the last command that uses what lies there.
        let mut made: Vec<(u64, usize)> = vec![];
        for (first, last, index, bytes) in order {
            let free = || made.iter().enumerate().filter(|&(_, &(_, until))| until < first);
            let fits = free().filter(|&(_, &(size, _))| size >= bytes).min_by_key(|&(_, p)| p.0);
            let found = fits.or_else(|| free().max_by_key(|&(_, p)| p.0)).map(|(place, _)| place);
            let place = found.unwrap_or(made.len());
            match made.get_mut(place) {
                Some(place) => *place = (bytes.max(place.0), last),
                None => made.push((bytes, last)),
            }
            places[index] = Some(place);
        }
        Self { places, sizes: made.into_iter().map(|(size, _)| size).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{
        record::{Bindings, Buffer, Words},
        shaders::{Kernel, WordParams},
    };

    fn copy(recorder: &mut Recorder<'_>, a: Buffer, out: Buffer) {
        let bindings = Bindings { constants: a, a, b: a, out, state: None };
        recorder.over_words(Kernel::UnitPair, 1, &bindings, &WordParams::default());
    }

    /// A chain of values, each read by the next alone, lies in two places; constants keep theirs.
    #[test]
    fn memory_is_used_again() {
        let mut recorder = Recorder::default();
        let constant = recorder.constant(Words::Borrowed(&[7; 3]));
        let mut chain = vec![recorder.buffer(10)];
        recorder.input(chain[0], 0);
        for words in [20, 30, 5] {
            let next = recorder.buffer(words);
            copy(&mut recorder, chain[chain.len() - 1], next);
            chain.push(next);
        }
        let late = recorder.zeros(8);
        copy(&mut recorder, constant, late);
        let unused = recorder.buffer(1000);
        recorder.output(chain[3], 1);
        let recording = recorder.finish();
        let place = |buffer: Buffer| recording.layout.places[buffer.0];
        assert_eq!((place(chain[2]), place(unused)), (place(chain[0]), None));
        assert_eq!(place(chain[3]), place(chain[1]));
        // The output is still there when `late` is made, and the constant is for ever.
        assert_eq!(place(late), place(chain[0]));
        // 3 · 8 bytes of the constant, the chain, and one word at the binding without a use.
        let mut sizes = recording.layout.sizes.clone();
        sizes.sort_unstable();
        assert_eq!(sizes, [4, 24, 80, 120]);
    }
}
