//! Faults of contributions to `ckks-sum` and of sums: one error each, over both rings,
//! wherever in the file or the tensors it is.

use std::sync::Arc;

use ciphergram_accel::{Engine, Info, Operand, Program, RunError, beats, program::Step};
use ciphergram_he::{
    Accumulator, Agreement, Contribution, Contributor, ContributorSet, Dtype, Error, Job, Limits,
    Parameters, PublicKey, Quantised, SealPermit, SecretKey, Sum, Tensor, TensorSpec, Update,
    codec::{Policy, RangesFile},
    error::CiphertextFault,
    error::FrameError,
    exchange::Announcement,
    frame::{Frame, MadeWith},
    params::{Chunks, Literal, Scheme},
};

use crate::support::frames::{Seeds, both_rings, engine};

/// Reads the file as what it is, for its error.
fn read(bytes: &[u8], is_sum: bool, key: &PublicKey) -> Result<(), Error> {
    if is_sum {
        Sum::from_bytes(bytes, key).map(|_| ())
    } else {
        Contribution::from_bytes(bytes, key).map(|_| ())
    }
}

/// A contribution and a sum, and which it is.
fn files(seeds: &Seeds) -> [(&[u8], bool); 2] {
    [(&seeds.contributions[0], false), (&seeds.sum, true)]
}

fn sum(seeds: &Seeds, contributions: Vec<Contribution<'_>>) -> Result<Sum, String> {
    let named = contributions.into_iter().enumerate().map(|(i, c)| (format!("{i}.cgm"), Ok(c)));
    seeds.aggregate(named).map_err(|e| e.to_string())
}

fn agreement(values: usize) -> Agreement {
    let spec = TensorSpec { name: "t".into(), dtype: Dtype::F32, shape: vec![values as u64] };
    Agreement::new(vec![spec], vec![1.0], 1).unwrap()
}

/// Zeros, which are residues too: enough for what is refused before it is opened.
fn zeros(seeds: &Seeds, number: u16, values: usize) -> Contribution<'static> {
    let stream = vec![0; seeds.public().parameters().chunks(values).total_bytes()];
    let contributor = Contributor { number, seed: SealPermit::draw().unwrap().seed() };
    let (job, agreement) = (seeds.job.id(), agreement(values));
    Contribution { contributor, job, round: 0, agreement, stream: stream.into(), keys: None }
}

#[test]
fn a_file_cut_at_any_length_is_truncated() {
    for seeds in both_rings() {
        for (bytes, is_sum) in files(&seeds) {
            assert_eq!(read(bytes, is_sum, seeds.public()), Ok(()));
            for end in 0..bytes.len() {
                let why = if end == 0 { FrameError::Magic } else { FrameError::Truncated };
                let found = read(&bytes[..end], is_sum, seeds.public());
                assert_eq!(found, Err(why.into()), "{end} of {}", bytes.len());
            }
            let longer = read(&[bytes, &[0]].concat(), is_sum, seeds.public());
            let why = FrameError::Malformed { what: "bytes past the end" };
            assert_eq!(longer, Err(why.into()));
        }
    }
}

#[test]
fn a_bit_flipped_in_any_byte_is_found() {
    for seeds in both_rings() {
        for (whole, is_sum) in files(&seeds) {
            let mut bytes = whole.to_vec();
            for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                bytes[at] ^= 1 << bit;
                let Err(Error::Frame(fault)) = read(&bytes, is_sum, seeds.public()) else {
                    panic!("bit {bit} of byte {at}")
                };
                let clear = match at {
                    0..8 => fault == FrameError::Magic,
                    // Versions 6 and 5, a bit away, are read.
                    8 if bit < 2 => fault == FrameError::Damaged,
                    8..10 => matches!(fault, FrameError::Version { .. }),
                    // A wrong length ends the body too late or too early.
                    40..48 => {
                        let past = FrameError::Malformed { what: "bytes past the end" };
                        fault == FrameError::Truncated || fault == past
                    }
                    _ => fault == FrameError::Damaged,
                };
                assert!(clear, "bit {bit} of byte {at}: {fault}");
                bytes[at] ^= 1 << bit;
            }
            assert_eq!(bytes, whole);
        }
    }
}

