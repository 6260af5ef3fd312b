//! Sums that openers open together, all the way, and what must not pass.

use std::sync::Arc;

use ciphergram_he::{
    Destination, Error, Job, Ledger, Limits, Member, SecretKey, Sum,
    codec::Output,
    params::{Literal, Scheme},
    threshold::{Identity, MemberKey, OpenAnswer, OpenRequest, SumSecret},
};

use crate::support::{
    frames::vouch,
    openers::{World, expected, fields},
    sums::{ROUND, engine},
};

mod prekey;

#[test]
fn three_of_four_open_what_three_clients_sealed() {
    let mut world = World::new(4, 3, 3);
    let values = 5000;
    let files: Vec<_> = [0, 1, 3]
        .map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, values)))
        .into();
    let (sum, requests) = world.sum(&files);
    assert_eq!(requests.len(), 4);
    let answers: Vec<_> = [3, 1, 2].map(|i| world.answer(i, &requests[i]).unwrap()).into();
    assert_eq!(world.open(2, &sum, &answers).unwrap(), expected(&[0, 1, 3], values));
    let error = world.open(2, &sum, &answers[..2]).unwrap_err();
    assert_eq!(error, Error::TooFewAnswers { found: 2, needed: 3 });
}

#[test]
fn contributions_go_on_under_the_prekeys_that_answers_tell() {
    let mut world = World::new(3, 3, 3);
    let mut members: Vec<_> = (0..3).map(|c| world.member(c)).collect();
    for round in 0..3 {
        let files: Vec<_> =
            (0..3).map(|c| world.contribute(&members[c], round, &fields(c as u32, 9))).collect();
        let (sum, requests) = world.sum(&files);
        let answers: Vec<_> = (0..3).map(|i| world.answer(i, &requests[i]).unwrap()).collect();
        let ledger = Ledger::in_memory();
        let member = Member::new((&members[0]).into(), &world.job, &ledger, engine());
        let mut mean = vec![0; 36];
        let to = Destination::Memory(&mut [&mut mean]);
        member.open_sum(&sum, &answers, Output::Mean, to).unwrap();
        assert_eq!(world.open(1, &sum, &answers).unwrap(), expected(&[0, 1, 2], 9));
        for member in &mut members {
            let told = ledger.prekeys(&world.job).unwrap();
            *member = member.clone().with_told(told.iter().map(|(opener, told)| (*opener, told)));
        }
    }
    // A contribution under a prekey that was answered for.
    let stale = world.member(1);
    let files = [
        world.contribute(&members[0], 7, &fields(0, 9)),
        world.contribute(&stale, 7, &fields(1, 9)),
        world.contribute(&members[2], 7, &fields(2, 9)),
    ];
    let (_, requests) = world.sum(&files);
    let error = world.answer(0, &requests[0]).unwrap_err();
    assert_eq!(error, Error::Contributor { number: 1, why: "its box is for another prekey" });
}

#[test]
fn openers_that_share_a_ledger_answer_each() {
    let mut world = World::new(3, 3, 2);
    world.ledgers = vec![world.ledgers[0].clone(); 3];
    let files: Vec<_> =
        (0..3).map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 9))).collect();
    let (sum, requests) = world.sum(&files);
    let answers = [0, 1, 2].map(|i| world.answer(i, &requests[i]).unwrap());
    assert_eq!(world.open(2, &sum, &answers).unwrap(), expected(&[0, 1, 2], 9));
    let (_, fewer) = world.sum(&files[1..]);
    for (opener, request) in fewer.iter().enumerate() {
        let error = world.answer(opener, request).unwrap_err();
        assert_eq!(error, Error::Answered { round: ROUND, last: ROUND });
    }
}

