//! Levelled CKKS against definitions in another language, and against Microsoft SEAL's encoder: see
//! `data/README.md`.

use std::{collections::BTreeSet, sync::Arc};

use ciphergram_accel::{
    Builder, CpuEngine, Engine, Operand, Program, ReferenceEngine, Ring, program::Coeff,
    ring::largest_primes,
};
use ciphergram_he::ckks::{Complex, Encoder, Parameters, Preset};
use serde_json::Value;

/// Returns the cases of a file of vectors.
fn cases(name: &str) -> (Value, Vec<Value>) {
    let path = format!("{}/he/data/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = file["cases"].as_array().unwrap().clone();
    assert!(cases.len() >= 5, "{name}");
    (file, cases)
}

fn word(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn words(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(word).collect()
}

fn integers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|x| x.as_i64().unwrap()).collect()
}

/// Returns the numbers of all slots, as the script has them.
fn numbers(slots: usize) -> Complex {
    let number = |factor: u64, shift: u64| {
        let of = move |j: u64| (factor * j * j + shift * j + 77_777) % (1 << 20);
        let all = (0..slots as u64).map(of);
        all.map(|x| (x as f64 - f64::from(1 << 19)) / f64::from(1 << 19)).collect()
    };
    Complex { re: number(7919, 104_729), im: number(6101, 15_485) }
}

#[test]
fn slots_are_encoded_as_defined_and_as_seal_does() {
    let (file, cases) = cases("ckks_encoder");
    let unit = 2f64.powi(word(&file["unit_bits"]) as i32);
    for case in cases {
        let (slots, scale_bits) = (word(&case["slots"]) as usize, word(&case["scale_bits"]));
        let (encoder, scale) = (Encoder::new(slots), 2f64.powi(scale_bits as i32));
        let numbers = numbers(slots);
        let found = encoder.encode(&numbers, (scale, 60.0, 0)).unwrap();
        let (exact, seal) = (integers(&case["exact"]), integers(&case["seal"]));
        for ((index, exact), seal) in words(&case["indices"]).into_iter().zip(exact).zip(seal) {
            let (found, exact) = (found[index as usize], exact as f64 / unit);
            let off = (found as f64 - exact).abs();
            // What floating-point numbers of 53 bits leave of coefficients below the scale, in many stages, and the
            // unit of the file.
            let slack = (scale_bits as f64 - 50.0).exp2() + 1.0 / unit;
            assert!(off <= 0.5 + slack, "{slots} slots, {index}: {found}, not {exact}");
            // SEAL rounds the same number: to the same integer, unless it is next to a half.
            assert!(found == seal || (found - seal).abs() == 1 && off >= 0.5 - slack, "{index}");
        }
        let coefficients: Vec<f64> = found.iter().map(|&c| c as f64).collect();
        let decoded = encoder.decode(&coefficients, scale);
        let parts = [(&decoded.re, &numbers.re), (&decoded.im, &numbers.im)];
        for (found, expected) in parts.into_iter().flat_map(|(a, b)| a.iter().zip(b)) {
            // N coefficients that are rounded by a half each at most.
            assert!((found - expected).abs() <= slots as f64 / scale, "{found}, not {expected}");
        }
    }
}

/// Returns residues that are quadratic in their index, as the script has them.
fn polynomial(ring: &Ring, factor: u128) -> Vec<u64> {
    let of = |i: u128| factor * i * i + 1_234_567_891_011 * i + 987_654_321;
    let q = u128::from(ring.primes()[0]);
    (0..ring.degree() as u128).map(|i| (of(i) % q) as u64).collect()
}

/// Builds the program of a transform, and that of a product by way of three.
fn programs(ring: &Arc<Ring>) -> [Program; 2] {
    let mut b = Builder::new("transform");
    let x = b.polys::<Coeff>("x", ring);
    let t = b.ntt("t", x);
    b.output(t);
    let transform = b.build();
    let mut b = Builder::new("product");
    let [x, y] = ["x", "y"].map(|name| {
        let x = b.polys::<Coeff>(name, ring);
        b.ntt(name, x)
    });
    let product = b.poly_mul("z", x, y);
    let z = b.intt("z", product);
    b.output(z);
    [transform, b.build()]
}

fn run(engine: &dyn Engine, program: &Program, inputs: &[&[u64]]) -> Vec<u64> {
    let mut out = vec![0; inputs[0].len()];
    let mut operands: Vec<_> = inputs.iter().map(|&words| Operand::In(words)).collect();
    operands.push(Operand::Out(&mut out));
    engine.run(program, &mut operands).unwrap();
    drop(operands);
    out
}

#[test]
fn rings_transform_and_multiply_as_defined() {
    let paths = CpuEngine::paths();
    let mut engines: Vec<&dyn Engine> = paths.iter().map(|engine| engine as &dyn Engine).collect();
    engines.push(&ReferenceEngine);
    for case in cases("ckks_rings").1 {
        let (degree, q) = (word(&case["degree"]) as usize, word(&case["prime"]));
        let number = word(&case["number"]) as usize;
        let primes = largest_primes(word(&case["bits"]) as u32, degree, number + 1);
        assert_eq!(primes[number], q);
        let ring = Arc::new(Ring::new(degree, &[q]).unwrap());
        assert_eq!(ring.roots(), [word(&case["root"])]);
        let [a, b] = [(1 << 45) + 59, (1 << 38) + 7].map(|factor| polynomial(&ring, factor));
        let [transform, product] = programs(&ring);
        let indices = words(&case["indices"]);
        // The oracle evaluates large ones point by point.
        let engines = if degree < 1000 { &engines[..] } else { &engines[..paths.len()] };
        for &engine in engines {
            let at = |words: &[u64]| indices.iter().map(|&i| words[i as usize]).collect::<Vec<_>>();
            let here = format!("{} at {degree} modulo {q}", engine.name());
            assert_eq!(at(&run(engine, &transform, &[&a])), words(&case["transform"]), "{here}");
            let found = run(engine, &product, &[&a, &b]);
            assert_eq!(at(&found), words(&case["product"]), "{here}");
            let weighed =
                found.iter().zip(1u128..).map(|(&c, i)| u128::from(c) * i % u128::from(q));
            let sum = (weighed.sum::<u128>() % u128::from(q)) as u64;
            assert_eq!(sum, word(&case["product_checksum"]), "{here}");
        }
    }
}

#[test]
fn rings_of_vectors_are_among_those_of_presets() {
    let primes: BTreeSet<u64> = Preset::ALL
        .into_iter()
        .flat_map(|preset| {
            let set = Parameters::preset(preset);
            let own = set.ring(set.top_level()).primes().to_vec();
            own.into_iter().chain(set.special_primes().to_vec()).collect::<Vec<_>>()
        })
        .collect();
    let large = cases("ckks_rings").1.into_iter().filter(|case| word(&case["degree"]) > 1000);
    let large: Vec<_> = large.map(|case| word(&case["prime"])).collect();
    assert!(large.len() >= 3 && large.iter().all(|q| primes.contains(q)), "{large:?}");
}
