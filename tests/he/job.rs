//! Jobs, and the terms of rounds within them: who is left out, and what a client refuses.

use ciphergram_he::{
    Agreement, Dtype, Error, Job, Limits, SealPermit, SecretKey, Tensor, TensorSpec, Update,
    codec::{OpenedRound, Precision, TensorBits},
    exchange::{Announcement, Joined, RoundTerms},
    job::{AllowedNode, SettledTensor},
    params::{Literal, Scheme},
};

fn key() -> SecretKey {
    SecretKey::generate(Literal { scheme: Scheme::CkksSum, clients: 8, bits: 16 }).unwrap()
}

fn job(key: &SecretKey, change: impl FnOnce(&mut Limits)) -> Result<Job, Error> {
    let mut limits =
        Limits { colluders: None, max_weight: 50, max_range: 4.0, ..Limits::of_key(key.public()) };
    change(&mut limits);
    Job::new(key.public(), limits)
}

fn spec(name: &str, values: u64) -> TensorSpec {
    TensorSpec { name: name.into(), dtype: Dtype::F32, shape: vec![values] }
}

fn agreement(specs: &[TensorSpec], range: f64, max_weight: u32) -> Agreement {
    Agreement::new(specs.to_vec(), vec![range; specs.len()], max_weight).unwrap()
}

fn announce(job: &Job, lowest_round: u64, agreement: Agreement) -> Announcement {
    Announcement {
        seed: SealPermit::draw().unwrap().seed(),
        job: job.id(),
        lowest_round,
        agreement,
        proposal: None,
    }
}

fn two() -> Vec<TensorSpec> {
    vec![spec("a", 2), spec("b", 3)]
}

#[test]
fn terms_are_the_largest_of_all_and_the_rest_are_left_out_by_name() {
    let key = key();
    let job = job(&key, |_| ()).unwrap();
    let other = Job::new(key.public(), job.limits().clone()).unwrap();
    let good = |round, range, weight| announce(&job, round, agreement(&two(), range, weight));
    let first = good(3, 0.5, 7);
    let same_seed = Announcement { seed: first.seed, ..good(3, 0.5, 7) };
    let all = [
        (5, good(4, 0.25, 3)),
        (0, first),
        (1, good(2, 4.5, 3)),
        (2, good(2, 1.0, 51)),
        (3, announce(&job, 2, agreement(&[spec("a", 2)], 1.0, 1))),
        (4, same_seed),
        (6, announce(&other, 2, agreement(&two(), 1.0, 1))),
        (7, announce(&job, 2, agreement(&two(), 1.0, 1).with_clip_norm(Some(1.5)).unwrap())),
        (8, good(2, 1.0, 1)),
    ];
    let Joined { terms, left_out } = RoundTerms::join(&job, &all).unwrap();
    assert_eq!(terms.participants.iter().map(|p| p.number).collect::<Vec<_>>(), [0, 5]);
    assert_eq!((terms.round, terms.agreement), (4, agreement(&two(), 0.5, 7)));
    let why: Vec<_> = left_out.iter().map(|(number, why)| (*number, why.to_string())).collect();
    for (number, text) in [
        (1, "the job does not admit it: tensor \"a\" has range 4.5, the job admits 4 at most"),
        (2, "the job does not admit it: a largest weight of 51, the job's is 50"),
        (3, "the tensors differ: it lacks tensor \"b\", which was agreed"),
        (4, "the same contribution was given twice"),
        (6, &format!("it is of job {}, not {}", other.id(), job.id())),
        (7, "the job does not admit it: a norm of 1.5 to clip to, which no client announces"),
        (8, "client 8 of 8 clients"),
    ] {
        let found = &why.iter().find(|(n, _)| *n == number).unwrap().1;
        assert!(found.starts_with(text), "{number}: {found}");
    }
    assert_eq!(why.len(), 7);
    // Nobody is left: the first reason.
    let error = RoundTerms::join(&job, &all[2..3]).err().unwrap();
    assert!(error.to_string().contains(": the job does not admit it"), "{error}");
    assert_eq!(RoundTerms::join(&job, &[]).err(), Some(Error::NothingToSum));
}

