//! The secret of a sum, of the answers of enough openers.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::{repeat_with, successors},
    sync::Arc,
};

use ciphergram_accel::random::StreamRng;
use rand_core::Rng as _;

use super::{
    answer::OpenAnswer,
    member::{MemberKey, polynomials},
    sharing::Share,
};
use crate::{
    Error, Job, PublicKey, Sum, random,
    schemes::{
        Opener,
        rlwe::{RlweParameters, RlweSecret, host, symmetric},
    },
    tag::TagKey,
};

/// The most sets of answers that are tried: some of them may be false.
const MAX_SETS: usize = 1000;

/// The secret that one sum is encrypted under, and no other.
pub struct SumSecret {
    public: PublicKey,
    secret: RlweSecret,
    parameters: Arc<RlweParameters>,
    polynomials: [u8; 32],
    tag_key: TagKey,
}

impl SumSecret {
    /// Recovers the secret of a sum from openers' answers, the first that fit together.
    ///
    /// # Errors
    /// A sum that is not of one set of contributors; too few answers about the same contributions:
    /// [`Error::Opener`], whose answer is not its own or of another sum, else [`Error::TooFewAnswers`];
    /// [`Error::FalseAnswers`]; the engine's.
    pub fn recover(
        member: &MemberKey,
        job: &Job,
        sum: &Sum,
        answers: &[OpenAnswer],
    ) -> Result<Self, Error> {
        let none = || Err(Error::FalseAnswers { found: answers.len() });
        Self::candidates(member, job, sum, answers)?.next().unwrap_or_else(none)
    }

    /// Recovers what the secret of a sum may be: one of each set of answers that fit together, since false ones may.
    /// Which it is shows when the sum opens.
    ///
    /// # Errors
    /// As [`recover`](Self::recover); no randomness; of each, the engine's alone.
    pub(crate) fn candidates(
        member: &MemberKey,
        job: &Job,
        sum: &Sum,
        answers: &[OpenAnswer],
    ) -> Result<impl Iterator<Item = Result<Self, Error>>, Error> {
        let public = member.public();
        sum.check(public, job)?;
        let set = sum.sets.first().ok_or(Error::NothingToSum)?;
        if let Some(chunk) = sum.sets.iter().position(|other| other != set) {
            return Err(Error::MixedContributors { chunk: chunk as u32 });
        }
        let mut contributors: Vec<_> = set.iter().map(|index| sum.contributors[index]).collect();
        contributors.sort_unstable_by_key(|contributor| contributor.number);
        let fields = sum.agreement.fields(public.parameters());
        let (sharing, parameters) = member.openers().sharing(public.parameters(), fields)?;
        let parameters = parameters.clone();
        let statement = job.terms(sum.round, &sum.agreement)?.openers_statement();
        // By the ciphertexts that they are about: an honest opener answers about those that were summed.
        let mut shares: BTreeMap<[u8; 32], Vec<(usize, Share)>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        // One that is none leaves the others as they are; it is named if too few are left.
        let mut refused = None;
        for answer in answers {
            let opener = usize::from(answer.opener);
            let known = member.openers().openers().get(opener);
            let share = known.ok_or("the job has no such opener").and_then(|known| {
                let of = (&statement, &contributors[..]);
                let share = answer.open(&known.id, of, (member.secret(), &sharing))?;
                seen.insert(opener).then_some(share).ok_or("it is there twice")
            });
            match share {
                Ok(share) => shares.entry(answer.contributions).or_default().push((opener, share)),
                Err(why) => _ = refused.get_or_insert(Error::Opener { opener, why: why.into() }),
            }
        }
        let shares = shares.into_values().max_by_key(Vec::len).unwrap_or_default();
        let (found, needed) = (shares.len(), sharing.needed());
        if found < needed {
            return Err(refused.unwrap_or(Error::TooFewAnswers { found, needed }));
        }
        let (public, tag_key) = (public.clone(), member.tag_key());
        let polynomials = polynomials(&statement);
        let candidate = move |places: Vec<usize>| {
            let set: Vec<_> = places.iter().map(|&i| (shares[i].0, &shares[i].1[..])).collect();
            let small = sharing.recover(&set, contributors.len())?;
            let secret = RlweSecret::of_small(&small, &parameters.ring, host());
            Some(secret.map(|secret| Self {
                public: public.clone(),
                secret,
                parameters: parameters.clone(),
                polynomials,
                tag_key: tag_key.clone(),
            }))
        };
        Ok(sets(found, needed, random::generator()?).filter_map(candidate))
    }

    pub(crate) fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn tag_key(&self) -> &TagKey {
        &self.tag_key
    }

    /// Makes the opener of the sum.
    pub(crate) fn opener(&self) -> Box<dyn Opener + '_> {
        let seed = random::seed_words(&self.polynomials);
        symmetric::opener_under(&self.parameters, &self.secret, seed)
    }
}

/// Returns the sets of `needed` of `found` places; of more than [`MAX_SETS`], as many of them, drawn by chance: whoever
/// gives false answers does not know which.
fn sets(
    found: usize,
    needed: usize,
    mut random: StreamRng,
) -> Box<dyn Iterator<Item = Vec<usize>> + Send> {
    if every_set(found, needed).nth(MAX_SETS).is_none() {
        return Box::new(every_set(found, needed));
    }
    let mut places: Vec<_> = (0..found).collect();
    let draw = move || {
        for at in 0..needed {
            let other = at + (random.next_u64() % (found - at) as u64) as usize;
            places.swap(at, other);
        }
        let mut set = places[..needed].to_vec();
        set.sort_unstable();
        set
    };
    Box::new(repeat_with(draw).take(MAX_SETS))
}

/// Returns the sets of `needed` of `found` places, in lexical order.
fn every_set(found: usize, needed: usize) -> impl Iterator<Item = Vec<usize>> {
    let next = move |places: &Vec<usize>| {
        let last = (0..needed).rfind(|&i| places[i] < found - needed + i)?;
        let mut next = places.clone();
        next[last] += 1;
        (last + 1..needed).for_each(|i| next[i] = next[i - 1] + 1);
        Some(next)
    };
    successors(Some((0..needed).collect()), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_comes_once() {
        let few = |found, needed| sets(found, needed, StreamRng::from_seed(&[1; 32]));
        let found: Vec<_> = few(4, 3).collect();
        assert_eq!(found, [vec![0, 1, 2], vec![0, 1, 3], vec![0, 2, 3], vec![1, 2, 3]]);
        assert_eq!(few(3, 3).count(), 1);
        assert_eq!(every_set(16, 11).count(), 4368);
    }

    #[test]
    fn any_three_places_are_left_out_of_some_set() {
        for (found, needed) in [(14, 10), (16, 11), (32, 22)] {
            let drawn: Vec<_> = sets(found, needed, StreamRng::from_seed(&[2; 32])).collect();
            assert_eq!(drawn.len(), MAX_SETS);
            for set in &drawn {
                let distinct: BTreeSet<_> = set.iter().filter(|place| **place < found).collect();
                assert_eq!(distinct.len(), needed);
            }
            for three in every_set(found, 3) {
                let leaves_out = |set: &Vec<usize>| !three.iter().any(|place| set.contains(place));
                assert!(drawn.iter().any(leaves_out), "{three:?} of {found}");
            }
        }
    }
}
