//! Whole sums: sealed, added and opened, against plain integers.

mod open;
mod summing;

use std::{
    io::{Read as _, Seek as _},
    sync::Arc,
};

use ciphergram_accel::{Engine, Info, Operand, Program, RunError};
use ciphergram_he::{
    Accumulator, Agreement, Contribution, Contributor, ContributorSet, Destination, Dtype, Error,
    Ledger, Member, Quantised, SealPermit, Sealer, Sum, Tensor, TensorSpec, Update, aggregate,
    codec::Output, open_to, params::Scheme,
};
use ciphergram_tests::cases;
use proptest::prelude::*;

use crate::support::sums::{
    Key, ROUND, agreement, assert_exact, contribute, contribute_with, counts, engine, extremes,
    generate, ring_degree, scattered, sealer,
};

/// A key for sums over the ring of `degree`, at 16 bits.
fn over(degree: usize) -> Key {
    let key = generate(Scheme::CkksSum, if degree == 4096 { 3 } else { 5 }, 16);
    assert_eq!(ring_degree(&key), degree, "the cheaper ring");
    key
}

/// Whole chunks that one polynomial holds.
fn chunks_per_polynomial(key: &Key) -> usize {
    ring_degree(key) / key.public().parameters().geometry().slots_per_chunk
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(32)))]

    /// Random tensors, client counts and bit widths.
    #[test]
    fn lattice_sums_are_exact(
        (clients, bits) in (1u32..=64, 8u32..=24),
        values in 0usize..3000,
        seed in any::<u64>(),
        spare in 0u32..3,
    ) {
        let key = generate(Scheme::CkksSum, clients + spare, bits);
        assert_exact(&key, &scattered(&key, clients, values, seed));
    }
}

/// As many as may be summed, all with the same extreme tensors and the largest weight. The noise of
/// 3 and of 195 has no slack within its margin; each is tried over both rings.
#[test]
fn extreme_values_of_a_full_house_are_exact() {
    let mut rings = [0, 0];
    let small = [(1, 8), (1, 23), (3, 16), (3, 24), (16, 12), (64, 8), (64, 16), (64, 24)];
    let large = [(100, 13), (195, 13), (195, 16), (1024, 16)];
    for (clients, bits) in small.into_iter().chain(large) {
        let key = generate(Scheme::CkksSum, clients, bits);
        rings[usize::from(ring_degree(&key) == 8192)] += 1;
        assert_exact(&key, &vec![(extremes(&key), u32::MAX); clients as usize]);
    }
    assert!(rings.iter().all(|&count| count > 2), "{rings:?}");
}

#[test]
fn sums_around_the_borders_of_chunks_and_polynomials_are_exact() {
    for degree in [4096, 8192] {
        let key = over(degree);
        let p = key.public().parameters();
        let (each, most) = (p.geometry().values_per_chunk(), 2 * p.half_steps());
        let (fields, whole) = (p.geometry().fields_per_slot, each * chunks_per_polynomial(&key));
        let around = |size: usize| [size - 1, size, size + 1];
        let sizes = [fields, 5 * fields, each, 2 * each, whole, whole + each].map(around);
        for values in sizes.into_iter().flatten().chain([0]) {
            let value = |c: u32, i: u32| (i + c).wrapping_mul(2_654_435_761) % (most + 1);
            let update = |c| ((0..values as u32).map(|i| value(c, i)).collect(), c + 1);
            assert_exact(&key, &[update(0), update(1), update(2)]);
        }
    }
}

#[test]
fn paillier_sums_are_exact() {
    for scheme in [Scheme::Paillier2048, Scheme::Paillier3072, Scheme::Paillier4096] {
        let key = generate(scheme, 5, 16);
        let most = 2 * key.public().parameters().half_steps();
        let each = key.public().parameters().geometry().values_per_chunk();
        for values in [0, 1, each, each + 1] {
            let updates: Vec<_> = (0..3)
                .map(|c| {
                    ((0..values as u32).map(|i| i * 7919 * (c + 1) % (most + 1)).collect(), c + 1)
                })
                .collect();
            assert_exact(&key, &updates);
        }
        let full = vec![(vec![most; each + 3], u32::MAX); 5];
        assert_exact(&key, &full);
    }
}

