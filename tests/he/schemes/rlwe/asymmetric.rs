//! Sums under `ckks-sum-public`: by keys that cannot open them, exact.

use ciphergram_accel::beats;
use ciphergram_he::{
    Accumulator, AnyKey, Contribution, ContributorSet, Error, KeyRef, SealPermit, Sum, aggregate,
    codec::Output,
    error::CiphertextFault,
    params::{Chunks, Scheme},
};
use ciphergram_tests::cases;
use proptest::prelude::*;

use crate::support::frames;
use crate::support::sums::{
    Key, ROUND, agreement, assert_exact, contribute, contribute_with, counts, engine, extremes,
    generate, ring_degree, scattered, sealer,
};

/// A key of five clients.
fn of_five() -> Key {
    let key = generate(Scheme::CkksSumPublic, 5, 16);
    assert_eq!(ring_degree(&key), 8192, "the cheaper ring");
    key
}

fn chunks(key: &Key, values: usize) -> Chunks {
    key.public().parameters().chunks(values)
}

/// Values of a whole polynomial.
fn polynomial(key: &Key) -> usize {
    let g = key.public().parameters().geometry();
    g.value_chunks * g.values_per_chunk()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(16)))]

    /// Random tensors, client counts and bit widths.
    #[test]
    fn sums_are_exact(
        (clients, bits) in (1u32..=64, 8u32..=24),
        values in 0usize..3000,
        seed in any::<u64>(),
        spare in 0u32..3,
    ) {
        let key = generate(Scheme::CkksSumPublic, clients + spare, bits);
        assert_exact(&key, &scattered(&key, clients, values, seed));
    }
}

#[test]
fn extreme_values_of_a_full_house_are_exact() {
    for (clients, bits) in [(1, 8), (1, 24), (3, 24), (16, 12), (64, 16), (64, 19), (97, 18)] {
        let key = generate(Scheme::CkksSumPublic, clients, bits);
        assert_exact(&key, &vec![(extremes(&key), u32::MAX); clients as usize]);
    }
}

#[test]
fn a_thousand_contributors_at_their_largest_are_exact() {
    for bits in [16, 24] {
        let key = generate(Scheme::CkksSumPublic, 1024, bits);
        let most = 2 * key.public().parameters().half_steps();
        assert_exact(&key, &vec![(vec![most; 700], u32::MAX); 1024]);
    }
}

#[test]
fn sums_around_the_borders_of_chunks_and_polynomials_are_exact() {
    let key = of_five();
    let g = key.public().parameters().geometry();
    let (fields, each, whole) = (g.fields_per_slot, g.values_per_chunk(), polynomial(&key));
    let around = |size: usize| [size - 1, size, size + 1];
    let sizes = [fields, 5 * fields, each, 2 * each, whole, whole + each, 2 * whole];
    for values in sizes.into_iter().flat_map(around).chain([0]) {
        assert_exact(&key, &scattered(&key, 3, values, values as u64));
    }
}

/// Masks come first, whole, and a chunk of zeros; the last chunk alone is cut; every value is in one chunk.
#[test]
fn masks_and_guards_lead_their_groups_and_carry_no_values() {
    let key = of_five();
    let g = *key.public().parameters().geometry();
    let (mask, guard, carrying) = (164, 1, 162);
    assert_eq!((g.mask_chunks, g.guard_chunks, g.value_chunks), (mask, guard, carrying));
    let (each, group) = (g.values_per_chunk(), mask + guard + carrying);
    let whole = carrying * each;
    for values in [0, 1, each, each + 1, whole - 1, whole, whole + 1, 2 * whole + 5 * each] {
        let chunks = chunks(&key, values);
        let groups = values.div_ceil(whole).max(1);
        let expected = groups * (mask + guard) + values.div_ceil(each).max(1);
        assert_eq!(chunks.count() as usize, expected, "{values} values");
        let covered = (0..chunks.count()).flat_map(|c| chunks.values_of(c));
        assert!(covered.eq(0..values));
        for chunk in 0..chunks.count() {
            let place = chunk as usize % group;
            assert_eq!(chunks.is_mask(chunk), place < mask);
            assert_eq!(chunks.carries_values(chunk), place > mask);
            let last = chunk + 1 == chunks.count();
            assert!(last || chunks.bytes_of(chunk) == 1280);
            assert!(place > mask || chunks.values_of(chunk).is_empty());
            let start = chunk as usize / group * group;
            let end = (start + group).min(expected);
            assert_eq!(chunks.opening_with(chunk), start as u32..end as u32);
        }
        let bytes: usize = (0..chunks.count()).map(|c| chunks.bytes_of(c)).sum();
        assert_eq!(bytes, chunks.total_bytes());
    }
}

