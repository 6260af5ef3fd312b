//! Thousands of worlds, each made by one seed: an aggregator that drops, repeats, swaps, mixes rounds and terms,
//! rewrites headers, scales sums, adds ciphertexts that it made, and has a member's key. In every world a sum
//! opens to exactly what its listed contributors sealed for its round, each number once, and what a member that works
//! with the aggregator added; or it is refused. `cargo xtask simulate --worlds N` plays more; `--worlds 1 --seed S`
//! plays one again and prints it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "../../accel/tests/support/cases.rs"]
mod cases;
#[path = "support/liar.rs"]
mod liar;
#[path = "liars_worlds/lies.rs"]
mod lies;
#[path = "support/sums.rs"]
mod support;
#[path = "liars_worlds/village.rs"]
mod village;

use std::{
    collections::BTreeMap,
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use cases::cases;
use ciphergram_he::OpenedSum;
use lies::{Draft, LIES};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use village::Village;

const DEFAULT_WORLDS: u32 = 300;
/// Worlds that share sealed contributions, which cost more than all else.
const WORLDS_OF_A_VILLAGE: u64 = 50;
/// Worlds that are certain to have every lie among them.
const MANY_WORLDS: u64 = 300;

/// For each lie, the worlds that it was told in and those of them that opened; and those without any.
type Counts = BTreeMap<&'static str, (u64, u64)>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((worlds, first)) = parse(&words) else {
        // `cargo test` gives every test the same words.
        println!("liars_worlds: not played, for it takes --worlds N and --seed S only");
        return ExitCode::SUCCESS;
    };
    let keys = village::keys();
    let (next, violations) = (AtomicU64::new(0), AtomicU64::new(0));
    let counts = Mutex::new(Counts::new());
    let work = || {
        let mut villages = BTreeMap::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= worlds {
                break;
            }
            let seed = first.wrapping_add(number);
            let play = || play(&keys, &mut villages, seed, worlds == 1);
            match panic::catch_unwind(AssertUnwindSafe(play)) {
                Ok((names, opened)) => {
                    let mut counts = counts.lock().unwrap();
                    for name in names {
                        let (told, open) = counts.entry(name).or_default();
                        *told += 1;
                        *open += u64::from(opened);
                    }
                }
                Err(_) => {
                    violations.fetch_add(1, Ordering::Relaxed);
                    println!("violation in the world of seed {seed}: play it again with");
                    println!("cargo xtask simulate --worlds 1 --seed {seed}");
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    thread::scope(|scope| {
        (0..threads.min(worlds)).for_each(|_| {
            scope.spawn(work);
        });
    });
    let (violations, counts) = (violations.into_inner(), counts.into_inner().unwrap());
    println!("{worlds} worlds of a lying aggregator, from seed {first} on");
    for (name, (told, opened)) in &counts {
        println!("{name:<40} {told:>7} worlds, {opened:>7} opened to the truth");
    }
    println!("violations: {violations}");
    let is_there = |name: &&&str| !counts.contains_key(**name);
    let missing =
        LIES.iter().map(|(name, _)| name).filter(|_| worlds >= MANY_WORLDS).find(is_there);
    if let Some(lie) = missing {
        println!("nobody told the lie {lie:?}: what is it that this shows?");
    }
    if violations == 0 && missing.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays a world: returns the lies that were told in it, and whether its sum opened.
fn play<'a>(
    keys: &'a [support::Key],
    villages: &mut BTreeMap<usize, (u64, Village<'a>)>,
    seed: u64,
    is_told: bool,
) -> (Vec<&'static str>, bool) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    // Most under the scheme whose sums are quickest.
    let place = match rng.next_u64() % 40 {
        0 | 1 => 2,
        2 | 3 => 3,
        x => (x % 2) as usize,
    };
    let key = &keys[place];
    let epoch = seed / WORLDS_OF_A_VILLAGE;
    let known = villages.get(&place).is_some_and(|(of, _)| *of == epoch);
    if !known {
        villages.insert(place, (epoch, Village::new(key, epoch)));
    }
    let village = &villages[&place].1;
    let mut draft = Draft::honest(village, &mut rng);
    let mut names = vec![];
    for _ in 0..[0, 1, 1, 1, 2, 3][(rng.next_u64() % 6) as usize] {
        let (name, tell) = LIES[(rng.next_u64() % LIES.len() as u64) as usize];
        if tell(&mut draft, village, &mut rng) {
            names.push(name);
        }
    }
    let opened = draft.sum(village).and_then(|sum| Ok((key.open(&sum)?, sum)));
    if is_told {
        println!("{}, {names:?}: {:?}", key.public().parameters().scheme(), opened.as_ref().err());
    }
    if names.is_empty() {
        names.push("none");
        assert!(opened.is_ok(), "an honest sum is refused: {:?}", opened.err());
    }
    if let Ok((opened, sum)) = &opened {
        assert_true(&draft, village, sum, opened);
    }
    (names, opened.is_ok())
}

/// Checks that what opened is of exactly the contributions that are listed, each of this round and these terms.
fn assert_true(draft: &Draft, village: &Village, sum: &ciphergram_he::Sum, opened: &OpenedSum) {
    assert_eq!(sum.job, village.key.job.id());
    // Who is in no set is listed, and contributed nothing: rounds list all that joined.
    let sealed = |place: usize| {
        let listed = sum.contributors[place];
        let mut all = village.all.iter();
        let of = all.find(|s| {
            s.contribution.contributor == listed
                && s.contribution.round == sum.round
                && s.contribution.agreement == sum.agreement
        });
        of.unwrap_or_else(|| panic!("nobody sealed {listed:?} for this"))
    };
    let mut numbers: Vec<_> = sum.contributors.iter().map(|c| c.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), sum.contributors.len(), "a number twice");
    let chunks = village.chunks;
    let half = i64::from(village.key.public().parameters().half_steps());
    for (chunk, set) in (0..).zip(&sum.sets) {
        let weights = set.iter().map(|i| u64::from(sealed(i).weight)).sum();
        assert_eq!(opened.parts()[chunk as usize], (set.count(), weights));
        let sealed: Vec<_> = set.iter().map(sealed).collect();
        for i in chunks.values_of(chunk) {
            let truth: i64 = sealed.iter().map(|s| i64::from(s.fields[i]) - half).sum();
            let added = draft.added.get(&i).copied().unwrap_or(0);
            assert_eq!(opened.sums()[i], truth + added, "value {i}");
        }
    }
}

/// Parses the number of worlds, and the seed of the first; `None` if other options are given.
fn parse(words: &[String]) -> Option<(u64, u64)> {
    let seed = std::env::var("CIPHERGRAM_SEED").ok();
    let (mut worlds, mut first) = match seed {
        Some(seed) => (1, seed.parse().expect("CIPHERGRAM_SEED is a number")),
        None => (cases(DEFAULT_WORLDS).into(), 0),
    };
    for pair in words.chunks(2) {
        let [option, value] = pair else { return None };
        let place = match option.as_str() {
            "--worlds" => &mut worlds,
            "--seed" => &mut first,
            _ => return None,
        };
        *place = value.parse().ok()?;
    }
    Some((worlds, first))
}
