//! The suite over the GPU engine with both preludes, on whatever adapter is there.

#![cfg(feature = "gpu")]
#![allow(missing_docs, reason = "the names of the modules say it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, where a panic is the report")]

use std::sync::OnceLock;

use ciphergram_accel::{Engine, GpuEngine, gpu::GpuError};

/// Steps that have no kernel.
const WITHOUT: &[&str] = &["invert"];

/// One engine for all tests of a module, which says what it runs on.
fn shared(
    engine: &'static OnceLock<Option<GpuEngine>>,
    open: fn() -> Result<GpuEngine, GpuError>,
) -> Option<&'static GpuEngine> {
    let present = engine.get_or_init(|| match open() {
        Ok(engine) => {
            eprintln!("on {}", engine.describe());
            Some(engine)
        }
        Err(why) => {
            eprintln!("{why}");
            None
        }
    });
    present.as_ref()
}

mod native {
    use super::*;

    static ENGINE: OnceLock<Option<GpuEngine>> = OnceLock::new();

    ciphergram_accel::conformance!(present: shared(&ENGINE, GpuEngine::new), without: WITHOUT);
}

mod split {
    use super::*;

    static ENGINE: OnceLock<Option<GpuEngine>> = OnceLock::new();

    ciphergram_accel::conformance!(present: shared(&ENGINE, GpuEngine::split), without: WITHOUT);
}

/// Programs of more rounds than one dispatch takes, over batches that one part of device memory does not.
mod long {
    use std::sync::Arc;

    use ciphergram_accel::{
        Builder, CpuEngine, Modulus, Operand, Program, Public, Secret, program::FixedBase,
    };
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    static ENGINE: OnceLock<Option<GpuEngine>> = OnceLock::new();

    fn words(random: &mut ChaCha20Rng, count: usize) -> Vec<u64> {
        (0..count).map(|_| random.next_u64()).collect()
    }

    /// An odd modulus of 1024 bits, the highest of them set, and numbers below it.
    fn modulus(random: &mut ChaCha20Rng) -> Arc<Modulus> {
        let mut m = words(random, 16);
        m[0] |= 1;
        m[15] |= 1 << 63;
        Arc::new(Modulus::new("m", &m).unwrap())
    }

    fn residues(random: &mut ChaCha20Rng, count: usize) -> Vec<u64> {
        let mut x = words(random, 16 * count);
        x.chunks_mut(16).for_each(|x| x[15] >>= 1);
        x
    }

    fn agree(program: &Program, inputs: &[Operand<'_>], out_words: usize) {
        let Some(gpu) = shared(&ENGINE, GpuEngine::new) else {
            return eprintln!("skipped: there is no device for this engine");
        };
        let run = |engine: &dyn Engine| {
            let mut out = vec![0; out_words];
            let mut operands: Vec<_> = inputs
                .iter()
                .map(|operand| match operand {
                    Operand::In(words) => Operand::In(words),
                    Operand::SecretIn(words) => Operand::SecretIn(words),
                    _ => unreachable!("inputs"),
                })
                .collect();
            operands.push(Operand::Out(&mut out));
            engine.run(program, &mut operands).unwrap();
            drop(operands);
            out
        };
        assert!(run(gpu) == run(&CpuEngine::new()), "{}", program.name());
    }

    #[test]
    fn powers() {
        let mut random = ChaCha20Rng::seed_from_u64(21);
        let m = modulus(&mut random);
        let base = residues(&mut random, 1);
        let fixed = Arc::new(FixedBase::new("base", m.clone(), &base, 16_384));
        let mut b = Builder::new("long powers");
        let (x, e) = (b.residues("x", &m), b.exponents::<Secret>("e", 2048));
        let long = b.exponents::<Secret>("long", 16_384);
        let power = b.pow("power", x, e);
        let fixed = b.pow_fixed_base("fixed", &fixed, long);
        let both = b.mul("both", power, fixed);
        b.output(both);
        let (x, e) = (residues(&mut random, 3), words(&mut random, 32 * 3));
        let long = words(&mut random, 256 * 3);
        let inputs = [Operand::In(&x), Operand::SecretIn(&e), Operand::SecretIn(&long)];
        agree(&b.build(), &inputs, 16 * 3);
    }

    #[test]
    fn products() {
        let mut random = ChaCha20Rng::seed_from_u64(22);
        let m = modulus(&mut random);
        let mut b = Builder::new("long product");
        let x = b.residue_rows("x", &m, 2000);
        let z = b.product("z", x);
        b.output(z);
        let x = residues(&mut random, 2 * 2000);
        agree(&b.build(), &[Operand::In(&x)], 16 * 2);
        let mut b = Builder::new("long dot");
        let x = b.shared_residues("x", &m, 300);
        let e = b.exponent_rows::<Public>("e", 64, 300);
        let z = b.dot("z", x, e);
        b.output(z);
        let (x, e) = (residues(&mut random, 300), words(&mut random, 300 * 5));
        agree(&b.build(), &[Operand::In(&x), Operand::In(&e)], 16 * 5);
    }
}
