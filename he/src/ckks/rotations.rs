//! Rotations that keys are asked for, by the words of people.

use std::{collections::BTreeSet, str::FromStr};

use super::{CkksError, Parameters, matrix_rotations};

/// A rotation that a key is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// By all powers of two.
    Sum,
    /// Those of a product by a matrix of so many rows and columns.
    Matrix(usize, usize),
    /// By so many slots to the left.
    By(i64),
    /// The conjugate of slots.
    Conjugate,
}

impl FromStr for Rotation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes = |text: &str| {
            let (rows, columns) = text.split_once('x')?;
            let size = |text: &str| text.parse().ok().filter(|&size: &usize| size > 0);
            Some(Self::Matrix(size(rows)?, size(columns)?))
        };
        let known = match text.strip_prefix("matrix:") {
            Some(text) => sizes(text),
            None if text == "sum" => Some(Self::Sum),
            None if text == "conjugate" => Some(Self::Conjugate),
            None => text.parse().ok().map(Self::By),
        };
        known.ok_or_else(|| "sum, conjugate, matrix:ROWSxCOLUMNS or a number of slots".into())
    }
}

impl Rotation {
    /// Returns the steps that keys are asked for, each once, ascending.
    ///
    /// # Errors
    /// [`CkksError::Parameters`].
    pub fn steps(asked: &[Self], parameters: &Parameters) -> Result<Vec<i64>, CkksError> {
        let slots = parameters.slots();
        let mut steps = BTreeSet::new();
        for rotation in asked {
            match *rotation {
                Self::Sum => steps.extend((0..slots.trailing_zeros()).map(|bit| 1 << bit)),
                Self::Matrix(rows, columns) if rows.max(columns) <= slots => {
                    steps.extend(matrix_rotations(rows, columns, slots));
                }
                Self::Matrix(rows, columns) => {
                    let why = format!(
                        "a matrix of {rows}x{columns} has more than {slots} rows or columns"
                    );
                    return Err(CkksError::Parameters { why });
                }
                Self::By(by) => drop(steps.insert(by)),
                Self::Conjugate => {}
            }
        }
        let turns = steps.into_iter().map(|by| by.rem_euclid(slots as i64));
        let turns: BTreeSet<i64> = turns.filter(|&by| by != 0).collect();
        Ok(turns.into_iter().collect())
    }
}
