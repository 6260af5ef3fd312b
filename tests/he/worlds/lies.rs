//! The lies that an aggregator can tell.

use std::collections::BTreeMap;

use ciphergram_he::{
    Accumulator, Contributor, ContributorSet, Job, JobId, Quantised, SealPermit, Sealer, Seed, Sum,
};
use num_bigint::BigInt;
use rand_chacha::ChaCha20Rng;
use rand_core::Rng;

use super::village::{CLIENTS, Village};
use crate::support::{liar, sums::engine};

/// A sum before it is added up.
pub(crate) struct Draft {
    listed: Vec<Contributor>,
    job: JobId,
    round: u64,
    /// Its terms: which of the village's, and what they were rewritten to.
    range: f64,
    max_weight: u32,
    sets: Vec<ContributorSet>,
    /// For each chunk, the chunks of streams that are added.
    parts: Vec<Vec<(Stream, u32)>>,
    /// Changes of slots, by chunk and slot.
    changes: Vec<(u32, usize, BigInt)>,
    /// What a member that works with the aggregator added to values.
    pub(crate) added: BTreeMap<usize, i64>,
}

/// Bytes that an aggregator has.
#[derive(Clone)]
enum Stream {
    /// A contribution of the village, by its place.
    Sealed(usize),
    /// Bytes that a member sealed for it.
    Made(std::sync::Arc<[u8]>),
}

