//! Random polynomials from ChaCha20 streams.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use zeroize::Zeroizing;

use crate::{
    polys::small_mod,
    ring::{Ring, subtract_once},
};

/// Bits that each half of the centred binomial counts.
const HALF: u64 = (1 << 21) - 1;

/// The ChaCha20 stream number `index` under `seed`.
fn stream(seed: &[u64], index: u64) -> ChaCha20Rng {
    let mut key = Zeroizing::new([0u8; 32]);
    for (bytes, word) in key.chunks_exact_mut(8).zip(seed) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let mut rng = ChaCha20Rng::from_seed(*key);
    rng.set_stream(index);
    rng
}

/// Adds the uniform polynomials of all seeds. Variable time: seeds are public.
pub(super) fn uniform(ring: &Ring, out: &mut [u64], seeds: &[u64], index: u64) {
    out.fill(0);
    for seed in seeds.chunks_exact(4) {
        let mut rng = stream(seed, index);
        for (limb, &q) in out.chunks_exact_mut(ring.degree()).zip(ring.primes()) {
            let mask = u64::MAX >> q.leading_zeros();
            for word in limb {
                let mut draw = rng.next_u64() & mask;
                while draw >= q {
                    draw = rng.next_u64() & mask;
                }
                *word = subtract_once(*word + draw, q);
            }
        }
    }
}

/// Centred binomial noise, the same in every limb. Constant time.
pub(super) fn noise(ring: &Ring, out: &mut [u64], key: &[u64], index: u64) {
    let n = ring.degree();
    let mut rng = stream(key, index);
    for i in 0..n {
        let word = rng.next_u64();
        let e =
            i64::from((word & HALF).count_ones()) - i64::from(((word >> 21) & HALF).count_ones());
        for (limb, &q) in ring.primes().iter().enumerate() {
            out[limb * n + i] = small_mod(e, q);
        }
    }
}
