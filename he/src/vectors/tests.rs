//! Jobs against plain arithmetic.

use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

use ciphergram_accel::CpuEngine;
use rand_core::Rng as _;

use super::*;
use crate::{
    Dtype, Error, KeyFile, LevelledKey, Tensor, TensorSpec, Update,
    ckks::{CkksError, EvaluationKeys, Evaluator, LevelledSecret, Parameters, Preset, Rotation},
    random::generator,
};

static ENGINE: LazyLock<CpuEngine> = LazyLock::new(CpuEngine::new);

fn key(preset: Preset) -> LevelledKey {
    let parameters = Arc::new(Parameters::preset(preset));
    LevelledKey::Secret(Box::new(LevelledSecret::generate(&parameters, &*ENGINE).unwrap()))
}

fn secret(key: &LevelledKey) -> &LevelledSecret {
    key.secret().unwrap()
}

fn numbers(count: usize, range: f64) -> Vec<f64> {
    let mut random = generator().unwrap();
    let number = |_| (f64::from(random.next_u32()) / 2f64.powi(31) - 1.0) * range;
    (0..count).map(number).collect()
}

fn tensor(name: &str, shape: &[u64], values: &[f64]) -> Tensor {
    let spec = TensorSpec { name: name.into(), dtype: Dtype::F64, shape: shape.into() };
    Tensor::from_bytes(spec, values.iter().flat_map(|x| x.to_le_bytes()).collect())
}

/// Two tensors whose values are cut in the middle of one.
fn update(values: &[f64]) -> Update {
    let (a, b) = values.split_at(values.len() / 3);
    Update::new(vec![tensor("b", &[b.len() as u64], b), tensor("a", &[1, a.len() as u64], a)])
}

fn flat(update: &Update) -> Vec<f64> {
    update.tensors().iter().flat_map(|tensor| tensor.values().unwrap()).collect()
}

