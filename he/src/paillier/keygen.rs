//! Key generation.

use crypto_bigint::{BoxedUint, Gcd};
use crypto_primes::{
    Flavor,
    hazmat::{SetBits, SmallFactorsSieveFactory},
    is_prime, sieve_and_find,
};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use super::PaillierSecret;
use crate::Error;

/// A fresh key with a modulus of exactly `bits` bits.
///
/// Both primes start from uniform random numbers with the two highest bits set, so the product has
/// all its bits; they are 3 mod 4 and `gcd(p − 1, q − 1) = 2`. That they differ in one of their
/// first 100 bits keeps them apart as FIPS 186-5 asks (a chance of 2^-100 to be drawn again).
pub(crate) fn generate(bits: u32, rng: &mut impl CryptoRng) -> Result<PaillierSecret, Error> {
    let p = blum_prime(bits / 2, rng)?;
    loop {
        let q = blum_prime(bits / 2, rng)?;
        let shift = bits / 2 - 100;
        let apart = p.shr_vartime(shift) != q.shr_vartime(shift);
        if apart && totients_share_only_two(&p, &q) {
            return Ok(PaillierSecret::new(p.as_words(), q.as_words(), bits, true)?);
        }
    }
}

/// A random prime that is 3 mod 4.
fn blum_prime(bits: u32, rng: &mut impl CryptoRng) -> Result<Zeroizing<BoxedUint>, Error> {
    let sieve = SmallFactorsSieveFactory::<BoxedUint>::new(Flavor::Any, bits, SetBits::TwoMsb)
        .map_err(|_| Error::Randomness)?;
    let blum = |c: &BoxedUint| c.as_words()[0] & 3 == 3;
    let found = sieve_and_find(rng, sieve, |_, c| blum(c) && is_prime(Flavor::Any, c));
    found.ok().flatten().map(Zeroizing::new).ok_or(Error::Randomness)
}

/// `gcd(p − 1, q − 1) = 2`.
pub(super) fn totients_share_only_two(p: &BoxedUint, q: &BoxedUint) -> bool {
    let one = BoxedUint::one_with_precision(p.bits_precision());
    let p_1 = Zeroizing::new(p.wrapping_sub(&one));
    let q_1 = Zeroizing::new(q.wrapping_sub(&one));
    let gcd = Zeroizing::new(p_1.gcd(&*q_1));
    *gcd == BoxedUint::from(2u8)
}
