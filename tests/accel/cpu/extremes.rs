//! Operands at the bounds that the kernels' proofs speak of.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, CpuEngine, Engine, Modulus, Operand, Program, ReferenceEngine, Ring,
    ring::largest_primes,
};

fn both(program: &Program, inputs: &[&[u64]], out_words: usize) {
    let run = |engine: &dyn Engine| {
        // Twice: one item alone may take another path.
        let mut out = vec![7; 2 * out_words];
        let inputs: Vec<_> = inputs.iter().map(|input| input.repeat(2)).collect();
        let mut operands: Vec<_> = inputs.iter().map(|w| Operand::In(w)).collect();
        operands.push(Operand::Out(&mut out));
        engine.run(program, &mut operands).unwrap();
        drop(operands);
        out
    };
    let expected = run(&ReferenceEngine);
    CpuEngine::paths().iter().for_each(|path| assert_eq!(run(path), expected, "{:?}", path.info()));
}

#[test]
fn products_of_the_largest_residues() {
    for k in [1, 2, 31, 32, 64, 128] {
        let ones = vec![u64::MAX; k];
        let mut sparse = vec![0; k];
        sparse[0] = 1;
        sparse[k - 1] |= if k == 1 { 2 } else { 1 };
        for words in [ones, sparse] {
            let m = Arc::new(Modulus::new("m", &words).unwrap());
            let mut largest = words.clone();
            largest[0] -= 1;
            let mut b = Builder::new("square");
            let x = b.residues("x", &m);
            let y = b.mul("y", x, x);
            let z = b.mul("z", y, x);
            b.output(z);
            both(&b.build(), &[&largest], k);
        }
    }
}

#[test]
fn polynomials_of_the_largest_coefficients() {
    let ring = Arc::new(Ring::new(256, &largest_primes(50, 256, 2)).unwrap());
    let poly: Vec<u64> = ring.primes().iter().flat_map(|&q| vec![q - 1; 256]).collect();
    let mut b = Builder::new("square");
    let a = b.coefficients("a", &ring);
    let t = b.ntt("t", a);
    let square = b.poly_mul("t²", t, t);
    let back = b.intt("back", square);
    let sum = b.add("sum", back, a);
    let integers = b.compose("integers", sum);
    b.output(integers);
    both(&b.build(), &[&poly], 512);
    let mut b = Builder::new("lift");
    let x = b.integers("x", 512);
    let lifted = b.lift("lifted", &ring, x);
    b.output(lifted);
    both(&b.build(), &[&[u64::MAX; 512]], 512);
}

#[test]
fn the_larger_ring_there_and_back() {
    let ring = Arc::new(Ring::new(8192, &largest_primes(50, 8192, 4)).unwrap());
    let poly: Vec<u64> = ring
        .primes()
        .iter()
        .flat_map(|&q| (0..8192u64).map(move |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % q))
        .collect();
    let mut b = Builder::new("there and back");
    let a = b.coefficients("a", &ring);
    let t = b.ntt("t", a);
    let back = b.intt("back", t);
    b.output(back);
    let program = b.build();
    for engine in CpuEngine::paths() {
        let mut out = vec![0; poly.len()];
        engine.run(&program, &mut [Operand::In(&poly), Operand::Out(&mut out)]).unwrap();
        assert!(out == poly, "{:?}", engine.info());
    }
}

#[test]
#[should_panic(expected = "an output is the result of a step")]
fn an_input_is_no_output() {
    let m = Arc::new(Modulus::new("m", &[97]).unwrap());
    let mut b = Builder::new("nothing");
    let x = b.residues("x", &m);
    b.output(x);
}

#[test]
#[should_panic(expected = "one residue an item")]
fn rows_are_for_products() {
    let m = Arc::new(Modulus::new("m", &[97]).unwrap());
    let mut b = Builder::new("rows");
    let x = b.residue_rows("x", &m, 2);
    let _ = b.mul("y", x, x);
}