/// Heads of many fields, and heads that do not end within the first word.
#[test]
fn paillier_heads_of_every_width_are_exact() {
    for (clients, bits) in [(1, 8), (2, 24), (1024, 8), (1024, 24)] {
        let key = generate(Scheme::Paillier2048, clients, bits);
        let most = 2 * key.public().parameters().half_steps();
        let each = key.public().parameters().geometry().values_per_chunk();
        assert_exact(&key, &[(vec![most; each + 1], u32::MAX)]);
    }
}

/// Updates that fill just half of a polynomial of a larger ring, or a little less; more than a polynomial; and some
/// whose chunks are not all of the same contributors.
#[test]
fn large_sums_are_exact() {
    let key = generate(Scheme::CkksSum, 10, 16);
    let p = key.public().parameters();
    let degree = |values| p.of_values(values).rlwe().unwrap().ring.degree();
    let most = 2 * p.half_steps();
    let from: Vec<_> = p.larger().map(|(from, _)| from).collect();
    assert_eq!(from.iter().map(|&from| degree(from)).collect::<Vec<_>>(), [16384, 32768]);
    let beyond = 2 * from[1] + p.larger().last().unwrap().1.geometry().values_per_chunk() + 1;
    for values in [from[0] - 1, from[0], from[1] - 1, from[1], beyond] {
        let value = |c: u32, i: u32| (i + c).wrapping_mul(2_654_435_761) % (most + 1);
        let update = |c| ((0..values as u32).map(|i| value(c, i)).collect(), c + 1);
        assert_exact(&key, &[update(0), update(1), update(2)]);
    }
}

/// As many different sets of contributors as there are chunks, under each ring.
#[test]
fn every_chunk_of_other_contributors_opens() {
    let key = generate(Scheme::CkksSum, 9, 16);
    let p = key.public().parameters().clone();
    for values in [3000].into_iter().chain(p.larger().map(|(from, _)| from)) {
        let agreement = agreement(values, 1);
        let fields: Vec<u32> = (0..values as u32).map(|i| i % 60_000).collect();
        let contributions: Vec<_> =
            (0..9).map(|client| contribute(&key, client, &fields, 1, &agreement)).collect();
        let mut accumulator = Accumulator::new(key.public(), engine(), values);
        let chunks = *accumulator.chunks();
        let mut sets = vec![];
        for chunk in 0..chunks.count() {
            let mut set = ContributorSet::none(9);
            // All but those whose bit is set in the chunk's number, and the last always.
            for c in (0..9).filter(|&c| c == 8 || chunk >> c & 1 == 0) {
                let bytes = &contributions[c].stream[chunks.range_of(&(chunk..chunk + 1))];
                accumulator.add(chunk..chunk + 1, bytes).unwrap();
                set.insert(c);
            }
            sets.push(set);
        }
        let counts = counts(&sets);
        let sum = key.sum(&contributions, sets, accumulator.into_stream(&counts).unwrap());
        let opened = key.open(&sum).unwrap();
        let half = i64::from(p.half_steps());
        for chunk in 0..chunks.count() {
            let count = counts[chunk as usize] as usize;
            assert_eq!(opened.parts()[chunk as usize], (count, count as u64));
            for i in chunks.values_of(chunk) {
                assert_eq!(opened.sums()[i], count as i64 * (i64::from(fields[i]) - half));
            }
        }
    }
}

