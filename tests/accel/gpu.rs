//! The suite over the GPU engine with every prelude that the adapter can take.

use std::sync::{Once, OnceLock};

use ciphergram_accel::{
    Engine, GpuEngine, Info,
    gpu::{GpuError, Prelude},
};

type Shared = OnceLock<Result<GpuEngine, GpuError>>;

/// One engine for all tests: to make its pipelines takes nearly all of their time. It says what it
/// runs on.
fn shared(
    engine: &'static Shared,
    open: fn() -> Result<GpuEngine, GpuError>,
) -> Option<&'static GpuEngine> {
    let opened = engine.get_or_init(|| {
        let opened = open();
        match &opened {
            Ok(engine) => println!("on {}", engine.info().description),
            Err(why) => println!("{why}"),
        }
        opened
    });
    opened.as_ref().ok()
}

/// With the prelude that suits the adapter.
fn native() -> Option<&'static GpuEngine> {
    static ENGINE: Shared = OnceLock::new();
    shared(&ENGINE, GpuEngine::new)
}

/// With the other one, where the adapter can take both.
fn split() -> Option<&'static GpuEngine> {
    static ENGINE: Shared = OnceLock::new();
    native().filter(|engine| engine.prelude() == Prelude::Native)?;
    shared(&ENGINE, GpuEngine::split)
}

fn skipped() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| println!("SKIPPED, no GPU adapter takes this prelude"));
}

/// The suite with the prelude that suits the adapter, which the library's own tests run over dirty memory.
mod usual {
    use super::*;

    fn with(case: fn(&dyn Engine)) {
        native().map_or_else(skipped, |engine| case(engine));
    }

    ciphergram_accel::conformance!(
        over: with,
        without: ["first_bad_lane", "add_lanes", "reduce_lanes"]
    );
}

/// The suite with the other prelude.
mod split {
    use super::*;

    fn with(case: fn(&dyn Engine)) {
        split().map_or_else(skipped, |engine| case(engine));
    }

    ciphergram_accel::conformance!(
        over: with,
        without: ["first_bad_lane", "add_lanes", "reduce_lanes"]
    );
}

/// Transforms of every degree that parameter sets have, beside the CPU engine: too large for the
/// oracle.
mod large_rings {
    use std::sync::Arc;

    use ciphergram_accel::{Builder, CpuEngine, Operand, Ring, ring::largest_primes};
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    fn agree(engine: &dyn Engine) {
        let mut random = ChaCha20Rng::seed_from_u64(23);
        for degree in (10..=16).map(|log| 1 << log) {
            let ring = Arc::new(Ring::new(degree, &largest_primes(50, degree, 2)).unwrap());
            let mut b = Builder::new("there and back");
            let x = b.coefficients("x", &ring);
            let t = b.ntt("t", x);
            let square = b.poly_mul("t²", t, t);
            let back = b.intt("back", square);
            b.output(t);
            b.output(back);
            let program = b.build();
            let x: Vec<_> = (0..3 * degree)
                .flat_map(|_| ring.primes().iter().map(|q| q - 1).collect::<Vec<_>>())
                .map(|most| random.next_u64() % most)
                .collect();
            let run = |engine: &dyn Engine| {
                let (mut t, mut back) = (vec![0; x.len()], vec![0; x.len()]);
                let operands =
                    &mut [Operand::SecretIn(&x), Operand::Out(&mut t), Operand::Out(&mut back)];
                engine.run(&program, operands).unwrap();
                (t, back)
            };
            assert!(run(engine) == run(&CpuEngine::new()), "degree {degree}");
        }
    }

    #[test]
    fn transforms() {
        if native().is_none() {
            return skipped();
        }
        native().into_iter().chain(split()).for_each(|engine| agree(engine));
    }
}

/// Programs of more rounds than one dispatch takes, over batches that one part of device memory
/// does not.
mod long {
    use std::sync::Arc;

    use ciphergram_accel::{
        Builder, CpuEngine, Modulus, Operand, Program, Public, Secret, program::FixedBase,
    };
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    /// Words of a modulus whose kernels the suite needs as well.
    const WORDS: usize = 32;

    fn words(random: &mut ChaCha20Rng, count: usize) -> Vec<u64> {
        (0..count).map(|_| random.next_u64()).collect()
    }

    /// An odd modulus of 2048 bits, the highest of them set, and numbers below it.
    fn modulus(random: &mut ChaCha20Rng) -> Arc<Modulus> {
        let mut m = words(random, WORDS);
        m[0] |= 1;
        m[WORDS - 1] |= 1 << 63;
        Arc::new(Modulus::new("m", &m).unwrap())
    }

    fn residues(random: &mut ChaCha20Rng, count: usize) -> Vec<u64> {
        let mut x = words(random, WORDS * count);
        x.chunks_mut(WORDS).for_each(|x| x[WORDS - 1] >>= 1);
        x
    }