#[test]
fn bytes_a_value_are_what_the_project_promises() {
    // A guard is one chunk of 327; a head of two slots would be one more.
    for (clients, bits, limit) in [(10, 16, 6.60), (64, 8, 4.40), (64, 16, 7.55), (1024, 16, 8.80)]
    {
        let key = generate(Scheme::CkksSumPublic, clients, bits);
        let bytes = key.public().parameters().geometry().bytes_per_value();
        assert!(bytes <= limit && bytes > limit - 0.02, "{clients}, {bits}: {bytes}");
    }
}

#[test]
fn a_client_contributes_without_the_secret() {
    let key = of_five();
    let folder = tempfile::tempdir().unwrap();
    let [public, client, whole] =
        ["public", "client", "secret"].map(|name| folder.path().join(name));
    key.public().save(&public).unwrap();
    key.client(3).save(&client).unwrap();
    key.secret.save(&whole).unwrap();
    // All are read from their files.
    let read = |path| std::fs::read_to_string(path).unwrap();
    let (public, client, whole) = (read(public), read(client), read(whole));
    assert!(whole.len() < 1000 && public.len() > 8192, "the secret file is two seeds");
    let [public, client, whole] =
        [public, client, whole].map(|text| AnyKey::from_json(&text).unwrap());
    for read in [&public, &client, &whole] {
        assert_eq!(read.public().id(), key.public().id());
    }
    assert!(public.as_client(Some(0)).is_err(), "who sums encrypts nothing");
    let agreement = agreement(900, 9);
    let contribute = |as_client: KeyRef<'_>, value, weight| {
        contribute_with(as_client, &key.job, &vec![value; 900], weight, &agreement)
    };
    let first = contribute(client.as_client(None).unwrap(), 1000, 2);
    let second = contribute(whole.as_client(Some(1)).unwrap(), 3000, 3);
    let sum = key.aggregate([first, second]).unwrap();
    let opened = key.open(&sum).unwrap();
    let half = i64::from(key.public().parameters().half_steps());
    assert!(opened.sums().iter().all(|&s| s == 4000 - 2 * half));
    // Masks and guards are of the same contributors and weights as the values.
    assert_eq!(opened.parts().len() as u32, chunks(&key, 900).count());
    assert!(opened.parts().iter().all(|&part| part == (2, 5)));
    let mean = opened.decode(&sum, Output::Mean).unwrap();
    assert_eq!(mean.tensors()[0].values().unwrap().len(), 900);
}

/// Two contributions of the same update have nothing in common.
#[test]
fn no_randomness_is_used_twice() {
    let key = of_five();
    let agreement = agreement(polynomial(&key) + 1, 1);
    let fields = vec![7; agreement.values()];
    let client = key.client(0);
    let [one, two] = [(); 2].map(|()| contribute_with(&client, &key.job, &fields, 1, &agreement));
    assert!(one.contributor.seed != two.contributor.seed);
    let group = key.public().parameters().geometry().group_chunks() * 1280;
    let (first, second) = (&one.stream[..group], &one.stream[group..]);
    // Past the end of a mask there are whole beats of zeros.
    let same = |(a, b): &(&[u8], &[u8])| a == b && a.iter().any(|&byte| byte != 0);
    let equal = |a: &[u8], b: &[u8]| a.chunks(64).zip(b.chunks(64)).filter(same).count();
    assert_eq!(equal(&one.stream, &two.stream), 0);
    assert_eq!(equal(first, second), 0, "polynomials of one contribution");
}

