//! The programs and the noise of `ckks-sum-public`.

use ciphergram_accel::{CpuEngine, ReferenceEngine, Ring};
use num_bigint::BigUint;

use super::*;
use crate::{
    params::{Literal, Parameters, Scheme},
    schemes::rlwe::rounding::Rounding,
};

fn parameters(clients: u32, bits: u32) -> Parameters {
    Parameters::new(Literal { scheme: Scheme::CkksSumPublic, clients, bits }).unwrap()
}

/// Returns sets over the ring of two primes, which none is chosen of, and over that of four.
fn either_ring(clients: u32) -> [Parameters; 2] {
    let both = [parameters(3, 24).others().remove(0), parameters(clients, 16)];
    assert_eq!([0, 1].map(|i| ring(&both[i]).primes().len()), [2, 4]);
    both
}

fn ring(parameters: &Parameters) -> &Arc<Ring> {
    &parameters.rlwe().unwrap().ring
}

/// Decrypts polynomials over either ring.
fn opened(
    (secret, parameters): (&RlweSecret, &Parameters),
    engine: &dyn Engine,
    masks: &[u64],
    values: &[u64],
) -> Vec<u64> {
    let count = values.len() / (parameters.rlwe().unwrap().value_beats() * beats::WORDS);
    let mut out = vec![0; count * ring(parameters).len_words()];
    let mut operands = [Operand::In(masks), Operand::In(values), Operand::Out(&mut out)];
    engine.run(&decrypt_program(secret, parameters.rlwe().unwrap()), &mut operands).unwrap();
    out
}

/// Returns the fields of one decrypted polynomial, rounded by a margin of the caller's.
fn rounded(parameters: &Parameters, integers: &[u64], margin_bits: u32) -> Vec<Vec<u64>> {
    let rlwe = parameters.rlwe().unwrap();
    let rlwe = RlweParameters { margin_bits, ..(**rlwe).clone() };
    let (g, degree) = (parameters.geometry(), rlwe.ring.degree());
    let word = |w: usize, i: usize| integers[w * degree + i];
    let round = |i: usize| match rlwe.ring.primes().len() {
        2 => Rounding::<2>::new(&rlwe).round(std::array::from_fn(|w| word(w, i))).to_vec(),
        _ => Rounding::<4>::new(&rlwe).round(std::array::from_fn(|w| word(w, i))).to_vec(),
    };
    (0..g.value_chunks * g.slots_per_chunk).map(round).collect()
}

fn small(ring: &Ring, coefficients: impl Fn(usize) -> i64) -> Vec<u64> {
    let residue = |q: u64, i| coefficients(i).rem_euclid(q as i64) as u64;
    ring.primes()
        .iter()
        .flat_map(|&q| (0..ring.degree()).map(move |i| (q, i)))
        .map(|(q, i)| residue(q, i))
        .collect()
}

/// Computes `e·u + e₀ − e₁·s` of polynomials given in RNS, coefficient by coefficient.
fn noise(ring: &Arc<Ring>, [e, u, e0, e1, s]: [&[u64]; 5]) -> Vec<i64> {
    let mut b = Builder::new("noise");
    let [e_in, u_in, e0_in, e1_in, s_in] =
        ["e", "u", "e₀", "e₁", "s"].map(|name| b.coefficients(name, ring));
    let [e_ntt, u_ntt, e1_ntt, s_ntt] = [e_in, u_in, e1_in, s_in].map(|x| b.ntt("x", x));
    let (eu, e1s) = (b.poly_mul("eu", e_ntt, u_ntt), b.poly_mul("e₁s", e1_ntt, s_ntt));
    let difference = b.sub("eu−e₁s", eu, e1s);
    let difference = b.intt("eu−e₁s", difference);
    let all = b.add("all", difference, e0_in);
    b.output(all);
    let mut out = vec![0; ring.len_words()];
    let inputs = [e, u, e0, e1, s].map(Operand::SecretIn);
    let mut operands: Vec<_> = inputs.into_iter().collect();
    operands.push(Operand::Out(&mut out));
    ReferenceEngine.run(&b.build(), &mut operands).unwrap();
    drop(operands);
    let q = ring.primes()[0];
    let centred = |&x: &u64| if x > q / 2 { x as i64 - q as i64 } else { x as i64 };
    out[..ring.degree()].iter().map(centred).collect()
}

