//! The oracle itself, against an independent bignum.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Engine, Exponents, Modulus, Operand, Public, ReferenceEngine, Residues,
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
}
