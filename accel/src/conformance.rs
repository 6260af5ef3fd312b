//! The suite that makes something an engine: the same bits as the oracle, step by step.
//!
//! An engine joins with one line in its tests, `ciphergram_accel::conformance!(MyEngine::new());`.
//! Operands are random and extreme (0, 1, m − 1), batches of every size from 0 to 17.

mod levels;
mod programs;
mod rings;

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use crate::{
    beats,
    engine::{Engine, Operand, OperandMismatch, RunError},
    exponents::{Public, Secret},
    modulus::Modulus,
    program::{Builder, Crt, FixedBase, Program, Step},
    reference::ReferenceEngine,
    ring::{Ring, largest_primes},
};
pub use levels::{limbs, product_sums, scalings, signed_lifts};
pub use programs::random_programs;
pub use rings::{
    automorphisms, compositions, extensions, packing, polynomials, sampling, transforms,
};

/// Instantiates the suite for the engine that the expression makes.
///
/// `conformance!(engine, without: ["uniform"])` is for an engine that has not every step. It must
/// name them all, and refuse every program that has one; the suite runs the others.
///
/// `conformance!(over: both, without: [..])` hands every case to a function, `both(case)`, that
/// runs it over as many engines as it likes, such as those whose device is there.
#[macro_export]
macro_rules! conformance {
    ($engine:expr) => {
        $crate::conformance!($engine, without: []);
    };
    (over: $with:expr, without: $steps:expr) => {
        $crate::conformance!(@cases $with, $steps);
    };
    ($engine:expr, without: $steps:expr) => {
        $crate::conformance!(@cases (|case: fn(&dyn $crate::Engine)| case(&$engine)), $steps);
    };
    (@cases $with:expr, $steps:expr) => {
        $crate::conformance!(@all tests $with,);

        #[test]
        fn support() {
            $with(|engine| $crate::conformance::support(engine, &$steps));
        }
    };
    // What is to be done with all cases, and its own words.
    (@all $what:ident $($words:tt)*) => {
        $crate::conformance!(@$what $($words)* residues, inverses, powers, pairs, dots, paillier_legs,
            transforms, polynomials, automorphisms, compositions, extensions, sampling,
            packing, limbs, scalings, product_sums, signed_lifts, random_programs, refusals);
    };
    (@table $($case:ident),*) => {
        /// All cases by name, for programs that are no tests. A case panics where an engine errs.
        pub const CASES: &[(&str, fn(&dyn Engine))] = &[$((stringify!($case), $case)),*];
    };
    (@tests $with:expr, $($case:ident),*) => {
        $(#[test]
        fn $case() {
            $with($crate::conformance::$case);
        })*
    };
}

crate::conformance!(@all table);

/// Checks that the engine supports every step but those in `without`: no more, no fewer.
pub fn support(engine: &dyn Engine, without: &[&str]) {
    let missing = Step::names().into_iter().filter(|step| !engine.supports(step));
    let [mut missing, mut without] = [missing.collect(), without.to_vec()];
    missing.sort_unstable();
    without.sort_unstable();
    assert_eq!(missing, without, "steps that {} has not", engine.name());
}

