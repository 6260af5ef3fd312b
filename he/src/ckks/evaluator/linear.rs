//! Rotations, and what is made of them: sums over slots, products by matrices.

use ciphergram_accel::program::MAX_TERMS;

use super::{Evaluator, Name};
use crate::{
    Error,
    ckks::{
        Bound, Ciphertext, CkksError, Complex, Digits, Plaintext,
        noise::{self, Weights},
        programs,
        switching_key::SwitchingKey,
    },
};

impl Evaluator<'_> {
    /// Rotates slots: slot j takes what slot `j + steps` had, around the end.
    ///
    /// # Errors
    /// [`CkksError::NoRotation`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn rotate(&self, a: &Ciphertext, steps: i64) -> Result<Ciphertext, Error> {
        self.check(a)?;
        if self.is_whole_turn(steps) {
            return Ok(a.clone());
        }
        self.turn(a, self.keys.rotation(steps)?)
    }

    /// Conjugates slots.
    ///
    /// # Errors
    /// [`CkksError::NoConjugate`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn conjugate(&self, a: &Ciphertext) -> Result<Ciphertext, Error> {
        self.check(a)?;
        self.turn(a, self.keys.conjugate()?)
    }

    fn is_whole_turn(&self, steps: i64) -> bool {
        steps.rem_euclid(self.parameters.slots() as i64) == 0
    }

    fn turn(
        &self,
        a: &Ciphertext,
        (element, key): (u32, &SwitchingKey),
    ) -> Result<Ciphertext, Error> {
        let level = a.level;
        let program = self.program(Name::Turn(level, element), |set| {
            Some(programs::turn(set, level, element, key))
        })?;
        self.run(&program, &[&a.parts[0], &a.parts[1]], (level, self.turned(a.bound, level)))
    }

    /// Returns the bound on what a rotation leaves.
    fn turned(&self, bound: Bound, level: usize) -> Bound {
        let set = &self.parameters;
        bound.with(noise::of_switch(set, level) + noise::of_division(set), set.scale(level))
    }

    /// Cuts a ciphertext into the digits that its rotations share.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`]; the engine's.
    pub fn digits(&self, a: &Ciphertext) -> Result<Digits, Error> {
        self.check(a)?;
        let level = a.level;
        let program =
            self.program(Name::Digits(level), |set| Some(programs::digits(set, level)))?;
        let of = self.parameters.level(level);
        let words = of.all.len_words();
        let mut digits = vec![vec![0; words]; of.digits.len()];
        let mut operands = vec![ciphergram_accel::Operand::In(&a.parts[1])];
        operands.extend(digits.iter_mut().map(|digit| ciphergram_accel::Operand::Out(digit)));
        self.engine.run(&program, &mut operands)?;
        drop(operands);
        let (key, first) = (a.key, a.parts[0].clone());
        Ok(Digits { key, first, level, bound: a.bound, digits })
    }

    /// Rotates the ciphertext that digits are of.
    ///
    /// # Errors
    /// [`CkksError::NoRotation`], of a whole turn too; the engine's.
    pub fn rotate_digits(&self, a: &Digits, steps: i64) -> Result<Ciphertext, Error> {
        self.check_key(a.key, "the ciphertext of these digits is under key")?;
        let (element, key) = self.keys.rotation(steps)?;
        let level = a.level;
        let program = self.program(Name::TurnDigits(level, element), |set| {
            Some(programs::turn_digits(set, level, element, key))
        })?;
        let inputs: Vec<&[u64]> =
            std::iter::once(&a.first).chain(&a.digits).map(|words| &words[..]).collect();
        self.run(&program, &inputs, (level, self.turned(a.bound, level)))
    }

    /// Rotates a ciphertext by each of some steps: it is cut into digits once.
    ///
    /// # Errors
    /// [`CkksError::NoRotation`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn rotate_by_each(&self, a: &Ciphertext, steps: &[i64]) -> Result<Vec<Ciphertext>, Error> {
        let digits = self.digits(a)?;
        let turn = |&steps: &i64| match self.is_whole_turn(steps) {
            true => Ok(a.clone()),
            false => self.rotate_digits(&digits, steps),
        };
        steps.iter().map(turn).collect()
    }

    /// Sums over runs of `count` slots, a power of two: slot j takes the sum of slots j to
    /// `j + count − 1`, around the end. It rotates by 1, 2, 4 … `count / 2`.
    ///
    /// # Errors
    /// [`CkksError::Vectors`] where `count` is no power of two or more than slots;
    /// [`CkksError::NoRotations`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn inner_sum(&self, a: &Ciphertext, count: usize) -> Result<Ciphertext, Error> {
        let slots = self.parameters.slots();
        if !count.is_power_of_two() || count > slots {
            return Err(CkksError::too_many(count, slots).into());
        }
        self.check(a)?;
        let mut sum = a.clone();
        for bit in 0..count.trailing_zeros() {
            let rotated = self.rotate(&sum, 1 << bit).map_err(|e| naming(e, || "sum".into()))?;
            sum = self.add(&sum, &rotated)?;
        }
        Ok(sum)
    }

    /// Returns the product of a matrix by a vector, which fills the first slots as its result does. What is in slots
    /// behind the vector does not matter; behind the result there is nothing, or the result again (see [`Matrix`]). A
    /// level lower.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`] where a is on a lower level than the matrix was encoded for, or
    /// that is 0; [`CkksError::NoRotations`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn multiply_matrix(&self, matrix: &Matrix, a: &Ciphertext) -> Result<Ciphertext, Error> {
        let (rows, columns) = matrix.sizes;
        let product = self.multiply_diagonals(matrix, a);
        product.map_err(|error| naming(error, || format!("matrix:{rows}x{columns}")))
    }

    fn multiply_diagonals(&self, matrix: &Matrix, a: &Ciphertext) -> Result<Ciphertext, Error> {
        let a = self.lowered(a, matrix.level)?;
        let Some((first, rest)) = matrix.giants.split_first() else {
            return self.multiply_constant(&a, 0.0);
        };
        let level = matrix.level;
        let rescale =
            self.program(Name::Rescale(level), |set| programs::weigh(set, level, &[1]))?;
        let babies: Vec<i64> = (0..matrix.babies as i64).collect();
        let turned = self.rotate_by_each(&a, &babies)?;
        let sum = |(steps, diagonals): &(i64, Vec<(usize, Plaintext)>)| {
            let terms = diagonals.len();
            let program = self.program(Name::SumPlain(level, terms), |set| {
                Some(programs::sum_plain(set, level, terms))
            })?;
            let of = |(baby, _): &(usize, Plaintext)| {
                turned[*baby].parts.iter().map(|part| &part[..]).collect::<Vec<_>>()
            };
            let mut inputs: Vec<&[u64]> = diagonals.iter().flat_map(of).collect();
            inputs.extend(diagonals.iter().map(|(_, diagonal)| &diagonal.words[..]));
            self.rotate(&self.run(&program, &inputs, (level, a.bound))?, *steps)
        };
        // Sums stay at the scale of products until all are there. What a rotation and a rescaling round is of the size
        // of the noise of a fresh ciphertext; at that scale it is nothing, and the rescaling is one for all.
        let mut total = sum(first)?;
        for giant in rest {
            total = self.add(&total, &sum(giant)?)?;
        }
        for &steps in &matrix.folds {
            total = self.add(&total, &self.rotate(&total, steps)?)?;
        }
        let turns = (1 + matrix.giants.len()) << matrix.folds.len();
        let rounded = (matrix.rounded, turns as f64);
        let bound = matrix.weights.product(&self.parameters, (a.bound, level), rounded);
        self.run(&rescale, &[&total.parts[0], &total.parts[1]], (level - 1, bound))
    }

    /// Encodes a matrix, row by row, for vectors on a level.
    ///
    /// # Errors
    /// [`CkksError::Vectors`] where rows or columns are more than slots, or numbers are not rows times
    /// columns; [`CkksError::Value`]; [`CkksError::Level`]; the engine's.
    pub fn encode_matrix(
        &self,
        values: &[f64],
        (rows, columns): (usize, usize),
        level: usize,
    ) -> Result<Matrix, Error> {
        let slots = self.parameters.slots();
        if rows == 0 || columns == 0 || rows.max(columns) > slots || values.len() != rows * columns
        {
            return Err(CkksError::too_many(values.len(), slots).into());
        }
        let way = Way::of(rows, columns, slots);
        let weights = values.chunks_exact(columns).enumerate().map(|(row, values)| {
            // The columns that one rotation of a sum brings to the row.
            let first = (row as i64 + way.diagonals.0).rem_euclid(way.babies as i64);
            let runs = (first as usize, way.babies);
            Weights::of_row(values, runs, self.parameters.degree())
        });
        let weights = weights.fold(Weights::default(), Weights::max);
        let mut giants = vec![];
        for giant in way.giants() {
            let mut diagonals = vec![];
            for baby in 0..way.babies {
                // Diagonal k has at slot j what the row of slot j has in column j + k. It is rotated with the sum,
                // so it is turned back before.
                let k = giant + baby as i64;
                let mut diagonal = vec![0.0; slots];
                let mut is_zero = true;
                let around = |place: i64| place.rem_euclid(slots as i64) as usize;
                for j in way.rows_of(k, columns) {
                    let (row, column) = (j as usize % way.period, around(j + k));
                    if row < rows && column < columns {
                        let value = values[row * columns + column];
                        diagonal[around(j + giant)] = value;
                        is_zero &= value == 0.0;
                    }
                }
                if !is_zero {
                    diagonals.push((baby, self.encode(&Complex::real(&diagonal), level)?));
                }
            }
            if !diagonals.is_empty() {
                giants.push((giant, diagonals));
            }
        }
        let (sizes, folds) = ((rows, columns), way.folds().collect());
        let all = giants.iter().flat_map(|(_, diagonals)| diagonals);
        // Each share of a row has them all.
        let shares = (way.height / way.period) as f64;
        let rounded = shares * all.map(|(_, diagonal)| diagonal.bound.error).sum::<f64>();
        Ok(Matrix { sizes, level, babies: way.babies, giants, folds, weights, rounded })
    }
}

