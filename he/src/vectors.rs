//! Tensors under the levelled scheme, and jobs that compute on them without the secret.
//!
//! | job | who has what | what it leaves |
//! |---|---|---|
//! | [`Vector::encrypt`] | a key of either half | tensors in ciphertexts |
//! | [`aggregate`] | the public key | a weighted sum |
//! | [`screen`] | the evaluation key | the norm of each update, and its product with a reference |
//! | [`Scores`], [`Weights`] | the secret key | which updates count, and how much |
//! | [`predict`] | the evaluation key, and a model | the model's answers |
//! | [`Vector::multiply`] and such | the evaluation key | results value by value, rotated, summed, times a matrix |
//!
//! # Units
//! A ciphertext on level 0 holds numbers below 2^9. So values are divided by a public power of two before they are
//! encrypted, the *unit*, which follows from their range and number: see [`Purpose`].

mod aggregate;
mod arithmetic;
mod file;
mod model;
mod predict;
mod scores;
mod screen;
mod vector;
mod weights;

#[cfg(test)]
mod tests;

pub use aggregate::aggregate;
pub use model::{Model, Output};
pub use predict::{Prediction, predict};
pub use scores::{Limits, Score, Scores};
pub use screen::screen;
pub use vector::{Layout, Purpose, Recipe, Source, Vector};
pub use weights::{WEIGHT_OF_ONE, Weighted, Weights};
