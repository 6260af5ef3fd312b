//! The file of a vector.
//!
//! | field | form |
//! |---|---|
//! | layout: 0 rows, 1 columns, 2 each | u8 |
//! | level | u8 |
//! | whether seeds stand for second parts | u8 |
//! | whether slots behind the values may hold something | u8 |
//! | binary logarithm of the unit | i32 |
//! | what values are divided by | u64 |
//! | bounds on slots and on their errors, in units | two f64 |
//! | sources: their number, and of each its digest and name | u32; 32 bytes and a text |
//! | tensors | as in contributions |
//! | of each ciphertext the first part, then the second, or its seed | packed residues in NTT form |

use std::sync::Arc;

use ciphergram_accel::Engine;
use rayon::prelude::*;

use super::{
    Layout, Source, Vector,
    vector::{EXPONENTS, check_layout, ciphertexts},
};
use crate::{
    Error,
    bytes::Reader,
    ckks::{Bound, Ciphertext},
    codec::{read_specs, write_specs},
    error::{FrameError, WRONG_LENGTH},
    formats::frame::{self, Frame, Header, Kind},
};

impl Layout {
    const ALL: [Self; 3] = [Self::Rows, Self::Columns, Self::Each];
}

impl Vector {
    /// Writes the file's bytes.
    ///
    /// # Errors
    /// [`CkksError::NoPreset`](crate::ckks::CkksError::NoPreset).
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let (set, level) = (self.parameters(), self.level());
        let is_seeded = self.ciphertexts.iter().all(Ciphertext::is_seeded);
        let header = Header::of_vectors(Kind::Vector, set, self.key())?;
        let each = Ciphertext::packed_bytes(set, level, is_seeded);
        Ok(frame::seal(&header, self.ciphertexts.len() * each + 4096, |w| {
            w.u8(self.layout as u8);
            w.u8(level as u8);
            w.u8(is_seeded.into());
            w.u8(self.has_tail.into());
            w.u32(self.exponent.cast_unsigned());
            w.u64(self.divisor);
            let Bound { magnitude, error } = self.bound();
            w.u64(magnitude.to_bits());
            w.u64(error.to_bits());
            w.u32(self.sources.len() as u32);
            for Source { name, digest } in &self.sources {
                w.bytes(digest);
                w.prefixed(name.as_bytes());
            }
            write_specs(w, &self.specs);
            self.ciphertexts.iter().for_each(|ciphertext| ciphertext.write(w, is_seeded));
        }))
    }

    /// Reads a file under whatever key, and the digest at its end.
    ///
    /// # Errors
    /// Its form or kind is not as it should be; the engine's.
    pub fn from_bytes(bytes: &[u8], engine: &dyn Engine) -> Result<(Self, [u8; 32]), Error> {
        let frame = Frame::parse(bytes)?;
        frame.check_kind(Kind::Vector)?;
        let vector = Self::from_frame(&frame, engine)?;
        let digest = bytes.last_chunk().copied().ok_or(FrameError::Truncated)?;
        Ok((vector, digest))
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// Its kind or body is not as it should be; the engine's.
    pub fn from_frame(frame: &Frame<'_>, engine: &dyn Engine) -> Result<Self, Error> {
        let set = Arc::new(frame.levelled_parameters()?);
        let mut r = Reader(frame.body);
        let malformed = |what| FrameError::Malformed { what };
        let layout = usize::from(r.u8()?);
        let layout = *Layout::ALL.get(layout).ok_or(malformed("an unknown layout"))?;
        let (level, is_seeded, has_tail) = (usize::from(r.u8()?), r.u8()?, r.u8()?);
        if level > set.top_level() || is_seeded > 1 || has_tail > 1 {
            return Err(malformed("a level or a form that there is not").into());
        }
        let (exponent, divisor) = (r.u32()?.cast_signed(), r.u64()?);
        let bound = Bound { magnitude: f64::from_bits(r.u64()?), error: f64::from_bits(r.u64()?) };
        let is_size = |x: f64| x.is_finite() && x >= 0.0;
        if !EXPONENTS.contains(&exponent) || divisor == 0 || !is_size(bound.magnitude + bound.error)
        {
            return Err(malformed("a unit, a divisor or a bound out of range").into());
        }
        let mut sources = vec![];
        for _ in 0..r.u32()? {
            let digest = r.array()?;
            sources.push(Source { name: r.text()?, digest });
        }
        let specs = read_specs(&mut r)?;
        check_layout(&specs, layout)?;
        let count = ciphertexts(&specs, layout, set.slots());
        let each = Ciphertext::packed_bytes(&set, level, is_seeded == 1);
        // Before anything is allocated: the ciphertexts must be there.
        if count.checked_mul(each) != Some(r.0.len()) {
            return Err(WRONG_LENGTH.into());
        }
        let read = |bytes| {
            let of = (level, bound, is_seeded == 1);
            Ciphertext::read(&mut Reader(bytes), (&set, frame.key), of, engine)
        };
        let ciphertexts = r.0.par_chunks_exact(each).map(read).collect::<Result<_, _>>()?;
        let has_tail = has_tail == 1;
        Ok(Self { specs, layout, exponent, divisor, has_tail, sources, ciphertexts })
    }
}
