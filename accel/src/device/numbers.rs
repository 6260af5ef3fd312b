//! Arithmetic of the host for the constants of devices. Constant time; all numbers are overwritten when they go.

use crypto_bigint::{BoxedUint, ConcatenatingMul};
use zeroize::Zeroizing;

use crate::{
    modulus::{odd, power_of_two_mod},
    program::Crt,
};

/// Numbers that are overwritten when they go.
pub(crate) type WipedWords = Zeroizing<Vec<u64>>;

pub(crate) fn big(words: &[u64]) -> Zeroizing<BoxedUint> {
    Zeroizing::new(BoxedUint::from_words(words.iter().copied()))
}

/// Returns a number in exactly `count` words, which hold it.
pub(crate) fn cut(words: &[u64], count: usize) -> WipedWords {
    let mut out = Zeroizing::new(vec![0; count]);
    out.iter_mut().zip(words).for_each(|(to, &word)| *to = word);
    out
}

/// `a · b mod m`.
pub(crate) fn mul_mod(a: &[u64], b: &[u64], m: &[u64]) -> WipedWords {
    let product = Zeroizing::new(big(a).concatenating_mul(&*big(b)));
    let rest = Zeroizing::new(product.rem(odd(&big(m)).as_nz_ref()));
    cut(rest.as_words(), m.len())
}

/// `2^bits mod m`.
pub(crate) fn power_of_two(bits: u32, m: &[u64]) -> WipedWords {
    Zeroizing::new(power_of_two_mod(bits, m))
}

/// Returns the factors of b and of a in `(b − a) · p⁻¹ mod q`, times `2^bits`.
pub(crate) fn recombination(crt: &Crt, bits: u32) -> [WipedWords; 2] {
    let q = crt.q().words();
    let plus = mul_mod(crt.p_inverse(), &power_of_two(bits, q), q);
    // −x as (q − 1) · x, q being odd.
    let mut last = Zeroizing::new(q.to_vec());
    last[0] ^= 1;
    let minus = mul_mod(&last, &plus, q);
    [plus, minus]
}
