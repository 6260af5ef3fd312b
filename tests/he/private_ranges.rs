//! Ranges that clients agree on without showing theirs: proposals, and, with the feature `tfhe`, ranks among them.

use std::collections::BTreeSet;

use ciphergram_accel::random::StreamRng;
use ciphergram_he::{
    AgreedRanges, Contributor, Dtype, Error, Job, KeyRef, Limits, RangesProposal, Scheme,
    SealPermit, SecretKey, Tensor, TensorSpec, Update,
    codec::Policy,
    exchange::{Announcement, RoundTerms},
    frame::{Frame, Kind},
    job::PrivateRanges,
    params::Literal,
    private_ranges::{EncryptedRanges, RangesEvaluationKey, RangesSecret, Rank},
};
use rand_core::Rng as _;

use crate::support::frames::vouch;

const LEVELS: u8 = 8;

fn key(clients: u32) -> SecretKey {
    let literal = Literal { scheme: Scheme::CkksSum, clients, bits: 16 };
    SecretKey::generate(literal).unwrap().with_ranges_secret(RangesSecret::draw().unwrap())
}

fn private(key: &SecretKey, rank: Rank, clip_norm: Option<Rank>) -> PrivateRanges {
    let secret = key.ranges_secret().unwrap().id();
    PrivateRanges { rank, levels: LEVELS, agree_every: 1, clip_norm, key: secret }
}

fn job(key: &SecretKey, rank: Rank) -> Job {
    let limits = Limits {
        private_ranges: Some(private(key, rank, None)),
        max_range: 10.0,
        ..Limits::of_key(key.public())
    };
    Job::new(key.public(), limits).unwrap()
}

fn update(ranges: &[f64]) -> Update {
    let tensor = |(i, &range): (usize, &f64)| {
        let spec = TensorSpec { name: format!("t{i}"), dtype: Dtype::F64, shape: vec![3] };
        Tensor::from_values(spec, &[range, -range / 2.0, 0.0]).unwrap()
    };
    Update::new(ranges.iter().enumerate().map(tensor).collect())
}

fn propose(key: KeyRef<'_>, job: &Job, ranges: &[f64]) -> RangesProposal {
    RangesProposal::new(key, job, &update(ranges), Policy::Max).unwrap()
}

#[test]
fn a_proposal_is_short_and_a_different_one_each_time() {
    let key = key(8);
    let job = job(&key, Rank::Largest(2));
    let ranges = vec![1.0; 50];
    let proposals = [(); 2].map(|()| propose(key.as_client(3), &job, &ranges));
    let bytes = proposals.each_ref().map(|p| p.to_bytes(key.public()));
    assert_ne!(bytes[0], bytes[1]);
    assert!(bytes[0].len() < 6_000, "{} bytes", bytes[0].len());
    assert_eq!(RangesProposal::from_bytes(&bytes[0], key.public()).unwrap(), proposals[0]);
    assert_eq!(Frame::parse(&bytes[0]).unwrap().kind, Kind::RangesProposal);
}

#[cfg(feature = "tfhe")]
#[test]
fn the_secret_is_in_the_files_of_those_who_propose() {
    let literal = Literal { scheme: Scheme::Paillier2048, clients: 2, bits: 16 };
    let secret = RangesSecret::draw().unwrap();
    let id = secret.id();
    let key = SecretKey::generate(literal).unwrap().with_ranges_secret(secret);
    let folder = tempfile::tempdir().unwrap();
    let job = job(&key, Rank::Median);
    ciphergram_he::keys::write_folder(&key, &job, folder.path()).unwrap();
    let read = |name: &str| ciphergram_he::AnyKey::load(&folder.path().join(name)).unwrap();
    for (name, holds) in [("secret.json", true), ("clients/1.json", true)] {
        let key = read(name);
        let client = key.as_client(Some(1)).unwrap();
        assert_eq!(client.ranges_secret().map(RangesSecret::id), holds.then_some(id), "{name}");
    }
    assert!(
        !std::fs::read_to_string(folder.path().join("public.json")).unwrap().contains("ranges")
    );
    let again = Job::load(&folder.path().join("job.json"), key.public()).unwrap();
    assert_eq!((again.id(), again.limits()), (job.id(), job.limits()));
}

