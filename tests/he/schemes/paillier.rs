//! Paillier against python-paillier's vectors and against an independent bignum.

mod encrypt;
mod evaluator;
mod operands;

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ciphergram_accel::{CpuEngine, Engine, Operand, ReferenceEngine, Secret};
use ciphergram_he::{
    AnyKey, PublicKey, SecretKey,
    error::CiphertextFault,
    paillier::{
        Ciphertexts, Encryptor, Evaluator, PaillierModulus, PaillierSecret, Plaintexts, Scalars,
    },
    params::{Literal, Scheme},
};
use num_bigint::BigUint;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::support::paillier::{big, hex, vectors, words};

/// As python-paillier writes integers.
fn encode(x: &BigUint) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(x.to_bytes_be())
}

#[test]
fn agrees_with_python_paillier() {
    let cpu: Arc<dyn Engine> = Arc::new(CpuEngine::new());
    let reference: Arc<dyn Engine> = Arc::new(ReferenceEngine);
    for (bits, engine) in [(2048, &cpu), (3072, &cpu), (2048, &reference)] {
        let file = vectors(bits);
        let k = bits as usize / 64;
        let (p, q) = (hex(&file["p"]).to_u64_digits(), hex(&file["q"]).to_u64_digits());
        let key = PaillierSecret::new(&p, &q, bits, true).unwrap();
        let modulus = key.modulus();
        assert_eq!(big(modulus.n().words()), hex(&file["n"]));
        let encrypt = modulus.full_mask_program();
        let evaluator = Evaluator::new(modulus, engine.clone());
        let batch = |c: Vec<u64>| Ciphertexts::try_from_words(modulus, c).unwrap();
        let decrypt = |c: &Ciphertexts| key.decrypt(&**engine, c).unwrap().words().to_vec();
        let cases = file["cases"].as_array().unwrap();
        assert!(cases.len() >= 4);
        let cases = if engine.name() == "reference" { &cases[..2] } else { &cases[..] };
        for case in cases {
            for (m, r, c) in [("m1", "r1", "c1"), ("m2", "r2", "c2")] {
                let (plain, mask) = (words(&hex(&case[m]), k), words(&hex(&case[r]), 2 * k));
                let mut out = vec![0; 2 * k];
                let mut operands =
                    [Operand::SecretIn(&plain), Operand::SecretIn(&mask), Operand::Out(&mut out)];
                engine.run(&encrypt, &mut operands).unwrap();
                assert_eq!(big(&out), hex(&case[c]), "{c} at {bits} bits on {}", engine.name());
                assert_eq!(decrypt(&batch(out)), plain);
            }
            let of = |name: &str| batch(words(&hex(&case[name]), 2 * k));
            let sum = evaluator.add(&of("c1"), &of("c2")).unwrap();
            assert_eq!(big(&decrypt(&sum)), hex(&case["sum_decrypted"]));
            assert_eq!(big(&sum.into_words(&**engine).unwrap()), hex(&case["sum"]));
            let scalar = Zeroizing::new(words(&hex(&case["k"]), k));
            let scalar = Scalars::<Secret>::try_from_words(modulus, scalar, None).unwrap();
            let product = evaluator.mul_plain(&of("c1"), &scalar).unwrap();
            assert_eq!(big(&decrypt(&product)), hex(&case["mul_plain_decrypted"]));
            assert_eq!(big(&product.into_words(&**engine).unwrap()), hex(&case["mul_plain"]));
        }
    }
}

