//! Operands that do not fit: one clear error each, that says what and where.

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine, Public, Secret};
use ciphergram_he::{
    Error,
    paillier::{Ciphertexts, Encryptor, Evaluator, Matrix, Plaintexts, Scalars},
};
use num_bigint::BigUint;
use zeroize::Zeroizing;

use crate::support::paillier::{self, Key, rng};

fn engine() -> Arc<dyn Engine> {
    Arc::new(CpuEngine::new())
}

fn text<T>(result: Result<T, Error>) -> String {
    result.err().unwrap().to_string()
}

#[test]
fn counts_and_moduli_must_agree() {
    let (key, other) = (Key::of_bits(1024), Key::of_another_form());
    let e = Evaluator::new(key.modulus(), engine());
    let mut rng = rng(1);
    let mut batch = |key: &Key, count| key.batch(&key.random_ciphertexts(count, &mut rng));
    let (mut three, four, theirs) = (batch(&key, 3), batch(&key, 4), batch(&other, 3));
    assert_eq!(text(e.add(&three, &four)), "add: b: 4 items where 3 belong");
    assert_eq!(text(e.add(&three, &theirs)), "add: b: it is of another modulus");
    assert_eq!(text(e.add(&theirs, &three)), "add: a: it is of another modulus");
    assert_eq!(text(e.add_assign(&mut three, &four)), "add_assign: b: 4 items where 3 belong");
    assert_eq!(three.power(), 0);
    assert_eq!(text(e.sum(&theirs)), "sum: c: it is of another modulus");
    assert_eq!(text(e.correct(&mut theirs.clone())), "correct: c: it is of another modulus");
    let m = Plaintexts::from_u64(key.modulus(), &[1; 4]);
    assert_eq!(text(e.add_plain(&three, &m)), "add_plain: m: 4 items where 3 belong");
    let m = Plaintexts::from_u64(other.modulus(), &[1; 3]);
    assert_eq!(text(e.add_plain(&three, &m)), "add_plain: m: it is of another modulus");
    let s = Scalars::<Secret>::from_u64(&[1; 2]);
    assert_eq!(text(e.mul_plain(&three, &s)), "mul_plain: scalars: 2 items where 3 belong");
    let s = Scalars::<Public>::from_u64(&[]);
    let error = text(e.mul_plain_public(&three, &s));
    assert_eq!(error, "mul_plain_public: scalars: 0 items where 3 belong");
    let large = Key::of_bits(2048);
    let full = Zeroizing::new(vec![1; 3 * large.words()]);
    let s = Scalars::<Public>::try_from_words(large.modulus(), full, None).unwrap();
    let error = text(e.mul_plain_public(&three, &s));
    assert_eq!(error, "mul_plain_public: scalars: it is of another modulus");
    let matrix = Matrix::public(2, 4, &[1; 8]).unwrap();
    assert_eq!(text(e.matvec(&three, &matrix)), "matvec: vector: 3 items where 4 belong");

    let secret = &key.secret;
    let error = text(secret.decrypt(&*engine(), &theirs));
    assert_eq!(error, "decrypt: ciphertexts: it is of another modulus");
    let mut encryptor = Encryptor::for_owner(secret, &*engine()).unwrap();
    let error = text(encryptor.encrypt(&*engine(), &m));
    assert_eq!(error, "encrypt: plaintexts: it is of another modulus");
    // A key that was read twice is one key.
    let again = Key::of_bits(1024);
    let theirs = again.batch(&again.random_ciphertexts(3, &mut paillier::rng(2)));
    assert!(e.add(&three, &theirs).is_ok() && secret.decrypt(&*engine(), &theirs).is_ok());
}