#[test]
fn an_opener_answers_for_no_round_twice() {
    let mut world = World::new(4, 3, 3);
    let files: Vec<_> =
        (0..4).map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 9))).collect();
    let (_, all) = world.sum(&files);
    let (_, without) = world.sum(&files[1..]);
    let answer = world.answer(0, &all[0]).unwrap();
    // One that got lost is given again; one member apart it is not.
    assert_eq!(world.answer(0, &all[0]).unwrap(), answer);
    let error = world.answer(0, &without[0]).unwrap_err();
    assert_eq!(error, Error::Answered { round: ROUND, last: ROUND });
    // Its key is erased, so that it answers no more even without its ledger.
    world.ledgers[0] = Ledger::in_memory();
    let error = world.answer(0, &without[0]).unwrap_err();
    assert_eq!(error, Error::Contributor { number: 1, why: "its box is for another prekey" });
    world.openers[1] = world.restored(1);
    world.answer(1, &all[1]).unwrap();
    // Restored from a backup with its prekeys, but with its ledger as it is.
    world.openers[1] = world.restored(1);
    let error = world.answer(1, &without[1]).unwrap_err();
    assert_eq!(error, Error::Answered { round: ROUND, last: ROUND });
    let earlier: Vec<_> =
        (0..4).map(|c| world.contribute(&world.member(c), 2, &fields(c as u32, 9))).collect();
    let (_, requests) = world.sum(&earlier);
    world.openers[1] = world.restored(1);
    let error = world.answer(1, &requests[1]).unwrap_err();
    assert_eq!(error, Error::Answered { round: 2, last: ROUND });
    // Other terms of the same round are the same round.
    let other: Vec<_> =
        (0..4).map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 10))).collect();
    let (_, requests) = world.sum(&other);
    world.openers[1] = world.restored(1);
    let error = world.answer(1, &requests[1]).unwrap_err();
    assert_eq!(error, Error::Answered { round: ROUND, last: ROUND });
}

/// An aggregator shows two sets, one member apart, to different openers: neither has as many answers as open a sum.
#[test]
fn two_sets_never_both_open() {
    let mut world = World::new(4, 3, 3);
    let files: Vec<_> =
        (0..4).map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 9))).collect();
    let (sum, all) = world.sum(&files);
    let (fewer, without) = world.sum(&files[1..]);
    let of_all = [0, 1].map(|i| world.answer(i, &all[i]).unwrap());
    let of_fewer = [2, 3].map(|i| world.answer(i, &without[i]).unwrap());
    let few = Error::TooFewAnswers { found: 2, needed: 3 };
    assert_eq!(world.open(0, &sum, &of_all).err(), Some(few.clone()));
    assert_eq!(world.open(0, &fewer, &of_fewer).err(), Some(few));
    let mixed = [of_all[0].clone(), of_all[1].clone(), of_fewer[0].clone()];
    let why = "its answer is not signed by it, or is of another sum".into();
    assert_eq!(world.open(0, &sum, &mixed).err(), Some(Error::Opener { opener: 2, why }));
}

/// The aggregator has all secrets of two of five openers, who answer whatever they are asked, and of all clients but
/// two. Honest openers answer about one set each: whichever it is, one sum opens, of no fewer than the job's minimum,
/// in which both others are.
#[test]
fn faulty_openers_and_all_clients_but_two_open_no_less() {
    let (clients, open, faulty) = (5, 4, 2);
    // Which honest openers are shown the set without a client of the aggregator's.
    for shown in 0..1u8 << (clients - faulty) {
        let mut world = World::new(clients, open, 4);
        let files: Vec<_> = (0..clients)
            .map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 9)))
            .collect();
        let sets: [Vec<usize>; 2] = [(0..clients).collect(), (0..clients - 1).collect()];
        let sums = sets.each_ref().map(|set| {
            let given: Vec<_> = set.iter().map(|&client| files[client].clone()).collect();
            world.sum(&given)
        });
        let mut answers = [vec![], vec![]];
        for opener in 0..clients - faulty {
            let which = usize::from(shown >> opener & 1);
            answers[which].push(world.answer(opener, &sums[which].1[opener]).unwrap());
            let other = world.answer(opener, &sums[1 - which].1[opener]);
            assert_eq!(other.err(), Some(Error::Answered { round: ROUND, last: ROUND }));
        }
        for opener in clients - faulty..clients {
            for (which, (_, requests)) in sums.iter().enumerate() {
                let (corrupt, forgets) = (world.restored(opener), Ledger::in_memory());
                answers[which].push(corrupt.answer(&forgets, &requests[opener]).unwrap());
            }
        }
        let mut opened = 0;
        for (which, (sum, _)) in sums.iter().enumerate() {
            // With any answers about the other set as well, by the key of one of its clients.
            let all = [&answers[which][..], &answers[1 - which][..]].concat();
            match world.open(clients - 1, sum, &all) {
                Ok(found) => {
                    let set: Vec<_> = sets[which].iter().map(|&client| client as u32).collect();
                    assert_eq!(found, expected(&set, 9));
                    opened += 1;
                }
                Err(error) => assert!(matches!(error, Error::Opener { .. }), "{error}"),
            }
        }
        assert_eq!(opened, 1, "shown {shown:03b}");
    }
    // Alone, or with one client more, both others' contributions are no sum that any opener answers about.
    let mut world = World::new(clients, open, 4);
    let files: Vec<_> =
        (0..3).map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 9))).collect();
    for set in [&files[..2], &files[..]] {
        let (_, requests) = world.sum(set);
        let few = Error::TooFewContributors { chunk: 0, found: set.len(), min_clients: 4 };
        (0..clients)
            .for_each(|i| assert_eq!(world.answer(i, &requests[i]).err(), Some(few.clone())));
    }
}