/// Programs give the same bits on every engine: keys, ciphertexts and what they decrypt to.
#[test]
fn programs_agree_with_the_reference() {
    // Over either ring, and with the count of a whole batch.
    for parameters in either_ring(64).map(|p| p.over_small_ring()) {
        let ring = ring(&parameters);
        let paths = CpuEngine::paths();
        let mut engines: Vec<&dyn Engine> = vec![&ReferenceEngine];
        engines.extend(paths.iter().map(|engine| engine as &dyn Engine));
        let words = parameters.rlwe().unwrap().message_words();
        let mut message = vec![0; 2 * ring.degree() * words];
        message.iter_mut().zip(1u64..).for_each(|(m, i)| *m = i.wrapping_mul(0x9e37_79b9));
        let found = engines.into_iter().map(|engine| {
            let secret = RlweSecret::expand(&[5; 32], OF_SUMS, ring, engine).unwrap();
            let public =
                EncryptionKey::derive(&[5; 32], &secret, parameters.rlwe().unwrap(), engine)
                    .unwrap();
            let program = encrypt_program(&public);
            let keys = [[1; 4], [2; 4], [3; 4]];
            let mut masks = vec![0; 2 * parameters.rlwe().unwrap().mask_beats() * beats::WORDS];
            let mut values = vec![0; 2 * parameters.rlwe().unwrap().value_beats() * beats::WORDS];
            let mut operands = [
                Operand::SecretIn(&message),
                Operand::In(&[0, u64::MAX]),
                Operand::SecretIn(&keys[0]),
                Operand::SecretIn(&keys[1]),
                Operand::SecretIn(&keys[2]),
                Operand::Out(&mut masks),
                Operand::Out(&mut values),
            ];
            engine.run(&program, &mut operands).unwrap();
            let stray = |mask| stray_lane(mask, ring.len_words());
            assert!(masks.chunks(masks.len() / 2).all(|mask| stray(mask).is_none()));
            let out = opened((&secret, &parameters), engine, &masks, &values);
            (public.packed().to_vec(), public.0.ntt.to_vec(), masks, values, out)
        });
        let found: Vec<_> = found.collect();
        assert!(found.iter().all(|other| *other == found[0]));
    }
}

/// The bound is the least: there are polynomials whose noise reaches it, on either side.
#[test]
fn the_bound_of_one_is_what_draws_at_their_ends_come_to() {
    for parameters in either_ring(64).map(|p| p.over_small_ring()) {
        let (rlwe, ring) = (parameters.rlwe().unwrap(), ring(&parameters));
        let bound = rlwe.noise_of_one as i64;
        let last = ring.degree() - 1;
        let at = |x: i64| small(ring, |_| x);
        // The last coefficient of a product is the one without a sign of its own.
        let most = noise(ring, [&at(21), &at(1), &at(21), &at(-21), &at(1)]);
        assert_eq!(most[last], bound);
        let least = noise(ring, [&at(-21), &at(1), &at(-21), &at(21), &at(1)]);
        assert_eq!(least[last], -bound);
        assert!(most.iter().chain(&least).all(|x| x.abs() <= bound));
        // Of mixed signs, none is beyond it.
        let signs = |seed: usize, size: i64| {
            small(ring, move |i| [-size, size][(i * i * 31 + i * seed) / 7 % 2])
        };
        for seed in 1..20 {
            let of = [
                &signs(seed, 21),
                &signs(seed + 3, 1),
                &signs(seed + 5, 21),
                &signs(seed + 7, 21),
                &signs(seed + 11, 1),
            ];
            assert!(noise(ring, of.map(Vec::as_slice)).iter().all(|x| x.abs() <= bound));
        }
    }
}

