//! One step at a time, on one item: ids `operation/engine/size`.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use ciphergram_accel::{CpuEngine, Engine, Operand};
use ciphergram_benches::{modulus, poly_program, pow_program, residue_program, ring};
use criterion::{Criterion, criterion_group, criterion_main};

fn residues(c: &mut Criterion) {
    let engine = CpuEngine::new();
    for bits in [2048, 4096, 6144, 8192] {
        let m = modulus(bits);
        let x = vec![0x1234_5678_9abc_def0; m.len_words()];
        let mut out = vec![0; m.len_words()];
        let mul = residue_program(&m, |b, x| b.mul("y", x, x));
        c.bench_function(&format!("mul/{}/{bits}", engine.name()), |bench| {
            bench.iter(|| engine.run(&mul, &mut [Operand::In(&x), Operand::Out(&mut out)]));
        });
        if bits > 4096 {
            continue;
        }
        let e = vec![u64::MAX; m.len_words()];
        for (name, secret) in [("pow_secret", true), ("pow_public", false)] {
            let pow = pow_program(&m, secret);
            c.bench_function(&format!("{name}/{}/{bits}", engine.name()), |bench| {
                bench.iter(|| {
                    let e = if secret { Operand::SecretIn(&e) } else { Operand::In(&e) };
                    engine.run(&pow, &mut [Operand::In(&x), e, Operand::Out(&mut out)])
                });
            });
        }
    }
}

fn polynomials(c: &mut Criterion) {
    let engine = CpuEngine::new();
    let ring = ring();
    let x = vec![12_345; ring.len_words()];
    let mut out = vec![0; ring.len_words()];
    let round_trip = poly_program(&ring, |b, x| {
        let t = b.ntt("t", x);
        b.intt("y", t)
    });
    let size = format!("{}x{}", ring.degree(), ring.primes().len());
    c.bench_function(&format!("ntt_intt/{}/{size}", engine.name()), |bench| {
        bench
            .iter(|| engine.run(&round_trip, &mut [Operand::SecretIn(&x), Operand::Out(&mut out)]));
    });
}

criterion_group!(benches, residues, polynomials);
criterion_main!(benches);
