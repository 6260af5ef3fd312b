//! Single steps of programs, where the data already are: on a device the transfers are left out.
//!
//! A chain of steps is one program. Its data are made where it runs, or are the same for all items, and a long chain
//! and a short one differ by steps alone.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Engine, Modulus, Operand, Program, Ring, beats, ring::largest_primes,
};
use rand_core::Rng;

use super::{
    engine::Metered,
    sampling::{Work, beyond, sample, timed},
};
use crate::Failure;

/// Steps of the two chains.
const SHORT: usize = 4;
const LONG: usize = 36;
/// Bytes of residues that come back, and of values that are copied, on an engine that wants large batches: a device
/// takes all of them at once, so no copy hides behind a step. And of the polynomials of one step: more than its caches
/// hold.
const LARGE: usize = 32 << 20;
const LARGE_POLYS: usize = 128 << 20;
/// The same on others: in a cache, as where the CPU engine runs programs block by block.
const SMALL: usize = 1 << 20;
/// Bits of the primes of a ring, how many it has, and how many its polynomials are extended to.
pub(super) const PRIME_BITS: u32 = 50;
const LIMBS: usize = 2;
const EXTENDED: usize = 8;
/// Bytes of one operation of `copy`: a mebibyte.
const COPIED: usize = 1 << 20;

/// A step of programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kernel {
    MontMul,
    Ntt,
    Automorphism,
    BaseExtend,
    PolyAdd,
    Copy,
}

/// The chains of one kernel, and their data.
pub(super) struct Chains {
    engine: Arc<Metered>,
    inputs: Vec<Vec<u64>>,
    /// Words that come back.
    out: usize,
    /// Operations of a batch of one step, and the bytes of memory that one at least reads and writes; of a copy, those
    /// of each way.
    pub(super) operations: usize,
    pub(super) bytes: usize,
    /// Makes the program of so many steps.
    program: Box<dyn Fn(usize) -> Program>,
    is_copy: bool,
}

