//! One step at a time, over batches, on one thread: ids `operation/engine/size`. `benches/README.md`
//! says what an item of each is.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::{sync::Arc, time::Duration};

use ciphergram_accel::{
    Builder, CpuEngine, Engine, Modulus, ModulusError, Operand, Program, Public, Ring, RunError,
    Secrecy, Secret, beats,
    program::{Coeff, FixedBase, Var},
    ring::largest_primes,
};
use ciphergram_benches::{modulus, residue_program, ring};
use ciphergram_he::{Operation, Scheme, SecretKey, params::Literal};
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
/// Polynomials of a batch, and contributors to a sum of `ckks-sum`.
const POLYNOMIALS: usize = 16;
const CONTRIBUTORS: usize = 10;

/// Ring degrees of transforms, bits of their prime, and transforms of one item: there and back.
const DEGREES: [usize; 4] = [4096, 8192, 16_384, 32_768];
const PRIME_BITS: u32 = 50;
const TRANSFORMS: usize = 32;

/// A step, and the items of the batch that it runs over.
struct Kernel {
    operation: &'static str,
    program: Arc<Program>,
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

    /// Draws numbers below the modulus, which lacks little to a power of two.
    fn residues(&mut self, count: usize) -> Input {
        let each = self.modulus.len_words();
        let mut words = self.words(count * each);
        words.chunks_mut(each).filter_map(<[u64]>::last_mut).for_each(|top| *top >>= 1);
        Input { words, secret: false }
    }

    /// Draws exponents of `bits` bits, a multiple of 64 or fewer.
    fn exponents<S: Secrecy>(&mut self, count: usize, bits: u32) -> Input {
        let mut words = self.words(count * bits.div_ceil(64) as usize);
        if bits < 64 {
            words.iter_mut().for_each(|word| *word >>= 64 - bits);
        }
        Input { words, secret: S::SECRET }
    }

    /// Draws numbers below the modulus, as their digits in the base that it is the square of.
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
        Kernel { operation, program: b.build().into(), inputs, items }
    }

    fn pair_product(&mut self) -> Kernel {
        let items = 512;
        let mut b = Builder::new("bench");
        let (x, y) = (b.pairs("x", &self.modulus), b.pairs("y", &self.modulus));
        let z = b.pair_mul("z", x, y);
        b.output(z);
        let inputs = vec![self.pairs(items), self.pairs(items)];
        Kernel { operation: "pair_mul", program: b.build().into(), inputs, items }
    }

    fn product_of_many(&mut self) -> Kernel {
        let items = 64;
        let mut b = Builder::new("bench");
        let x = b.residue_rows("x", &self.modulus, FACTORS);
        let y = b.product("y", x);
        b.output(y);
        let inputs = vec![self.residues(items * FACTORS)];
        Kernel { operation: "product", program: b.build().into(), inputs, items }
    }

    fn power<S: Secrecy>(&mut self, operation: &'static str) -> Kernel {
        let (bits, items) = (self.modulus.bits() / 2, 16);
        let program = residue_program(&self.modulus, |b, x| {
            let e = b.exponents::<S>("e", bits);
            b.pow("y", x, e)
        });
        let inputs = vec![self.residues(items), self.exponents::<S>(items, bits)];
        Kernel { operation, program: program.into(), inputs, items }
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
        Kernel { operation: "pow_fixed_base", program: b.build().into(), inputs, items }
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
        Kernel { operation: "dot", program: b.build().into(), inputs, items }
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

/// Returns each path of the engine, by name.
fn paths() -> Vec<(&'static str, CpuEngine)> {
    let (fastest, portable) = (CpuEngine::new(), CpuEngine::portable());
    if fastest.info() == portable.info() {
        return vec![("cpu-portable", portable)];
    }
    vec![("cpu", fastest), ("cpu-portable", portable)]
}

/// Returns the square, of `bits` bits, of a number of all ones.
fn square(bits: u32) -> Result<Arc<Modulus>, ModulusError> {
    Modulus::square("m²", &modulus(bits / 2)).map(Arc::new)
}

fn measure(c: &mut Criterion, paths: &[(&str, CpuEngine)], kernel: &Kernel, size: &str) {
    let each = kernel.program.values()[kernel.program.outputs()[0]].kind.words();
    let mut out = vec![0; kernel.items * each];
    let mut group = c.benchmark_group(kernel.operation);
    group.throughput(Throughput::Elements(kernel.items as u64));
    for (name, engine) in paths {
        if let Err(why) = kernel.run(engine, &mut out) {
            eprintln!("{}/{name}/{size}: {why}", kernel.operation);
            continue;
        }
        group.bench_function(BenchmarkId::new(*name, size), |bench| {
            bench.iter(|| kernel.run(engine, &mut out));
        });
    }
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
            measure(c, &paths, &kernel, &bits.to_string());
        }
    }
}