/// Who comes first settles nothing if the job does.
#[test]
fn a_job_that_settles_tensors_decides_who_is_left_out() {
    let key = key();
    let settled = |range| {
        let tensors = two().into_iter().map(|spec| SettledTensor { spec, range }).collect();
        job(&key, |limits| limits.tensors = Some(tensors))
    };
    let job = settled(None).unwrap();
    let stranger = announce(&job, 0, agreement(&[spec("z", 9)], 1.0, 1));
    let honest = |range| announce(&job, 0, agreement(&two(), range, 1));
    let all = [(0, stranger), (1, honest(0.5)), (2, honest(2.0))];
    let Joined { terms, left_out } = RoundTerms::join(&job, &all).unwrap();
    assert_eq!(terms.participants.iter().map(|p| p.number).collect::<Vec<_>>(), [1, 2]);
    assert!(matches!(left_out[..], [(0, Error::Layout { .. })]));
    // With ranges: the job's or nobody's, whoever proposes less or more.
    let job = settled(Some(2.0)).unwrap();
    assert!(job.settles_ranges());
    for range in [1.0, 2.0 + 2.0 * f64::EPSILON, 3.0] {
        let error = job.check_agreement(&agreement(&two(), range, 1)).err();
        assert!(matches!(error, Some(Error::BeyondJob { .. })), "{range}: {error:?}");
    }
    let all = [1.0, 2.0].map(|range| announce(&job, 0, agreement(&two(), range, 50)));
    let [clipped, right] = all;
    let joined = RoundTerms::join(&job, &[(0, clipped), (1, right)]).unwrap();
    assert_eq!(joined.terms.agreement.ranges(), [2.0; 2]);
    assert!(matches!(joined.left_out[..], [(0, Error::BeyondJob { .. })]));
    assert!(settled(Some(5.0)).is_err(), "a settled range beyond the job's largest");
}

#[test]
fn without_a_layout_in_the_job_most_decide_and_of_as_many_the_first() {
    let key = key();
    let job = job(&key, |_| ()).unwrap();
    let join = |layouts: &[&[TensorSpec]]| {
        let mut all: Vec<_> = (0u16..)
            .zip(layouts)
            .map(|(number, specs)| (number, announce(&job, 0, agreement(specs, 1.0, 1))))
            .collect();
        all.reverse();
        let joined = RoundTerms::join(&job, &all).unwrap();
        joined.terms.participants.iter().map(|p| p.number).collect::<Vec<_>>()
    };
    let (good, bad) = (two(), [spec("z", 9)]);
    assert_eq!(join(&[&bad, &good, &good]), [1, 2]);
    assert_eq!(join(&[&good, &bad, &good]), [0, 2]);
    assert_eq!(join(&[&good, &bad]), [0]);
    assert_eq!(join(&[&bad, &good]), [0]);
    // What the job does not admit has no vote.
    let beyond = |number| (number, announce(&job, 0, agreement(&bad, 100.0, 1)));
    let honest = (3, announce(&job, 0, agreement(&good, 1.0, 1)));
    let joined = RoundTerms::join(&job, &[beyond(0), beyond(1), honest]).unwrap();
    assert_eq!(joined.terms.participants.len(), 1);
    assert!(joined.left_out.iter().all(|(_, why)| matches!(why, Error::RangeBeyondJob { .. })));
}

/// One that is far ahead would end the job for all others.
#[test]
fn who_is_more_than_64_rounds_ahead_is_left_out() {
    let key = key();
    let job = job(&key, |_| ()).unwrap();
    let at = |rounds: &[u64]| {
        let all: Vec<_> = rounds
            .iter()
            .zip(0..)
            .map(|(&round, number)| (number, announce(&job, round, agreement(&two(), 1.0, 1))))
            .collect();
        let joined = RoundTerms::join(&job, &all).unwrap();
        (joined.terms.round, joined.left_out)
    };
    assert_eq!(at(&[0, 64, 3]), (64, vec![]));
    assert_eq!(at(&[0, 68, 3]), (3, vec![(1, Error::RoundAhead { round: 68, others: 3 })]));
    let far = vec![(0, Error::RoundAhead { round: u64::MAX, others: 9 })];
    assert_eq!(at(&[u64::MAX, 9, 9, 1]), (9, far));
    assert_eq!(at(&[1_000_000]), (1_000_000, vec![]), "alone there is nobody to be ahead of");
}