#[test]
fn jobs_that_make_no_sense_are_refused() {
    let key = key(8);
    let private = |rank, levels| PrivateRanges { levels, ..private(&key, rank, None) };
    let norm = |rank| PrivateRanges { clip_norm: Some(rank), ..private(Rank::Median, 8) };
    let new = |limits: Limits| Job::new(key.public(), limits).map(|_| ());
    let limits = Limits::of_key(key.public()).of_clients(8, Some(3));
    let with = |private| Limits { private_ranges: Some(private), ..limits.clone() };
    for bad in [
        private(Rank::Largest(9), 8),
        private(Rank::Largest(0), 8),
        private(Rank::Largest(4), 8),
        private(Rank::Median, 0),
        private(Rank::Median, 33),
        PrivateRanges { agree_every: 0, ..private(Rank::Median, 8) },
        norm(Rank::Largest(9)),
        norm(Rank::Largest(4)),
    ] {
        assert!(matches!(new(with(bad)), Err(Error::Limits { .. })), "{bad:?}");
    }
    let four = with(private(Rank::Largest(4), 32)).of_clients(8, Some(4));
    assert_eq!(new(four), Ok(()));
    let noise = Some(ciphergram_he::job::NoiseLimits { sigma: 1.0, clip: 1.0, budget: None });
    let noisy = Limits { noise, max_weight: 1, ..with(private(Rank::Median, 8)) };
    assert!(matches!(new(noisy), Err(Error::Limits { .. })));
}

#[test]
fn proposals_that_do_not_fit_are_refused() {
    let (key, other) = (key(8), key(8));
    let job = job(&key, Rank::Largest(2));
    let settled = Limits::of_key(key.public());
    let open = Job::new(key.public(), settled).unwrap();
    let new = |key: KeyRef<'_>, job: &Job| {
        RangesProposal::new(key, job, &update(&[1.0]), Policy::Max).map(|_| ())
    };
    assert_eq!(new(key.as_client(1), &open), Err(Error::RangesNotPrivate));
    assert!(matches!(
        new(other.as_client(1), &job),
        Err(Error::JobMismatch { what: "the job is of key", .. })
    ));
    assert!(matches!(new(key.as_client(8), &job), Err(Error::Number { number: 8, .. })));
    let proposal = propose(key.as_client(1), &job, &[1.0]);
    assert!(matches!(
        proposal.check(&self::job(&key, Rank::Median)),
        Err(Error::JobMismatch { what: "it is of job", .. })
    ));
    let bytes = proposal.to_bytes(key.public());
    assert!(matches!(
        RangesProposal::from_bytes(&bytes, other.public()),
        Err(Error::KeyMismatch { .. })
    ));
    for length in [0, 40, 60, 100, bytes.len() - 1] {
        assert!(RangesProposal::from_bytes(&bytes[..length], key.public()).is_err(), "{length}");
    }
}

/// Whoever writes a frame may lie about whatever it likes.
#[test]
fn frames_that_lie_are_refused_or_read_but_never_panic() {
    let key = key(8);
    let job = job(&key, Rank::Largest(2));
    let proposal = propose(key.as_client(1), &job, &[1.0, 2.0]).to_bytes(key.public());
    let seed = SealPermit::draw().unwrap().seed();
    let secret = key.ranges_secret();
    let announcement =
        Announcement::propose(seed, &job, (0, None), &update(&[1.0, 2.0]), 1, secret);
    let announcement = announcement.unwrap().to_bytes(key.public());
    let mut rng = StreamRng::from_seed(&[9; 32]);
    let mut read = [0; 2];
    for frame in [&proposal, &announcement] {
        for _ in 0..2000 {
            let mut frame = frame.clone();
            let at = 48 + rng.next_u32() as usize % (frame.len() - 80);
            match rng.next_u32() % 3 {
                0 => frame[at] ^= 1 << (rng.next_u32() % 8),
                1 => frame.truncate(at + 32),
                _ => frame.splice(at..at, [0; 8]).for_each(drop),
            }
            vouch(&mut frame);
            let read_proposal = RangesProposal::from_bytes(&frame, key.public());
            read[0] +=
                usize::from(read_proposal.is_ok_and(|proposal| proposal.check(&job).is_ok()));
            let announced = Announcement::from_bytes(&frame, key.public());
            read[1] +=
                usize::from(announced.is_ok_and(|announced| announced.check(1, &job).is_ok()));
            let _ = AgreedRanges::from_bytes(&frame, key.public());
            let _ = RoundTerms::from_bytes(&frame, key.public());
        }
    }
    // A changed bit of a body is still a body.
    assert!(read.iter().all(|&read| (100..1400).contains(&read)), "{read:?}");
    // No levels, and no bodies of any.
    let mut without = proposal;
    let end = without.len() - 32;
    let levels = end - 8 * 2 * usize::from(LEVELS) - 1;
    assert_eq!(without[levels], LEVELS);
    without[levels] = 0;
    without.drain(levels + 1..end);
    vouch(&mut without);
    assert!(RangesProposal::from_bytes(&without, key.public()).is_err());
}