#[test]
fn a_sum_of_other_contributors_within_a_polynomial_is_refused() {
    let key = of_five();
    let g = *key.public().parameters().geometry();
    let values = polynomial(&key) + 2 * g.values_per_chunk();
    let agreement = agreement(values, 1);
    let contributions =
        [0, 1].map(|client| contribute(&key, client, &vec![9; values], 1, &agreement));
    let chunks = chunks(&key, values);
    let group = g.group_chunks() as u32;
    // One contributor is everywhere, the other in `with`.
    let sum = |with: &dyn Fn(u32) -> bool| {
        let mut accumulator = Accumulator::new(key.public(), engine(), values);
        let mut sets = vec![];
        for chunk in 0..chunks.count() {
            let mut set = ContributorSet::none(2);
            for c in (0..2).filter(|&c| c == 0 || with(chunk)) {
                let at = chunks.offset_of(chunk);
                let bytes = &contributions[c].stream[at..at + chunks.bytes_of(chunk)];
                accumulator.check(chunk..chunk + 1, bytes).unwrap();
                accumulator.add(chunk..chunk + 1, bytes).unwrap();
                set.insert(c);
            }
            sets.push(set);
        }
        let stream = accumulator.into_stream(&counts(&sets)).unwrap();
        key.sum(&contributions, sets, stream)
    };
    let open = |sum: &Sum| key.open(sum);
    // Whole polynomials may differ.
    let opened = open(&sum(&|chunk| chunk < group)).unwrap();
    let half = i64::from(key.public().parameters().half_steps());
    let counts = |i: usize| if i < polynomial(&key) { 2 } else { 1 };
    assert!((0..values).all(|i| opened.sums()[i] == counts(i) * (9 - half)));
    assert_eq!(opened.parts()[0], (2, 2));
    assert_eq!(opened.parts()[group as usize], (1, 1));
    for missing in [0, 1, group - 1, group, chunks.count() - 1] {
        let sum = sum(&|chunk| chunk != missing);
        let of = chunks.opening_with(missing);
        let error = open(&sum).err().unwrap();
        assert_eq!(error, Error::MixedContributors { start: of.start, end: of.end });
        assert!(error.to_string().ends_with("sum whole contributions"), "{error}");
        // A list that is not true of its chunks does not help.
        let lie = Sum { sets: vec![ContributorSet::all(2); sum.sets.len()], ..sum };
        assert_eq!(open(&lie).err(), Some(Error::NotTheirs { contributors: 2 }));
    }
}