#[test]
fn requests_that_are_not_the_clients_own_are_refused_by_name() {
    let mut world = World::new(4, 3, 3);
    let other = World::new(4, 3, 3);
    let files: Vec<_> =
        (0..4).map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 9))).collect();
    let (_, all) = world.sum(&files);
    let refused = |world: &mut World, request: &OpenRequest| {
        let bytes = request.to_bytes(&world.public);
        let request = OpenRequest::from_bytes(&bytes, &world.public).unwrap();
        world.openers[0].answer(&world.ledgers[0], &request).unwrap_err().to_string()
    };
    // To another opener, of another job, of fewer than the job demands, of another round.
    assert!(refused(&mut world, &all[1]).starts_with("it is a request to opener 1, not 0"));
    let (_, strange) = other.sum(&[
        other.contribute(&other.member(0), ROUND, &fields(0, 9)),
        other.contribute(&other.member(1), ROUND, &fields(1, 9)),
        other.contribute(&other.member(2), ROUND, &fields(2, 9)),
    ]);
    assert!(refused(&mut world, &strange[0]).starts_with("it is of job"));
    let (_, few) = world.sum(&files[..2]);
    let words = "chunk 0 is a sum of 2; fewer than 3 are not decrypted";
    assert_eq!(refused(&mut world, &few[0]), words);
    let signed = "did not sign this contribution to this round";
    let mut round = all[0].clone();
    round.round += 1;
    assert!(refused(&mut world, &round).ends_with(signed));
    // Its box in the place of another's: it is bound to its opener.
    let mut moved = all[1].clone();
    moved.opener = 0;
    let words = "client 0: its box is not among those that it signed";
    assert_eq!(refused(&mut world, &moved), words);
    // Every bit of a request is signed, but for the frame around it.
    let bytes = all[0].to_bytes(&world.public);
    let (mut parsed, mut accepted) = (0, 0);
    for at in (200..bytes.len() - 32).step_by(61) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        vouch(&mut changed);
        let Ok(request) = OpenRequest::from_bytes(&changed, &world.public) else { continue };
        parsed += 1;
        let answered = world.openers[0].answer(&world.ledgers[0], &request);
        accepted += usize::from(answered.is_ok());
    }
    assert!(parsed > 50 && accepted == 0, "{parsed} {accepted}");
    world.answer(0, &all[0]).unwrap();
}

