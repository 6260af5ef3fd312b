//! Operations on vectors, value by value and across values, with units kept as small as results allow.
//!
//! # Units
//! Values are multiples of a power of two. A vector's may be any: sums bring the coarser one to the finer unit, by an
//! integer, or the one on the higher level to the other's; products multiply units. A public factor is divided by a
//! power of two that the unit takes up, such that results are at most [`room`]: the sum of as many of them fits level
//! 0; those of a matrix may be more, so that sums of a few fit. Powers of two as factors, and divisions by integers,
//! take no level so.
//!
//! # What is behind the values
//! Slots behind the values of a fresh vector are zero, and stay zero under all of these but rotations, folded matrices
//! and sums with a single encrypted value. A vector knows whether they are; [`Vector::sum`] clears them first.

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use rayon::prelude::*;

use super::{
    Layout, Vector,
    vector::{EXPONENTS, check_layout, ciphertexts},
};
use crate::{
    Dtype, Error, TensorSpec,
    ckks::{Basis, Ciphertext, CkksError, Complex, Evaluator, Plaintext, Polynomial},
};

/// Binary logarithm of the largest sum of results, in units: level 0 holds twice as much.
const SUM_BITS: i32 = 7;
/// Binary logarithm of the norm of a matrix's largest row, in units: what rounding adds is lost beside the noise then.
const NORM_BITS: i32 = 2;
/// Binary logarithm of the largest public number that is encoded, and of its inverse: beyond, rounding shows.
const FACTOR_BITS: i32 = 10;
/// Binary logarithm of the largest power of a value within a polynomial.
const POWER_BITS: f64 = 20.0;
/// Binary logarithm of the largest integer that a ciphertext is multiplied by to use its room.
const SHIFT_BITS: i32 = 40;

/// The slots of two vectors, pair by pair, and a vector like the result, without ciphertexts.
type Paired<'a> = (Vector, Vec<(&'a Ciphertext, &'a Ciphertext)>);

impl Vector {
    /// Returns `self + other`, value by value. A single encrypted value, as [`sum`](Self::sum) returns it, is added to
    /// every value.
    ///
    /// # Errors
    /// Another key; another shape or layout; [`CkksError::NoRoom`]; the engine's.
    pub fn add(&self, evaluator: &Evaluator<'_>, other: &Self) -> Result<Self, Error> {
        self.total(evaluator, other, false)
    }

    /// Returns `self − other`, value by value.
    ///
    /// # Errors
    /// Those of [`add`](Self::add).
    pub fn sub(&self, evaluator: &Evaluator<'_>, other: &Self) -> Result<Self, Error> {
        self.total(evaluator, other, true)
    }

    fn total(&self, evaluator: &Evaluator<'_>, other: &Self, minus: bool) -> Result<Self, Error> {
        // Whichever is on a higher level is lowered, by a factor that may as well bring it to the other's unit.
        let (x, y) = match self.level().cmp(&other.level()) {
            Ordering::Equal => (Cow::Borrowed(self), Cow::Borrowed(other)),
            Ordering::Less => {
                (Cow::Borrowed(self), Cow::Owned(other.in_units_of(evaluator, self)?))
            }
            Ordering::Greater => {
                (Cow::Owned(self.in_units_of(evaluator, other)?), Cow::Borrowed(other))
            }
        };
        let (shell, pairs) = x.paired(&y)?;
        let exponent = x.exponent.min(y.exponent);
        let divisor = common_multiple(x.divisor, y.divisor).ok_or(CkksError::NoRoom)?;
        let [a, b] = [&x, &y].map(|vector| {
            let bits = u32::try_from(vector.exponent - exponent).ok().filter(|&bits| bits < 62)?;
            (1i64 << bits).checked_mul(i64::try_from(divisor / vector.divisor).ok()?)
        });
        let (a, b) = (a.ok_or(CkksError::NoRoom)?, b.ok_or(CkksError::NoRoom)?);
        let sum = |&(x, y): &(&Ciphertext, &Ciphertext)| {
            let (x, y) = (times(evaluator, x, a)?, times(evaluator, y, b)?);
            if minus { evaluator.sub(&x, &y) } else { evaluator.add(&x, &y) }
        };
        let ciphertexts = pairs.par_iter().map(sum).collect::<Result<_, _>>()?;
        let has_tail = x.fills(&shell) || y.fills(&shell);
        Self { exponent, divisor, has_tail, ciphertexts, ..shell }.checked()
    }