/// Runs a program. Where the engine has not every step of it, it must refuse by name; then there is
/// nothing to compare, and the answer is false.
fn ran(engine: &dyn Engine, program: &Program, operands: &mut [Operand<'_>]) -> bool {
    let missing = program.steps().map(Step::name).find(|step| !engine.supports(step));
    let expected = match missing {
        Some(step) => Err(RunError::Unsupported { engine: engine.name(), step }),
        None => Ok(()),
    };
    let outcome = engine.run(program, operands);
    assert_eq!(outcome, expected, "{} on {}", program.name(), engine.name());
    missing.is_none()
}

/// Deterministic operands, extreme ones first.
struct Operands(ChaCha20Rng);

impl Operands {
    fn new(seed: u64) -> Self {
        Self(ChaCha20Rng::seed_from_u64(seed))
    }

    fn words(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.0.next_u64()).collect()
    }

    /// Returns an odd modulus of exactly `words` words, its top bit set or clear.
    fn modulus(&mut self, words: usize) -> Arc<Modulus> {
        let mut m = self.words(words);
        m[0] |= 1;
        m[words - 1] |= 1 << 20;
        modulus("m", &m)
    }

    /// Returns the square of an odd number, of about `words` words, and that number.
    fn square(&mut self, words: usize) -> [Arc<Modulus>; 2] {
        let root = self.modulus(words.div_ceil(2));
        match Modulus::square("m", &root) {
            Ok(m) => [Arc::new(m), root],
            Err(why) => panic!("test modulus: {why}"),
        }
    }

    /// Returns a residue below `m`: 0, 1, m − 1, then random ones.
    fn residue(&mut self, m: &Modulus, place: usize) -> Vec<u64> {
        let mut x = m.words().to_vec();
        match place {
            0 => x.fill(0),
            1 => {
                x.fill(0);
                x[0] = 1;
            }
            2 => x[0] -= 1,
            _ => loop {
                x = self.words(m.len_words());
                let top = x.len() - 1;
                x[top] >>= m.words()[top].leading_zeros();
                if m.contains_vartime(&x) {
                    break;
                }
            },
        }
        x
    }

    fn residues(&mut self, m: &Modulus, count: usize) -> Vec<u64> {
        let shift = self.0.next_u32() as usize % 5;
        (0..count).flat_map(|i| self.residue(m, (i + shift) % 7)).collect()
    }

    fn poly(&mut self, ring: &Ring) -> Vec<u64> {
        let n = ring.degree();
        let mut draw = |q: u64, i: usize| match i {
            0 => 0,
            1 => q - 1,
            _ => self.0.next_u64() % q,
        };
        ring.primes()
            .iter()
            .flat_map(|&q| (0..n).map(move |i| (q, i)))
            .map(|(q, i)| draw(q, i))
            .collect()
    }

    /// Coefficients that stand for 0, −1 and the bounds of what is centred, (Q ± 1) / 2, and random
    /// ones.
    fn bounds(&mut self, ring: &Ring) -> Vec<u64> {
        let mut poly = self.poly(ring);
        for (residues, &q) in poly.chunks_mut(ring.degree()).zip(ring.primes()) {
            for run in residues.chunks_mut(5) {
                run.iter_mut().zip([0, q - 1, q / 2, q / 2 + 1]).for_each(|(x, bound)| *x = bound);
            }
        }
        poly
    }

    fn polys(&mut self, ring: &Ring, count: usize) -> Vec<u64> {
        (0..count).flat_map(|_| self.poly(ring)).collect()
    }

    fn beats(&mut self, ring: &Ring, count: usize) -> Vec<u64> {
        let mut out = vec![0; count * beats::WORDS];
        for (b, beat) in out.chunks_mut(beats::WORDS).enumerate() {
            for lane in 0..beats::LANES {
                let q = ring.primes()[(b * beats::LANES + lane) % ring.primes().len()];
                let value = if lane % 4 == 0 { q - 1 } else { self.0.next_u64() % q };
                beats::set_lane(beat, lane, value);
            }
        }
        out
    }
}

fn modulus(name: &str, words: &[u64]) -> Arc<Modulus> {
    match Modulus::new(name, words) {
        Ok(m) => Arc::new(m),
        Err(why) => panic!("test modulus {name}: {why}"),
    }
}

fn ring(degree: usize, bits: u32, limbs: usize) -> Arc<Ring> {
    ring_over(degree, &largest_primes(bits, degree, limbs))
}

fn ring_over(degree: usize, primes: &[u64]) -> Arc<Ring> {
    match Ring::new(degree, primes) {
        Ok(ring) => Arc::new(ring),
        Err(why) => panic!("test ring of degree {degree}: {why}"),
    }
}

