//! Valid frames of `ckks-sum`, changed and given a digest that vouches for the change: what a
//! fuzzer does, in a run that is short and always the same. The writer of such a frame may lie about
//! whatever it likes: nothing panics, and a frame opens only if it says what was sealed.

use ciphergram_he::{
    Contribution, Error, Sum,
    exchange::{Announcement, RoundTerms},
    frame::Frame,
};
use proptest::{
    prelude::*,
    test_runner::{RngSeed, TestRunner},
};

use crate::support::frames::{Seeds, both_rings, vouch};

/// A change at a place within what the digest vouches for, version aside.
#[derive(Debug, Clone)]
enum Edit {
    Flip(usize, u8),
    Word(usize, u32),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Copy(usize, usize, usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    // Names, the job and the agreement, ciphertexts, and now and then the header.
    let place = || prop_oneof![8 => 48usize..246, 6 => 246usize..1830, 1 => 10usize..48];
    let word = prop_oneof![0u32..4, 1u32 << 31..=u32::MAX, any::<u32>()];
    let edit = prop_oneof![
        6 => (place(), 0u8..8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        2 => (place(), word).prop_map(|(at, word)| Edit::Word(at, word)),
        1 => (place(), prop::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        1 => (place(), 1usize..200).prop_map(|(at, count)| Edit::Remove(at, count)),
        1 => (place(), place(), 1usize..200).prop_map(|(from, to, n)| Edit::Copy(from, to, n)),
    ];
    prop::collection::vec(edit, 1..3)
}

/// The frame with the edits made and vouched for.
fn edited(frame: &[u8], edits: &[Edit]) -> Vec<u8> {
    // The header stays whole in length, so that there is one.
    let mut bytes = frame[..frame.len() - 32].to_vec();
    for edit in edits {
        let within = |at: usize| at.min(bytes.len() - 1);
        match *edit {
            Edit::Flip(at, bit) => {
                let at = within(at);
                bytes[at] ^= 1 << bit;
            }
            Edit::Word(at, word) => {
                let at = within(at);
                bytes[at..].iter_mut().zip(word.to_le_bytes()).for_each(|(b, w)| *b = w);
            }
            Edit::Insert(at, ref new) => {
                let at = within(at.max(48));
                bytes.splice(at..at, new.iter().copied());
            }
            Edit::Remove(at, count) => {
                let (at, end) = (at.max(48), bytes.len());
                bytes.drain(at.min(end)..(at + count).min(end));
            }
            Edit::Copy(from, to, count) => {
                let (from, to) = (within(from), within(to));
                let count = count.min(bytes.len() - from.max(to));
                bytes.copy_within(from..from + count, to);
            }
        }
    }
    bytes.extend([0; 32]);
    vouch(&mut bytes);
    bytes
}

/// The stage that a frame reached.
#[derive(Debug, Clone, Copy)]
enum Reached {
    NoFrame,
    NoBody,
    NoSum,
    NotOpened,
    Opened,
}

/// Opens what comes of a frame, which must be `truth` if it opens.
fn try_sum(seeds: &Seeds, sum: Result<Sum, Error>, truth: &Sum) -> Reached {
    let Ok(sum) = sum else { return Reached::NoSum };
    if seeds.open(&sum).is_err() {
        return Reached::NotOpened;
    }
    assert_eq!(&sum, truth, "another sum");
    Reached::Opened
}

fn sum_of(seeds: &Seeds, frames: &[&[u8]]) -> Result<Sum, Error> {
    let read = frames.iter().map(|f| ("", Contribution::from_bytes(f, seeds.public())));
    seeds.aggregate(read)
}

/// Everything that reads frames, on one.
fn read(seeds: &Seeds, bytes: &[u8]) -> Option<Reached> {
    let key = seeds.public();
    let _ = Announcement::from_bytes(bytes, key);
    let _ = RoundTerms::from_bytes(bytes, key);
    let Ok(frame) = Frame::parse(bytes) else { return Some(Reached::NoFrame) };
    let (contribution, sum) = (Contribution::from_frame(&frame), Sum::from_frame(&frame));
    (contribution.is_err() && sum.is_err()).then_some(Reached::NoBody)
}

/// Runs the property over both rings, and counts the cases by the stage that they reached.
fn run(check: impl Fn(&Seeds, &[Edit]) -> Reached) -> [usize; 5] {
    let counts = std::cell::Cell::new([0; 5]);
    for seeds in both_rings() {
        let rng_seed = RngSeed::Fixed(seeds.clients as u64);
        let (cases, failure_persistence) = (768, None);
        let default = ProptestConfig::default();
        let config = ProptestConfig { cases, rng_seed, failure_persistence, ..default };
        let case = |edits: Vec<Edit>| {
            let mut now = counts.get();
            now[check(&seeds, &edits) as usize] += 1;
            counts.set(now);
            Ok(())
        };
        TestRunner::new(config).run(&edits(), case).unwrap();
    }
    counts.get()
}

/// Nothing is vacuous: each way to end happened. Hardly any is no frame, which takes an unknown
/// kind or scheme, and what opens are edits that changed nothing.
fn assert_all_reached(counts: [usize; 5]) {
    let [no_frame, behind @ ..] = counts;
    assert!(behind.iter().all(|&count| count > 4) && no_frame < 20, "{counts:?}");
}

#[test]
fn mutated_contributions_never_make_another_sum() {
    let truths = both_rings().map(|s| {
        let both = sum_of(&s, &[&s.contributions[1], &s.contributions[0]]).unwrap();
        (both, sum_of(&s, &[&s.contributions[0]]).unwrap())
    });
    assert_all_reached(run(|seeds, edits| {
        let (both, alone) = &truths[usize::from(seeds.clients == 64)];
        let bytes = edited(&seeds.contributions[0], edits);
        if let Some(reached) = read(seeds, &bytes) {
            return reached;
        }
        try_sum(seeds, sum_of(seeds, &[&bytes]), alone);
        try_sum(seeds, sum_of(seeds, &[&seeds.contributions[1], &bytes]), both)
    }));
}

#[test]
fn mutated_sums_never_open_to_another() {
    let truths = both_rings().map(|s| Sum::from_bytes(&s.sum, s.public()).unwrap());
    assert_all_reached(run(|seeds, edits| {
        let bytes = edited(&seeds.sum, edits);
        let truth = &truths[usize::from(seeds.clients == 64)];
        read(seeds, &bytes)
            .unwrap_or_else(|| try_sum(seeds, Sum::from_bytes(&bytes, seeds.public()), truth))
    }));
}
