//! One step at a time, over batches, on one thread: ids `operation/engine/size`. `benches/README.md`
//! says what an item of each is.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::{sync::Arc, time::Duration};

use ciphergram_accel::{
    Builder, CpuEngine, Engine, Modulus, ModulusError, Operand, Program, Public, RunError, Secrecy,
    Secret, program::FixedBase,
};
use ciphergram_benches::{modulus, poly_program, residue_program, ring};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use rayon::ThreadPoolBuilder;

/// Bits of moduli: p² of keys of 2048 bits, and n² of keys of 2048 and 3072 bits.
const SIZES: [u32; 3] = [2048, 4096, 6144];
/// Numbers of one item of `product`.
const FACTORS: usize = 16;
/// Bases of one item of `dot`, and bits of its exponents.
const BASES: usize = 64;
const DOT_BITS: u32 = 16;

/// A step over a batch of so many items.
struct Kernel {
    operation: &'static str,
    program: Program,
    inputs: Vec<Input>,
    items: usize,
}

/// The words of an operand.
struct Input {
    words: Vec<u64>,
    secret: bool,
}

impl Kernel {
    fn run(&self, engine: &dyn Engine, out: &mut [u64]) -> Result<(), RunError> {
        let mut operands: Vec<_> = self
            .inputs
            .iter()
            .map(
                |Input { words, secret }| {
                    if *secret { Operand::SecretIn(words) } else { Operand::In(words) }
                },
            )
            .collect();
        operands.push(Operand::Out(out));
        engine.run(&self.program, &mut operands)
    }
}

/// Makes operands. Always the same ones: time may depend on those that are public.
struct Numbers {
    rng: ChaCha20Rng,
    modulus: Arc<Modulus>,
}