    /// Returns the same values in the unit of a vector on a lower level, and by its divisor, a level lower.
    fn in_units_of(&self, evaluator: &Evaluator<'_>, other: &Self) -> Result<Self, Error> {
        let (exponent, divisor) = (other.exponent, other.divisor);
        if (self.exponent, self.divisor) == (exponent, divisor) {
            return Ok(self.clone());
        }
        let factor = self.unit() / other.unit() * (divisor as f64 / self.divisor as f64);
        if self.bound().magnitude * factor > f64::from(SHIFT_BITS).exp2() {
            return Err(CkksError::NoRoom.into());
        }
        let lowered = self.each(|ciphertext| evaluator.multiply_constant(ciphertext, factor))?;
        Ok(Self { exponent, divisor, ..lowered })
    }

    /// Returns `−self`.
    ///
    /// # Errors
    /// Another key; the engine's.
    pub fn negate(&self, evaluator: &Evaluator<'_>) -> Result<Self, Error> {
        self.each(|ciphertext| evaluator.negate(ciphertext))
    }

    /// Returns `self + values`, of the same shape; or, of a single encrypted value, its sum with each.
    ///
    /// # Errors
    /// Another key; another shape; [`CkksError::Value`] with the first that is not finite or too large;
    /// [`CkksError::NoRoom`]; the engine's.
    pub fn add_plain(
        &self,
        evaluator: &Evaluator<'_>,
        values: &[f64],
        shape: &[u64],
    ) -> Result<Self, Error> {
        let (shell, own) = self.shaped(values, shape)?;
        let factor = self.divisor as f64 / self.unit();
        let add = |(index, ciphertext): (usize, &&Ciphertext)| {
            let plain = shell.encoded(evaluator, (values, factor), (index, ciphertext.level()))?;
            evaluator.add_plain(ciphertext, &plain)
        };
        let ciphertexts = own.par_iter().enumerate().map(add).collect::<Result<_, _>>()?;
        let (exponent, divisor, has_tail) = (self.exponent, self.divisor, self.fills(&shell));
        Self { exponent, divisor, has_tail, ciphertexts, ..shell }.checked()
    }

    /// Returns `self · other`, value by value, a level lower, or two where values have grown far beyond their room. A
    /// single encrypted value multiplies every value.
    ///
    /// # Errors
    /// Another key; another shape or layout; [`CkksError::OutOfLevels`]; [`CkksError::NoRelinearisation`];
    /// [`CkksError::NoRoom`]; the engine's.
    pub fn multiply(&self, evaluator: &Evaluator<'_>, other: &Self) -> Result<Self, Error> {
        // Small products would drown in what rescaling rounds, and large ones wrap around.
        let room = room(self.values().max(other.values()));
        let most = |a: &Self, b: &Self| a.bound().magnitude * b.bound().magnitude;
        let is_large = most(self, other) > room * f64::from(SUM_BITS).exp2();
        let (x, y) = (
            self.shrunk(evaluator, other, (room, is_large))?,
            other.shrunk(evaluator, self, (room, is_large))?,
        );
        let bits = (room / most(&x, &y)).log2().floor().clamp(0.0, f64::from(SHIFT_BITS));
        let x = x.resized(evaluator, bits as i32)?;
        let (shell, pairs) = x.paired(&y)?;
        let multiply = |&(a, b): &(&Ciphertext, &Ciphertext)| evaluator.multiply(a, b);
        let ciphertexts = pairs.par_iter().map(multiply).collect::<Result<_, _>>()?;
        let has_tail = x.fills(&shell) && y.fills(&shell);
        let exponent = x.exponent + y.exponent;
        let divisor = x.divisor.checked_mul(y.divisor).ok_or(CkksError::NoRoom)?;
        Self { exponent, divisor, has_tail, ciphertexts, ..shell }.checked()
    }