fn furthest(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn recipe(range: f64) -> Recipe {
    Recipe { range: Some(range), layout: Layout::Rows }
}

fn source(name: &str, bytes: &[u8]) -> (Source, Vector) {
    let (vector, digest) = Vector::from_bytes(bytes, &*ENGINE).unwrap();
    (Source { name: name.into(), digest }, vector)
}

#[test]
fn files_return_what_was_encrypted_by_either_half() {
    let key = key(Preset::Slots4096Levels1);
    let public = LevelledKey::Public(secret(&key).public().clone());
    let values = numbers(10_000, 0.25);
    let update = update(&values);
    for (half, each) in [(&key, 22.54), (&public, 45.04)] {
        let vector = Vector::encrypt(half, &update, &recipe(0.25), &*ENGINE).unwrap();
        assert_eq!(vector.ciphertexts().len(), 3);
        let bytes = vector.to_bytes().unwrap();
        assert!(bytes.len() as f64 / (3.0 * 4096.0) < each);
        let (_, vector) = source("u", &bytes);
        assert_eq!(vector.to_bytes().unwrap(), bytes);
        let opened = vector.decrypt(secret(&key), &*ENGINE).unwrap();
        assert_eq!(opened.specs(), update.specs());
        assert!(furthest(&flat(&opened), &flat(&update)) < 1e-6);
    }
}

#[test]
fn keys_return_from_their_files() {
    let key = key(Preset::Slots4096Levels1);
    let folder = tempfile::tempdir().unwrap();
    let [public, own] = ["public.json", "secret.json"].map(|name| folder.path().join(name));
    secret(&key).public().save(&public).unwrap();
    secret(&key).save(&own).unwrap();
    let load = |path: &Path| match KeyFile::load(path).unwrap() {
        KeyFile::Levelled(key, _) => key,
        KeyFile::Sums(_) => panic!("{} is of sums", path.display()),
    };
    let (loaded, half) = (load(&own), load(&public));
    assert_eq!(loaded.public().id(), key.public().id());
    assert_eq!(half.public().id(), key.public().id());
    assert!(half.secret().is_err());
    let values = numbers(5, 1.0);
    let vector = Vector::encrypt(&half, &update(&values), &recipe(1.0), &*ENGINE).unwrap();
    assert!(furthest(&flat(&vector.decrypt(secret(&loaded), &*ENGINE).unwrap()), &values) < 1e-6);
    // Keys of sums are none of these, and these are none of sums.
    let text = std::fs::read_to_string(&public).unwrap();
    assert!(matches!(crate::AnyKey::from_json(&text), Err(Error::KeyKind { .. })));
    let sums = folder.path().join("sums.json");
    let literal = crate::params::Literal { scheme: crate::Scheme::CkksSum, clients: 2, bits: 8 };
    crate::SecretKey::generate(literal).unwrap().save(&sums).unwrap();
    assert!(matches!(KeyFile::load(&sums), Ok(KeyFile::Sums(_))));
    // A digit of b that is not what it was makes another key.
    let at = text.find("\"b\": \"").unwrap() + 40;
    let mut damaged = text.clone();
    damaged.replace_range(at..at + 1, if &text[at..at + 1] == "A" { "B" } else { "A" });
    assert!(KeyFile::from_json(&damaged).is_err());
    // Nor is there padding, which python-paillier writes.
    let end = at + text[at..].find('"').unwrap();
    let padded = format!("{}={}", &text[..end], &text[end..]);
    assert!(KeyFile::from_json(&padded).is_err());
}

#[test]
fn sums_are_weighted_and_refuse_what_does_not_belong() {
    let key = key(Preset::Slots4096Levels1);
    let evaluator = Evaluator::new(EvaluationKeys::none(key.public()), &*ENGINE);
    let all: Vec<_> = (0..3).map(|_| numbers(5000, 0.5)).collect();
    let files: Vec<_> = all
        .iter()
        .map(|values| Vector::encrypt(&key, &update(values), &recipe(0.5), &*ENGINE).unwrap())
        .map(|vector| vector.to_bytes().unwrap())
        .collect();
    let given = || files.iter().enumerate().map(|(i, bytes)| Ok(source(&format!("u{i}"), bytes)));
    let sorted = |values: &[f64]| flat(&update(values));
    let mean = aggregate(&evaluator, None, given()).unwrap();
    assert_eq!(mean.sources().len(), 3);
    let expected: Vec<f64> =
        (0..5000).map(|i| all.iter().map(|u| u[i]).sum::<f64>() / 3.0).collect();
    let (_, mean) = source("mean", &mean.to_bytes().unwrap());
    let found = flat(&mean.decrypt(secret(&key), &*ENGINE).unwrap());
    assert!(furthest(&found, &sorted(&expected)) < 1e-6);

    // Weights travel encrypted, and come from scores alone.
    let found = Scores::of(&[1.0, 2.0, 4.0], given().map(|file| file.unwrap().0));
    let limits = Limits { max_norm: Some(1.0), min_cosine: None };
    let weights = found.encrypt_weights(&key, &found.shares(limits).unwrap(), &*ENGINE).unwrap();
    let (_, weights) = source("weights", &weights.to_bytes().unwrap());
    let summed = aggregate(&evaluator, Some(&weights), given());
    assert!(matches!(summed, Err(Error::Ckks(CkksError::NoRelinearisation))), "no key");
    let keys = secret(&key).evaluation_keys(&[], &*ENGINE).unwrap();
    let evaluator = Evaluator::new(keys, &*ENGINE);
    let sum = aggregate(&evaluator, Some(&weights), given()).unwrap();
    assert_eq!(sum.sources().len(), 3);
    let shares = [1.0, 0.5, 0.25];
    let expected: Vec<f64> = (0..5000)
        .map(|i| all.iter().zip(shares).map(|(update, share)| update[i] * share).sum::<f64>() / 3.0)
        .collect();
    let (_, sum) = source("sum", &sum.to_bytes().unwrap());
    let found = flat(&sum.decrypt(secret(&key), &*ENGINE).unwrap());
    assert!(furthest(&found, &sorted(&expected)) < 1e-5);

    let why = |e: Error| e.to_string();
    let twice = aggregate(&evaluator, None, given().chain(given()));
    assert!(why(twice.err().unwrap()).contains("same contribution was given twice"));
    let missing = aggregate(&evaluator, Some(&weights), given().take(2));
    assert!(why(missing.err().unwrap()).contains("the weights name \"u2\""));
    let others = Vector::encrypt(&key, &update(&all[0]), &recipe(0.5), &*ENGINE).unwrap();
    let others = source("u3", &others.to_bytes().unwrap());
    let unknown = aggregate(&evaluator, Some(&weights), given().chain([Ok(others)]));
    assert!(why(unknown.err().unwrap()).contains("do not name this file"));
    let none = aggregate(&evaluator, Some(&mean), given());
    assert!(why(none.err().unwrap()).contains("these are no weights"));
    let coarse = Vector::encrypt(&key, &update(&all[0]), &recipe(64.0), &*ENGINE).unwrap();
    let coarse = source("coarse", &coarse.to_bytes().unwrap());
    let mixed = aggregate(&evaluator, None, given().chain([Ok(coarse)]));
    assert!(why(mixed.err().unwrap()).starts_with("coarse: it is in other units"));
    let other = Vector::encrypt(
        &self::key(Preset::Slots4096Levels1),
        &update(&all[0]),
        &recipe(0.5),
        &*ENGINE,
    );
    let other = source("other", &other.unwrap().to_bytes().unwrap());
    let mixed = aggregate(&evaluator, None, given().chain([Ok(other)]));
    assert!(why(mixed.err().unwrap()).contains("under key"));
}

#[test]
fn values_beyond_the_range_are_refused_by_tensor_and_index() {
    let key = key(Preset::Slots4096Levels1);
    let mut values = vec![0.0; 12];
    values[7] = 1.5;
    let found = Vector::encrypt(&key, &update(&values), &recipe(1.0), &*ENGINE);
    let Err(Error::Ckks(CkksError::BeyondRange { tensor, index, .. })) = found else {
        panic!("refused")
    };
    assert_eq!((&tensor[..], index), ("b", 3));
    values[7] = f64::NAN;
    let found = Vector::encrypt(&key, &update(&values), &recipe(1.0), &*ENGINE);
    assert!(matches!(found, Err(Error::NotFinite { index: 3, .. })));
    for range in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        assert!(Vector::encrypt(&key, &update(&[0.0; 4]), &recipe(range), &*ENGINE).is_err());
    }
    assert!(Vector::encrypt(&key, &Update::new(vec![]), &recipe(1.0), &*ENGINE).is_err());
    let columns = Recipe { layout: Layout::Columns, ..recipe(1.0) };
    assert!(Vector::encrypt(&key, &update(&[0.0; 4]), &columns, &*ENGINE).is_err());
}

