//! Single steps of programs, where the data already are: on a device the transfers are left out.
//!
//! A chain of steps is one program. Its data are made where it runs, or are the same for all items,
//! and a long chain and a short one differ by steps alone.

use std::{hint::black_box, sync::Arc, time::Duration};

use ciphergram_accel::{
    Builder, Engine, Modulus, Operand, Program, Ring, RingError, beats, ring::largest_primes,
};
use rand_core::Rng;

use super::{
    operation::{Kernel, KernelOperation},
    sampling::{Times, Work, sample, sample_beyond},
};
use crate::failure::Failure;

/// Steps of the two chains.
const SHORT: usize = 4;
const LONG: usize = 36;
/// Bytes of residues that come back, and of values that are copied, on an engine that wants large
/// batches: a device takes all of them at once, so no copy hides behind a step.
const LARGE: usize = 32 << 20;
/// Bytes of the polynomials of one step there: more than its caches hold.
const LARGE_POLYS: usize = 128 << 20;
/// The same on others: in a cache, as where the CPU engine runs programs block by block.
const SMALL: usize = 1 << 20;
/// Bits of the primes of a ring, and how many it has.
const PRIME_BITS: u32 = 50;
const LIMBS: usize = 2;
/// Primes that polynomials of such a ring are extended to.
const EXTENDED: usize = 8;
/// Bytes of one operation of `copy`: a mebibyte.
const COPIED: usize = 1 << 20;

/// The data of one kernel, and the programs over them.
pub(crate) struct Chains {
    engine: Arc<dyn Engine>,
    operation: KernelOperation,
    /// Items of a batch.
    items: usize,
    /// Words of an item.
    each: usize,
    over: Over,
}

/// The items of a batch, as inputs of programs.
enum Over {
    /// Two factors that all items share.
    Residues(Arc<Modulus>, [Vec<u64>; 2]),
    /// A seed, and for each item the number of the polynomial that it names.
    Polys(Arc<Ring>, [Vec<u64>; 2]),
    /// The same, of the first of two rings; each is extended to primes among which are those of the other.
    Extended([Extension; 2], [Vec<u64>; 2]),
    /// Polynomials.
    Copied(Arc<Ring>, Vec<u64>),
}

/// A ring, and that of the primes that its polynomials are extended to.
struct Extension {
    from: Arc<Ring>,
    to: Arc<Ring>,
}

impl Extension {
    /// Makes two rings of this degree that lead to each other.
    fn pair(degree: usize) -> Result<[Self; 2], RingError> {
        let all = Ring::new(degree, &largest_primes(PRIME_BITS, degree, LIMBS + EXTENDED))?;
        let [first, second] = [0, LIMBS].map(|first| Arc::new(all.limbs(first, LIMBS)));
        let behind = all.limbs(LIMBS, EXTENDED);
        let without = first.join(&all.limbs(2 * LIMBS, EXTENDED - LIMBS))?;
        let [behind, without] = [behind, without].map(Arc::new);
        Ok([Self { from: first, to: behind }, Self { from: second, to: without }])
    }
}

