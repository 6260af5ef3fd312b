//! Key files of every kind, jobs and ranges.

#![no_main]

use std::sync::LazyLock;

use ciphergram_he::{AnyKey, Job, KeyFile, PublicKey, codec::RangesFile, threshold::OpenerId};
use libfuzzer_sys::fuzz_target;

/// The public half of the key that the jobs in `seeds` are of.
static KEY: LazyLock<PublicKey> =
    LazyLock::new(|| match AnyKey::from_json(include_str!("../seeds/10.json")) {
        Ok(AnyKey::Secret(key, _)) => key.public().clone(),
        _ => panic!("the seeds are of another version: make them again"),
    });

fuzz_target!(|text: &str| {
    if let Ok(KeyFile::Sums(key)) = KeyFile::from_json(text) {
        let _ = key.as_client(None);
        let _ = key.as_client(Some(1));
    }
    let _ = OpenerId::of_text(text);
    let _ = Job::id_of_json(text);
    if let Ok(job) = Job::from_json(text, &KEY)
        && let Ok(again) = job.to_json()
    {
        assert_eq!(Job::from_json(&again, &KEY).map(|job| job.id()), Ok(job.id()));
    }
    if let Ok(ranges) = RangesFile::from_json(text) {
        let _ = ranges.agreement();
        let _ = RangesFile::merge(&[ranges.clone(), ranges]);
    }
});