/// A matrix by its diagonals, encoded: rotations of a vector by few steps, then of sums by many.
///
/// A product by a matrix of R rows and C columns takes `R + C − 1` diagonals. Where C is more than half of the slots
/// and R, rounded up to a power of two, at most half of them, R diagonals are enough that go around the slots: slot j
/// then has a share of row `j mod R`, and sums over slots R apart bring the shares together, so that the result is
/// there again every R slots.
pub struct Matrix {
    /// Rows and columns.
    sizes: (usize, usize),
    level: usize,
    /// Rotations of the vector, by 0 and on.
    babies: usize,
    /// By how much each sum is rotated, and its diagonals by the rotation that they multiply. None of zeros alone.
    giants: Vec<(i64, Vec<(usize, Plaintext)>)>,
    /// Rotations of the result, each added to it.
    folds: Vec<i64>,
    /// What its rows take errors by.
    weights: Weights,
    /// The most that encodings of its diagonals are off by, together.
    rounded: f64,
}

impl Matrix {
    /// Returns whether products are there again behind themselves, in slots that are zero otherwise.
    #[must_use]
    pub fn is_folded(&self) -> bool {
        !self.folds.is_empty()
    }
}

/// Names all rotations of an operation where one is missing.
fn naming(error: Error, of: impl FnOnce() -> String) -> Error {
    match error {
        Error::Ckks(CkksError::NoRotation { .. }) => CkksError::NoRotations { of: of() }.into(),
        error => error,
    }
}

