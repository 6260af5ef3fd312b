//! The oracle itself, against an independent bignum.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Engine, Exponents, Modulus, Operand, Public, ReferenceEngine, Residues, Ring,
    ring::largest_primes,
};
use num_bigint::BigUint;
use proptest::prelude::*;

fn big(words: &[u64]) -> BigUint {
    words.iter().rev().fold(BigUint::ZERO, |acc, &w| (acc << 64) + BigUint::from(w))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// x^e · x mod m.
    #[test]
    fn powers_and_products(
        mut m in prop::collection::vec(any::<u64>(), 1..9),
        x in prop::collection::vec(any::<u64>(), 9),
        e in prop::collection::vec(any::<u64>(), 2),
    ) {
        m[0] |= 3;
        let modulus = Arc::new(Modulus::new("m", &m).unwrap());
        let k = modulus.len_words();
        let reduced = (big(&x) % big(&m)).to_u64_digits();
        let mut words = vec![0; k];
        words[..reduced.len()].copy_from_slice(&reduced);
        let x = Residues::try_from_words(modulus.clone(), words).unwrap();
        let mut b = Builder::new("x^e · x");
        let (vx, ve) = (b.residues("x", &modulus), b.exponents::<Public>("e", 128));
        let power = b.pow("p", vx, ve);
        let product = b.mul("z", power, vx);
        b.output(product);
        let mut out = Residues::zeros(modulus, 1);
        let exponents = Exponents::<Public>::new(128, e.clone());
        let mut operands =
            [Operand::from(&x), Operand::from(&exponents), Operand::Out(out.words_mut())];
        ReferenceEngine.run(&b.build(), &mut operands).unwrap();
        let base = big(x.words());
        prop_assert_eq!(big(out.words()), base.modpow(&big(&e), &big(&m)) * base % big(&m));
    }
    /// Integers below Q have remainders, and come back from them.
    #[test]
    fn integers_come_back_from_their_remainders(
        limbs in 1usize..=8,
        words in prop::collection::vec(any::<u64>(), 16 * 8),
    ) {
        let primes = largest_primes(50, 16, limbs);
        let ring = Arc::new(Ring::new(16, &primes).unwrap());
        let q: BigUint = primes.iter().map(|&q| BigUint::from(q)).product();
        let integers: Vec<_> = words.chunks(8).map(|words| big(words) % &q).collect();
        let remainder = |q: u64, x: &BigUint| (x % q).iter_u64_digits().next().unwrap_or(0);
        let poly: Vec<u64> =
            primes.iter().flat_map(|&q| integers.iter().map(move |x| remainder(q, x))).collect();
        let mut b = Builder::new("compose");
        let a = b.coefficients("a", &ring);
        let composed = b.compose("integers", a);
        b.output(composed);
        let mut out = vec![0; ring.len_words()];
        let mut operands = [Operand::SecretIn(&poly), Operand::Out(&mut out)];
        ReferenceEngine.run(&b.build(), &mut operands).unwrap();
        let integer = |i: usize| big(&out[i..].iter().step_by(16).copied().collect::<Vec<_>>());
        let found: Vec<_> = (0..16).map(integer).collect();
        prop_assert_eq!(found, integers);
    }
}
