//! Tensors under the levelled scheme, and jobs that compute on them without the secret.
//!
//! | job | who has what | what it leaves |
//! |---|---|---|
//! | [`Vector::encrypt`] | a key of either half | tensors in ciphertexts |
//! | [`aggregate`] | the public key; for weights the evaluation key | the mean, or a sum under encrypted weights |
//! | [`screen`] | the evaluation key | the norm of each update, and its product with a reference |
//! | [`Scores`] | the secret key | how much each update counts, encrypted |
//! | [`predict`] | the evaluation key, and a model | the model's answers |
//! | [`Vector::multiply`] and such | the evaluation key | results value by value, rotated, summed, times a matrix |
//!
//! # Units
//! A ciphertext on level 0 holds numbers below 2^9. So values are divided by a public power of two before they are
//! encrypted, the *unit*, which follows from their range and number: the squares of all values of a
//! vector sum up to at most 2^8 units squared.

mod aggregate;
mod arithmetic;
mod file;
mod model;
mod predict;
mod scores;
mod screen;
mod vector;

#[cfg(test)]
mod tests;

pub use aggregate::aggregate;
pub use model::{Model, Output};
pub use predict::{Prediction, predict};
pub use scores::{Limits, Score, Scores};
pub use screen::screen;
pub use vector::{Layout, Recipe, Source, Vector};
