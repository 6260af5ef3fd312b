//! Paillier as a scheme of sums: a slot is a plaintext, a unit a ciphertext, a group a chunk.
//!
//! An addition is one Montgomery product, which takes one power of the radix R from the sum; one more
//! product, by `R^(additions + 1)`, corrects what leaves.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use ciphergram_accel::{Engine, Program};
use zeroize::Zeroizing;

use super::{Encryptor, PaillierModulus, PaillierSecret, Plaintexts};
use crate::{
    Error,
    bytes::write_words,
    codec::{FieldRoom, Packing},
    error::CiphertextFault,
    ids::Seed,
    params::{CHUNK_BYTES, Chunks},
    schemes::{self, Groups, Opener, Pace, PublicEncryption, Scratch, SecretScheme, SumScheme},
};

/// Ciphertexts that are decrypted in one run.
const CIPHERTEXTS_AT_ONCE: usize = 1024;

impl PublicEncryption for PaillierModulus {
    fn encryptor(&self, engine: &dyn Engine) -> Result<Box<dyn schemes::Encryptor>, Error> {
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

    /// The empty product is 1.
    fn start_sum(&self, words: &mut [u64]) {
        words.chunks_mut(self.ciphertext_words()).for_each(|c| c[0] = 1);
    }

    fn finish_sum(
        &self,
        engine: &dyn Engine,
        words: &mut [u64],
        additions: u32,
    ) -> Result<(), Error> {
        Ok(self.correct(engine, words, -(additions as i32))?)
    }

    fn places_per_chunk(&self, chunks: &Chunks) -> usize {
        chunks.geometry().slots_per_chunk
    }

    fn range_fault(
        &self,
        _: &dyn Engine,
        _: &Chunks,
        _: u32,
        words: &[u64],
    ) -> Option<CiphertextFault> {
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

impl SecretScheme for PaillierSecret {
    fn encryptor(
        &self,
        engine: &dyn Engine,
        _: &Seed,
    ) -> Result<Box<dyn schemes::Encryptor>, Error> {
        Ok(Box::new(Encryptor::for_owner(self, engine)?))
    }

    fn encrypt_program(&self, engine: &dyn Engine) -> Result<Arc<Program>, Error> {
        self.modulus().encrypt_program(engine)
    }

    fn decrypt_program(&self, _: usize) -> Arc<Program> {
        self.decrypt_program().clone()
    }

    fn opener(&self, _: &BTreeSet<usize>) -> Box<dyn Opener + '_> {
        Box::new(self)
    }
}

impl schemes::Encryptor for Encryptor {
    fn groups_at_once(&self, pace: Pace) -> u32 {
        match pace {
            Pace::Soon => 16,
            // A table of masks serves all that are encrypted at once.
            Pace::Bulk => 512,
        }
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
        (0, self.modulus().n().len_words())
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
            scratch.slots.resize(each * count, 0);
            for (slot, words) in own.chunks(each).enumerate() {
                for (w, &word) in words.iter().enumerate() {
                    scratch.slots[w * count + slot] = word;
                }
            }
            take(chunk, &scratch.slots);
            rest = after;
        }
        Ok(())
    }
}