/// Runs a program with `inputs` and one output of `out_words` on both engines and compares.
fn agree(engine: &dyn Engine, program: &Program, inputs: &[&[u64]], out_words: usize) {
    let secret: Vec<bool> = program.inputs().map(|(i, _)| program.values()[i].secret).collect();
    let run = |engine: &dyn Engine| {
        let mut out = vec![u64::MAX; out_words];
        let mut operands: Vec<_> = inputs
            .iter()
            .zip(&secret)
            .map(|(&w, &secret)| if secret { Operand::SecretIn(w) } else { Operand::In(w) })
            .collect();
        operands.push(Operand::Out(&mut out));
        let ran = ran(engine, program, &mut operands);
        drop(operands);
        ran.then_some(out)
    };
    if let Some(out) = run(engine) {
        assert_eq!(Some(out), run(&ReferenceEngine), "{} on {}", program.name(), engine.name());
    }
}

/// Tries products over moduli of one to 128 words and batches of 0 to 17.
pub fn residues(engine: &dyn Engine) {
    let mut random = Operands::new(1);
    for (words, counts) in [(1, 0..18), (2, 0..18), (3, 7..10), (33, 8..9), (64, 4..6), (128, 3..4)]
    {
        let m = random.modulus(words);
        let mut b = Builder::new("mul");
        let (x, y) = (b.residues("x", &m), b.residues("y", &m));
        let z = b.mul("z", x, y);
        b.output(z);
        let mul = b.build();
        let mut b = Builder::new("product");
        let x = b.residue_rows("x", &m, 5);
        let z = b.product("z", x);
        b.output(z);
        let product = b.build();
        let mut b = Builder::new("mont_mul");
        let (x, y) = (b.residues("x", &m), b.residues("y", &m));
        let z = b.mont_mul("z", x, y);
        b.output(z);
        let mont_mul = b.build();
        let mut b = Builder::new("choose");
        let (x, y, s) = (b.residues("x", &m), b.residues("y", &m), b.secret_bits("s"));
        let z = b.choose("z", s, x, y);
        b.output(z);
        let choose = b.build();
        for count in counts {
            let (x, y) = (random.residues(&m, count), random.residues(&m, count));
            agree(engine, &mul, &[&x, &y], count * words);
            agree(engine, &mont_mul, &[&x, &y], count * words);
            agree(engine, &choose, &[&x, &y, &some_bits(count)], count * words);
            let rows = random.residues(&m, 5 * count);
            agree(engine, &product, &[&rows], count * words);
        }
    }
}

/// Returns some zeros and ones.
fn some_bits(count: usize) -> Vec<u64> {
    (0..count as u64).map(|i| i & 1 ^ i >> 1 & 1).collect()
}

/// Tries inverses, and a choice between them and numbers that have none.
pub fn inverses(engine: &dyn Engine) {
    let mut random = Operands::new(11);
    for (words, counts) in [(1, 0..18), (2, 0..18), (3, 7..10), (33, 8..9), (64, 4..6), (128, 3..4)]
    {
        let m = random.modulus(words);
        let mut b = Builder::new("invert");
        let (x, s) = (b.residues("x", &m), b.secret_bits("s"));
        let inverse = b.invert("1/x", x);
        let z = b.choose("z", s, inverse, x);
        b.output(z);
        let invert = b.build();
        for count in counts {
            let x = random.residues(&m, count);
            agree(engine, &invert, &[&x, &some_bits(count)], count * words);
        }
    }
}

/// Tries powers with secret, public and fixed-base exponents, of sizes around the word.
pub fn powers(engine: &dyn Engine) {
    let mut random = Operands::new(2);
    for (words, bits, square) in [
        (1, 1, false),
        (1, 64, false),
        (2, 65, false),
        (2, 64, true),
        (3, 7, true),
        (4, 127, true),
        (32, 130, true),
        (32, 130, false),
        (64, 64, true),
        (128, 9, true),
    ] {
        let m = if square { random.square(words)[0].clone() } else { random.modulus(words) };
        let base = random.residue(&m, 9);
        let fixed = FixedBase::new("base", m.clone(), &base, bits);
        let fixed = if square { fixed.times(&random.residue(&m, 9)) } else { fixed };
        let fixed = Arc::new(fixed);
        let mut b = Builder::new("powers");
        let x = b.residues("x", &m);
        let (s, p) = (b.exponents::<Secret>("s", bits), b.exponents::<Public>("p", bits));
        let (xs, xp) = (b.pow("xs", x, s), b.pow("xp", x, p));
        let f = b.pow_fixed_base("f", &fixed, s);
        let xx = b.mul("xx", xs, xp);
        let all = b.mul("all", xx, f);
        b.output(all);
        let program = b.build();
        let each = bits_words(bits);
        for count in [1, 4, 9, 17] {
            let mut exponents = || {
                let mut e = random.words(count * each);
                e[..each].fill(0);
                clip(&mut e, bits);
                e
            };
            let (s, mut p) = (exponents(), exponents());
            // Public ones of every length, short ones side by side.
            for (index, e) in p.chunks_mut(each).enumerate() {
                let short = bits.min((index * index / 3) as u32 + 1);
                e[bits_words(short)..].fill(0);
                clip(&mut e[..bits_words(short)], short);
            }
            let x = random.residues(&m, count);
            agree(engine, &program, &[&x, &s, &p], count * m.len_words());
        }
    }
}

