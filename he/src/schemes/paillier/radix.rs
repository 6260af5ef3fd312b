//! Powers of a Montgomery radix, kept once they were needed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Powers that are kept at most: as many as there can be contributors to a sum.
const KEPT: usize = 1024;

/// The words of each power that was asked for.
#[derive(Default)]
pub(super) struct RadixPowers(Mutex<HashMap<u32, Arc<[u64]>>>);

impl RadixPowers {
    /// Returns this power, made if it is not kept. Nothing waits for what is being made.
    pub(super) fn get<E>(
        &self,
        power: u32,
        make: impl FnOnce() -> Result<Vec<u64>, E>,
    ) -> Result<Arc<[u64]>, E> {
        // A panic leaves the map whole, so a poisoned lock is still sound.
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(words) = kept().get(&power) {
            return Ok(words.clone());
        }
        let words: Arc<[u64]> = make()?.into();
        let mut kept = kept();
        if kept.len() == KEPT {
            kept.clear();
        }
        kept.insert(power, words.clone());
        Ok(words)
    }
}