    /// The square of 2^1024 − 1: digits of its residues are as large as their limbs can hold
    /// lazily.
    fn square() -> Arc<Modulus> {
        let root = Arc::new(Modulus::new("s", &[u64::MAX; WORDS / 2]).unwrap());
        Arc::new(Modulus::square("s²", &root).unwrap())
    }

    /// One engine after the other: both at once would take twice the memory.
    fn agree(program: &Program, inputs: &[Operand<'_>], out_words: usize) {
        if native().is_none() {
            return skipped();
        }
        let expected = run(&CpuEngine::new(), program, inputs, out_words);
        for gpu in native().into_iter().chain(split()) {
            let found = run(gpu, program, inputs, out_words);
            assert!(found == expected, "{} on {}", program.name(), gpu.info().description);
        }
    }

    fn run(
        engine: &dyn Engine,
        program: &Program,
        inputs: &[Operand<'_>],
        out_words: usize,
    ) -> Vec<u64> {
        let mut out = vec![0; out_words];
        let mut operands: Vec<_> = inputs
            .iter()
            .map(|operand| match operand {
                Operand::In(words) => Operand::In(words),
                Operand::SecretIn(words) => Operand::SecretIn(words),
                _ => panic!("inputs alone"),
            })
            .collect();
        operands.push(Operand::Out(&mut out));
        engine.run(program, &mut operands).unwrap();
        drop(operands);
        out
    }

    #[test]
    fn powers() {
        let mut random = ChaCha20Rng::seed_from_u64(21);
        let m = modulus(&mut random);
        powers_modulo(&m, &mut random);
    }

    #[test]
    fn powers_of_pairs() {
        powers_modulo(&square(), &mut ChaCha20Rng::seed_from_u64(24));
    }

    fn powers_modulo(m: &Arc<Modulus>, random: &mut ChaCha20Rng) {
        let base = residues(random, 1);
        let fixed = Arc::new(FixedBase::new("base", m.clone(), &base, 8192));
        let mut b = Builder::new("long powers");
        let (x, e) = (b.residues("x", m), b.exponents::<Secret>("e", 1024));
        let long = b.exponents::<Secret>("long", 8192);
        let power = b.pow("power", x, e);
        let fixed = b.pow_fixed_base("fixed", &fixed, long);
        let both = b.mul("both", power, fixed);
        b.output(both);
        let (mut x, e) = (residues(random, 3), words(random, 16 * 3));
        // Of the last item m − 1.
        x[2 * WORDS..].copy_from_slice(m.words());
        x[2 * WORDS] -= 1;
        let long = words(random, 128 * 3);
        let inputs = [Operand::In(&x), Operand::SecretIn(&e), Operand::SecretIn(&long)];
        agree(&b.build(), &inputs, WORDS * 3);
    }

    #[test]
    fn products() {
        let mut random = ChaCha20Rng::seed_from_u64(22);
        let m = modulus(&mut random);
        let small = Arc::new(Modulus::new("small", &[u64::MAX; 8]).unwrap());
        // Few items, in groups that are even and that are not; and many items, of which each is
        // done in turn, in more rounds than the 3276 of 10 turns each that fit a dispatch.
        let cases = [(&m, WORDS, 512, 3), (&m, WORDS, 1000, 2), (&small, 8, 3281, 65)];
        for (m, each, rows, count) in cases {
            let mut b = Builder::new("long product");
            let x = b.residue_rows("x", m, rows);
            let z = b.product("z", x);
            b.output(z);
            let mut x = words(&mut random, each * count * rows);
            x.chunks_mut(each).for_each(|x| x[each - 1] >>= 1);
            agree(&b.build(), &[Operand::In(&x)], each * count);
        }
        let mut b = Builder::new("long dot");
        let x = b.shared_residues("x", &m, 300);
        let e = b.exponent_rows::<Public>("e", 64, 300);
        let z = b.dot("z", x, e);
        b.output(z);
        let (x, e) = (residues(&mut random, 300), words(&mut random, 300 * 5));
        agree(&b.build(), &[Operand::In(&x), Operand::In(&e)], WORDS * 5);
    }

    /// Wide digits of small numbers: the turns of a dispatch are those over entries of tables.
    #[test]
    fn tables_of_many_entries() {
        let mut random = ChaCha20Rng::seed_from_u64(24);
        let root = Arc::new(Modulus::new("s", &[u64::MAX; 12]).unwrap());
        let m = Arc::new(Modulus::square("s²", &root).unwrap());
        let (rows, count) = (130, 64);
        let mut b = Builder::new("wide dot");
        let x = b.shared_residues("x", &m, rows);
        let e = b.exponent_rows::<Secret>("e", 64, rows);
        let z = b.dot("z", x, e);
        b.output(z);
        let mut x = words(&mut random, 24 * rows);
        x.chunks_mut(24).for_each(|x| x[23] >>= 1);
        let e = words(&mut random, rows * count);
        agree(&b.build(), &[Operand::In(&x), Operand::SecretIn(&e)], 24 * count);
    }
}

/// An engine that measures, over the adapter and the CPU: the same bits while it learns and after.
mod auto {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use ciphergram_accel::{
        Builder, CpuEngine, Modulus, Operand, Program, ReferenceEngine, Ring, RunError, Scheduler,
        Secret, ring::largest_primes,
    };
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    /// The adapter, and the parts of batches that it ran.
    struct Counted(&'static GpuEngine, Arc<AtomicUsize>);

    impl Engine for Counted {
        fn name(&self) -> &'static str {
            self.0.name()
        }

        fn info(&self) -> Info {
            self.0.info()
        }

        fn supports(&self, step: &str) -> bool {
            self.0.supports(step)
        }

        fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
            self.1.fetch_add(1, Relaxed);
            self.0.run(program, operands)
        }
    }

    /// Runs batches of up to `most` items: see [`agrees_beside`]. The oracle in the CPU's place, a
    /// slow one, leaves more of them to the adapter.
    fn agrees(program: &Program, most: usize, each: [usize; 2], bits: u32) {
        agrees_beside(Arc::new(CpuEngine::new()), program, most, each, bits);
        agrees_beside(Arc::new(ReferenceEngine), program, most, each, bits);
    }

    /// Runs over inputs of `each` words each, all numbers below 2^`bits`; a copy of the first is
    /// added to, if the program updates it.
    fn agrees_beside(
        cpu: Arc<dyn Engine>,
        program: &Program,
        most: usize,
        each: [usize; 2],
        bits: u32,
    ) {
        let Some(gpu) = native() else { return skipped() };
        let beside = cpu.name();
        let parts = Arc::new(AtomicUsize::new(0));
        let counted = parts.clone();
        let open = move || Some(Arc::new(Counted(gpu, counted.clone())) as Arc<dyn Engine>);
        let auto = Scheduler::measuring(cpu, open, |event| println!("{event:?}")).after(0.0);
        let mut random = ChaCha20Rng::seed_from_u64(31);
        let sizes = [most, most, most / 3, 1, most, 0];
        for (run, n) in sizes.into_iter().cycle().take(30).enumerate() {
            let [x, y] = each.map(|each| {
                let random = (0..each * n).map(|_| random.next_u64() >> (64 - bits));
                random.collect::<Vec<_>>()
            });
            let [found, expected] = [&auto as &dyn Engine, &CpuEngine::new()].map(|engine| {
                let (mut sum, mut out) = (x.clone(), vec![0; x.len()]);
                let mut operands = match program.updates() {
                    [] => vec![Operand::SecretIn(&x)],
                    _ => vec![Operand::InOut(&mut sum)],
                };
                operands.extend([Operand::SecretIn(&y), Operand::Out(&mut out)]);
                engine.run(program, &mut operands).unwrap();
                drop(operands);
                [sum, out]
            });
            assert!(found == expected, "{}, run {run} of {n} items", program.name());
        }
        // Five to learn what a run costs.
        let parts = parts.load(Relaxed).saturating_sub(5);
        println!("{}: {parts} parts on the adapter beside {beside}", program.name());
        assert!(
            parts > 0 || beside == "cpu",
            "{}: an adapter is quicker than the oracle",
            program.name()
        );
    }

    /// As Paillier masks: a power modulo a square, and a sum of ciphertexts.
    #[test]
    fn residues() {
        let mut random = ChaCha20Rng::seed_from_u64(30);
        let mut n: Vec<_> = (0..16).map(|_| random.next_u64()).collect();
        (n[0], n[15]) = (n[0] | 1, n[15] | 1 << 63);
        let n = Arc::new(Modulus::new("n", &n).unwrap());
        let square = Arc::new(Modulus::square("n²", &n).unwrap());
        let mut b = Builder::new("auto.residues");
        let (sum, e) = (b.residue_sums("sum", &square), b.exponents::<Secret>("e", 32));
        let power = b.pow("power", sum, e);
        let product = b.mul("product", sum, power);
        b.update(sum, product);
        b.output(power);
        agrees(&b.build(), 32, [32, 1], 32);
    }

    /// As `ckks-sum` encrypts: a polynomial times another one, plus the first.
    #[test]
    fn polynomials() {
        let ring = Arc::new(Ring::new(256, &largest_primes(50, 256, 2)).unwrap());
        let mut b = Builder::new("auto.polynomials");
        let (x, y) = (b.coefficients("x", &ring), b.coefficients("y", &ring));
        let (u, v) = (b.ntt("ntt x", x), b.ntt("ntt y", y));
        let product = b.poly_mul("product", u, v);
        let sum = b.add("sum", product, u);
        let z = b.intt("z", sum);
        b.output(z);
        agrees(&b.build(), 64, [ring.len_words(), ring.len_words()], 49);
    }
}
