//! `ckks-sum`: the programs of encryption and decryption, and a whole sealing, which
//! packs fields before it encrypts.

use std::sync::Arc;

use ciphergram_accel::{Builder, Operand, Program, Ring, beats, program::Value, random::StreamRng};
use ciphergram_he::{
    Agreement, Dtype, Error, Job, Limits, Operation, Parameters, Quantised, SealPermit, Sealer,
    TensorSpec,
};
use rand_core::Rng;

use super::{
    secrets::{Memory, memory_of, of_program},
    subject::{Class, Constants, Setup, Subject, Words, uniform_into},
};

/// Sums of each class of messages from which samples are drawn.
const POOL: usize = 64;

/// One item of each operand of a program.
pub(super) struct Operands {
    /// Names and words of the inputs, and whether they are secret.
    inputs: Vec<(String, Vec<u64>, bool)>,
    outputs: Vec<Vec<u64>>,
}

impl Operands {
    /// Makes room for a program's outputs, and draws uniform words for its inputs.
    pub(super) fn new(program: &Program, rng: &mut StreamRng) -> Self {
        let values = program.values();
        let input = |(index, _)| {
            let value: &Value = &values[index];
            let mut words = vec![0; value.kind.words()];
            uniform_into(&mut words, rng);
            (value.name.clone(), words, value.secret)
        };
        let outputs = program.outputs().iter().map(|&index| vec![0; values[index].kind.words()]);
        Self { inputs: program.inputs().map(input).collect(), outputs: outputs.collect() }
    }

    /// Returns the words of an input.
    ///
    /// # Panics
    /// If there is none of that name.
    pub(super) fn input(&mut self, name: &str) -> &mut Vec<u64> {
        match self.inputs.iter_mut().find(|(own, ..)| own == name) {
            Some((_, words, _)) => words,
            None => panic!("no input {name}"),
        }
    }

    /// Runs a program, with `words` in place of its input `name`.
    pub(super) fn run(
        &mut self,
        setup: &Setup,
        program: &Program,
        (name, words): (&str, &[u64]),
    ) -> Result<(), Error> {
        let inputs = self.inputs.iter().map(|(own_name, own, secret)| {
            let words = if own_name == name { words } else { own };
            if *secret { Operand::SecretIn(words) } else { Operand::In(words) }
        });
        let outputs = self.outputs.iter_mut().map(|words| Operand::Out(words));
        let mut operands: Vec<_> = inputs.chain(outputs).collect();
        Ok(setup.engine().run(program, &mut operands)?)
    }
}

/// Times encryption under `ckks-sum` with zeros as the input `name` in class A, uniform words in class B.
///
/// # Errors
/// The engine's.
pub fn encrypt<'a>(
    setup: &'a Setup,
    name: &'static str,
    rng: &mut StreamRng,
) -> Result<Box<dyn Subject + 'a>, Error> {
    let program = setup.sums().program(Operation::Encrypt, &**setup.engine(), 1, 0)?;
    Ok(zeros(setup, program, name, rng))
}

/// Times a program with zeros as the input `name` in class A, uniform words in class B.
pub(super) fn zeros<'a>(
    setup: &'a Setup,
    program: Arc<Program>,
    name: &'static str,
    rng: &mut StreamRng,
) -> Box<dyn Subject + 'a> {
    let mut operands = Operands::new(&program, rng);
    let zeros = vec![0; operands.input(name).len()];
    let secrets = of_program(&program);
    let draw = |[_, b]: &mut [Vec<u64>; 2], rng: &mut StreamRng| uniform_into(b, rng);
    let run = move |words: &[u64]| operands.run(setup, &program, (name, words));
    Box::new(Words::new([zeros.clone(), zeros], draw, run).beside(secrets))
}

/// Times decryption of sums of zeros in class A, of uniform messages in class B.
///
/// # Errors
/// The engine's.
pub fn decrypt<'a>(setup: &'a Setup, rng: &mut StreamRng) -> Result<Box<dyn Subject + 'a>, Error> {
    let program = setup.sums().program(Operation::Encrypt, &**setup.engine(), 1, 0)?;
    let mut operands = Operands::new(&program, rng);
    let mut message = vec![0; operands.input("message").len()];
    // All under one seed, which does for a test: so all of them open under it.
    let mut pool = |uniform: bool, rng: &mut StreamRng| {
        let sum = |_| {
            uniform_into(operands.input("noise_key"), rng);
            if uniform {
                uniform_into(&mut message, rng);
            }
            operands.run(setup, &program, ("message", &message))?;
            Ok(operands.outputs[0].clone())
        };
        (0..POOL).map(sum).collect::<Result<Vec<_>, Error>>()
    };
    let pools = [pool(false, rng)?, pool(true, rng)?];
    let [seed, index] = ["seed", "index"].map(|name| operands.input(name).clone());

    let program = setup.sums().program(Operation::Decrypt, &**setup.engine(), 1, 0)?;
    let mut operands = Operands::new(&program, rng);
    *operands.input("seeds") = seed;
    *operands.input("index") = index;
    let candidates = [0, 1].map(|class| pools[class][0].clone());
    let draw = move |both: &mut [Vec<u64>; 2], rng: &mut StreamRng| {
        for (words, pool) in both.iter_mut().zip(&pools) {
            words.copy_from_slice(&pool[rng.next_u64() as usize % POOL]);
        }
    };
    let secrets = of_program(&program);
    let run = move |words: &[u64]| operands.run(setup, &program, ("beats", words));
    Ok(Box::new(Words::of_public(candidates, secrets, draw, run)))
}

