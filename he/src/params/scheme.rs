//! Schemes and what anyone can ask of them.

use std::{fmt, str::FromStr};

use crate::error::faults::ParameterError;

/// An additively homomorphic encryption scheme at one security level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// RLWE with coefficient encoding, for sums: symmetric, seeded, 128-bit.
    CkksSum = 1,
    /// Paillier with a 2048-bit modulus: about 112-bit security.
    Paillier2048 = 2,
    /// Paillier with a 3072-bit modulus: about 128-bit security.
    Paillier3072 = 3,
    /// Paillier with a 4096-bit modulus.
    Paillier4096 = 4,
    // 5 was `ckks-sum-public`.
    /// Integers in the clear, which only tests sum.
    #[cfg(test)]
    Plain = 6,
    /// `ckks-sum` under one-time secrets, whose sums openers open together: 128-bit.
    CkksSumThreshold = 7,
}

/// Schemes of which keys and programs are made in one way, for parameters of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Paillier, for each size of its modulus.
    Paillier {
        /// Bits of n.
        modulus_bits: u32,
    },
    /// `ckks-sum`, also under one-time secrets.
    CkksSum,
    /// Integers in the clear.
    #[cfg(test)]
    Plain,
}

impl Scheme {
    /// Every scheme, in the order of their numbers in frames.
    pub const ALL: [Self; 5] = [
        Self::CkksSum,
        Self::Paillier2048,
        Self::Paillier3072,
        Self::Paillier4096,
        Self::CkksSumThreshold,
    ];

    /// The schemes that frames may name.
    const KNOWN: &[Self] = &[
        Self::CkksSum,
        Self::Paillier2048,
        Self::Paillier3072,
        Self::Paillier4096,
        Self::CkksSumThreshold,
        #[cfg(test)]
        Self::Plain,
    ];

    /// Returns the name on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CkksSum => "ckks-sum",
            Self::Paillier2048 => "paillier-2048",
            Self::Paillier3072 => "paillier-3072",
            Self::Paillier4096 => "paillier-4096",
            Self::CkksSumThreshold => "ckks-sum-threshold",
            #[cfg(test)]
            Self::Plain => "plain",
        }
    }

    /// Returns the family, which says how keys and programs are made.
    pub(crate) fn family(self) -> Family {
        match self {
            Self::CkksSum | Self::CkksSumThreshold => Family::CkksSum,
            Self::Paillier2048 => Family::Paillier { modulus_bits: 2048 },
            Self::Paillier3072 => Family::Paillier { modulus_bits: 3072 },
            Self::Paillier4096 => Family::Paillier { modulus_bits: 4096 },
            #[cfg(test)]
            Self::Plain => Family::Plain,
        }
    }

    /// Returns the bits of the Paillier modulus n, if it is Paillier.
    #[must_use]
    pub fn modulus_bits(self) -> Option<u32> {
        match self.family() {
            Family::Paillier { modulus_bits } => Some(modulus_bits),
            _ => None,
        }
    }

    /// Returns whether keys or ciphertexts are written as seeds that polynomials grow from.
    pub(crate) fn grows_from_seeds(self) -> bool {
        self.family() == Family::CkksSum
    }

    /// Returns the scheme's number in frames.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// Returns the scheme of a number in frames.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::KNOWN.iter().copied().find(|scheme| scheme.code() == code)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scheme {
    type Err = ParameterError;

    fn from_str(name: &str) -> Result<Self, ParameterError> {
        let unknown = || {
            ParameterError(format!(
                "no scheme {name:?}; there are ckks-sum, ckks-sum-threshold, paillier-2048, paillier-3072, \
                 paillier-4096"
            ))
        };
        Self::KNOWN.iter().copied().find(|s| s.name() == name).ok_or_else(unknown)
    }
}

/// A parameter set as anyone can write it; [`Parameters::new`](super::Parameters::new) checks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Literal {
    /// The scheme.
    pub scheme: Scheme,
    /// The most contributors that may ever be summed.
    pub clients: u32,
    /// Bits of a quantised value.
    pub bits: u32,
}
