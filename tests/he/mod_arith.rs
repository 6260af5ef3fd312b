//! Batched modular products and powers against another library's big integers.

use std::sync::Arc;

use ciphergram_accel::{
    CpuEngine, Engine, Exponents, Modulus, Public, ReferenceEngine, Residues, Secret,
};
use ciphergram_he::ModArith;
use num_bigint::BigUint;

use crate::support::paillier::{items, random_below, rng, words};

#[test]
fn modular_products_and_powers() {
    for engine in [Arc::new(CpuEngine::new()) as Arc<dyn Engine>, Arc::new(ReferenceEngine)] {
        for bits in [64u32, 65, 1000, 2048] {
            let mut rng = rng(u64::from(bits));
            let mut m = random_below(&(BigUint::from(1u8) << bits), &mut rng);
            m.set_bit(0, true);
            m.set_bit(u64::from(bits) - 1, true);
            let modulus = Arc::new(Modulus::new("m", &m.to_u64_digits()).unwrap());
            let k = modulus.len_words();
            let arith = ModArith::new(&modulus, engine.clone());
            for count in [0, 1, 9] {
                let mut draw = || (0..count).map(|_| random_below(&m, &mut rng)).collect();
                let (a, b): (Vec<BigUint>, Vec<BigUint>) = (draw(), draw());
                let batch = |x: &[BigUint]| {
                    let words = x.iter().flat_map(|x| words(x, k)).collect();
                    Residues::try_from_words(modulus.clone(), words).unwrap()
                };
                let found = arith.mod_mul(&batch(&a), &batch(&b)).unwrap();
                let expected: Vec<_> = a.iter().zip(&b).map(|(a, b)| a * b % &m).collect();
                assert_eq!(items(found.words(), k), expected);
                let e: Vec<BigUint> = b.iter().map(|b| b % (BigUint::from(1u8) << 70u32)).collect();
                let words: Vec<_> = e.iter().flat_map(|e| words(e, 2)).collect();
                let expected: Vec<_> = a.iter().zip(&e).map(|(a, e)| a.modpow(e, &m)).collect();
                let public = Exponents::<Public>::new(70, words.clone());
                let found = arith.mod_exp(&batch(&a), &public).unwrap();
                assert_eq!(items(found.words(), k), expected);
                let secret = Exponents::<Secret>::new(70, words);
                let found = arith.mod_exp(&batch(&a), &secret).unwrap();
                assert_eq!(items(found.words(), k), expected);
            }
        }
    }
}
