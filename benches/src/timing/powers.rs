//! Powers with secret exponents: one exponent for all items of class A, uniform ones in class B.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Modulus, Operand, Program,
    exponents::{Public, Secrecy, Secret},
    program::FixedBase,
    random::StreamRng,
};
use ciphergram_he::Error;

use super::{
    BATCH,
    subject::{Setup, Subject, Words, uniform_into, uniform_residues},
};

/// Bits of an exponent: of p − 1 in decryption and of a mask in encryption, for n of 2048 bits.
pub const EXPONENT_BITS: u32 = 1024;
const WORDS: usize = EXPONENT_BITS as usize / 64;

/// The words of an exponent that a class shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exponent {
    /// 0: every window is empty, the power is 1 throughout.
    Zeros,
    /// Eight ones, in every other word the lowest.
    Sparse,
    /// `2^1024 − 1`: every window is full.
    Ones,
    /// Uniform, anew for each item of each sample: class B itself.
    Uniform,
}

impl Exponent {
    fn fill(self, words: &mut [u64], rng: &mut StreamRng) {
        match self {
            Self::Zeros => words.fill(0),
            Self::Sparse => words.iter_mut().enumerate().for_each(|(i, w)| *w = i as u64 & 1),
            Self::Ones => words.fill(u64::MAX),
            Self::Uniform => uniform_into(words, rng),
        }
    }
}

/// Returns the square of a number of 1024 bits, as p² in decryption.
fn p_squared() -> Arc<Modulus> {
    crate::made(Modulus::square("p²", &crate::modulus(1024)))
}

/// Times `x^e mod m` for secret e, and m the square of a number of 1024 bits, as p² in decryption; `x`
/// uniform, the same in all samples.
#[must_use]
pub fn pow<'a>(setup: &'a Setup, special: Exponent, rng: &mut StreamRng) -> Box<dyn Subject + 'a> {
    let m = p_squared();
    let program = pow_program::<Secret>(&m, EXPONENT_BITS);
    let bases = uniform_residues(BATCH, &m, rng);
    let mut out = vec![0; bases.len()];
    exponents(special, move |e| {
        let mut operands = [Operand::In(&bases), Operand::SecretIn(e), Operand::Out(&mut out)];
        Ok(setup.engine().run(&program, &mut operands)?)
    })
}

/// Times `h^e mod n²` as a pair for secret e, a fixed h, and n² of 4096 bits: the mask of an encryption.
#[must_use]
pub fn pow_fixed_base<'a>(
    setup: &'a Setup,
    special: Exponent,
    rng: &mut StreamRng,
) -> Box<dyn Subject + 'a> {
    let m = setup.secret().modulus().n_squared();
    let h = uniform_residues(1, m, rng);
    let base = Arc::new(FixedBase::new("h", m.clone(), &h, EXPONENT_BITS));
    let mut b = Builder::new("timing.pow_fixed_base");
    let e = b.exponents::<Secret>("e", EXPONENT_BITS);
    let y = b.pow_fixed_base_pair("y", &base, e);
    b.output(y);
    let program = b.build();
    let mut out = vec![0; BATCH * m.len_words()];
    exponents(special, move |e| {
        let mut operands = [Operand::SecretIn(e), Operand::Out(&mut out)];
        Ok(setup.engine().run(&program, &mut operands)?)
    })
}

fn exponents<'a>(
    special: Exponent,
    run: impl FnMut(&[u64]) -> Result<(), Error> + 'a,
) -> Box<dyn Subject + 'a> {
    let draw = move |[a, b]: &mut [Vec<u64>; 2], rng: &mut StreamRng| {
        special.fill(a, rng);
        uniform_into(b, rng);
    };
    Box::new(Words::new([vec![0; BATCH * WORDS], vec![0; BATCH * WORDS]], draw, run))
}

/// Builds the program of `x^e mod m` with exponents of at most `bits` bits.
pub(super) fn pow_program<S: Secrecy>(m: &Arc<Modulus>, bits: u32) -> Program {
    let mut b = Builder::new("timing.pow");
    let x = b.residues("x", m);
    let e = b.exponents::<S>("e", bits);
    let y = b.pow("y", x, e);
    b.output(y);
    b.build()
}

/// Times `x^e` for public e of all ones, 64 bits shorter in class A: a leak of one part in sixteen.
#[must_use]
pub fn public_pow<'a>(setup: &'a Setup, rng: &mut StreamRng) -> Box<dyn Subject + 'a> {
    let m = p_squared();
    let programs = [EXPONENT_BITS - 64, EXPONENT_BITS].map(|bits| pow_program::<Public>(&m, bits));
    let bases = uniform_residues(BATCH, &m, rng);
    let ones = vec![u64::MAX; BATCH * WORDS];
    let mut out = vec![0; bases.len()];
    let run = move |class: &[u64]| {
        let index = usize::from(class[0] == 1);
        let e = &ones[..BATCH * (WORDS - 1 + index)];
        let mut operands = [Operand::In(&bases), Operand::In(e), Operand::Out(&mut out)];
        Ok(setup.engine().run(&programs[index], &mut operands)?)
    };
    Box::new(Words::new([vec![0], vec![1]], |_, _| {}, run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_have_the_weights_they_say() {
        let mut rng = StreamRng::from_seed(&[1; 32]);
        let mut weight = |exponent: Exponent| {
            let mut words = [9; WORDS];
            exponent.fill(&mut words, &mut rng);
            words.iter().map(|w| w.count_ones()).sum::<u32>()
        };
        assert_eq!(weight(Exponent::Zeros), 0);
        assert_eq!(weight(Exponent::Sparse), 8);
        assert_eq!(weight(Exponent::Ones), EXPONENT_BITS);
        assert!((400..624).contains(&weight(Exponent::Uniform)));
    }
}
