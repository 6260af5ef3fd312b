//! Tags against their definition, in another library's big integers.

use num_bigint::BigUint;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::*;
use crate::{
    Parameters, Quantised, Scheme,
    codec::{FieldRoom, Packing},
    ids::Seed,
    params::{Literal, MAX_CLIENTS},
};

const KEY: [u8; 32] = [7; 32];
const STATEMENT: Statement = Statement([9; 32]);

/// Returns the first words of the ChaCha20 stream under a keyed hash.
fn stream(key: [u8; 32], name: &[u8], count: usize) -> Vec<BigUint> {
    let mut stream = ChaCha20Rng::from_seed(*blake3::keyed_hash(&key, name).as_bytes());
    (0..count).map(|_| stream.next_u64().into()).collect()
}

/// Returns the numbers `r_j` by their definition.
fn coefficients(statement: &Statement, count: usize) -> Vec<BigUint> {
    let key = blake3::derive_key("ciphergram 2026 tag coefficients", &KEY);
    stream(key, &statement.0, count).into_iter().map(|word| word >> 12).collect()
}

/// Returns the pads of all chunks by their definition.
fn pads(statement: &Statement, of: &Contributor, chunks: usize) -> Vec<BigUint> {
    let number = of.number.to_le_bytes();
    let key = blake3::derive_key("ciphergram 2026 tag pads", &[&KEY[..], &number].concat());
    stream(key, &[&statement.0[..], &number, of.seed.bytes()].concat(), chunks)
}

/// Integers of chunks, as one contribution and as a sum have them.
#[derive(Clone)]
struct Chunk {
    count: u64,
    weight: u64,
    values: Vec<u64>,
}

impl Chunk {
    /// Returns `Σ_j r_j · x_j`.
    fn product(&self, r: &[BigUint]) -> BigUint {
        let all = [self.count, self.weight].into_iter().chain(self.values.iter().copied());
        r.iter().zip(all).map(|(r, x)| r * x).sum()
    }
}

/// Slots of a chunk as whole integers.
fn packed(packing: &Packing<'_>, chunk: u32) -> Vec<BigUint> {
    let g = packing.chunks().geometry();
    let mut words = vec![0; (g.fields_per_slot * g.field_bits as usize).div_ceil(64)];
    let mut slots = vec![];
    let mut room = FieldRoom::default();
    let batch = packing.batch(&(chunk..chunk + 1), &mut room).unwrap();
    batch.pack(chunk, 0, &mut words, |slot, words| {
        assert_eq!(slot, slots.len());
        slots.push(words.iter().rev().fold(BigUint::ZERO, |x, &word| (x << 64) + word));
    });
    slots
}

/// Takes `bits` bits from `at` on off the lowest of `slot`, which has nothing below.
fn take(slot: &BigUint, at: u32, bits: u32) -> BigUint {
    (slot >> at) & ((BigUint::from(1u8) << bits) - 1u8)
}

/// Reads the integers and the tag of summed slots.
fn read(p: &Parameters, slots: &[BigUint], values: usize) -> (Chunk, BigUint) {
    let g = p.geometry();
    let (count, weight) = (g.head.count_bits(), g.head.weight_bits());
    let small = |x: BigUint| u64::try_from(x).unwrap();
    let tag = g
        .head
        .tag_parts()
        .map(|part| take(&slots[part.slot], part.at, part.sum_bits) << part.shift)
        .sum();
    let field = |i: usize| {
        let (slot, field) = (i / g.fields_per_slot, i % g.fields_per_slot);
        small(take(&slots[slot], field as u32 * g.field_bits, g.field_bits))
    };
    let chunk = Chunk {
        count: small(take(&slots[0], 0, count)),
        weight: small(take(&slots[0], count, weight)),
        values: (g.head_fields..g.head_fields + values).map(field).collect(),
    };
    (chunk, tag)
}

