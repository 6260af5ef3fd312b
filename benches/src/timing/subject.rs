//! A subject is what is timed: an operation, and how its inputs of either class come about.

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine, Modulus, Program, random::StreamRng};
use ciphergram_he::{Error, Scheme, SecretKey, paillier::PaillierSecret, params::Literal};
use rand_core::Rng;

use super::secrets::{Memory, memory_of, of_program};

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

    /// Returns the memory of all that is secret in those inputs, for [memcheck](crate::memcheck).
    fn secrets(&self) -> Vec<Memory>;
}

/// A [`Subject`] whose inputs are words: `draw` renews the words of both classes, `run` takes those
/// of one.
pub struct Words<D, R> {
    candidates: [Vec<u64>; 2],
    chosen: Vec<u64>,
    secrets: Vec<Memory>,
    draw: D,
    run: R,
}

impl<D, R> Words<D, R>
where
    D: FnMut(&mut [Vec<u64>; 2], &mut StreamRng),
    R: FnMut(&[u64]) -> Result<(), Error>,
{
    /// Begins with `candidates`, the words of class A and as many of class B, which are secret.
    ///
    /// # Panics
    /// If there are more of one class than of the other.
    pub fn new(candidates: [Vec<u64>; 2], draw: D, run: R) -> Self {
        let mut words = Self::of_public(candidates, vec![], draw, run);
        words.secrets.push(memory_of(&words.chosen));
        words
    }

    /// Begins with words that anyone may know; `secrets` are elsewhere, and stay where they are.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn of_public(candidates: [Vec<u64>; 2], secrets: Vec<Memory>, draw: D, run: R) -> Self {
        assert_eq!(candidates[0].len(), candidates[1].len(), "classes differ in value only");
        let chosen = vec![0; candidates[0].len()];
        Self { candidates, chosen, secrets, draw, run }
    }

    /// Adds secrets beside the words, which stay where they are.
    #[must_use]
    pub fn beside(mut self, secrets: Vec<Memory>) -> Self {
        self.secrets.extend(secrets);
        self
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

    fn secrets(&self) -> Vec<Memory> {
        self.secrets.clone()
    }
}

/// A [`Subject`] whose secrets are constants of a program: `draw` renews the words of both classes, `build`
/// makes the program of those of one, `run` runs it.
///
/// Each sample has a program of its own. Both classes make it by the same allocations, and where these
/// come to lie does not depend on the class.
pub struct Constants<D, B, R> {
    candidates: [Vec<u64>; 2],
    chosen: Vec<u64>,
    program: Option<Program>,
    draw: D,
    build: B,
    run: R,
}

impl<D, B, R> Constants<D, B, R>
where
    D: FnMut(&mut [Vec<u64>; 2], &mut StreamRng),
    B: FnMut(&[u64]) -> Program,
    R: FnMut(&Program) -> Result<(), Error>,
{
    /// Begins with `candidates`, the words of class A and as many of class B.
    ///
    /// # Panics
    /// If there are more of one class than of the other.
    pub fn new(candidates: [Vec<u64>; 2], draw: D, build: B, run: R) -> Self {
        assert_eq!(candidates[0].len(), candidates[1].len(), "classes differ in value only");
        let chosen = vec![0; candidates[0].len()];
        Self { candidates, chosen, program: None, draw, build, run }
    }
}

impl<D, B, R> Subject for Constants<D, B, R>
where
    D: FnMut(&mut [Vec<u64>; 2], &mut StreamRng),
    B: FnMut(&[u64]) -> Program,
    R: FnMut(&Program) -> Result<(), Error>,
{
    fn prepare(&mut self, class: Class, rng: &mut StreamRng) -> Result<(), Error> {
        self.program = None;
        (self.draw)(&mut self.candidates, rng);
        class.choose_into(&mut self.chosen, &self.candidates);
        self.program = Some((self.build)(&self.chosen));
        Ok(())
    }

    fn run(&mut self) -> Result<(), Error> {
        self.program.as_ref().map_or(Ok(()), &mut self.run)
    }

    fn secrets(&self) -> Vec<Memory> {
        self.program.as_ref().map_or(vec![], of_program)
    }
}

/// The setup that all tests share: an engine, a Paillier key of 2048 bits and a key of `ckks-sum`.
pub struct Setup {
    engine: Arc<dyn Engine>,
    secret: PaillierSecret,
    sums: SecretKey,
}

impl Setup {
    /// Makes the keys; that of `ckks-sum` for 64 clients and values of 16 bits.
    ///
    /// # Errors
    /// No randomness.
    pub fn new() -> Result<Self, Error> {
        let literal = Literal { scheme: Scheme::CkksSum, clients: 64, bits: 16 };
        Ok(Self {
            engine: Arc::new(CpuEngine::new()),
            secret: PaillierSecret::generate(2048)?,
            sums: SecretKey::generate(literal)?,
        })
    }

    /// Returns the engine under test.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Returns the secret factors.
    #[must_use]
    pub fn secret(&self) -> &PaillierSecret {
        &self.secret
    }

    /// Returns the key of `ckks-sum`.
    #[must_use]
    pub fn sums(&self) -> &SecretKey {
        &self.sums
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
