//! The levelled scheme: the programs of encryption, and the transforms between numbers and coefficients, which take
//! floats outside of programs.

use std::sync::Arc;

use ciphergram_accel::{Program, random::StreamRng};
use ciphergram_he::{
    Error,
    ckks::{CkksError, Complex, Encoder, Operation, Parameters, Preset},
};
use rand_core::Rng as _;

use super::{
    subject::{Setup, Subject, Words},
    sums::{Operands, uniform_polynomial, zeros},
};

const PRESET: Preset = Preset::Slots4096Levels1;

/// Times an operation with zeros as the input `name` in class A, uniform words in class B.
///
/// # Errors
/// The operation has no program.
pub fn of_zeros<'a>(
    setup: &'a Setup,
    operation: Operation,
    name: &'static str,
    rng: &mut StreamRng,
) -> Result<Box<dyn Subject + 'a>, Error> {
    Ok(zeros(setup, program(operation)?, name, rng))
}

/// Times decryption where what is decrypted is zero in class A, uniform in class B.
///
/// # Errors
/// Decryption has no program.
pub fn decrypt<'a>(setup: &'a Setup, rng: &mut StreamRng) -> Result<Box<dyn Subject + 'a>, Error> {
    let set = Parameters::preset(PRESET);
    let (program, ring) = (program(Operation::Decrypt)?, set.ring(set.top_level().min(1)).clone());
    let mut operands = Operands::new(&program, rng);
    // Under the secret 0 the first part is all that there is.
    let zeros = vec![0; ring.len_words()];
    let draw = move |[_, b]: &mut [Vec<u64>; 2], rng: &mut StreamRng| {
        uniform_polynomial(b, &ring, rng);
    };
    let run = move |words: &[u64]| operands.run(setup, &program, ("c0", words));
    Ok(Box::new(Words::new([zeros.clone(), zeros], draw, run)))
}

/// Returns the program of an operation.
fn program(operation: Operation) -> Result<Arc<Program>, Error> {
    let program = operation.program(&Parameters::preset(PRESET));
    Ok(program.ok_or(CkksError::OutOfLevels)?.into())
}

/// Draws uniform numbers within ±`most`, as words.
fn uniform(words: &mut [u64], most: f64, rng: &mut StreamRng) {
    let number = |word: u64| ((word >> 11) as f64 / 2f64.powi(52) - 1.0) * most;
    words.iter_mut().for_each(|word| *word = number(rng.next_u64()).to_bits());
}

/// Times encoding, numbers drawn once in class A, fresh ones in class B.
#[must_use]
pub fn encode(rng: &mut StreamRng) -> Box<dyn Subject> {
    let set = Parameters::preset(PRESET);
    let (slots, level) = (set.slots(), set.top_level());
    let (encoder, scale) = (Encoder::new(slots), set.scale(level));
    let draw = |[_, b]: &mut [Vec<u64>; 2], rng: &mut StreamRng| uniform(b, 1.0, rng);
    let mut numbers = Complex::zeros(slots);
    let run = move |words: &[u64]| {
        numbers.re.iter_mut().zip(words).for_each(|(x, word)| *x = f64::from_bits(*word));
        let encoded = encoder.encode(&numbers, (scale, 60.0, level))?;
        std::hint::black_box(encoded);
        Ok::<_, Error>(())
    };
    // Numbers are checked at once, and the one branch after that is an error that all see: memcheck would take it for
    // a leak.
    let (mut fixed, fresh) = (vec![0; slots], vec![0; slots]);
    uniform(&mut fixed, 1.0, rng);
    Box::new(Words::of_public([fixed, fresh], vec![], draw, run))
}

/// Times decoding, coefficients drawn once in class A, fresh ones in class B.
#[must_use]
pub fn decode(rng: &mut StreamRng) -> Box<dyn Subject> {
    let set = Parameters::preset(PRESET);
    let (encoder, scale) = (Encoder::new(set.slots()), set.scale(0));
    let most = 2f64.powi(48);
    let draw = move |[_, b]: &mut [Vec<u64>; 2], rng: &mut StreamRng| uniform(b, most, rng);
    let mut coefficients = vec![0.0; set.degree()];
    let run = move |words: &[u64]| {
        coefficients.iter_mut().zip(words).for_each(|(x, word)| *x = f64::from_bits(*word));
        std::hint::black_box(encoder.decode(&coefficients, scale));
        Ok::<_, Error>(())
    };
    let (mut fixed, fresh) = (vec![0; set.degree()], vec![0; set.degree()]);
    uniform(&mut fixed, most, rng);
    Box::new(Words::new([fixed, fresh], draw, run))
}
