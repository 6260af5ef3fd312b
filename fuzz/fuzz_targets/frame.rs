//! Frames of every kind, as they come and as what they claim to be: read, summed and opened.
//!
//! Mutations are given a length and a digest that vouch for them, so that they reach what lies
//! behind. Start from `seeds/frame`, whose keys are built in.

#![no_main]

use std::sync::{Arc, LazyLock};

use ciphergram_accel::{CpuEngine, Engine};
use ciphergram_he::{
    AgreedRanges, AnyKey, Contribution, Job, OpenedSum, RangesProposal, SecretKey, Sum, aggregate,
    exchange::{Announcement, RoundTerms},
    frame::Frame,
    threshold::{KeyMessage, OpenAnswer, OpenRequest, Prekey},
};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

const HEADER: usize = 48;
const DIGEST: usize = 32;

/// A secret key, its job, and a contribution under it to sum others with.
struct Known {
    key: Box<SecretKey>,
    job: Job,
    contribution: &'static [u8],
}

const OLD: &str = "the seeds are of another version: make them again";
static KNOWN: LazyLock<[Known; 2]> = LazyLock::new(|| {
    let known = |[key, job]: [&str; 2], contribution| {
        let Ok(AnyKey::Secret(key, _)) = AnyKey::from_json(key) else { panic!("{OLD}") };
        let Ok(job) = Job::from_json(job, key.public()) else { panic!("{OLD}") };
        Known { key, job, contribution }
    };
    let ten = [include_str!("../seeds/10.json"), include_str!("../seeds/10.job.json")];
    let many = [include_str!("../seeds/64.json"), include_str!("../seeds/64.job.json")];
    [
        known(ten, include_bytes!("../seeds/frame/10-2.cgm")),
        known(many, include_bytes!("../seeds/frame/64-2.cgm")),
    ]
});
static ENGINE: LazyLock<Arc<CpuEngine>> = LazyLock::new(Arc::default);

fn read(bytes: &[u8], known: &Known) {
    let (key, engine) = (known.key.public(), || ENGINE.clone() as Arc<dyn Engine>);
    let _ = Announcement::from_bytes(bytes, key);
    let _ = RoundTerms::from_bytes(bytes, key);
    let _ = RangesProposal::from_bytes(bytes, key);
    let _ = AgreedRanges::from_bytes(bytes, key);
    let mut sums = vec![];
    sums.extend(Sum::from_bytes(bytes, key));
    if let Ok(contribution) = Contribution::from_bytes(bytes, key) {
        let other = Contribution::from_bytes(known.contribution, key);
        sums.extend(aggregate(key, &known.job, engine(), [(0, other), (1, Ok(contribution))]));
    }
    for sum in sums {
        let _ = OpenedSum::open(&*known.key, &*engine(), &sum, &known.job);
        let _ = Sum::from_bytes(&sum.to_bytes(key), key);
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = Frame::parse(bytes) {
        let _ = frame.parameters();
        let _ = Contribution::from_frame(&frame);
        let _ = Sum::from_frame(&frame);
        let _ = OpenRequest::from_frame(&frame);
        let _ = OpenAnswer::from_frame(&frame);
        KNOWN.iter().for_each(|known| read(bytes, known));
    }
    let _ = Prekey::from_bytes(bytes);
    if let Ok(message) = KeyMessage::from_bytes(bytes) {
        assert_eq!(message.to_bytes(), bytes);
    }
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
