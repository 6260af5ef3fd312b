//! Lies about a round that must not open: whatever an aggregator changes, repeats, leaves out or rewrites, alone or
//! with a member.

use ciphergram_he::{
    Accumulator, Agreement, Contribution, ContributorSet, Error, Job, Limits, Quantised,
    SealPermit, Sealer, Sum, aggregate, params::Scheme,
};
use num_bigint::BigInt;

use crate::support::liar;
use crate::support::sums::{
    Key, ROUND, agreement, contribute, contribute_with, counts, engine, generate, sealer,
};

/// A key of each scheme; under `ckks-sum` one for heads of one slot, and one for heads of two.
fn keys() -> Vec<Key> {
    let keys = vec![
        generate(Scheme::CkksSum, 10, 16),
        generate(Scheme::CkksSum, 64, 16),
        generate(Scheme::Paillier2048, 5, 16),
    ];
    let slots = keys.iter().map(|key| key.public().parameters().geometry().head.slots());
    assert!(slots.eq([1, 2, 1]));
    keys
}

fn not_theirs(contributors: usize) -> Option<Error> {
    Some(Error::NotTheirs { contributors })
}

/// Contributions of clients 0 to 2, with different values and weights, of `values` values.
fn three(key: &Key, values: usize) -> [Contribution<'static>; 3] {
    let agreement = agreement(values, 100);
    [0, 1, 2].map(|c| {
        let weight = u32::from(c) + 2;
        contribute(key, c, &vec![1000 * weight; values], weight, &agreement)
    })
}

#[test]
fn a_change_of_any_bit_of_a_chunk_is_refused() {
    for key in keys() {
        let g = *key.public().parameters().geometry();
        let sum = key.aggregate(three(&key, g.fields_per_slot + 3)).unwrap();
        assert!(key.open(&sum).is_ok());
        let chunks = key.public().parameters().chunks(sum.agreement.values());
        let chunk = chunks.count() - 1;
        let slot_bits = g.fields_per_slot * g.field_bits as usize;
        let slots = chunks.units_of(chunk) * g.slots_per_unit;
        let used = g.head_fields + sum.agreement.values();
        assert!(slots * g.fields_per_slot >= used);
        // Coprime to all widths, so that each place of a field is met.
        for place in (0..slots * slot_bits).step_by(17) {
            let (slot, bit) = (place / slot_bits, place % slot_bits);
            for sign in [1, -1] {
                let mut lie = sum.clone();
                let change = BigInt::from(sign) << bit;
                liar::add(key.public(), &chunks, &mut lie.stream, (chunk, slot), &change);
                assert_eq!(key.open(&lie).err(), not_theirs(3), "bit {bit} of slot {slot}");
                // Back again: nothing but that was changed.
                if place % 5 == 0 {
                    liar::add(key.public(), &chunks, &mut lie.stream, (chunk, slot), &-change);
                    assert!(key.open(&lie).is_ok());
                }
            }
        }
    }
}

#[test]
fn rewritten_headers_do_not_open() {
    for key in keys() {
        let sum = key.aggregate(three(&key, 9)).unwrap();
        let job = &key.job;
        let with = |ranges: f64, max_weight| Sum {
            agreement: Agreement::new(sum.agreement.specs().to_vec(), vec![ranges], max_weight)
                .unwrap(),
            ..sum.clone()
        };
        // A range that is scaled, the largest weight, and the round are all in the statement.
        for lie in [with(1000.0, 100), with(0.5, 100), with(1.0, 101), with(1.0, 9)] {
            assert_eq!(key.open(&lie).err(), not_theirs(3));
            assert_eq!(key.verify(&lie), Ok(()), "nobody without the key can tell");
        }
        for round in [0, ROUND - 1, ROUND + 1, u64::MAX] {
            assert_eq!(key.open(&Sum { round, ..sum.clone() }).err(), not_theirs(3));
        }
        // Another job of the same key: under neither.
        let other = Job::new(key.public(), job.limits().clone()).unwrap();
        let lie = Sum { job: other.id(), ..sum.clone() };
        assert!(matches!(
            key.open(&lie).err(),
            Some(Error::JobMismatch { what: "it is of job", .. })
        ));
        let under = Key { job: other, secret: key.secret };
        assert_eq!(under.open(&lie).err(), not_theirs(3));
        assert!(matches!(
            under.open(&sum).err(),
            Some(Error::JobMismatch { what: "it is of job", .. })
        ));
        let key = under;
        let open = |sum: &Sum| key.open(&Sum { job: key.job.id(), ..sum.clone() }).err();
        let mut lie = sum.clone();
        lie.contributors[1].number = 4;
        assert_eq!(open(&lie), not_theirs(3), "a number that nobody sealed as");
        let mut lie = sum.clone();
        lie.contributors[1].seed = SealPermit::draw().unwrap().seed();
        assert_eq!(open(&lie), not_theirs(3));
        let mut lie = sum.clone();
        let (first, second) = (lie.contributors[0].number, lie.contributors[1].number);
        (lie.contributors[0].number, lie.contributors[1].number) = (second, first);
        assert_eq!(open(&lie), not_theirs(3), "each as the other");
        let mut lie = sum.clone();
        lie.contributors[0].number = second;
        assert_eq!(open(&lie), Some(Error::SameNumber { number: second }));
        let mut lie = sum.clone();
        lie.contributors[0].seed = lie.contributors[1].seed;
        assert_eq!(open(&lie), Some(Error::SameContribution));
        let mut lie = sum.clone();
        lie.contributors[0].number = key.public().parameters().clients() as u16;
        assert!(matches!(open(&lie), Some(Error::Number { .. })));
    }
}

