//! Paillier's scheme in the form of Damgård, Jurik and Nielsen.
//!
//! # The scheme
//! `n = p·q` with `p ≡ q ≡ 3 mod 4` and `gcd(p − 1, q − 1) = 2`. An encryptor draws `x` once and
//! keeps `h = −x² mod n`, `h_s = hⁿ mod n²`. The encryption of `m < n` is
//! `(1 + m·n) · h_s^r mod n²` with a fresh secret `r` of half the bits of n; the product of two
//! ciphertexts is an encryption of the sum. `h_s` is a power of a fixed base, so a table turns a
//! mask into one product for each few bits of `r`. Each program that loads a key draws an `x` of its own:
//! `h_s` is never read from a file, where it could have been chosen to have a small order.
//!
//! A modulus that this program did not make carries no proof of that form. Under such a key a mask
//! is `rⁿ` with `r` uniform, as in Paillier's paper. The key's owner masks every key alike, by
//! powers of two fixed bases modulo p² and q²: half the size, and no promise needed.
//!
//! # Batches
//! | type | what it holds |
//! |---|---|
//! | [`Plaintexts`] | numbers mod n, signed ones included |
//! | [`Ciphertexts`] | ciphertexts, with the power of the Montgomery radix that they carry |
//! | [`Scalars`], [`Matrix`] | signed integers, secret or public, to encrypt, or to add to ciphertexts and multiply them by |
//! | [`Encryptor`], [`Evaluator`], [`PaillierSecret`] | plaintexts to ciphertexts, between them, and back |
//!
//! Each has a scale, 0 unless it was made of floats: integers k then stand for `k / 2^scale`. Sums of
//! different scales are refused, and products have the sum of both.
//!
//! # Source
//! P. Paillier, "Public-key cryptosystems based on composite degree residuosity classes", 1999;
//! I. Damgård, M. Jurik, J. Nielsen, "A generalization of Paillier's public-key system with
//! applications to electronic voting", 2010, section 4.2.

mod ciphertexts;
mod encrypt;
mod evaluator;
mod factors;
mod fixed_point;
mod keygen;
mod masks;
mod modulus;
mod pairs;
mod parameters;
mod plaintexts;
mod radix;
mod scalars;
mod secret;
mod sums;
mod words;

pub use ciphertexts::Ciphertexts;
pub use encrypt::Encryptor;
pub use evaluator::Evaluator;
pub use fixed_point::MAX_SCALE;
pub use modulus::PaillierModulus;
pub(crate) use parameters::geometry;
pub use plaintexts::Plaintexts;
pub use scalars::{Matrix, Scalars};
pub use secret::PaillierSecret;
