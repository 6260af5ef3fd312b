//! Paillier as a scheme of sums: a slot is a plaintext, a unit a ciphertext, a group a chunk.
//!
//! An addition is one Montgomery product, which takes one power of the radix R from the sum; one more
//! product, by `R^(additions + 1)`, corrects what leaves.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use ciphergram_accel::{Engine, Operand, Program};
use zeroize::Zeroizing;

use super::{Encryptor, PaillierModulus, PaillierSecret, Plaintexts};
use crate::{
    Error,
    bytes::write_words,
    codec::{FieldRoom, Packing},
    error::CiphertextFault,
    ids::{Seed, Statement},
    params::{CHUNK_BYTES, Chunks},
    schemes::{
        self, Groups, Opener, Pace, PublicEncryption, RunningSum, Scratch, SecretScheme, SumScheme,
    },
};

/// Ciphertexts that are decrypted in one run.
const CIPHERTEXTS_AT_ONCE: usize = 1024;

impl PublicEncryption for PaillierModulus {
    fn encryptor(&self, engine: &dyn Engine) -> Result<Box<dyn schemes::UpdateEncryptor>, Error> {
        Ok(Box::new(Encryptor::new(self, engine)?))
    }

    fn encrypt_program(&self, engine: &dyn Engine) -> Result<Arc<Program>, Error> {
        Ok(Encryptor::new(self, engine)?.program().clone())
    }
}

impl SumScheme for PaillierModulus {
    fn sum_program(&self) -> Arc<Program> {
        self.sum_program().into()
    }

    fn running_sum(&self, chunks: &Chunks, own: Range<u32>) -> Box<dyn RunningSum> {
        Box::new(Products::new(self, chunks, own))
    }

    fn places_per_chunk(&self, chunks: &Chunks) -> usize {
        chunks.geometry().slots_per_chunk
    }

    fn range_fault(&self, _: &dyn Engine, words: &[u64]) -> Option<CiphertextFault> {
        self.range_fault(words)
    }

    fn batch_fault(
        &self,
        engine: &dyn Engine,
        words: &[u64],
    ) -> Result<Option<CiphertextFault>, Error> {
        Ok(self.coprimality_fault(engine, words)?)
    }
}

/// Words that are gathered before they are multiplied: engines do best with many numbers at a time, of which a
/// datagram holds few.
const GATHERED_WORDS: usize = 1 << 13;

/// Running products, and factors that wait.
struct Products {
    modulus: PaillierModulus,
    chunks: Chunks,
    first: u32,
    program: Arc<Program>,
    words: Vec<u64>,
    waiting: Vec<Waiting>,
    waiting_words: usize,
}

/// Factors of consecutive words of the products.
struct Waiting {
    at: usize,
    words: Vec<u64>,
}

impl Products {
    /// Returns the empty product, which is 1.
    fn new(modulus: &PaillierModulus, chunks: &Chunks, own: Range<u32>) -> Self {
        let mut words = vec![0; chunks.range_of(&own).len() / 8];
        words.chunks_mut(modulus.ciphertext_words()).for_each(|c| c[0] = 1);
        Self {
            modulus: modulus.clone(),
            chunks: *chunks,
            first: own.start,
            program: modulus.sum_program().into(),
            words,
            waiting: vec![],
            waiting_words: 0,
        }
    }

    /// Returns the place of chunks among the words.
    fn range(&self, own: &Range<u32>) -> Range<usize> {
        let Range { start, end } = self.chunks.range_within(self.first, own);
        start / 8..end / 8
    }

    /// Multiplies products from word `at` on.
    fn multiply(&mut self, engine: &dyn Engine, at: usize, factors: &[u64]) -> Result<(), Error> {
        let products = &mut self.words[at..at + factors.len()];
        let operands = &mut [Operand::InOut(products), Operand::In(factors)];
        Ok(engine.run(&self.program, operands)?)
    }

    /// Multiplies by what waits.
    fn settle(&mut self, engine: &dyn Engine) -> Result<(), Error> {
        self.waiting_words = 0;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().try_for_each(|Waiting { at, words }| self.multiply(engine, at, &words))
    }
}