#[test]
fn files_of_other_parameters_or_another_key_say_which() {
    let [ten, many] = both_rings();
    for (seeds, other) in [(&ten, &many), (&many, &ten)] {
        let (here, there) = (seeds.clients, other.clients);
        let literal = Literal { scheme: Scheme::CkksSum, clients: here as u32, bits: 16 };
        let stranger = SecretKey::generate(literal).unwrap();
        let (made, given) = (seeds.public().id(), stranger.public().id());
        for (bytes, is_sum) in files(seeds) {
            let error = read(bytes, is_sum, other.public()).unwrap_err().to_string();
            let expected = format!(
                "its parameter set is {here} clients at 16 bits, not {there} clients at 16 bits: all take part with \
                 the files of one keygen"
            );
            assert_eq!(error, expected);
            let error = read(bytes, is_sum, stranger.public()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("it was made under key {made}")), "{error}");
            assert!(error.contains(&given.to_string()), "{error}");
        }
    }
}

#[test]
fn more_contributors_than_declared_are_refused() {
    for seeds in both_rings() {
        let (key, most) = (seeds.public(), seeds.clients);
        let house = |count| (0..count as u16).map(|i| zeros(&seeds, i, 5)).collect::<Vec<_>>();
        let full = sum(&seeds, house(most)).unwrap();
        assert_eq!(full.contributors.len(), most);
        // Numbers run out first.
        let error = sum(&seeds, house(most + 1)).unwrap_err();
        let numbers = "which are numbered from 0";
        let expected = format!("client {most} of {most} clients, {numbers}");
        assert_eq!(error, format!("{most}.cgm: {expected}"));
        // A file can claim any number.
        let contributors: Vec<_> = house(most + 1).into_iter().map(|c| c.contributor).collect();
        let claim = Sum { sets: vec![ContributorSet::all(most + 1)], contributors, ..full };
        let error = Sum::from_bytes(&claim.to_bytes(key), key).unwrap_err();
        let expected = format!("{} contributors, but the key admits at most {most}", most + 1);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn contributions_over_different_ranges_are_refused() {
    for seeds in both_rings() {
        let key = seeds.public();
        let [first, second] =
            [0, 1].map(|i| Contribution::from_bytes(&seeds.contributions[i], key).unwrap());
        let with = |ranges: [f64; 2], max_weight| {
            let specs = second.agreement.specs().to_vec();
            let agreement = Agreement::new(specs, ranges.into(), max_weight).unwrap();
            sum(&seeds, vec![first.clone(), Contribution { agreement, ..second.clone() }])
        };
        assert!(with([1.0, 1.0], 9).is_ok());
        let end = "; share one ranges file among all clients";
        for (ranges, max_weight, what) in [
            ([2.0, 1.0], 9, "tensor \"b\" has range 2 here and 1 there"),
            ([1.0, 0.0], 9, "tensor \"w\" has range 0 here and 1 there"),
            ([1.0, 1.0 + f64::EPSILON], 9, "tensor \"w\" has range 1.0000000000000002 here"),
            ([1.0, 1.0], 8, "the largest weight is 8 here and 9 there"),
        ] {
            let error = with(ranges, max_weight).unwrap_err();
            let start = format!("1.cgm: the clipping ranges differ: {what}");
            assert!(error.starts_with(&start) && error.ends_with(end), "{error}");
        }
    }
}

/// Overwrites a lane of a chunk.
fn set_lane(chunks: &Chunks, stream: &mut [u8], chunk: usize, lane: usize, residue: u64) {
    let start = chunks.offset_of(chunk as u32) + lane / beats::LANES * beats::BYTES;
    let bytes = &mut stream[start..start + beats::BYTES];
    let mut words: Vec<u64> =
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    assert_eq!(beats::lane(&words, lane % beats::LANES), 0);
    beats::set_lane(&mut words, lane % beats::LANES, residue);
    let each = bytes.as_chunks_mut().0.iter_mut().zip(words);
    each.for_each(|(bytes, word)| *bytes = word.to_le_bytes());
}

#[test]
fn residues_not_below_their_prime_are_named_by_chunk_and_lane() {
    let both = both_rings();
    for (seeds, ring) in both.iter().flat_map(|seeds| [0, 1, 2].map(|ring| (seeds, ring))) {
        let key = seeds.public();
        // Long enough for files to be checked in more than one piece, and of each ring.
        let small = 270 * key.parameters().geometry().values_per_chunk() + 7;
        let larger = key.parameters().larger().map(|(from, _)| from + 7);
        let Some(values) = [small].into_iter().chain(larger).nth(ring) else { continue };
        let (chunks, set) = (key.parameters().chunks(values), key.parameters().of_values(values));
        let (g, lattice) = (set.geometry(), set.rlwe().unwrap());
        let prime = |lane: usize| lattice.ring.primes()[lane % lattice.ring.primes().len()];
        let lanes = g.chunk_bytes() / beats::BYTES * beats::LANES;
        let last = chunks.count() as usize - 1;
        let last_lane = chunks.bytes_of(last as u32) / beats::BYTES * beats::LANES - 1;
        let whole = zeros(seeds, 0, values);
        let places = [(0, 0), (0, lanes - 1), (1, 13), (255, lanes - 1), (256, 0), (269, 7)];
        for (chunk, lane) in places.into_iter().chain([(last, 0), (last, last_lane)]) {
            let mut contribution = whole.clone();
            set_lane(&chunks, contribution.stream.to_mut(), chunk, lane, prime(lane) - 1);
            let fine = sum(seeds, vec![contribution]);
            assert!(fine.is_ok(), "the largest residue of lane {lane}");

            let mut contribution = whole.clone();
            set_lane(&chunks, contribution.stream.to_mut(), chunk, lane, prime(lane));
            // The first of several is named.
            if (chunk, lane) != (last, last_lane) {
                let stream = contribution.stream.to_mut();
                set_lane(&chunks, stream, last, last_lane, prime(last_lane));
            }
            let fault = CiphertextFault::residue(lane);
            let expected = Error::Ciphertext { chunk: chunk as u32, fault };
            let text = format!("chunk {chunk}: residue {lane} is not below its prime");
            assert_eq!(expected.to_string(), text);
            // As it arrives in a round.
            let mut accumulator = Accumulator::new(key, engine(), values);
            let start = chunks.offset_of(chunk as u32);
            let bytes = &contribution.stream[start..start + chunks.bytes_of(chunk as u32)];
            assert_eq!(accumulator.check(chunk as u32..chunk as u32 + 1, bytes), Err(fault));
            // As a sum.
            let mut made = sum(seeds, vec![whole.clone()]).unwrap();
            made.stream = contribution.stream.to_vec();
            let opened = seeds.open(&made).err();
            assert_eq!(seeds.verify(&made).err(), opened);
            assert_eq!(opened, Some(expected));
            let error = sum(seeds, vec![zeros(seeds, 1, values), contribution]).unwrap_err();
            assert_eq!(error, format!("1.cgm: {text}"));
        }
        // The two bits beside the lanes of a beat count as its last lane.
        for bit in [6, 7] {
            let mut contribution = whole.clone();
            contribution.stream.to_mut()[2 * g.chunk_bytes() - 1] = 1 << bit;
            let error = sum(seeds, vec![contribution]).unwrap_err();
            let place = format!("chunk 1: residue {}", lanes - 1);
            assert_eq!(error, format!("0.cgm: {place} is not below its prime"));
        }
    }
}

/// A device, which lacks the steps over lanes.
struct Device;

impl Engine for Device {
    fn name(&self) -> &'static str {
        "device"
    }
    fn info(&self) -> Info {
        Info::of_host("a device alone")
    }
    fn supports(&self, step: &str) -> bool {
        !matches!(step, "first_bad_lane" | "add_lanes" | "reduce_lanes")
    }
    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        match program.steps().map(Step::name).find(|step| !self.supports(step)) {
            Some(step) => Err(RunError::Unsupported { engine: "device", step }),
            None => engine().run(program, operands),
        }
    }
}