#[test]
fn screening_finds_norms_and_directions() {
    let key = key(Preset::Slots4096Levels1);
    let powers: Vec<i64> = (0..12).map(|bit| 1 << bit).collect();
    let keys = secret(&key).evaluation_keys(&powers, &*ENGINE).unwrap();
    let bytes = keys.to_bytes().unwrap();
    let keys = EvaluationKeys::from_bytes(&bytes, &*ENGINE).unwrap();
    let evaluator = Evaluator::new(keys, &*ENGINE);
    let reference = numbers(70_000, 0.01);
    let toward = |factor: f64, noise: f64| -> Vec<f64> {
        reference.iter().zip(numbers(70_000, noise)).map(|(r, n)| r * factor + n).collect()
    };
    let all = [toward(1.0, 0.02), toward(30.0, 0.02), toward(-1.0, 0.01), vec![0.0; 70_000]];
    let encrypt = |values: &[f64]| {
        let vector = Vector::encrypt(&key, &update(values), &recipe(1.0), &*ENGINE).unwrap();
        vector.to_bytes().unwrap()
    };
    let (_, against) = source("ref", &encrypt(&reference));
    let files: Vec<_> = all.iter().map(|values| encrypt(values)).collect();
    let given = || files.iter().enumerate().map(|(i, bytes)| Ok(source(&format!("u{i}"), bytes)));
    let found = screen(&evaluator, Some(&against), given()).unwrap();
    let (_, found) = source("scores", &found.to_bytes().unwrap());
    let scores = Scores::decrypt(&found, secret(&key), &*ENGINE).unwrap();
    let norm = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
    let dot = |a: &[f64]| a.iter().zip(&reference).map(|(a, b)| a * b).sum::<f64>();
    for ((name, score), values) in scores.each().zip(&all) {
        println!("{name}: {score:?}, expected {}", norm(values));
        let off = (score.norm.powi(2) - norm(values).powi(2)).abs();
        assert!(off < 1e-3 * (1.0 + norm(values).powi(2)), "{off}");
        let cosine = dot(values) / (norm(values) * norm(&reference)).max(1e-9);
        assert!(
            norm(values) < 1e-3 || (score.cosine.unwrap() - cosine).abs() < 0.02,
            "{name}: {cosine}"
        );
    }
    let limits = Limits { max_norm: Some(2.0 * norm(&all[0])), min_cosine: Some(0.1) };
    let shares = scores.shares(limits).unwrap();
    let clipped = 2.0 * norm(&all[0]) / norm(&all[1]);
    assert_eq!((shares[0], shares[2]), (1.0, 0.0));
    assert!((shares[1] - clipped).abs() < 1e-3, "{shares:?}, {clipped}");
    let none = Limits { max_norm: Some(-1.0), min_cosine: None };
    assert!(scores.shares(none).is_err());
    let plain = screen(&evaluator, None, given().take(1)).unwrap();
    let plain = Scores::decrypt(&plain, secret(&key), &*ENGINE).unwrap();
    assert!(plain.shares(Limits { max_norm: None, min_cosine: Some(0.0) }).is_err());
    // Nothing else is decrypted: neither an update, nor more numbers than updates, nor what has levels left.
    assert!(Scores::decrypt(&against, secret(&key), &*ENGINE).is_err());
    let forged = [
        Vector { sources: found.sources[1..].to_vec(), ..found.clone() },
        Vector { layout: Layout::Rows, ..found.clone() },
        Vector { specs: against.specs.clone(), ..found.clone() },
        Vector { ciphertexts: vec![against.ciphertexts[0].clone(); 9], ..found },
    ];
    for forged in &forged {
        let refused = Scores::decrypt(forged, secret(&key), &*ENGINE).err().unwrap();
        assert!(refused.to_string().contains("these are no scores"));
    }
    // A missing rotation is named.
    let few = secret(&key).evaluation_keys(&[1, 2], &*ENGINE).unwrap();
    let found = screen(&Evaluator::new(few, &*ENGINE), None, given().take(1));
    assert!(found.err().unwrap().to_string().contains("all rotations of \"sum\""));
}