#[test]
fn items_out_of_range_are_named() {
    let key = Key::of_bits(1024);
    let (modulus, k) = (key.modulus(), key.words());
    let c = |items: &[&BigUint]| {
        let words = items.iter().flat_map(|c| paillier::words(c, 2 * k)).collect();
        text(Ciphertexts::try_from_words(modulus, words))
    };
    let one = BigUint::from(1u8);
    assert_eq!(c(&[&one, &BigUint::ZERO]), "ciphertexts: words: ciphertext 1 is 0");
    assert_eq!(c(&[&one, &one, &key.n2]), "ciphertexts: words: ciphertext 2 is not below n²");
    let error = text(Ciphertexts::try_from_words(modulus, vec![1; 33]));
    assert_eq!(error, "ciphertexts: words: 33 words are no whole number of items of 32");

    let items = || Zeroizing::new(key.plain_words(&[&key.n - 1u8, key.n.clone()]));
    let error = text(Plaintexts::try_from_words(modulus, items()));
    assert_eq!(error, "plaintexts: words: item 1 is not below n");
    let error = text(Plaintexts::try_from_words(modulus, Zeroizing::new(vec![0; 17])));
    assert_eq!(error, "plaintexts: words: 17 words are no whole number of items of 16");
    let error = text(Scalars::<Secret>::try_from_words(modulus, items(), None));
    assert_eq!(error, "scalars: magnitudes: item 1 is not below n");
    let two = Zeroizing::new(vec![0; 2 * k]);
    let error = text(Scalars::<Public>::try_from_words(modulus, two, Some(&[true])));
    assert_eq!(error, "scalars: signs: 1 items where 2 belong");
    let error = text(Matrix::public(2, 3, &[0; 5]));
    assert_eq!(error, "matrix: entries: 5 items where 6 belong");
    assert!(Matrix::public(usize::MAX, 3, &[0; 5]).is_err());
    for (entry, bits) in [(128, 8), (-129, 8), (1, 1), (i64::MAX, 63), (i64::MIN, 63)] {
        let error = text(Matrix::secret(1, 2, &[0, entry], bits));
        assert_eq!(error, format!("matrix: entries: item 1 does not fit {bits} bits"));
    }
    assert!(Matrix::secret(1, 3, &[i64::MIN, i64::MAX, 0], 64).is_ok());
}

