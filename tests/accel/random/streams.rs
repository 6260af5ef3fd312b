//! The polynomials that seeds and noise keys name, against an implementation of ChaCha8 and ChaCha20 that
//! shares no code with ours: these values are on the wire of every seed, and no change of a library
//! may change them.
//!
//! Made by a few lines of Python after D. J. Bernstein's "ChaCha, a variant of Salsa20" (2008),
//! with the 64-bit block counter and the 64-bit stream number of that paper; blocks read as lanes
//! of 51 bits where residues are drawn. Key: bytes 0, 1, …, 31.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, CpuEngine, Engine, Operand, ReferenceEngine, Ring, polys, ring::largest_primes,
};

const INDICES: [u64; 3] = [0, 1, u64::MAX];

/// For each index: coefficients 0, 1 and 4095 of limb 0, then 0 and 4095 of limb 1.
const UNIFORM: [[u64; 5]; 3] = [
    [
        864_690_996_647_232,
        196_572_322_077_302,
        318_201_808_273_654,
        336_866_080_429_108,
        221_638_886_118_913,
    ],
    [
        794_920_853_817_167,
        769_086_965_429_776,
        145_508_048_249_556,
        1_025_711_760_099_695,
        650_199_657_600_271,
    ],
    [
        1_056_331_211_497_243,
        606_517_886_511_307,
        408_721_699_749_814,
        971_549_257_588_356,
        225_249_120_775_852,
    ],
];

/// For each index: the first six coefficients, the last, their sum, and the sum of their squares.
const NOISE: [([i64; 6], i64, i64, i64); 3] = [
    ([1, 2, -5, 2, -2, 2], 0, -155, 43_931),
    ([4, -4, 2, 5, 5, -2], -1, -352, 43_114),
    ([-2, -1, 2, -5, 6, -2], 0, -32, 40_934),
];

/// For each index: the first twelve coefficients, and how many are −1, 0 and 1.
const TERNARY: [([i64; 12], [usize; 3]); 3] = [
    ([0, -1, 1, 0, 1, 0, -1, -1, 1, -1, 0, 0], [1420, 1315, 1361]),
    ([0, 1, 0, 0, 1, 1, -1, -1, -1, 0, 1, 0], [1388, 1386, 1322]),
    ([0, 1, 1, 0, 1, -1, 1, -1, -1, 0, -1, -1], [1367, 1384, 1345]),
];

fn ring() -> Arc<Ring> {
    let primes = largest_primes(50, 4096, 2);
    assert_eq!(primes, [1_125_899_906_826_241, 1_125_899_906_629_633]);
    Arc::new(Ring::new(4096, &primes).unwrap())
}

fn key() -> Vec<u64> {
    let bytes: Vec<u8> = (0..32).collect();
    bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect()
}

fn engines() -> [Box<dyn Engine>; 2] {
    [Box::new(CpuEngine::new()), Box::new(ReferenceEngine)]
}

#[test]
fn uniform_polynomials_are_those_of_the_standard() {
    let ring = ring();
    let mut b = Builder::new("uniform");
    let (seeds, index) = (b.seeds("seeds", 1), b.index("index"));
    let a = b.uniform("a", &ring, seeds, index);
    b.output(a);
    let program = b.build();
    for engine in engines() {
        let mut out = polys::Polys::<ciphergram_accel::program::Ntt>::zeros(ring.clone(), 3);
        let (indices, key) = (INDICES, key());
        let mut operands =
            [Operand::In(&key), Operand::In(&indices), Operand::Out(out.words_mut())];
        engine.run(&program, &mut operands).unwrap();
        for (poly, expected) in out.words().chunks(8192).zip(UNIFORM) {
            assert_eq!([poly[0], poly[1], poly[4095], poly[4096], poly[8191]], expected);
        }
    }
}

#[test]
fn noise_is_that_of_the_standard() {
    let ring = ring();
    let mut b = Builder::new("noise");
    let (seed, index) = (b.secret_seed("key"), b.index("index"));
    let e = b.noise("e", &ring, seed, index);
    b.output(e);
    let program = b.build();
    for engine in engines() {
        let mut out = vec![0; 3 * 8192];
        let (indices, key) = (INDICES, key());
        let mut operands = [Operand::SecretIn(&key), Operand::In(&indices), Operand::Out(&mut out)];
        engine.run(&program, &mut operands).unwrap();
        for (poly, (first, last, sum, squares)) in out.chunks(8192).zip(NOISE) {
            let signed = |limb: usize| -> Vec<i64> {
                let q = ring.primes()[limb] as i64;
                let centre = |&x: &u64| if x as i64 > q / 2 { x as i64 - q } else { x as i64 };
                poly[limb * 4096..][..4096].iter().map(centre).collect()
            };
            let e = signed(0);
            assert_eq!(e, signed(1), "the same in every limb");
            assert_eq!((&e[..6], e[4095]), (&first[..], last));
            assert_eq!(e.iter().sum::<i64>(), sum);
            assert_eq!(e.iter().map(|x| x * x).sum::<i64>(), squares);
        }
    }
}

#[test]
fn ternary_polynomials_are_those_of_the_standard() {
    let ring = ring();
    let mut b = Builder::new("ternary");
    let (seed, index) = (b.secret_seed("key"), b.index("index"));
    let u = b.ternary("u", &ring, seed, index);
    b.output(u);
    let program = b.build();
    for engine in engines() {
        let mut out = vec![0; 3 * 8192];
        let (indices, key) = (INDICES, key());
        let mut operands = [Operand::SecretIn(&key), Operand::In(&indices), Operand::Out(&mut out)];
        engine.run(&program, &mut operands).unwrap();
        for (poly, (first, counts)) in out.chunks(8192).zip(TERNARY) {
            let digits = |limb: usize| -> Vec<i64> {
                let q = ring.primes()[limb];
                let digit = |&x: &u64| if x == q - 1 { -1 } else { x as i64 };
                poly[limb * 4096..][..4096].iter().map(digit).collect()
            };
            let u = digits(0);
            assert_eq!(u, digits(1), "the same in every limb");
            assert_eq!(u[..12], first);
            let count = |digit: i64| u.iter().filter(|&&x| x == digit).count();
            assert_eq!([-1, 0, 1].map(count), counts, "and nothing else");
        }
    }
}
