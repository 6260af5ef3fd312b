//! The one of several faults of a sum that is reported: the same however it is opened.

use ciphergram_he::{
    Accumulator, Agreement, ContributorSet, Dtype, Error, Sum, TensorSpec, Update, codec::Output,
    params::Scheme,
};

use crate::support::sums::{Key, contribute, counts, engine, generate, ring_degree};

/// A sum of `CONTRIBUTORS` over `groups` whole groups of chunks, with every value at its largest: more
/// than the types of tensors `1`, of three values, and `3` hold, which ends with the last chunk.
fn largest(key: &Key, groups: usize) -> Sum {
    let parameters = key.public().parameters();
    let g = parameters.geometry();
    let values = groups * g.group_chunks * g.values_per_chunk();
    let spec = |(i, (dtype, count)): (usize, (Dtype, usize))| TensorSpec {
        name: i.to_string(),
        dtype,
        shape: vec![count as u64],
    };
    let (rest, f16) = (values - 1010, Dtype::F16);
    let tensors = [(Dtype::F32, 7), (f16, 3), (Dtype::F64, rest), (f16, 1000)];
    let specs: Vec<_> = tensors.into_iter().enumerate().map(spec).collect();
    let agreement = Agreement::new(specs, vec![60_000.0; 4], 1).unwrap();
    let fields = vec![2 * parameters.half_steps(); values];
    let clients = 0..CONTRIBUTORS as u16;
    key.aggregate(clients.map(|client| contribute(key, client, &fields, 1, &agreement))).unwrap()
}

const CONTRIBUTORS: usize = 3;

/// The error of either way of opening.
fn fault(key: &Key, sum: &Sum, output: Output) -> Option<Error> {
    let at_once = key.decrypt(sum, output).err();
    let open = || -> Result<Update, Error> { key.open(sum)?.decode(sum, output) };
    assert_eq!(at_once, open().err());
    at_once
}

fn overflow(tensor: &str) -> Option<Error> {
    Some(Error::Overflow { tensor: tensor.into(), index: 0, dtype: "F16" })
}

/// One error for whatever was wrong, wherever.
const NOT_THEIRS: Option<Error> = Some(Error::NotTheirs { contributors: CONTRIBUTORS });

/// Some of the contributors.
fn set(indices: &[usize]) -> ContributorSet {
    let mut set = ContributorSet::none(CONTRIBUTORS);
    indices.iter().for_each(|&i| set.insert(i));
    set
}

#[test]
fn overflow_hides_nothing_else() {
    for (scheme, clients, bits, degree) in [
        (Scheme::CkksSum, 64, 16, Some(4096)),
        (Scheme::CkksSum, 10, 16, Some(8192)),
        (Scheme::Paillier2048, 3, 16, None),
    ] {
        let key = generate(scheme, clients, bits);
        assert_eq!(degree, key.public().parameters().rlwe().map(|_| ring_degree(&key)));
        let g = *key.public().parameters().geometry();
        // Of a ciphertext alone, more.
        let groups = if degree.is_some() { 2 } else { 16 };
        let honest = largest(&key, groups);
        assert_eq!(fault(&key, &honest, Output::Mean), None);
        assert_eq!(fault(&key, &honest, Output::Sum), overflow("1"));

        // What is no sum, as late as can be.
        let last = groups * g.group_chunks - 1;
        let mut sum = honest.clone();
        let at = last * g.chunk_bytes();
        sum.stream[at] ^= 1;
        for output in [Output::Mean, Output::Sum] {
            assert_eq!(fault(&key, &sum, output), NOT_THEIRS);
        }
        // Of sets that are sorted the other way round than their chunks, and of the one that is true.
        let mut sum = honest.clone();
        sum.sets[1] = set(&[0, 1]);
        sum.sets[2] = set(&[1]);
        sum.sets[3] = set(&[0]);
        assert_eq!(fault(&key, &sum, Output::Sum), NOT_THEIRS);
        sum.sets[1] = ContributorSet::all(CONTRIBUTORS);
        assert_eq!(fault(&key, &sum, Output::Sum), NOT_THEIRS);
        // What is no ciphertext goes before everything.
        sum.stream[last * g.chunk_bytes()..][..512].fill(0xff);
        let reported = fault(&key, &sum, Output::Sum);
        assert!(
            matches!(reported, Some(Error::Ciphertext { chunk, .. }) if chunk as usize == last)
        );
    }
}

/// Values that overflow in chunks of other contributors: the first by its place is reported.
#[test]
fn the_first_overflow_is_told_whatever_the_sets() {
    let key = generate(Scheme::CkksSum, 10, 16);
    let g = *key.public().parameters().geometry();
    let each = g.values_per_chunk();
    let spec = TensorSpec { name: "t".into(), dtype: Dtype::F16, shape: vec![4 * each as u64] };
    let agreement = Agreement::new(vec![spec], vec![60_000.0], 1).unwrap();
    let most = 2 * key.public().parameters().half_steps();
    // Nothing but in the second chunk and the third.
    let fields: Vec<u32> =
        (0..4 * each).map(|i| if matches!(i / each, 1 | 2) { most } else { most / 2 }).collect();
    let contributions = [0, 1, 2].map(|client| contribute(&key, client, &fields, 1, &agreement));
    let mut accumulator = Accumulator::new(key.public(), engine(), agreement.values());
    let sets = [set(&[0]), set(&[1, 2]), set(&[0, 1]), set(&[0])];
    let bytes = g.chunk_bytes();
    for (chunk, set) in sets.iter().enumerate() {
        for i in set.iter() {
            let own = &contributions[i].stream[chunk * bytes..][..bytes];
            accumulator.add(chunk as u32..chunk as u32 + 1, own).unwrap();
        }
    }
    let stream = accumulator.into_stream(&counts(&sets)).unwrap();
    let sum = key.sum(&contributions, sets.into(), stream);
    assert!(sum.sets[2] < sum.sets[1], "the later is opened first");
    let first = Error::Overflow { tensor: "t".into(), index: each, dtype: "F16" };
    assert_eq!(fault(&key, &sum, Output::Sum), Some(first));
}

/// Ciphertexts are checked piece by piece, range and then factors: a stream of more than one run reports
/// the same fault whether it is verified or opened.
#[test]
fn the_first_piece_with_a_fault_is_reported() {
    let key = generate(Scheme::Paillier2048, 3, 16);
    let mut sum = largest(&key, 600);
    let g = *key.public().parameters().geometry();
    let n = key.public().paillier().unwrap().n().words().to_vec();
    let chunk = |sum: &mut Sum, chunk: usize, words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let own = &mut sum.stream[chunk * g.chunk_bytes()..][..g.unit_bytes];
        own.fill(0);
        own[..bytes.len()].copy_from_slice(&bytes);
    };
    let first = |sum: &Sum| {
        let reported = fault(&key, sum, Output::Mean);
        assert_eq!(key.verify(sum).err(), reported);
        match reported {
            Some(Error::Ciphertext { chunk, .. }) => chunk,
            other => panic!("{other:?}"),
        }
    };
    // Out of range: in the last run, and after a factor of n in an earlier piece.
    chunk(&mut sum, 599, &[0]);
    assert_eq!(first(&sum), 599);
    chunk(&mut sum, 300, &[0]);
    assert_eq!(first(&sum), 300);
    chunk(&mut sum, 10, &n);
    assert_eq!(first(&sum), 10);
}
