//! The ternary secret.

use std::sync::Arc;

use ciphergram_accel::{
    Builder, Engine, Operand, Polys, Ring,
    program::{Constant, Ntt},
    random::StreamRng,
};
use rand_core::Rng;
use zeroize::{Zeroize, Zeroizing};

use crate::Error;

/// The domain of secrets for sums.
pub(super) const OF_SUMS: &str = "ciphergram 2026 ckks-sum ternary secret";

/// The ternary secret, kept as the seed that it expands from and in NTT form.
pub(crate) struct RlweSecret {
    seed: Zeroizing<[u8; 32]>,
    ring: Arc<Ring>,
    ntt: Constant,
}

impl RlweSecret {
    /// Expands the secret that `seed` names in the domain `context`.
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
        let coefficients = Polys::from_small(ring.clone(), &s);
        let mut b = Builder::new("rlwe.key");
        let a = b.coefficients("s", ring);
        let t = b.ntt("ŝ", a);
        b.output(t);
        let mut ntt = Polys::<Ntt>::zeros(ring.clone(), 1);
        let mut operands = [Operand::from(&coefficients), Operand::Out(ntt.words_mut())];
        engine.run(&b.build(), &mut operands)?;
        let ntt = Constant::new(ntt.words().to_vec());
        Ok(Self { seed: Zeroizing::new(*seed), ring: ring.clone(), ntt })
    }

    /// Returns the seed, for the key file.
    pub(crate) fn seed(&self) -> &[u8; 32] {
        &self.seed
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
