//! A subject is what is timed: an operation, and how its inputs of either class come about.

use ciphergram_accel::{CpuEngine, Engine, Modulus, random::StreamRng};
use ciphergram_he::{Error, paillier::PaillierSecret};
use rand_core::Rng;

/// Which of two classes a sample is of. A is the special one where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(bool);

impl Class {
    /// The special class.
    pub const A: Self = Self(false);
    /// The class that it is compared with.
    pub const B: Self = Self(true);

    /// Draws either, with equal chances.
    #[must_use]
    pub fn draw(rng: &mut StreamRng) -> Self {
        Self(rng.next_u64() & 1 == 1)
    }

    /// Returns 0 for A, 1 for B.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Copies the words of this class, read together with those of the other and taken by a mask.
    pub fn choose_into(self, out: &mut [u64], [a, b]: &[Vec<u64>; 2]) {
        let mask = std::hint::black_box(u64::from(self.0).wrapping_neg());
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a ^ (mask & (a ^ b));
        }
    }
}

/// An operation between two classes of inputs.
pub trait Subject {
    /// Makes the inputs of one sample, not measured.
    ///
    /// # Errors
    /// Those of making inputs.
    fn prepare(&mut self, class: Class, rng: &mut StreamRng) -> Result<(), Error>;

    /// Runs the operation on those inputs, which is what is measured.
    ///
    /// # Errors
    /// Those of the operation.
    fn run(&mut self) -> Result<(), Error>;
}

/// A [`Subject`] whose inputs are words: `draw` renews the words of both classes, `run` takes those
/// of one.
pub struct Words<D, R> {
    candidates: [Vec<u64>; 2],
    chosen: Vec<u64>,
    draw: D,
    run: R,
}

impl<D, R> Words<D, R>
where
    D: FnMut(&mut [Vec<u64>; 2], &mut StreamRng),
    R: FnMut(&[u64]) -> Result<(), Error>,
{
    /// Begins with `candidates`, the words of class A and as many of class B.
    ///
    /// # Panics
    /// If there are more of one class than of the other.
    pub fn new(candidates: [Vec<u64>; 2], draw: D, run: R) -> Self {
        assert_eq!(candidates[0].len(), candidates[1].len(), "classes differ in value only");
        let chosen = vec![0; candidates[0].len()];
        Self { candidates, chosen, draw, run }
    }
}

impl<D, R> Subject for Words<D, R>
where
    D: FnMut(&mut [Vec<u64>; 2], &mut StreamRng),
    R: FnMut(&[u64]) -> Result<(), Error>,
{
    fn prepare(&mut self, class: Class, rng: &mut StreamRng) -> Result<(), Error> {
        (self.draw)(&mut self.candidates, rng);
        class.choose_into(&mut self.chosen, &self.candidates);
        Ok(())
    }

    fn run(&mut self) -> Result<(), Error> {
        (self.run)(&self.chosen)
    }
}

/// The setup that all tests share: an engine, and a Paillier key of 2048 bits.
pub struct Setup {
    engine: CpuEngine,
    secret: PaillierSecret,
}

impl Setup {
    /// Makes a key.
    ///
    /// # Errors
    /// No randomness.
    pub fn new() -> Result<Self, Error> {
        Ok(Self { engine: CpuEngine::new(), secret: PaillierSecret::generate(2048)? })
    }

    /// Returns the engine under test.
    #[must_use]
    pub fn engine(&self) -> &dyn Engine {
        &self.engine
    }

    /// Returns the secret factors.
    #[must_use]
    pub fn secret(&self) -> &PaillierSecret {
        &self.secret
    }
}

/// Fills `out` with uniform words.
pub fn uniform_into(out: &mut [u64], rng: &mut StreamRng) {
    out.iter_mut().for_each(|word| *word = rng.next_u64());
}

/// Fills `out` with uniform residues.
pub fn uniform_residues_into(out: &mut [u64], m: &Modulus, rng: &mut StreamRng) {
    let excess = 64 * m.len_words() as u32 - m.bits();
    for residue in out.chunks_exact_mut(m.len_words()) {
        loop {
            uniform_into(residue, rng);
            residue[m.len_words() - 1] &= u64::MAX >> excess;
            if m.contains_vartime(residue) {
                break;
            }
        }
    }
}

/// Returns `count` uniform residues.
#[must_use]
pub fn uniform_residues(count: usize, m: &Modulus, rng: &mut StreamRng) -> Vec<u64> {
    let mut words = vec![0; count * m.len_words()];
    uniform_residues_into(&mut words, m, rng);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_takes_its_own_words() {
        let both = [vec![1, 2, 3], vec![4, 5, 6]];
        let mut out = [0; 3];
        Class::A.choose_into(&mut out, &both);
        assert_eq!(out, [1, 2, 3]);
        Class::B.choose_into(&mut out, &both);
        assert_eq!(out, [4, 5, 6]);
        assert_eq!((Class::A.index(), Class::B.index()), (0, 1));
    }

    #[test]
    fn classes_are_drawn_evenly() {
        let mut rng = StreamRng::from_seed(&[3; 32]);
        let of_b = (0..10_000).filter(|_| Class::draw(&mut rng) == Class::B).count();
        assert!((4_800..5_200).contains(&of_b), "{of_b}");
    }

    #[test]
    fn both_classes_are_drawn_for_every_sample() {
        let mut seen = vec![];
        let draw = |both: &mut [Vec<u64>; 2], _: &mut StreamRng| {
            both.iter_mut().for_each(|words| words[0] += 1);
        };
        let run = |words: &[u64]| {
            seen.push(words[0]);
            Ok(())
        };
        let mut subject = Words::new([vec![0], vec![100]], draw, run);
        let mut rng = StreamRng::from_seed(&[3; 32]);
        for class in [Class::A, Class::B, Class::A] {
            subject.prepare(class, &mut rng).unwrap();
            subject.run().unwrap();
        }
        drop(subject);
        assert_eq!(seen, [1, 102, 3]);
    }

    #[test]
    fn uniform_residues_are_residues() {
        let mut rng = StreamRng::from_seed(&[3; 32]);
        for words in [vec![3], vec![u64::MAX, 1], vec![1, 1 << 63]] {
            let m = Modulus::new("m", &words).unwrap();
            let residues = uniform_residues(100, &m, &mut rng);
            assert!(residues.chunks(m.len_words()).all(|x| m.contains_vartime(x)));
            assert!(residues.iter().any(|&word| word != 0));
        }
    }
}