/// Makes operands of polynomials, and the steps and programs of `ckks-sum` over them.
struct Polynomials {
    rng: ChaCha20Rng,
    ring: Arc<Ring>,
    key: SecretKey,
}

impl Polynomials {
    fn words(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.rng.next_u64()).collect()
    }

    /// Draws numbers below both primes, which lack little to 2^50.
    fn residues(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.rng.next_u64() >> 15).collect()
    }

    /// Draws `each` beats for each polynomial.
    fn beats(&mut self, each: usize) -> Input {
        let mut words = vec![0; POLYNOMIALS * each * beats::WORDS];
        for beat in words.chunks_mut(beats::WORDS) {
            for (lane, value) in self.residues(beats::LANES).into_iter().enumerate() {
                beats::set_lane(beat, lane, value);
            }
        }
        Input { words, secret: false }
    }

    fn indices() -> Input {
        Input { words: (0..POLYNOMIALS as u64).collect(), secret: false }
    }

    fn seeds(&mut self, count: usize, secret: bool) -> Input {
        Input { words: self.words(4 * count), secret }
    }

    /// Builds a step on secret coefficients.
    fn step<T>(
        &mut self,
        operation: &'static str,
        step: impl FnOnce(&mut Builder, Var<Coeff>) -> Var<T>,
    ) -> Kernel {
        let mut b = Builder::new("bench");
        let x = b.coefficients("x", &self.ring);
        let y = step(&mut b, x);
        b.output(y);
        let words = self.residues(POLYNOMIALS * self.ring.len_words());
        let inputs = vec![Input { words, secret: true }];
        Kernel { operation, program: b.build().into(), inputs, items: POLYNOMIALS }
    }

    /// Builds the sum of uniform polynomials of ten contributors.
    fn uniform(&mut self) -> Kernel {
        let mut b = Builder::new("bench");
        let (index, seeds) = (b.index("index"), b.seeds("seeds", CONTRIBUTORS));
        let a = b.uniform("a", &self.ring, seeds, index);
        b.output(a);
        let inputs = vec![Self::indices(), self.seeds(CONTRIBUTORS, false)];
        Kernel { operation: "uniform", program: b.build().into(), inputs, items: POLYNOMIALS }
    }

    fn noise(&mut self) -> Kernel {
        let mut b = Builder::new("bench");
        let (index, key) = (b.index("index"), b.secret_seed("key"));
        let e = b.noise("e", &self.ring, key, index);
        b.output(e);
        let inputs = vec![Self::indices(), self.seeds(1, true)];
        Kernel { operation: "noise", program: b.build().into(), inputs, items: POLYNOMIALS }
    }

    fn add_beats(&mut self) -> Kernel {
        let count = self.beats_each();
        let mut b = Builder::new("bench");
        let (x, y) = (b.beats("x", &self.ring, count), b.beats("y", &self.ring, count));
        let z = b.add_beats("z", x, y);
        b.output(z);
        let inputs = vec![self.beats(count), self.beats(count)];
        Kernel { operation: "add_beats", program: b.build().into(), inputs, items: POLYNOMIALS }
    }

    /// Returns the beats of a whole polynomial.
    fn beats_each(&self) -> usize {
        self.ring.len_words() / beats::LANES
    }

    /// Builds the programs that a contribution and a sum of ten go through.
    fn programs(&mut self) -> Vec<Kernel> {
        let parameters = self.key.public().parameters();
        let program = |operation| self.key.program(operation, &CpuEngine::new(), CONTRIBUTORS, 0);
        let programs = [Operation::Encrypt, Operation::Decrypt].map(program);
        let [Ok(encrypt), Ok(decrypt)] = programs else { return vec![] };
        let geometry = *parameters.geometry();
        let chunk = geometry.slots_per_chunk;
        let beats = self.ring.degree() / chunk * chunk / geometry.slots_per_unit;
        let words = self.words(POLYNOMIALS * 2 * self.ring.degree());
        // Two words for each coefficient, below Q.
        let message = Input { words: words.into_iter().map(|w| w >> 30).collect(), secret: true };
        let noise_key = self.seeds(1, true);
        let encrypt_inputs = vec![message, Self::indices(), self.seeds(1, false), noise_key];
        let decrypt_inputs =
            vec![self.beats(beats), Self::indices(), self.seeds(CONTRIBUTORS, false)];
        [("encrypt", encrypt, encrypt_inputs), ("decrypt", decrypt, decrypt_inputs)]
            .into_iter()
            .map(|(operation, program, inputs)| Kernel {
                operation,
                program,
                inputs,
                items: POLYNOMIALS,
            })
            .collect()
    }

    fn kernels(&mut self) -> Vec<Kernel> {
        let beats = self.beats_each();
        let mut kernels = vec![
            self.step("ntt", |b, x| b.ntt("t", x)),
            self.step("ntt_intt", |b, x| {
                let t = b.ntt("t", x);
                b.intt("y", t)
            }),
            self.uniform(),
            self.noise(),
            self.step("pack", |b, x| b.pack("beats", x, beats)),
            self.add_beats(),
        ];
        kernels.extend(self.programs());
        kernels
    }
}

