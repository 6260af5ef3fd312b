//! Worlds of openers: clients that drop out, openers that are silent, restart, crash between record and answer or come
//! back from a backup, answers that are false, and an aggregator that shows two sets of a round.

use std::collections::BTreeMap;

use ciphergram_he::{
    Error, Ledger, Sum,
    threshold::{OpenAnswer, OpenRequest, Prekeys},
};
use ciphergram_tests::{play_worlds, seeds};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use crate::support::{
    frames::vouch,
    openers::{World, expected, fields},
};

const WORLDS: u32 = 60;
/// Worlds that are certain to have every event among them.
const MANY_WORLDS: u64 = 60;
const VALUES: usize = 9;
const ROUNDS: u64 = 2;
/// Clients, who are openers too, the answers that open a sum, and the fewest contributors.
const JOBS: [(usize, usize, u16); 4] = [(3, 3, 2), (4, 3, 3), (5, 4, 4), (7, 5, 5)];
const EVENTS: [&str; 11] = [
    "a client drops out",
    "too few contribute",
    "two sets are shown",
    "an opener is silent",
    "an opener starts again",
    "an opener crashes between record and answer",
    "an opener comes back from a backup, and answers twice",
    "an answer is lost, and given again",
    "an answer is false",
    "an answer is of the other set",
    "a sum opens",
];

type Counts = BTreeMap<&'static str, u64>;

#[test]
fn of_a_round_one_set_opens_and_to_its_sum_alone() {
    let seeds = seeds(WORLDS);
    let worlds = seeds.end - seeds.start;
    let gathered = play_worlds(&seeds, |counts: &mut Counts, seed| play(seed, counts));
    let mut counts = Counts::new();
    for (event, count) in gathered.into_iter().flatten() {
        *counts.entry(event).or_default() += count;
    }
    println!("{worlds} worlds of openers, from seed {} on", seeds.start);
    counts.iter().for_each(|(event, count)| println!("{event:<60} {count:>7}"));
    for event in EVENTS.iter().filter(|_| worlds >= MANY_WORLDS) {
        assert!(counts.contains_key(event), "it never happened that {event}: what does this show?");
    }
}

struct Dice(ChaCha20Rng);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// A set that an aggregator shows: its sum, the requests, and who is in it; and the answers that it got.
struct Shown {
    sum: Sum,
    requests: Vec<OpenRequest>,
    clients: Vec<u32>,
    answers: BTreeMap<usize, OpenAnswer>,
}

