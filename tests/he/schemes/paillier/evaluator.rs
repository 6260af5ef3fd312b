//! Every operation on ciphertexts against the textbook, in another library's big integers.

use std::sync::Arc;

use ciphergram_accel::{CpuEngine, Engine, Public, ReferenceEngine, Secret};
use ciphergram_he::paillier::{Ciphertexts, Evaluator, Matrix, Plaintexts, Scalars};
use num_bigint::BigUint;
use rand_core::Rng;
use zeroize::Zeroizing;

use crate::support::paillier::{Key, items, random_below, rng};

const EDGES: [i64; 10] = [0, 1, -1, 2, -2, i64::MAX, i64::MIN, i64::MIN + 1, 1 << 40, -3_000_000];

/// An engine, a key and its evaluator, and the counts that are worth their time.
struct Place {
    engine: Arc<dyn Engine>,
    key: Key,
    evaluator: Evaluator,
    counts: &'static [usize],
}

fn places() -> Vec<Place> {
    let cpu: Arc<dyn Engine> = Arc::new(CpuEngine::new());
    let reference: Arc<dyn Engine> = Arc::new(ReferenceEngine);
    let of = |engine: &Arc<dyn Engine>, bits, counts| {
        let key = Key::of_bits(bits);
        let evaluator = Evaluator::new(key.modulus(), engine.clone());
        Place { engine: engine.clone(), key, evaluator, counts }
    };
    vec![
        of(&cpu, 1024, &[0, 1, 7, 8, 9, 17]),
        of(&cpu, 2048, &[9]),
        of(&cpu, 3072, &[3]),
        of(&reference, 1024, &[0, 1, 9]),
    ]
}

impl Place {
    fn assert(&self, what: &str, found: Ciphertexts, expected: &[BigUint]) {
        let found = found.into_words(&*self.engine).unwrap();
        let found = items(&found, 2 * self.key.words());
        let (name, bits) = (self.engine.name(), self.key.bits);
        assert_eq!(found, expected, "{what} of {} at {bits} bits on {name}", expected.len());
    }
}

/// Calls `test` for every place and count with two random batches.
fn everywhere(mut test: impl FnMut(&Place, &[BigUint], &[BigUint])) {
    for place in places() {
        for &count in place.counts {
            let mut rng = rng(count as u64);
            let a = place.key.random_ciphertexts(count, &mut rng);
            let b = place.key.random_ciphertexts(count, &mut rng);
            test(&place, &a, &b);
        }
    }
}

#[test]
fn sums_of_pairs() {
    everywhere(|place, a, b| {
        let (key, e) = (&place.key, &place.evaluator);
        let expected: Vec<_> = a.iter().zip(b).map(|(a, b)| a * b % &key.n2).collect();
        let (x, y) = (key.batch(a), key.batch(b));
        let sum = e.add(&x, &y).unwrap();
        assert_eq!((sum.power(), sum.count()), (-1, a.len()));
        place.assert("add", sum, &expected);
        let mut sum = x;
        e.add_assign(&mut sum, &y).unwrap();
        assert_eq!(sum.power(), -1);
        place.assert("add_assign", sum, &expected);
    });
}

#[test]
fn sums_with_plaintexts() {
    everywhere(|place, a, _| {
        let (key, e) = (&place.key, &place.evaluator);
        let one = BigUint::from(1u8);
        let full = [BigUint::ZERO, one.clone(), &key.n - 1u8, &key.n >> 1];
        let check = |m: &[BigUint], plain: &Plaintexts| {
            let expected: Vec<_> =
                a.iter().zip(m).map(|(c, m)| c * (&one + m * &key.n) % &key.n2).collect();
            place.assert("add_plain", e.add_plain(&key.batch(a), plain).unwrap(), &expected);
        };
        let m: Vec<_> = (0..a.len()).map(|i| full[i % full.len()].clone()).collect();
        let plain = Zeroizing::new(key.plain_words(&m));
        check(&m, &Plaintexts::try_from_words(key.modulus(), plain).unwrap());
        let small: Vec<_> = (0..a.len()).map(|i| EDGES[i % EDGES.len()]).collect();
        let m: Vec<_> = small.iter().map(|&m| key.residue(m)).collect();
        check(&m, &Plaintexts::from_i64(key.modulus(), &small));
    });
}

