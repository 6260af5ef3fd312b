//! Sums of contributions that come one by one, in any order, some of them added to each other before.

use std::sync::OnceLock;

use ciphergram_he::{Contribution, Error, Job, Limits, Sum, Summing, params::Scheme};
use ciphergram_tests::cases;
use proptest::prelude::*;

use crate::support::sums::{Key, ROUND, agreement, contribute, engine, generate};

const CLIENTS: u16 = 6;

/// A key, what each client contributes, and what they add up to, of more than one chunk.
struct Round {
    key: Key,
    /// Another job under the same key.
    other: Job,
    fields: Vec<Vec<u32>>,
    contributions: Vec<Contribution<'static>>,
}

impl Round {
    fn new(scheme: Scheme) -> Self {
        let key = generate(scheme, CLIENTS.into(), 16);
        let values = 2 * key.public().parameters().geometry().values_per_chunk() + 1;
        let layout = agreement(values, u32::MAX);
        let fields: Vec<Vec<u32>> = (0..u32::from(CLIENTS))
            .map(|c| (0..values as u32).map(|i| (i + 1) * (7919 * c + 1) % 65_535).collect())
            .collect();
        let contributions = (0..CLIENTS)
            .map(|c| contribute(&key, c, &fields[usize::from(c)], u32::from(c) + 1, &layout))
            .collect();
        let limits = Limits { max_weight: 1, ..key.job.limits().clone() };
        let other = Job::new(key.public(), limits).unwrap();
        Self { key, other, fields, contributions }
    }

    fn of_every_scheme() -> &'static [Self; 2] {
        static ROUNDS: OnceLock<[Round; 2]> = OnceLock::new();
        ROUNDS.get_or_init(|| [Scheme::CkksSum, Scheme::Paillier2048].map(Self::new))
    }

    fn summing(&self) -> Summing {
        Summing::new(self.key.public(), &self.key.job, engine()).unwrap()
    }

    fn sum(&self, clients: &[u16]) -> Sum {
        let mut summing = self.summing();
        for &client in clients {
            assert_eq!(summing.add(&self.contributions[usize::from(client)]), Ok(()));
        }
        summing.finish().unwrap()
    }

    /// Changes the contribution of a client, in a way that a sum of others refuses.
    fn spoilt(&self, client: u16, how: u8) -> Contribution<'static> {
        let mut spoilt = self.contributions[usize::from(client)].clone();
        match how {
            0 => spoilt.round = ROUND + 1,
            1 => spoilt.job = self.other.id(),
            2 => spoilt.contributor.number = CLIENTS,
            3 => spoilt.agreement = agreement(spoilt.agreement.values(), 5),
            4 => drop(spoilt.stream.to_mut().pop()),
            // No residue, and no ciphertext of Paillier: after whole chunks that are some.
            _ => spoilt.stream.to_mut().iter_mut().rev().take(400).for_each(|byte| *byte = 0xff),
        }
        spoilt
    }

    /// Checks that a sum is of these clients, and opens to the sum of their integers.
    fn check(&self, sum: &Sum, clients: &[u16]) -> Result<(), TestCaseError> {
        let numbers: Vec<_> = sum.contributors.iter().map(|c| c.number).collect();
        prop_assert_eq!(&numbers, clients);
        let opened = self.key.open(sum).unwrap();
        let half = i64::from(self.key.public().parameters().half_steps());
        let weights = clients.iter().map(|&c| u64::from(c) + 1).sum();
        prop_assert!(opened.parts().iter().all(|&part| part == (clients.len(), weights)));
        for (i, &found) in opened.sums().iter().enumerate() {
            let plain: i64 =
                clients.iter().map(|&c| i64::from(self.fields[usize::from(c)][i]) - half).sum();
            prop_assert_eq!(found, plain, "value {}", i);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    #[test]
    fn sums_of_sums_are_exact_whatever_is_refused_between(
        scheme in 0usize..2,
        order in Just((0..CLIENTS).collect::<Vec<_>>()).prop_shuffle(),
        sizes in prop::collection::vec(1usize..4, 6),
        between in prop::collection::vec((0..7u8, 0..CLIENTS), 6),
    ) {
        let round = &Round::of_every_scheme()[scheme];
        let (mut summing, mut left) = (round.summing(), &order[..]);
        for (size, (how, client)) in sizes.into_iter().zip(between) {
            let (group, rest) = left.split_at(size.min(left.len()));
            match group {
                [] => break,
                [one] => prop_assert_eq!(summing.add(&round.contributions[usize::from(*one)]), Ok(())),
                several => prop_assert_eq!(summing.add_sum(&round.sum(several)), Ok(())),
            }
            left = rest;
            if how == 6 {
                let again = summing.add_sum(&round.sum(group));
                prop_assert!(again == Err(Error::SameContribution), "{again:?}");
            } else {
                prop_assert!(summing.add(&round.spoilt(client, how)).is_err(), "{how}");
            }
        }
        let added = &order[..order.len() - left.len()];
        round.check(&summing.finish().unwrap(), added)?;
    }
}

#[test]
fn what_is_refused_at_first_leaves_the_sum_of_nothing() {
    for round in Round::of_every_scheme() {
        let mut summing = round.summing();
        for how in [1, 2, 4, 5] {
            assert!(summing.add(&round.spoilt(0, how)).is_err(), "{how}");
        }
        assert!(summing.contributors().is_empty());
        assert!(matches!(summing.finish(), Err(Error::NothingToSum)));
    }
}
