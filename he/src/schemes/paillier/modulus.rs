//! The public modulus: its validation, the programs that need nothing else, and what a valid
//! ciphertext is.

use std::{
    borrow::Cow,
    convert::Infallible,
    sync::{Arc, OnceLock},
};

use ciphergram_accel::{
    Builder, Engine, Modulus, Operand, Program, RunError, modulus::MAX_MODULUS_BITS,
    random::StreamRng,
};
use crypto_bigint::{BoxedUint, Gcd, NonZero};

use super::{
    masks::{Masks, full_mask_program},
    pairs::Pairs,
    radix::RadixPowers,
};
use crate::{
    Error,
    error::{CiphertextFault, ModulusFault},
};

/// Trial division goes up to here.
const SMALL_FACTOR_LIMIT: u32 = 1 << 16;

/// n and n², validated, with what is derived from them once: clones share it.
#[derive(Clone)]
pub struct PaillierModulus(Arc<ModulusState>);

struct ModulusState {
    n: Arc<Modulus>,
    n_squared: Arc<Modulus>,
    djn: bool,
    masks: OnceLock<Arc<Masks>>,
    radix_powers: RadixPowers,
    scale: Program,
    product: Program,
    pairs: Pairs,
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
        let size = |expected| ModulusFault::new(format!("has {found} bits, not {expected}"));
        if found != bits {
            return Err(size(bits));
        }
        if n[0] & 1 == 0 {
            return Err(ModulusFault::even());
        }
        if let Some(factor) = (3..SMALL_FACTOR_LIMIT).step_by(2).find(|&d| divides(d, n)) {
            return Err(ModulusFault::new(format!("has the small factor {factor}")));
        }
        if is_prime_power(&big) {
            return Err(ModulusFault::new("is a prime or a power of a prime"));
        }
        // The digits of a ciphertext in base n fill as many words as it does.
        if !bits.is_multiple_of(64) || bits < 128 {
            return Err(size(bits.max(128).next_multiple_of(64)));
        }
        let n = Arc::new(Modulus::new("n", n).map_err(|_| ModulusFault::even())?);
        let n_squared = Modulus::square("n²", &n).map_err(|_| size(MAX_MODULUS_BITS / 2))?;
        let n_squared = Arc::new(n_squared);
        Ok(Self(Arc::new(ModulusState {
            n,
            scale: scale_program(&n_squared),
            product: product_program(&n_squared),
            pairs: Pairs::new(&n_squared),
            n_squared,
            djn,
            masks: OnceLock::new(),
            radix_powers: RadixPowers::default(),
        })))
    }

    /// n.
    #[must_use]
    pub fn n(&self) -> &Arc<Modulus> {
        &self.0.n
    }

    /// n².
    #[must_use]
    pub fn n_squared(&self) -> &Arc<Modulus> {
        &self.0.n_squared
    }

    /// Returns whether its maker vouches for the form that short masks need.
    #[must_use]
    pub fn is_djn(&self) -> bool {
        self.0.djn
    }

    /// Returns the words of one ciphertext.
    #[must_use]
    pub fn ciphertext_words(&self) -> usize {
        self.0.n_squared.len_words()
    }

    /// Returns whether both are the same number.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.n.words() == other.0.n.words()
    }

    /// Returns the program of one homomorphic addition of ordinary words in place, as they come
    /// from a wire: one Montgomery product, which takes one power of `R = 2^(64 · words of n²)`
    /// away.
    #[must_use]
    pub fn sum_program(&self) -> Program {
        let mut b = Builder::new("paillier.sum");
        let sum = b.residue_sums("sum", &self.0.n_squared);
        let c = b.residues("c", &self.0.n_squared);
        let product = b.mont_mul("product", sum, c);
        b.update(sum, product);
        b.build()
    }

    /// Returns the program that multiplies a batch in place by one number for all, by one
    /// Montgomery product each: corrections run it with a power of the radix.
    #[must_use]
    pub fn scale_program(&self) -> &Program {
        &self.0.scale
    }

    /// Returns the program of the product of sixteen ciphertexts: a step of the tree that sums a
    /// batch.
    #[must_use]
    pub fn product_program(&self) -> &Program {
        &self.0.product
    }

    /// Builds the program of an encryption with a full mask, which moduli of unknown form take.
    #[must_use]
    pub fn full_mask_program(&self) -> Program {
        full_mask_program(self.n(), self.n_squared())
    }

    /// Returns the programs that turn ciphertexts into pairs and back.
    pub(super) fn pairs(&self) -> &Pairs {
        &self.0.pairs
    }

    /// Returns the masks of encryptors without the secret key: drawn and built once, so that engines keep one
    /// table.
    pub(super) fn masks(
        &self,
        engine: &dyn Engine,
        rng: &mut StreamRng,
    ) -> Result<Arc<Masks>, Error> {
        if let Some(masks) = self.0.masks.get() {
            return Ok(masks.clone());
        }
        let (n, n_squared) = (self.n(), self.n_squared());
        let masks = if self.is_djn() {
            Masks::short(n, n_squared, engine, rng)?
        } else {
            Masks::full(n, n_squared)
        };
        let masks = Arc::new(masks);
        Ok(self.0.masks.get_or_init(|| masks).clone())
    }

    /// Computes `R^power mod n²`.
    pub(super) fn radix_power(&self, power: u32) -> Arc<[u64]> {
        let make = || Ok::<_, Infallible>(self.0.n_squared.radix_power(power));
        let Ok(words) = self.0.radix_powers.get(power, make);
        words
    }

    /// Turns words that hold `c · R^power` into `c`, in place: one Montgomery product by
    /// `R^(1 − power)` each, or nothing where the power is 0. `power` is never positive.
    pub(crate) fn correct(
        &self,
        engine: &dyn Engine,
        words: &mut [u64],
        power: i32,
    ) -> Result<(), RunError> {
        if power == 0 {
            return Ok(());
        }
        let factor = self.radix_power(1i32.abs_diff(power));
        engine.run(&self.0.scale, &mut [Operand::InOut(words), Operand::In(&factor)])
    }

    /// Finds the first ciphertext that is 0 or not below n². For batches of public words.
    pub(crate) fn range_fault(&self, words: &[u64]) -> Option<CiphertextFault> {
        words.chunks(self.ciphertext_words()).enumerate().find_map(|(index, c)| {
            if c.iter().all(|&w| w == 0) {
                Some(CiphertextFault::Item { item: "ciphertext", index, why: "is 0" })
            } else if !self.0.n_squared.contains_vartime(c) {
                Some(CiphertextFault::Item { item: "ciphertext", index, why: "is not below n²" })
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
        Ok(index.map(CiphertextFault::not_coprime))
    }

    /// Returns the product of all ciphertexts of a batch, 1 for an empty one: a tree of sixteen
    /// branches at each node, so that no level needs more than a sixteenth of the one before.
    pub(super) fn product(&self, engine: &dyn Engine, words: &[u64]) -> Result<Vec<u64>, RunError> {
        let k = self.ciphertext_words();
        if words.is_empty() {
            return Ok(one(k));
        }
        let mut level = Cow::Borrowed(words);
        while level.len() > k {
            level = Cow::Owned(self.fold(engine, &level)?);
        }
        Ok(level.into_owned())
    }

    /// Returns the products of every sixteen ciphertexts, and of those that remain.
    fn fold(&self, engine: &dyn Engine, words: &[u64]) -> Result<Vec<u64>, RunError> {
        let k = self.ciphertext_words();
        let (whole, rest) = words.split_at(words.len() / (ROWS * k) * (ROWS * k));
        let mut out = vec![0; words.len().div_ceil(ROWS * k) * k];
        let (products, last) = out.split_at_mut(whole.len() / ROWS);
        engine.run(&self.0.product, &mut [Operand::In(whole), Operand::Out(products)])?;
        if !rest.is_empty() {
            let ones = (rest.len() / k..ROWS).flat_map(|_| one(k));
            let rows: Vec<u64> = rest.iter().copied().chain(ones).collect();
            engine.run(&self.0.product, &mut [Operand::In(&rows), Operand::Out(last)])?;
        }
        Ok(out)
    }

    fn is_coprime(&self, words: &[u64]) -> bool {
        let n = BoxedUint::from_words(self.0.n.words().iter().copied());
        let Some(n) = n.to_nz().into_option() else { return false };
        let rest = BoxedUint::from_words(words.iter().copied()).rem_vartime(&n);
        let gcd: NonZero<BoxedUint> = n.gcd_vartime(&rest);
        bool::from(gcd.is_one())
    }
}

/// Ciphertexts that one item of the product program multiplies.
const ROWS: usize = 16;

fn product_program(n_squared: &Arc<Modulus>) -> Program {
    let mut b = Builder::new("paillier.product");
    let c = b.residue_rows("c", n_squared, ROWS);
    let product = b.product("product", c);
    b.output(product);
    b.build()
}

fn scale_program(n_squared: &Arc<Modulus>) -> Program {
    let mut b = Builder::new("paillier.scale");
    let c = b.residue_sums("c", n_squared);
    let factor = b.shared_residues("factor", n_squared, 1);
    let product = b.mont_mul("product", c, factor);
    b.update(c, product);
    b.build()
}

/// Returns the number 1 in `words` words.
pub(super) fn one(words: usize) -> Vec<u64> {
    let mut one = vec![0; words];
    one[0] = 1;
    one
}

/// Returns whether `d` divides the number, for `d` below 2^32.
fn divides(d: u32, words: &[u64]) -> bool {
    let d = u64::from(d);
    let fold = |rest: u64, &w: &u64| {
        let rest = ((rest << 32) | (w >> 32)) % d;
        ((rest << 32) | (w & 0xffff_ffff)) % d
    };
    words.iter().rev().fold(0, fold) == 0
}

/// Returns whether the odd `n` is a prime or a power of one, squares and cubes included.
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
