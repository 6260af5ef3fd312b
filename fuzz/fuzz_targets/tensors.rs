//! Safetensors files, what measuring them does, and models for ciphertexts.

#![no_main]

use ciphergram_he::{
    Update,
    codec::{Policy, RangesFile},
    vectors::Model,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(model) = Model::from_safetensors(bytes) {
        let _ = (model.sizes(), model.depth());
    }
    if let Ok(update) = Update::from_safetensors(bytes) {
        let _ = RangesFile::measure(&update, Policy::Sigma(2.0), 1);
        let _ = update.to_safetensors();
    }
});
