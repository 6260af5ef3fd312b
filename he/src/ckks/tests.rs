//! Operations against plain arithmetic.

use ciphergram_accel::{CpuEngine, Engine, ReferenceEngine};
use rand_core::Rng as _;

use super::*;
use crate::random::generator;
use std::sync::Arc;

struct Party {
    secret: SecretKey,
    public: PublicKey,
    decryptor: Decryptor,
}

impl Party {
    fn new(parameters: Parameters, engine: &dyn Engine) -> Self {
        let secret = SecretKey::generate(&Arc::new(parameters), engine).unwrap();
        let (public, decryptor) = (secret.public_key(engine).unwrap(), Decryptor::new(&secret));
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

/// Fresh ciphertexts of both keys, products, sums, rotations, down to level 0.
fn works(parameters: Parameters, engine: &dyn Engine) {
    let slots = parameters.slots();
    let party = Party::new(parameters, engine);
    let keys = party.secret.evaluation_keys(&[1, -3], engine).unwrap();
    let keys = party.secret.with_conjugate(keys, engine).unwrap();
    let evaluator = Evaluator::new(keys, engine);
    let (x, y) = (numbers(slots), numbers(slots));
    let [public, secret] = [Encryptor::public(&party.public), Encryptor::secret(&party.secret)];
    let a = public.encrypt(&Complex::real(&x), engine).unwrap();
    let b = secret.encrypt(&Complex::real(&y), engine).unwrap();
    let open = |c: &Ciphertext| party.decryptor.decrypt(c, engine).unwrap();
    for (fresh, values) in [(&a, &x), (&b, &y)] {
        let off = error(&open(fresh), |j| values[j]);
        println!("{slots} slots, fresh: {off:e}");
        assert!(off < 2e-8, "fresh: {off}");
    }
    let sum = evaluator.add(&a, &b).unwrap();
    assert!(error(&open(&sum), |j| x[j] + y[j]) < 1e-7);
    let difference = evaluator.sub(&a, &b).unwrap();
    assert!(error(&open(&difference), |j| x[j] - y[j]) < 1e-7);
    for steps in [1, -3, 0] {
        let turned = evaluator.rotate(&a, steps).unwrap();
        let from = |j: usize| (j as i64 + steps).rem_euclid(slots as i64) as usize;
        let off = error(&open(&turned), |j| x[from(j)]);
        assert!(off < 1e-7, "rotated by {steps}: {off}");
    }
    assert!(error(&open(&evaluator.conjugate(&a).unwrap()), |j| x[j]) < 1e-7);
    let m = evaluator.encode(&Complex::real(&y), a.level()).unwrap();
    let off = error(&open(&evaluator.multiply_plain(&a, &m).unwrap()), |j| x[j] * y[j]);
    assert!(off < 1e-7, "times a plaintext: {off}");
    let (mut power, mut expected) = (a.clone(), x.clone());
    while power.level() > 0 {
        power = evaluator.multiply(&power, &b).unwrap();
        expected.iter_mut().zip(&y).for_each(|(x, y)| *x *= y);
        let off = error(&open(&power), |j| expected[j]);
        println!("{slots} slots, level {}: {off:e}", power.level());
        assert!(off < 1e-6, "on level {}: {off}", power.level());
    }
    assert!(evaluator.multiply(&power, &b).is_err());
    let lowered = evaluator.lower(&a, 0).unwrap();
    assert!(error(&open(&evaluator.add(&lowered, &power).unwrap()), |j| x[j] + expected[j]) < 1e-6);
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
        for engine in [&CpuEngine::new() as &dyn Engine, &CpuEngine::portable(), &ReferenceEngine] {
            works(Parameters::without_security(literal).unwrap(), engine);
        }
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
        let key = keys::SwitchingKey::zeros(&parameters);
        let program = programs::multiply(&parameters, parameters.top_level(), &key).unwrap();
        assert_eq!(program.transforms(), expected, "{preset}");
    }
}
