//! Thousands of worlds, each made by one seed: an aggregator that drops, repeats, swaps, mixes rounds and terms,
//! rewrites headers, scales sums, adds ciphertexts that it made, and has a member's key. In every world a sum
//! opens to exactly what its listed contributors sealed for its round, each number once, and what a member that works
//! with the aggregator added; or it is refused. `cargo xtask simulate --worlds N` plays more; `--worlds 1 --seed S`
//! plays one again and prints it.

mod lies;
mod openers;
mod village;

use std::collections::BTreeMap;

use ciphergram_he::OpenedSum;
use ciphergram_tests::{play_worlds, seeds};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use crate::support::sums;
use lies::{Draft, LIES};
use village::Village;

const WORLDS: u32 = 300;
/// Worlds that share sealed contributions, which cost more than all else.
const WORLDS_OF_A_VILLAGE: u64 = 50;
/// Worlds that are certain to have every lie among them.
const MANY_WORLDS: u64 = 300;

/// For each lie, the worlds that it was told in and those of them that opened; and those without any.
type Counts = BTreeMap<&'static str, (u64, u64)>;

#[test]
fn no_lie_opens_to_anything_but_the_truth() {
    let (keys, seeds) = (village::keys(), seeds(WORLDS));
    let worlds = seeds.end - seeds.start;
    let gathered =
        play_worlds(&seeds, |(villages, counts): &mut (BTreeMap<_, _>, Counts), seed| {
            let (names, opened) = play(&keys, villages, seed, worlds == 1);
            for name in names {
                let (told, open) = counts.entry(name).or_default();
                *told += 1;
                *open += u64::from(opened);
            }
        });
    let mut counts = Counts::new();
    for (name, (told, opened)) in gathered.into_iter().flat_map(|(_, counts)| counts) {
        let (all_told, all_opened) = counts.entry(name).or_default();
        *all_told += told;
        *all_opened += opened;
    }
    println!("{worlds} worlds of a lying aggregator, from seed {} on", seeds.start);
    for (name, (told, opened)) in &counts {
        println!("{name:<40} {told:>7} worlds, {opened:>7} opened to the truth");
    }
    for (lie, _) in LIES.iter().filter(|_| worlds >= MANY_WORLDS) {
        assert!(
            counts.contains_key(lie),
            "nobody told the lie {lie:?}: what is it that this shows?"
        );
    }
}

/// Plays a world: returns the lies that were told in it, and whether its sum opened.
fn play<'a>(
    keys: &'a [sums::Key],
    villages: &mut BTreeMap<usize, (u64, Village<'a>)>,
    seed: u64,
    is_told: bool,
) -> (Vec<&'static str>, bool) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    // Most under the scheme whose sums are quickest.
    let place = match rng.next_u64() % 40 {
        0..4 => 2,
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