/// Tries pairs of digits modulo a square: into them, products, and back.
pub fn pairs(engine: &dyn Engine) {
    let mut random = Operands::new(10);
    for (words, counts) in [(2, 0..18), (3, 6..10), (32, 7..10), (48, 8..9), (64, 3..4)] {
        let [m, n] = random.square(words);
        let mut b = Builder::new("split");
        let x = b.residues("x", &m);
        let pair = b.split("pair", x);
        b.output(pair);
        let split = b.build();
        let mut b = Builder::new("pair product");
        let (x, y) = (b.residues("x", &m), b.residues("y", &m));
        let (px, py) = (b.split("px", x), b.split("py", y));
        let product = b.pair_mul("product", px, py);
        let square = b.pair_mul("square", product, product);
        let joined = b.join("joined", square);
        b.output(joined);
        let product = b.build();
        let each = split.values()[split.outputs()[0]].kind.words();
        let factor = random.residue(&m, 9);
        let fixed = FixedBase::new("g", m.clone(), &random.residue(&m, 9), 70).times(&factor);
        let mut b = Builder::new("pairs from the start");
        let x = b.integers("x", each / 2);
        let e = b.exponents::<Secret>("e", 70);
        let plain = b.one_plus_mn_pair("plain", x, &m);
        let mask = b.pow_fixed_base_pair("mask", &Arc::new(fixed), e);
        let c = b.pair_mul("c", plain, mask);
        b.output(c);
        let masked = b.build();
        for count in counts {
            let (x, y) = (random.residues(&m, count), random.residues(&m, count));
            agree(engine, &split, &[&x], count * each);
            agree(engine, &product, &[&x, &y], count * m.len_words());
            let root = random.residues(&n, count);
            let mut exponents = random.words(2 * count);
            clip(&mut exponents, 70);
            agree(engine, &masked, &[&root, &exponents], count * each);
        }
    }
}

/// Tries products of powers of bases that the batch shares.
pub fn dots(engine: &dyn Engine) {
    let mut random = Operands::new(9);
    for (words, bits, rows, count) in
        [(1, 1, 1, 3), (2, 64, 3, 17), (3, 65, 9, 8), (33, 7, 17, 9), (64, 64, 2, 1), (2, 9, 5, 0)]
    {
        let m =
            if words % 2 == 0 { random.square(words)[0].clone() } else { random.modulus(words) };
        let words = m.len_words();
        let each = rows * bits_words(bits);
        let bases = random.residues(&m, rows);
        let mut exponents = random.words(count * each);
        exponents.iter_mut().take(each).for_each(|e| *e = 0);
        clip(&mut exponents, bits);
        let mut b = Builder::new("dot");
        let x = b.shared_residues("x", &m, rows);
        let (s, p) = (
            b.exponent_rows::<Secret>("s", bits, rows),
            b.exponent_rows::<Public>("p", bits, rows),
        );
        let (ds, dp) = (b.dot("ds", x, s), b.dot("dp", x, p));
        let both = b.mul("both", ds, dp);
        b.output(both);
        let reversed: Vec<u64> = exponents.chunks(each).rev().flatten().copied().collect();
        agree(engine, &b.build(), &[&bases, &exponents, &reversed], count * words);
    }
}