    /// Returns `self · values`, of the same shape, a level lower; or, of a single encrypted value, its product with
    /// each.
    ///
    /// # Errors
    /// Another key; another shape; [`CkksError::OutOfLevels`]; [`CkksError::Value`]; [`CkksError::NoRoom`]; the
    /// engine's.
    pub fn multiply_plain(
        &self,
        evaluator: &Evaluator<'_>,
        values: &[f64],
        shape: &[u64],
    ) -> Result<Self, Error> {
        let (shell, own) = self.shaped(values, shape)?;
        check_finite(values, self.level())?;
        let bits = self.shift(largest(values), shell.values());
        let factor = f64::from(-bits).exp2();
        let multiply = |(index, ciphertext): (usize, &&Ciphertext)| {
            let plain = shell.encoded(evaluator, (values, factor), (index, ciphertext.level()))?;
            evaluator.multiply_plain(ciphertext, &plain)
        };
        let ciphertexts = own.par_iter().enumerate().map(multiply).collect::<Result<_, _>>()?;
        let (exponent, divisor) = (self.exponent + bits, self.divisor);
        Self { exponent, divisor, has_tail: false, ciphertexts, ..shell }.checked()
    }

    /// Returns `value · self`: a level lower, but by zero and by a power of two, of either sign.
    ///
    /// # Errors
    /// Another key; [`CkksError::OutOfLevels`]; [`CkksError::Value`]; [`CkksError::NoRoom`]; the engine's.
    pub fn multiply_constant(&self, evaluator: &Evaluator<'_>, value: f64) -> Result<Self, Error> {
        check_finite(&[value], self.level())?;
        let power = value.abs().log2();
        if value == 0.0 {
            return self.each(|ciphertext| evaluator.multiply_integer(ciphertext, 0));
        }
        if value.is_normal() && power.fract() == 0.0 && power.exp2() == value.abs() {
            let exponent = self.exponent.saturating_add(power as i32);
            let signed = if value < 0.0 { self.negate(evaluator)? } else { self.clone() };
            return Self { exponent, ..signed }.checked();
        }
        let bits = self.shift(value.abs(), self.values());
        let factor = value * f64::from(-bits).exp2();
        let product = self.each(|ciphertext| evaluator.multiply_constant(ciphertext, factor))?;
        Self { exponent: self.exponent + bits, ..product }.checked()
    }

    /// Returns `self / by`, on the same level: what is decrypted is divided.
    ///
    /// # Errors
    /// [`CkksError::Vectors`] where `by` is 0, or all divisors together exceed 2^64; [`CkksError::NoRoom`].
    pub fn divide(&self, by: u64) -> Result<Self, Error> {
        let why = || CkksError::Vectors { why: format!("it cannot be divided by {by}") };
        // The unit takes up powers of two.
        let bits = if by == 0 { return Err(why().into()) } else { by.trailing_zeros() };
        let divisor = self.divisor.checked_mul(by >> bits).ok_or_else(why)?;
        let exponent = self.exponent - bits as i32;
        Self { exponent, divisor, ..self.clone() }.checked()
    }

    /// Rotates the slots of a vector in one ciphertext: value j becomes what was in slot `j + steps`, around the end of
    /// all slots.
    ///
    /// # Errors
    /// Another key; a vector of several ciphertexts; [`CkksError::NoRotation`]; the engine's.
    pub fn rotate(&self, evaluator: &Evaluator<'_>, steps: i64) -> Result<Self, Error> {
        if self.layout == Layout::Each || self.ciphertexts.len() > 1 {
            let why = format!(
                "a vector of {} ciphertexts is not rotated: values do not leave theirs, which holds {}",
                self.ciphertexts.len(),
                self.slots()
            );
            return Err(CkksError::Vectors { why }.into());
        }
        let is_turned = steps.rem_euclid(self.slots() as i64) != 0;
        let rotated = self.each(|ciphertext| evaluator.rotate(ciphertext, steps))?;
        Self { has_tail: self.has_tail || is_turned, ..rotated }.checked()
    }

