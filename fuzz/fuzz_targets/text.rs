//! Key files and ranges files.

#![no_main]

use ciphergram_he::{AnyKey, codec::RangesFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = AnyKey::from_json(text);
    if let Ok(ranges) = RangesFile::from_json(text) {
        let _ = ranges.agreement();
        let _ = RangesFile::merge(&[ranges.clone(), ranges]);
    }
});