/// Fresh keys and short masks, judged by the textbook formula in another library.
#[test]
fn fresh_keys_decrypt_by_the_textbook() {
    let engine = CpuEngine::new();
    let literal = Literal { scheme: Scheme::Paillier2048, clients: 4, bits: 16 };
    let key = SecretKey::generate(literal).unwrap();
    let secret = key.paillier().unwrap();
    let modulus = secret.modulus();
    let n = big(modulus.n().words());
    assert_eq!(n.bits(), 2048);
    let plain: Vec<BigUint> =
        vec![BigUint::ZERO, BigUint::from(1u8), &n - 1u8, &n >> 1, BigUint::from(0xdead_beefu32)];
    let batch: Vec<u64> = plain.iter().flat_map(|m| words(m, 32)).collect();
    let plaintexts = Plaintexts::try_from_words(modulus, Zeroizing::new(batch.clone())).unwrap();
    let mut encryptor = Encryptor::new(modulus, &engine).unwrap();
    let first = encryptor.encrypt(&engine, &plaintexts).unwrap();
    assert_eq!(secret.decrypt(&engine, &first).unwrap().words(), batch);
    let first = first.into_words(&engine).unwrap();
    let second = encryptor.encrypt(&engine, &plaintexts).unwrap().into_words(&engine).unwrap();

    // p and q are not public API; the file has them, as it does for python-paillier.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.json");
    key.save(&path).unwrap();
    let file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let decode = |name: &str| {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(file[name].as_str().unwrap()).unwrap();
        BigUint::from_bytes_be(&bytes)
    };
    let (p, q) = (decode("p"), decode("q"));
    assert_eq!(&p * &q, n);
    let one = BigUint::from(1u8);
    let (p1, q1) = (&p - &one, &q - &one);
    assert!(&p % 4u8 == BigUint::from(3u8) && &q % 4u8 == BigUint::from(3u8));
    let mut gcd = (p1.clone(), q1.clone());
    while gcd.1 != BigUint::ZERO {
        gcd = (gcd.1.clone(), &gcd.0 % &gcd.1);
    }
    assert_eq!(gcd.0, BigUint::from(2u8));
    // λ = φ/2 serves since gcd(p − 1, q − 1) = 2; L(c^λ) · L((1+n)^λ)⁻¹ with L(x) = (x − 1)/n.
    let lambda = &p1 * &q1 / 2u8;
    let n2 = &n * &n;
    let l = |x: BigUint| (x - &one) / &n;
    let mu = lambda.modinv(&n).unwrap();
    for ((c, other), m) in first.chunks(64).zip(second.chunks(64)).zip(&plain) {
        assert_ne!(c, other, "every ciphertext has a fresh mask");
        let c = big(c);
        assert_eq!(&(l(c.modpow(&lambda, &n2)) * &mu % &n), m);
    }
}

#[test]
fn keys_of_python_paillier_get_full_masks() {
    let file = vectors(2048);
    let (p, q, n) = (hex(&file["p"]), hex(&file["q"]), hex(&file["n"]));
    let public = serde_json::json!({
        "kty": "DAJ", "alg": "PAI-GN1", "key_ops": ["encrypt"], "n": encode(&n), "kid": "theirs",
    });
    let secret = serde_json::json!({
        "kty": "DAJ", "key_ops": ["decrypt"], "p": encode(&p), "q": encode(&q), "pub": public,
        "kid": "theirs",
    });
    let AnyKey::Secret(key, _) = AnyKey::from_json(&secret.to_string()).unwrap() else {
        panic!("a secret key")
    };
    let modulus = key.paillier().unwrap().modulus();
    assert!(!modulus.is_djn());
    let engine = CpuEngine::new();
    let mut encryptor = Encryptor::new(modulus, &engine).unwrap();
    let c = encryptor.encrypt(&engine, &Plaintexts::from_u64(modulus, &[42])).unwrap();
    assert_eq!(key.paillier().unwrap().decrypt(&engine, &c).unwrap().to_i64().unwrap()[..], [42]);

    // Parameters of one's own choice do not make the form of the modulus any better.
    let mut ours = secret.clone();
    ours["pub"]["ciphergram"] = serde_json::json!({
        "version": 1, "scheme": "paillier-2048", "clients": 8, "bits": 12,
        "key_id": key.public().id().to_string(),
    });
    let AnyKey::Secret(ours, _) = AnyKey::from_json(&ours.to_string()).unwrap() else {
        panic!("a secret key")
    };
    assert_eq!(ours.public().parameters().clients(), 8);
    assert!(!ours.paillier().unwrap().modulus().is_djn());

    let mut wrong = secret.clone();
    wrong["q"] = encode(&p).into();
    assert!(AnyKey::from_json(&wrong.to_string()).is_err());
    wrong["q"] = encode(&(&q + 2u8)).into();
    assert!(AnyKey::from_json(&wrong.to_string()).is_err());
}