/// The list, and only the list: in any order of it.
#[test]
fn only_exactly_the_contributors_listed_open() {
    for key in keys() {
        let all = three(&key, 9);
        let of = |who: &[usize]| key.aggregate(who.iter().map(|&i| all[i].clone())).unwrap();
        let whole = of(&[0, 1, 2]);
        let order = Sum { contributors: of(&[2, 0, 1]).contributors, ..whole.clone() };
        assert!(key.open(&order).is_ok());
        // Left out but listed; there but not listed, or in no set.
        assert_eq!(
            key.open(&Sum { stream: of(&[0, 1]).stream, ..whole.clone() }).err(),
            not_theirs(3)
        );
        assert_eq!(
            key.open(&Sum { stream: whole.stream.clone(), ..of(&[0, 1]) }).err(),
            not_theirs(2)
        );
        let mut lie = whole.clone();
        let mut two = ContributorSet::none(3);
        [0, 2].into_iter().for_each(|i| two.insert(i));
        lie.sets.fill(two);
        assert_eq!(key.open(&lie).err(), not_theirs(3));
        // One instead of another of the same weight and count.
        let twin = contribute(&key, 1, &[3000; 9], 3, &whole.agreement);
        let swapped = key.aggregate([all[0].clone(), twin.clone(), all[2].clone()]).unwrap();
        assert!(key.open(&swapped).is_ok());
        assert_eq!(key.open(&Sum { stream: swapped.stream, ..whole.clone() }).err(), not_theirs(3));
    }
}

#[test]
fn a_contribution_under_other_names_is_none() {
    for key in keys() {
        let [first, second, _] = three(&key, 9);
        let mut again = first.clone();
        again.contributor.number = 2;
        again.contributor.seed = SealPermit::draw().unwrap().seed();
        // Where the seed makes no polynomial, nothing but the tag tells.
        let sum = key.aggregate([first.clone(), again, second.clone()]).unwrap();
        assert_eq!(key.open(&sum).err(), not_theirs(3), "twice");
        for (number, seed) in [(2, None), (0, Some(SealPermit::draw().unwrap().seed()))] {
            let mut other = first.clone();
            other.contributor.number = number;
            other.contributor.seed = seed.unwrap_or(first.contributor.seed);
            let sum = key.aggregate([other, second.clone()]).unwrap();
            assert_eq!(key.open(&sum).err(), not_theirs(2), "another's number, another seed");
        }
        let same = key.aggregate([first.clone(), first.clone()]).err();
        assert_eq!(same, Some(Error::SameContribution.within(1)));
        let once_more = contribute(&key, 0, &[5; 9], 1, &first.agreement);
        let same = key.aggregate([first, once_more]).err();
        assert_eq!(same, Some(Error::SameNumber { number: 0 }.within(1)));
    }
}