    /// Returns the sum of all values as a single one, which is in all slots. Behind a rotation it takes a level.
    ///
    /// # Errors
    /// Another key; [`CkksError::NoRotations`]; [`CkksError::NoRoom`]; the engine's.
    pub fn sum(&self, evaluator: &Evaluator<'_>) -> Result<Self, Error> {
        if self.has_tail {
            let shape = self.shape();
            return self
                .multiply_plain(evaluator, &vec![1.0; self.values()], &shape)?
                .sum(evaluator);
        }
        let (first, rest) = self.split()?;
        let mut sum = first.clone();
        for ciphertext in rest {
            sum = evaluator.add(&sum, ciphertext)?;
        }
        if self.layout != Layout::Each {
            sum = evaluator.inner_sum(&sum, self.slots())?;
        }
        let most = self.bound().magnitude * self.values() as f64;
        let specs = vec![self.spec(vec![])];
        let ciphertexts = vec![sum.within(most)];
        Self { specs, layout: Layout::Each, ciphertexts, ..self.shell() }.checked()
    }

    /// Returns the product of a matrix, row by row, by the vector, a level lower.
    ///
    /// # Errors
    /// Another key; a matrix of other columns than the vector has values, or of more rows than slots;
    /// [`CkksError::OutOfLevels`]; [`CkksError::NoRotations`]; [`CkksError::Value`]; [`CkksError::NoRoom`]; the
    /// engine's.
    pub fn multiply_matrix(
        &self,
        evaluator: &Evaluator<'_>,
        values: &[f64],
        (rows, columns): (usize, usize),
    ) -> Result<Self, Error> {
        let (slots, level) = (self.slots(), self.level());
        let refuse = |why: String| Err(CkksError::Vectors { why }.into());
        if self.layout != Layout::Rows || columns != self.values() {
            let shape = self.shape();
            return refuse(format!(
                "{rows}x{columns} numbers do not multiply a vector of {shape:?}"
            ));
        }
        if rows == 0 || rows > slots || values.len() != rows * columns {
            return refuse(format!("a product of {rows} values does not fit {slots} slots"));
        }
        if level == 0 {
            return Err(CkksError::OutOfLevels.into());
        }
        check_finite(values, level)?;
        let sums = |of: fn(&f64) -> f64| {
            let rows = values.chunks_exact(columns).map(|row| row.iter().map(of).sum());
            rows.fold(0.0, f64::max)
        };
        let (size, norm) = (sums(|x| x.abs()), sums(|x| x * x).sqrt());
        // The noise of the vector grows by the norm of a row, and what its results may be by the sum. A unit that keeps
        // rounding below the noise leaves what room there is to sums of results; one that left all room to them, as
        // that of other products does, would grow by the sum and take rounding along.
        let most = size * self.bound().magnitude / f64::from(SUM_BITS).exp2();
        let bits = self.shift(size, rows).min(exponent(most).max(exponent(norm) - NORM_BITS));
        let factor = f64::from(-bits).exp2();
        // All parts but one are as wide as there are slots, and that one is filled up: they share their keys.
        let width = columns.min(slots);
        let mut sum: Option<Ciphertext> = None;
        let mut has_tail = false;
        for (part, ciphertext) in self.ciphertexts.iter().enumerate() {
            let mut block = vec![0.0; rows * width];
            let first = part * width;
            for (to, from) in block.chunks_exact_mut(width).zip(values.chunks_exact(columns)) {
                let from = &from[first..columns.min(first + width)];
                to.iter_mut().zip(from).for_each(|(to, from)| *to = from * factor);
            }
            let matrix = evaluator.encode_matrix(&block, (rows, width), level)?;
            has_tail |= matrix.is_folded();
            let product = evaluator.multiply_matrix(&matrix, ciphertext)?;
            sum = Some(match sum {
                Some(sum) => evaluator.add(&sum, &product)?,
                None => product,
            });
        }
        let sum = sum.ok_or(CkksError::NoRoom)?;
        let most = self.bound().magnitude * size * factor;
        let specs = vec![self.spec(vec![rows as u64])];
        let (exponent, ciphertexts) = (self.exponent + bits, vec![sum.within(most)]);
        Self { specs, exponent, has_tail, ciphertexts, ..self.shell() }.checked()
    }

