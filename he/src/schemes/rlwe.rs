//! `ckks-sum`: RLWE with coefficient encoding, for sums that are exact.
//!
//! # The scheme
//! Over `R = Z_Q[X]/(X^N + 1)` the secret `s` is uniform ternary; N = 4096 and Q is the product of
//! two primes of 50 bits, or N = 8192 and Q that of four, whichever takes fewer bytes a value (see
//! [`RlweParameters`]). Large updates have larger rings, N = 16384 with eight primes or N = 32768 with sixteen, where
//! they fill at least half of a polynomial, or all of it under one-time secrets: a coefficient of these spends one
//! margin, one rounding down to whole fields and a part of itself on a head. One seed names a secret for each ring. A
//! contribution has one public 32-byte seed, which with the index of a polynomial names a uniform `a`. It sends
//! `b = a·s + e + m·2^margin`, `e` a fresh centred binomial of 2 × 21 bits and `m` the packed fields of each
//! coefficient. Only `b` travels, in coefficient form, ten residues to a 512-bit beat, cut to the coefficients that
//! carry something: this is what makes an upload smaller than the float32 it protects. The sum of `b`s decrypts with
//! the sum of `a`s. Beats travel and are added in the fewest that hold whole coefficients: one, two, four or eight, of
//! five coefficients. Over the larger rings a head shares its last coefficient with values.
//!
//! # Exactness
//! The noise of a sum is bounded for certain ([`RlweParameters`] holds the bound),
//! so rounding removes it always: decryption cannot fail, and what it reveals to a key holder is
//! the exact sum and nothing of the noise.
//!
//! # Security
//! Recovering anything from seeds and `b`s is ternary RLWE with `log₂ Q < 100` at N = 4096, `log₂ Q < 200` at
//! N = 8192, 400 at 16384 or 800 at 32768. The Homomorphic Encryption Standard allows 109, 218, 438 and 881 for 128-bit
//! security, and 101, 202, 411 and 827 against quantum computers.
//!
//! The standard's table is for noise of standard deviation about 3.2 (8/√(2π) = 3.19). Ours, the
//! number of ones among 21 random bits less that among 21 others, has √(42/4) = 3.24: not less.
//! - The attacks that the table counts (primal, dual, decoding) know the noise by its standard
//!   deviation alone: they look for short vectors, of which it tells the length. None is known to
//!   gain from a binomial's shape beside a rounded Gaussian's; ML-KEM (FIPS 203) stands on centred
//!   binomials of far smaller deviation.
//! - It is bounded, by 21. Attacks on bounded noise (S. Arora, R. Ge, 2011) solve equations of
//!   degree 43, one factor for each value that it takes: N unknowns have about N^43 monomials of
//!   that degree, and as many samples are needed to linearise them.
//! - A Gaussian has to be cut off somewhere, and its tail then is a chance of failing. Here the
//!   bound is a fact, and the proof of exactness is of every sum, not of most.
//! - Sampling is two counts of ones in one word of a ChaCha20 stream: no table, no rejection and no
//!   branch, so it takes the same time whatever it draws.
//!
//! Seeds expand to `a` by ChaCha8, noise and secrets by ChaCha20. `a` is public, and its stream has nothing to hide: it
//! is assumed to look random, also to whoever chose the seed.
//!
//! # Seeds
//! A seed must never serve two contributions under one key: the difference of two `b`s of one `a`
//! is free of `s`. Nor one chunk twice: the average of many `b`s of one message is free of noise.
//! [`SealPermit`](crate::SealPermit) and [`Sealer`](crate::Sealer) see to that.

mod beats;
pub(crate) mod parameters;
mod polynomials;
mod range;
mod rounding;
mod secret;
pub(crate) mod symmetric;

pub use parameters::{NOISE_BOUND, RlweParameters};
pub(crate) use secret::{RlweSecret, host};