#[test]
fn a_client_contributes_under_no_terms_that_are_worse_than_its_own() {
    let key = key();
    let job = job(&key, |limits| limits.min_clients = 2).unwrap();
    let own = announce(&job, 5, agreement(&two(), 1.0, 10));
    let others = announce(&job, 2, agreement(&two(), 0.5, 20));
    let joined = RoundTerms::join(&job, &[(1, own.clone()), (4, others)]).unwrap();
    let terms = joined.terms;
    assert_eq!(terms.check(key.as_client(1), &own, &job), Ok(()));
    assert_eq!(terms.check(key.as_client(1), &own, &job), Ok(()), "as often as it is asked");
    let small = |range| announce(&job, 5, agreement(&two(), range, 10));
    assert_eq!(terms.coarsest(&small(0.0009765625)), Some(("b", 1024.0)));
    assert_eq!((terms.coarsest(&small(0.001)), terms.coarsest(&small(0.0))), (None, None));
    let refused = |terms: &RoundTerms, why: &str| {
        let error = terms.check(key.as_client(1), &own, &job).unwrap_err().to_string();
        assert!(error.contains(why), "{error}, not {why}");
    };
    let with =
        |range, weight| RoundTerms { agreement: agreement(&two(), range, weight), ..terms.clone() };
    assert_eq!(
        with(4.0, 50).check(key.as_client(1), &own, &job),
        Ok(()),
        "anything above, within the job"
    );
    refused(&with(0.999, 20), "below what this client proposed");
    refused(&with(1.0, 9), "below what this client proposed");
    refused(&with(4.5, 20), "the job admits 4 at most");
    refused(&with(1e30, 20), "the job admits 4 at most");
    refused(&with(1.0, 51), "the job's is 50");
    // One range of several, and other tensors.
    let mut ranges = terms.clone();
    ranges.agreement = Agreement::new(two(), vec![2.0, 0.5], 20).unwrap();
    refused(&ranges, "below what this client proposed");
    let specs = [spec("a", 2), spec("b", 4)];
    refused(
        &RoundTerms { agreement: agreement(&specs, 1.0, 20), ..terms.clone() },
        "tensors differ",
    );
    let clipped = agreement(&two(), 1.0, 20).with_clip_norm(Some(1.5)).unwrap();
    refused(
        &RoundTerms { agreement: clipped, ..terms.clone() },
        "a norm of 1.5, which the job has not",
    );
    refused(&RoundTerms { round: 4, ..terms.clone() }, "has contributed to");
    let far = RoundTerms { round: 5 + (1 << 32), ..terms.clone() };
    assert_eq!(far.check(key.as_client(1), &own, &job), Ok(()));
    refused(&RoundTerms { round: 6 + (1 << 32), ..terms.clone() }, "more than 2^32 after");
    refused(&RoundTerms { round: u64::MAX, ..terms.clone() }, "more than 2^32 after");
    // Not listed; listed as another, or with another seed; beside numbers that are nobody's.
    let mut other = terms.clone();
    other.participants.remove(0);
    refused(&other, "do not list this contribution");
    let mut other = terms.clone();
    other.participants[0].seed = SealPermit::draw().unwrap().seed();
    refused(&other, "do not list this contribution");
    let error = terms.check(key.as_client(2), &own, &job).unwrap_err();
    assert!(matches!(error, Error::Terms { .. }));
    let mut other = terms;
    other.participants[1].number = 8;
    refused(&other, "client 8 of 8 clients");
}

