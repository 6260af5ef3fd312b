//! Levelled CKKS: vectors of real or complex numbers to compute with while they are encrypted.
//!
//! [`crate::schemes::rlwe`] sums integers exactly, and is what datagrams carry. This is for work on
//! ciphertexts: products slot by slot, rotations, a few levels deep, approximate.
//!
#![doc = include_str!("../docs/ckks.md")]
//!
//! # Layers
//! | type | what it is |
//! |---|---|
//! | [`Preset`], [`Parameters`] | slots and levels; rings and scales, within the security table |
//! | [`LevelledSecret`], [`LevelledPublic`], [`EvaluationKeys`] | who decrypts, who encrypts, who computes |
//! | [`Encryptor`], [`Decryptor`] | numbers to [`Ciphertext`]s and back |
//! | [`Evaluator`] | sums, products and rotations of ciphertexts |
//!
//! # Source
//! J. Cheon, A. Kim, M. Kim, Y. Song, "Homomorphic encryption for arithmetic of approximate
//! numbers", 2017; in residues, J. Cheon et al., "A full RNS variant of approximate homomorphic
//! encryption", 2018; keys of few digits, K. Han, D. Ki, "Better bootstrapping for approximate
//! homomorphic encryption", 2020.

mod encoder;
mod encryption;
mod error;
mod evaluation_keys;
mod evaluator;
mod keys;
mod noise;
mod packing;
mod parameters;
mod programs;
mod rotations;
mod switching_key;
mod vectors;

#[cfg(test)]
mod tests;

pub use encoder::{Complex, Encoder};
pub use encryption::{Decryptor, Encryptor};
pub use error::CkksError;
pub use evaluation_keys::EvaluationKeys;
pub use evaluator::{Basis, Evaluator, Matrix, Polynomial, matrix_rotations};
pub use keys::{LevelledPublic, LevelledSecret};
pub use noise::Bound;
pub use parameters::{Literal, Parameters, Preset};
pub use programs::Operation;
pub use rotations::Rotation;
pub use vectors::{Ciphertext, Digits, Plaintext, Product};
