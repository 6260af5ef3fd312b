//! Tensors in ciphertexts.

use std::sync::Arc;

use ciphergram_accel::Engine;
use rayon::prelude::*;
use zeroize::Zeroizing;

use crate::{
    Error, KeyId, LevelledKey, Tensor, TensorSpec, Update,
    ckks::{
        Bound, Ciphertext, CkksError, Complex, Decryptor, Encryptor, LevelledSecret, Parameters,
    },
    codec::check_specs,
    tensors::check_values,
};

/// How values lie in ciphertexts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One after the other, cut into runs of as many as there are slots.
    Rows = 0,
    /// Of one tensor of two extents, each column by itself: slot r has row r.
    Columns = 1,
    /// Each in all slots of a ciphertext of its own.
    Each = 2,
}

/// How to encrypt.
#[derive(Debug, Clone, Copy)]
pub struct Recipe {
    /// The largest magnitude of a value, which all clients share. Without one it is that of these values, rounded up
    /// to a power of two; it is public.
    pub range: Option<f64>,
    /// How values lie in ciphertexts.
    pub layout: Layout,
}

/// A file that something was computed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its name, for people.
    pub name: String,
    /// The digest at its end.
    pub digest: [u8; 32],
}

/// Tensors in ciphertexts under one key, all on one level.
#[derive(Clone)]
pub struct Vector {
    pub(super) specs: Vec<TensorSpec>,
    pub(super) layout: Layout,
    /// Binary logarithm of the unit that values are multiples of.
    pub(super) exponent: i32,
    /// What values are divided by once they are decrypted: the weight of a sum.
    pub(super) divisor: u64,
    /// Whether slots behind the values may hold something, as rotations leave it; they are zero otherwise.
    pub(super) has_tail: bool,
    pub(super) sources: Vec<Source>,
    pub(super) ciphertexts: Vec<Ciphertext>,
}

/// Binary logarithm of the largest sum of squares of a vector's values, in units squared.
const SQUARES_BITS: f64 = 8.0;

/// Binary logarithms of units: doubles hold all values then.
pub(super) const EXPONENTS: std::ops::RangeInclusive<i32> = -512..=512;
/// Ranges of values, of which units and their squares are such.
const RANGES: std::ops::RangeInclusive<f64> = 1e-60..=1e60;

impl Vector {
    /// Encrypts the tensors of an update that are summed; those that are kept are left out.
    ///
    /// # Errors
    /// A value that is not finite, or beyond the range, by tensor and index; a layout that does not fit; no values;
    /// no randomness; the engine's.
    pub fn encrypt(
        key: &LevelledKey,
        update: &Update,
        recipe: &Recipe,
        engine: &dyn Engine,
    ) -> Result<Self, Error> {
        let set = key.public().parameters();
        let specs = update.specs();
        let count = check_layout(&specs, recipe.layout)?;
        let values = values(update, count)?;
        let most = || values.iter().fold(0.0, |most: f64, x| x.abs().max(most));
        let range = recipe.range.unwrap_or_else(|| rounded_up(most()));
        if !RANGES.contains(&range) {
            let why = format!(
                "a range of {range:e} is not from {:e} to {:e}",
                RANGES.start(),
                RANGES.end()
            );
            return Err(CkksError::Vectors { why }.into());
        }
        check_range(update, &values, range)?;
        let ciphertexts = ciphertexts(&specs, recipe.layout, set.slots());
        let padded = (ciphertexts * set.slots()) as f64;
        let bits = (SQUARES_BITS - padded.log2()) / 2.0;
        let exponent = (range.log2() - bits).ceil() as i32;
        let unit = f64::from(exponent).exp2();
        let magnitude = range / unit;
        let encryptor = match key {
            LevelledKey::Public(key) => Encryptor::public(key, magnitude),
            LevelledKey::Secret(key) => Encryptor::secret(key, magnitude),
        };
        let mut vector = Self {
            specs,
            layout: recipe.layout,
            exponent,
            divisor: 1,
            has_tail: false,
            sources: vec![],
            ciphertexts: vec![],
        };
        let mut slots = Zeroizing::new(vec![0.0; ciphertexts * set.slots()]);
        for (index, value) in values.iter().enumerate() {
            let (ciphertext, slot) = vector.place(index, set.slots());
            let own = &mut slots[ciphertext * set.slots()..][..set.slots()];
            // By a power of two: exact, unless it is next to nothing.
            match recipe.layout {
                Layout::Each => own.fill(value / unit),
                Layout::Rows | Layout::Columns => own[slot] = value / unit,
            }
        }
        let all = slots.par_chunks(set.slots());
        let encrypt = |slots: &[f64]| encryptor.encrypt(&Complex::real(slots), engine);
        vector.ciphertexts = all.map(encrypt).collect::<Result<_, _>>()?;
        Ok(vector)
    }