#[test]
fn unsafe_moduli_are_refused() {
    let file = vectors(2048);
    let (p, n) = (hex(&file["p"]), hex(&file["n"]));
    let new = |x: &BigUint| {
        PaillierModulus::new(&x.to_u64_digits(), 2048, true).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(new(&(&n + 1u8)), "the Paillier modulus is even");
    assert_eq!(new(&(&n >> 1)), "the Paillier modulus has 2047 bits, not 2048");
    let square = &p * &p;
    assert_eq!(new(&square), "the Paillier modulus is a prime or a power of a prime");
    // A prime: its totient is no secret.
    let mut prime = BigUint::from(1u8) << 2047u32;
    prime += 1u8;
    let passes = |x: &BigUint| BigUint::from(3u8).modpow(&(x - 1u8), x) == BigUint::from(1u8);
    let small = |x: &BigUint| (3..2000u32).step_by(2).any(|d| x % d == BigUint::ZERO);
    while small(&prime) || !passes(&prime) {
        prime += 2u8;
    }
    assert_eq!(new(&prime), "the Paillier modulus is a prime or a power of a prime");
    let mut smooth = &n - (&n % 65_521u32);
    while &smooth % 2u8 == BigUint::ZERO || (3..65_521u32).any(|d| &smooth % d == BigUint::ZERO) {
        smooth -= 65_521u32;
    }
    assert_eq!(new(&smooth), "the Paillier modulus has the small factor 65521");
    let words = p.to_u64_digits();
    let same = PaillierSecret::new(&words, &words, 2048, true).err();
    let same = same.map(|fault| fault.to_string());
    assert_eq!(same.as_deref(), Some("the Paillier modulus is not coprime to its totient"));
}

#[test]
fn ciphertexts_out_of_range_or_not_coprime_are_found() {
    let file = vectors(2048);
    let public = serde_json::json!({
        "kty": "DAJ", "key_ops": ["encrypt"], "kid": "", "n": encode(&hex(&file["n"])),
    });
    let AnyKey::Public(key) = AnyKey::from_json(&public.to_string()).unwrap() else {
        panic!("a public key")
    };
    let key: &PublicKey = &key;
    let c = hex(&file["cases"][0]["c1"]);
    let (n, p) = (hex(&file["n"]), hex(&file["p"]));
    let fault = |bad: BigUint, index: usize| {
        let engine: Arc<dyn Engine> = Arc::new(CpuEngine::new());
        let values = 5000;
        let mut accumulator = ciphergram_he::Accumulator::new(key, engine, values);
        let units = accumulator.chunks().total_bytes() / 512;
        let mut stream = vec![];
        for i in 0..units {
            let x = if i == index { &bad } else { &c };
            stream.extend(words(x, 64).iter().flat_map(|w| w.to_le_bytes()));
        }
        accumulator.add_stream(&stream).err().map(|e| e.to_string())
    };
    let text = |fault: CiphertextFault, chunk: u32| Some(format!("chunk {chunk}: {fault}"));
    assert_eq!(fault(c.clone(), 0), None);
    assert_eq!(
        fault(BigUint::ZERO, 3),
        text(CiphertextFault::Item { item: "ciphertext", index: 1, why: "is 0" }, 1)
    );
    assert_eq!(
        fault(&n * &n, 20),
        text(CiphertextFault::Item { item: "ciphertext", index: 0, why: "is not below n²" }, 10)
    );
    assert_eq!(fault(&p * 7u8, 21), text(CiphertextFault::not_coprime(1), 10));
    assert_eq!(fault(n, 0), text(CiphertextFault::not_coprime(0), 0));
}