#[test]
fn products_with_small_scalars() {
    everywhere(|place, a, _| {
        let (key, e, c) = (&place.key, &place.evaluator, place.key.batch(a));
        for shift in [0, 1, 5] {
            let s: Vec<_> = (0..a.len()).map(|i| EDGES[(i + shift) % EDGES.len()]).collect();
            let expected: Vec<_> = a.iter().zip(&s).map(|(c, &s)| key.power(c, s)).collect();
            let public = e.mul_plain_public(&c, &Scalars::<Public>::from_i64(&s)).unwrap();
            place.assert("mul_plain_public", public, &expected);
            let secret = e.mul_plain(&c, &Scalars::<Secret>::from_i64(&s)).unwrap();
            place.assert("mul_plain", secret, &expected);
            let s: Vec<_> = s.iter().map(|&s| s as u64).collect();
            let power = |(c, &s): (&BigUint, &u64)| c.modpow(&BigUint::from(s), &key.n2);
            let expected: Vec<_> = a.iter().zip(&s).map(power).collect();
            let public = e.mul_plain_public(&c, &Scalars::<Public>::from_u64(&s)).unwrap();
            place.assert("mul_plain_public", public, &expected);
            let secret = e.mul_plain(&c, &Scalars::<Secret>::from_u64(&s)).unwrap();
            place.assert("mul_plain", secret, &expected);
        }
    });
}

#[test]
fn products_with_full_scalars() {
    everywhere(|place, a, _| {
        let (key, e, c) = (&place.key, &place.evaluator, place.key.batch(a));
        let mut rng = rng(3);
        let mut s: Vec<_> = a.iter().map(|_| random_below(&key.n, &mut rng)).collect();
        let edges = [BigUint::ZERO, &key.n - 1u8, BigUint::from(1u8)];
        s.iter_mut().zip(edges).for_each(|(s, edge)| *s = edge);
        let signs: Vec<_> = (0..a.len()).map(|i| i % 3 != 0).collect();
        let power = |(c, s): (&BigUint, &BigUint)| c.modpow(s, &key.n2);
        let unsigned: Vec<_> = a.iter().zip(&s).map(power).collect();
        let inverse = |(x, &negative): (&BigUint, &bool)| {
            if negative { x.modinv(&key.n2).unwrap() } else { x.clone() }
        };
        let signed: Vec<_> = unsigned.iter().zip(&signs).map(inverse).collect();
        let words = || Zeroizing::new(key.plain_words(&s));
        for (signs, expected) in [(None, unsigned), (Some(&signs[..]), signed)] {
            let public = Scalars::<Public>::try_from_words(key.modulus(), words(), signs).unwrap();
            let found = e.mul_plain_public(&c, &public).unwrap();
            place.assert("mul_plain_public", found, &expected);
            let secret = Scalars::<Secret>::try_from_words(key.modulus(), words(), signs).unwrap();
            place.assert("mul_plain", e.mul_plain(&c, &secret).unwrap(), &expected);
        }
    });
}

/// Scalars of all lengths in one batch, which are sorted by it, around what one word holds.
#[test]
fn products_with_public_scalars_of_mixed_lengths() {
    everywhere(|place, a, _| {
        let (key, e) = (&place.key, &place.evaluator);
        let lengths = [64usize, 1, 130, 0, 3, 65, 2, 9, 1000];
        let s: Vec<_> = (0..a.len())
            .map(|i| match lengths[i % lengths.len()] {
                0 => BigUint::ZERO,
                bits => (BigUint::from(5u8) << bits >> 3u8) | BigUint::from(1u8),
            })
            .collect();
        let signs: Vec<_> = (0..a.len()).map(|i| i % 4 == 1).collect();
        let expected: Vec<_> = a
            .iter()
            .zip(s.iter().zip(&signs))
            .map(|(c, (s, &negative))| {
                let power = c.modpow(s, &key.n2);
                if negative { power.modinv(&key.n2).unwrap() } else { power }
            })
            .collect();
        let words = Zeroizing::new(key.plain_words(&s));
        let s = Scalars::<Public>::try_from_words(key.modulus(), words, Some(&signs)).unwrap();
        // Pairs with a power of the radix, too.
        let (c, one) = (key.batch(a), key.batch(&vec![BigUint::from(1u8); a.len()]));
        for c in [e.add(&c, &one).unwrap(), c] {
            place.assert("mul_plain_public", e.mul_plain_public(&c, &s).unwrap(), &expected);
        }
    });
}

