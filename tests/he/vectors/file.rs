//! Vectors, evaluation keys, weights and models, changed and given digests that vouch for the change: what a fuzzer
//! does, in a run that is short and always the same. Nothing panics, and what is read can be computed with.

use std::sync::Arc;

use ciphergram_accel::CpuEngine;
use ciphergram_he::{
    Dtype, LevelledKey, Tensor, TensorSpec, Update,
    ckks::{EvaluationKeys, Evaluator, LevelledSecret, Parameters, Preset},
    vectors::{self, Layout, Model, Recipe, Source, Vector},
};
use proptest::{
    prelude::*,
    test_runner::{RngSeed, TestRunner},
};

const HEADER: usize = 48;
const DIGEST: usize = 32;

/// A change: at a place from the start, or from the end where it is below zero.
#[derive(Debug, Clone)]
enum Edit {
    Flip(usize, u8),
    Word(usize, u32),
    Remove(usize, usize),
    Insert(usize, Vec<u8>),
}

fn edits(most: usize) -> impl Strategy<Value = Vec<Edit>> {
    // The header now and then; mostly what stands before the residues.
    let place = move || prop_oneof![1 => 10usize..HEADER, 8 => HEADER..200, 3 => HEADER..most];
    let word = prop_oneof![0u32..4, 1u32 << 31..=u32::MAX, any::<u32>()];
    let edit = prop_oneof![
        5 => (place(), 0u8..8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        4 => (place(), word).prop_map(|(at, word)| Edit::Word(at, word)),
        1 => (place(), 1usize..100).prop_map(|(at, count)| Edit::Remove(at, count)),
        1 => (place(), prop::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
    ];
    prop::collection::vec(edit, 1..3)
}

fn edited(frame: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut bytes = frame[..frame.len() - DIGEST].to_vec();
    for edit in edits {
        let end = bytes.len();
        match *edit {
            Edit::Flip(at, bit) => bytes[at.min(end - 1)] ^= 1 << bit,
            Edit::Word(at, word) => {
                let at = at.min(end - 1);
                bytes[at..].iter_mut().zip(word.to_le_bytes()).for_each(|(b, w)| *b = w);
            }
            Edit::Remove(at, count) => {
                drop(bytes.drain(at.max(HEADER).min(end)..(at.max(HEADER) + count).min(end)))
            }
            Edit::Insert(at, ref new) => {
                let at = at.max(HEADER).min(end);
                bytes.splice(at..at, new.iter().copied());
            }
        }
    }
    let body = (bytes.len() - HEADER) as u64;
    bytes[HEADER - 8..HEADER].copy_from_slice(&body.to_le_bytes());
    let digest = blake3::hash(&bytes);
    bytes.extend(digest.as_bytes());
    bytes
}

fn runner(cases: u32, seed: u64) -> TestRunner {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(ProptestConfig { rng_seed: RngSeed::Fixed(seed), ..config })
}

fn update() -> Update {
    let spec = TensorSpec { name: "w".into(), dtype: Dtype::F32, shape: vec![3, 5] };
    Update::new(vec![Tensor::from_values(spec, &[0.25; 15]).unwrap()])
}

#[test]
fn vectors_and_keys_that_lie_are_refused_or_computed_with() {
    let engine = CpuEngine::new();
    let parameters = Arc::new(Parameters::preset(Preset::Slots4096Levels1));
    let secret = LevelledSecret::generate(&parameters, &engine).unwrap();
    let keys = secret.evaluation_keys(&[], &engine).unwrap();
    let key_file = keys.to_bytes().unwrap();
    let evaluator = Evaluator::new(keys, &engine);
    let key = LevelledKey::Secret(Box::new(secret));
    let mut reached = [0; 2];
    for (seed, layout) in [(1, Layout::Rows), (2, Layout::Columns)] {
        let recipe = Recipe { range: Some(1.0), layout };
        let vector =
            Vector::encrypt(&key, &update(), &recipe, &engine).unwrap().to_bytes().unwrap();
        // The unit's exponent, and a divisor whose square is none.
        let smallest = edited(&vector, &[Edit::Word(HEADER + 4, 1 << 31)]);
        assert!(Vector::from_bytes(&smallest, &engine).is_err());
        let large = edited(&vector, &[Edit::Word(HEADER + 12, 1)]);
        let (large, digest) = Vector::from_bytes(&large, &engine).unwrap();
        let source = Source { name: "large".into(), digest };
        assert!(vectors::screen(&evaluator, None, [Ok((source, large))]).is_err());
        let counts = std::cell::Cell::new([0; 2]);
        let property = |edits: Vec<Edit>| {
            let found = Vector::from_bytes(&edited(&vector, &edits), &engine);
            let mut counted = counts.get();
            counted[usize::from(found.is_ok())] += 1;
            counts.set(counted);
            let Ok((vector, digest)) = found else { return Ok(()) };
            let again = vector.to_bytes().unwrap();
            prop_assert!(Vector::from_bytes(&again, &engine).is_ok());
            let source = |digest| Source { name: "v".into(), digest };
            let given = || [Ok((source(digest), vector.clone()))];
            let _ = vectors::screen(&evaluator, None, given());
            let _ = vectors::aggregate(&evaluator, None, given());
            let _ = vectors::aggregate(&evaluator, Some(&vector), given());
            let _ = vector.decrypt(key.secret().unwrap(), &engine);
            Ok(())
        };
        runner(60, seed).run(&edits(vector.len()), property).unwrap();
        reached = [reached[0] + counts.get()[0], reached[1] + counts.get()[1]];
    }
    println!("refused {}, read {}", reached[0], reached[1]);
    assert!(reached.iter().all(|&count| count > 5), "{reached:?}");
    let property = |edits: Vec<Edit>| {
        let _ = EvaluationKeys::from_bytes(&edited(&key_file, &edits), &engine);
        Ok(())
    };
    runner(40, 3).run(&edits(key_file.len()), property).unwrap();
}

#[test]
fn models_that_lie_are_refused() {
    let model = {
        let header = br#"{"__metadata__":{"output":"sigmoid","degree":"7","interval":"8"},"weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"bias":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.extend([0; 12]);
        bytes
    };
    assert!(Model::from_safetensors(&model).is_ok());
    let changed = |bytes: &[u8], (at, byte): (usize, u8)| {
        let mut changed = bytes.to_vec();
        let end = changed.len();
        changed[at % end] = byte;
        changed
    };
    let property = |edit: (usize, u8)| {
        let _ = Model::from_safetensors(&changed(&model, edit));
        Ok(())
    };
    runner(2000, 4).run(&(any::<usize>(), any::<u8>()), property).unwrap();
}
