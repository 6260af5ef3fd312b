//! Memory that runs ask for: none, once a thread has run a program of that size.

#![allow(unsafe_code, reason = "an allocator that counts")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
};

use ciphergram_accel::{Builder, CpuEngine, Engine as _, Operand, Ring, ring::largest_primes};

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts how often a thread asks it.
struct Counting;

// SAFETY: the system's allocator does everything.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Over public and over secret polynomials, on every path.
#[test]
fn a_warm_run_allocates_nothing() {
    let ring = Arc::new(Ring::new(4096, &largest_primes(50, 4096, 3)).unwrap());
    let first = Arc::new(ring.limbs(0, 1));
    for engine in CpuEngine::paths() {
        let mut b = Builder::new("product");
        let (x, y) = (b.polys("x", &ring), b.coefficients("y", &ring));
        let t = b.ntt("t", y);
        let sum = b.mul_sum("sum", &[(x, t), (t, t)]);
        let back = b.intt("back", sum);
        let part = b.limbs("part", back, &first);
        let extended = b.base_extend("extended", part, &ring);
        b.output(extended);
        let program = b.build();
        let (x, y) = (vec![1; ring.len_words()], vec![2; ring.len_words()]);
        let mut out = vec![0; ring.len_words()];
        let mut run = || {
            let operands = &mut [Operand::In(&x), Operand::SecretIn(&y), Operand::Out(&mut out)];
            engine.run(&program, operands).unwrap();
        };
        run();
        let before = ASKED.get();
        assert!(before > 0, "the allocator counts");
        (0..3).for_each(|_| run());
        assert_eq!(ASKED.get() - before, 0, "{}", engine.info().description);
    }
}