    /// Returns the polynomial with these coefficients, the lowest first, of each value: as many levels lower as
    /// [`Polynomial::depth`] says.
    ///
    /// # Errors
    /// Another key; [`CkksError::OutOfLevels`]; [`CkksError::NoRelinearisation`]; [`CkksError::Value`], by the
    /// coefficient's index; [`CkksError::NoRoom`]; the engine's.
    pub fn polynomial(
        &self,
        evaluator: &Evaluator<'_>,
        coefficients: &[f64],
    ) -> Result<Self, Error> {
        check_finite(coefficients, self.level())?;
        // Within ±1, so that powers neither vanish nor grow; if there is no level for that, they may grow a little.
        let degree = coefficients.iter().rposition(|&c| c != 0.0).unwrap_or(0);
        let depth = (degree + 1).next_power_of_two().trailing_zeros() as usize;
        let bits = -exponent(self.bound().magnitude);
        let bits = bits.clamp(if self.level() > depth { -SHIFT_BITS } else { 0 }, SHIFT_BITS);
        let x = self.resized(evaluator, bits)?;
        let (factor, most) = (x.unit() / x.divisor as f64, x.bound().magnitude);
        if most.max(1.0).log2() * degree as f64 > POWER_BITS {
            return Err(CkksError::NoRoom.into());
        }
        let power = |i: usize| factor.powi(i as i32);
        let sizes = coefficients.iter().enumerate();
        let size: f64 = sizes.map(|(i, c)| c.abs() * power(i) * most.powi(i as i32)).sum();
        let bits = exponent(size / room(self.values()));
        let unit = f64::from(bits).exp2();
        let scaled = coefficients.iter().enumerate().skip(1).map(|(i, c)| c * power(i) / unit);
        // The constant is added last, to the values alone.
        let scaled: Vec<f64> = std::iter::once(0.0).chain(scaled).collect();
        check_finite(&scaled, self.level())?;
        let polynomial = Polynomial { coefficients: scaled, basis: Basis::Powers };
        let value = x.each(|ciphertext| {
            Ok(evaluator.polynomial(&polynomial, ciphertext)?.within(size / unit))
        })?;
        let value = Self { exponent: bits, divisor: 1, ..value }.checked()?;
        match coefficients.first() {
            None | Some(0.0) => Ok(value),
            Some(&constant) => {
                value.add_plain(evaluator, &vec![constant; self.values()], &self.shape())
            }
        }
    }

    /// Returns each value to the power of `exponent`, `⌈log₂ exponent⌉` levels lower.
    ///
    /// # Errors
    /// Another key; an exponent of 0; [`CkksError::OutOfLevels`]; [`CkksError::NoRelinearisation`];
    /// [`CkksError::NoRoom`]; the engine's.
    pub fn power(&self, evaluator: &Evaluator<'_>, exponent: u32) -> Result<Self, Error> {
        if exponent == 0 {
            let why = "the power of 0 is 1 whatever a value is, and takes no ciphertext";
            return Err(CkksError::Vectors { why: why.into() }.into());
        }
        let depth = exponent.next_power_of_two().trailing_zeros() as usize;
        if self.level() < depth {
            return Err(CkksError::OutOfLevels.into());
        }
        let mut powers = BTreeMap::from([(1, self.clone())]);
        // Each is a product of the largest power of two below it, and the rest.
        let high = |n: u32| n.next_power_of_two() / 2;
        let (mut missing, mut wanted) = (BTreeSet::new(), vec![exponent]);
        while let Some(n) = wanted.pop() {
            if n > 1 && missing.insert(n) {
                wanted.extend([high(n), n - high(n)]);
            }
        }
        for n in missing {
            if let (Some(a), Some(b)) = (powers.get(&high(n)), powers.get(&(n - high(n)))) {
                let product = a.multiply(evaluator, b)?;
                powers.insert(n, product);
            }
        }
        powers.remove(&exponent).ok_or_else(|| CkksError::OutOfLevels.into())
    }