/// Chunks that arrive in a round are checked as they are added: what is refused is taken back, cut chunks too.
#[test]
fn what_is_refused_leaves_a_running_sum_as_it_was() {
    for seeds in both_rings() {
        let key = seeds.public();
        let values = 5 * key.parameters().geometry().values_per_chunk() + 7;
        let chunks = key.parameters().chunks(values);
        let count = chunks.count();
        let ring = &key.parameters().rlwe().unwrap().ring;
        let mut good = vec![0; chunks.total_bytes()];
        for chunk in 0..count as usize {
            (0..9).for_each(|lane| set_lane(&chunks, &mut good, chunk, lane, 1 << (40 + lane)));
        }
        let mut sum = Accumulator::new(key, engine(), values);
        for (first, bad) in [(0, 0), (0, 2), (1, count - 1), (count - 1, count - 1)] {
            let mut stream = good.clone();
            set_lane(&chunks, &mut stream, bad as usize, 9, ring.primes()[9 % ring.primes().len()]);
            let run = first..count;
            let refused = sum.add(run.clone(), &stream[chunks.range_of(&run)]);
            let fault = CiphertextFault::residue(9);
            assert_eq!(refused, Err(Error::Ciphertext { chunk: bad, fault }));
            sum.add(run.clone(), &good[chunks.range_of(&run)]).unwrap();
        }
        let mut again = Accumulator::new(key, Arc::new(Device), values);
        for first in [0, 0, 1, count - 1] {
            let run = first..count;
            again.check(run.clone(), &good[chunks.range_of(&run)]).unwrap();
            again.add(run.clone(), &good[chunks.range_of(&run)]).unwrap();
        }
        for chunk in 0..count {
            let times = 2 + u32::from(chunk > 0) + u32::from(chunk == count - 1);
            let finished = sum.finish(chunk, times).unwrap();
            // The lowest lane of the first word.
            let first = u64::from_le_bytes(*finished.first_chunk().unwrap()) & ((1 << 51) - 1);
            assert_eq!(first, u64::from(times) << 40, "chunk {chunk}");
            assert_eq!(Ok(finished), again.finish(chunk, times), "chunk {chunk}");
        }
    }
}

