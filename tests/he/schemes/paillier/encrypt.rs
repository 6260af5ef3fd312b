//! Encryptions with the public key and by the key's owner, and what plaintexts decode to.

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
};

use ciphergram_accel::{CpuEngine, Engine, ReferenceEngine, Secret};
use ciphergram_he::paillier::{Ciphertexts, Encryptor, Evaluator, Matrix, Plaintexts, Scalars};
use ciphergram_tests::cases;
use num_bigint::BigUint;
use proptest::prelude::*;
use zeroize::Zeroizing;

use crate::support::paillier::{Key, items};

/// Whether each ciphertext is `(1 + m·n)` times a power of `n`-th order roots, all different.
fn assert_masked(key: &Key, engine: &dyn Engine, plain: &[BigUint], c: Ciphertexts) {
    let each = 2 * key.words();
    let decrypted = key.secret.decrypt(engine, &c).unwrap();
    assert_eq!(items(decrypted.words(), key.words()), plain);
    assert_eq!((c.power(), c.count()), (0, plain.len()));
    let c = items(&c.into_words(engine).unwrap(), each);
    let one = BigUint::from(1u8);
    let phi = (&key.p - 1u8) * (&key.q - 1u8);
    let mut masks = HashSet::new();
    for (c, m) in c.iter().zip(plain) {
        assert_eq!(&key.decrypt(c), m);
        let mask = c * key.encrypt(m, &one).modinv(&key.n2).unwrap() % &key.n2;
        // The n-th powers of units are the units whose order divides φ(n).
        assert_eq!(mask.modpow(&phi, &key.n2), one);
        assert!(mask != one && masks.insert(mask), "every mask is a new one");
    }
}

fn plaintexts(key: &Key, count: usize) -> (Vec<BigUint>, Plaintexts) {
    let edges = [BigUint::ZERO, &key.n - 1u8, BigUint::from(1u8), &key.n >> 1];
    let plain: Vec<_> = (0..count).map(|i| edges[i % 4].clone()).collect();
    let words = Zeroizing::new(key.plain_words(&plain));
    let batch = Plaintexts::try_from_words(key.modulus(), words).unwrap();
    (plain, batch)
}

#[test]
fn every_encryptor_masks_anew() {
    let cpu = CpuEngine::new();
    let all: [(Key, &dyn Engine, &[usize]); 5] = [
        (Key::of_bits(1024), &cpu, &[0, 1, 7, 8, 9, 17, 40]),
        (Key::of_another_form(), &cpu, &[0, 1, 9]),
        (Key::of_bits(2048), &cpu, &[9]),
        (Key::of_bits(3072), &cpu, &[3]),
        (Key::of_bits(1024), &ReferenceEngine, &[0, 1, 3]),
    ];
    for (key, engine, counts) in all {
        let owner = Encryptor::for_owner(&key.secret, engine).unwrap();
        let public = Encryptor::new(key.modulus(), engine).unwrap();
        for mut encryptor in [owner, public] {
            for &count in counts {
                let (plain, batch) = plaintexts(&key, count);
                let c = encryptor.encrypt(engine, &batch).unwrap();
                assert_masked(&key, engine, &plain, c);
            }
        }
    }
}

/// Masks modulo p² and q² vary independently, and are no powers of each other's.
#[test]
fn owner_masks_are_spread() {
    let (key, engine) = (Key::of_bits(1024), CpuEngine::new());
    let mut encryptor = Encryptor::for_owner(&key.secret, &engine).unwrap();
    let zeros = Plaintexts::from_u64(key.modulus(), &[0; 64]);
    let c = encryptor.encrypt(&engine, &zeros).unwrap().into_words(&engine).unwrap();
    let masks = items(&c, 2 * key.words());
    for prime in [&key.p, &key.q] {
        let residues: HashSet<_> = masks.iter().map(|c| c % prime).collect();
        assert_eq!(residues.len(), 64);
        // Uniform numbers below the prime: their highest bits are not all alike.
        let high = residues.iter().filter(|&x| x > &(prime >> 1)).count();
        assert!((8..=56).contains(&high), "{high} of 64 in the upper half");
    }
}

/// One base for all encryptors of a key object and its clones, so that an engine keeps one table.
#[test]
fn encryptors_of_a_key_share_their_base() {
    let (key, engine) = (Key::of_bits(1024), CpuEngine::new());
    let owner = || Encryptor::for_owner(&key.secret, &engine).unwrap();
    assert!(std::ptr::eq(owner().program(), owner().program()));
    let clone = key.modulus().clone();
    let public = |modulus| Encryptor::new(modulus, &engine).unwrap();
    let (a, b) = (public(key.modulus()), public(&clone));
    assert!(std::ptr::eq(a.program(), b.program()));
    let other = Key::of_bits(1024);
    assert!(!std::ptr::eq(a.program(), public(other.modulus()).program()));
}