impl Chains {
    /// Draws the data of a kernel: over moduli of `size` bits, or rings of this degree.
    ///
    /// # Errors
    /// No randomness.
    pub(super) fn new(kernel: Kernel, size: usize, engine: Arc<Metered>) -> Result<Self, Failure> {
        let mut rng = ciphergram_he::random::generator()?;
        let mut words = |count: usize| (0..count).map(|_| rng.next_u64()).collect::<Vec<_>>();
        let of_size = |large| if engine.info().full_batch > 1 { large } else { SMALL };
        let is_copy = kernel == Kernel::Copy;
        if kernel == Kernel::MontMul {
            let each = size / 64;
            let [mut m, mut x, mut y] = [words(each), words(each), words(each)];
            m[0] |= 1;
            m[each - 1] |= 1 << 63;
            x[each - 1] >>= 1;
            y[each - 1] >>= 1;
            let m = Arc::new(Modulus::new("m", &m)?);
            let items = of_size(LARGE) / 8 / each;
            let program = Box::new(move |steps| {
                let mut b = Builder::new("mont_mul");
                let (x, y) = (b.shared_residues("x", &m, 1), b.shared_residues("y", &m, 1));
                let z = (0..steps).fold(x, |z, _| b.mont_mul("z", z, y));
                b.output(z);
                b.build()
            });
            // One factor is the same for all.
            let (inputs, bytes) = (vec![x, y], 2 * 8 * each);
            let (out, operations) = (items * each, items);
            return Ok(Self { engine, inputs, out, operations, bytes, program, is_copy });
        }
        let all = Ring::new(size, &largest_primes(PRIME_BITS, size, LIMBS + EXTENDED))?;
        let ring = Arc::new(all.limbs(0, LIMBS));
        let each = LIMBS * size;
        if is_copy {
            let items = (of_size(LARGE) / 8 / each).max(1);
            // All primes are above half of 2^50.
            let x = words(each * items).into_iter().map(|x| x >> (65 - PRIME_BITS)).collect();
            let program = Box::new(move |_| {
                let mut b = Builder::new("copy");
                let x = b.coefficients("x", &ring);
                let z = b.add("z", x, x);
                b.output(z);
                b.build()
            });
            let (out, operations, bytes) = (items * each, 8 * each * items / COPIED, COPIED);
            return Ok(Self { engine, inputs: vec![x], out, operations, bytes, program, is_copy });
        }
        let items = (of_size(LARGE_POLYS) / 8 / each).max(1);
        // Each of two rings is extended to primes among which are those of the other.
        let (other, behind) = (all.limbs(LIMBS, LIMBS), all.limbs(LIMBS, EXTENDED));
        let around = ring.join(&all.limbs(2 * LIMBS, EXTENDED - LIMBS))?;
        let extended = [behind, around].map(Arc::new);
        let rings = [ring, Arc::new(other)];
        let program = Box::new(move |steps| {
            let mut b = Builder::new("chain");
            let (seed, index) = (b.seeds("seed", 1), b.index("index"));
            let x = b.uniform("x", &rings[0], seed, index);
            let z = match kernel {
                Kernel::BaseExtend => {
                    let x = b.intt("x", x);
                    (0..steps).fold(x, |z, step| {
                        let all = b.base_extend("z'", z, &extended[step % 2]);
                        b.limbs("z", all, &rings[(step + 1) % 2])
                    })
                }
                _ => {
                    let z = (0..steps).fold(x, |z, step| match kernel {
                        Kernel::PolyAdd => b.add("z", z, x),
                        Kernel::Automorphism => b.automorphism("z", z, 5),
                        // There and back.
                        _ if step % 2 == 0 => z,
                        _ => {
                            let t = b.intt("t", z);
                            b.ntt("z", t)
                        }
                    });
                    b.intt("z", z)
                }
            };
            let first = b.pack("first", z, 1);
            b.output(first);
            b.build()
        });
        // Of a transform and a permutation one is of one limb.
        let (operations, bytes) = match kernel {
            Kernel::BaseExtend => (items, (LIMBS + EXTENDED) * 8 * size),
            Kernel::PolyAdd => (items, 3 * 8 * each),
            _ => (LIMBS * items, 2 * 8 * size),
        };
        let inputs = vec![words(4), (0..items as u64).collect()];
        let out = items * beats::WORDS;
        Ok(Self { engine, inputs, out, operations, bytes, program, is_copy })
    }

    /// Returns the work of one step, and the multiply instructions that a batch of it issues.
    pub(super) fn step(&self) -> Result<(Work<'_>, f64), Failure> {
        if self.is_copy {
            return Ok((self.chain(1), 0.0));
        }
        let [mut short, mut long] = [SHORT, LONG].map(|steps| self.chain(steps));
        let [few, all] = [&mut short, &mut long].map(|chain| self.engine.count(chain));
        let steps = (LONG - SHORT) as f64;
        let multiplies = (all?.multiplies - few?.multiplies) as f64 / steps;
        let work = beyond(short, long, steps);
        Ok((work, multiplies))
    }

    fn chain(&self, steps: usize) -> Work<'_> {
        let (program, mut out) = ((self.program)(steps), vec![0; self.out]);
        timed(move || {
            let input =
                |words| if self.is_copy { Operand::SecretIn(words) } else { Operand::In(words) };
            let inputs = self.inputs.iter().map(|words| input(words));
            let mut operands: Vec<_> = inputs.chain([Operand::Out(&mut out)]).collect();
            self.engine.run(&program, &mut operands)
        })
    }
}

/// Measures the transform of one polynomial modulo one prime, in seconds; nothing where others' work hid it.
pub(super) fn transform_s(
    degree: usize,
    engine: &Arc<Metered>,
    duration: std::time::Duration,
) -> Result<Option<f64>, Failure> {
    let chains = Chains::new(Kernel::Ntt, degree, engine.clone())?;
    let times = sample(&mut chains.step()?.0, duration)?;
    Ok(Some(times.quantile(0.5) / chains.operations as f64).filter(|&each| each > 0.0))
}