/// More polynomials than one run opens, with sets that change within a polynomial.
#[test]
fn long_sums_with_changing_contributors_open() {
    let key = over(4096);
    assert_eq!(chunks_per_polynomial(&key), 40);
    let public = key.public();
    let each = public.parameters().geometry().values_per_chunk();
    let agreement = agreement(40 * 6 * each + 7, 1);
    let fields = vec![32_768; agreement.values()];
    let contributions = [0, 1].map(|client| contribute(&key, client, &fields, 1, &agreement));
    let mut accumulator = Accumulator::new(public, engine(), agreement.values());
    let chunks = *accumulator.chunks();
    let mut sets = vec![];
    for chunk in 0..chunks.count() {
        let mut set = ContributorSet::none(2);
        // Both at first, one alone across a polynomial's border, both again.
        for c in (0..2).filter(|&c| c == 0 || !(60..100).contains(&chunk)) {
            let at = chunks.offset_of(chunk);
            let bytes = &contributions[c].stream[at..at + chunks.bytes_of(chunk)];
            accumulator.add(chunk..chunk + 1, bytes).unwrap();
            set.insert(c);
        }
        sets.push(set);
    }
    let stream = accumulator.into_stream(&counts(&sets)).unwrap();
    let mut sum = key.sum(&contributions, sets, stream);
    let opened = key.open(&sum).unwrap();
    for (i, &value) in opened.sums().iter().enumerate() {
        let alone = (60..100).contains(&(i / each));
        assert_eq!(value, if alone { 1 } else { 2 }, "value {i}");
    }
    // What an aggregator may claim, but no honest one does.
    sum.contributors[1] = sum.contributors[0];
    assert_eq!(key.open(&sum).err(), Some(Error::SameContribution));
    sum.contributors.pop();
    assert!(key.open(&sum).is_err(), "a set beyond the list");
    sum.sets.pop();
    assert!(key.open(&sum).is_err(), "too few sets");
}

#[test]
fn integers_beyond_their_fields_are_not_sealed() {
    let key = generate(Scheme::CkksSum, 2, 16);
    let refuse = |fields: Vec<u32>, weight| {
        let (own, permit) = (key.secret.as_client(0), SealPermit::draw().unwrap());
        sealer(own, &key.job, (&fields, weight), permit).err()
    };
    assert_eq!(refuse(vec![0, 65_535], 1), Some(Error::NotQuantised { bits: 16 }));
    assert_eq!(refuse(vec![0], 0), Some(Error::NotQuantised { bits: 16 }));
    assert_eq!(refuse(vec![65_534], 1), None);
}

#[test]
fn a_clients_paillier_key_encrypts_and_a_lattice_key_says_why_it_has_none() {
    let key = generate(Scheme::Paillier2048, 3, 16);
    let agreement = agreement(4, 1);
    let c = contribute_with(&key.client(2), &key.job, &[1, 2, 3, 4], 1, &agreement);
    let opened = key.open(&key.aggregate([c]).unwrap()).unwrap();
    assert_eq!(opened.sums()[3] - opened.sums()[0], 3);

    let key = generate(Scheme::CkksSum, 3, 16);
    let error = key.secret.client_key(0).err().unwrap();
    assert!(error.to_string().contains("needs one whose public half encrypts"), "{error}");
}

/// Sealing goes on wherever a spool ended, within a batch or a polynomial too.
#[test]
fn a_resumed_contribution_is_of_the_chunks_that_are_left() {
    let lattice = [(over(4096), 60_000), (over(8192), 120_000)].map(|(key, values)| {
        let each = chunks_per_polynomial(&key) as u32;
        (key, values, vec![0, 1, 5, each - 1, each, each + 1, 3 * each + 5, u32::MAX])
    });
    let paillier = (generate(Scheme::Paillier2048, 2, 16), 3_000, vec![5, 8]);
    let large = (over(4096), 700_000, vec![1, 51, 57, 1_000]);
    let all = lattice.into_iter().chain([paillier, large]);
    let cuts = all.flat_map(|(key, values, stops)| {
        let key = Arc::new(key);
        stops.into_iter().map(move |stop| (key.clone(), values, stop))
    });
    for (key, values, stop) in cuts {
        let agreement = agreement(values, 1);
        let fields: Vec<u32> = (0..agreement.values() as u32).map(|i| i % 65_535).collect();
        // What another process sealed under this seed is not here: the first chunks are of one
        // contribution, and what is left is of the resumed one.
        let other = contribute(&key, 0, &fields, 1, &agreement);
        let chunks = key.public().parameters().chunks(values);
        let stop = stop.min(chunks.count());
        let kept = if stop == chunks.count() { other.stream.len() } else { chunks.offset_of(stop) };
        let (seed, own) = (SealPermit::draw().unwrap().seed(), key.secret.as_client(1));
        let (update, permit) =
            (Quantised::from_fields(fields.clone(), 1), SealPermit::resume(seed, &[1; 32], stop));
        let terms = key.job.terms(ROUND, &agreement).unwrap();
        let resumed = Sealer::new(own, engine(), update, permit, &terms).unwrap();
        let resumed_as = resumed.contributor();
        let mut stream = other.stream[..kept].to_vec();
        stream.extend(resumed.seal_all().unwrap());
        let of = |index| {
            let mut set = ContributorSet::none(2);
            set.insert(index);
            set
        };
        let sets = (0..chunks.count()).map(|chunk| of(usize::from(chunk >= stop))).collect();
        let contributors = vec![other.contributor, resumed_as];
        let sum = Sum { contributors, ..key.sum(&[other], sets, stream) };
        let opened = key.open(&sum).unwrap();
        let half = i64::from(key.public().parameters().half_steps());
        assert!(opened.sums().iter().zip(&fields).all(|(&s, &f)| s == i64::from(f) - half));
    }
}

