//! Steps as programs of their own, with operands that no chain could hold.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Engine as _, Modulus, Operand, Program, Public, Secret, beats, program::FixedBase,
};
use rand_core::Rng;

use super::{
    engine::Metered,
    sampling::{Work, timed},
};
use crate::{Failure, modulus, ring};

/// Numbers of one item of `product`.
const FACTORS: usize = 16;
/// Bases of one item of `dot_secret`, and bits of its exponents.
const BASES: usize = 64;
const DOT_BITS: u32 = 16;
/// Polynomials of a batch, and contributors to a sum of `ckks-sum`.
const POLYNOMIALS: usize = 16;
const CONTRIBUTORS: usize = 10;

/// A step.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Mul,
    PairMul,
    Product,
    PowSecret,
    PowPublic,
    PowFixedBase,
    Dot,
    Uniform,
    Noise,
    Pack,
    AddBeats,
}

/// The program of a step, and its inputs, each of which may be secret.
pub(super) struct Single {
    engine: Arc<Metered>,
    program: Program,
    inputs: Vec<(Vec<u64>, bool)>,
    /// Items of the batch.
    pub(super) items: usize,
}

impl Single {
    /// Draws the operands of a step: modulo the square of a number of half of `bits` bits, or in the ring of
    /// `ckks-sum`.
    ///
    /// # Errors
    /// No randomness.
    pub(super) fn new(step: Step, bits: u32, engine: Arc<Metered>) -> Result<Self, Failure> {
        let mut rng = ciphergram_he::random::generator()?;
        // Numbers of some words, the last of which lacks some bits.
        let mut draw = |count: usize, each: usize, unused: u32| {
            let mut words: Vec<_> = (0..count * each).map(|_| rng.next_u64()).collect();
            words.chunks_mut(each).filter_map(<[u64]>::last_mut).for_each(|top| *top >>= unused);
            words
        };
        let mut b = Builder::new("step");
        // The moduli lack little to a power of two, as the primes of the ring do.
        let m = Arc::new(Modulus::square("m²", &modulus(bits / 2))?);
        let (ring, each) = (ring(), m.len_words());
        let indices = (0..POLYNOMIALS as u64).collect();
        let lanes = ring.len_words() / beats::LANES;
        let (items, inputs) = match step {
            Step::Mul => {
                let (x, y) = (b.residues("x", &m), b.residues("y", &m));
                let z = b.mul("z", x, y);
                b.output(z);
                (512, vec![(draw(512, each, 1), false), (draw(512, each, 1), false)])
            }
            Step::PairMul => {
                let (x, y) = (b.pairs("x", &m), b.pairs("y", &m));
                let z = b.pair_mul("z", x, y);
                b.output(z);
                let mut pairs = || (draw(2 * 512, each / 2, 1), false);
                (512, vec![pairs(), pairs()])
            }
            Step::Product => {
                let x = b.residue_rows("x", &m, FACTORS);
                let y = b.product("y", x);
                b.output(y);
                (64, vec![(draw(64 * FACTORS, each, 1), false)])
            }
            Step::PowSecret | Step::PowPublic => {
                let x = b.residues("x", &m);
                let is_secret = matches!(step, Step::PowSecret);
                let y = if is_secret {
                    let e = b.exponents::<Secret>("e", bits / 2);
                    b.pow("y", x, e)
                } else {
                    let e = b.exponents::<Public>("e", bits / 2);
                    b.pow("y", x, e)
                };
                b.output(y);
                (16, vec![(draw(16, each, 1), false), (draw(16, each / 2, 0), is_secret)])
            }
            Step::PowFixedBase => {
                let base = FixedBase::new("g", m, &draw(1, each, 1), bits / 4);
                let e = b.exponents::<Secret>("e", bits / 4);
                let y = b.pow_fixed_base("y", &Arc::new(base), e);
                b.output(y);
                (128, vec![(draw(128, each / 4, 0), true)])
            }
            Step::Dot => {
                let x = b.shared_residues("x", &m, BASES);
                let e = b.exponent_rows::<Secret>("e", DOT_BITS, BASES);
                let y = b.dot("y", x, e);
                b.output(y);
                let exponents = draw(32 * BASES, 1, 64 - DOT_BITS);
                (32, vec![(draw(BASES, each, 1), false), (exponents, true)])
            }
            Step::Uniform => {
                let (index, seeds) = (b.index("index"), b.seeds("seeds", CONTRIBUTORS));
                let a = b.uniform("a", &ring, seeds, index);
                b.output(a);
                (POLYNOMIALS, vec![(indices, false), (draw(CONTRIBUTORS, 4, 0), false)])
            }
            Step::Noise => {
                let (index, key) = (b.index("index"), b.secret_seed("key"));
                let e = b.noise("e", &ring, key, index);
                b.output(e);
                (POLYNOMIALS, vec![(indices, false), (draw(1, 4, 0), true)])
            }
            Step::Pack => {
                let x = b.coefficients("x", &ring);
                let y = b.pack("y", x, lanes);
                b.output(y);
                (POLYNOMIALS, vec![(draw(POLYNOMIALS * ring.len_words(), 1, 15), true)])
            }
            Step::AddBeats => {
                let (x, y) = (b.beats("x", &ring, lanes), b.beats("y", &ring, lanes));
                let z = b.add_beats("z", x, y);
                b.output(z);
                let mut all = || {
                    let mut words = vec![0; POLYNOMIALS * lanes * beats::WORDS];
                    for beat in words.chunks_mut(beats::WORDS) {
                        let values = draw(beats::LANES, 1, 15).into_iter().enumerate();
                        values.for_each(|(lane, value)| beats::set_lane(beat, lane, value));
                    }
                    (words, false)
                };
                (POLYNOMIALS, vec![all(), all()])
            }
        };
        Ok(Self { engine, program: b.build(), inputs, items })
    }

    /// Returns a batch of it.
    pub(super) fn work(&self) -> Work<'_> {
        let each = self.program.values()[self.program.outputs()[0]].kind.words();
        let mut out = vec![0; self.items * each];
        timed(move || {
            let inputs = self.inputs.iter().map(|(words, is_secret)| match is_secret {
                true => Operand::SecretIn(words),
                false => Operand::In(words),
            });
            let mut operands: Vec<_> = inputs.chain([Operand::Out(&mut out)]).collect();
            self.engine.run(&self.program, &mut operands)
        })
    }
}
