//! Secrets of rings.

use std::sync::{Arc, LazyLock};

use ciphergram_accel::{
    Builder, CpuEngine, Engine, Operand, Ring, program::Constant, random::StreamRng,
};
use rand_core::Rng;
use zeroize::{Zeroize, Zeroizing};

use crate::Error;

/// The domain of secrets for sums.
pub(super) const OF_SUMS: &str = "ciphergram 2026 ckks-sum ternary secret";

/// Returns the engine that makes the secrets of rounds: one for all, since the tables of a ring take longer than a
/// secret does.
pub(crate) fn host() -> &'static CpuEngine {
    static ENGINE: LazyLock<CpuEngine> = LazyLock::new(CpuEngine::new);
    &ENGINE
}

/// A secret with small coefficients, in NTT form.
pub(crate) struct RlweSecret {
    ring: Arc<Ring>,
    ntt: Constant,
}

impl RlweSecret {
    /// Expands the ternary secret that `seed` names in the domain `context`.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn expand(
        seed: &[u8; 32],
        context: &'static str,
        ring: &Arc<Ring>,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let mut key = blake3::derive_key(context, seed);
        let mut rng = StreamRng::from_seed(&key);
        key.zeroize();
        let mut s = Zeroizing::new(vec![0i8; ring.degree()]);
        s.iter_mut().for_each(|c| *c = ternary(&mut rng));
        Self::of_small(&s, ring, engine)
    }

    /// Takes its coefficients.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn of_small(
        coefficients: &[impl Copy + Into<i64>],
        ring: &Arc<Ring>,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let mut small = Zeroizing::new(vec![0; ring.degree()]);
        small.iter_mut().zip(coefficients).for_each(|(word, &c)| *word = c.into() as u64);
        let mut b = Builder::new("rlwe.key");
        let integers = b.integers("integers", ring.degree());
        let s = b.lift_signed("s", ring, integers);
        let ntt = b.ntt("ŝ", s);
        b.output(ntt);
        let program = b.build();
        let ntt = Constant::filled(ring.len_words(), |words| {
            engine.run(&program, &mut [Operand::SecretIn(&small), Operand::Out(words)])
        })?;
        Ok(Self { ring: ring.clone(), ntt })
    }

    /// Returns the ring.
    pub(super) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Returns the secret in NTT form, for programs, which have it in common.
    pub(crate) fn constant(&self) -> &Constant {
        &self.ntt
    }
}

/// Draws −1, 0 or 1 with equal chance. A rejected draw says nothing about the one that is kept.
fn ternary(rng: &mut StreamRng) -> i8 {
    loop {
        // Two bits at a time are 0, 1, 2, or 3 again.
        let draw = (rng.next_u32() & 3) as i8;
        if draw < 3 {
            return draw - 1;
        }
    }
}
