//! Sums and products.

use ciphergram_accel::program::MAX_TERMS;

use super::{Evaluator, Name};
use crate::{
    Error,
    ckks::{Bound, Ciphertext, CkksError, Plaintext, Product, programs},
};

impl Evaluator<'_> {
    /// Returns `a + b`, slot by slot.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`]; the engine's.
    pub fn add(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, Error> {
        self.sum(a, b, false)
    }

    /// Returns `a − b`, slot by slot.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`]; the engine's.
    pub fn sub(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, Error> {
        self.sum(a, b, true)
    }

    fn sum(&self, a: &Ciphertext, b: &Ciphertext, minus: bool) -> Result<Ciphertext, Error> {
        let [a, b] = self.levelled(a, b)?;
        let level = a.level;
        let name = if minus { Name::Subtract(level) } else { Name::Add(level) };
        let program = self.program(name, |set| Some(programs::add(set, level, minus)))?;
        let inputs: [&[u64]; 4] = [&a.parts[0], &a.parts[1], &b.parts[0], &b.parts[1]];
        self.run(&program, &inputs, (level, a.bound.add(b.bound)))
    }

    /// Returns `a + m`, slot by slot, on the level of the plaintext or a lower one that a has.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`] if a is on a lower level than m; [`CkksError::OtherParameters`];
    /// the engine's.
    pub fn add_plain(&self, a: &Ciphertext, m: &Plaintext) -> Result<Ciphertext, Error> {
        self.sum_plain(a, m, false)
    }

    /// Returns `a − m`, slot by slot.
    ///
    /// # Errors
    /// Those of [`add_plain`](Self::add_plain).
    pub fn sub_plain(&self, a: &Ciphertext, m: &Plaintext) -> Result<Ciphertext, Error> {
        self.sum_plain(a, m, true)
    }

    fn sum_plain(&self, a: &Ciphertext, m: &Plaintext, minus: bool) -> Result<Ciphertext, Error> {
        self.check_parameters(&m.parameters, "the plaintext")?;
        let (a, level) = (self.lowered(a, m.level)?, m.level);
        let name = if minus { Name::SubtractPlain(level) } else { Name::AddPlain(level) };
        let program = self.program(name, |set| Some(programs::add_plain(set, level, minus)))?;
        let words = self.parameters.ring(level).len_words();
        let [first] = self.parts(&program, &[&a.parts[0], &m.words], words)?;
        let a = a.into_owned();
        let [_, second] = a.parts;
        let bound = a.bound.add(m.bound);
        let parts = [first, second];
        Ok(Ciphertext { parameters: a.parameters, key: a.key, level, bound, seed: None, parts })
    }

    /// Returns `a + value` in all slots.
    ///
    /// # Errors
    /// [`CkksError::Value`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn add_constant(&self, a: &Ciphertext, value: f64) -> Result<Ciphertext, Error> {
        self.add_plain(a, &self.constant(value, a.level)?)
    }

    /// Returns `−a`.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`]; the engine's.
    pub fn negate(&self, a: &Ciphertext) -> Result<Ciphertext, Error> {
        self.multiply_integer(a, -1)
    }

    /// Returns `weight · a` on the same level.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`]; the engine's.
    pub fn multiply_integer(&self, a: &Ciphertext, weight: i64) -> Result<Ciphertext, Error> {
        self.check(a)?;
        let program = programs::scale(&self.parameters, a.level, weight.into());
        let bound = a.bound.scale(weight as f64);
        self.run(&program, &[&a.parts[0], &a.parts[1]], (a.level, bound))
    }

    /// Returns `value · a`, a level lower.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`]; [`CkksError::Value`]; [`CkksError::OtherParameters`]; the
    /// engine's.
    pub fn multiply_constant(&self, a: &Ciphertext, value: f64) -> Result<Ciphertext, Error> {
        self.weigh(&[(value, a)])
    }

    /// Returns the sum of ciphertexts, each times a number, a level below the lowest of them.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`], also of no ciphertexts; [`CkksError::Value`] with the index of a
    /// number that is too large; [`CkksError::OtherParameters`]; the engine's.
    pub fn weigh(&self, terms: &[(f64, &Ciphertext)]) -> Result<Ciphertext, Error> {
        let lowest = terms.iter().map(|(_, a)| a.level).min();
        let level = lowest.filter(|&level| level > 0).ok_or(CkksError::OutOfLevels)?;
        let scale = self.parameters.scale(level);
        let limit = 2f64.powi(100) / scale;
        let mut factors = vec![];
        for (index, &(value, _)) in terms.iter().enumerate() {
            if !value.is_finite() || value.abs() >= limit {
                return Err(CkksError::Value { index, value, level, limit }.into());
            }
            // Times the scale of the level, which what rescaling divides by is made for.
            factors.push((value * scale).round() as i128);
        }
        let program = programs::weigh(&self.parameters, level, &factors);
        let program = program.ok_or(CkksError::OutOfLevels)?;
        let lowered: Vec<_> =
            terms.iter().map(|(_, a)| self.lowered(a, level)).collect::<Result<_, _>>()?;
        let inputs: Vec<&[u64]> =
            lowered.iter().flat_map(|a| a.parts.iter().map(|part| &part[..])).collect();
        // Each number is rounded to the scale.
        let weighed = terms.iter().zip(&lowered).map(|((value, _), a)| {
            a.bound.scale(*value).add(a.bound.scale(0.5 / scale).as_error())
        });
        let zero = Bound { magnitude: 0.0, error: 0.0 };
        let bound = weighed.fold(zero, Bound::add);
        self.run(&program, &inputs, (level - 1, self.rescaled(bound, level)))
    }

    /// Returns `a · b`, slot by slot, a level lower.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn multiply(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, Error> {
        let [a, b] = self.levelled(a, b)?;
        let level = a.level;
        let key = self.keys.relinearisation()?;
        let program =
            self.program(Name::Multiply(level), |set| programs::multiply(set, level, key))?;
        let inputs: [&[u64]; 4] = [&a.parts[0], &a.parts[1], &b.parts[0], &b.parts[1]];
        let bound = self.parameters.product_bound(a.bound, b.bound, level);
        self.run(&program, &inputs, (level - 1, bound))
    }

    /// Returns `a²`, slot by slot, a level lower.
    ///
    /// # Errors
    /// Those of [`multiply`](Self::multiply).
    pub fn square(&self, a: &Ciphertext) -> Result<Ciphertext, Error> {
        self.multiply(a, a)
    }

    /// Returns `a · b` as a product that others can be added to before keys are switched, once.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`]; the engine's.
    pub fn tensor(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Product, Error> {
        let [a, b] = self.levelled(a, b)?;
        let level = a.level;
        let program =
            self.program(Name::Tensor(level), |set| Some(programs::tensor(set, level)))?;
        let inputs: [&[u64]; 4] = [&a.parts[0], &a.parts[1], &b.parts[0], &b.parts[1]];
        let parts = self.parts(&program, &inputs, self.parameters.ring(level).len_words())?;
        let bound = a.bound.multiply(b.bound);
        Ok(Product { key: self.keys.id(), level, bound, parts })
    }

    /// Returns the sum of `aᵢ · bᵢ` as one product: a few at a time, whose sums are reduced once.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`] of no pairs, or of pairs on different levels;
    /// [`CkksError::OtherParameters`]; the engine's.
    pub fn tensor_sum(&self, pairs: &[(&Ciphertext, &Ciphertext)]) -> Result<Product, Error> {
        let level = pairs.first().ok_or(CkksError::OutOfLevels)?.0.level;
        let mut sum: Option<Product> = None;
        // The middle part has two terms of each pair.
        for pairs in pairs.chunks(MAX_TERMS / 2) {
            let mut inputs: Vec<&[u64]> = vec![];
            let mut bound = Bound { magnitude: 0.0, error: 0.0 };
            for &(a, b) in pairs {
                for c in [a, b] {
                    self.check(c)?;
                    if c.level != level {
                        return Err(CkksError::OutOfLevels.into());
                    }
                    inputs.extend(c.parts.iter().map(|part| &part[..]));
                }
                bound = bound.add(a.bound.multiply(b.bound));
            }
            let terms = pairs.len();
            let program = self.program(Name::TensorSum(level, terms), |set| {
                Some(programs::tensor_sum(set, level, terms))
            })?;
            let parts = self.parts(&program, &inputs, self.parameters.ring(level).len_words())?;
            let some = Product { key: self.keys.id(), level, bound, parts };
            sum = Some(match sum {
                Some(sum) => self.add_products(&sum, &some)?,
                None => some,
            });
        }
        sum.ok_or_else(|| CkksError::OutOfLevels.into())
    }

    /// Returns the sum of two products of one level.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`] where the levels differ; [`CkksError::OtherParameters`]; the
    /// engine's.
    pub fn add_products(&self, a: &Product, b: &Product) -> Result<Product, Error> {
        self.check_key(a.key, "the product is under key")?;
        self.check_key(b.key, "the product is under key")?;
        if a.level != b.level {
            return Err(CkksError::OutOfLevels.into());
        }
        let level = a.level;
        let program =
            self.program(Name::AddProducts(level), |set| Some(programs::add_products(set, level)))?;
        let inputs: Vec<&[u64]> = a.parts.iter().chain(&b.parts).map(|part| &part[..]).collect();
        let parts = self.parts(&program, &inputs, self.parameters.ring(level).len_words())?;
        let bound = a.bound.add(b.bound);
        Ok(Product { key: self.keys.id(), level, bound, parts })
    }

    /// Returns the ciphertext of a product, a level lower.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn relinearise(&self, a: &Product) -> Result<Ciphertext, Error> {
        self.check_key(a.key, "the product is under key")?;
        let level = a.level;
        let key = self.keys.relinearisation()?;
        let program =
            self.program(Name::Relinearise(level), |set| programs::relinearise(set, level, key))?;
        let [d0, d1, d2] = &a.parts;
        let bound = self.switched(a.bound, level);
        self.run(&program, &[d0, d1, d2], (level - 1, self.rescaled(bound, level)))
    }

    /// Returns `a · m`, slot by slot, a level below the plaintext's.
    ///
    /// # Errors
    /// [`CkksError::OutOfLevels`]; [`CkksError::OtherParameters`]; the engine's.
    pub fn multiply_plain(&self, a: &Ciphertext, m: &Plaintext) -> Result<Ciphertext, Error> {
        self.check_parameters(&m.parameters, "the plaintext")?;
        let (a, level) = (self.lowered(a, m.level)?, m.level);
        let program =
            self.program(Name::MultiplyPlain(level), |set| programs::multiply_plain(set, level))?;
        let bound = self.rescaled(a.bound.multiply(m.bound), level);
        self.run(&program, &[&a.parts[0], &a.parts[1], &m.words], (level - 1, bound))
    }
}
