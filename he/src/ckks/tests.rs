//! Operations against plain arithmetic.

use ciphergram_accel::{CpuEngine, Engine, Operand, ReferenceEngine, program::Kind};
use rand_core::{Rng as _, SeedableRng as _};

use super::*;
use crate::random::generator;
use std::sync::Arc;

/// A small ring with seven levels.
fn small() -> Parameters {
    Parameters::without_security(Literal { slots: 64, levels: 7, special: 2 }).unwrap()
}

struct Party {
    secret: LevelledSecret,
    public: LevelledPublic,
    decryptor: Decryptor,
}

impl Party {
    fn new(parameters: Parameters, engine: &dyn Engine) -> Self {
        let secret = LevelledSecret::generate(&Arc::new(parameters), engine).unwrap();
        let (public, decryptor) = (secret.public().clone(), Decryptor::new(&secret));
        Self { secret, public, decryptor }
    }
}

fn numbers(count: usize) -> Vec<f64> {
    let mut random = generator().unwrap();
    (0..count).map(|_| f64::from(random.next_u32()) / f64::from(1u32 << 31) - 1.0).collect()
}

fn error(found: &Complex, expected: impl Fn(usize) -> f64) -> f64 {
    let off = |(j, (re, im)): (usize, (&f64, &f64))| (re - expected(j)).hypot(*im);
    found.re.iter().zip(&found.im).enumerate().map(off).fold(0.0, f64::max)
}

/// Checks that a ciphertext is as far off as its bound allows, and returns how many times as far it could be.
fn slack(c: &Ciphertext, found: &Complex, expected: impl Fn(usize) -> f64) -> f64 {
    let off = error(found, &expected);
    let Bound { magnitude, error } = c.bound();
    assert!(off <= error, "{off:e} is beyond the bound, {error:e}, on level {}", c.level());
    let largest = (0..found.re.len()).map(|j| expected(j).abs()).fold(0.0, f64::max);
    assert!(largest <= magnitude, "{largest} is beyond {magnitude}");
    assert!(c.bits_left() > 0.0, "it may have wrapped");
    error / off
}

/// Fresh ciphertexts of both keys, products, sums, rotations, down to level 0.
fn works(parameters: Parameters, engine: &dyn Engine) {
    let slots = parameters.slots();
    // Noise grows with the degree.
    let more = (slots as f64 / 4096.0).max(1.0);
    let party = Party::new(parameters, engine);
    let keys = party.secret.evaluation_keys(&[1, -3], engine).unwrap();
    let keys = party.secret.with_conjugate(keys, engine).unwrap();
    let evaluator = Evaluator::new(keys, engine);
    let (x, y) = (numbers(slots), numbers(slots));
    let [public, secret] =
        [Encryptor::public(&party.public, 1.0), Encryptor::secret(&party.secret, 1.0)];
    let a = public.encrypt(&Complex::real(&x), engine).unwrap();
    let b = secret.encrypt(&Complex::real(&y), engine).unwrap();
    let open = |c: &Ciphertext| party.decryptor.decrypt(c, engine).unwrap();
    for (fresh, values) in [(&a, &x), (&b, &y)] {
        let off = error(&open(fresh), |j| values[j]);
        println!("{slots} slots, fresh: {off:e}");
        assert!(off < 2e-8 * more, "fresh: {off}");
        assert!(slack(fresh, &open(fresh), |j| values[j]) < 1024.0);
    }
    let sum = evaluator.add(&a, &b).unwrap();
    assert!(error(&open(&sum), |j| x[j] + y[j]) < 1e-7 * more);
    let difference = evaluator.sub(&a, &b).unwrap();
    assert!(error(&open(&difference), |j| x[j] - y[j]) < 1e-7 * more);
    for steps in [1, -3, 0] {
        let turned = evaluator.rotate(&a, steps).unwrap();
        let from = |j: usize| (j as i64 + steps).rem_euclid(slots as i64) as usize;
        let off = error(&open(&turned), |j| x[from(j)]);
        assert!(off < 1e-7 * more, "rotated by {steps}: {off}");
    }
    assert!(error(&open(&evaluator.conjugate(&a).unwrap()), |j| x[j]) < 1e-7 * more);
    let m = evaluator.encode(&Complex::real(&y), a.level()).unwrap();
    let off = error(&open(&evaluator.multiply_plain(&a, &m).unwrap()), |j| x[j] * y[j]);
    assert!(off < 1e-7 * more, "times a plaintext: {off}");
    let (mut power, mut expected) = (a.clone(), x.clone());
    while power.level() > 0 {
        power = evaluator.multiply(&power, &b).unwrap();
        expected.iter_mut().zip(&y).for_each(|(x, y)| *x *= y);
        let off = error(&open(&power), |j| expected[j]);
        let slack = slack(&power, &open(&power), |j| expected[j]);
        println!("{slots} slots, level {}: {off:e}, bound {slack:.0} times", power.level());
        assert!(slack < 1024.0 || slots < 4096);
        assert!(off < 1e-6 * more, "on level {}: {off}", power.level());
    }
    assert!(evaluator.multiply(&power, &b).is_err());
    let lowered = evaluator.lower(&a, 0).unwrap();
    assert!(
        error(&open(&evaluator.add(&lowered, &power).unwrap()), |j| x[j] + expected[j])
            < 1e-6 * more
    );
}