#[test]
fn scales_indices_and_numbers_out_of_bounds_are_named() {
    let key = Key::of_bits(1024);
    let (modulus, k) = (key.modulus(), key.words());
    let e = Evaluator::new(modulus, engine());
    let c = key.batch(&key.random_ciphertexts(3, &mut rng(4)));
    let fine = c.clone().at_scale(8);
    let belongs = "its scale is 8 where 0 belongs";
    assert_eq!(text(e.add(&c, &fine)), format!("add: b: {belongs}"));
    assert_eq!(text(e.add_assign(&mut c.clone(), &fine)), format!("add_assign: b: {belongs}"));
    let concatenated = Ciphertexts::concatenate(&*engine(), &c, &[&c, &fine]);
    assert_eq!(text(concatenated), format!("concatenate: rest: {belongs}"));
    let m = Scalars::from_f64(modulus, &[1.0; 3], 8).unwrap();
    let m = Plaintexts::try_from_scalars(modulus, &m).unwrap();
    assert_eq!(text(e.add_plain(&c, &m)), format!("add_plain: m: {belongs}"));
    let other = Key::of_another_form();
    let theirs = other.batch(&other.random_ciphertexts(1, &mut rng(5)));
    let error = text(Ciphertexts::concatenate(&*engine(), &c, &[&theirs]));
    assert_eq!(error, "concatenate: rest: it is of another modulus");

    assert_eq!(text(c.take(&[2, 3])), "take: indices: there is no item 3 among 3");
    let segments = |items: &[usize], segments: &[usize], count| {
        text(e.segment_sum(&c, (items, segments), count))
    };
    assert_eq!(segments(&[0, 3], &[0, 0], 1), "segment_sum: items: there is no item 3 among 3");
    assert_eq!(segments(&[0], &[1], 1), "segment_sum: segments: there is no item 1 among 1");
    assert_eq!(segments(&[0], &[], 1), "segment_sum: segments: 0 items where 1 belong");

    let floats = |values: &[f64], scale| text(Scalars::<Public>::from_f64(modulus, values, scale));
    assert_eq!(floats(&[0.0, f64::NAN], 8), "scalars: values: item 1 is not finite");
    assert_eq!(floats(&[1e300], 50), "scalars: values: item 0 does not fit 1024 bits");
    assert_eq!(floats(&[f64::MAX], 0), "scalars: values: item 0 is not below n");
    assert_eq!(floats(&[], 1001), "scalars: values: a scale of 1001 binary digits is beyond 1000");
    let matrix = |entry| text(Matrix::public_from_f64(1, 2, &[-(2f64.powi(43)), entry], 20));
    assert_eq!(matrix(2f64.powi(43)), "matrix: values: item 1 does not fit 64 bits");
    assert_eq!(matrix(f64::INFINITY), "matrix: values: item 1 is not finite");

    let integers =
        |words: &[u64], each| text(Scalars::<Public>::from_twos_complement(modulus, words, each));
    let mut long = vec![0; 2 * (k + 1)];
    long[k] = 1;
    assert_eq!(integers(&long, k + 1), "scalars: values: item 0 is not below n");
    assert_eq!(integers(&long, 5), "scalars: words: 34 words are no whole number of items of 5");
    let third = &key.n / 3u8;
    let plain = |m: &BigUint| {
        let words = Zeroizing::new(key.plain_words(std::slice::from_ref(m)));
        let scalars = Scalars::try_from_words(modulus, words.clone(), None).unwrap();
        let opened = Plaintexts::try_from_words(modulus, words).unwrap().to_twos_complement();
        (Plaintexts::try_from_scalars(modulus, &scalars).is_ok(), opened.map(|_| ()))
    };
    let (made, opened) = plain(&third);
    let beyond =
        "plaintexts: words: item 0 is beyond a third of n, the largest integer that there can be";
    assert_eq!((made, text(opened)), (false, beyond.into()));
    assert!(matches!(plain(&(&third - 1u8)), (true, Ok(()))));
    let (made, opened) = plain(&(&key.n - &third));
    assert!(!made && opened.is_err());
    let (made, opened) = plain(&(&key.n - &third + 1u8));
    assert!(!made && opened.is_ok());
}

#[test]
fn ciphertexts_without_an_inverse_are_named() {
    let key = Key::of_bits(1024);
    let e = Evaluator::new(key.modulus(), engine());
    let mut items = key.random_ciphertexts(1100, &mut rng(3));
    items[1050] = &key.p * 5u8;
    let c = key.batch(&items);
    let mut signs = vec![1; 1100];
    // Under a scalar that is not negative, anything goes.
    signs[7] = -1;
    assert!(e.mul_plain_public(&c, &Scalars::from_i64(&signs)).is_ok());
    signs[1050] = -1;
    let error = text(e.mul_plain_public(&c, &Scalars::from_i64(&signs)));
    assert_eq!(error, "mul_plain_public: c: ciphertext 1050 is not coprime to n");
    let few = key.batch(&items[1040..1060]);
    let error = text(e.mul_plain(&few, &Scalars::from_i64(&[1; 20])));
    assert_eq!(error, "mul_plain: c: ciphertext 10 is not coprime to n");
    assert!(e.mul_plain(&few, &Scalars::from_u64(&[1; 20])).is_ok());
    let error = text(e.matvec(&few, &Matrix::secret(1, 20, &[1; 20], 3).unwrap()));
    assert_eq!(error, "matvec: vector: ciphertext 10 is not coprime to n");
    assert!(e.matvec(&few, &Matrix::public(1, 20, &[1; 20]).unwrap()).is_ok());
}