fn polynomials(c: &mut Criterion) {
    let literal = Literal { scheme: Scheme::CkksSum, clients: CONTRIBUTORS as u32, bits: 16 };
    let key = match SecretKey::generate(literal) {
        Ok(key) => key,
        Err(why) => return eprintln!("no key: {why}"),
    };
    let (rng, ring) = (ChaCha20Rng::from_seed([2; 32]), ring());
    let size = format!("{}x{}", ring.degree(), ring.primes().len());
    for kernel in (Polynomials { rng, ring, key }).kernels() {
        measure(c, &paths(), &kernel, &size);
    }
}

/// Measures transforms there and back of one polynomial that stays in a cache, and those of `tfhe-ntt` if it is there.
fn transforms(c: &mut Criterion) {
    for degree in DEGREES {
        let primes = largest_primes(PRIME_BITS, degree, 1);
        let ring = match Ring::new(degree, &primes) {
            Ok(ring) => Arc::new(ring),
            Err(why) => return eprintln!("{degree}: {why}"),
        };
        let mut b = Builder::new("transforms");
        let x = b.coefficients("x", &ring);
        let y = (0..TRANSFORMS / 2).fold(x, |x, _| {
            let t = b.ntt("t", x);
            b.intt("x", t)
        });
        b.output(y);
        let mut rng = ChaCha20Rng::from_seed([3; 32]);
        let words: Vec<_> = (0..degree).map(|_| rng.next_u64() >> 15).collect();
        let mut group = c.benchmark_group("transform");
        group.throughput(Throughput::Elements(TRANSFORMS as u64));
        let inputs = vec![Input { words: words.clone(), secret: true }];
        let program = b.build().into();
        let kernel = Kernel { operation: "transform", program, inputs, items: 1 };
        let mut out = vec![0; degree];
        for (name, engine) in paths() {
            group.bench_function(BenchmarkId::new(name, degree), |bench| {
                bench.iter(|| kernel.run(&engine, &mut out));
            });
        }
        #[cfg(feature = "peers")]
        if let Some(plan) = tfhe_ntt::prime64::Plan::try_new(degree, primes[0]) {
            let mut words = words;
            group.bench_function(BenchmarkId::new("tfhe-ntt", degree), |bench| {
                bench.iter(|| {
                    for _ in 0..TRANSFORMS / 2 {
                        plan.fwd(&mut words);
                        // Times N: it leaves that to a product, where it costs nothing.
                        plan.inv(&mut words);
                    }
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = residues, polynomials, transforms
}
criterion_main!(benches);
