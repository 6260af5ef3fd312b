//! Where the secrets of an operation lie in memory.

use std::{ops::Range, sync::Arc};

use ciphergram_accel::{
    Modulus, Program,
    program::{Kind, ResidueStep, Source, Step, Value},
};

/// A stretch of memory, from its first byte to past its last.
pub type Memory = Range<*const u8>;

/// Returns the memory of a slice.
#[must_use]
pub fn memory_of<T>(slice: &[T]) -> Memory {
    let Range { start, end } = slice.as_ptr_range();
    start.cast()..end.cast()
}

/// Returns the memory of what is secret in a program itself: secret constants, the moduli that no input is
/// of, and what joins remainders of two of those.
#[must_use]
pub fn of_program(program: &Program) -> Vec<Memory> {
    let values = program.values();
    let inputs = values.iter().filter(|value| matches!(value.source, Source::Input { .. }));
    let public: Vec<_> = inputs.filter_map(modulus).collect();
    let is_secret = |m: &&Arc<Modulus>| !public.iter().any(|public| Arc::ptr_eq(public, m));
    let moduli = values.iter().filter_map(modulus).filter(is_secret).map(|m| m.words());
    let constants = values.iter().filter(|value| value.secret).filter_map(constant);
    let joins = program.steps().filter_map(|step| match step {
        Step::Residue(ResidueStep::CrtJoin { crt }) => Some(crt.p_inverse()),
        _ => None,
    });
    moduli.chain(constants).chain(joins).map(memory_of).collect()
}

fn modulus(value: &Value) -> Option<&Arc<Modulus>> {
    match &value.kind {
        Kind::Residues { modulus, .. } | Kind::Pairs { modulus, .. } => Some(modulus),
        _ => None,
    }
}

fn constant(value: &Value) -> Option<&[u64]> {
    match &value.source {
        Source::Constant(constant) => Some(constant.words()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ciphergram_accel::Builder;

    #[test]
    fn what_a_key_adds_to_a_program_is_secret_and_what_inputs_are_of_is_not() {
        let [n, p] =
            [("n", 77), ("p", 7)].map(|(name, m)| Arc::new(Modulus::new(name, &[m]).unwrap()));
        let mut b = Builder::new("leg");
        let c = b.residues("c", &n);
        let e = b.secret_exponent("e", 3, &[5]);
        let public = b.public_exponent("k", 2, &[3]);
        let x = b.reduce("x", c, &p);
        let y = b.pow("y", x, e);
        let z = b.pow("z", y, public);
        b.output(z);
        let program = b.build();
        let Source::Constant(words) = &program.values()[1].source else { panic!("e") };
        // Once for each value that is of it.
        let p = memory_of(p.words());
        let expected = [p.clone(), p.clone(), p, memory_of(words.words())];
        assert_eq!(of_program(&program), expected);
    }
}
