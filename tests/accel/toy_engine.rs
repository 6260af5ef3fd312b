//! A toy engine in one file: the steps of a sum by big integers of a library. An engine of your own
//! begins as this one.

use ciphergram_accel::{
    Engine, Info, Operand, Program, RunError, beats, check_operands,
    engine::check_support,
    program::{Kind, LaneOp, LaneStep, ResidueOp, ResidueStep, Source, Spread, Step},
};
use num_bigint::BigUint;

/// Not constant time: no place for real secrets.
struct Toy;

impl Engine for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn info(&self) -> Info {
        Info::of_host("a few steps, item by item, by num-bigint")
    }

    fn supports(&self, step: &str) -> bool {
        ["mul", "product", "reduce", "add_beats"].contains(&step)
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        let items = check_operands(program, operands)?;
        check_support(self, program)?;
        (0..items).for_each(|item| run_item(program, operands, item));
        Ok(())
    }
}

/// Computes every value of one item, then writes those that leave the program.
fn run_item(program: &Program, operands: &mut [Operand<'_>], item: usize) {
    let mut values: Vec<Vec<u64>> = vec![];
    let mut inputs = 0;
    for value in program.values() {
        let each = value.kind.words();
        let words = match &value.source {
            Source::Constant(constant) => constant.words().to_vec(),
            Source::Input { spread } => {
                let first = if *spread == Spread::Shared { 0 } else { item * each };
                inputs += 1;
                read(&operands[inputs - 1])[first..][..each].to_vec()
            }
            Source::Step { step, operands } => {
                let args: Vec<_> = operands.iter().map(|&index| &values[index][..]).collect();
                run_step(step, &value.kind, &args)
            }
        };
        values.push(words);
    }
    let outputs = program.outputs().iter().enumerate().map(|(i, &value)| (inputs + i, value));
    let updates = program.updates().iter().map(|&(target, value)| {
        (program.inputs().take_while(|&(input, _)| input != target).count(), value)
    });
    for (operand, value) in updates.chain(outputs) {
        if let Operand::Out(words) | Operand::InOut(words) = &mut operands[operand] {
            let each = values[value].len();
            words[item * each..][..each].copy_from_slice(&values[value]);
        }
    }
}

fn read<'a>(operand: &'a Operand<'_>) -> &'a [u64] {
    match operand {
        Operand::In(words) | Operand::SecretIn(words) => words,
        Operand::Out(words) | Operand::InOut(words) => words,
    }
}

fn run_step(step: &Step, kind: &Kind, args: &[&[u64]]) -> Vec<u64> {
    let mut out = vec![0; kind.words()];
    match step {
        Step::Lane(LaneStep { op: LaneOp::AddBeats, ring, count }) => {
            let primes = ring.primes();
            for place in 0..count * beats::LANES {
                let (beat, lane) = (place / beats::LANES * beats::WORDS, place % beats::LANES);
                let [a, b] = [0, 1].map(|arg| beats::lane(&args[arg][beat..], lane));
                beats::set_lane(&mut out[beat..], lane, (a + b) % primes[place % primes.len()]);
            }
        }
        Step::Residue(ResidueStep::Residue { op, modulus }) => {
            // The factors of a product are its two operands, or the rows of one; what is reduced is
            // one factor.
            let each = if matches!(op, ResidueOp::Reduce) { args[0].len() } else { out.len() };
            let factors = args.iter().flat_map(|words| words.chunks(each)).map(big);
            let product = factors.fold(BigUint::from(1u32), |product, factor| product * factor);
            let digits = (product % big(modulus.words())).to_u64_digits();
            out[..digits.len()].copy_from_slice(&digits);
        }
        _ => panic!("{} is not on the list", step.name()),
    }
    out
}

fn big(words: &[u64]) -> BigUint {
    let halves = words.iter().flat_map(|&word| [word as u32, (word >> 32) as u32]);
    BigUint::from_slice(&halves.collect::<Vec<_>>())
}

ciphergram_accel::conformance!(Toy, without: [
    "mont_mul", "split", "join", "pair_mul", "invert", "choose", "one_plus_mn", "pow_secret", "pow_public",
    "dot_secret", "dot_public", "pow_fixed_base", "l_quotient", "crt_join", "ntt", "intt", "add", "sub", "poly_mul",
    "automorphism", "uniform", "noise", "ternary", "lift", "lift_signed", "compose", "base_extend", "limbs",
    "join_limbs", "scale", "mul_sum", "pack", "unpack", "first_bad_lane",
    "add_lanes", "reduce_lanes",
]);