    /// Decrypts to tensors, for key holders alone: what they are off by tells of the secret.
    ///
    /// # Errors
    /// Another key's; a value does not fit its tensor's type; the engine's.
    pub fn decrypt(&self, key: &LevelledSecret, engine: &dyn Engine) -> Result<Update, Error> {
        let values = self.decrypt_values(key, engine)?;
        let mut first = 0;
        let tensors = self.specs.iter().map(|spec| {
            let count = spec.values().unwrap_or(0);
            first += count;
            Tensor::from_values(spec.clone(), &values[first - count..first])
        });
        Ok(Update::new(tensors.collect::<Result<_, _>>()?))
    }

    /// Decrypts to the values of all tensors, one after the other: as [`decrypt`](Self::decrypt) does, for key holders
    /// alone.
    ///
    /// # Errors
    /// Another key's; the engine's.
    pub fn decrypt_values(
        &self,
        key: &LevelledSecret,
        engine: &dyn Engine,
    ) -> Result<Zeroizing<Vec<f64>>, Error> {
        let decryptor = Decryptor::new(key);
        let real = |ciphertext| {
            decryptor.decrypt(ciphertext, engine).map(|slots| Zeroizing::new(slots.re))
        };
        let opened: Vec<_> = self.ciphertexts.par_iter().map(real).collect::<Result<_, _>>()?;
        let (slots, factor) = (self.slots(), self.unit() / self.divisor as f64);
        let value = |index| {
            let (ciphertext, slot) = self.place(index, slots);
            opened[ciphertext][slot] * factor
        };
        Ok(Zeroizing::new((0..self.values()).map(value).collect()))
    }

    /// Names the file that it was read from as its only source.
    #[must_use]
    pub fn from_source(mut self, source: Source) -> Self {
        self.sources = vec![source];
        self
    }

    /// Returns the ciphertext and the slot of a value.
    pub(super) fn place(&self, index: usize, slots: usize) -> (usize, usize) {
        match (self.layout, &self.specs[..]) {
            (Layout::Each, _) => (index, 0),
            (Layout::Columns, [TensorSpec { shape, .. }]) => {
                let [rows, columns] = [0, 1].map(|i| shape.get(i).map_or(1, |&d| d as usize));
                let (row, column) = (index / columns, index % columns);
                (column * rows.div_ceil(slots) + row / slots, row % slots)
            }
            _ => (index / slots, index % slots),
        }
    }

    /// Refuses a vector of another key, of other tensors, or in other units: what cannot be added to this one, or
    /// compared with it.
    ///
    /// # Errors
    /// The first that differs.
    pub(super) fn check_same(&self, other: &Self) -> Result<(), Error> {
        crate::codec::check_layout(&other.specs, &self.specs)?;
        let (found, expected) = (other.key(), self.key());
        if found != expected {
            return Err(Error::other_key("the vector is under key", found, expected));
        }
        if other.layout != self.layout {
            let why = "its values lie in another way: encrypt all in columns, or none";
            return Err(CkksError::Vectors { why: why.into() }.into());
        }
        if other.exponent != self.exponent || other.divisor != self.divisor {
            let why = "it is in other units: encrypt all with the same range";
            return Err(CkksError::Vectors { why: why.into() }.into());
        }
        Ok(())
    }

    /// Returns the tensors, sorted by name.
    #[must_use]
    pub fn specs(&self) -> &[TensorSpec] {
        &self.specs
    }

    /// Returns the number of values.
    #[must_use]
    pub fn values(&self) -> usize {
        self.specs.iter().filter_map(TensorSpec::values).sum()
    }

