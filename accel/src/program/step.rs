//! The steps of programs: operations, each declared once with its name, and what they compute over.

use std::sync::Arc;

use super::{BaseExtension, Crt, FixedBase, ScaleFactors};
use crate::{modulus::Modulus, ring::Ring};

/// What hosts know of an operation beside its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Property {
    /// It takes many products for each item.
    Powers,
    /// It makes each residue of those at the same place.
    Pointwise,
}

/// Declares the operations of a family: a row has the name in program texts, another one for where a field is true, and
/// the properties.
macro_rules! operations {
    (
        $(#[$doc:meta])* $family:ident;
        $(
            $(#[$of:meta])*
            $operation:ident $({ $($(#[$what:meta])* $field:ident: $type:ty),* $(,)? })?
            = $name:literal $(, $other:literal if $flag:ident)? $(; $property:ident)*
        ),* $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub enum $family {
            $($(#[$of])* $operation $({ $($(#[$what])* $field: $type),* })?,)*
        }

        impl $family {
            const NAMES: &[&str] = &[$($name, $($other,)?)*];

            /// Returns the name of the operation in program texts, and its properties.
            fn row(&self) -> (&'static str, &'static [Property]) {
                let name = match self {
                    $($(Self::$operation { $flag: true, .. } => $other,)? Self::$operation { .. } => $name,)*
                };
                let properties: &[_] = match self {
                    $(Self::$operation { .. } => &[$(Property::$property),*],)*
                };
                (name, properties)
            }
        }
    };
}

operations! {
    /// Operations that make a residue.
    ResidueOp;
    /// `a · b mod m`.
    Mul = "mul",
    /// `a · b · R⁻¹ mod m` with `R = 2^(64 · words of m)`: one Montgomery product.
    MontMul = "mont_mul",
    /// Digits in base s to the residue below s². Constant time.
    Join {
        /// s.
        root: Arc<Modulus>,
    } = "join",
    /// The product of all rows of an item, mod m.
    Product = "product"; Powers,
    /// The inverse mod m of a public residue; 0 where there is none.
    Invert = "invert"; Powers,
    /// `a` where a secret bit is 1, else `b`. Constant time.
    Choose = "choose",
    /// `1 + x·n`, for `x < n` and a result below n².
    OnePlusMn {
        /// n.
        n: Arc<Modulus>,
    } = "one_plus_mn",
    /// `base^e mod m`.
    Pow {
        /// Whether the exponent must take a constant-time path.
        secret: bool,
        /// The bound on exponents.
        bits: u32,
    } = "pow_public", "pow_secret" if secret; Powers,
    /// The product over all rows i of `base_i^(e_i)`, mod m: simultaneous exponentiation.
    Dot {
        /// Whether the exponents must take a constant-time path.
        secret: bool,
        /// The bound on exponents.
        bits: u32,
    } = "dot_public", "dot_secret" if secret; Powers,
    /// `factor · base^e mod m` for a base and a factor known beforehand and a secret exponent.
    PowFixedBase {
        /// The base and the bound on exponents.
        base: Arc<FixedBase>,
    } = "pow_fixed_base"; Powers,
    /// `x mod m`, for a residue of any larger modulus. Constant time.
    Reduce = "reduce",
    /// `(x − 1) / p` for `x ≡ 1 mod p`, `x < p²`: Paillier's function L. Constant time.
    LQuotient = "l_quotient",
}

operations! {
    /// Operations that make a residue below s² as its two digits in base s.
    PairOp;
    /// Those of a residue. Constant time.
    Split = "split",
    /// `a · b · R⁻¹ mod s²` of pairs, with `R = 2^(64 · words of s)`. Constant time.
    Mul = "pair_mul",
    /// Those of [`ResidueOp::OnePlusMn`], of which n is s.
    OnePlusMn = "one_plus_mn",
    /// Those of [`ResidueOp::PowFixedBase`].
    PowFixedBase {
        /// The base and the bound on exponents.
        base: Arc<FixedBase>,
    } = "pow_fixed_base"; Powers,
}

operations! {
    /// Operations that make residues of each prime of those of that prime.
    LimbOp;
    /// To NTT form.
    Ntt = "ntt",
    /// From NTT form.
    Intt = "intt",
    /// `a + b` in the ring, both in the same form.
    Add = "add"; Pointwise,
    /// `a − b` in the ring, both in the same form.
    Sub = "sub"; Pointwise,
    /// `a · b` in NTT form.
    Mul = "poly_mul"; Pointwise,
    /// `a(X^g)`, in the form that `a` has. Constant time.
    Automorphism {
        /// The Galois element g: odd, below 2N.
        element: u32,
    } = "automorphism",
    /// Integers of one word to RNS, one to a coefficient. Constant time.
    Lift {
        /// Whether they are of two's complement.
        signed: bool,
    } = "lift", "lift_signed" if signed,
    /// The residues of a run of primes.
    Limbs {
        /// The first of them.
        first: usize,
    } = "limbs"; Pointwise,
    /// The residues of two polynomials, each of other primes, as one polynomial.
    JoinLimbs = "join_limbs"; Pointwise,
    /// `a · f_j mod q_j`: a constant for each prime.
    Scale {
        /// The constants.
        factors: Arc<ScaleFactors>,
    } = "scale"; Pointwise,
    /// `Σ a_i · b_i` in NTT form; the operands are all a, then all b.
    MulSum = "mul_sum"; Pointwise,
}

operations! {
    /// Operations over whole polynomials.
    RingOp;
    /// The sum over all seeds of the uniform polynomial that `(seed, index)` names.
    Uniform = "uniform",
    /// The centred binomial polynomial that `(key, index)` names. Constant time.
    Noise = "noise",
    /// The ternary polynomial that `(key, index)` names. Constant time.
    Ternary = "ternary",
    /// Integers of `words_each` words to RNS, one to a coefficient. Of several words they are lifted to all primes at
    /// once: one prime at a time would read all words again for each. Constant time.
    Lift {
        /// Words of one integer: two or more.
        words_each: usize,
        /// Whether they are of two's complement.
        signed: bool,
    } = "lift", "lift_signed" if signed,
    /// RNS to the integer in `[0, Q)` of each coefficient, a word for each prime. Constant time.
    Compose = "compose",
    /// The centred integer of each coefficient, in (−Q/2, Q/2), to the primes of another ring.
    /// Constant time.
    BaseExtend {
        /// The other ring.
        to: Arc<Ring>,
        /// The constants of the extension.
        extension: Arc<BaseExtension>,
    } = "base_extend",
    /// The first coefficients of a polynomial to beats; lanes past its end are zero.
    Pack = "pack",
    /// Beats to a polynomial; coefficients that they do not hold are zero.
    Unpack = "unpack",
}

operations! {
    /// Operations over beats and their lanes, which need no constants but the primes.
    LaneOp;
    /// Lane by lane `a + b mod q`.
    AddBeats = "add_beats",
    /// The first lane of an item that is not below its prime, as
    /// [`beats::first_bad_lane`](crate::beats::first_bad_lane) numbers them; their number where all are. Variable time.
    FirstBadLane = "first_bad_lane",
    /// Lane by lane `a + b`, not reduced, b in beats; see [`beats::add_lanes`](crate::beats::add_lanes).
    AddLanes = "add_lanes",
    /// Lane by lane `a mod q`, in beats.
    ReduceLanes = "reduce_lanes",
}

/// A step over big residues.
#[derive(Clone)]
pub enum ResidueStep {
    /// It makes residues.
    Residue {
        /// The operation.
        op: ResidueOp,
        /// The modulus of the result.
        modulus: Arc<Modulus>,
    },
    /// It makes pairs.
    Pair {
        /// The operation.
        op: PairOp,
        /// The modulus of the result, s².
        square: Arc<Modulus>,
        /// s.
        root: Arc<Modulus>,
    },
    /// The number below `p·q` with the given remainders. Constant time.
    CrtJoin {
        /// The constants of the recombination.
        crt: Arc<Crt>,
    },
}

/// A step over polynomials that treats each prime apart.
#[derive(Clone)]
pub struct LimbStep {
    /// The operation.
    pub op: LimbOp,
    /// The ring of the result.
    pub ring: Arc<Ring>,
    /// Whether the result is in NTT form.
    pub ntt: bool,
}

impl LimbStep {
    /// Returns whether it makes each residue of those at the same place.
    pub(crate) fn is_pointwise(&self) -> bool {
        self.op.row().1.contains(&Property::Pointwise)
    }

    /// Returns whether it only takes residues from where they are.
    pub(crate) fn is_view(&self) -> bool {
        matches!(self.op, LimbOp::Limbs { .. } | LimbOp::JoinLimbs)
    }
}

/// A step over whole polynomials.
#[derive(Clone)]
pub struct RingStep {
    /// The operation.
    pub op: RingOp,
    /// The ring of the operand, if it is a polynomial; else of the result.
    pub ring: Arc<Ring>,
}

/// A step over lanes of beats.
#[derive(Clone)]
pub struct LaneStep {
    /// The operation.
    pub op: LaneOp,
    /// The ring.
    pub ring: Arc<Ring>,
    /// Beats in an item.
    pub count: usize,
}

/// One step. Its operands are earlier values, by index; its kind is that of its [`Value`](super::Value).
#[derive(Clone)]
pub enum Step {
    /// Over big residues.
    Residue(ResidueStep),
    /// Over polynomials, prime by prime.
    Limb(LimbStep),
    /// Over whole polynomials.
    Ring(RingStep),
    /// Over lanes of beats.
    Lane(LaneStep),
}

const CRT_JOIN: &str = "crt_join";

impl Step {
    fn row(&self) -> (&'static str, &'static [Property]) {
        match self {
            Self::Residue(ResidueStep::Residue { op, .. }) => op.row(),
            Self::Residue(ResidueStep::Pair { op, .. }) => op.row(),
            Self::Residue(ResidueStep::CrtJoin { .. }) => (CRT_JOIN, &[]),
            Self::Limb(step) => step.op.row(),
            Self::Ring(step) => step.op.row(),
            Self::Lane(step) => step.op.row(),
        }
    }

    /// Returns the name of the operation in program texts.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.row().0
    }

    /// Returns all names, for lists of what an engine supports.
    pub(crate) fn names() -> Vec<&'static str> {
        let mut names: Vec<&str> = vec![];
        let all = [
            ResidueOp::NAMES,
            &[CRT_JOIN],
            PairOp::NAMES,
            LimbOp::NAMES,
            RingOp::NAMES,
            LaneOp::NAMES,
        ];
        for name in all.into_iter().flatten() {
            if !names.contains(name) {
                names.push(name);
            }
        }
        names
    }

    /// Returns the base of a power that is known beforehand.
    pub(crate) fn fixed_base(&self) -> Option<&Arc<FixedBase>> {
        match self {
            Self::Residue(
                ResidueStep::Residue { op: ResidueOp::PowFixedBase { base }, .. }
                | ResidueStep::Pair { op: PairOp::PowFixedBase { base }, .. },
            ) => Some(base),
            _ => None,
        }
    }

    /// Returns whether it takes many products for each item.
    pub(crate) fn is_of_powers(&self) -> bool {
        self.row().1.contains(&Property::Powers)
    }

    /// Returns whether it computes with big residues, not with polynomials.
    pub(crate) fn is_of_residues(&self) -> bool {
        matches!(self, Self::Residue(_))
    }

    /// Returns whether it adds to its first operand, which hosts put where the result goes. Short runs ask.
    pub(crate) fn accumulates(&self) -> bool {
        matches!(self, Self::Lane(LaneStep { op: LaneOp::AddLanes, .. }))
    }
}
