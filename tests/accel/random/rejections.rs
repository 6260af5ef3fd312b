//! Draws that are rejected in the middle of polynomials, for several seeds at once: where a run of
//! draws is given up, and everything after it moves.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, CpuEngine, Engine, Operand, ReferenceEngine, Ring, beats, ring::largest_primes,
};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

const DEGREE: usize = 1024;
const SEEDS: usize = 5;
const INDICES: [u64; 4] = [0, 1, 77, u64::MAX];
/// Blocks of a run, and draws.
const BLOCKS: usize = 16;
const RUN: usize = 160;

/// Small primes: a draw in some hundreds is rejected.
fn ring() -> Arc<Ring> {
    Arc::new(Ring::new(DEGREE, &largest_primes(22, DEGREE, 3)).unwrap())
}

/// Returns the polynomial of one seed, and the places of residues for which a draw was rejected.
fn draw(ring: &Ring, seed: &[u64], index: u64) -> (Vec<u64>, Vec<usize>) {
    let mut bytes = [0; 32];
    let words = bytes.as_chunks_mut().0.iter_mut().zip(seed);
    words.for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    let mut rng = ChaCha20Rng::from_seed(bytes);
    rng.set_stream(index);
    let (mut residues, mut rejected) = (vec![], vec![]);
    let mut run: Vec<u64> = vec![];
    let mut next = || {
        if run.is_empty() {
            let blocks: [[u64; beats::WORDS]; BLOCKS] =
                std::array::from_fn(|_| std::array::from_fn(|_| rng.next_u64()));
            // Draw 16·k + j is lane k of block j; the last is taken first.
            run = (0..RUN).map(|d| beats::lane(&blocks[d % BLOCKS], d / BLOCKS)).rev().collect();
        }
        run.pop().unwrap()
    };
    for &q in ring.primes() {
        let mask = q.next_power_of_two() - 1;
        for _ in 0..DEGREE {
            let residue = loop {
                let draw = next() & mask;
                if draw < q {
                    break draw;
                }
                rejected.push(residues.len());
            };
            residues.push(residue);
        }
    }
    (residues, rejected)
}

#[test]
fn rejected_draws_move_what_follows_for_each_seed_alone() {
    let ring = ring();
    let mut random = ChaCha20Rng::seed_from_u64(3);
    let seeds: Vec<u64> = (0..4 * SEEDS).map(|_| random.next_u64()).collect();
    let mut expected = vec![];
    // For each index: at how many places a seed's first rejection is, the first run left out.
    let mut given_up = vec![];
    for index in INDICES {
        let mut sum = vec![0; ring.len_words()];
        let mut first_places: Vec<usize> = vec![];
        for seed in seeds.chunks(4) {
            let (residues, rejected) = draw(&ring, seed, index);
            let limbs = sum.chunks_mut(DEGREE).zip(residues.chunks(DEGREE)).zip(ring.primes());
            for ((sum, residues), q) in limbs {
                sum.iter_mut().zip(residues).for_each(|(s, r)| *s = (*s + r) % q);
            }
            first_places.extend(rejected.first());
        }
        first_places.retain(|&place| place > RUN && !place.is_multiple_of(RUN));
        first_places.sort_unstable();
        first_places.dedup();
        given_up.push(first_places.len());
        expected.extend(sum);
    }
    assert!(given_up.iter().all(|&count| count >= 2), "{given_up:?}");

    let mut b = Builder::new("uniform");
    let (names, index) = (b.seeds("seeds", SEEDS), b.index("index"));
    let a = b.uniform("a", &ring, names, index);
    b.output(a);
    let program = b.build();
    let paths = CpuEngine::paths();
    let paths = paths.iter().map(|engine| engine as &dyn Engine);
    for engine in paths.chain([&ReferenceEngine as &dyn Engine]) {
        let mut out = vec![7; expected.len()];
        let mut operands = [Operand::In(&seeds), Operand::In(&INDICES), Operand::Out(&mut out)];
        engine.run(&program, &mut operands).unwrap();
        assert_eq!(out, expected, "{}", engine.name());
    }
}
