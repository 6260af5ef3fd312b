//! Draws that are rejected in the middle of polynomials, for several seeds at once: each is drawn again alone, and
//! nothing else moves.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, CpuEngine, Engine, Operand, ReferenceEngine, Ring, beats, ring::largest_primes,
};
use rand_chacha::{ChaCha8Rng, ChaCha20Rng};
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

/// Returns the polynomial of one seed by its definition, and the number of residues that were drawn a second time.
fn draw(ring: &Ring, seed: &[u64], index: u64) -> (Vec<u64>, usize) {
    let mut bytes = [0; 32];
    let words = bytes.as_chunks_mut().0.iter_mut().zip(seed);
    words.for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    let block = |number: u64| -> [u64; beats::WORDS] {
        let mut rng = ChaCha8Rng::from_seed(bytes);
        rng.set_stream(index);
        rng.set_word_pos(16 * u128::from(number));
        std::array::from_fn(|_| rng.next_u64())
    };
    let mut second = 0;
    let residue = |place: usize| {
        let (q, lane) = (ring.primes()[place / DEGREE], place % RUN / BLOCKS);
        let first = block((place / RUN * BLOCKS + place % BLOCKS) as u64);
        let draw = beats::lane(&first, lane) & (q.next_power_of_two() - 1);
        if draw < q {
            return draw;
        }
        second += 1;
        let [low, high, ..] = block((1 << 32) + place as u64).map(u128::from);
        ((low + (high << 64)) % u128::from(q)) as u64
    };
    ((0..ring.len_words()).map(residue).collect(), second)
}

#[test]
fn a_rejected_draw_is_drawn_again_alone() {
    let ring = ring();
    let mut random = ChaCha20Rng::seed_from_u64(3);
    let seeds: Vec<u64> = (0..4 * SEEDS).map(|_| random.next_u64()).collect();
    let mut expected = vec![];
    let mut second = vec![];
    for index in INDICES {
        let mut sum = vec![0; ring.len_words()];
        for seed in seeds.chunks(4) {
            let (residues, drawn) = draw(&ring, seed, index);
            let limbs = sum.chunks_mut(DEGREE).zip(residues.chunks(DEGREE)).zip(ring.primes());
            for ((sum, residues), q) in limbs {
                sum.iter_mut().zip(residues).for_each(|(s, r)| *s = (*s + r) % q);
            }
            second.push(drawn);
        }
        expected.extend(sum);
    }
    assert!(second.iter().all(|&count| count >= 2), "{second:?}");

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