/// The way in which a matrix is multiplied.
struct Way {
    slots: usize,
    /// Slots that diagonals fill.
    height: usize,
    /// Slots after which rows begin again.
    period: usize,
    /// The first diagonal, and the one behind the last.
    diagonals: (i64, i64),
    /// Rotations of the vector: about the square root of the diagonals.
    babies: usize,
}

impl Way {
    fn of(rows: usize, columns: usize, slots: usize) -> Self {
        let period = rows.next_power_of_two();
        let is_folded = columns > slots / 2 && period <= slots / 2;
        let (height, period, diagonals) = match is_folded {
            true => (slots, period, (0, period as i64)),
            false => (rows, rows, (1 - rows as i64, columns as i64)),
        };
        let count = (diagonals.1 - diagonals.0) as usize;
        let babies = count.isqrt().next_power_of_two().min(MAX_TERMS);
        Self { slots, height, period, diagonals, babies }
    }

    fn is_folded(&self) -> bool {
        self.height == self.slots && self.period < self.slots
    }

    /// Returns the slots at which a diagonal has something.
    fn rows_of(&self, diagonal: i64, columns: usize) -> std::ops::Range<i64> {
        let all = 0..self.height as i64;
        match self.is_folded() {
            true => all,
            false => (-diagonal).max(0)..all.end.min(columns as i64 - diagonal),
        }
    }

    fn giants(&self) -> impl Iterator<Item = i64> + use<> {
        (self.diagonals.0..self.diagonals.1).step_by(self.babies)
    }

    fn folds(&self) -> impl Iterator<Item = i64> + use<> {
        let (slots, is_folded) = (self.slots, self.is_folded());
        let all = std::iter::successors(Some(self.period), |steps| Some(2 * steps));
        all.take_while(move |&steps| is_folded && steps < slots).map(|steps| steps as i64)
    }
}

/// Returns the rotations that a product by a matrix of these sizes takes keys for.
#[must_use]
pub fn matrix_rotations(rows: usize, columns: usize, slots: usize) -> Vec<i64> {
    let way = Way::of(rows, columns, slots);
    let small = 1..way.babies as i64;
    small.chain(way.giants()).chain(way.folds()).filter(|&k| k != 0).collect()
}