/// Entries of a request are as long as each other, and in the end before the digest: its own box is the last of each.
#[test]
fn entries_that_are_moved_are_refused_by_name() {
    let mut world = World::new(4, 3, 3);
    let files: Vec<_> =
        (0..4).map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 9))).collect();
    let [four, three] = [4, 3].map(|count| world.sum(&files[..count]).1[0].to_bytes(&world.public));
    let each = four.len() - three.len();
    let entry = |number: usize| four.len() - 32 - (4 - number) * each;
    let mut refused = |change: &dyn Fn(&mut [u8])| {
        let mut changed = four.clone();
        change(&mut changed);
        vouch(&mut changed);
        let request = OpenRequest::from_bytes(&changed, &world.public).unwrap();
        world.answer(0, &request).unwrap_err()
    };
    assert_eq!(
        refused(&|bytes| bytes.copy_within(entry(1)..entry(2), entry(0))),
        Error::SameContribution,
        "one client twice"
    );
    let of = |number, why| Error::Contributor { number, why };
    assert_eq!(
        refused(&|bytes| {
            let number = [bytes[entry(3)], bytes[entry(3) + 1]];
            bytes.copy_within(entry(2)..entry(3), entry(3));
            bytes[entry(3)..][..2].copy_from_slice(&number);
            bytes[entry(3) + 2] ^= 1;
        }),
        of(3, "it did not sign this contribution to this round"),
        "another's contribution"
    );
    // A key that is encapsulated, a seed that is sealed by it, their lengths and the number of the prekey.
    let box_bytes = 8 + 1120 + 4 + 32 + 16;
    assert_eq!(
        refused(&|bytes| bytes.copy_within(entry(2) - box_bytes..entry(2), entry(3) - box_bytes)),
        of(2, "its box is not among those that it signed"),
        "another's box"
    );
}

#[test]
fn false_answers_are_named_or_left_out() {
    let mut world = World::new(5, 4, 3);
    let files: Vec<_> =
        (0..4).map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 700))).collect();
    let (sum, requests) = world.sum(&files);
    let answers: Vec<_> = (0..5).map(|i| world.answer(i, &requests[i]).unwrap()).collect();
    let expected = expected(&[0, 1, 2, 3], 700);
    assert_eq!(world.open(4, &sum, &answers).unwrap(), expected);
    // One that a bit was changed of, one that is there twice.
    let (bytes, mut parsed) = (answers[1].to_bytes(&world.public), 0);
    for at in (160..bytes.len() - 32).step_by(97) {
        let mut changed = bytes.clone();
        changed[at] ^= 4;
        vouch(&mut changed);
        let Ok(false_one) = OpenAnswer::from_bytes(&changed, &world.public) else { continue };
        parsed += 1;
        let set = [&answers[0], &false_one, &answers[2], &answers[3]].map(Clone::clone);
        assert!(world.open(4, &sum, &set).is_err(), "byte {at}");
        // The others open it without that one, and though one is there twice.
        let [false_one, first] = [false_one, answers[0].clone()];
        let mut others = answers.clone();
        others[1] = false_one;
        others.push(first);
        assert_eq!(world.open(4, &sum, &others).unwrap(), expected, "byte {at}");
    }
    assert!(parsed > 20, "{parsed}");
    let twice = [&answers[0], &answers[0], &answers[2], &answers[3]].map(Clone::clone);
    let error = Error::Opener { opener: 0, why: "it is there twice".into() };
    assert_eq!(world.open(4, &sum, &twice).err(), Some(error));
    // A stranger to the job recovers nothing, and is no client.
    let stranger = Arc::new(Identity::generate().unwrap());
    let error = MemberKey::new(&world.public, stranger, &world.job).err();
    assert_eq!(error, Some(Error::NoMember { role: "client" }));
}

/// A sum that the aggregator changed, under answers that are right.
#[test]
fn a_changed_sum_does_not_open() {
    let mut world = World::new(4, 3, 3);
    let files: Vec<_> =
        (0..3).map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 700))).collect();
    let (sum, requests) = world.sum(&files);
    let answers = [0, 1, 3].map(|i| world.answer(i, &requests[i]).unwrap());
    let not_theirs = Error::NotTheirs { contributors: 3 };
    let mut changed = sum.clone();
    changed.stream[64] ^= 1;
    assert_eq!(world.open(0, &changed, &answers).err(), Some(not_theirs.clone()));
    // The contribution of one client alone as the sum of three.
    let (other, _) = world.sum(&files[..1]);
    let other = Sum { contributors: sum.contributors.clone(), sets: sum.sets.clone(), ..other };
    assert_eq!(world.open(0, &other, &answers).err(), Some(not_theirs));
    assert_eq!(world.open(0, &sum, &answers).unwrap(), expected(&[0, 1, 2], 700));
    // It is no failure that ends a round: other answers, or another sum, may be right.
    let (ledger, member) = (Ledger::in_memory(), world.member(0));
    let member = Member::new((&member).into(), &world.job, &ledger, engine());
    let open = |sum: &Sum| {
        let mut mean = vec![0; 4 * 700];
        member.open_sum(sum, &answers, Output::Mean, Destination::Memory(&mut [&mut mean]))
    };
    for _ in 0..6 {
        assert_eq!(open(&changed), Err(Error::FalseAnswers { found: 3 }));
    }
    assert_eq!(open(&sum), Ok(()));
}