/// Sets whose heads are of one to three slots, of all schemes.
fn sets() -> Vec<(Parameters, usize)> {
    let set = |scheme, clients, bits| Parameters::new(Literal { scheme, clients, bits }).unwrap();
    vec![
        (set(Scheme::CkksSum, 10, 16), 1),
        (set(Scheme::CkksSum, 64, 16), 2),
        (set(Scheme::CkksSum, MAX_CLIENTS, 24), 1),
        (set(Scheme::Paillier2048, 64, 16), 1),
        (set(Scheme::Paillier3072, 3, 24), 1),
        (set(Scheme::Paillier4096, MAX_CLIENTS, 8), 1),
        (set(Scheme::Plain, 8, 12), 3),
    ]
}

/// Makes a contribution of values that look random, of which every tenth is the largest.
fn contribution(p: &Parameters, values: usize, client: u32) -> (Vec<u32>, u32) {
    let most = 2 * p.half_steps();
    let value = |i: u32| match i % 10 {
        3 => most,
        _ => {
            (client + 1).wrapping_mul(2_654_435_761).wrapping_add(i.wrapping_mul(40_503))
                % (most + 1)
        }
    };
    let weight = if client == 0 { u32::MAX } else { client * 77 + 1 };
    ((0..values as u32).map(value).collect(), weight)
}

#[test]
fn tags_of_chunks_and_of_sums_are_what_their_definition_says() {
    let sum_key = SumKey::new(Zeroizing::new(KEY));
    for (p, slots_of_head) in sets() {
        let (g, name) = (p.geometry(), p.scheme());
        assert_eq!(g.head.slots(), slots_of_head, "{name}, {} clients", p.clients());
        let each = g.values_per_chunk();
        let chunks = p.chunks(each + each / 2);
        let r = coefficients(&STATEMENT, 2 + each);
        let clients = p.clients().min(20);
        let mut contributors = vec![];
        let mut sums = vec![vec![BigUint::ZERO; g.slots_per_chunk]; chunks.count() as usize];
        for client in 0..clients {
            let contributor = Contributor { number: client as u16, seed: Seed::draw().unwrap() };
            let (fields, weight) = contribution(&p, chunks.values(), client);
            let key = sum_key.tag_key(contributor.number);
            let tags = Tags::new(&key, &STATEMENT, &contributor, &chunks, weight);
            let update = Quantised::from_fields(fields.clone(), weight);
            let packing = Packing::new(&update, &chunks, &tags);
            let pads = pads(&STATEMENT, &contributor, chunks.count() as usize);
            for (chunk, sum) in (0..).zip(&mut sums) {
                let own = &fields[chunks.values_of(chunk)];
                let slots = packed(&packing, chunk);
                let (read, tag) = read(&p, &slots, own.len());
                let values = own.iter().map(|&x| x.into()).collect();
                let expected = Chunk { count: 1, weight: weight.into(), values };
                assert_eq!(
                    (read.count, read.weight, &read.values),
                    (1, weight.into(), &expected.values)
                );
                assert_eq!(tag, expected.product(&r) + &pads[chunk as usize], "{name}");
                assert_eq!(BigUint::from(tags.tag(chunk, own)), tag);
                sum.iter_mut().zip(slots).for_each(|(sum, slot)| *sum += slot);
            }
            contributors.push((contributor, pads));
        }
        let listed: Vec<_> = contributors.iter().map(|(contributor, _)| *contributor).collect();
        let mut one = ContributorSet::all(listed.len());
        let sets: Vec<_> = (0..chunks.count()).map(|_| one.clone()).collect();
        let expected =
            ExpectedTags::new(SumTags::Padded(&sum_key), &STATEMENT, &listed, &sets, &chunks);
        let offset = i64::from(clients * p.half_steps());
        for (chunk, slots) in (0..).zip(&sums) {
            let (sum, tag) = read(&p, slots, chunks.values_of(chunk).len());
            let pads: BigUint = contributors.iter().map(|(_, pads)| &pads[chunk as usize]).sum();
            assert_eq!(tag, sum.product(&r) + pads, "{name}: a sum of {clients}");
            let tag = u128::try_from(tag).unwrap();
            let is_of = |sum: &Chunk, tag| {
                let values: Vec<_> = sum.values.iter().map(|&x| x as i64 - offset).collect();
                expected.is_of(chunk, tag, (sum.count, sum.weight), &values, offset)
            };
            assert!(is_of(&sum, tag));
            // Any one integer, and the tag.
            assert!(!is_of(&sum, tag + 1) && !is_of(&sum, tag ^ 1 << 90));
            assert!(!is_of(&Chunk { count: sum.count - 1, ..sum.clone() }, tag));
            assert!(!is_of(&Chunk { weight: sum.weight + 1, ..sum.clone() }, tag));
            for i in 0..sum.values.len() {
                let mut changed = sum.clone();
                changed.values[i] ^= 1;
                assert!(!is_of(&changed, tag), "value {i}");
            }
        }
        // Of others than are listed, of other places and under another statement they are others.
        one = ContributorSet::none(listed.len());
        (1..listed.len()).for_each(|i| one.insert(i));
        let fewer = vec![one; sets.len()];
        let tag_of = |expected: &ExpectedTags, chunk: u32| expected.pads[chunk as usize];
        let less =
            ExpectedTags::new(SumTags::Padded(&sum_key), &STATEMENT, &listed, &fewer, &chunks);
        let mut seeds = listed.clone();
        seeds[0].seed = Seed::draw().unwrap();
        let seeds =
            ExpectedTags::new(SumTags::Padded(&sum_key), &STATEMENT, &seeds, &sets, &chunks);
        let mut numbers = listed.clone();
        numbers[0].number = clients as u16;
        let numbers =
            ExpectedTags::new(SumTags::Padded(&sum_key), &STATEMENT, &numbers, &sets, &chunks);
        let later = ExpectedTags::new(
            SumTags::Padded(&sum_key),
            &Statement([8; 32]),
            &listed,
            &sets,
            &chunks,
        );
        for other in [&less, &seeds, &numbers, &later] {
            assert!((0..chunks.count()).all(|c| tag_of(other, c) != tag_of(&expected, c)));
        }
        assert_ne!(tag_of(&expected, 0), tag_of(&expected, 1));
        assert!(later.coefficients.all != expected.coefficients.all);
    }
}