/// A client of a large update has something to send long before it is sealed.
#[test]
fn the_first_batch_of_a_large_update_is_small() {
    let (key, values) = (over(4096), 1_500_000);
    let fields: Vec<u32> = (0..values as u32).map(|i| i % 65_535).collect();
    let permit = SealPermit::draw().unwrap();
    let mut sealer = sealer(key.secret.as_client(0), &key.job, (&fields, 1), permit).unwrap();
    let contributor = sealer.contributor();
    let batches: Vec<_> = std::iter::from_fn(|| sealer.next_batch().unwrap()).collect();
    let stream = batches.concat();
    assert!(batches[0].len() < stream.len() / 16, "{} of {}", batches[0].len(), stream.len());
    let (job, stream, agreement) = (key.job.id(), stream.into(), agreement(values, u32::MAX));
    let whole = Contribution { contributor, job, round: ROUND, agreement, stream, keys: None };
    let opened = key.open(&key.aggregate([whole]).unwrap()).unwrap();
    let half = i64::from(key.public().parameters().half_steps());
    assert!(opened.sums().iter().zip(&fields).all(|(&s, &f)| s == i64::from(f) - half));
}

/// A drawn permit is consumed; what is resumed by name cannot seal a chunk again either.
#[test]
fn no_chunk_is_sealed_twice_under_one_seed() {
    for (key, values) in [(over(4096), 100_000), (generate(Scheme::Paillier2048, 2, 16), 6_000)] {
        let fields = vec![7; values];
        let resume = |seed, next, key: &Key| {
            let permit = SealPermit::resume(seed, &[1; 32], next);
            sealer(key.secret.as_client(0), &key.job, (&fields, 1), permit)
        };
        let (agreement, permit) = (agreement(values, u32::MAX), SealPermit::draw().unwrap());
        let mut first = sealer(key.secret.as_client(0), &key.job, (&fields, 1), permit).unwrap();
        let (chunks, contributor) = (*first.chunks(), first.contributor());
        let Contributor { seed, .. } = contributor;
        let mut stream = first.next_batch().unwrap().unwrap();
        drop(first);
        let chunk_bytes = key.public().parameters().geometry().chunk_bytes();
        let sealed = (stream.len() / chunk_bytes) as u32;
        assert!(0 < sealed && sealed < chunks.count());
        for next in [0, 1, sealed - 1] {
            let error = resume(seed, next, &key).err().unwrap();
            assert_eq!(error, Error::SeedReused { sealed });
            let what = format!("resume at chunk {sealed}, or draw a fresh seed");
            assert!(error.to_string().ends_with(&what), "{error}");
        }
        // Where the first ended, another goes on; of two that do, the first to seal.
        let [one, mut two] = [(); 2].map(|()| resume(seed, sealed, &key).unwrap());
        stream.extend(one.seal_all().unwrap());
        let all = Error::SeedReused { sealed: chunks.count() };
        assert_eq!(two.next_batch().err(), Some(all.clone()));
        assert_eq!(resume(seed, sealed, &key).err(), Some(all));
        assert_eq!(resume(seed, chunks.count(), &key).unwrap().next_batch(), Ok(None));
        let (job, stream) = (key.job.id(), stream.into());
        let whole = Contribution { contributor, job, round: ROUND, agreement, stream, keys: None };
        assert!(key.open(&key.aggregate([whole]).unwrap()).is_ok());
        // Under another key it is another mask.
        let other = generate(Scheme::CkksSum, 2, 16);
        assert!(resume(seed, 0, &other).is_ok());
    }
}