    /// Returns the shape of its only tensor; of several, the number of their values.
    #[must_use]
    pub fn shape(&self) -> Vec<u64> {
        match &self.specs[..] {
            [spec] => spec.shape.clone(),
            _ => vec![self.values() as u64],
        }
    }

    /// Returns how values lie in ciphertexts.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the unit that values are multiples of, a power of two.
    #[must_use]
    pub fn unit(&self) -> f64 {
        f64::from(self.exponent).exp2()
    }

    /// Returns what values are divided by once they are decrypted.
    #[must_use]
    pub fn divisor(&self) -> u64 {
        self.divisor
    }

    /// Returns the files that it was computed from.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Returns the ciphertexts.
    #[must_use]
    pub fn ciphertexts(&self) -> &[Ciphertext] {
        &self.ciphertexts
    }

    /// Returns the id of its key.
    #[must_use]
    pub fn key(&self) -> KeyId {
        self.ciphertexts[0].key()
    }

    /// Returns the parameters.
    #[must_use]
    pub fn parameters(&self) -> &Arc<Parameters> {
        self.ciphertexts[0].parameters()
    }

    /// Returns the level.
    #[must_use]
    pub fn level(&self) -> usize {
        self.ciphertexts[0].level()
    }

    /// Returns the largest bounds of all ciphertexts, in units.
    #[must_use]
    pub fn bound(&self) -> Bound {
        let bounds = self.ciphertexts.iter().map(Ciphertext::bound);
        bounds.fold(Bound { magnitude: 0.0, error: 0.0 }, |most, bound| Bound {
            magnitude: most.magnitude.max(bound.magnitude),
            error: most.error.max(bound.error),
        })
    }

    pub(super) fn slots(&self) -> usize {
        self.parameters().slots()
    }
}

/// Refuses tensors that no vector can hold, and returns the number of their values.
pub(super) fn check_layout(specs: &[TensorSpec], layout: Layout) -> Result<usize, Error> {
    let count = check_specs(specs).map_err(|why| Error::Tensors { why })?;
    if count == 0 {
        return Err(CkksError::Vectors { why: "there are no values to encrypt".into() }.into());
    }
    match (layout, specs) {
        (Layout::Columns, [TensorSpec { shape, .. }]) if shape.len() == 2 => Ok(count),
        (Layout::Columns, _) => {
            let why = "columns are those of one tensor of two extents, and this is another layout";
            Err(CkksError::Vectors { why: why.into() }.into())
        }
        _ => Ok(count),
    }
}

/// Returns the number of ciphertexts of tensors that were [checked](check_layout).
pub(super) fn ciphertexts(specs: &[TensorSpec], layout: Layout, slots: usize) -> usize {
    let count = specs.iter().filter_map(TensorSpec::values).sum::<usize>();
    match (layout, specs) {
        (Layout::Each, _) => count,
        (Layout::Columns, [TensorSpec { shape, .. }]) => {
            let [rows, columns] = [0, 1].map(|i| shape.get(i).map_or(1, |&d| d as usize));
            columns * rows.div_ceil(slots)
        }
        _ => count.div_ceil(slots),
    }
}

/// Returns the values of all tensors, checked.
fn values(update: &Update, count: usize) -> Result<Zeroizing<Vec<f64>>, Error> {
    let mut values = Zeroizing::new(Vec::with_capacity(count));
    for tensor in update.tensors() {
        tensor.try_for_blocks(|first, block| {
            check_values(tensor, first, block)?;
            values.extend_from_slice(block);
            Ok::<_, Error>(())
        })?;
    }
    Ok(values)
}

/// Refuses values beyond the range, naming the first.
fn check_range(update: &Update, values: &[f64], range: f64) -> Result<(), Error> {
    let Some(place) = values.iter().position(|x| x.abs() > range) else { return Ok(()) };
    let mut first = 0;
    for spec in update.specs() {
        let count = spec.values().unwrap_or(0);
        if place < first + count {
            let (tensor, index, value) = (spec.name, place - first, values[place]);
            return Err(CkksError::BeyondRange { tensor, index, value, range }.into());
        }
        first += count;
    }
    Ok(())
}

/// Returns the least power of two that is no smaller; 1 of zeros.
fn rounded_up(most: f64) -> f64 {
    if most == 0.0 { 1.0 } else { most.log2().ceil().exp2() }
}