fn play(seed: u64, counts: &mut Counts) {
    let mut dice = Dice(ChaCha20Rng::seed_from_u64(seed));
    let (all, open, least) = JOBS[dice.below(JOBS.len())];
    let mut world = World::new(all, open, least);
    let mut prekeys = Prekeys::of(world.job.openers().unwrap());
    let faulty = 2 * open - all - 1;
    // Those that may come back from backups: they count among the faulty ones.
    let restored: Vec<usize> = (0..faulty).map(|_| dice.below(all)).collect();
    for round in 0..ROUNDS {
        let mut happens = |event: &'static str| *counts.entry(event).or_default() += 1;
        for opener in 0..all {
            let told = world.openers[opener].prekey().unwrap();
            prekeys.learn(opener as u8, &told).unwrap();
        }
        let mut files = vec![];
        for client in 0..all {
            if dice.one_in(7) {
                happens("a client drops out");
                continue;
            }
            let member = world.member(client).with_told((0..).zip(prekeys.latest()));
            let file = world.contribute(&member, round, &fields(client as u32, VALUES));
            files.push((client as u32, file));
        }
        if files.len() < least.into() {
            happens("too few contribute");
            continue;
        }
        let mut shown = vec![show(&world, &files)];
        if files.len() > least.into() && dice.one_in(2) {
            happens("two sets are shown");
            files.remove(dice.below(files.len()));
            shown.push(show(&world, &files));
        }
        let backups: Vec<_> = (0..all).map(|opener| world.chain(opener)).collect();
        let mut honest = 0;
        for (opener, backup) in backups.iter().enumerate() {
            if dice.one_in(8) {
                happens("an opener is silent");
                continue;
            }
            let which = dice.below(shown.len());
            if dice.one_in(5) {
                happens("an opener starts again");
                world.start_again(opener, &world.chain(opener));
            }
            let crashes = dice.one_in(7);
            if crashes {
                happens("an opener crashes between record and answer");
                world.answer(opener, &shown[which].requests[opener]).unwrap();
                world.start_again(opener, backup);
                let again = world.answer(opener, &shown[which].requests[opener]);
                assert_eq!(again.err(), Some(Error::Answered { round, last: round }), "{seed}");
            } else {
                let answer = world.answer(opener, &shown[which].requests[opener]).unwrap();
                honest += usize::from(!restored.contains(&opener));
                if dice.one_in(4) {
                    happens("an answer is lost, and given again");
                    world.start_again(opener, &world.chain(opener));
                    let again = world.answer(opener, &shown[which].requests[opener]).unwrap();
                    assert_eq!(again, answer, "{seed}");
                }
                shown[which].answers.insert(opener, answer);
                // Of any other set, whoever asks.
                for other in (0..shown.len()).filter(|other| *other != which) {
                    let second = world.answer(opener, &shown[other].requests[opener]);
                    assert_eq!(
                        second.err(),
                        Some(Error::Answered { round, last: round }),
                        "{seed}"
                    );
                }
            }
            if restored.contains(&opener) {
                let (live, ledger) = (world.chain(opener), world.ledgers[opener].clone());
                for set in &mut shown {
                    world.start_again(opener, backup);
                    world.ledgers[opener] = Ledger::in_memory();
                    happens("an opener comes back from a backup, and answers twice");
                    let answer = world.answer(opener, &set.requests[opener]).unwrap();
                    set.answers.entry(opener).or_insert(answer);
                }
                // Its owner finds the newer disk again.
                world.start_again(opener, &live);
                world.ledgers[opener] = ledger;
            }
        }
        let (mut opened, mut lies) = (0, 0);
        for (which, set) in shown.iter().enumerate() {
            let mut answers: Vec<_> = set.answers.values().cloned().collect();
            let mut found = answers.len();
            let mut few = Error::TooFewAnswers { found, needed: open };
            if found > 0 && dice.one_in(3) {
                let lie = dice.below(found);
                let mut others = shown.iter().enumerate().filter(|(other, _)| *other != which);
                let other = others.find_map(|(_, other)| other.answers.values().next());
                answers[lie] = match other.filter(|_| dice.one_in(2)) {
                    Some(other) => {
                        happens("an answer is of the other set");
                        other.clone()
                    }
                    None => {
                        happens("an answer is false");
                        falsified(&world, &answers[lie], &mut dice)
                    }
                };
                let opener = answers[lie].opener.into();
                let why = "its answer is not signed by it, or is of another sum".into();
                few = Error::Opener { opener, why };
                (found, lies) = (found - 1, lies + 1);
            }
            match world.open(dice.below(all), &set.sum, &answers) {
                Ok(sums) => {
                    assert!(found >= open, "{seed}");
                    assert_eq!(sums, expected(&set.clients, VALUES), "{seed}");
                    happens("a sum opens");
                    opened += 1;
                }
                Err(error) => {
                    assert_eq!(error, few, "{seed}");
                    assert!(found < open, "{seed}: true answers are enough");
                }
            }
        }
        assert!(opened <= 1, "seed {seed}: two sets of round {round} opened");
        let is_enough = shown.len() == 1 && honest >= open + lies;
        assert!(opened == 1 || !is_enough, "seed {seed}: nothing opened");
    }
}

/// Returns an answer of which a bit is another.
fn falsified(world: &World, answer: &OpenAnswer, dice: &mut Dice) -> OpenAnswer {
    loop {
        let mut bytes = answer.to_bytes(&world.public);
        let at = 160 + dice.below(bytes.len() - 32 - 160);
        bytes[at] ^= 1 << dice.below(8);
        vouch(&mut bytes);
        match OpenAnswer::from_bytes(&bytes, &world.public) {
            Ok(changed) if changed != *answer => return changed,
            _ => {}
        }
    }
}

fn show(world: &World, files: &[(u32, Vec<u8>)]) -> Shown {
    let given: Vec<_> = files.iter().map(|(_, file)| file.clone()).collect();
    let (sum, requests) = world.sum(&given);
    let clients = files.iter().map(|(client, _)| *client).collect();
    Shown { sum, requests, clients, answers: BTreeMap::new() }
}