/// An old copy of the prekeys opens what was sealed before the next answer, and nothing later.
#[test]
fn an_old_copy_of_prekeys_leads_to_no_later_one() {
    let mut world = World::new(3, 3, 3);
    let mut members: Vec<_> = (0..3).map(|c| world.member(c)).collect();
    let mut recorded = vec![];
    for round in 0..2 {
        let files: Vec<_> =
            (0..3).map(|c| world.contribute(&members[c], round, &fields(c as u32, 9))).collect();
        let (_, requests) = world.sum(&files);
        let answers: Vec<_> = (0..3).map(|i| world.answer(i, &requests[i]).unwrap()).collect();
        let told: Vec<_> = (0..).zip(answers.iter().map(OpenAnswer::prekey)).collect();
        for member in &mut members {
            *member = member.clone().with_told(told.iter().copied());
        }
        recorded.push(requests[0].clone());
    }
    let thief = world.restored(0);
    assert!(thief.answer(&Ledger::in_memory(), &recorded[0]).is_ok());
    let why = "its box is of another opener, contribution or round";
    let error = thief.answer(&Ledger::in_memory(), &recorded[1]).unwrap_err();
    assert_eq!(error, Error::Contributor { number: 0, why });
}

/// Keys that are taken after an answer open no box of what was recorded before.
#[test]
fn a_recording_stays_closed_after_every_key_is_stolen() {
    let mut world = World::new(4, 3, 3);
    let files: Vec<_> =
        (0..4).map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 9))).collect();
    let (sum, requests) = world.sum(&files);
    let (_, without) = world.sum(&files[1..]);
    let answers: Vec<_> = (0..4).map(|i| world.answer(i, &requests[i]).unwrap()).collect();
    assert!(world.open(0, &sum, &answers).is_ok());
    for (opener, request) in world.openers.iter_mut().zip(&without) {
        let error = opener.answer(&Ledger::in_memory(), request);
        let why = "its box is for another prekey";
        assert_eq!(error.err(), Some(Error::Contributor { number: 1, why }));
    }
}

#[test]
fn sums_of_another_job_are_not_recovered() {
    let (mut world, other) = (World::new(4, 3, 3), World::new(4, 3, 3));
    let files: Vec<_> =
        (0..3).map(|c| world.contribute(&world.member(c), ROUND, &fields(c as u32, 9))).collect();
    let (sum, requests) = world.sum(&files);
    let answers = [0, 1, 2].map(|i| world.answer(i, &requests[i]).unwrap());
    let secret = SumSecret::recover(&other.member(0), &other.job, &sum, &answers);
    assert!(matches!(secret.err(), Some(Error::JobMismatch { .. })));
    let error = MemberKey::new(&world.public, world.identities[0].clone(), &other.job).err();
    assert_eq!(error, Some(Error::NoMember { role: "client" }));
}

#[test]
fn jobs_and_keys_must_fit() {
    let world = World::new(4, 3, 3);
    let limits = world.job.limits().clone();
    let why = |limits: Limits| Job::new(&world.public, limits).unwrap_err().to_string();
    let none = Limits { openers: None, ..limits.clone() };
    assert_eq!(why(none), "no such job: nobody opens its sums: it has no openers");
    let more = Limits { clients: 3, ..limits.clone() };
    assert_eq!(why(more), "no such job: 4 members of 3 clients");
    let key =
        SecretKey::generate(Literal { scheme: Scheme::CkksSum, clients: 4, bits: 16 }).unwrap();
    let error = Job::new(key.public(), limits).unwrap_err().to_string();
    assert_eq!(error, "no such job: openers under a key that opens sums");
    let literal = Literal { scheme: Scheme::CkksSumThreshold, clients: 4, bits: 16 };
    assert!(matches!(SecretKey::generate(literal).err(), Some(Error::KeyKind { .. })));
}
