//! Key generation.

use crypto_bigint::BoxedUint;
use crypto_primes::{
    Flavor,
    hazmat::{SetBits, SmallFactorsSieveFactory},
    is_prime, sieve_and_find,
};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::{PaillierSecret, factors::totients_share_only_two};
use crate::{Error, random};

impl PaillierSecret {
    /// Draws a fresh key with a modulus of exactly `bits` bits.
    ///
    /// Both primes start from uniform random numbers with the two highest bits set, so the product has
    /// all its bits; they are 3 mod 4 and `gcd(p − 1, q − 1) = 2`. That they differ in one of their
    /// first 100 bits keeps them apart as FIPS 186-5 asks (a chance of 2^-100 to be drawn again).
    ///
    /// # Errors
    /// No randomness.
    ///
    /// # Panics
    /// For fewer than 200 bits.
    pub fn generate(bits: u32) -> Result<Self, Error> {
        let mut rng = random::generator()?;
        let p = blum_prime(bits / 2, &mut rng)?;
        loop {
            let q = blum_prime(bits / 2, &mut rng)?;
            let shift = bits / 2 - 100;
            let apart = p.shr_vartime(shift) != q.shr_vartime(shift);
            if apart && totients_share_only_two(&p, &q) {
                return Ok(Self::new(p.as_words(), q.as_words(), bits, true)?);
            }
        }
    }
}

/// Draws a prime that is 3 mod 4.
fn blum_prime(bits: u32, rng: &mut impl CryptoRng) -> Result<Zeroizing<BoxedUint>, Error> {
    let sieve = SmallFactorsSieveFactory::<BoxedUint>::new(Flavor::Any, bits, SetBits::TwoMsb)
        .map_err(|_| Error::Randomness)?;
    let blum = |c: &BoxedUint| c.as_words()[0] & 3 == 3;
    let found = sieve_and_find(rng, sieve, |_, c| blum(c) && is_prime(Flavor::Any, c));
    found.ok().flatten().map(Zeroizing::new).ok_or(Error::Randomness)
}