    /// Returns the same values as multiples of a larger unit, for a product by another vector that should be at most
    /// `room`: where that takes no level, as the other one is on a lower level, or all products there take one.
    fn shrunk(
        &self,
        evaluator: &Evaluator<'_>,
        other: &Self,
        (room, is_large): (f64, bool),
    ) -> Result<Cow<'_, Self>, Error> {
        let is_free = self.level() > other.level();
        let half = room.sqrt();
        // To far less it would drown.
        let most = match is_free {
            true => (room / other.bound().magnitude).clamp(half / 32.0, half),
            false => half,
        };
        let bits = (most / self.bound().magnitude).log2().floor();
        let is_wanted = is_free || is_large && self.level() == other.level() && self.level() > 1;
        match bits < 0.0 && is_wanted {
            true => {
                Ok(Cow::Owned(self.resized(evaluator, bits.max(-f64::from(SHIFT_BITS)) as i32)?))
            }
            false => Ok(Cow::Borrowed(self)),
        }
    }

    /// Returns the same values in a unit that is smaller by so many bits: a level lower, if it is larger.
    fn resized(&self, evaluator: &Evaluator<'_>, bits: i32) -> Result<Self, Error> {
        let resized = match bits {
            0 => return Ok(self.clone()),
            1.. => self.each(|ciphertext| evaluator.multiply_integer(ciphertext, 1 << bits)),
            _ => {
                let factor = f64::from(bits).exp2();
                self.each(|ciphertext| evaluator.multiply_constant(ciphertext, factor))
            }
        }?;
        Ok(Self { exponent: self.exponent - bits, ..resized })
    }

    /// Returns how many bits of a public factor of a size the unit takes up, so that results of a number are at most
    /// [`room`].
    fn shift(&self, size: f64, values: usize) -> i32 {
        let fits = (room(values) / self.bound().magnitude).log2();
        let limit = f64::from(FACTOR_BITS);
        exponent(size / fits.clamp(-limit, limit).exp2())
    }

    /// Does the same to each ciphertext.
    fn each(
        &self,
        work: impl Fn(&Ciphertext) -> Result<Ciphertext, Error> + Send + Sync,
    ) -> Result<Self, Error> {
        let ciphertexts = self.ciphertexts.par_iter().map(work).collect::<Result<_, _>>()?;
        Self { ciphertexts, ..self.shell() }.checked()
    }

    /// Returns everything of the vector but its ciphertexts.
    fn shell(&self) -> Self {
        let (specs, sources) = (self.specs.clone(), self.sources.clone());
        Self { specs, sources, ciphertexts: vec![], ..*self }
    }

    /// Returns a tensor of a shape, by the name of the vector's first.
    fn spec(&self, shape: Vec<u64>) -> TensorSpec {
        let name = self.specs.first().map_or_else(String::new, |spec| spec.name.clone());
        TensorSpec { name, dtype: Dtype::F64, shape }
    }

    /// Returns the first ciphertext, and the others.
    fn split(&self) -> Result<(&Ciphertext, &[Ciphertext]), CkksError> {
        let none = || CkksError::Vectors { why: "there are no values".into() };
        self.ciphertexts.split_first().ok_or_else(none)
    }

    /// Returns whether it is one value in all slots.
    fn is_single(&self) -> bool {
        self.layout == Layout::Each && self.ciphertexts.len() == 1
    }

    /// Returns whether this vector has something in slots that are behind the values of a result.
    fn fills(&self, result: &Self) -> bool {
        self.has_tail || self.layout == Layout::Each && result.layout != Layout::Each
    }

    /// Pairs the ciphertexts of two vectors of one shape, or of a single value and any vector.
    fn paired<'a>(&'a self, other: &'a Self) -> Result<Paired<'a>, Error> {
        let is_same = self.layout == other.layout && self.shape() == other.shape();
        let (mut shell, count) = match (is_same, self.is_single(), other.is_single()) {
            (true, ..) | (false, _, true) => (self.shell(), self.ciphertexts.len()),
            (false, true, false) => (other.shell(), other.ciphertexts.len()),
            (false, false, false) => {
                let [a, b] = [self, other].map(|vector| (vector.shape(), vector.layout));
                let why = match a.0 == b.0 {
                    true => "values of one lie in columns, and those of the other in rows".into(),
                    false => format!("vectors of {:?} and {:?} do not go together", a.0, b.0),
                };
                return Err(CkksError::Vectors { why }.into());
            }
        };
        shell.sources = self.sources.clone();
        let new = other.sources.iter().filter(|source| !self.sources.contains(source));
        shell.sources.extend(new.cloned());
        let all = |vector: &'a Self| vector.ciphertexts.iter().cycle().take(count);
        Ok((shell, all(self).zip(all(other)).collect()))
    }

    /// Returns a vector like the result of an operation with public values, without ciphertexts, and a ciphertext for
    /// each of its.
    fn shaped(&self, values: &[f64], shape: &[u64]) -> Result<(Self, Vec<&Ciphertext>), Error> {
        if self.shape() == shape && self.values() == values.len() {
            return Ok((self.shell(), self.ciphertexts.iter().collect()));
        }
        let specs = vec![self.spec(shape.to_vec())];
        let count = specs[0].values();
        if !self.is_single() || count != Some(values.len()) {
            let own = self.shape();
            let why = format!("a vector of {own:?} and numbers of {shape:?} do not go together");
            return Err(CkksError::Vectors { why }.into());
        }
        let layout = Layout::Rows;
        check_layout(&specs, layout)?;
        let count = ciphertexts(&specs, layout, self.slots());
        let own = self.ciphertexts.iter().cycle().take(count).collect();
        Ok((Self { specs, layout, ..self.shell() }, own))
    }

    /// Encodes the values that go with a ciphertext of a vector like this one, times a factor.
    fn encoded(
        &self,
        evaluator: &Evaluator<'_>,
        (values, factor): (&[f64], f64),
        (ciphertext, level): (usize, usize),
    ) -> Result<Plaintext, Error> {
        let slots = evaluator.parameters().slots();
        let plain = match self.layout {
            Layout::Each => vec![values[ciphertext] * factor; slots],
            Layout::Rows => {
                let own = &values[ciphertext * slots..values.len().min((ciphertext + 1) * slots)];
                own.iter().map(|x| x * factor).collect()
            }
            Layout::Columns => {
                let mut plain = vec![0.0; slots];
                for (index, value) in values.iter().enumerate() {
                    let (of, slot) = self.place(index, slots);
                    if of == ciphertext {
                        plain[slot] = value * factor;
                    }
                }
                plain
            }
        };
        evaluator.encode(&Complex::real(&plain), level).map_err(|error| match error {
            // In the words of whoever gave the values.
            Error::Ckks(CkksError::Value { limit, .. }) => {
                let limit = limit / factor;
                let is_beyond = |x: &f64| x.abs().partial_cmp(&limit).is_none_or(|o| o.is_ge());
                let index = values.iter().position(is_beyond).unwrap_or(0);
                let value = values.get(index).copied().unwrap_or(f64::NAN);
                CkksError::Value { index, value, level, limit }.into()
            }
            error => error,
        })
    }

    /// Refuses a result that its modulus may not hold, or a unit that files do not.
    fn checked(self) -> Result<Self, Error> {
        let is_full = self.ciphertexts.iter().any(|ciphertext| ciphertext.bits_left() < 0.0);
        if is_full || !EXPONENTS.contains(&self.exponent) {
            return Err(CkksError::NoRoom.into());
        }
        let is_padded = match self.layout {
            Layout::Each => false,
            _ => self.ciphertexts.len() * self.slots() != self.values(),
        };
        Ok(Self { has_tail: self.has_tail && is_padded, ..self })
    }
}