#[test]
fn works_on_the_small_presets() {
    for preset in [Preset::Slots4096Levels1, Preset::Slots4096Levels2] {
        works(Parameters::preset(preset), &CpuEngine::new());
    }
}

#[test]
fn works_with_digits_of_several_primes() {
    for special in [2, 3] {
        let literal = Literal { slots: 64, levels: 7, special };
        let works =
            |engine: &dyn Engine| works(Parameters::without_security(literal).unwrap(), engine);
        CpuEngine::paths().iter().for_each(|engine| works(engine));
        works(&ReferenceEngine);
    }
}

/// 2 + 4 + 4 + 2 and so on: what products are counted to cost.
#[test]
fn products_take_as_many_transforms_as_counted() {
    for (preset, expected) in [
        (Preset::Slots4096Levels1, 12),
        (Preset::Slots4096Levels2, 20),
        (Preset::Slots8192Levels7, 60),
    ] {
        let parameters = Parameters::preset(preset);
        let program = Operation::Multiply.program(&parameters).unwrap();
        assert_eq!(program.transforms(), expected, "{preset}");
    }
}

/// Every operation's program comes to the same words on every engine.
fn agrees(parameters: &Parameters, engines: &[&dyn Engine]) {
    for operation in Operation::ALL {
        let program = operation.program(parameters).unwrap();
        let values = program.values();
        let mut random = generator().unwrap();
        let inputs: Vec<_> = program
            .inputs()
            .map(|(index, _)| {
                let value = &values[index];
                let words: Vec<u64> = match &value.kind {
                    // Residues are below every prime of 40 bits.
                    Kind::Polys { .. } => {
                        (0..value.kind.words()).map(|_| random.next_u64() >> 25).collect()
                    }
                    // Messages have room for a sign and a sum.
                    _ => (0..value.kind.words()).map(|_| random.next_u64() >> 10).collect(),
                };
                (value.secret, words)
            })
            .collect();
        let results: Vec<Vec<Vec<u64>>> = engines
            .iter()
            .map(|engine| {
                let mut outputs: Vec<_> =
                    program.outputs().iter().map(|&i| vec![0; values[i].kind.words()]).collect();
                let given = inputs.iter().map(|(is_secret, words)| match is_secret {
                    true => Operand::SecretIn(words),
                    false => Operand::In(words),
                });
                let mut operands: Vec<_> = given.collect();
                operands.extend(outputs.iter_mut().map(|words| Operand::Out(words)));
                engine.run(&program, &mut operands).unwrap();
                drop(operands);
                outputs
            })
            .collect();
        for (result, engine) in results.iter().zip(engines).skip(1) {
            assert!(*result == results[0], "{operation:?} differs on {}", engine.name());
        }
    }
}