/// An aggregator that makes up what a client opens. It once read the secret of ranges from 2,106 answers, by whether
/// the client then said that it clipped many values: what a client says is now the same whatever it opened.
#[test]
fn forged_answers_change_nothing_that_a_client_says() {
    let key = key(8);
    let (job, secret) = (job(&key, Rank::Largest(2)), key.ranges_secret());
    let seed = SealPermit::draw().unwrap().seed();
    let own = Announcement::propose(seed, &job, (0, None), &update(&[0.5]), 1, secret).unwrap();
    let terms = RoundTerms {
        round: 0,
        agreement: own.agreement.clone(),
        participants: vec![Contributor { number: 0, seed }],
        private_ranges: None,
        prekeys: vec![],
    };
    let mut rng = StreamRng::from_seed(&[11; 32]);
    let (mut opened, mut said) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..2106 {
        let mut frame = terms.to_bytes(key.public());
        let end = frame.len() - 32;
        let rows = (0..EncryptedRanges::BYTES).map(|_| rng.next_u32() as u8);
        frame.splice(end..end, 1u32.to_le_bytes().into_iter().chain(rows)).for_each(drop);
        vouch(&mut frame);
        let forged = RoundTerms::from_bytes(&frame, key.public()).unwrap();
        let found = forged.opened(&job, secret, None).unwrap();
        found.check(key.as_client(0), &own, &job).unwrap();
        opened.insert(found.agreement.ranges()[0].to_bits());
        let mut sealed = own.clone();
        sealed.seal_under(&found, &job, secret).unwrap();
        let mut shown = sealed.without_private_ranges(&job).unwrap();
        // It is encrypted, anew each time, and of one length.
        let proposal = shown.proposal.take().unwrap();
        assert_eq!(proposal.rows(), own.proposal.as_ref().unwrap().rows());
        said.insert(shown.to_bytes(key.public()));
    }
    assert!(opened.len() > 5, "answers differ: {}", opened.len());
    assert_eq!(said.len(), 1);
}

#[cfg(not(feature = "tfhe"))]
#[test]
fn without_tfhe_there_is_no_evaluation_key() {
    let key = key(2);
    let made = RangesEvaluationKey::generate(key.ranges_secret().unwrap(), key.public());
    assert_eq!(made, Err(Error::WithoutTfhe));
    let read = RangesEvaluationKey::from_bytes(&[], key.public());
    assert!(matches!(read, Err(Error::WithoutTfhe)));
    let _ = AgreedRanges::find;
}

#[cfg(feature = "tfhe")]
mod with_tfhe {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Bytes before the body of a frame.
    const HEADER_BYTES: usize = 48;

    /// Returns a frame that was altered, with a digest that vouches for it.
    fn altered(frame: &[u8], alter: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut frame = frame.to_vec();
        alter(&mut frame);
        vouch(&mut frame);
        frame
    }

    fn evaluation(key: &SecretKey) -> RangesEvaluationKey {
        let bytes =
            RangesEvaluationKey::generate(key.ranges_secret().unwrap(), key.public()).unwrap();
        assert!(bytes.len() < 31_000_000, "{} bytes", bytes.len());
        RangesEvaluationKey::from_bytes(&bytes, key.public()).unwrap()
    }