fn bits_words(bits: u32) -> usize {
    bits.div_ceil(64) as usize
}

/// Cuts exponents to `bits` bits.
fn clip(exponents: &mut [u64], bits: u32) {
    let each = bits_words(bits);
    exponents.chunks_mut(each).for_each(|e| e[each - 1] &= u64::MAX >> ((64 - bits % 64) % 64));
}

/// Tries the steps around a Paillier decryption: reduction, the function L, and recombination.
pub fn paillier_legs(engine: &dyn Engine) {
    let mut random = Operands::new(3);
    for words in [1, 2, 16] {
        let (p, q) = (random.modulus(words), random.modulus(words));
        let p2 = match Modulus::square("p²", &p) {
            Ok(square) => Arc::new(square),
            Err(why) => panic!("test modulus: {why}"),
        };
        let m = random.modulus(4 * words);
        let mut b = Builder::new("reduce");
        let x = b.residues("x", &m);
        let r = b.reduce("r", x, &p2);
        b.output(r);
        let x = random.residues(&m, 9);
        agree(engine, &b.build(), &[&x], 9 * p2.len_words());

        let mut b = Builder::new("l_quotient");
        let x = b.integers("x", words);
        let unmasked = b.one_plus_mn("1 + xp", x, &p, &p2);
        let l = b.l_quotient("l", unmasked, &p);
        b.output(l);
        let x = random.residues(&p, 9);
        let mut out = vec![0; x.len()];
        agree(engine, &b.build(), &[&x], x.len());
        let mut b = Builder::new("l_quotient inverts one_plus_mn");
        let v = b.integers("x", words);
        let unmasked = b.one_plus_mn("1 + xp", v, &p, &p2);
        let l = b.l_quotient("l", unmasked, &p);
        b.output(l);
        let mut operands = [Operand::SecretIn(&x), Operand::Out(&mut out)];
        if ran(engine, &b.build(), &mut operands) {
            assert_eq!(out, x);
        }

        // The oracle and the engine must agree for any constant, an inverse or not.
        let crt = Arc::new(Crt::new(p.clone(), q.clone(), &random.residue(&q, 9)));
        let mut b = Builder::new("crt_join");
        let (x, y) = (b.residues("x", &p), b.residues("y", &q));
        let z = b.crt_join("z", (x, y), &crt, 2 * words);
        b.output(z);
        let (x, y) = (random.residues(&p, 12), random.residues(&q, 12));
        agree(engine, &b.build(), &[&x, &y], 24 * words);
    }
}

/// Operands that do not fit are refused, and a secret never reaches a public input.
pub fn refusals(engine: &dyn Engine) {
    let mut random = Operands::new(8);
    let m = random.modulus(2);
    let mut b = Builder::new("pow");
    let x = b.residues("x", &m);
    let e = b.exponents::<Public>("e", 64);
    let y = b.pow("y", x, e);
    b.output(y);
    let program = b.build();
    let (x, e, mut out) = (random.residues(&m, 3), random.words(3), vec![0; 6]);
    let fault = |operand: &str, why| {
        Err(RunError::Operand { program: "pow".into(), operand: operand.into(), why })
    };
    let outcome = engine.run(&program, &mut [Operand::In(&x)]);
    let program_name = "pow".to_string();
    let counts = RunError::OperandCount { program: program_name, expected: 3, found: 1 };
    assert_eq!(outcome, Err(counts));
    let mut operands = [Operand::In(&x), Operand::SecretIn(&e), Operand::Out(&mut out)];
    let outcome = engine.run(&program, &mut operands);
    assert_eq!(outcome, fault("e", OperandMismatch::SecretAsPublic));
    let mut operands = [Operand::In(&x), Operand::In(&e[..2]), Operand::Out(&mut out)];
    let outcome = engine.run(&program, &mut operands);
    assert_eq!(outcome, fault("e", OperandMismatch::Length { expected: 3, found: 2 }));
    let mut operands = [Operand::In(&x), Operand::In(&e), Operand::In(&x)];
    assert_eq!(engine.run(&program, &mut operands), fault("y", OperandMismatch::Access));
}