#[test]
fn proposals_are_within_the_job() {
    let key = key();
    let settled_to = |range| {
        job(&key, |limits| {
            limits.tensors = Some(vec![SettledTensor { spec: spec("a", 3), range }]);
        })
        .unwrap()
    };
    let open = job(&key, |limits| limits.max_range = 3.0).unwrap();
    let update = |value: f32| {
        let bytes = [0.25, -value, 0.0].into_iter().flat_map(f32::to_le_bytes).collect();
        Update::new(vec![Tensor::from_bytes(spec("a", 3), bytes)])
    };
    let propose = |job: &Job, value, weight| {
        Announcement::propose(
            SealPermit::draw().unwrap().seed(),
            job,
            (6, None),
            &update(value),
            weight,
            None,
        )
    };
    let made = propose(&open, 1.5, 7).unwrap();
    assert_eq!((made.agreement.ranges(), made.agreement.max_weight()), (&[2.0][..], 7));
    assert_eq!((made.job, made.lowest_round), (open.id(), 6));
    assert_eq!(Announcement::from_bytes(&made.to_bytes(key.public()), key.public()), Ok(made));
    // A power of two that would be beyond the job is the job's largest; a value beyond is refused.
    assert_eq!(propose(&open, 2.5, 7).unwrap().agreement.ranges(), [3.0]);
    assert!(matches!(propose(&open, 3.5, 7), Err(Error::RangeBeyondJob { .. })));
    for weight in [0, 51, u64::from(u32::MAX), u64::MAX] {
        assert!(propose(&open, 1.0, weight).is_err(), "weight {weight}");
    }
    // What is settled tells nothing of the update.
    let made = propose(&settled_to(Some(4.0)), 0.001, 7).unwrap();
    assert_eq!((made.agreement.ranges(), made.agreement.max_weight()), (&[4.0][..], 50));
    let made = propose(&settled_to(None), 0.5, 7).unwrap();
    assert_eq!((made.agreement.ranges(), made.agreement.max_weight()), (&[0.5][..], 7));
    let other = job(&key, |limits| {
        limits.tensors = Some(vec![SettledTensor { spec: spec("a", 4), range: None }]);
    });
    assert!(matches!(propose(&other.unwrap(), 0.5, 7), Err(Error::Layout { .. })));
}

#[test]
fn jobs_are_what_their_files_say_and_no_two_are_the_same() {
    let key = key();
    let full = job(&key, |limits| {
        let tensors = two().into_iter().zip([Some(0.1), None]);
        let tensors = tensors.map(|(spec, range)| SettledTensor { spec, range });
        limits.tensors = Some(tensors.collect());
        let node = |node: &str, client| AllowedNode { node: node.into(), client };
        limits.allow = Some(vec![node("first", Some(3)), node("second", None)]);
    })
    .unwrap();
    let plain = job(&key, |_| ()).unwrap();
    for job in [&full, &plain] {
        let text = job.to_json().unwrap();
        let read = Job::from_json(&text, key.public()).unwrap();
        assert_eq!((&read, read.id()), (job, job.id()));
        let error = Job::from_json(&text, self::key().public()).err();
        assert!(matches!(error, Some(Error::JobMismatch { what: "the job is of key", .. })));
        assert_eq!(
            job.clone().requiring(1).id(),
            job.id(),
            "who asks for more changes no statement"
        );
        assert_ne!(Job::new(key.public(), job.limits().clone()).unwrap().id(), job.id());
    }
    // Whatever it says is in its id.
    let text = full.to_json().unwrap();
    for (what, other) in [
        ("\"clients\": 8", "\"clients\": 7"),
        ("\"min_clients\": 6", "\"min_clients\": 2"),
        ("\"max_weight\": 50", "\"max_weight\": 49"),
        ("\"max_range\": 4.0", "\"max_range\": 4.5"),
        ("\"range\": 0.1", "\"range\": 0.2"),
        ("\"name\": \"b\"", "\"name\": \"c\""),
        ("\"node\": \"first\"", "\"node\": \"third\""),
        ("\"client\": 3", "\"client\": 2"),
    ] {
        assert!(text.contains(what), "{what} in {text}");
        let other = Job::from_json(&text.replace(what, other), key.public()).unwrap();
        assert_ne!(other.id(), full.id(), "{what}");
    }
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let key = key();
    let refused = |change: fn(&mut Limits), why: &str| {
        let error = job(&key, change).err().unwrap().to_string();
        assert!(error.contains(why), "{error}, not {why}");
    };
    refused(|limits| limits.clients = 0, "0 clients; the key admits 1 to 8");
    refused(|limits| limits.clients = 9, "9 clients; the key admits 1 to 8");
    refused(|limits| limits.min_clients = 0, "at least 0 contributors of 8");
    refused(|limits| limits.min_clients = 9, "at least 9 contributors of 8");
    refused(|limits| limits.max_weight = 0, "the largest weight is 0");
    refused(|limits| limits.max_range = 0.0, "the largest range is 0");
    refused(|limits| limits.max_range = -1.0, "the largest range is -1");
    refused(|limits| limits.max_range = f64::NAN, "the largest range is NaN");
    refused(|limits| limits.max_range = f64::INFINITY, "the largest range is inf");
    let limits = Limits::of_key(key.public());
    assert_eq!((limits.clients, limits.min_clients, limits.max_weight), (8, 6, 100_000));
    assert_eq!(limits.colluders, Some(2));
}