/// Returns the most that each of so many results should be, in units: their sum fits level 0.
fn room(values: usize) -> f64 {
    let bits = values.next_power_of_two().trailing_zeros() as i32;
    f64::from((SUM_BITS - bits).min(0)).exp2()
}

/// Returns the binary logarithm of the least power of two that is no smaller; 0 of zero.
fn exponent(size: f64) -> i32 {
    if size > 0.0 && size.is_finite() { size.log2().ceil() as i32 } else { 0 }
}

/// Returns the largest magnitude.
fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, x| x.abs().max(most))
}

/// Refuses numbers that are not finite, by the index of the first.
fn check_finite(values: &[f64], level: usize) -> Result<(), CkksError> {
    match values.iter().position(|x| !x.is_finite()) {
        Some(index) => {
            Err(CkksError::Value { index, value: values[index], level, limit: f64::MAX })
        }
        None => Ok(()),
    }
}

/// Returns `factor · a`, which is `a` itself by 1.
fn times<'a>(
    evaluator: &Evaluator<'_>,
    a: &'a Ciphertext,
    factor: i64,
) -> Result<Cow<'a, Ciphertext>, Error> {
    match factor {
        1 => Ok(Cow::Borrowed(a)),
        _ => evaluator.multiply_integer(a, factor).map(Cow::Owned),
    }
}

/// Returns the least common multiple, if it fits.
fn common_multiple(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).checked_mul(b)
}
