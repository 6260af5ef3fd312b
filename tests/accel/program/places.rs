//! Programs over polynomials give what their steps give one by one, whatever the order and the places that a host
//! engine finds for them.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, CpuEngine, Engine, Operand, ReferenceEngine, Ring,
    program::{Coeff, Ntt, Var},
    ring::largest_primes,
};
use proptest::prelude::*;

const ITEMS: usize = 2;

/// A polynomial of a program, and the number of its ring.
#[derive(Clone, Copy)]
struct Poly {
    form: Form,
    ring: usize,
}

#[derive(Clone, Copy)]
enum Form {
    Coeff(Var<Coeff>),
    Ntt(Var<Ntt>),
}
use Form::{Coeff as C, Ntt as T};

/// Rings of three primes, of the first two, and of each.
struct Rings([Arc<Ring>; 5]);

impl Rings {
    fn new(degree: usize) -> Self {
        let all = Ring::new(degree, &largest_primes(40, degree, 3)).unwrap();
        Self(
            [(0, 3), (0, 2), (0, 1), (1, 1), (2, 1)]
                .map(|(first, count)| Arc::new(all.limbs(first, count))),
        )
    }

    fn input(&self, b: &mut Builder, ring: usize, is_ntt: bool) -> Poly {
        let of = &self.0[ring];
        Poly { form: if is_ntt { T(b.polys("x", of)) } else { C(b.polys("x", of)) }, ring }
    }

    /// Adds step number `which` to a program, if these operands fit it.
    fn step(&self, b: &mut Builder, which: u8, x: Poly, y: Poly) -> Option<Poly> {
        let same = x.ring == y.ring;
        let taken = match (which, x.ring) {
            (6, 0) => 1,
            (7, 0) => 4,
            (6, 1) => 2,
            _ => 3,
        };
        let joined = match (x.ring, y.ring) {
            (1, 4) | (4, 1) => Some(0),
            (2, 3) | (3, 2) => Some(1),
            _ => None,
        };
        let (form, ring) = match (which, x.form, y.form) {
            (0, C(x), C(y)) if same => (C(b.add("s", x, y)), None),
            (0, T(x), T(y)) if same => (T(b.sub("s", x, y)), None),
            (1, C(x), _) => (T(b.ntt("s", x)), None),
            (1, T(x), _) => (C(b.intt("s", x)), None),
            (2, T(x), T(y)) if same => (T(b.mul_sum("s", &[(x, y), (y, y)])), None),
            (3, T(f), _) => (T(b.scale("s", f, &[3, 5, 7][..self.0[x.ring].primes().len()])), None),
            (4, C(x), _) => (C(b.automorphism("s", x, 5)), None),
            (4, T(x), _) => (T(b.automorphism("s", x, 3)), None),
            (5, C(f), _) => (C(b.base_extend("s", f, &self.0[1])), Some(1)),
            (6 | 7, C(f), _) if x.ring < 2 => (C(b.limbs("s", f, &self.0[taken])), Some(taken)),
            (6 | 7, T(f), _) if x.ring < 2 => (T(b.limbs("s", f, &self.0[taken])), Some(taken)),
            (8, C(x), C(y)) => (C(b.join_limbs("s", (x, y), &self.0[joined?])), joined),
            (8, T(x), T(y)) => (T(b.join_limbs("s", (x, y), &self.0[joined?])), joined),
            _ => return None,
        };
        Some(Poly { form, ring: ring.unwrap_or(x.ring) })
    }

    fn words(&self, poly: Poly) -> usize {
        ITEMS * self.0[poly.ring].len_words()
    }
}

fn output(b: &mut Builder, poly: Poly) {
    match poly.form {
        C(var) => b.output(var),
        T(var) => b.output(var),
    }
}

fn is_ntt(poly: Poly) -> bool {
    matches!(poly.form, T(_))
}

/// Runs a step by itself.
fn run_step(
    engine: &dyn Engine,
    rings: &Rings,
    which: u8,
    operands: [(Poly, &[u64]); 2],
) -> Option<Vec<u64>> {
    let mut b = Builder::new("step");
    let [x, y] = operands.map(|(poly, _)| rings.input(&mut b, poly.ring, is_ntt(poly)));
    let result = rings.step(&mut b, which, x, y)?;
    output(&mut b, result);
    let mut out = vec![0; rings.words(result)];
    let [x, y] = operands.map(|(_, words)| Operand::In(words));
    engine.run(&b.build(), &mut [x, y, Operand::Out(&mut out)]).unwrap();
    Some(out)
}

/// A step's number, its operands among the values so far, and whether its result leaves the program.
type Chosen = (u8, prop::sample::Index, prop::sample::Index, bool);

fn steps() -> impl Strategy<Value = Vec<Chosen>> {
    prop::collection::vec(
        (0u8..9, any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<bool>()),
        1..60,
    )
}

fn every_path() -> Vec<Box<dyn Engine>> {
    CpuEngine::paths().into_iter().map(|engine| Box::new(engine) as Box<dyn Engine>).collect()
}

/// Holds programs on engines to their steps on another.
fn check(
    degree: usize,
    chosen: Vec<Chosen>,
    seed: u64,
    engines: &[Box<dyn Engine>],
    alone: &dyn Engine,
) {
    let rings = Rings::new(degree);
    let mut b = Builder::new("program");
    let mut found: Vec<(Poly, Vec<u64>)> = vec![];
    for (ring, of) in rings.0.iter().enumerate() {
        for is_ntt in [false, true] {
            let poly = rings.input(&mut b, ring, is_ntt);
            let primes = of.primes();
            let word = |i: usize| {
                (seed ^ i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    % primes[i / degree % primes.len()]
            };
            found.push((poly, (0..rings.words(poly)).map(word).collect()));
        }
    }
    let inputs = found.len();
    let mut outputs = vec![];
    for (which, x, y, leaves) in chosen {
        let (x, y) = (x.get(&found), y.get(&found));
        let Some(poly) = rings.step(&mut b, which, x.0, y.0) else { continue };
        let words = run_step(alone, &rings, which, [(x.0, &x.1), (y.0, &y.1)]).unwrap();
        if leaves {
            output(&mut b, poly);
            outputs.push(found.len());
        }
        found.push((poly, words));
    }
    if outputs.is_empty() {
        return;
    }
    let program = b.build();
    for engine in engines {
        let mut results: Vec<_> = outputs.iter().map(|&i| vec![0; found[i].1.len()]).collect();
        let mut operands: Vec<_> =
            found[..inputs].iter().map(|(_, words)| Operand::In(words)).collect();
        operands.extend(results.iter_mut().map(|words| Operand::Out(words)));
        engine.run(&program, &mut operands).unwrap();
        drop(operands);
        for (result, &i) in results.iter().zip(&outputs) {
            assert!(*result == found[i].1, "{}, value {i}", engine.name());
        }
    }
}

proptest! {
    #[test]
    fn programs_are_their_steps(chosen in steps(), seed in any::<u64>()) {
        let mut engines = every_path();
        engines.push(Box::new(ReferenceEngine));
        check(16, chosen, seed, &engines, &ReferenceEngine);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Of polynomials that are more than a tile: the steps are those of the engine itself.
    #[test]
    fn large_programs_are_their_steps(chosen in steps(), seed in any::<u64>()) {
        check(4096, chosen, seed, &every_path(), &CpuEngine::new());
    }
}