#[test]
fn precisions_are_the_jobs_and_whoever_has_others_is_left_out_by_name() {
    let key = key();
    let named = |name: &str, bits| TensorBits { name: name.into(), bits };
    let with_bits = |bits: Vec<TensorBits>| job(&key, |limits| limits.bits = bits).unwrap();
    let job = with_bits(vec![named("*", 20), named("b*", 24)]);
    let update = Update::new(
        two()
            .into_iter()
            .map(|spec| {
                Tensor::from_values(spec.clone(), &vec![1.0; spec.shape[0] as usize]).unwrap()
            })
            .collect(),
    );
    let seed = || SealPermit::draw().unwrap().seed();
    let own = Announcement::propose(seed(), &job, (0, None), &update, 1, None).unwrap();
    assert_eq!(own.agreement.precisions(), [Precision::Bits(20), Precision::Bits(24)]);
    let bits = |bits: [u32; 2]| {
        let all = bits.map(|bits| (bits != 16).then_some(bits));
        announce(&job, 0, agreement(&two(), 1.0, 1).with_bits(all).unwrap())
    };
    let all = [(0, own.clone()), (1, bits([20, 16])), (2, bits([16, 24])), (3, bits([20, 24]))];
    let Joined { terms, left_out } = RoundTerms::join(&job, &all).unwrap();
    assert_eq!(terms.participants.iter().map(|p| p.number).collect::<Vec<_>>(), [0, 3]);
    let why: Vec<_> = left_out.iter().map(|(number, why)| format!("{number}: {why}")).collect();
    assert_eq!(
        why,
        [
            "1: the job does not admit it: tensor \"b\" is summed in the bits of the key, the job's is in 24 bits",
            "2: the job does not admit it: tensor \"a\" is summed in the bits of the key, the job's is in 20 bits",
        ]
    );
    // Nor does a client take others from an aggregator, and what it seals under names them.
    let others = RoundTerms { agreement: bits([24, 24]).agreement, ..terms.clone() };
    assert!(matches!(others.check(key.as_client(0), &own, &job), Err(Error::BeyondJob { .. })));
    let plain = with_bits(vec![]);
    assert_ne!(job.id(), plain.id());
    assert!(matches!(plain.terms(0, &terms.agreement), Err(Error::BeyondJob { .. })));
    assert_eq!(Job::from_json(&job.to_json().unwrap(), key.public()), Ok(job.clone()));
    // Shared ranges say nothing of them, and get the job's.
    let shared = job.at_precision(&agreement(&two(), 1.0, 1)).unwrap();
    assert_eq!(shared.precisions(), own.agreement.precisions());
    let absent = with_bits(vec![named("c", 24)]).at_precision(&shared);
    assert!(matches!(absent, Err(Error::Bits { .. })));
}

/// Of two that are within what is summed exactly, one by its range and one by its weight, no round fails.
#[test]
fn integers_are_announced_as_if_every_weight_were_the_jobs_largest() {
    let key = key();
    let job = job(&key, |limits| limits.max_range = 2f64.powi(50)).unwrap();
    let count = TensorSpec { name: "n".into(), dtype: Dtype::I64, shape: vec![2] };
    let counts =
        |range, weight| announce(&job, 0, agreement(std::slice::from_ref(&count), range, weight));
    let most = ((1u64 << 53) - 1) / 50;
    let all =
        [(0, counts(most as f64, 1)), (1, counts(1.0, 50)), (2, counts(most as f64 + 1.0, 1))];
    let Joined { terms, left_out } = RoundTerms::join(&job, &all).unwrap();
    assert_eq!(terms.agreement, agreement(std::slice::from_ref(&count), most as f64, 50));
    let [(2, why)] = &left_out[..] else { panic!("{left_out:?}") };
    assert!(why.to_string().contains("\"n\"") && why.to_string().contains("2^53"), "{why}");
}