/// 0, 1 and −1 take no power.
#[test]
fn products_with_signs_and_masks() {
    everywhere(|place, a, b| {
        let (key, e) = (&place.key, &place.evaluator);
        let sums: Vec<_> = a.iter().zip(b).map(|(a, b)| a * b % &key.n2).collect();
        let c = e.add(&key.batch(a), &key.batch(b)).unwrap();
        let masks: [&dyn Fn(usize) -> i64; 4] =
            [&|_| 1, &|i| i as i64 % 2, &|i| i as i64 % 3 - 1, &|_| -1];
        for mask in masks {
            let s: Vec<_> = (0..a.len()).map(mask).collect();
            let expected: Vec<_> = sums.iter().zip(&s).map(|(c, &s)| key.power(c, s)).collect();
            let product = e.mul_plain_public(&c, &Scalars::from_i64(&s)).unwrap();
            place.assert("mul_plain_public", product, &expected);
        }
    });
}

/// More ciphertexts than one tree of inverses holds.
#[test]
fn many_negative_scalars() {
    let place = &places()[0];
    let key = &place.key;
    let c = key.random_ciphertexts(1030, &mut rng(8));
    let expected: Vec<_> = c.iter().map(|c| key.power(c, -1)).collect();
    let s = Scalars::<Public>::from_i64(&[-1; 1030]);
    let found = place.evaluator.mul_plain_public(&key.batch(&c), &s).unwrap();
    place.assert("mul_plain_public", found, &expected);
}

#[test]
fn sums_of_batches() {
    everywhere(|place, a, _| {
        let (key, e) = (&place.key, &place.evaluator);
        let product =
            |items: &[BigUint]| items.iter().fold(BigUint::from(1u8), |acc, c| acc * c % &key.n2);
        place.assert("sum", e.sum(&key.batch(a)).unwrap(), &[product(a)]);
    });
    // Around what one node of the tree takes, twice over; and powers of the radix that differ.
    let place = &places()[0];
    let (key, e) = (&place.key, &place.evaluator);
    let c = key.random_ciphertexts(273, &mut rng(1));
    for count in [15, 16, 17, 31, 33, 255, 256, 257, 272, 273] {
        let product = c[..count].iter().fold(BigUint::from(1u8), |acc, c| acc * c % &key.n2);
        let batch = key.batch(&c[..count]);
        place.assert("sum", e.sum(&batch).unwrap(), std::slice::from_ref(&product));
        let twice = e.sum(&e.add(&batch, &batch).unwrap()).unwrap();
        assert_eq!(twice.power(), 1 - 2 * count as i32);
        place.assert("sum", twice, &[&product * &product % &key.n2]);
    }
}

#[test]
fn sums_of_segments() {
    everywhere(|place, a, b| {
        let (key, e) = (&place.key, &place.evaluator);
        let sums: Vec<_> = a.iter().zip(b).map(|(a, b)| a * b % &key.n2).collect();
        let c = e.add(&key.batch(a), &key.batch(b)).unwrap();
        let mut rng = rng(4);
        for (count, terms) in [(1, a.len()), (3, 2 * a.len()), (5, 40), (7, 3)] {
            // Also segments that are empty, and one that takes nearly all.
            let terms = if a.is_empty() { 0 } else { terms };
            let mut below = |bound: usize| (rng.next_u64() % bound as u64) as usize;
            let items: Vec<_> = (0..terms).map(|_| below(a.len())).collect();
            let segments: Vec<_> = (0..terms).map(|_| below(2 * count).min(count - 1)).collect();
            let mut expected = vec![BigUint::from(1u8); count];
            for (&item, &segment) in items.iter().zip(&segments) {
                expected[segment] = &expected[segment] * &sums[item] % &key.n2;
            }
            let found = e.segment_sum(&c, (&items, &segments), count).unwrap();
            place.assert("segment_sum", found, &expected);
            // Of one size they need no correction.
            let pairs: Vec<_> = (0..items.len() / 2 * 2).map(|i| i / 2).collect();
            let found =
                e.segment_sum(&c, (&items[..pairs.len()], &pairs), pairs.len() / 2).unwrap();
            let product = |p: &[usize]| &sums[p[0]] * &sums[p[1]] % &key.n2;
            let expected: Vec<_> = items.chunks_exact(2).map(product).collect();
            assert!(expected.is_empty() || found.power() == -3);
            place.assert("segment_sum", found, &expected);
        }
    });
}

