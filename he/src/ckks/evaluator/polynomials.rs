//! Polynomials of a ciphertext.

use std::collections::BTreeMap;

use super::Evaluator;
use crate::{
    Error,
    ckks::{Ciphertext, CkksError},
};

/// The numbers that coefficients of a polynomial multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// 1, x, x², x³ …
    Powers,
    /// 1, x, 2x² − 1 …: Chebyshev's polynomials, which stay within ±1 for x within ±1.
    Chebyshev,
}

/// A polynomial with real coefficients, the lowest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Polynomial {
    /// The coefficients.
    pub coefficients: Vec<f64>,
    /// What they multiply.
    pub basis: Basis,
}

impl Polynomial {
    /// Returns the degree: 0 of a constant, and where there are no coefficients.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.coefficients.iter().rposition(|&c| c != 0.0).unwrap_or(0)
    }

    /// Returns the levels that it takes: `⌈log₂(degree + 1)⌉`.
    #[must_use]
    pub fn depth(&self) -> usize {
        (self.degree() + 1).next_power_of_two().trailing_zeros() as usize
    }

    /// Returns its value.
    #[must_use]
    pub fn value(&self, x: f64) -> f64 {
        let (mut sum, mut before, mut power) = (0.0, 0.0, 1.0);
        for (i, &c) in self.coefficients.iter().enumerate() {
            sum += c * power;
            let next = match self.basis {
                Basis::Powers => x * power,
                Basis::Chebyshev if i == 0 => x,
                Basis::Chebyshev => 2.0 * x * power - before,
            };
            (before, power) = (power, next);
        }
        sum
    }
}

/// A polynomial of a ciphertext under way.
struct Evaluation<'a, 'e> {
    evaluator: &'a Evaluator<'e>,
    basis: Basis,
    /// Elements of the basis, by degree.
    elements: BTreeMap<usize, Ciphertext>,
}

impl Evaluator<'_> {
    /// Returns the polynomial of each slot, as many levels lower as [`Polynomial::depth`] says.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`]; [`CkksError::Value`], by the coefficient's index;
    /// [`CkksError::OtherParameters`]; the engine's.
    pub fn polynomial(&self, of: &Polynomial, x: &Ciphertext) -> Result<Ciphertext, Error> {
        self.check(x)?;
        let level = x.level.checked_sub(of.depth()).ok_or(CkksError::OutOfLevels)?;
        let coefficients = &of.coefficients[..of.coefficients.len().min(of.degree() + 1)];
        let elements = BTreeMap::from([(1, x.clone())]);
        let mut evaluation = Evaluation { evaluator: self, basis: of.basis, elements };
        let value = evaluation.value(coefficients, of.depth())?;
        match value {
            Some(value) => self.lower(&value, level),
            None => {
                // A constant.
                let zero = self.multiply_integer(x, 0)?;
                self.add_constant(&zero, coefficients.first().copied().unwrap_or(0.0))
            }
        }
    }
}

impl Evaluation<'_, '_> {
    /// Returns an element of the basis: a product of two of about half its degree, as deep as
    /// `⌈log₂ degree⌉`.
    fn element(&mut self, degree: usize) -> Result<Ciphertext, Error> {
        if let Some(element) = self.elements.get(&degree) {
            return Ok(element.clone());
        }
        let high = (degree.next_power_of_two() / 2).max(1);
        let (a, b) = (self.element(high)?, self.element(degree - high)?);
        let product = self.evaluator.multiply(&a, &b)?;
        let element = match self.basis {
            Basis::Powers => product,
            // T_(i+j) = 2 T_i T_j − T_(i−j).
            Basis::Chebyshev => {
                let double = self.evaluator.multiply_integer(&product, 2)?;
                match high - (degree - high) {
                    0 => self.evaluator.add_constant(&double, -1.0)?,
                    rest => {
                        let rest = self.element(rest)?;
                        self.evaluator.sub(&double, &rest)?
                    }
                }
            }
        };
        self.elements.insert(degree, element.clone());
        Ok(element)
    }

    /// Returns the value of a polynomial of degree below `2^depth` within that many levels; none of a
    /// constant.
    fn value(&mut self, coefficients: &[f64], depth: usize) -> Result<Option<Ciphertext>, Error> {
        let Some(degree) = coefficients.iter().rposition(|&c| c != 0.0).filter(|&d| d > 0) else {
            return Ok(None);
        };
        // Sums of elements take as many products as elements: few of them, and of the degrees that
        // leave a level for what they are weighed by.
        let is_flat = degree == 1
            || degree < 1 << depth.div_ceil(2) && degree.next_power_of_two() < 1 << depth;
        if is_flat {
            let elements: Vec<(f64, Ciphertext)> = (1..=degree)
                .filter(|&i| coefficients[i] != 0.0)
                .map(|i| Ok((coefficients[i], self.element(i)?)))
                .collect::<Result<_, Error>>()?;
            let terms: Vec<_> = elements.iter().map(|(c, element)| (*c, element)).collect();
            let sum = self.evaluator.weigh(&terms)?;
            return self.evaluator.add_constant(&sum, coefficients[0]).map(Some);
        }
        // p = q · (element of the largest power of two) + r.
        let high = (degree + 1).next_power_of_two() / 2;
        let (quotient, rest) = self.divided(&coefficients[..=degree], high);
        let element = self.element(high)?;
        let product = match self.value(&quotient, depth - 1)? {
            Some(quotient) => self.evaluator.multiply(&quotient, &element)?,
            None => self.evaluator.multiply_constant(&element, quotient[0])?,
        };
        let sum = match self.value(&rest, depth)? {
            Some(rest) => self.evaluator.add(&product, &rest)?,
            None => self.evaluator.add_constant(&product, rest[0])?,
        };
        Ok(Some(sum))
    }

    /// Divides by the element of degree `high`, of a polynomial of degree below `2 · high`.
    fn divided(&self, coefficients: &[f64], high: usize) -> (Vec<f64>, Vec<f64>) {
        let mut quotient = coefficients[high..].to_vec();
        let mut rest = coefficients[..high].to_vec();
        if self.basis == Basis::Chebyshev {
            // T_(high+j) = 2 T_high T_j − T_(high−j).
            for j in 1..quotient.len() {
                rest[high - j] -= quotient[j];
                quotient[j] *= 2.0;
            }
        }
        (quotient, rest)
    }
}