/// All noise of all contributors at its bound does not move the fields; with a bit less of margin
/// it does.
#[test]
fn the_margin_is_enough_and_one_bit_less_is_not() {
    for parameters in either_ring(195).map(|p| p.over_small_ring()) {
        let (rlwe, g) = (parameters.rlwe().unwrap(), parameters.geometry());
        let (ring, margin) = (ring(&parameters), rlwe.margin_bits);
        let secret = RlweSecret::expand(&[7; 32], OF_SUMS, ring, &ReferenceEngine).unwrap();
        let bound = rlwe.noise_bound as i64;
        let most = u64::from(parameters.clients() * 2 * parameters.half_steps());
        // Nothing, everything, and something in every field.
        let fields = |i: usize| match i % 3 {
            0 => 0,
            1 => most,
            _ => (i as u64 * 7919) % (most + 1),
        };
        let survives = |noise: &dyn Fn(usize) -> i64, margin_bits| {
            // c₁ is anything at all, and c₀ = c₁·s + noise + m.
            let mut b = Builder::new("a sum of encryptions");
            let (m, index) = (b.integers("m", ring.len_words()), b.index("index"));
            let e = b.coefficients("e", ring);
            let seed = b.seeds("seed", 1);
            let s = b.shared_secret("ŝ", ring, secret.constant());
            let a = b.uniform("ĉ₁", ring, seed, index);
            let c1 = b.intt("c₁", a);
            let product = b.poly_mul("ĉ₁ŝ", a, s);
            let product = b.intt("c₁s", product);
            let m = b.lift("m", ring, m);
            let c0 = b.add("c₁s+e", product, e);
            let c0 = b.add("c₀", c0, m);
            let mask = b.pack("mask", c1, parameters.rlwe().unwrap().mask_beats());
            let values = b.pack("values", c0, parameters.rlwe().unwrap().value_beats());
            b.output(mask);
            b.output(values);
            let mut message = vec![0; ring.len_words()];
            let mut expected = vec![];
            for i in 0..g.value_chunks * g.slots_per_chunk {
                let field = |f: u32| BigUint::from(fields(i)) << (f * g.field_bits);
                let all: BigUint = (0..g.fields_per_slot as u32).map(field).sum();
                let words = |x: BigUint| {
                    let mut words = x.to_u64_digits();
                    words.resize(ring.primes().len(), 0);
                    words
                };
                for (w, word) in words(all.clone() << margin_bits).into_iter().enumerate() {
                    message[w * ring.degree() + i] = word;
                }
                expected.push(words(all));
            }
            let noise = small(ring, noise);
            let mut masks = vec![0; parameters.rlwe().unwrap().mask_beats() * beats::WORDS];
            let mut values = vec![0; parameters.rlwe().unwrap().value_beats() * beats::WORDS];
            let mut operands = [
                Operand::SecretIn(&message),
                Operand::In(&[3]),
                Operand::SecretIn(&noise),
                Operand::In(&[1, 2, 3, 4]),
                Operand::Out(&mut masks),
                Operand::Out(&mut values),
            ];
            ReferenceEngine.run(&b.build(), &mut operands).unwrap();
            let integers = opened((&secret, &parameters), &ReferenceEngine, &masks, &values);
            rounded(&parameters, &integers, margin_bits) == expected
        };
        for forced in [&(|_| bound) as &dyn Fn(usize) -> i64, &|_| -bound, &|i| {
            if i % 2 == 0 { bound } else { -bound }
        }] {
            assert!(survives(forced, margin), "all noise at its bound");
            assert!(!survives(forced, margin - 1), "a margin of one bit less");
        }
    }
}

/// The noise of real encryptions over the real rings is what its distribution says.
#[test]
fn noise_is_as_large_as_it_should_be() {
    let engine = CpuEngine::new();
    for parameters in either_ring(64) {
        let ring = ring(&parameters);
        let secret = RlweSecret::expand(&[9; 32], OF_SUMS, ring, &engine).unwrap();
        let public =
            EncryptionKey::derive(&[9; 32], &secret, parameters.rlwe().unwrap(), &engine).unwrap();
        let encryptor = AsymmetricEncryption::new(&public).unwrap();
        let nothing = vec![0; ring.len_words()];
        let (mut masks, mut values) = (vec![], vec![]);
        for index in 0..4 {
            let mut words = vec![];
            encryptor.encrypt(&engine, index, &nothing, &mut words).unwrap();
            let (mask, value) = words.split_at(encryptor.mask_words);
            masks.extend_from_slice(mask);
            values.extend_from_slice(value);
        }
        let out = opened((&secret, &parameters), &engine, &masks, &values);
        // Q is odd and close to a power of two: what is near it is a negative number.
        let g = parameters.geometry();
        let (degree, held) = (ring.degree(), g.value_chunks * g.slots_per_chunk);
        let q = ring.primes().iter().fold(1u64, |q, &p| q.wrapping_mul(p));
        let small = |poly: &[u64], i: usize| {
            let is_negative = poly[degree + i] != 0;
            let low = poly[i] as i64;
            if is_negative { low.wrapping_sub(q as i64) } else { low }
        };
        let drawn: Vec<f64> = out
            .chunks(ring.len_words())
            .flat_map(|poly| (0..held).map(move |i| small(poly, i) as f64))
            .collect();
        // Variances: 10.5 of a draw, 2/3 of a ternary digit.
        let variance = 10.5 * (2.0 * degree as f64 * 2.0 / 3.0 + 1.0);
        let found = drawn.iter().map(|x| x * x).sum::<f64>() / drawn.len() as f64;
        assert!((found / variance - 1.0).abs() < 0.1, "{found}, not {variance}");
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!(mean.abs() < 6.0 * (variance / drawn.len() as f64).sqrt(), "{mean}");
        assert!(drawn.iter().all(|x| x.abs() < 10.0 * variance.sqrt()));
    }
}
