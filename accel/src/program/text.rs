//! The text form of programs: every name, shape and secrecy, never a constant's value.

use std::fmt::{self, Display, Formatter};

use super::{Kind, Program, Source, Spread, Step, Value};

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
            Self::Pairs { modulus } => {
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

impl Step {
    /// Returns the name of the operation in program texts.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mul => "mul",
            Self::MontMul => "mont_mul",
            Self::Split => "split",
            Self::Join => "join",
            Self::PairMul => "pair_mul",
            Self::Product => "product",
            Self::Invert => "invert",
            Self::Choose => "choose",
            Self::OnePlusMn { .. } => "one_plus_mn",
            Self::Pow { secret: true } => "pow_secret",
            Self::Pow { secret: false } => "pow_public",
            Self::Dot { secret: true } => "dot_secret",
            Self::Dot { secret: false } => "dot_public",
            Self::PowFixedBase { .. } => "pow_fixed_base",
            Self::Reduce => "reduce",
            Self::LQuotient => "l_quotient",
            Self::CrtJoin { .. } => "crt_join",
            Self::Ntt => "ntt",
            Self::Intt => "intt",
            Self::PolyAdd => "add",
            Self::PolySub => "sub",
            Self::PolyMul => "poly_mul",
            Self::Automorphism { .. } => "automorphism",
            Self::Uniform => "uniform",
            Self::Noise => "noise",
            Self::Ternary => "ternary",
            Self::Lift { signed: false, .. } => "lift",
            Self::Lift { signed: true, .. } => "lift_signed",
            Self::Compose => "compose",
            Self::BaseExtend { .. } => "base_extend",
            Self::Rescale => "rescale",
            Self::Limbs { .. } => "limbs",
            Self::JoinLimbs => "join_limbs",
            Self::Scale { .. } => "scale",
            Self::MulSum => "mul_sum",
            Self::Pack => "pack",
            Self::Unpack => "unpack",
            Self::AddBeats => "add_beats",
            Self::AddLanes => "add_lanes",
            Self::ReduceLanes => "reduce_lanes",
            Self::FirstBadLane => "first_bad_lane",
        }
    }

    /// One step of each name, for lists of what an engine supports.
    #[rustfmt::skip]
    pub(crate) const NAMES: [&'static str; 41] = [
        "mul", "mont_mul", "split", "join", "pair_mul", "product", "invert", "choose", "one_plus_mn",
        "pow_secret", "pow_public", "dot_secret", "dot_public", "pow_fixed_base", "reduce", "l_quotient", "crt_join", "ntt",
        "intt", "add", "sub", "poly_mul", "automorphism", "uniform", "noise", "ternary", "lift",
        "lift_signed", "compose", "base_extend", "rescale", "limbs", "join_limbs", "scale", "mul_sum", "pack", "unpack", "add_beats", "first_bad_lane",
        "add_lanes", "reduce_lanes",
    ];
}

impl Program {
    fn call(&self, step: &Step, operands: &[usize]) -> String {
        let mut names: Vec<_> = operands.iter().map(|&i| self.values[i].name.clone()).collect();
        match step {
            Step::PowFixedBase { base } => names.insert(0, base.name.clone()),
            Step::Automorphism { element } => names.push(element.to_string()),
            Step::Limbs { first } => names.push(first.to_string()),
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