impl Numbers {
    fn words(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.rng.next_u64()).collect()
    }

    /// Numbers below the modulus, which lacks little to a power of two.
    fn residues(&mut self, count: usize) -> Input {
        let each = self.modulus.len_words();
        let mut words = self.words(count * each);
        words.chunks_mut(each).filter_map(<[u64]>::last_mut).for_each(|top| *top >>= 1);
        Input { words, secret: false }
    }

    /// Exponents of so many bits, a multiple of 64 or fewer.
    fn exponents<S: Secrecy>(&mut self, count: usize, bits: u32) -> Input {
        let mut words = self.words(count * bits.div_ceil(64) as usize);
        if bits < 64 {
            words.iter_mut().for_each(|word| *word >>= 64 - bits);
        }
        Input { words, secret: S::SECRET }
    }

    /// Numbers below the modulus, as their digits in the base that it is the square of.
    fn pairs(&mut self, count: usize) -> Input {
        let each = self.modulus.len_words() / 2;
        let mut words = self.words(2 * count * each);
        words.chunks_mut(each).filter_map(<[u64]>::last_mut).for_each(|top| *top >>= 1);
        Input { words, secret: false }
    }

    fn product(&mut self, operation: &'static str, montgomery: bool) -> Kernel {
        let items = 512;
        let mut b = Builder::new("bench");
        let (x, y) = (b.residues("x", &self.modulus), b.residues("y", &self.modulus));
        let z = if montgomery { b.mont_mul("z", x, y) } else { b.mul("z", x, y) };
        b.output(z);
        let inputs = vec![self.residues(items), self.residues(items)];
        Kernel { operation, program: b.build(), inputs, items }
    }

    fn pair_product(&mut self) -> Kernel {
        let items = 512;
        let mut b = Builder::new("bench");
        let (x, y) = (b.pairs("x", &self.modulus), b.pairs("y", &self.modulus));
        let z = b.pair_mul("z", x, y);
        b.output(z);
        let inputs = vec![self.pairs(items), self.pairs(items)];
        Kernel { operation: "pair_mul", program: b.build(), inputs, items }
    }

    fn product_of_many(&mut self) -> Kernel {
        let items = 64;
        let mut b = Builder::new("bench");
        let x = b.residue_rows("x", &self.modulus, FACTORS);
        let y = b.product("y", x);
        b.output(y);
        let inputs = vec![self.residues(items * FACTORS)];
        Kernel { operation: "product", program: b.build(), inputs, items }
    }

    fn power<S: Secrecy>(&mut self, operation: &'static str) -> Kernel {
        let (bits, items) = (self.modulus.bits() / 2, 16);
        let program = residue_program(&self.modulus, |b, x| {
            let e = b.exponents::<S>("e", bits);
            b.pow("y", x, e)
        });
        let inputs = vec![self.residues(items), self.exponents::<S>(items, bits)];
        Kernel { operation, program, inputs, items }
    }

    fn fixed_base(&mut self) -> Kernel {
        let (m, bits, items) = (self.modulus.clone(), self.modulus.bits() / 4, 128);
        let base = self.residues(1).words;
        let base = Arc::new(FixedBase::new("g", m, &base, bits));
        let mut b = Builder::new("bench");
        let e = b.exponents::<Secret>("e", bits);
        let y = b.pow_fixed_base("y", &base, e);
        b.output(y);
        let inputs = vec![self.exponents::<Secret>(items, bits)];
        Kernel { operation: "pow_fixed_base", program: b.build(), inputs, items }
    }

    fn dot(&mut self) -> Kernel {
        let items = 32;
        let mut b = Builder::new("bench");
        let x = b.shared_residues("x", &self.modulus, BASES);
        let e = b.exponent_rows::<Secret>("e", DOT_BITS, BASES);
        let y = b.dot("y", x, e);
        b.output(y);
        let exponents = self.exponents::<Secret>(items * BASES, DOT_BITS);
        let inputs = vec![self.residues(BASES), exponents];
        Kernel { operation: "dot", program: b.build(), inputs, items }
    }

    fn kernels(&mut self) -> [Kernel; 8] {
        [
            self.product("mont_mul", true),
            self.product("mul", false),
            self.pair_product(),
            self.product_of_many(),
            self.power::<Secret>("pow_secret"),
            self.power::<Public>("pow_public"),
            self.fixed_base(),
            self.dot(),
        ]
    }
}

/// Each path of the engine, by name.
fn paths() -> Vec<(&'static str, CpuEngine)> {
    let (fastest, portable) = (CpuEngine::new(), CpuEngine::portable());
    if fastest.describe() == portable.describe() {
        return vec![("cpu-portable", portable)];
    }
    vec![("cpu", fastest), ("cpu-portable", portable)]
}

/// The square of a number of all ones, of so many bits.
fn square(bits: u32) -> Result<Arc<Modulus>, ModulusError> {
    Modulus::square("m²", &modulus(bits / 2)).map(Arc::new)
}

fn residues(c: &mut Criterion) {
    if let Err(why) = ThreadPoolBuilder::new().num_threads(1).build_global() {
        return eprintln!("{why}");
    }
    let paths = paths();
    for bits in SIZES {
        let modulus = match square(bits) {
            Ok(modulus) => modulus,
            Err(why) => return eprintln!("{bits}: {why}"),
        };
        let rng = ChaCha20Rng::from_seed([1; 32]);
        for kernel in (Numbers { rng, modulus: modulus.clone() }).kernels() {
            let mut group = c.benchmark_group(kernel.operation);
            group.throughput(Throughput::Elements(kernel.items as u64));
            let mut out = vec![0; kernel.items * modulus.len_words()];
            for (name, engine) in &paths {
                if let Err(why) = kernel.run(engine, &mut out) {
                    eprintln!("{}/{name}/{bits}: {why}", kernel.operation);
                    continue;
                }
                group.bench_function(BenchmarkId::new(*name, bits), |bench| {
                    bench.iter(|| kernel.run(engine, &mut out));
                });
            }
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

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = residues, polynomials
}
criterion_main!(benches);