    /// Returns the ranges that clients of these ranges agree on.
    fn agree(
        key: &SecretKey,
        evaluation: &RangesEvaluationKey,
        rank: Rank,
        ranges: &[Vec<f64>],
    ) -> Vec<f64> {
        let job = job(key, rank);
        let proposals: Vec<_> = (0u16..)
            .zip(ranges)
            .map(|(number, ranges)| propose(key.as_client(number), &job, ranges))
            .collect();
        let done = AtomicUsize::new(0);
        let progress = |count: u32| {
            done.fetch_add(count as usize, Ordering::Relaxed);
        };
        let agreed = AgreedRanges::find(evaluation, &job, &proposals, &progress).unwrap();
        assert_eq!(done.into_inner(), ranges[0].len() * usize::from(LEVELS));
        let bytes = agreed.to_bytes(key.public());
        let agreed = AgreedRanges::from_bytes(&bytes, key.public()).unwrap();
        let agreement = agreed.open(key.ranges_secret(), &job).unwrap();
        assert_eq!(agreement.max_weight(), job.limits().max_weight);
        agreement.ranges().to_vec()
    }

    /// Returns the same in clear.
    fn expected(rank: Rank, ranges: &[Vec<f64>]) -> Vec<f64> {
        // The largest range is 10; its levels are 10, 8, 4, … 0.125, and 0.0625 below all of them.
        let level = |range: f64| {
            let levels = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
            levels.into_iter().find(|&level| range <= level).unwrap_or(10.0)
        };
        let tensor = |tensor: usize| {
            let mut all: Vec<_> = ranges.iter().map(|ranges| level(ranges[tensor])).collect();
            all.sort_by(|a, b| b.total_cmp(a));
            all[rank.among(ranges.len()) - 1]
        };
        (0..ranges[0].len()).map(tensor).collect()
    }

    fn draw(rng: &mut StreamRng, clients: usize, tensors: usize) -> Vec<Vec<f64>> {
        let range = |rng: &mut StreamRng| 2f64.powf((rng.next_u32() % 800) as f64 / 100.0 - 4.5);
        (0..clients).map(|_| (0..tensors).map(|_| range(rng)).collect()).collect()
    }

    #[test]
    fn the_rank_is_found_for_each_tensor_whatever_one_client_claims() {
        let key = key(8);
        let evaluation = evaluation(&key);
        let mut ranges = draw(&mut StreamRng::from_seed(&[1; 32]), 8, 3);
        ranges.iter_mut().for_each(|ranges| ranges.push(0.0));
        let usual = agree(&key, &evaluation, Rank::Largest(2), &ranges);
        assert_eq!(usual, expected(Rank::Largest(2), &ranges));
        // One that had the largest range of nothing, and then of all.
        let smallest = vec![0.0; 4];
        let largest = vec![1e30; 4];
        ranges[5] = smallest;
        let honest = agree(&key, &evaluation, Rank::Largest(1), &ranges);
        assert_eq!(honest, expected(Rank::Largest(1), &ranges));
        ranges[5] = largest;
        assert_eq!(agree(&key, &evaluation, Rank::Largest(2), &ranges), honest);
        assert_eq!(agree(&key, &evaluation, Rank::Largest(1), &ranges), [10.0; 4]);
        let median = agree(&key, &evaluation, Rank::Median, &ranges);
        assert_eq!(median, expected(Rank::Median, &ranges));
    }

    /// More clients than a table has numbers: medians by the sign, groups that are cut, groups of digits.
    #[test]
    fn the_rank_is_found_among_many() {
        let key = key(70);
        let evaluation = evaluation(&key);
        let mut rng = StreamRng::from_seed(&[2; 32]);
        let counts = [
            (Rank::Median, 31),
            (Rank::Largest(3), 40),
            (Rank::Largest(1), 70),
            (Rank::Median, 32),
            (Rank::Median, 66),
        ];
        for (rank, clients) in counts {
            let ranges = draw(&mut rng, clients, 1);
            let found = agree(&key, &evaluation, rank, &ranges);
            assert_eq!(found, expected(rank, &ranges), "{rank} of {clients}");
        }
    }