/// Tells a lie, if it can be told of this draft.
type Tell = fn(&mut Draft, &Village<'_>, &mut ChaCha20Rng) -> bool;

pub(crate) const LIES: [(&str, Tell); 18] = [
    ("a contribution dropped but listed", Draft::drop_one),
    ("a contribution added but not listed", Draft::hide_one),
    ("a contribution twice", Draft::repeat_one),
    ("a contribution twice, with another name", Draft::repeat_under_a_name),
    ("the whole sum twice", Draft::scale),
    ("chunks of a contribution swapped", Draft::swap_chunks),
    ("a contribution of another round", Draft::mix_rounds),
    ("a contribution under other terms", Draft::mix_terms),
    ("the range rewritten", Draft::rewrite_range),
    ("the largest weight rewritten", Draft::rewrite_weight),
    ("the round rewritten", Draft::rewrite_round),
    ("the job rewritten", Draft::rewrite_job),
    ("a number rewritten", Draft::rewrite_number),
    ("a seed rewritten", Draft::rewrite_seed),
    ("a set rewritten", Draft::rewrite_set),
    ("a ciphertext added", Draft::add_ciphertext),
    ("a member changes a value", Draft::collude),
    ("a member seals as another", Draft::seal_as_another),
];

fn below(rng: &mut ChaCha20Rng, bound: usize) -> usize {
    (rng.next_u64() % bound as u64) as usize
}

fn fresh() -> Seed {
    SealPermit::draw().unwrap().seed()
}

impl Draft {
    /// Draws an honest sum: of some clients, for some chunks of fewer, as deadlines leave them.
    pub(crate) fn honest(village: &Village<'_>, rng: &mut ChaCha20Rng) -> Self {
        let (round, terms) = (below(rng, 2), below(rng, 2));
        let mut clients: Vec<usize> = (0..usize::from(CLIENTS)).collect();
        clients.swap(0, below(rng, 4));
        clients.truncate(1 + below(rng, 4));
        let places: Vec<_> = clients.iter().map(|&c| village.place(c, round, terms)).collect();
        let first = &village.all[places[0]].contribution;
        let mut draft = Self {
            listed: places.iter().map(|&p| village.all[p].contribution.contributor).collect(),
            job: first.job,
            round: first.round,
            range: first.agreement.ranges()[0],
            max_weight: first.agreement.max_weight(),
            sets: vec![],
            parts: vec![],
            changes: vec![],
            added: BTreeMap::new(),
        };
        let at_once = below(rng, 2) == 0;
        for chunk in 0..village.chunks.count() {
            let left_out = if at_once { places.len() } else { below(rng, places.len() + 1) };
            let (mut set, mut parts) = (ContributorSet::none(places.len()), vec![]);
            for (i, &place) in places.iter().enumerate() {
                if i != left_out || places.len() == 1 {
                    set.insert(i);
                    parts.push((Stream::Sealed(place), chunk));
                }
            }
            draft.sets.push(set);
            draft.parts.push(parts);
        }
        draft
    }

    /// Adds it up, unless an honest sum already refuses a part of it.
    pub(crate) fn sum(&self, village: &Village<'_>) -> Result<Sum, ciphergram_he::Error> {
        let (public, chunks) = (village.key.public(), village.chunks);
        let mut accumulator = Accumulator::new(public, engine(), chunks.values());
        for (chunk, parts) in (0..).zip(&self.parts) {
            for (stream, of) in parts {
                let stream = match stream {
                    Stream::Sealed(place) => &village.all[*place].contribution.stream[..],
                    Stream::Made(bytes) => bytes,
                };
                let bytes = &stream[chunks.range_of(&(*of..*of + 1))];
                accumulator.add(chunk..chunk + 1, bytes)?;
            }
        }
        let counts: Vec<_> = self.parts.iter().map(|parts| parts.len() as u32).collect();
        let mut stream = accumulator.into_stream(&counts).unwrap();
        for (chunk, slot, change) in &self.changes {
            liar::add(public, &chunks, &mut stream, (*chunk, *slot), change);
        }
        let specs = village.agreements[0].specs().to_vec();
        let agreement =
            ciphergram_he::Agreement::new(specs, vec![self.range], self.max_weight).unwrap();
        Ok(Sum {
            contributors: self.listed.clone(),
            job: self.job,
            round: self.round,
            agreement,
            sets: self.sets.clone(),
            stream,
        })
    }

    /// Does something with the streams of all chunks, or of one.
    fn of_some(&mut self, rng: &mut ChaCha20Rng, act: impl Fn(&mut Vec<(Stream, u32)>)) -> bool {
        let before: Vec<_> = self.parts.iter().map(Vec::len).collect();
        match below(rng, 2) {
            0 => self.parts.iter_mut().for_each(act),
            _ => {
                let chunk = below(rng, self.parts.len());
                act(&mut self.parts[chunk]);
            }
        }
        before.iter().zip(&self.parts).any(|(count, parts)| *count != parts.len())
    }

    fn drop_one(&mut self, _: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        self.of_some(rng, |parts| drop(parts.pop()))
    }

    fn hide_one(&mut self, village: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        let place = below(rng, village.all.len());
        let mut chunks = 0..;
        let chunk = |chunks: &mut std::ops::RangeFrom<u32>| chunks.next().unwrap();
        for parts in &mut self.parts {
            parts.push((Stream::Sealed(place), chunk(&mut chunks)));
        }
        true
    }

    fn repeat_one(&mut self, _: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        self.of_some(rng, |parts| parts.extend(parts.first().cloned()))
    }

    fn repeat_under_a_name(&mut self, _: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        self.parts.iter_mut().for_each(|parts| parts.extend(parts.first().cloned()));
        let number = below(rng, 6) as u16;
        self.list(Contributor { number, seed: fresh() });
        true
    }

    /// Lists a contributor, in all sets.
    fn list(&mut self, contributor: Contributor) {
        self.listed.push(contributor);
        for set in &mut self.sets {
            let mut wider = ContributorSet::none(self.listed.len());
            set.iter().chain([self.listed.len() - 1]).for_each(|i| wider.insert(i));
            *set = wider;
        }
    }

    fn scale(&mut self, _: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        self.parts.iter_mut().for_each(|parts| parts.extend(parts.clone()));
        if below(rng, 2) == 0 {
            let twice: Vec<_> = self.listed.clone();
            for c in twice.into_iter().take(2) {
                self.list(Contributor { number: 5 - c.number, seed: fresh() });
            }
        }
        true
    }

    fn swap_chunks(&mut self, village: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        // Of the same length, and not the same.
        let bytes = |chunk: usize| village.chunks.bytes_of(chunk as u32);
        let count = self.parts.len();
        let (a, b) = (below(rng, count), below(rng, count));
        if a == b || bytes(a) != bytes(b) || self.parts[a].is_empty() || self.parts[b].is_empty() {
            return false;
        }
        if below(rng, 2) == 0 {
            self.parts.swap(a, b);
        } else {
            let (one, other) = (self.parts[a][0].clone(), self.parts[b][0].clone());
            (self.parts[a][0], self.parts[b][0]) = (other, one);
        }
        true
    }

    /// Puts another contribution of a client in place of its own.
    fn replace(&mut self, village: &Village<'_>, of: impl Fn(usize) -> usize) -> bool {
        let first = self.parts.iter().flatten().find_map(|(stream, _)| match stream {
            Stream::Sealed(place) => Some(*place),
            Stream::Made(_) => None,
        });
        let Some(first) = first else { return false };
        let other = of(first);
        assert!(other != first && other < village.all.len());
        for (stream, _) in self.parts.iter_mut().flatten() {
            if matches!(stream, Stream::Sealed(place) if *place == first) {
                *stream = Stream::Sealed(other);
            }
        }
        true
    }

    fn mix_rounds(&mut self, village: &Village<'_>, _: &mut ChaCha20Rng) -> bool {
        self.replace(village, |place| place ^ usize::from(CLIENTS))
    }

    fn mix_terms(&mut self, village: &Village<'_>, _: &mut ChaCha20Rng) -> bool {
        self.replace(village, |place| place ^ (2 * usize::from(CLIENTS)))
    }

    fn rewrite_range(&mut self, _: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        let ranges = [0.0, 0.001, 1000.0, 8.0, 1.0];
        let range = ranges[below(rng, ranges.len())];
        std::mem::replace(&mut self.range, range) != range
    }

    fn rewrite_weight(&mut self, _: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        self.max_weight = 10 + below(rng, 1000) as u32;
        true
    }

    fn rewrite_round(&mut self, _: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        let rounds = [0, 3, 4, 5, u64::MAX];
        let round = rounds[below(rng, rounds.len())];
        std::mem::replace(&mut self.round, round) != round
    }

    fn rewrite_job(&mut self, village: &Village<'_>, _: &mut ChaCha20Rng) -> bool {
        let key = village.key;
        self.job = Job::new(key.public(), key.job.limits().clone()).unwrap().id();
        true
    }

    fn rewrite_number(&mut self, _: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        let (i, number) = (below(rng, self.listed.len()), below(rng, 6) as u16);
        std::mem::replace(&mut self.listed[i].number, number) != number
    }

    fn rewrite_seed(&mut self, village: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        let i = below(rng, self.listed.len());
        let known = village.all[below(rng, village.all.len())].contribution.contributor.seed;
        let seed = if below(rng, 2) == 0 { fresh() } else { known };
        std::mem::replace(&mut self.listed[i].seed, seed) != seed
    }

    fn rewrite_set(&mut self, _: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        let (chunk, i) = (below(rng, self.sets.len()), below(rng, self.listed.len()));
        let mut set = ContributorSet::none(self.listed.len());
        let was = self.sets[chunk].contains(i);
        let others = self.sets[chunk].iter().filter(|&other| other != i);
        others.chain((!was).then_some(i)).for_each(|i| set.insert(i));
        self.sets[chunk] = set;
        true
    }

    fn add_ciphertext(&mut self, village: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        let g = *village.chunks.geometry();
        // Where no value can be, too: what is past the last value, the head.
        let chunk = below(rng, village.chunks.count() as usize) as u32;
        let slots = village.chunks.units_of(chunk) * g.slots_per_unit;
        let bit = below(rng, g.fields_per_slot * g.field_bits as usize);
        let change = BigInt::from(1 + below(rng, 5)) << bit;
        let change = if below(rng, 2) == 0 { change } else { -change };
        self.changes.push((chunk, below(rng, slots), change));
        true
    }

    /// Changes a value and its tag by what a client's file tells.
    fn collude(&mut self, village: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        let key = village.key;
        let Ok(client) = key.secret.client_key(below(rng, 4) as u16) else { return false };
        let specs = village.agreements[0].specs().to_vec();
        let agreement = ciphergram_he::Agreement::new(specs, vec![self.range], self.max_weight);
        let agreement = agreement.unwrap();
        let terms = key.job.terms(self.round, &agreement).unwrap();
        let (chunks, g) = (village.chunks, village.chunks.geometry());
        let r = liar::coefficients(&client, &terms.statement(), 2 + g.values_per_chunk());
        let chunk = chunks.count() - 1;
        let values = chunks.values_of(chunk);
        let place = below(rng, values.len());
        let steps = below(rng, 200) as i64 - 100;
        let (slot, step) = liar::place_of(key.public(), place);
        self.changes.push((chunk, slot, step * steps));
        // Off by a little, now and then.
        let off = if below(rng, 4) == 0 { 1 } else { 0 };
        let tag = BigInt::from(r[2 + place]) * steps + off;
        self.changes.push((chunk, 0, liar::tag_step(key.public()) * tag));
        *self.added.entry(values.start + place).or_default() += steps;
        true
    }

    /// Lists what a member sealed as itself under another's number.
    fn seal_as_another(&mut self, village: &Village<'_>, rng: &mut ChaCha20Rng) -> bool {
        let key = village.key;
        let Ok(client) = key.secret.client_key(5) else { return false };
        let place = below(rng, 2);
        let agreement = &village.agreements[place];
        let terms = key.job.terms(self.round, agreement).unwrap();
        let update = Quantised::from_fields(vec![7; agreement.values()], 1);
        let permit = SealPermit::draw().unwrap();
        let sealer = Sealer::new(&client, engine(), update, permit, &terms).unwrap();
        let seed = sealer.contributor().seed;
        let stream = Stream::Made(sealer.seal_all().unwrap().into());
        for (chunk, parts) in (0..).zip(&mut self.parts) {
            parts.push((stream.clone(), chunk));
        }
        self.list(Contributor { number: below(rng, 5) as u16, seed });
        true
    }
}