#[test]
fn programs_agree_to_the_bit() {
    let paths = CpuEngine::paths();
    let paths: Vec<&dyn Engine> = paths.iter().map(|engine| engine as &dyn Engine).collect();
    let mut all = paths.clone();
    all.push(&ReferenceEngine);
    agrees(&small(), &all);
    agrees(&Parameters::preset(Preset::Slots4096Levels1), &paths);
    // The oracle takes the square of the degree: minutes for these, hours for larger rings.
    if std::env::var_os("CIPHERGRAM_CASES").is_some() {
        for preset in [Preset::Slots4096Levels1, Preset::Slots4096Levels2] {
            agrees(&Parameters::preset(preset), &all);
        }
        for preset in [Preset::Slots8192Levels7, Preset::Slots16384Levels14] {
            agrees(&Parameters::preset(preset), &paths);
        }
        works(Parameters::preset(Preset::Slots8192Levels7), paths[0]);
        works(Parameters::preset(Preset::Slots16384Levels14), paths[0]);
    }
}

/// Sums of products, integers, constants and plaintexts on the right level.
#[test]
fn arithmetic_agrees_with_that_of_numbers() {
    let engine = CpuEngine::new();
    let party = Party::new(small(), &engine);
    let evaluator = Evaluator::new(party.secret.evaluation_keys(&[], &engine).unwrap(), &engine);
    let encryptor = Encryptor::public(&party.public, 1.0);
    let (x, y) = (numbers(64), numbers(64));
    let [a, b] = [&x, &y].map(|values| encryptor.encrypt(&Complex::real(values), &engine).unwrap());
    let open = |c: &Ciphertext| party.decryptor.decrypt(c, &engine).unwrap();
    let near = |c: &Ciphertext, level: usize, expected: &dyn Fn(usize) -> f64| {
        assert_eq!(c.level(), level);
        let off = error(&open(c), expected);
        assert!(off < 1e-7, "{off}");
    };
    near(&evaluator.negate(&a).unwrap(), 7, &|j| -x[j]);
    near(&evaluator.multiply_integer(&a, -300).unwrap(), 7, &|j| -300.0 * x[j]);
    near(&evaluator.add_constant(&a, 2.5).unwrap(), 7, &|j| x[j] + 2.5);
    near(&evaluator.multiply_constant(&a, -0.3).unwrap(), 6, &|j| -0.3 * x[j]);
    let m = evaluator.encode(&Complex::real(&y), 4).unwrap();
    near(&evaluator.add_plain(&a, &m).unwrap(), 4, &|j| x[j] + y[j]);
    near(&evaluator.sub_plain(&a, &m).unwrap(), 4, &|j| x[j] - y[j]);
    near(&evaluator.multiply_plain(&a, &m).unwrap(), 3, &|j| x[j] * y[j]);
    let low = evaluator.lower(&b, 2).unwrap();
    let weighed = evaluator.weigh(&[(0.5, &a), (-2.0, &low), (0.0, &b)]).unwrap();
    near(&weighed, 1, &|j| 0.5 * x[j] - 2.0 * y[j]);
    let [squares, product] = [(&a, &a), (&a, &b)].map(|(a, b)| evaluator.tensor(a, b).unwrap());
    let sum = evaluator.add_products(&squares, &product).unwrap();
    near(&evaluator.relinearise(&sum).unwrap(), 6, &|j| x[j] * x[j] + x[j] * y[j]);
    near(&evaluator.square(&low).unwrap(), 1, &|j| y[j] * y[j]);
    let far = evaluator.lower(&a, 0).unwrap();
    for refused in [
        evaluator.weigh(&[]),
        evaluator.weigh(&[(1.0, &far)]),
        evaluator.square(&far),
        evaluator.lower(&far, 1),
        evaluator.add_plain(&far, &m),
    ] {
        assert_eq!(refused.err(), Some(CkksError::OutOfLevels.into()));
    }
    let too_large = evaluator.weigh(&[(1.0, &a), (1e300, &a)]).err();
    assert!(matches!(too_large, Some(crate::Error::Ckks(CkksError::Value { index: 1, .. }))));
    let other = Party::new(Parameters::preset(Preset::Slots4096Levels1), &engine);
    let c = Encryptor::public(&other.public, 1.0).encrypt(&Complex::real(&x), &engine).unwrap();
    let mixed = evaluator.add(&a, &c).err();
    assert!(matches!(mixed, Some(crate::Error::Ckks(CkksError::OtherParameters { .. }))));
}