/// Chunks that an engine did not finish have left nothing behind: they are sealed anew.
#[test]
fn chunks_that_an_engine_failed_to_seal_can_be_sealed() {
    struct Broken;
    impl Engine for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }
        fn info(&self) -> Info {
            Info::of_host("fails at once")
        }
        fn supports(&self, _: &str) -> bool {
            true
        }
        fn run(&self, _: &Program, _: &mut [Operand<'_>]) -> Result<(), RunError> {
            Err(RunError::Unsupported { engine: "broken", step: "all" })
        }
    }
    let key = over(4096);
    let agreement = agreement(100, 1);
    let (terms, own) = (key.job.terms(ROUND, &agreement).unwrap(), key.secret.as_client(0));
    let sealer = |engine, permit| {
        Sealer::new(own, engine, Quantised::from_fields(vec![7; 100], 1), permit, &terms).unwrap()
    };
    let mut failed = sealer(Arc::new(Broken), SealPermit::draw().unwrap());
    assert!(failed.next_batch().is_err());
    let permit = SealPermit::resume(failed.contributor().seed, &[1; 32], 0);
    assert!(sealer(engine(), permit).seal_all().is_ok());
}

/// A download is an upload, a number, a seed and a bit for each contributor, and a few lengths.
#[test]
fn a_sum_is_as_long_as_a_contribution_and_the_names_of_all() {
    const CLIENTS: usize = 100;
    for values in [1, 40_000] {
        let key = generate(Scheme::CkksSum, CLIENTS as u32, 16);
        let agreement = agreement(values, 1);
        let contributions: Vec<_> = (0..CLIENTS as u16)
            .map(|client| contribute(&key, client, &vec![7; values], 1, &agreement))
            .collect();
        let upload = contributions[0].to_bytes(key.public()).len();
        let mut sum = key.aggregate(contributions).unwrap();
        let runs = |sum: &Sum| sum.sets.chunk_by(|a, b| a == b).count();
        let check = |sum: &Sum| {
            let download = sum.to_bytes(key.public()).len();
            let bitmaps = runs(sum) * (4 + CLIENTS.div_ceil(8));
            // A contribution has its own name too; a sum says how many names and runs it has. Either is padded to
            // whole words.
            let headers = 34 * (CLIENTS - 1) + bitmaps + 8;
            assert!((download - upload).abs_diff(headers) < 8, "{download} {upload} {headers}");
            download
        };
        assert!(check(&sum) < upload + 34 * CLIENTS + CLIENTS.div_ceil(8) + 8, "nothing more");
        // The worst that deadlines can do: no two chunks in a row of the same contributors.
        for (chunk, set) in sum.sets.iter_mut().enumerate() {
            *set = ContributorSet::none(CLIENTS);
            set.insert(chunk % CLIENTS);
        }
        check(&sum);
        assert_eq!(runs(&sum), sum.sets.len());
    }
}