/// Rounds and terms that are mixed: refused by name, and where the aggregator says they are the same, not opened.
#[test]
fn other_rounds_and_terms_are_not_mixed_in() {
    for key in keys() {
        let [first, second, _] = three(&key, 9);
        let own = key.secret.as_client(3);
        let seal = |round, agreement: &Agreement| {
            let update = Quantised::from_fields(vec![7; 9], 2);
            let terms = key.job.terms(round, agreement).unwrap();
            let sealer = Sealer::new(own, engine(), update, SealPermit::draw().unwrap(), &terms);
            sealer.and_then(Sealer::into_contribution).unwrap()
        };
        let honest = seal(ROUND, &first.agreement);
        assert!(key.open(&key.aggregate([first.clone(), honest]).unwrap()).is_ok());
        let specs = first.agreement.specs().to_vec();
        // The victim was given true ranges, the others others.
        let wide = Agreement::new(specs.clone(), vec![1e30], 100).unwrap();
        let heavy = Agreement::new(specs, vec![1.0], 200).unwrap();
        for (round, agreement) in [
            (ROUND + 1, &first.agreement),
            (ROUND - 1, &first.agreement),
            (ROUND, &wide),
            (ROUND, &heavy),
        ] {
            let other = seal(round, agreement);
            let named = key.aggregate([first.clone(), second.clone(), other.clone()]).err();
            let Some(Error::In { error, .. }) = named else { panic!("{named:?}") };
            let by_name = match *error {
                Error::AnotherRound { found, expected } => (found, expected) == (round, ROUND),
                Error::Ranges { .. } => round == ROUND,
                _ => false,
            };
            assert!(by_name, "{error}");
            let agreement = first.agreement.clone();
            let lie = Contribution { round: ROUND, agreement, ..other };
            let sum = key.aggregate([first.clone(), second.clone(), lie.clone()]).unwrap();
            assert_eq!(key.open(&sum).err(), not_theirs(3));
            // Alone, too.
            assert_eq!(key.open(&key.aggregate([lie]).unwrap()).err(), not_theirs(1));
        }
    }
}

#[test]
fn chunks_are_of_their_places() {
    for key in keys() {
        let g = *key.public().parameters().geometry();
        // Chunks of whole groups, so that all are of the same length.
        let values = 2 * g.group_chunks * g.values_per_chunk();
        let all = three(&key, values);
        let sum = key.aggregate(all.clone()).unwrap();
        assert!(key.open(&sum).is_ok());
        let chunks = key.public().parameters().chunks(values);
        let group = g.group_chunks as u32;
        let swap = |lie: &mut Sum, [a, b]: [u32; 2], count: u32| {
            let [a, b] = [a, b].map(|at| chunks.offset_of(at));
            let bytes = count as usize * g.chunk_bytes();
            let kept = lie.stream[a..a + bytes].to_vec();
            lie.stream.copy_within(b..b + bytes, a);
            lie.stream[b..b + bytes].copy_from_slice(&kept);
        };
        // Two chunks of the sum, and two groups, each the other's.
        let last = chunks.count() - 1;
        let mut lie = sum.clone();
        swap(&mut lie, [last - group, last], 1);
        assert_eq!(key.open(&lie).err(), not_theirs(3));
        let mut lie = sum.clone();
        swap(&mut lie, [0, group], group);
        assert_eq!(key.open(&lie).err(), not_theirs(3));
        // The second group of one client in place of its first.
        let mut moved = all[0].clone();
        let bytes = group as usize * g.chunk_bytes();
        moved.stream.to_mut().copy_within(bytes..2 * bytes, 0);
        let sum = key.aggregate([moved, all[1].clone(), all[2].clone()]).unwrap();
        assert_eq!(key.open(&sum).err(), not_theirs(3));
    }
}

/// A job is of one key, whoever is asked.
#[test]
fn a_job_of_another_key_is_refused_by_all() {
    for key in keys() {
        let other = generate(Scheme::CkksSum, 3, 16);
        let agreement = agreement(9, 100);
        let honest = contribute(&key, 0, &[5; 9], 1, &agreement);
        let sum = key.aggregate([honest.clone()]).unwrap();
        let of_other = |error: Option<Error>| {
            matches!(error, Some(Error::JobMismatch { what: "the job is of key", .. }))
        };
        let (own, permit) = (key.secret.as_client(0), SealPermit::draw().unwrap());
        assert!(of_other(sealer(own, &other.job, (&[5; 9], 1), permit).err()));
        let summed = aggregate(key.public(), &other.job, engine(), [("a", Ok(honest))]);
        assert!(of_other(summed.err()));
        assert!(of_other(sum.verify(key.public(), &*engine(), &other.job).err()));
        let Key { secret, .. } = key;
        assert!(of_other(Key { secret, job: other.job }.open(&sum).err()));
    }
}

/// What a job says of the fewest is the opener's to raise or lower, and is checked for each chunk.
#[test]
fn sums_of_fewer_than_the_job_wants_are_not_opened() {
    for key in keys() {
        let limits = Limits { min_clients: 3, ..key.job.limits().clone() };
        let job = Job::new(key.public(), limits).unwrap();
        let key = Key { job, ..key };
        let all = three(&key, 9);
        let whole = key.aggregate(all.clone()).unwrap();
        assert!(key.open(&whole).is_ok());
        let two = key.aggregate(all[..2].to_vec()).unwrap();
        let few = Error::TooFewContributors { chunk: 0, found: 2, min_clients: 3 };
        assert_eq!(key.open(&two).err(), Some(few));
        let lax = Key { job: key.job.clone().requiring(2), secret: key.secret };
        assert!(lax.open(&two).is_ok(), "the statement is the same");
    }
}