/// Rotations that share digits, sums over slots, and matrices of any shape.
#[test]
fn rotations_make_sums_and_matrices() {
    let engine = CpuEngine::new();
    let party = Party::new(small(), &engine);
    let shapes = [(1, 64), (64, 1), (5, 7), (64, 64), (9, 2), (3, 40), (32, 64), (33, 64)];
    let mut steps = vec![1, 2, 4, 8, 16, 32, -5];
    shapes.iter().for_each(|&(rows, columns)| steps.extend(matrix_rotations(rows, columns, 64)));
    let keys = party.secret.evaluation_keys(&steps, &engine).unwrap();
    let evaluator = Evaluator::new(keys, &engine);
    let encryptor = Encryptor::secret(&party.secret, 1.0);
    let x = numbers(64);
    let a = encryptor.encrypt(&Complex::real(&x), &engine).unwrap();
    let open = |c: &Ciphertext| party.decryptor.decrypt(c, &engine).unwrap();
    let at = |j: usize, steps: i64| x[(j as i64 + steps).rem_euclid(64) as usize];
    let chosen = [0, 1, -5, 64 + 2];
    for (turned, steps) in evaluator.rotate_by_each(&a, &chosen).unwrap().iter().zip(chosen) {
        assert!(error(&open(turned), |j| at(j, steps)) < 1e-7, "{steps}");
    }
    for count in [1, 8, 64] {
        let sum = evaluator.inner_sum(&a, count).unwrap();
        let expected = |j: usize| (0..count as i64).map(|k| at(j, k)).sum();
        assert!(error(&open(&sum), expected) < 1e-6, "{count}");
    }
    assert!(evaluator.inner_sum(&a, 3).is_err());
    let missing = evaluator.rotate(&a, 30).err();
    assert_eq!(missing, Some(CkksError::NoRotation { steps: 30 }.into()));
    for (rows, columns) in shapes {
        let values = numbers(rows * columns);
        let v = encryptor.encrypt(&Complex::real(&x[..columns]), &engine).unwrap();
        let matrix = evaluator.encode_matrix(&values, (rows, columns), 3).unwrap();
        let product = evaluator.multiply_matrix(&matrix, &v).unwrap();
        assert_eq!(product.level(), 2);
        // More columns than half the slots, and at most half as many rows: the result is there again and again.
        let is_folded = columns > 32 && rows <= 32;
        let period = if is_folded { rows.next_power_of_two() } else { 64 };
        let expected = |j: usize| match values.chunks(columns).nth(j % period) {
            Some(row) => row.iter().zip(&x).map(|(m, x)| m * x).sum(),
            None => 0.0,
        };
        assert!(error(&open(&product), expected) < 1e-6, "{rows} x {columns}");
        slack(&product, &open(&product), expected);
    }
}

/// Products by a matrix are off by the root of their diagonals, not more, and say so: noise is independent from slot to
/// slot and from rotation to rotation.
#[test]
fn matrices_are_off_by_the_root_of_their_diagonals() {
    const SIZE: usize = 512;
    let engine = CpuEngine::new();
    let party = Party::new(Parameters::preset(Preset::Slots4096Levels1), &engine);
    let steps = matrix_rotations(SIZE, SIZE, 4096);
    let evaluator = Evaluator::new(party.secret.evaluation_keys(&steps, &engine).unwrap(), &engine);
    let encryptor = Encryptor::public(&party.public, 1.0);
    let x: Vec<f64> = numbers(SIZE).iter().map(|x| x.signum()).collect();
    let mut off = vec![];
    for diagonals in [1, 8, 64, 512] {
        // Ones, whose encodings all round alike, and numbers.
        for random in [vec![1.0; SIZE * SIZE], numbers(SIZE * SIZE)] {
            let is_in = |place: usize| (SIZE + place % SIZE - place / SIZE) % SIZE < diagonals;
            let values = random.iter().enumerate().map(|(i, &x)| if is_in(i) { x } else { 0.0 });
            let values: Vec<f64> = values.collect();
            let matrix = evaluator.encode_matrix(&values, (SIZE, SIZE), 1).unwrap();
            let expected: Vec<f64> = values
                .chunks(SIZE)
                .map(|row| row.iter().zip(&x).map(|(m, x)| m * x).sum())
                .chain(vec![0.0; 4096 - SIZE])
                .collect();
            let trial = |_| {
                let a = encryptor.encrypt(&Complex::real(&x), &engine).unwrap();
                let product = evaluator.multiply_matrix(&matrix, &a).unwrap();
                let found = party.decryptor.decrypt(&product, &engine).unwrap();
                (slack(&product, &found, |j| expected[j]), error(&found, |j| expected[j]))
            };
            // The largest error of a few.
            let (slack, largest) = (0..3).map(trial).max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            println!("{diagonals} diagonals: off by {largest:e}, bound {slack:.1} times");
            assert!(slack < 16.0, "{diagonals} diagonals: {slack}");
            off.push(largest);
        }
    }
    // Of 8 and of 512 diagonals.
    assert!(off[6] < 2.0 * 8.0 * off[2] && off[7] < 2.0 * 8.0 * off[3], "{off:?}");
}