#[test]
fn plaintexts_decode_to_what_they_were() {
    let key = Key::of_bits(1024);
    let values = [0, 1, -1, i64::MAX, i64::MIN, i64::MIN + 1, 77, -1 << 32];
    let batch = Plaintexts::from_i64(key.modulus(), &values);
    assert_eq!(batch.to_i64().unwrap()[..], values);
    let expected: Vec<_> = values.iter().map(|&m| key.residue(m)).collect();
    assert_eq!(items(batch.words(), key.words()), expected);
    let unsigned = Plaintexts::from_u64(key.modulus(), &[0, 5, i64::MAX as u64]);
    assert_eq!(unsigned.to_i64().unwrap()[..], [0, 5, i64::MAX]);
    let half: BigUint = BigUint::from(1u8) << 63u32;
    for (m, fits) in [
        (half.clone(), false),
        (&half - 1u8, true),
        (&key.n - &half, true),
        (&key.n - &half - 1u8, false),
        (&key.n >> 1, false),
        ((&key.n >> 1) + 1u8, false),
        (BigUint::from(1u8) << 64u32, false),
    ] {
        let words = key.plain_words(&[BigUint::ZERO, m.clone()]);
        let batch = Plaintexts::try_from_words(key.modulus(), Zeroizing::new(words)).unwrap();
        let error = batch.to_i64().err().map(|e| e.to_string());
        let expected = (!fits).then(|| "plaintexts: words: item 1 does not fit 64 bits".into());
        assert_eq!(error, expected, "{m}");
    }
}

struct Place {
    key: Key,
    engine: Arc<dyn Engine>,
    evaluator: Evaluator,
}

fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| {
        let engine: Arc<dyn Engine> = Arc::new(CpuEngine::new());
        let key = Key::of_bits(1024);
        let evaluator = Evaluator::new(key.modulus(), engine.clone());
        Place { key, engine, evaluator }
    })
}

impl Place {
    fn encrypt(&self, values: &[i64], owner: bool) -> Ciphertexts {
        let mut encryptor = if owner {
            Encryptor::for_owner(&self.key.secret, &*self.engine).unwrap()
        } else {
            Encryptor::new(self.key.modulus(), &*self.engine).unwrap()
        };
        let plain = Plaintexts::from_i64(self.key.modulus(), values);
        encryptor.encrypt(&*self.engine, &plain).unwrap()
    }

    fn decrypt(&self, c: Result<Ciphertexts, ciphergram_he::Error>) -> Vec<i64> {
        self.key.secret.decrypt(&*self.engine, &c.unwrap()).unwrap().to_i64().unwrap().to_vec()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    /// Decryption of an operation on encryptions is the operation on plaintexts.
    #[test]
    fn operations_are_homomorphic(
        pairs in prop::collection::vec((-1i64 << 36..1 << 36, -1i64 << 20..1 << 20), 0..12),
        rows in 0usize..5,
        owner in any::<bool>(),
    ) {
        let (place, e) = (place(), &place().evaluator);
        let (a, b): (Vec<i64>, Vec<i64>) = pairs.iter().copied().unzip();
        let (x, y) = (place.encrypt(&a, owner), place.encrypt(&b, !owner));
        let each = |f: fn(i64, i64) -> i64| -> Vec<i64> {
            pairs.iter().map(|&(a, b)| f(a, b)).collect()
        };
        prop_assert_eq!(place.decrypt(e.add(&x, &y)), each(|a, b| a + b));
        let plain = Plaintexts::from_i64(place.key.modulus(), &b);
        prop_assert_eq!(place.decrypt(e.add_plain(&x, &plain)), each(|a, b| a + b));
        let public = e.mul_plain_public(&x, &Scalars::from_i64(&b));
        prop_assert_eq!(place.decrypt(public), each(|a, b| a * b));
        let secret = e.mul_plain(&x, &Scalars::<Secret>::from_i64(&b));
        prop_assert_eq!(place.decrypt(secret), each(|a, b| a * b));
        prop_assert_eq!(place.decrypt(e.sum(&x)), vec![a.iter().sum::<i64>()]);
        let m: Vec<i64> = (0..rows as i64).flat_map(|j| b.iter().map(move |b| b ^ j)).collect();
        let y = e.matvec(&x, &Matrix::secret(rows, a.len(), &m, 24).unwrap());
        let expected: Vec<i64> =
            (0..rows as i64).map(|j| pairs.iter().map(|&(a, b)| a * (b ^ j)).sum()).collect();
        prop_assert_eq!(place.decrypt(y), expected);
    }
}