#[test]
fn items_are_taken_and_put_together() {
    let place = &places()[0];
    let (key, e) = (&place.key, &place.evaluator);
    let a = key.random_ciphertexts(5, &mut rng(6));
    let (c, one) = (key.batch(&a), key.batch(&vec![BigUint::from(1u8); 5]));
    let pairs = e.add(&c, &one).unwrap();
    let taken = [4, 0, 0, 2];
    let expected = taken.map(|i| a[i].clone());
    place.assert("take", pairs.take(&taken).unwrap(), &expected);
    place.assert("take", c.take(&[]).unwrap(), &[]);
    let twice = [&a[..], &a[..]].concat();
    for (x, y) in [(&c, &pairs), (&pairs, &c), (&c, &c), (&pairs, &pairs)] {
        let found = Ciphertexts::concatenate(&*place.engine, x, &[y]).unwrap();
        place.assert("concatenate", found, &twice);
    }
}

/// Fixed-point numbers in and out, their sums and products, and integers of any length.
#[test]
fn numbers_have_a_scale() {
    let place = &places()[1];
    let (key, e) = (&place.key, &place.evaluator);
    let (modulus, engine) = (key.modulus(), &*place.engine);
    let encrypt = |scalars: &Scalars<Secret>| {
        let plain = Plaintexts::try_from_scalars(modulus, scalars).unwrap();
        let c: Vec<_> = items(plain.words(), key.words())
            .iter()
            .map(|m| key.encrypt(m, &BigUint::from(1u8)))
            .collect();
        key.batch(&c).at_scale(plain.scale())
    };
    let x = [0.5, -1.25, 1e9, -0.0, 2f64.powi(-41)];
    let c = encrypt(&Scalars::from_f64(modulus, &x, 40).unwrap());
    let open = |c: &Ciphertexts| key.secret.decrypt(engine, c).unwrap().to_f64().unwrap().to_vec();
    assert_eq!((c.scale(), open(&c)), (40, vec![0.5, -1.25, 1e9, 0.0, 0.0]));
    let y = [3.0, -0.125, 0.0, -7.5, 1024.0];
    let factors = Scalars::<Public>::from_f64(modulus, &y, 20).unwrap();
    let product = e.mul_plain_public(&c, &factors).unwrap();
    assert_eq!((product.scale(), open(&product)), (60, vec![1.5, 0.15625, 0.0, 0.0, 0.0]));
    let secret = e.mul_plain(&c, &Scalars::<Secret>::from_f64(modulus, &y, 20).unwrap()).unwrap();
    assert_eq!((secret.scale(), open(&secret)), (60, open(&product)));
    let m = Matrix::public_from_f64(2, 5, &[y, [1.0; 5]].concat(), 10).unwrap();
    let product = e.matvec(&c, &m).unwrap();
    assert_eq!((product.scale(), open(&product)), (50, vec![1.65625, 1e9 - 0.75]));
    let halves = Scalars::from_f64(modulus, &[0.5; 5], 40).unwrap();
    let sum = e.add_plain(&c, &Plaintexts::try_from_scalars(modulus, &halves).unwrap()).unwrap();
    assert_eq!((sum.scale(), e.add(&sum, &c).unwrap().scale()), (40, 40));
    assert_eq!(open(&e.add(&sum, &c).unwrap()), [1.5, -2.0, 2e9 + 0.5, 0.5, 0.5]);
    let total = e.sum(&c).unwrap();
    assert_eq!((total.scale(), open(&total)), (40, vec![1e9 - 0.75]));
    assert_eq!(c.take(&[1]).unwrap().scale(), 40);

    // Integers of one word and of three, the least of each among them, and their negatives.
    let signed = |words: &[u64], each| {
        let scalars = Scalars::from_twos_complement(modulus, words, each).unwrap();
        let open = |s: &Scalars<Secret>| {
            let plain = Plaintexts::try_from_scalars(modulus, s).unwrap();
            plain.to_twos_complement().unwrap().to_vec()
        };
        (open(&scalars), open(&scalars.negated()))
    };
    let pad = |words: &[u64], fill: u64| {
        let mut words = words.to_vec();
        words.resize(key.words(), fill);
        words
    };
    let (min, ones) = (1 << 63, u64::MAX);
    for (words, filled, negated) in [
        (vec![7], pad(&[7], 0), pad(&[7u64.wrapping_neg()], ones)),
        (vec![min], pad(&[min], ones), pad(&[min], 0)),
        (vec![0], pad(&[], 0), pad(&[], 0)),
        (vec![0, 0, 0], pad(&[], 0), pad(&[], 0)),
        (vec![0, 0, min], pad(&[0, 0, min], ones), pad(&[0, 0, min], 0)),
        (vec![5, 0, ones], pad(&[5, 0, ones], ones), pad(&[ones - 4, ones, 0], 0)),
    ] {
        assert_eq!(signed(&words, words.len()), (filled, negated), "{words:x?}");
    }
}

