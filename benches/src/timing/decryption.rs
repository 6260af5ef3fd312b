//! Paillier decryption: of special ciphertexts, of special plaintexts, under special primes.

use std::sync::Arc;

use ciphergram_accel::{Builder, Modulus, Operand, Program, random::StreamRng};
use ciphergram_he::Error;
use rand_core::Rng;

use super::{
    BATCH,
    secrets::of_program,
    subject::{Constants, Setup, Subject, Words, uniform_residues, uniform_residues_into},
};

/// Encryptions of each class of plaintexts from which samples are drawn.
const POOL: usize = 256;
/// Words of a prime factor of n.
const PRIME_WORDS: usize = 16;

/// Times decryption of one ciphertext in class A, of uniform ones in class B.
#[must_use]
pub fn fixed<'a>(setup: &'a Setup, rng: &mut StreamRng) -> Box<dyn Subject + 'a> {
    let one = uniform_residues(1, setup.secret().modulus().n_squared(), rng);
    against_uniform(setup, &one)
}

/// Times decryption of the ciphertext 1 in class A, under which every intermediate value is 1 or 0;
/// of uniform ones in class B.
#[must_use]
pub fn unit<'a>(setup: &'a Setup) -> Box<dyn Subject + 'a> {
    let mut one = vec![0; setup.secret().modulus().ciphertext_words()];
    one[0] = 1;
    against_uniform(setup, &one)
}

/// Draws class B from all residues of n²: nearly every one is a ciphertext, of a uniform plaintext,
/// under a uniform mask.
fn against_uniform<'a>(setup: &'a Setup, one: &[u64]) -> Box<dyn Subject + 'a> {
    let modulus = setup.secret().modulus().n_squared();
    let candidates = [one.repeat(BATCH), one.repeat(BATCH)];
    decrypt(setup, candidates, move |[_, b], rng| uniform_residues_into(b, modulus, rng))
}

/// Times decryption of encryptions of zero in class A, of uniform plaintexts in class B.
///
/// # Errors
/// The engine's, or no randomness.
pub fn zero<'a>(setup: &'a Setup, rng: &mut StreamRng) -> Result<Box<dyn Subject + 'a>, Error> {
    let modulus = setup.secret().modulus();
    let plain = uniform_residues(POOL, modulus.n(), rng);
    let pools = [encrypt(setup, &vec![0; plain.len()], rng)?, encrypt(setup, &plain, rng)?];
    let each = modulus.ciphertext_words();
    let candidates = [vec![0; BATCH * each], vec![0; BATCH * each]];
    Ok(decrypt(setup, candidates, move |both, rng| {
        for (words, pool) in both.iter_mut().zip(&pools) {
            for item in words.chunks_exact_mut(each) {
                let index = rng.next_u64() as usize % POOL;
                item.copy_from_slice(&pool[index * each..][..each]);
            }
        }
    }))
}

/// Returns encryptions of [`POOL`] plaintexts, each under a uniform mask.
fn encrypt(setup: &Setup, plain: &[u64], rng: &mut StreamRng) -> Result<Vec<u64>, Error> {
    let modulus = setup.secret().modulus();
    let masks = uniform_residues(POOL, modulus.n_squared(), rng);
    let mut out = vec![0; masks.len()];
    let mut operands =
        [Operand::SecretIn(plain), Operand::SecretIn(&masks), Operand::Out(&mut out)];
    setup.engine().run(&modulus.full_mask_program(), &mut operands)?;
    Ok(out)
}

/// Times the program of decryption, which is all that touches the key.
fn decrypt<'a>(
    setup: &'a Setup,
    candidates: [Vec<u64>; 2],
    draw: impl FnMut(&mut [Vec<u64>; 2], &mut StreamRng) + 'a,
) -> Box<dyn Subject + 'a> {
    let secret = setup.secret();
    let mut out = vec![0; BATCH * secret.modulus().n().len_words()];
    let run = move |words: &[u64]| {
        let mut operands = [Operand::In(words), Operand::Out(&mut out)];
        Ok(setup.engine().run(secret.decrypt_program(), &mut operands)?)
    };
    Box::new(Words::of_public(candidates, of_program(secret.decrypt_program()), draw, run))
}

/// Times one leg of decryption, `L_p(c^(p−1) mod p²)` as in [`ciphergram_he::paillier`], under a prime of
/// 1021 ones in class A and of 7 ones in class B. So the secret exponent and the secret moduli p
/// and p² differ as much as they can.
#[must_use]
pub fn prime<'a>(setup: &'a Setup, rng: &mut StreamRng) -> Box<dyn Subject + 'a> {
    let primes = [dense_prime(), sparse_prime()].map(|p| p.to_vec());
    let n_squared = setup.secret().modulus().n_squared();
    let ciphertexts = uniform_residues(BATCH, n_squared, rng);
    let mut out = vec![0; BATCH * PRIME_WORDS];
    let run = move |program: &Program| {
        let mut operands = [Operand::In(&ciphertexts), Operand::Out(&mut out)];
        Ok(setup.engine().run(program, &mut operands)?)
    };
    Box::new(Constants::new(primes, |_, _| {}, |p| leg_program(n_squared, p), run))
}

/// Builds the program of a leg. p² is made as a square, as decryption makes it: engines take another path for those.
fn leg_program(n_squared: &Arc<Modulus>, p: &[u64]) -> Program {
    let prime = crate::made(Modulus::new("p", p));
    let square = crate::made(Modulus::square("p²", &prime));
    let mut b = Builder::new("timing.leg");
    let c = b.residues("c", n_squared);
    let mut below = p.to_vec();
    below[0] -= 1;
    let e = b.secret_exponent("p−1", 64 * PRIME_WORDS as u32, &below);
    let x = b.reduce("x", c, &square);
    let y = b.pow("y", x, e);
    let l = b.l_quotient("l", y, &prime);
    b.output(l);
    b.build()
}

/// Returns `2^1024 − 105`, the largest prime below 2^1024.
fn dense_prime() -> [u64; PRIME_WORDS] {
    let mut p = [u64::MAX; PRIME_WORDS];
    p[0] -= 104;
    p
}

/// Returns `2^1023 + 2^1022 + 2087`, the smallest prime that is 3 mod 4 above its first two terms, which
/// all primes of keys made here have.
fn sparse_prime() -> [u64; PRIME_WORDS] {
    let mut p = [0; PRIME_WORDS];
    (p[0], p[PRIME_WORDS - 1]) = (2087, 3 << 62);
    p
}

#[cfg(test)]
mod tests {
    use super::*;
    use ciphergram_he::paillier::PaillierSecret;

    #[test]
    fn the_special_primes_are_factors_of_a_key() {
        let (dense, sparse) = (dense_prime(), sparse_prime());
        let ones = |p: &[u64]| p.iter().map(|w| w.count_ones()).sum::<u32>();
        assert_eq!((ones(&dense), ones(&sparse)), (1021, 7));
        assert!(PaillierSecret::new(&dense, &sparse, 2048, false).is_ok());
    }
}