/// More polynomials than are sealed at once.
#[test]
fn a_contribution_is_written_while_it_is_sealed() {
    let key = over(4096);
    let each = key.public().parameters().geometry().values_per_chunk();
    let count = 70 * chunks_per_polynomial(&key) * each + 5;
    let values: Vec<_> = (0..count).map(|i| (i as f64 * 0.37).sin()).collect();
    let spec = TensorSpec { name: "t".into(), dtype: Dtype::F64, shape: vec![count as u64] };
    let agreement = Agreement::new(vec![spec.clone()], vec![1.0], 1).unwrap();
    let update = Update::new(vec![Tensor::from_values(spec, &values).unwrap()]);
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::beside(&folder.path().join("secret.json"));
    let member = Member::new(key.secret.as_client(1), &key.job, &ledger, engine());
    let seal = |weight, round| member.seal(&update, weight, &agreement, round);
    let prepare = |round| member.prepare(&update, 1, &agreement, round);
    let mut file = vec![];
    let sealer = seal(1, Some(ROUND)).unwrap();
    assert_eq!((sealer.round(), sealer.clipped()), (ROUND, &[0][..]));
    assert_eq!(ledger.next_round(&key.job, 1), Ok(ROUND + 1), "before anything is sealed");
    let bytes = sealer.write_to(&mut file).unwrap();
    let contribution = Contribution::from_bytes(&file, key.public()).unwrap();
    assert_eq!(contribution.stream.len(), bytes);
    assert!(contribution.to_bytes(key.public()) == file);
    let owned = Contribution::from_vec(file.clone(), key.public()).unwrap();
    assert!(owned == contribution);
    let sum = aggregate(key.public(), &key.job, engine(), [("it", Ok(owned))]).unwrap();
    assert!(Sum::from_vec(sum.to_bytes(key.public()), key.public()).unwrap() == sum);
    let mean = key.decrypt(&sum, Output::Mean).unwrap();
    let mean = mean.tensors()[0].values().unwrap();
    assert!(values.iter().zip(mean).all(|(x, y)| (x - y).abs() <= 1.0 / 32767.0));
    // A second one to the round is not written.
    assert!(matches!(seal(1, Some(ROUND)).err(), Some(Error::RoundOver { .. })));
    // What is not in place yet uses no round. Of two at once, one gets it.
    let mut two = [vec![], vec![]];
    for file in &mut two {
        let sealer = prepare(None).unwrap();
        assert_eq!(sealer.round(), ROUND + 1);
        sealer.write_to(file).unwrap();
        assert_eq!(ledger.next_round(&key.job, 1), Ok(ROUND + 1));
        let read = Contribution::from_bytes(file, key.public()).unwrap();
        let sum = aggregate(key.public(), &key.job, engine(), [("it", Ok(read))]).unwrap();
        assert!(key.decrypt(&sum, Output::Mean).is_ok());
    }
    let [one, other] =
        two.map(|file| Contribution::from_vec(file, key.public()).unwrap().contributor.seed);
    assert_ne!(one, other, "a seed of its own each");
    assert_eq!(member.enter(ROUND + 1), Ok(()));
    assert!(matches!(member.enter(ROUND + 1), Err(Error::RoundOver { .. })));
    let past = prepare(Some(ROUND)).err();
    assert!(matches!(past, Some(Error::RoundOver { .. })), "before the work");
    // The next round is taken when all was checked, and what is sealed opens as of it.
    assert!(matches!(seal(2, None).err(), Some(Error::Weight { .. })));
    let contribution = seal(1, None).unwrap().into_contribution().unwrap();
    assert_eq!(contribution.round, ROUND + 2);
    let sum = aggregate(key.public(), &key.job, engine(), [("it", Ok(contribution))]).unwrap();
    assert!(key.decrypt(&sum, Output::Mean).is_ok());
}

/// Makes tensors of these numbers of values, of two types in turn.
fn tensors_of(counts: &[usize]) -> Agreement {
    let spec = |(i, &count): (usize, &usize)| TensorSpec {
        name: format!("t{i}"),
        dtype: [Dtype::F32, Dtype::F64][i % 2],
        shape: vec![count as u64],
    };
    let specs: Vec<_> = counts.iter().enumerate().map(spec).collect();
    let ranges = vec![1.0; specs.len()];
    Agreement::new(specs, ranges, 10).unwrap()
}