/// The largest integers of the largest chunk do not reach the bits that are there for a sum.
#[test]
fn no_product_or_tag_wraps() {
    for (p, _) in sets() {
        let g = p.geometry();
        let values = g.values_per_chunk();
        let all = Zeroizing::new(vec![(1 << COEFFICIENT_BITS) - 1; 2 + values]);
        let r = Coefficients { all, dot: fastest_dot() };
        let clients = u64::from(p.clients());
        let most = u64::from(2 * p.half_steps());
        let whole = |clients: u64| {
            let fields = vec![(clients * most) as i64; values];
            let head = r.of_head(clients, clients * u64::from(u32::MAX));
            let product = r.dot.of_i64(r.of_values(), &fields, 0);
            head + product + u128::from(clients) * u128::from(u64::MAX)
        };
        let big = BigUint::from((1u64 << COEFFICIENT_BITS) - 1)
            * (BigUint::from(u32::MAX) + 1u8 + BigUint::from(most) * values)
            + u64::MAX;
        assert_eq!(BigUint::from(whole(1)), big);
        assert_eq!(BigUint::from(whole(clients)), big * clients);
        assert!(whole(clients) < 1 << 108 && whole(1) >> g.head.tag_bits() == 0);
    }
}

#[test]
fn coefficients_have_52_bits_and_pads_64() {
    let key = SumKey::new(Zeroizing::new(KEY)).tag_key(3);
    let r = key.coefficients(&STATEMENT, 1000).all;
    assert_eq!(r.len(), 1002);
    assert_eq!(r.iter().fold(0, |any, r| any | r), (1 << 52) - 1);
    assert!((300..700).contains(&r.iter().filter(|&r| r >> 51 == 1).count()));
    let contributor = Contributor { number: 3, seed: Seed::draw().unwrap() };
    let pads = key.pads(&STATEMENT, &contributor, 1000);
    assert_eq!(pads.iter().fold(0, |any, pad| any | pad), u64::MAX);
    assert!((300..700).contains(&pads.iter().filter(|&pad| pad >> 63 == 1).count()));
}
