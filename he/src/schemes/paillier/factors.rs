//! The secret factors and numbers made of them.

use std::sync::Arc;

use ciphergram_accel::{Modulus, program::Crt};
use crypto_bigint::{BoxedUint, Gcd, Odd};
use zeroize::Zeroizing;

/// p and q, their squares, and what joins residues of the squares.
pub(super) struct Factors {
    pub(super) p: Arc<Modulus>,
    pub(super) q: Arc<Modulus>,
    pub(super) p_squared: Arc<Modulus>,
    pub(super) q_squared: Arc<Modulus>,
    pub(super) squares: Arc<Crt>,
}

impl Factors {
    /// Derives all from two distinct primes.
    pub(super) fn new(p: &BoxedUint, q: &BoxedUint) -> Option<Self> {
        let named = |name: &str, x: &BoxedUint| Modulus::new(name, x.as_words()).ok().map(Arc::new);
        let (p, q) = (named("p", p)?, named("q", q)?);
        let square =
            |name: &str, root: &Arc<Modulus>| Modulus::square(name, root).ok().map(Arc::new);
        let (p_squared, q_squared) = (square("p²", &p)?, square("q²", &q)?);
        let inverse = inverse(&secret_big(p_squared.words()), &secret_big(q_squared.words()))?;
        let squares = Arc::new(Crt::new(p_squared.clone(), q_squared.clone(), &inverse));
        Some(Self { p, q, p_squared, q_squared, squares })
    }
}

/// Copies a secret number.
pub(super) fn secret_big(words: &[u64]) -> Zeroizing<BoxedUint> {
    Zeroizing::new(BoxedUint::from_words(words.iter().copied()))
}

/// Returns `a⁻¹ mod m`, in as many words as m.
pub(super) fn inverse(a: &BoxedUint, m: &BoxedUint) -> Option<Zeroizing<Vec<u64>>> {
    let m: &Odd<BoxedUint> = m.as_odd_vartime()?;
    let reduced = Zeroizing::new(a.rem(m.as_nz_ref()));
    let inverse = Zeroizing::new(reduced.invert_odd_mod(m).into_option()?);
    Some(Zeroizing::new(inverse.as_words().to_vec()))
}

/// Returns whether `gcd(p − 1, q − 1) = 2`.
pub(super) fn totients_share_only_two(p: &BoxedUint, q: &BoxedUint) -> bool {
    let one = BoxedUint::one_with_precision(p.bits_precision());
    let p_1 = Zeroizing::new(p.wrapping_sub(&one));
    let q_1 = Zeroizing::new(q.wrapping_sub(&one));
    let gcd = Zeroizing::new(p_1.gcd(&*q_1));
    *gcd == BoxedUint::from(2u8)
}
