//! Thousands of worlds, each made by one seed: clients that come, crash, return, lie and are cut
//! off, an aggregator that restarts, clocks that differ, a network with every fault, and an
//! attacker on the path. The invariants are checked after every step (`support/world.rs`). `cargo
//! xtask simulate --worlds N` plays more; `--worlds 1 --seed S` plays one again and prints its
//! events.

mod attacker;
mod plan;
mod play;
mod summary;

use ciphergram_tests::{play_worlds, seeds};

use summary::Summary;

const WORLDS: u32 = 1000;
/// Worlds that are certain to have every fault among them.
const MANY_WORLDS: u64 = 500;

#[test]
fn rounds_stand_every_fault() {
    let seeds = seeds(WORLDS);
    let worlds = seeds.end - seeds.start;
    let gathered =
        play_worlds(&seeds, |mine: &mut Summary, seed| mine.merge(play::play(seed, worlds == 1)));
    let mut summary = Summary::default();
    gathered.into_iter().for_each(|mine| summary.merge(mine));
    println!("{summary}");
    let missing = summary.missing().filter(|_| worlds >= MANY_WORLDS);
    assert_eq!(missing, None, "no fault of that kind happened: what is it that this shows?");
}
