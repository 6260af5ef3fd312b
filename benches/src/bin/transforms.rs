//! The transforms of `tfhe-ntt` beside ours, by
//! `cargo run --release -p ciphergram-benches --features peers --bin transforms`.
//!
//! A transform or its inverse, in turn, of one polynomial modulo one prime of 50 bits that stays in a cache, in
//! thousands a second: the fastest of some runs, in turn. Its inverse leaves out the division by N, which ours
//! includes.

use std::time::Instant;

use ciphergram_accel::{Builder, CpuEngine, Engine as _, Operand, Ring, ring::largest_primes};
use ciphergram_benches::Failure;

/// Transforms of a run, and runs.
const TRANSFORMS: usize = 32;
const RUNS: usize = 2_000;

fn main() -> Result<(), Failure> {
    for degree in [4096, 8192, 16_384, 32_768] {
        let primes = largest_primes(50, degree, 1);
        let mut b = Builder::new("transforms");
        let x = b.coefficients("x", &Ring::new(degree, &primes)?.into());
        let y = (0..TRANSFORMS / 2).fold(x, |x, _| {
            let t = b.ntt("t", x);
            b.intt("x", t)
        });
        b.output(y);
        let (program, engine) = (b.build(), CpuEngine::new());
        let plan = tfhe_ntt::prime64::Plan::try_new(degree, primes[0]).ok_or("no plan")?;
        let mut words: Vec<_> = (0..degree as u64).map(|i| i * i).collect();
        let (input, mut out) = (words.clone(), vec![0; degree]);
        let mut best = [f64::INFINITY; 2];
        for _ in 0..RUNS {
            let begin = Instant::now();
            engine.run(&program, &mut [Operand::SecretIn(&input), Operand::Out(&mut out)])?;
            best[0] = best[0].min(begin.elapsed().as_secs_f64());
            let begin = Instant::now();
            for _ in 0..TRANSFORMS / 2 {
                plan.fwd(&mut words);
                plan.inv(&mut words);
            }
            best[1] = best[1].min(begin.elapsed().as_secs_f64());
        }
        let [ours, theirs] = best.map(|seconds| TRANSFORMS as f64 / seconds / 1e3);
        println!("{degree:>6}  ours {ours:6.1} k/s, tfhe-ntt {theirs:6.1} k/s");
    }
    Ok(())
}