impl Chains {
    /// Draws the data of an operation.
    ///
    /// # Errors
    /// No randomness.
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        operation: KernelOperation,
    ) -> Result<Self, Failure> {
        let mut rng = ciphergram_he::random::generator()?;
        let mut words = |count: usize| (0..count).map(|_| rng.next_u64()).collect::<Vec<_>>();
        let of_size = |large| if engine.info().full_batch > 1 { large } else { SMALL };
        let KernelOperation { kernel, size, .. } = operation;
        if kernel == Kernel::MontMul {
            let each = size / 64;
            let mut m = words(each);
            m[0] |= 1;
            m[each - 1] |= 1 << 63;
            let m = Modulus::new("m", &m).map_err(|why| Failure::Work(why.to_string()))?;
            let factors = [0, 1].map(|_| {
                let mut x = words(each);
                x[each - 1] >>= 1;
                x
            });
            let items = of_size(LARGE) / 8 / each;
            return Ok(Self {
                engine,
                operation,
                items,
                each,
                over: Over::Residues(Arc::new(m), factors),
            });
        }
        let fault = |why: RingError| Failure::Work(why.to_string());
        let ring = Ring::new(size, &largest_primes(PRIME_BITS, size, LIMBS)).map_err(fault)?;
        let (ring, each) = (Arc::new(ring), LIMBS * size);
        let large = if kernel == Kernel::Copy { LARGE } else { LARGE_POLYS };
        let items = (of_size(large) / 8 / each).max(1);
        let over = match kernel {
            Kernel::Copy => {
                // All primes are above half of 2^50.
                let x = words(each * items).into_iter().map(|x| x >> (65 - PRIME_BITS)).collect();
                Over::Copied(ring, x)
            }
            Kernel::BaseExtend => {
                let pair = Extension::pair(size).map_err(fault)?;
                Over::Extended(pair, [words(4), (0..items as u64).collect()])
            }
            _ => Over::Polys(ring, [words(4), (0..items as u64).collect()]),
        };
        Ok(Self { engine, operation, items, each, over })
    }

    /// Returns the operations of a batch of one step.
    pub(crate) fn operations(&self) -> usize {
        match self.operation.kernel {
            Kernel::Copy => 8 * self.each * self.items / COPIED,
            // One of each limb.
            Kernel::Ntt | Kernel::Automorphism => LIMBS * self.items,
            Kernel::MontMul | Kernel::BaseExtend | Kernel::PolyAdd => self.items,
        }
    }

    /// Returns the bytes of memory that one operation at least reads and writes; of a copy, those
    /// of each way.
    pub(crate) fn bytes(&self) -> usize {
        match self.operation.kernel {
            Kernel::Copy => COPIED,
            Kernel::Ntt | Kernel::Automorphism => 2 * 8 * self.each / LIMBS,
            Kernel::BaseExtend => (LIMBS + EXTENDED) * 8 * self.each / LIMBS,
            Kernel::PolyAdd => 3 * 8 * self.each,
            // One factor is the same for all.
            Kernel::MontMul => 2 * 8 * self.each,
        }
    }

    /// Measures one step: its times in seconds a batch, and its multiply instructions, which
    /// `count` counts.
    pub(crate) fn measure(
        &self,
        duration: Duration,
        count: impl Fn(&mut dyn FnMut() -> Result<(), Failure>) -> Result<Option<u64>, Failure>,
    ) -> Result<(Times, Option<f64>), Failure> {
        if let Over::Copied(..) = self.over {
            return Ok((sample(&mut *self.chain(1), duration)?, None));
        }
        let [mut short, mut long] = [SHORT, LONG].map(|steps| self.chain(steps));
        let multiplies = count(&mut || short.run())?.zip(count(&mut || long.run())?);
        let steps = (LONG - SHORT) as f64;
        let multiplies = multiplies.map(|(short, long)| (long - short) as f64 / steps);
        Ok((sample_beyond(&mut *long, &mut *short, steps, duration)?, multiplies))
    }

    fn chain(&self, steps: usize) -> Box<dyn Work + '_> {
        let program = self.program(steps);
        let each = match &self.over {
            Over::Polys(..) | Over::Extended(..) => beats::WORDS,
            Over::Residues(..) | Over::Copied(..) => self.each,
        };
        let mut out = vec![0; self.items * each];
        Box::new(move || {
            let mut operands = match &self.over {
                Over::Residues(_, [x, y]) | Over::Polys(_, [x, y]) | Over::Extended(_, [x, y]) => {
                    vec![Operand::In(x), Operand::In(y)]
                }
                Over::Copied(_, x) => vec![Operand::SecretIn(x)],
            };
            operands.push(Operand::Out(&mut out));
            self.engine
                .run(&program, &mut operands)
                .map_err(|why| Failure::Work(why.to_string()))?;
            drop(operands);
            black_box(&out);
            Ok(())
        })
    }

    fn program(&self, steps: usize) -> Program {
        let mut b = Builder::new(self.operation.name);
        match &self.over {
            Over::Residues(m, _) => {
                let (x, y) = (b.shared_residues("x", m, 1), b.shared_residues("y", m, 1));
                let z = (0..steps).fold(x, |z, _| b.mont_mul("z", z, y));
                b.output(z);
            }
            Over::Copied(ring, _) => {
                let x = b.coefficients("x", ring);
                let z = b.add("z", x, x);
                b.output(z);
            }
            Over::Extended(pair, _) => {
                let (seed, index) = (b.seeds("seed", 1), b.index("index"));
                let x = b.uniform("x", &pair[0].from, seed, index);
                let x = b.intt("x", x);
                let z = (0..steps).fold(x, |z, step| {
                    let [here, there] = [step, step + 1].map(|step| &pair[step % 2]);
                    let extended = b.base_extend("z'", z, &here.to);
                    b.limbs("z", extended, &there.from)
                });
                let first = b.pack("first", z, 1);
                b.output(first);
            }
            Over::Polys(ring, _) => {
                let (seed, index) = (b.seeds("seed", 1), b.index("index"));
                let x = b.uniform("x", ring, seed, index);
                let z = match self.operation.kernel {
                    Kernel::PolyAdd => (0..steps).fold(x, |z, _| b.add("z", z, x)),
                    Kernel::Automorphism => (0..steps).fold(x, |z, _| b.automorphism("z", z, 5)),
                    _ => (0..steps / 2).fold(x, |z, _| {
                        let t = b.intt("t", z);
                        b.ntt("z", t)
                    }),
                };
                let z = b.intt("z", z);
                let first = b.pack("first", z, 1);
                b.output(first);
            }
        }
        b.build()
    }
}