/// No range limits what is exact, and no integer is told to its last digit, or beyond its type.
#[test]
fn integers_are_announced_as_powers_of_two_within_their_type() {
    let key = key();
    let job = Job::new(key.public(), Limits::of_key(key.public())).unwrap();
    let own = |dtype, value: f64, weight| {
        let spec = TensorSpec { name: "n".into(), dtype, shape: vec![2] };
        let update = Update::new(vec![Tensor::from_values(spec, &[value, -1.0]).unwrap()]);
        let seed = SealPermit::draw().unwrap().seed();
        let own = Announcement::propose(seed, &job, (0, None), &update, weight, None)?;
        Ok::<_, Error>(own.agreement.ranges()[0])
    };
    for (dtype, value, told) in [
        (Dtype::I64, 123_457.0, 131_072.0),
        (Dtype::I64, 8e10, 90_071_992_547.0),
        (Dtype::I8, 100.0, 128.0),
        (Dtype::F32, 18.25, 32.0),
    ] {
        assert_eq!(own(dtype, value, 3), Ok(told), "{dtype:?}");
    }
    assert!(matches!(own(Dtype::I64, 1e11, 1), Err(Error::NotExact { .. })));
    assert!(matches!(own(Dtype::F32, 65_537.0, 1), Err(Error::RangeBeyondJob { .. })));
    let mask = TensorSpec { name: "mask".into(), dtype: Dtype::I8, shape: vec![2] };
    let lie = announce(&job, 0, agreement(&[mask], 1e9, 1));
    let why = lie.check(0, &job).unwrap_err().to_string();
    assert!(why.contains("range 1000000000, which I8 does not hold"), "{why}");
}

/// An aggregator that gives two openers different sums of one round is found out at the next that both take part in:
/// whoever opened another than most is told so, and no client seals under another than its own.
#[test]
fn clients_who_opened_different_sums_are_told_apart() {
    let key = key();
    let job = job(&key, |_| ()).unwrap();
    let opened = |round, byte| Some(key.as_client(0).opened_round(round, &[byte; 32]).unwrap());
    let announced = |opened: Option<OpenedRound>| {
        let announcement = announce(&job, 8, agreement(&two(), 0.5, 1).with_opened(opened));
        let read = Announcement::from_bytes(&announcement.to_bytes(key.public()), key.public());
        assert_eq!(read.as_ref(), Ok(&announcement));
        announcement
    };
    // One was away when round 7 ended, one is new, one tells of another sum of it.
    let all = [
        (0, announced(opened(6, 9))),
        (1, announced(None)),
        (2, announced(opened(7, 2))),
        (3, announced(opened(7, 1))),
        (4, announced(opened(7, 1))),
    ];
    let Joined { terms, left_out } = RoundTerms::join(&job, &all).unwrap();
    let different = Error::DifferentSums { round: 7 };
    assert_eq!(left_out, [(2, different.clone())]);
    assert_eq!(terms.agreement.opened(), opened(7, 1));
    let read = RoundTerms::from_bytes(&terms.to_bytes(key.public()), key.public());
    assert_eq!(read.as_ref(), Ok(&terms));
    let check = |terms: &RoundTerms, client: usize| {
        let (number, own) = &all[client];
        terms.check(key.as_client(*number), own, &job)
    };
    for client in [0, 1, 3, 4] {
        assert_eq!(check(&terms, client), Ok(()));
    }
    let telling = |opened| RoundTerms {
        agreement: terms.agreement.clone().with_opened(opened),
        ..terms.clone()
    };
    // An aggregator that lies: of another sum, of none, of an earlier round.
    assert_eq!(check(&telling(opened(7, 3)), 3), Err(different));
    for hidden in [telling(None), telling(opened(6, 9))] {
        assert!(matches!(check(&hidden, 3), Err(Error::Terms { .. })));
        // Each makes another statement: contributions under two of them add up to nothing that opens.
        let statement = |terms: &RoundTerms| job.terms(8, &terms.agreement).unwrap().statement();
        assert!(statement(&hidden) != statement(&terms));
        assert!(hidden.agreement.check_same(&terms.agreement).is_err());
    }
    // Of a later round, which nobody opened and this client would not know: it vouches for nothing, or is of this one.
    let made_up = OpenedRound { round: 7, ..opened(6, 9).unwrap() };
    for opened in [Some(made_up), opened(8, 1)] {
        assert!(matches!(check(&telling(opened), 0), Err(Error::Terms { .. })));
    }
    // On a tie the first counts; of a round to come nobody can have opened a sum.
    let two = [(0, announced(opened(7, 5))), (1, announced(opened(7, 4)))];
    let Joined { terms, left_out } = RoundTerms::join(&job, &two).unwrap();
    assert_eq!((terms.agreement.opened(), left_out[0].0), (opened(7, 5), 1));
    assert!(matches!(announced(opened(8, 1)).check(0, &job), Err(Error::BeyondJob { .. })));
}