/// `Π_i c_i^(m_ji)` of every row.
fn textbook_matvec(key: &Key, c: &[BigUint], rows: usize, m: &[i64]) -> Vec<BigUint> {
    let row = |j: usize| &m[j * c.len()..(j + 1) * c.len()];
    let term = |acc: BigUint, (c, &m): (&BigUint, &i64)| acc * key.power(c, m) % &key.n2;
    (0..rows).map(|j| c.iter().zip(row(j)).fold(BigUint::from(1u8), term)).collect()
}

#[test]
fn matrices_of_many_shapes() {
    for place in places() {
        let (key, e) = (&place.key, &place.evaluator);
        let mut rng = rng(5);
        let shapes: &[_] = match (place.engine.name(), key.bits) {
            ("cpu", 1024) => {
                &[(1, 1), (3, 5), (9, 17), (0, 4), (3, 0), (0, 0), (2, 64), (2, 65), (1, 130)]
            }
            ("reference", _) => &[(1, 1), (3, 5), (0, 4)],
            _ => &[(3, 5)],
        };
        for &(rows, columns) in shapes {
            let c = key.random_ciphertexts(columns, &mut rng);
            // A vector that must be corrected first.
            let half = key.random_ciphertexts(columns, &mut rng);
            let rest: Vec<_> = c
                .iter()
                .zip(&half)
                .map(|(c, h)| c * h.modinv(&key.n2).unwrap() % &key.n2)
                .collect();
            let vector = e.add(&key.batch(&half), &key.batch(&rest)).unwrap();
            for bits in [64, 8, 1] {
                let draw = |_| (rng.next_u64() as i64) >> (64 - bits);
                let mut m: Vec<i64> = (0..rows * columns).map(draw).collect();
                if let Some(first) = m.first_mut() {
                    *first = i64::MIN >> (64 - bits);
                }
                let what = format!("matvec {rows}×{columns} of {bits} bits");
                let expected = textbook_matvec(key, &c, rows, &m);
                let secret = Matrix::secret(rows, columns, &m, bits).unwrap();
                place.assert(&what, e.matvec(&vector, &secret).unwrap(), &expected);
                let public = Matrix::public(rows, columns, &m).unwrap();
                assert!(public.bits() <= bits);
                place.assert(&what, e.matvec(&vector, &public).unwrap(), &expected);
                m.iter_mut().for_each(|m| *m = m.checked_abs().unwrap_or(0));
                let expected = textbook_matvec(key, &c, rows, &m);
                let unsigned = Matrix::public(rows, columns, &m).unwrap();
                place.assert(&what, e.matvec(&vector, &unsigned).unwrap(), &expected);
            }
        }
    }
}