/// Chunks of different contributors, as a deadline leaves them, over tensors that end within chunks, at their
/// borders and nowhere.
#[test]
fn each_chunk_opens_over_its_own_contributors() {
    for key in [over(4096), over(8192), generate(Scheme::Paillier2048, 3, 16)] {
        let each = key.public().parameters().geometry().values_per_chunk();
        for counts in [vec![4 * each], vec![0, each, 0, each / 2, 2 * each + each.div_ceil(2), 0]] {
            chunks_open_over_their_own(&key, &tensors_of(&counts));
        }
    }
}

fn chunks_open_over_their_own(key: &Key, agreement: &Agreement) {
    let public = key.public();
    let each = public.parameters().geometry().values_per_chunk();
    let contributions: Vec<_> = (1..=3u32)
        .map(|c| contribute(key, c as u16 - 1, &vec![32767 + c; 4 * each], c, agreement))
        .collect();
    let mut accumulator = Accumulator::new(public, engine(), agreement.values());
    let chunks = *accumulator.chunks();
    let mut sets = vec![];
    for (chunk, who) in [vec![0, 1, 2], vec![0, 2], vec![1], vec![0, 1, 2]].iter().enumerate() {
        let mut set = ContributorSet::none(3);
        for &c in who {
            let at = chunks.offset_of(chunk as u32);
            let bytes = &contributions[c].stream[at..at + chunks.bytes_of(chunk as u32)];
            accumulator.check(chunk as u32..chunk as u32 + 1, bytes).unwrap();
            accumulator.add(chunk as u32..chunk as u32 + 1, bytes).unwrap();
            set.insert(c);
        }
        sets.push(set);
    }
    let counts = counts(&sets);
    let finish = |chunk: u32| accumulator.finish(chunk, counts[chunk as usize]).unwrap();
    let stream: Vec<u8> = (0..4).flat_map(finish).collect();
    assert_eq!(accumulator.into_stream(&counts).unwrap(), stream);
    let mut sum = key.sum(&contributions, sets, stream);
    let opened = key.open(&sum).unwrap();
    assert_eq!(opened.parts(), [(3, 6), (2, 4), (1, 2), (3, 6)]);
    for (chunk, expected) in [(0, 6), (1, 4), (2, 2), (3, 6)] {
        assert_eq!(opened.sums()[chunk * each], expected);
    }
    let mean = opened.decode(&sum, Output::Mean).unwrap();
    let first = mean.tensors().iter().flat_map(|t| t.values().unwrap()).next().unwrap();
    assert!((first - 10.0 / 32767.0).abs() < 1e-9, "Σv·W/Σw/L = 6·10/6/L: {first}");
    for output in [Output::Mean, Output::Sum] {
        let expected = opened.decode(&sum, output).unwrap();
        let decoded = key.decrypt(&sum, output).unwrap();
        let same = decoded.to_safetensors() == expected.to_safetensors();
        assert!(same, "at once, {output:?}");
        let file = tempfile::tempfile().unwrap();
        let to = Destination::File { file: &file, template: None, observe: &|_| () };
        open_to(&key.secret, &*engine(), &sum, &key.job, output, to).unwrap();
        let mut written = vec![];
        (&file).rewind().unwrap();
        (&file).read_to_end(&mut written).unwrap();
        assert!(Ok(written) == expected.to_safetensors(), "to a file, {output:?}");
        let values = decoded.tensors().iter().flat_map(|t| t.values().unwrap()).collect::<Vec<_>>();
        assert_eq!(values.len(), 4 * each);
        let unit = f64::from(sum.agreement.max_weight()) / 32767.0;
        for (i, (value, &v)) in values.iter().zip(opened.sums()).enumerate() {
            let weight = opened.parts()[i / each].1 as f64;
            let divisor = if output == Output::Mean { weight } else { 1.0 };
            assert!((value - v as f64 * unit / divisor).abs() < 1e-6, "value {i}");
        }
    }

    // A set that is not true of its chunk does not decrypt to nonsense, it is refused.
    sum.sets[1].insert(1);
    assert_eq!(key.open(&sum).err(), Some(Error::NotTheirs { contributors: 3 }));
    sum.sets[1] = ContributorSet::none(3);
    assert_eq!(key.open(&sum).err(), Some(Error::Empty { chunk: 1 }));
}