/// Times the steps of encryption and decryption that a secret key has a part in: under the key 0 in class
/// A, under uniform ones in class B.
#[must_use]
pub fn key<'a>(setup: &'a Setup, rng: &mut StreamRng) -> Box<dyn Subject + 'a> {
    let ring = ring(setup);
    let zeros = vec![0; ring.len_words()];
    let mut operands = Operands::new(&key_program(ring, &zeros), rng);
    let draw = |[_, b]: &mut [Vec<u64>; 2], rng: &mut StreamRng| uniform_polynomial(b, ring, rng);
    let run = move |program: &Program| operands.run(setup, program, ("", &[]));
    Box::new(Constants::new([zeros.clone(), zeros], draw, |s| key_program(ring, s), run))
}

/// Builds the program that multiplies what a seed names by the key ŝ, for beats and for integers.
fn key_program(ring: &Arc<Ring>, s: &[u64]) -> Program {
    let mut b = Builder::new("timing.key");
    let (index, seed) = (b.index("index"), b.seeds("seed", 1));
    let s = b.secret_key("ŝ", ring, s);
    let a = b.uniform("â", ring, seed, index);
    let product = b.poly_mul("âŝ", a, s);
    let mask = b.intt("as", product);
    let packed = b.pack("beats", mask, ring.len_words() / beats::LANES);
    let integers = b.compose("integers", mask);
    b.output(packed);
    b.output(integers);
    b.build()
}

pub(super) fn uniform_polynomial(words: &mut [u64], ring: &Ring, rng: &mut StreamRng) {
    for (residues, q) in words.chunks_exact_mut(ring.degree()).zip(ring.primes()) {
        residues.iter_mut().for_each(|residue| *residue = rng.next_u64() % q);
    }
}

fn parameters(setup: &Setup) -> &Parameters {
    setup.sums().public().parameters()
}

fn ring(setup: &Setup) -> &Arc<Ring> {
    match parameters(setup).rlwe() {
        Some(rlwe) => &rlwe.ring,
        None => unreachable!("a key of ckks-sum has a ring"),
    }
}

/// Times sealing under `ckks-sum`, a polynomial of one update: tags, packing, encrypting, writing out. All
/// fields are 0 in class A, uniform in class B.
///
/// # Errors
/// No randomness.
pub fn seal(setup: &Setup) -> Result<Box<dyn Subject + '_>, Error> {
    let g = parameters(setup).geometry();
    let fields = vec![0; g.group_chunks * g.values_per_chunk()];
    let candidates = [fields.clone(), fields.clone()];
    let public = setup.sums().public();
    let job = Job::new(public, Limits::of_key(public))?;
    let spec = TensorSpec { name: "t".into(), dtype: Dtype::F32, shape: vec![fields.len() as u64] };
    let agreement = Agreement::new(vec![spec], vec![1.0], 1)?;
    let (chosen, sealer, secrets) = (fields, None, vec![]);
    Ok(Box::new(Sealing { setup, job, agreement, candidates, chosen, sealer, secrets }))
}

struct Sealing<'a> {
    setup: &'a Setup,
    job: Job,
    agreement: Agreement,
    /// Fields of each class.
    candidates: [Vec<u64>; 2],
    chosen: Vec<u64>,
    sealer: Option<Sealer>,
    /// The fields of the sealer, which its tags are made of too.
    secrets: Vec<Memory>,
}

impl Subject for Sealing<'_> {
    fn prepare(&mut self, class: Class, rng: &mut StreamRng) -> Result<(), Error> {
        let Self { setup, candidates, chosen, .. } = self;
        let most = 2 * u64::from(parameters(setup).half_steps());
        candidates[1].iter_mut().for_each(|field| *field = rng.next_u64() % (most + 1));
        class.choose_into(chosen, candidates);
        let update = Quantised::from_fields(chosen.iter().map(|&field| field as u32).collect(), 1);
        self.secrets = vec![memory_of(&update.fields()?)];
        let (key, engine) = (setup.sums().as_client(0), setup.engine().clone());
        let terms = self.job.terms(0, &self.agreement)?;
        self.sealer = Some(Sealer::new(key, engine, update, SealPermit::draw()?, &terms)?);
        Ok(())
    }

    fn run(&mut self) -> Result<(), Error> {
        self.sealer.take().map_or(Ok(()), |sealer| sealer.seal_all().map(drop))
    }

    fn secrets(&self) -> Vec<Memory> {
        self.secrets.clone()
    }
}