/// Long chains of mixed operations: the power of the radix is what the operations make it, and what
/// comes out is right.
#[test]
fn chains_are_corrected_at_the_end() {
    let place = &places()[0];
    let (key, e) = (&place.key, &place.evaluator);
    let mut rng = rng(9);
    let mut a = key.random_ciphertexts(9, &mut rng);
    let b = key.random_ciphertexts(9, &mut rng);
    let (mut x, y) = (key.batch(&a), key.batch(&b));
    let plain = Plaintexts::from_i64(key.modulus(), &EDGES[..9]);
    let mut power = 0;
    for step in 0..200 {
        match rng.next_u64() % 5 {
            0 => {
                x = e.add(&x, &y).unwrap();
                a.iter_mut().zip(&b).for_each(|(a, b)| *a = &*a * b % &key.n2);
                power -= 1;
            }
            1 if power > -1_000_000 => {
                x = e.add(&x, &x).unwrap();
                a.iter_mut().for_each(|a| *a = &*a * &*a % &key.n2);
                power = 2 * power - 1;
            }
            2 => {
                x = e.add_plain(&x, &plain).unwrap();
                let m = EDGES.map(|m| key.encrypt(&key.residue(m), &BigUint::from(1u8)));
                a.iter_mut().zip(&m).for_each(|(a, m)| *a = &*a * m % &key.n2);
                power -= 1;
            }
            3 if step % 4 == 0 => {
                x = e.mul_plain(&x, &Scalars::from_i64(&EDGES[..9])).unwrap();
                a.iter_mut().zip(EDGES).for_each(|(a, s)| *a = key.power(a, s));
                power = 0;
            }
            _ => {
                e.add_assign(&mut x, &y).unwrap();
                a.iter_mut().zip(&b).for_each(|(a, b)| *a = &*a * b % &key.n2);
                power -= 1;
            }
        }
        assert_eq!(x.power(), power);
    }
    let decrypted = key.secret.decrypt(&*place.engine, &x).unwrap();
    let expected: Vec<_> = a.iter().map(|c| key.decrypt(c)).collect();
    assert_eq!(items(decrypted.words(), key.words()), expected);
    let mut corrected = x.clone();
    e.correct(&mut corrected).unwrap();
    assert_eq!(corrected.power(), 0);
    place.assert("a corrected chain", corrected, &a);
    place.assert("a chain", x, &a);
}

/// A power that no longer fits its type is corrected on the way.
#[test]
fn powers_of_the_radix_do_not_overflow() {
    let place = &places()[0];
    let (key, e) = (&place.key, &place.evaluator);
    let mut c = key.random_ciphertexts(2, &mut rng(2));
    let (mut x, mut y) = (key.batch(&c), key.batch(&c));
    let mut lowest = 0;
    for _ in 0..70 {
        x = e.add(&x, &x).unwrap();
        let same = y.clone();
        e.add_assign(&mut y, &same).unwrap();
        c.iter_mut().for_each(|c| *c = &*c * &*c % &key.n2);
        assert_eq!(x.power(), y.power());
        lowest = lowest.min(x.power());
        if lowest == -i32::MAX {
            let sum = e.sum(&x).unwrap();
            place.assert("sum", sum, &[&c[0] * &c[1] % &key.n2]);
            let plain = Plaintexts::from_u64(key.modulus(), &[0, 0]);
            let more = e.add_plain(&e.add_plain(&x, &plain).unwrap(), &plain).unwrap();
            place.assert("add_plain", more, &c);
        }
    }
    assert_eq!(lowest, -i32::MAX);
    place.assert("add", x, &c);
    place.assert("add_assign", y, &c);
}

#[test]
fn every_program_has_a_name_of_its_own() {
    let place = &places()[0];
    let programs = place.evaluator.programs();
    let names: std::collections::BTreeSet<_> = programs.iter().map(|p| p.name()).collect();
    assert_eq!(names.len(), programs.len(), "{names:?}");
    let matrix = Matrix::secret(2, 7, &[0; 14], 8).unwrap();
    let text = place.evaluator.matvec_program(&matrix).to_string();
    assert!(text.contains("dot_secret") && text.contains("7 × exponents of 8 bits"), "{text}");
}