#[test]
fn what_is_past_the_end_of_a_mask_must_be_zero() {
    let key = of_five();
    let g = *key.public().parameters().geometry();
    let whole = contribute(&key, 0, &[9; 5], 1, &agreement(5, 1));
    // Two polynomials, checked in more than one piece.
    let far_values = polynomial(&key) + 2 * g.values_per_chunk();
    let far = contribute(&key, 0, &vec![9; far_values], 1, &agreement(far_values, 1));
    let honest = key.aggregate([far.clone()]).unwrap();
    assert_eq!(key.verify(&honest), Ok(()));
    let limbs = key.public().parameters().rlwe().unwrap().ring.primes().len();
    let lanes = g.mask_chunks * 1280 / beats::BYTES * beats::LANES;
    for lane in [8192 * limbs, lanes - 1] {
        let mut stray = whole.clone();
        let at = lane / beats::LANES * beats::BYTES;
        let beat = &mut stray.stream.to_mut()[at..at + beats::BYTES];
        let mut words: Vec<u64> =
            beat.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        assert_eq!(beats::lane(&words, lane % beats::LANES), 0);
        beats::set_lane(&mut words, lane % beats::LANES, 1);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        beat.copy_from_slice(&bytes);
        // The chunk of each group that it may be in, and what follows, which may hold anything.
        for (group, is_mask) in [(0, true), (1, true), (1, false)] {
            let mut contribution = far.clone();
            let place = g.mask_chunks - usize::from(is_mask);
            let chunk = group * g.group_chunks() + place;
            let from = (g.mask_chunks - 1) * 1280;
            let own = chunk * 1280..(chunk + 1) * 1280;
            contribution.stream.to_mut()[own.clone()]
                .copy_from_slice(&stray.stream[from..from + 1280]);
            let lane = lane % (1280 / beats::BYTES * beats::LANES);
            let why = "is past the end of its polynomial, but not zero";
            let fault = CiphertextFault::Item { item: "residue", index: lane, why };
            let chunk = chunk as u32;
            let error = Error::Ciphertext { chunk, fault };
            let mut accumulator = Accumulator::new(key.public(), engine(), far_values);
            let reported = accumulator.check(chunk..chunk + 1, &contribution.stream[own]);
            let sum = Sum { stream: contribution.stream.to_vec(), ..honest.clone() };
            let added = key.aggregate([contribution]);
            let (opened, verified) = (key.open(&sum).err(), key.verify(&sum));
            if is_mask {
                // At the door, in a file, and of a sum: with the secret or without.
                assert_eq!(reported, Err(fault));
                assert_eq!(added.err(), Some(error.clone().within(0)));
                assert_eq!((opened, verified), (Some(error.clone()), Err(error)));
            } else {
                assert_eq!((reported, verified), (Ok(()), Ok(())));
                let not_theirs = Error::NotTheirs { contributors: 1 };
                assert!(added.is_ok() && opened == Some(not_theirs));
            }
        }
    }
}

#[test]
fn a_contribution_is_resumed_at_a_polynomial_only() {
    let key = of_five();
    let values = 6 * polynomial(&key) + 5;
    let agreement = agreement(values, u32::MAX);
    let fields: Vec<u32> = (0..values as u32).map(|i| i % 60_000).collect();
    let chunks = chunks(&key, values);
    let group = key.public().parameters().geometry().group_chunks() as u32;
    let client = key.client(2);
    let (own, holder) = (KeyRef::from(&client), key.secret.as_client(2));
    let resume = |seed, next, own: KeyRef<'_>| {
        sealer(own, &key.job, (&fields, 1), SealPermit::resume(seed, next))
    };
    let seed = || SealPermit::draw().unwrap().seed();
    for next in [1, group - 1, group + 1, 6 * group + 1, chunks.count() - 1] {
        let start = next / group * group;
        let end = chunks.count().min(start + group);
        for key in [own, holder] {
            let error = resume(seed(), next, key).err().unwrap();
            assert_eq!(error, Error::ResumedWithin { next, start, end });
            assert!(error.to_string().contains(&format!("resume at chunk {start}")), "{error}");
        }
    }
    // What a batch of another process left, and the rest of it under the same seed.
    let permit = SealPermit::draw().unwrap();
    let mut begun = sealer(own, &key.job, (&fields, 1), permit).unwrap();
    let mut stream = begun.next_batch().unwrap().unwrap();
    let sealed = (stream.len() / 1280) as u32;
    assert_eq!(sealed, 4 * group, "batches are of whole polynomials");
    let contributor = begun.contributor();
    let seed = contributor.seed;
    assert_eq!(resume(seed, 0, holder).err(), Some(Error::SeedReused { sealed }));
    stream.extend(resume(seed, sealed, own).unwrap().seal_all().unwrap());
    assert_eq!(resume(seed, chunks.count(), holder).unwrap().next_batch(), Ok(None));
    let (job, stream) = (key.job.id(), stream.into());
    let whole = Contribution { contributor, job, round: ROUND, agreement, stream, keys: None };
    let opened = key.open(&key.aggregate([whole]).unwrap()).unwrap();
    let half = i64::from(key.public().parameters().half_steps());
    assert!(opened.sums().iter().zip(&fields).all(|(&s, &f)| s == i64::from(f) - half));
}