    #[test]
    fn whatever_a_proposal_encrypts_the_answer_is_one_of_the_levels() {
        let key = key(8);
        let (evaluation, job) = (evaluation(&key), job(&key, Rank::Largest(2)));
        let mut proposals: Vec<_> =
            (0..4).map(|number| propose(key.as_client(number), &job, &[1.0, 2.0, 3.0])).collect();
        let mut rng = StreamRng::from_seed(&[4; 32]);
        for round in 0..3 {
            let bytes = proposals[round].to_bytes(key.public());
            let bits = 8 * 3 * usize::from(LEVELS);
            let bytes = altered(&bytes, |frame| {
                let end = frame.len() - 32;
                rng.fill_bytes(&mut frame[end - bits..end]);
            });
            proposals[round] = RangesProposal::from_bytes(&bytes, key.public()).unwrap();
            let agreed = AgreedRanges::find(&evaluation, &job, &proposals, &|_| {}).unwrap();
            let agreement = agreed.open(key.ranges_secret(), &job).unwrap();
            let levels = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0];
            assert!(
                agreement.ranges().iter().all(|range| levels.contains(range)),
                "{:?}",
                agreement.ranges()
            );
        }
    }

    #[test]
    fn proposals_that_do_not_add_up_are_refused() {
        let key = key(8);
        let (evaluation, job) = (evaluation(&key), job(&key, Rank::Largest(3)));
        let propose = |number, ranges: &[f64]| propose(key.as_client(number), &job, ranges);
        let find = |proposals: &[RangesProposal]| {
            AgreedRanges::find(&evaluation, &job, proposals, &|_| {}).map(|_| ())
        };
        let within = |error: Result<(), Error>| match error {
            Err(Error::In { error, .. }) => *error,
            other => panic!("{other:?}"),
        };
        assert_eq!(find(&[]), Err(Error::NothingToSum));
        let [a, b] = [0, 1].map(|number| propose(number, &[1.0]));
        assert_eq!(
            find(&[a.clone(), b.clone()]),
            Err(Error::TooFewProposals { found: 2, rank: 3 })
        );
        let again = propose(1, &[1.0]);
        assert_eq!(within(find(&[a.clone(), b.clone(), again])), Error::SameNumber { number: 1 });
        // Under another's number: the first field of the body.
        let bytes = a.to_bytes(key.public());
        let renumber = |number: u8| {
            let bytes = altered(&bytes, |frame| frame[HEADER_BYTES] = number);
            RangesProposal::from_bytes(&bytes, key.public()).unwrap()
        };
        let renumbered = renumber(2);
        assert_eq!(renumbered.number(), 2);
        assert_eq!(within(find(&[a.clone(), b.clone(), renumbered])), Error::SameContribution);
        let beyond = renumber(8);
        assert!(matches!(within(find(&[b.clone(), beyond])), Error::Number { number: 8, .. }));
        let more = propose(2, &[1.0, 1.0]);
        assert!(matches!(within(find(&[a, b, more])), Error::Layout { .. }));
        let foreign = self::evaluation(&super::key(8));
        let refused = AgreedRanges::find(&foreign, &job, &[propose(0, &[1.0])], &|_| {});
        assert!(matches!(refused, Err(Error::KeyMismatch { what: "it is of ranges key", .. })));
    }

    /// Of a round the aggregator sees announcements, before and after sealing, and makes the terms.
    #[test]
    fn nothing_that_the_aggregator_sees_has_a_range_in_clear() {
        let key = key(8);
        let (evaluation, job) = (evaluation(&key), job(&key, Rank::Largest(2)));
        let secret = key.ranges_secret();
        let own = [0.3, 0.07];
        let announce = |_| {
            let seed = SealPermit::draw().unwrap().seed();
            Announcement::propose(seed, &job, (0, None), &update(&own), 1, secret).unwrap()
        };
        let announced: Vec<_> = (0..3).map(announce).zip(0u16..).map(|(a, n)| (n, a)).collect();
        let proposals: Vec<_> = announced.iter().flat_map(|(_, a)| &a.proposal).collect();
        let found = evaluation.find(&proposals, &[2; 2], LEVELS, &|_| {});
        let terms = RoundTerms::join(&job, &announced).unwrap().terms;
        let terms = RoundTerms { private_ranges: Some(found), ..terms };
        let bytes = terms.to_bytes(key.public());
        let terms = RoundTerms::from_bytes(&bytes, key.public()).unwrap();
        let opened = terms.clone().opened(&job, secret, None).unwrap();
        assert_eq!(opened.agreement.ranges(), [0.5, 0.125]);
        opened.check(key.as_client(1), &announced[1].1, &job).unwrap();
        let mut sealed = announced[1].1.clone();
        sealed.seal_under(&opened, &job, secret).unwrap();
        assert_eq!(sealed.agreement, opened.agreement);
        // Whoever sealed proposes what was agreed: by three of them it is agreed again, whatever the rank.
        let again = [0, 1, 2].map(|_| sealed.proposal.as_ref().unwrap());
        let again = evaluation.find(&again, &[3; 2], LEVELS, &|_| {});
        let again = RoundTerms { private_ranges: Some(again), ..terms.clone() };
        assert_eq!(again.opened(&job, secret, None).unwrap().agreement, sealed.agreement);
        let shown = sealed.without_private_ranges(&job).unwrap();
        let [stored, shown] = [&sealed, &shown].map(|a| a.to_bytes(key.public()));
        let has_one = |bytes: &[u8]| {
            let ranges = own.iter().chain(&[0.5, 0.125]);
            ranges.map(|range| range.to_le_bytes()).any(|r| bytes.windows(8).any(|w| w == r))
        };
        assert!(has_one(&stored), "a spool has the ranges that it was sealed under");
        assert!(!has_one(&shown) && !has_one(&bytes));
        assert!(announced.iter().all(|(_, a)| !has_one(&a.to_bytes(key.public()))));
        // Terms and jobs that are not of one kind.
        let told = Job::new(key.public(), Limits::of_key(key.public())).unwrap();
        for refused in [
            terms.clone().opened(&told, secret, None),
            RoundTerms { private_ranges: None, ..terms.clone() }.opened(&job, secret, None),
        ] {
            assert!(matches!(refused, Err(Error::Terms { .. })), "{refused:?}");
        }
        assert_eq!(terms.clone().opened(&job, None, None), Err(Error::NoRangesSecret));
        // Whoever has sealed opens nothing more, whatever the terms hold.
        let sealed_under = terms.opened(&job, None, Some(&sealed.agreement)).unwrap();
        assert_eq!(sealed_under.agreement, sealed.agreement);
        let unencrypted = Announcement { proposal: None, ..announced[0].1.clone() };
        assert!(matches!(unencrypted.check(0, &job), Err(Error::BeyondJob { .. })));
        // Somebody's proposal under another's number.
        let copied =
            Announcement { seed: SealPermit::draw().unwrap().seed(), ..announced[0].1.clone() };
        let joined = RoundTerms::join(&job, &[announced[0].clone(), (5, copied)]).unwrap();
        assert!(matches!(joined.left_out[..], [(5, Error::SameContribution)]), "{joined:?}");
    }

    #[test]
    fn damaged_evaluation_keys_are_refused() {
        let key = key(2);
        let bytes =
            RangesEvaluationKey::generate(key.ranges_secret().unwrap(), key.public()).unwrap();
        let read = |bytes: &[u8]| RangesEvaluationKey::from_bytes(bytes, key.public()).map(|_| ());
        assert!(read(&bytes[..bytes.len() - 1]).is_err());
        let shorter = altered(&bytes, |frame| frame.truncate(frame.len() - 8));
        assert!(matches!(read(&shorter), Err(Error::Frame(_))));
        let unknown = altered(&bytes, |frame| frame[HEADER_BYTES + 16] = 2);
        assert!(matches!(read(&unknown), Err(Error::Frame(_))));
        let other = super::key(2);
        assert!(matches!(
            RangesEvaluationKey::from_bytes(&bytes, other.public()),
            Err(Error::KeyMismatch { .. })
        ));
    }
}
