//! Vectors and evaluation keys, as they come and as what they claim to be: read, screened, summed and opened.
//!
//! Mutations are given a length and a digest that vouch for them. Start from what `keygen --scheme ckks-4096x1` and
//! `encrypt` under its key make.

#![no_main]

use std::sync::{Arc, LazyLock};

use ciphergram_accel::CpuEngine;
use ciphergram_he::{
    ckks::{EvaluationKeys, Evaluator, LevelledSecret, Parameters, Preset},
    vectors::{self, Source, Vector},
};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

const HEADER: usize = 48;
const DIGEST: usize = 32;

static ENGINE: LazyLock<CpuEngine> = LazyLock::new(CpuEngine::new);
static KEY: LazyLock<LevelledSecret> = LazyLock::new(|| {
    let parameters = Arc::new(Parameters::preset(Preset::Slots4096Levels1));
    let Ok(key) = LevelledSecret::expand(&[7; 32], &parameters, &*ENGINE) else { panic!("no key") };
    key
});

fuzz_target!(|bytes: &[u8]| {
    let _ = EvaluationKeys::from_bytes(bytes, &*ENGINE);
    let Ok((vector, digest)) = Vector::from_bytes(bytes, &*ENGINE) else { return };
    let Ok(again) = vector.to_bytes() else { panic!("it was read, and cannot be written") };
    assert!(Vector::from_bytes(&again, &*ENGINE).is_ok());
    let evaluator = Evaluator::new(EvaluationKeys::none(KEY.public()), &*ENGINE);
    let given = || [Ok((Source { name: "v".into(), digest }, vector.clone()))];
    let _ = vectors::aggregate(&evaluator, None, given());
    let _ = vectors::screen(&evaluator, None, given());
    let _ = vector.decrypt(&KEY, &*ENGINE);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    // One in eight is left as it comes, for the checks of the form itself.
    if size < HEADER + DIGEST || max_size < HEADER + DIGEST || seed.is_multiple_of(8) {
        return fuzzer_mutate(data, size, max_size);
    }
    let from = if seed % 16 == 1 { 0 } else { HEADER };
    let end =
        from + fuzzer_mutate(&mut data[from..], size - DIGEST - from, max_size - DIGEST - from);
    let Some(body) = end.checked_sub(HEADER) else { return end };
    data[HEADER - 8..HEADER].copy_from_slice(&(body as u64).to_le_bytes());
    let digest = blake3::hash(&data[..end]);
    data[end..end + DIGEST].copy_from_slice(digest.as_bytes());
    end + DIGEST
});