/// Polynomials of any degree that levels are there for, in both bases, as deep as they say.
#[test]
fn polynomials_agree_and_are_as_deep_as_said() {
    let engine = CpuEngine::new();
    let party = Party::new(small(), &engine);
    let evaluator = Evaluator::new(party.secret.evaluation_keys(&[], &engine).unwrap(), &engine);
    let x = numbers(64);
    let encryptor = Encryptor::secret(&party.secret, 1.0);
    let a = encryptor.encrypt(&Complex::real(&x), &engine).unwrap();
    for (degree, basis) in [1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 63, 100]
        .into_iter()
        .flat_map(|degree| [(degree, Basis::Powers), (degree, Basis::Chebyshev)])
    {
        let of = Polynomial { coefficients: numbers(degree + 1), basis };
        let value = evaluator.polynomial(&of, &a).unwrap();
        assert_eq!(value.level(), 7 - of.depth(), "{degree}");
        assert_eq!(of.depth(), (degree as f64 + 1.0).log2().ceil() as usize);
        let off = error(&party.decryptor.decrypt(&value, &engine).unwrap(), |j| of.value(x[j]));
        assert!(off < 1e-5, "{degree} {basis:?}: {off:e}");
    }
    let constant = Polynomial { coefficients: vec![1.5, 0.0], basis: Basis::Powers };
    let value = evaluator.polynomial(&constant, &a).unwrap();
    assert!(error(&party.decryptor.decrypt(&value, &engine).unwrap(), |_| 1.5) < 1e-7);
    let mut odd = vec![0.0; 8];
    (odd[7], odd[1]) = (0.25, 1.0);
    let odd = Polynomial { coefficients: odd, basis: Basis::Powers };
    let value = evaluator.polynomial(&odd, &a).unwrap();
    let off = error(&party.decryptor.decrypt(&value, &engine).unwrap(), |j| odd.value(x[j]));
    assert!(off < 1e-6, "{off:e}");
    let low = evaluator.lower(&a, 2).unwrap();
    let deep = Polynomial { coefficients: vec![1.0; 9], basis: Basis::Powers };
    assert_eq!(evaluator.polynomial(&deep, &low).err(), Some(CkksError::OutOfLevels.into()));
}

/// Random circuits, to the last level: every value is within its bound.
#[test]
fn random_circuits_stay_within_their_bounds() {
    circuits(small(), 20);
    circuits(Parameters::preset(Preset::Slots8192Levels7), 1);
    if std::env::var_os("CIPHERGRAM_CASES").is_some() {
        circuits(Parameters::preset(Preset::Slots8192Levels7), 30);
        circuits(Parameters::preset(Preset::Slots16384Levels14), 5);
    }
}

