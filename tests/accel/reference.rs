//! The oracle itself, against an independent bignum.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Engine, Exponents, Modulus, Operand, Program, Public, ReferenceEngine, Residues, Ring,
    ring::largest_primes,
};
use ciphergram_tests::cases;
use num_bigint::{BigInt, BigUint};
use proptest::prelude::*;

fn big(words: &[u64]) -> BigUint {
    words.iter().rev().fold(BigUint::ZERO, |acc, &w| (acc << 64) + BigUint::from(w))
}

/// Returns the oracle's result for one secret operand.
fn output(program: &Program, input: &[u64], words: usize) -> Vec<u64> {
    let mut out = vec![0; words];
    let mut operands = [Operand::SecretIn(input), Operand::Out(&mut out)];
    ReferenceEngine.run(program, &mut operands).unwrap();
    out
}

/// The largest primes but for some, so that two rings may share some and not others.
fn ring(skip: usize, limbs: usize) -> Arc<Ring> {
    Arc::new(Ring::new(16, &largest_primes(50, 16, skip + limbs)[skip..]).unwrap())
}

/// The residues of integers of any sign.
fn residues(ring: &Ring, integers: &[BigInt]) -> Vec<u64> {
    let residue = |x: &BigInt, q: u64| u64::try_from(((x % q) + q) % q).unwrap();
    ring.primes().iter().flat_map(|&q| integers.iter().map(move |x| residue(x, q))).collect()
}

fn product(ring: &Ring) -> BigInt {
    ring.primes().iter().map(|&q| BigInt::from(q)).product()
}

/// Integers from −half to half: both ends, those next to zero, and others.
fn centred(half: &BigInt, words: &[u64]) -> Vec<BigInt> {
    let any = words.chunks(8).map(|words| BigInt::from(big(words)) % (half * 2 + 1) - half);
    let mut integers: Vec<_> = any.collect();
    for (at, bound) in [half.clone(), BigInt::from(1), BigInt::ZERO].into_iter().enumerate() {
        integers[2 * at] = -&bound;
        integers[2 * at + 1] = bound;
    }
    integers
}

/// `b(x) = a(x^g)` at all odd powers of ψ, at as many points as there are coefficients.
#[test]
fn automorphisms_are_substitutions() {
    let ring = ring(0, 2);
    let a: Vec<u64> = (1..=32).map(|i| i * i * 0x0123_4567_89ab % 997).collect();
    for g in (1..32).step_by(2) {
        let mut b = Builder::new("automorphism");
        let x = b.coefficients("x", &ring);
        let turned = b.automorphism("turned", x, g);
        b.output(turned);
        let turned = output(&b.build(), &a, 32);
        let mut b = Builder::new("automorphism of values");
        let x = b.coefficients("x", &ring);
        let values = b.ntt("values", x);
        let turned_values = b.automorphism("turned", values, g);
        let back = b.intt("back", turned_values);
        b.output(back);
        assert_eq!(output(&b.build(), &a, 32), turned, "in NTT form");
        for (limb, (&q, &root)) in ring.primes().iter().zip(ring.roots()).enumerate() {
            let at = |poly: &[u64], x: &BigUint| {
                let residues = poly[16 * limb..][..16].iter().rev();
                residues.fold(BigUint::ZERO, |sum, &c| (sum * x + c) % q)
            };
            for e in (1u32..32).step_by(2) {
                let x = BigUint::from(root).modpow(&e.into(), &q.into());
                assert_eq!(at(&turned, &x), at(&a, &x.modpow(&g.into(), &q.into())));
            }
        }
    }
}

/// All numbers of a ring so small that this can be, to other primes.
#[test]
fn all_numbers_of_a_small_ring() {
    let primes = [97, 193];
    let [from, to] =
        [&primes[..], &primes[..1]].map(|primes| Arc::new(Ring::new(16, primes).unwrap()));
    let mut b = Builder::new("base_extend");
    let a = b.coefficients("a", &from);
    let extended = b.base_extend("extended", a, &to);
    b.output(extended);
    let extend = b.build();
    for first in (-9360i64..=9360).step_by(16) {
        let numbers: Vec<_> = (first..first + 16).map(|x| x.min(9360)).collect();
        let of = |q: i64| numbers.iter().map(move |x| x.rem_euclid(q) as u64);
        let a: Vec<_> = of(97).chain(of(193)).collect();
        assert_eq!(output(&extend, &a, 16), of(97).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

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
        let out = output(&b.build(), &poly, ring.len_words());
        let integer = |i: usize| big(&out[i..].iter().step_by(16).copied().collect::<Vec<_>>());
        let found: Vec<_> = (0..16).map(integer).collect();
        prop_assert_eq!(found, integers);
    }

    /// Centred integers have remainders modulo other primes.
    #[test]
    fn centred_integers_keep_what_they_are(
        limbs in 1usize..=8,
        skip in 0usize..=8,
        to in 1usize..=8,
        words in prop::collection::vec(any::<u64>(), 16 * 8),
    ) {
        let (from, to) = (ring(0, limbs), ring(skip, to));
        let integers = centred(&(product(&from) / 2), &words);
        let mut b = Builder::new("base_extend");
        let a = b.coefficients("a", &from);
        let extended = b.base_extend("extended", a, &to);
        b.output(extended);
        let found = output(&b.build(), &residues(&from, &integers), to.len_words());
        prop_assert_eq!(found, residues(&to, &integers));
    }

}

/// Arguments that no step has.
mod refusals {
    use super::*;

    fn automorphism(element: u32) {
        let mut b = Builder::new("automorphism");
        let a = b.coefficients("a", &ring(0, 1));
        let _ = b.automorphism("turned", a, element);
    }

    #[test]
    #[should_panic(expected = "a Galois element is odd and below 32")]
    fn even_elements() {
        automorphism(2);
    }

    #[test]
    #[should_panic(expected = "a Galois element is odd and below 32")]
    fn elements_out_of_range() {
        automorphism(33);
    }

    #[test]
    #[should_panic(expected = "rings of one degree")]
    fn rings_of_other_degrees() {
        let mut b = Builder::new("base_extend");
        let a = b.coefficients("a", &ring(0, 1));
        let larger = Arc::new(Ring::new(32, &largest_primes(50, 32, 1)).unwrap());
        let _ = b.base_extend("extended", a, &larger);
    }
}