impl RunningSum for Products {
    fn add(
        &mut self,
        engine: &dyn Engine,
        own: Range<u32>,
        words: &[u64],
    ) -> Result<Option<CiphertextFault>, Error> {
        if let Some(fault) = self.modulus.range_fault(words) {
            return Ok(Some(fault));
        }
        let range = self.range(&own);
        if words.len() >= GATHERED_WORDS {
            return self.multiply(engine, range.start, words).map(|()| None);
        }
        // What one contributor sends comes in its order, mostly.
        let goes_on = |before: &&mut Waiting| before.at + before.words.len() == range.start;
        match self.waiting.iter_mut().find(goes_on) {
            Some(before) => before.words.extend_from_slice(words),
            None => self.waiting.push(Waiting { at: range.start, words: words.to_vec() }),
        }
        self.waiting_words += words.len();
        if self.waiting_words >= GATHERED_WORDS {
            self.settle(engine)?;
        }
        Ok(None)
    }

    fn finish(
        &mut self,
        engine: &dyn Engine,
        own: Range<u32>,
        additions: u32,
    ) -> Result<Vec<u64>, Error> {
        self.settle(engine)?;
        let mut words = self.words[self.range(&own)].to_vec();
        self.modulus.correct(engine, &mut words, -(additions as i32))?;
        Ok(words)
    }
}

impl SecretScheme for PaillierSecret {
    fn encryptor(
        &self,
        engine: &dyn Engine,
        _: &Statement,
        _: &Seed,
    ) -> Result<Box<dyn schemes::UpdateEncryptor>, Error> {
        Ok(Box::new(Encryptor::for_owner(self, engine)?))
    }

    fn encrypt_program(&self, engine: &dyn Engine) -> Result<Arc<Program>, Error> {
        self.modulus().encrypt_program(engine)
    }

    fn decrypt_program(&self, _: usize) -> Result<Arc<Program>, Error> {
        Ok(self.decrypt_program().clone())
    }

    fn opener(&self, _: &Statement, _: &BTreeSet<usize>) -> Result<Box<dyn Opener + '_>, Error> {
        Ok(Box::new(self))
    }
}

impl schemes::UpdateEncryptor for Encryptor {
    fn batch_end(&self, next: u32, pace: Pace) -> u32 {
        next.saturating_add(match pace {
            Pace::Soon => 16,
            // A table of masks serves all that are encrypted at once.
            Pace::Bulk => 512,
        })
    }

    fn seal(
        &mut self,
        engine: &dyn Engine,
        packing: &Packing<'_>,
        own: Range<u32>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        // A plaintext has half a ciphertext's words.
        let each = self.modulus().n().len_words();
        let mut plain = Zeroizing::new(vec![0; out.len() / 16]);
        let mut slot_words = Zeroizing::new(vec![0; each]);
        let mut rest = &mut plain[..];
        let mut room = FieldRoom::default();
        let batch = packing.batch(&own, &mut room)?;
        for chunk in own {
            let (mine, after) = rest.split_at_mut(packing.chunks().units_of(chunk) * each);
            batch.pack(chunk, 0, &mut slot_words, |slot, words| {
                mine[slot * each..][..each].copy_from_slice(words);
            });
            rest = after;
        }
        // The fields of a slot have fewer bits than n.
        let plain = Plaintexts::from_reduced(self.modulus(), plain);
        write_words(out, &self.encrypt(engine, &plain)?.into_words(engine)?);
        Ok(())
    }
}

impl Opener for &PaillierSecret {
    fn groups_at_once(&self) -> usize {
        CIPHERTEXTS_AT_ONCE / (CHUNK_BYTES / (8 * self.modulus().ciphertext_words()))
    }

    fn sizes(&self) -> (usize, usize) {
        (0, 0)
    }

    fn open(
        &self,
        engine: &dyn Engine,
        groups: &Groups<'_>,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(u32, &[u64]),
    ) -> Result<(), Error> {
        let each = self.modulus().n().len_words();
        let plain = self.decrypt_words(engine, &scratch.words)?;
        let mut rest = plain.words();
        for chunk in groups.own.clone() {
            let count = groups.chunks.units_of(chunk);
            let (own, after) = rest.split_at(count * each);
            take(chunk, own);
            rest = after;
        }
        Ok(())
    }
}