/// Encrypts numbers of a shape, and what they are opened to.
fn opened(key: &LevelledKey, vector: &Vector) -> Vec<f64> {
    vector.decrypt_values(secret(key), &*ENGINE).unwrap().to_vec()
}

#[test]
fn operations_are_those_on_values_in_whatever_units() {
    let key = key(Preset::Slots4096Levels2);
    let asked = [Rotation::Sum, Rotation::Matrix(3, 50), Rotation::By(-2)];
    let steps = Rotation::steps(&asked, key.public().parameters()).unwrap();
    let keys = secret(&key).evaluation_keys(&steps, &*ENGINE).unwrap();
    let e = &Evaluator::new(keys, &*ENGINE);
    for (a_range, b_range, count) in [(1.0, 1.0, 50), (1e-6, 1e6, 4097), (300.0, 0.01, 1)] {
        let (a, b) = (numbers(count, a_range), numbers(count, b_range));
        let shape = &[count as u64];
        let encrypt = |values: &[f64], range| {
            let update = Update::new(vec![tensor("x", shape, values)]);
            Vector::encrypt(&key, &update, &recipe(range), &*ENGINE).unwrap()
        };
        let (x, y) = (encrypt(&a, a_range), encrypt(&b, b_range));
        let each = |of: fn(f64, f64) -> f64| -> Vec<f64> {
            a.iter().zip(&b).map(|(&a, &b)| of(a, b)).collect()
        };
        let holds = |found: Result<Vector, Error>, expected: Vec<f64>| {
            let (_, found) = source("found", &found.unwrap().to_bytes().unwrap());
            let most = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            let off = furthest(&opened(&key, &found), &expected);
            // What it says of itself is so, and errors are small beside what it may be.
            let factor = found.unit() / found.divisor() as f64;
            let (may_be, error) = (found.bound().magnitude * factor, found.bound().error * factor);
            assert!(most <= may_be * (1.0 + 1e-9), "{most} of {may_be}");
            assert!(off <= error && off < 1e-5 * may_be, "{off} of {error}, {may_be}");
        };
        holds(x.add(e, &y), each(|a, b| a + b));
        holds(x.sub(e, &y), each(|a, b| a - b));
        holds(x.negate(e), each(|a, _| -a));
        holds(x.multiply(e, &y), each(|a, b| a * b));
        holds(x.multiply_plain(e, &b, shape), each(|a, b| a * b));
        holds(x.multiply_constant(e, 0.3), each(|a, _| 0.3 * a));
        holds(x.multiply_constant(e, -0.25), each(|a, _| -0.25 * a));
        holds(x.divide(7), each(|a, _| a / 7.0));
        holds(x.power(e, 3), each(|a, _| a * a * a));
        holds(x.polynomial(e, &[0.0, 1.0, -1.0, 0.5]), each(|a, _| a - a * a + 0.5 * a * a * a));
        holds(x.multiply(e, &y).unwrap().sum(e), vec![each(|a, b| a * b).iter().sum()]);
        if count == 50 {
            let matrix = numbers(150, 40.0);
            let row = |row: &[f64]| row.iter().zip(&a).map(|(m, a)| m * a).sum();
            holds(
                x.multiply_matrix(e, &matrix, (3, 50)),
                matrix.chunks_exact(50).map(row).collect(),
            );
            holds(x.add_plain(e, &b, shape), each(|a, b| a + b));
            // Zeros come from behind the values, and what left them is not in sums.
            let turned: Vec<f64> = [0.0, 0.0].iter().chain(&a[..48]).copied().collect();
            let rotated = x.rotate(e, -2).unwrap();
            assert!(rotated.has_tail && !rotated.multiply_plain(e, &b, shape).unwrap().has_tail);
            holds(rotated.sum(e), vec![turned.iter().sum()]);
            holds(Ok(rotated), turned);
        }
        // One encrypted value goes with every value.
        let mean = x.sum(e).unwrap().divide(count as u64).unwrap();
        let exact = a.iter().sum::<f64>() / count as f64;
        let found = opened(&key, &x.sub(e, &mean).unwrap());
        let expected: Vec<f64> = a.iter().map(|a| a - exact).collect();
        assert!(furthest(&found, &expected) < 1e-5 * a_range, "{count}");
    }
}