/// Who has a client's file and sums knows `r`: it can change the sum, which `SECURITY.md` says, but neither invent a
/// member nor leave one out, since it lacks the others' pads.
#[test]
fn a_member_that_sums_changes_values_and_nothing_else() {
    let key = generate(Scheme::Paillier2048, 5, 16);
    let g = *key.public().parameters().geometry();
    let all = three(&key, 9);
    let honest = key.aggregate(all.clone()).unwrap();
    let chunks = key.public().parameters().chunks(9);
    let chunk = chunks.count() - 1;
    let terms = key.job.terms(ROUND, &honest.agreement).unwrap();
    let r = liar::coefficients(&key.client(1), &terms.statement(), 2 + g.values_per_chunk());
    let change = |lie: &mut Sum, value: usize, steps: i64, tag: &BigInt| {
        let (slot, step) = liar::place_of(key.public(), value);
        let place = (chunk, slot);
        liar::add(key.public(), &chunks, &mut lie.stream, place, &(step * steps));
        let tag_change = liar::tag_step(key.public()) * tag;
        liar::add(key.public(), &chunks, &mut lie.stream, (chunk, 0), &tag_change);
    };
    let sums = |sum: &Sum| key.open(sum).map(|opened| opened.sums().to_vec());
    let mut expected = sums(&honest).unwrap();
    let mut lie = honest.clone();
    change(&mut lie, 4, 50, &(BigInt::from(r[2 + 4]) * 50));
    expected[4] += 50;
    assert_eq!(sums(&lie), Ok(expected));
    // A tag that is off by one, of another value, of nothing.
    for tag in [BigInt::from(r[2 + 4]) * 50 - 1, BigInt::from(r[2 + 5]) * 50, 0.into()] {
        let mut lie = honest.clone();
        change(&mut lie, 4, 50, &tag);
        assert_eq!(sums(&lie).err(), not_theirs(3));
    }
    // The update of client 0 as that of client 3, and the sum of two as that of three: its pads are not known.
    let mut twice = all[0].clone();
    twice.contributor.number = 3;
    twice.contributor.seed = SealPermit::draw().unwrap().seed();
    let twice = key.aggregate(all.iter().cloned().chain([twice])).unwrap();
    let product = |weight: u64, value: u64| {
        let values: BigInt = r[2..11].iter().map(|&r| BigInt::from(r) * value).sum();
        values + r[0] + BigInt::from(r[1]) * weight
    };
    for tag in [BigInt::ZERO, product(2, 2000), -product(2, 2000)] {
        let mut lie = twice.clone();
        change(&mut lie, 0, 0, &tag);
        assert_eq!(sums(&lie).err(), not_theirs(4));
    }
    // What it seals as itself is its own; as another's it is nobody's.
    let own = contribute_with(&key.client(1), &key.job, &[9; 9], 1, &honest.agreement);
    assert!(key.open(&key.aggregate([own.clone()]).unwrap()).is_ok());
    let mut others = own;
    others.contributor.number = 2;
    assert_eq!(key.open(&key.aggregate([others]).unwrap()).err(), not_theirs(1));
}

/// The check stands on its own bytes: sums that an accumulator adds with deadlines open over their sets.
#[test]
fn chunks_of_other_sets_open_and_lies_about_one_do_not() {
    for key in keys() {
        let g = *key.public().parameters().geometry();
        let values = 3 * g.values_per_chunk();
        let all = three(&key, values);
        let mut accumulator = Accumulator::new(key.public(), engine(), values);
        let chunks = *accumulator.chunks();
        let sets: Vec<_> = [[0, 1].as_slice(), &[1, 2], &[0, 1, 2]]
            .iter()
            .zip(0..)
            .map(|(who, chunk)| {
                let mut set = ContributorSet::none(3);
                for &i in *who {
                    let own = chunks.range_of(&(chunk..chunk + 1));
                    accumulator.add(chunk..chunk + 1, &all[i].stream[own]).unwrap();
                    set.insert(i);
                }
                set
            })
            .collect();
        let stream = accumulator.into_stream(&counts(&sets)).unwrap();
        let sum = key.sum(&all, sets, stream);
        assert_eq!(key.open(&sum).unwrap().parts(), [(2, 5), (2, 7), (3, 9)]);
        // Of as many, with the same count, but others.
        let mut lie = sum.clone();
        lie.sets.swap(0, 1);
        assert_eq!(key.open(&lie).err(), not_theirs(3));
    }
}
