//! The text form of programs: every name, shape and secrecy, never a constant's value.

use std::fmt::{self, Display, Formatter};

use super::{Kind, LimbOp, LimbStep, Program, Source, Spread, Step, Value};

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integers { words } => write!(f, "integers of {words} words"),
            Self::Residues { modulus, rows } => {
                if *rows > 1 {
                    write!(f, "{rows} × ")?;
                }
                write!(f, "residues mod {} ({} bits)", modulus.name(), modulus.bits())
            }
            Self::Pairs { modulus, .. } => {
                write!(f, "pairs mod {} ({} bits)", modulus.name(), modulus.bits())
            }
            Self::Exponents { bits, count: 1 } => write!(f, "exponents of {bits} bits"),
            Self::Exponents { bits, count } => write!(f, "{count} × exponents of {bits} bits"),
            Self::Polys { ring, ntt } => {
                let form = if *ntt { "NTT" } else { "coefficient" };
                let (n, limbs) = (ring.degree(), ring.primes().len());
                write!(f, "polynomials in {form} form, N = {n}, {limbs} limbs")
            }
            Self::Beats { count, .. } => write!(f, "{count} beats"),
            Self::Lanes { count, .. } => write!(f, "sums of lanes of {count} beats"),
            Self::Seeds { count: 1 } => write!(f, "a seed"),
            Self::Seeds { count } => write!(f, "{count} seeds"),
        }
    }
}

impl Program {
    fn call(&self, step: &Step, operands: &[usize]) -> String {
        let mut names: Vec<_> = operands.iter().map(|&i| self.values[i].name.clone()).collect();
        names.splice(0..0, step.fixed_base().map(|base| base.name.clone()));
        match step {
            Step::Limb(LimbStep { op: LimbOp::Automorphism { element }, .. }) => {
                names.push(element.to_string());
            }
            Step::Limb(LimbStep { op: LimbOp::Limbs { first }, .. }) => {
                names.push(first.to_string())
            }
            _ => {}
        }
        format!("{}({})", step.name(), names.join(", "))
    }

    fn line(&self, f: &mut Formatter<'_>, value: &Value) -> fmt::Result {
        let secrecy = if value.secret { "secret" } else { "public" };
        let (name, kind) = (&value.name, &value.kind);
        match &value.source {
            Source::Input { spread } => {
                let spread = match spread {
                    Spread::Each => "one each",
                    Spread::Shared => "shared by the batch",
                    Spread::Update => "one each, updated in place",
                };
                writeln!(f, "  input     {name:<10} : {kind}; {secrecy}, {spread}")
            }
            Source::Constant(_) => writeln!(f, "  constant  {name:<10} : {kind}; {secrecy}"),
            Source::Step { step, operands } => {
                let call = self.call(step, operands);
                writeln!(f, "  {name:<9} = {call:<32} : {kind}")
            }
        }
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {}", self.name)?;
        self.values.iter().try_for_each(|value| self.line(f, value))?;
        for &(target, value) in &self.updates {
            writeln!(f, "  update    {} := {}", self.values[target].name, self.values[value].name)?;
        }
        self.outputs.iter().try_for_each(|&i| writeln!(f, "  output    {}", self.values[i].name))
    }
}
