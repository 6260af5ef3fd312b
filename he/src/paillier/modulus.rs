//! The public modulus: its validation, the programs that need nothing else, and what a valid
//! ciphertext is.

use std::sync::Arc;

use ciphergram_accel::{Builder, Engine, Modulus, Operand, Program, RunError};
use crypto_bigint::{BoxedUint, ConcatenatingSquare, Gcd, NonZero};

use crate::error::CiphertextFault;

/// Why a number cannot be trusted as a Paillier modulus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModulusFault {
    /// Not the size that the scheme says.
    #[error("has {found} bits, not {expected}")]
    Size {
        /// Bits found.
        found: u32,
        /// Bits of the scheme.
        expected: u32,
    },
    /// Even.
    #[error("is even")]
    Even,
    /// A prime or a power of one, whose totient anyone can compute.
    #[error("is a prime or a power of a prime")]
    PrimePower,
    /// Divisible by a small prime.
    #[error("has the small factor {factor}")]
    SmallFactor {
        /// The factor.
        factor: u32,
    },
    /// The secret factors are not those of the modulus.
    #[error("is not the product of the two primes in the file")]
    NotTheProduct,
    /// A secret factor is not prime, or both are not half the size of n.
    #[error("has a factor that is not a prime of half its size")]
    NotPrime,
    /// `gcd(n, φ(n)) ≠ 1`: decryption would not be unique.
    #[error("is not coprime to its totient")]
    Totient,
    /// The key says it has the form that short masks need, and has not.
    #[error("is not of the form that its key file declares")]
    Form,
}

/// Trial division goes up to here.
const SMALL_FACTOR_LIMIT: u32 = 1 << 16;

/// n and n², validated.
#[derive(Clone)]
pub struct PaillierModulus {
    n: Arc<Modulus>,
    n_squared: Arc<Modulus>,
    djn: bool,
}

impl PaillierModulus {
    /// Checks what can be checked without the factors: size, oddness, no factor below 65,536, no
    /// prime power. `djn` says that its maker vouches for the form that short masks need.
    ///
    /// # Errors
    /// See [`ModulusFault`].
    pub fn new(n: &[u64], bits: u32, djn: bool) -> Result<Self, ModulusFault> {
        let big = BoxedUint::from_words(n.iter().copied());
        let found = big.bits_vartime();
        if found != bits {
            return Err(ModulusFault::Size { found, expected: bits });
        }
        if n[0] & 1 == 0 {
            return Err(ModulusFault::Even);
        }
        if let Some(factor) = (3..SMALL_FACTOR_LIMIT).step_by(2).find(|&d| divides(d, n)) {
            return Err(ModulusFault::SmallFactor { factor });
        }
        if is_prime_power(&big) {
            return Err(ModulusFault::PrimePower);
        }
        let square = big.concatenating_square();
        let modulus = |name: &str, words: &[u64]| {
            Modulus::new(name, words).map(Arc::new).map_err(|_| ModulusFault::Even)
        };
        Ok(Self { n: modulus("n", n)?, n_squared: modulus("n²", square.as_words())?, djn })
    }

    /// n.
    #[must_use]
    pub fn n(&self) -> &Arc<Modulus> {
        &self.n
    }

    /// n².
    #[must_use]
    pub fn n_squared(&self) -> &Arc<Modulus> {
        &self.n_squared
    }

    /// Whether its maker vouches for the form that short masks need.
    #[must_use]
    pub fn is_djn(&self) -> bool {
        self.djn
    }

    /// Words of one ciphertext.
    #[must_use]
    pub fn ciphertext_words(&self) -> usize {
        self.n_squared.len_words()
    }

    /// The program of one homomorphic addition in place.
    #[must_use]
    pub fn sum_program(&self) -> Program {
        let mut b = Builder::new("paillier.sum");
        let sum = b.residue_sums("sum", &self.n_squared);
        let c = b.residues("c", &self.n_squared);
        let product = b.mul("product", sum, c);
        b.update(sum, product);
        b.build()
    }

    /// Finds the first ciphertext that is 0 or not below n². For batches of public words.
    pub(crate) fn range_fault(&self, words: &[u64]) -> Option<CiphertextFault> {
        words.chunks(self.ciphertext_words()).enumerate().find_map(|(index, c)| {
            if c.iter().all(|&w| w == 0) {
                Some(CiphertextFault::Zero { index })
            } else if !self.n_squared.contains_vartime(c) {
                Some(CiphertextFault::NotReduced { index })
            } else {
                None
            }
        })
    }

    /// Finds the first ciphertext that shares a factor with n. One product over all of them and one
    /// greatest common divisor pass a clean batch; only a bad one is searched.
    pub(crate) fn coprimality_fault(
        &self,
        engine: &dyn Engine,
        words: &[u64],
    ) -> Result<Option<CiphertextFault>, RunError> {
        let product = self.product(engine, words)?;
        if self.is_coprime(&product) {
            return Ok(None);
        }
        let each = words.chunks(self.ciphertext_words());
        let index = each.clone().position(|c| !self.is_coprime(c));
        Ok(index.map(|index| CiphertextFault::NotCoprime { index }))
    }

    /// The product of all ciphertexts of a batch.
    fn product(&self, engine: &dyn Engine, words: &[u64]) -> Result<Vec<u64>, RunError> {
        const ROWS: usize = 16;
        let k = self.ciphertext_words();
        let mut rows = words.to_vec();
        while rows.len() > k {
            // Fill the last item up with ones.
            let items = (rows.len() / k).div_ceil(ROWS);
            while rows.len() < items * ROWS * k {
                rows.push(u64::from(rows.len().is_multiple_of(k)));
            }
            let mut b = Builder::new("paillier.product");
            let c = b.residue_rows("c", &self.n_squared, ROWS);
            let product = b.product("product", c);
            b.output(product);
            let mut out = vec![0; items * k];
            engine.run(&b.build(), &mut [Operand::In(&rows), Operand::Out(&mut out)])?;
            rows = out;
        }
        Ok(rows)
    }

    fn is_coprime(&self, words: &[u64]) -> bool {
        let n = BoxedUint::from_words(self.n.words().iter().copied());
        let Some(n) = n.to_nz().into_option() else { return false };
        let rest = BoxedUint::from_words(words.iter().copied()).rem_vartime(&n);
        let gcd: NonZero<BoxedUint> = n.gcd_vartime(&rest);
        bool::from(gcd.is_one())
    }
}

/// Whether `d` divides the number, for `d` below 2^32.
fn divides(d: u32, words: &[u64]) -> bool {
    let d = u64::from(d);
    let fold = |rest: u64, &w: &u64| {
        let rest = ((rest << 32) | (w >> 32)) % d;
        ((rest << 32) | (w & 0xffff_ffff)) % d
    };
    words.iter().rev().fold(0, fold) == 0
}

/// Whether the odd `n` is a prime or a power of one, squares and cubes included.
///
/// If `n = p^k` then `2^n ≡ 2 mod p`, so `2^n − 2` shares p with n. For `n = p·q` it would have to
/// be that the order of 2 modulo p divides `gcd(p − 1, q − 1)`: 2 for the keys made here, which is
/// impossible, and of negligible chance for random primes.
fn is_prime_power(n: &BoxedUint) -> bool {
    let Some(odd) = n.to_odd().into_option() else { return false };
    let mut two = BoxedUint::zero_with_precision(n.bits_precision());
    two.as_mut_words()[0] = 2;
    let power = two.pow_mod(n, &odd);
    let difference = power.sub_mod(&two, odd.as_nz_ref());
    !bool::from(odd.gcd_vartime(&difference).is_one())
}