#[test]
fn operations_refuse_what_does_not_go_together_or_fit() {
    let key = key(Preset::Slots4096Levels1);
    let steps = Rotation::steps(&[Rotation::By(1)], key.public().parameters()).unwrap();
    let keys = secret(&key).evaluation_keys(&steps, &*ENGINE).unwrap();
    let e = &Evaluator::new(keys, &*ENGINE);
    let encrypt = |count: usize, layout| {
        let update = Update::new(vec![tensor("x", &[count as u64, 1], &vec![0.5; count])]);
        let recipe = Recipe { range: Some(1.0), layout };
        Vector::encrypt(&key, &update, &recipe, &*ENGINE).unwrap()
    };
    let x = encrypt(6, Layout::Rows);
    let why = |result: Result<Vector, Error>| result.err().unwrap().to_string();
    let other = encrypt(5, Layout::Rows);
    assert!(why(x.add(e, &other)).contains("[6, 1] and [5, 1]"));
    let columns = encrypt(6, Layout::Columns);
    assert!(why(x.multiply(e, &columns)).contains("columns"));
    assert!(why(x.add_plain(e, &[1.0; 6], &[6])).contains("do not go together"));
    assert!(why(x.multiply_matrix(e, &[1.0; 15], (3, 5))).contains("3x5"));
    assert!(why(x.multiply_matrix(e, &[1.0; 18], (3, 6))).contains("matrix:3x6"));
    assert!(why(x.sum(e)).contains("all rotations of \"sum\""));
    assert!(why(x.rotate(e, 2)).contains("rotation by 2"));
    assert!(why(encrypt(5000, Layout::Rows).rotate(e, 1)).contains("2 cipher"));
    assert!(why(x.divide(0)).contains("divided by 0"));
    assert!(why(x.power(e, 0)).contains("power of 0"));
    let full = (0..12).fold(x.clone(), |sum, _| sum.add(e, &sum).unwrap());
    let no_room = |result| matches!(result, Err(Error::Ckks(CkksError::NoRoom)));
    assert!(no_room(full.multiply(e, &full)) && no_room(full.polynomial(e, &[0.0, 0.0, 1.0, 1.0])));
    let value = |result, at| match result {
        Err(Error::Ckks(CkksError::Value { index, .. })) => assert_eq!(index, at),
        _ => panic!("refused by index"),
    };
    value(x.multiply_plain(e, &[0.0, 0.0, f64::NAN, 0.0, 0.0, 0.0], &[6, 1]), 2);
    value(x.add_plain(e, &[0.0, 0.0, 0.0, -1e30, 0.0, 0.0], &[6, 1]), 3);
    value(x.polynomial(e, &[0.0, f64::INFINITY]), 1);
    let bottom = x.multiply(e, &x).unwrap();
    for refused in [
        bottom.multiply(e, &x),
        bottom.multiply_plain(e, &[1.0; 6], &[6, 1]),
        bottom.multiply_constant(e, 0.1),
        bottom.power(e, 2),
        bottom.polynomial(e, &[0.0, 1.0]),
        x.rotate(e, 1).unwrap().multiply_constant(e, 0.1).unwrap().sum(e),
    ] {
        assert!(matches!(refused, Err(Error::Ckks(CkksError::OutOfLevels))));
    }
    // By one and by zero there is nothing to take.
    assert_eq!(opened(&key, &bottom.multiply_constant(e, 1.0).unwrap()).len(), 6);
    assert!(
        opened(&key, &bottom.multiply_constant(e, 0.0).unwrap()).iter().all(|x| x.abs() < 1e-9)
    );
}