/// More polynomials than one run opens.
#[test]
fn long_sums_open() {
    let key = of_five();
    let values = 10 * polynomial(&key) + 7;
    assert_exact(&key, &scattered(&key, 2, values, 5));
}

#[test]
fn the_two_kinds_of_key_are_never_summed_together() {
    let (kinds, plain) = ([Scheme::CkksSum, Scheme::CkksSumPublic], agreement(5, 1));
    let keys = kinds.map(|scheme| generate(scheme, 3, 16));
    for (here, there) in [(0, 1), (1, 0)] {
        let made = contribute(&keys[here], 0, &[1; 5], 1, &plain);
        let bytes = made.to_bytes(keys[here].public());
        let [found, expected] = [here, there].map(|kind| kinds[kind].to_string());
        let mismatch = Error::KeyMismatch { what: "it is of scheme", found, expected };
        let error = Contribution::from_bytes(&bytes, keys[there].public()).err().unwrap();
        assert_eq!(error, mismatch);
        let text = format!("it is of scheme {}, not {}", kinds[here], kinds[there]);
        assert!(error.to_string().starts_with(&text), "{error}");
        let sum = keys[here].aggregate([made]).unwrap();
        let bytes = sum.to_bytes(keys[here].public());
        let error = Sum::from_bytes(&bytes, keys[there].public()).err();
        assert_eq!(error, Some(mismatch));
    }
    // Nor those of two keys of one kind.
    let other = generate(Scheme::CkksSumPublic, 3, 16);
    let bytes = contribute(&other, 0, &[1; 5], 1, &plain).to_bytes(other.public());
    let error = Contribution::from_bytes(&bytes, keys[1].public()).err();
    assert!(matches!(error, Some(Error::KeyMismatch { what: "it was made under key", .. })));
}

/// Bits flipped anywhere in a frame, with a digest that vouches for them: nothing panics, and nothing opens.
#[test]
fn changed_frames_never_open() {
    let key = of_five();
    let public = key.public();
    let agreement = agreement(400, 9);
    let [one, two] = [(0, 1000), (1, 3000)]
        .map(|(i, value)| contribute(&key, i, &[value; 400], u32::from(i) + 2, &agreement));
    let sum = key.aggregate([one.clone(), two.clone()]).unwrap();
    assert!(key.open(&sum).is_ok());
    let (contribution, sum) = (one.to_bytes(public), sum.to_bytes(public));
    let read_sum = |bytes: &[u8]| Sum::from_bytes(bytes, public);
    let (mut refused, mut closed) = (0, 0);
    let mut try_one = |sum: Result<Sum, Error>, at: usize| match sum {
        Err(_) => refused += 1,
        Ok(sum) => {
            assert!(key.open(&sum).is_err(), "byte {at}");
            closed += 1;
        }
    };
    // Every byte before the ciphertexts, and some of those.
    for (file, step) in [(&contribution, 2003), (&sum, 2003)] {
        let body = file.len() - 32;
        let stream = body - one.stream.len();
        // But the length of the body, which is made true again.
        let header = (10..40).chain(48..stream);
        for (at, bit) in header.chain((stream..body).step_by(step)).zip((0..8).cycle()) {
            let mut bytes = file.clone();
            bytes[at] ^= 1 << bit;
            frames::vouch(&mut bytes);
            if std::ptr::eq(file, &sum) {
                try_one(read_sum(&bytes), at);
            } else {
                let changed = Contribution::from_bytes(&bytes, public);
                let both = [("a", changed), ("b", Ok(two.clone()))];
                try_one(aggregate(public, &key.job, engine(), both), at);
            }
        }
        for cut in [0, 47, 48, 100, stream, body, file.len() - 1] {
            assert!(read_sum(&file[..cut]).is_err());
            assert!(Contribution::from_bytes(&file[..cut], public).is_err());
        }
    }
    assert!(refused > 50 && closed > 100, "{refused} {closed}");
}
