//! Single steps of programs, where the data already are: on a device what crosses to it is left out.
//!
//! A chain of steps is one program, whose data cross once. The times of a long chain and of a short one differ by
//! steps alone.

use std::{hint::black_box, sync::Arc};

use ciphergram_accel::{Builder, Engine, Modulus, Operand, Program, Ring, ring::largest_primes};
use rand_core::Rng;

use super::{
    operation::KernelOperation,
    sampling::{Times, Work, sample},
};
use crate::failure::Failure;

/// Steps of the two chains. Even: a transform is followed by its inverse.
const SHORT: usize = 4;
const LONG: usize = 36;
/// Bytes of the values of one step, on an engine that wants large batches: more than its caches hold.
const LARGE: usize = 32 << 20;
/// The same on others: in a cache, as where the CPU engine runs programs block by block.
const SMALL: usize = 1 << 20;
/// Bits of the primes of a ring, and how many it has.
const PRIME_BITS: u32 = 50;
const LIMBS: usize = 2;
/// Bytes of what `copy` counts: a mebibyte.
const COPIED: usize = 1 << 20;

/// What one kernel runs on.
pub(crate) struct Chains {
    engine: Arc<dyn Engine>,
    operation: KernelOperation,
    /// Items of a batch.
    pub(crate) items: usize,
    x: Vec<u64>,
    y: Vec<u64>,
    kind: Over,
}

/// What items are.
enum Over {
    Residues(Arc<Modulus>),
    Polys(Arc<Ring>),
}

impl Chains {
    /// # Errors
    /// No randomness.
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        operation: KernelOperation,
    ) -> Result<Self, Failure> {
        let mut rng = ciphergram_he::random::generator()?;
        let mut words = |count: usize| (0..count).map(|_| rng.next_u64()).collect::<Vec<_>>();
        let bytes = if engine.full_batch() > 1 { LARGE } else { SMALL };
        let fault = |why: &dyn std::fmt::Display| Failure::Work(why.to_string());
        let (kind, items, x, y) = match operation {
            KernelOperation::MontMul(bits) => {
                let each = bits as usize / 64;
                let mut m = words(each);
                m[0] |= 1;
                m[each - 1] |= 1 << 63;
                let m = Arc::new(Modulus::new("m", &m).map_err(|why| fault(&why))?);
                let items = (bytes / 8 / each).max(engine.full_batch());
                let mut below = || {
                    let mut x = words(each * items);
                    x.chunks_mut(each).filter_map(<[u64]>::last_mut).for_each(|top| *top >>= 1);
                    x
                };
                let (x, y) = (below(), below());
                (Over::Residues(m), items, x, y)
            }
            KernelOperation::Ntt(degree)
            | KernelOperation::PolyAdd(degree)
            | KernelOperation::Copy(degree) => {
                let primes = largest_primes(PRIME_BITS, degree, LIMBS);
                let ring = Arc::new(Ring::new(degree, &primes).map_err(|why| fault(&why))?);
                let items = (bytes / 8 / ring.len_words()).max(1);
                let mut below = || {
                    let mut x = words(ring.len_words() * items);
                    // All primes are above half of 2^50.
                    x.iter_mut().for_each(|x| *x >>= 65 - PRIME_BITS);
                    x
                };
                let (x, y) = (below(), below());
                (Over::Polys(ring), items, x, y)
            }
        };
        Ok(Self { engine, operation, items, x, y, kind })
    }

    /// Operations of a batch of one step.
    pub(crate) fn operations(&self) -> usize {
        match self.operation {
            KernelOperation::Copy(_) => 8 * self.x.len() / COPIED,
            // A transform of each limb.
            KernelOperation::Ntt(_) => LIMBS * self.items,
            _ => self.items,
        }
    }

    /// Bytes of device memory that one operation at least reads and writes; of a copy, what goes each way.
    pub(crate) fn bytes(&self) -> usize {
        let item = 8 * self.x.len() / self.items;
        match self.operation {
            KernelOperation::Copy(_) => COPIED,
            KernelOperation::Ntt(_) => 2 * item / LIMBS,
            _ => 3 * item,
        }
    }

    /// The times of one step in seconds a batch, and multiply instructions of one. `count` tells those of work.
    pub(crate) fn measure(
        &self,
        duration: std::time::Duration,
        count: impl Fn(&mut dyn FnMut() -> Result<(), Failure>) -> Result<Option<u64>, Failure>,
    ) -> Result<(Times, Option<f64>), Failure> {
        if let KernelOperation::Copy(_) = self.operation {
            let mut once = self.chain(1);
            return Ok((sample(&mut *once, duration)?, None));
        }
        let [mut short, mut long] = [SHORT, LONG].map(|steps| self.chain(steps));
        let multiplies = count(&mut || short.run())?.zip(count(&mut || long.run())?);
        let steps = (LONG - SHORT) as f64;
        let multiplies = multiplies.map(|(short, long)| (long - short) as f64 / steps);
        let (short, long) = (sample(&mut *short, duration)?, sample(&mut *long, duration)?);
        Ok((long.beyond(&short, steps), multiplies))
    }

    fn chain(&self, steps: usize) -> Box<dyn Work + '_> {
        let program = self.program(steps);
        let mut out = vec![0; self.x.len()];
        Box::new(move || {
            let (x, y) = (&self.x, &self.y);
            // A polynomial is a secret to programs, residues are not.
            let mut operands = match (&self.kind, self.operation) {
                (Over::Residues(_), _) => vec![Operand::In(x), Operand::In(y)],
                (_, KernelOperation::PolyAdd(_)) => {
                    vec![Operand::SecretIn(x), Operand::SecretIn(y)]
                }
                _ => vec![Operand::SecretIn(x)],
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
        let mut b = Builder::new(self.operation.name());
        match &self.kind {
            Over::Residues(m) => {
                let (x, y) = (b.residues("x", m), b.residues("y", m));
                let z = (0..steps).fold(x, |z, _| b.mont_mul("z", z, y));
                b.output(z);
            }
            Over::Polys(ring) => {
                let x = b.coefficients("x", ring);
                let z = match self.operation {
                    KernelOperation::PolyAdd(_) => {
                        let y = b.coefficients("y", ring);
                        (0..steps).fold(x, |z, _| b.add("z", z, y))
                    }
                    KernelOperation::Ntt(_) => (0..steps / 2).fold(x, |z, _| {
                        let t = b.ntt("t", z);
                        b.intt("z", t)
                    }),
                    _ => b.add("z", x, x),
                };
                b.output(z);
            }
        }
        b.build()
    }
}