#[test]
fn values_that_are_not_finite_are_named_by_tensor_and_index() {
    let spec = |name: &str, shape: &[u64]| TensorSpec {
        name: name.into(),
        dtype: Dtype::F64,
        shape: shape.into(),
    };
    let specs = [spec("b", &[3]), spec("layer.w", &[40, 80])];
    let update = |bad: &[(usize, usize, f64)]| {
        let tensors = specs.iter().enumerate().map(|(t, spec)| {
            let mut values = vec![0.25; spec.values().unwrap()];
            bad.iter().filter(|bad| bad.0 == t).for_each(|bad| values[bad.1] = bad.2);
            let bytes = values.iter().flat_map(|x: &f64| x.to_le_bytes()).collect();
            Tensor::from_bytes(spec.clone(), bytes)
        });
        Update::new(tensors.collect())
    };
    let agreement = Agreement::new(specs.to_vec(), vec![1.0; 2], 1).unwrap();
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    // Of several the first is named.
    let cases = [
        (vec![(0, 0, nan)], "\"b\" has NaN at index 0"),
        (vec![(0, 2, inf), (1, 0, nan)], "\"b\" has inf at index 2"),
        (vec![(1, 0, -inf)], "\"layer.w\" has -inf at index 0"),
        (vec![(1, 1023, nan), (1, 1024, inf)], "\"layer.w\" has NaN at index 1023"),
        (vec![(1, 1024, inf)], "\"layer.w\" has inf at index 1024"),
        (vec![(1, 3199, nan)], "\"layer.w\" has NaN at index 3199"),
    ];
    for clients in [10, 64] {
        let literal = Literal { scheme: Scheme::CkksSum, clients, bits: 16 };
        let parameters = Parameters::new(literal).unwrap();
        let quantise =
            |update: &Update| Quantised::new(update, &agreement, 1, &parameters, &[1; 32]).err();
        let key = SecretKey::generate(literal).unwrap();
        let job = Job::new(key.public(), Limits::of_key(key.public())).unwrap();
        assert_eq!(quantise(&update(&[(1, 9, 5.0)])), None, "what is only out of range");
        for (bad, what) in &cases {
            let update = update(bad);
            let expected = format!("tensor {what}; only finite numbers can be summed");
            let said = |error: Option<Error>| assert_eq!(error.unwrap().to_string(), expected);
            said(quantise(&update));
            said(RangesFile::measure(&update, Policy::Max, 1).err());
            let seed = SealPermit::draw().unwrap().seed();
            said(Announcement::propose(seed, &job, (0, None), &update, 1, None).err());
        }
    }
}

/// Nothing above is vacuous: the files are what they claim to be.
#[test]
fn the_files_that_tests_and_fuzzing_start_from_open() {
    for seeds in both_rings() {
        let key = seeds.public();
        let frame = Frame::parse(&seeds.sum).unwrap();
        let MadeWith::Sums(literal) = frame.made_with else { panic!("a sum") };
        assert_eq!(literal.clients as usize, seeds.clients);
        let sum = Sum::from_bytes(&seeds.sum, key).unwrap();
        assert_eq!(sum.sets.len(), 2, "a whole chunk and a part of one");
        let opened = seeds.open(&sum).unwrap();
        assert_eq!(opened.parts(), [(2, 5), (2, 5)]);
        assert_eq!(seeds.verify(&sum), Ok(()));
        let read = seeds.contributions.iter().map(|c| ("", Contribution::from_bytes(c, key)));
        assert_eq!(seeds.aggregate(read).unwrap(), sum);
    }
}