fn circuits(parameters: Parameters, count: u64) {
    let (engine, slots) = (CpuEngine::new(), parameters.slots());
    let party = Party::new(parameters, &engine);
    let keys = party.secret.evaluation_keys(&[1, 2, 7], &engine).unwrap();
    let keys = party.secret.with_conjugate(keys, &engine).unwrap();
    let evaluator = Evaluator::new(keys, &engine);
    let encryptor = Encryptor::public(&party.public, 1.0);
    for seed in 0..count {
        println!("seed {seed}");
        let mut random = rand_chacha::ChaCha20Rng::seed_from_u64(seed);
        let mut pick = move |bound: usize| random.next_u32() as usize % bound;
        let mut values: Vec<(Ciphertext, Vec<f64>)> = (0..3)
            .map(|_| {
                let x = numbers(slots);
                (encryptor.encrypt(&Complex::real(&x), &engine).unwrap(), x)
            })
            .collect();
        for _ in 0..30 {
            let [i, j] = [pick(values.len()), pick(values.len())];
            let ((a, x), (b, y)) = (&values[i], &values[j]);
            let weight = pick(7) as i64 - 3;
            let m = numbers(slots);
            let plain = |level| evaluator.encode(&Complex::real(&m), level);
            let of = Polynomial { coefficients: numbers(2 + pick(4)), basis: Basis::Powers };
            let each = |f: &dyn Fn(usize) -> f64| (0..slots).map(f).collect::<Vec<f64>>();
            let at = |j: usize| x[j % slots];
            let (value, plain) = match pick(16) {
                0 => (evaluator.add(a, b), each(&|j| x[j] + y[j])),
                1 => (evaluator.sub(a, b), each(&|j| x[j] - y[j])),
                2 | 3 => (evaluator.multiply(a, b), each(&|j| x[j] * y[j])),
                4 => (evaluator.rotate(a, 7), each(&|j| at(j + 7))),
                5 => (evaluator.inner_sum(a, 4), each(&|j| (0..4).map(|k| at(j + k)).sum())),
                6 => (evaluator.multiply_integer(a, weight), each(&|j| x[j] * weight as f64)),
                7 => (evaluator.multiply_constant(a, 0.7), each(&|j| x[j] * 0.7)),
                8 => (evaluator.add_constant(a, -0.5), each(&|j| x[j] - 0.5)),
                9 => (evaluator.negate(a), each(&|j| -x[j])),
                10 => (evaluator.conjugate(a), x.clone()),
                11 => (
                    plain(a.level()).and_then(|m| evaluator.add_plain(a, &m)),
                    each(&|j| x[j] + m[j]),
                ),
                12 => (
                    plain(a.level()).and_then(|m| evaluator.multiply_plain(a, &m)),
                    each(&|j| x[j] * m[j]),
                ),
                13 => (
                    evaluator
                        .tensor_sum(&[(a, a), (a, b)])
                        .and_then(|sum| evaluator.relinearise(&sum)),
                    each(&|j| x[j] * (x[j] + y[j])),
                ),
                14 => {
                    (evaluator.weigh(&[(0.25, a), (-1.5, b)]), each(&|j| 0.25 * x[j] - 1.5 * y[j]))
                }
                _ => (evaluator.polynomial(&of, a), each(&|j| of.value(x[j]))),
            };
            match value {
                Ok(value) if value.bits_left() > 1.0 => {
                    let found = party.decryptor.decrypt(&value, &engine).unwrap();
                    slack(&value, &found, |j| plain[j]);
                    values.push((value, plain));
                }
                Ok(_) => {}
                Err(why) => assert_eq!(why, CkksError::OutOfLevels.into()),
            }
        }
    }
}

/// At declared magnitudes a bound is no more than 2^10 times what is measured, three products deep.
#[test]
fn bounds_are_tight_over_three_levels() {
    let engine = CpuEngine::new();
    let party = Party::new(Parameters::preset(Preset::Slots8192Levels7), &engine);
    let evaluator = Evaluator::new(party.secret.evaluation_keys(&[], &engine).unwrap(), &engine);
    // Numbers as large as declared.
    let x: Vec<f64> = numbers(8192).iter().map(|x| x.signum()).collect();
    let encryptor = Encryptor::public(&party.public, 1.0);
    let a = encryptor.encrypt(&Complex::real(&x), &engine).unwrap();
    let (mut power, mut expected) = (a.clone(), x.clone());
    for depth in 1..=3 {
        power = evaluator.multiply(&power, &a).unwrap();
        expected.iter_mut().zip(&x).for_each(|(product, x)| *product *= x);
        let found = party.decryptor.decrypt(&power, &engine).unwrap();
        let slack = slack(&power, &found, |j| expected[j]);
        println!("{depth} products: the bound is {slack:.0} times the error");
        assert!(slack < 1024.0, "{slack}");
    }
}
