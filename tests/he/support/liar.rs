//! What a liar does to ciphertexts: without any key, and with what a client's file tells.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ciphergram_accel::beats;
use ciphergram_he::{ClientKey, PublicKey, Statement, params::Chunks};
use num_bigint::{BigInt, BigUint};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

/// Adds `change` to the integer of one slot of a chunk, under encryption: to a coefficient above the margin, or by
/// a product with `(1 + n)^change`.
pub(crate) fn add(
    key: &PublicKey,
    chunks: &Chunks,
    stream: &mut [u8],
    (chunk, slot): (u32, usize),
    change: &BigInt,
) {
    let own = chunks.offset_of(chunk)..chunks.offset_of(chunk) + chunks.bytes_of(chunk);
    match key.parameters().rlwe() {
        Some(rlwe) => {
            add_coefficient(key, &mut stream[own], slot, &(change << rlwe.margin_bits));
        }
        None => {
            let n = key.paillier().unwrap().n().words().iter().rev();
            let n = n.fold(BigUint::ZERO, |n, &word| (n << 64) + word);
            let bytes = chunks.geometry().unit_bytes;
            let own = &mut stream[own][slot * bytes..][..bytes];
            let change = modulo(change, &n);
            let c = BigUint::from_bytes_le(own) * (&change * &n + 1u8) % (&n * &n);
            let c = c.to_bytes_le();
            own.fill(0);
            own[..c.len()].copy_from_slice(&c);
        }
    }
}

/// Adds `change` to a coefficient of the polynomial, or the part of one, that `bytes` are.
fn add_coefficient(key: &PublicKey, bytes: &mut [u8], index: usize, change: &BigInt) {
    let primes = key.parameters().rlwe().unwrap().ring.primes();
    for (i, &q) in primes.iter().enumerate() {
        let lane = index * primes.len() + i;
        let beat = &mut bytes[lane / beats::LANES * beats::BYTES..][..beats::BYTES];
        let words: Vec<u64> = beat.as_chunks().0.iter().map(|&w| u64::from_le_bytes(w)).collect();
        let place = lane % beats::LANES;
        let change = u64::try_from(modulo(change, &q.into())).unwrap();
        let mut changed = vec![0; beats::WORDS];
        for other in 0..beats::LANES {
            let lane = beats::lane(&words, other);
            let lane = if other == place { (lane + change) % q } else { lane };
            beats::set_lane(&mut changed, other, lane);
        }
        let changed = changed.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>();
        beat.copy_from_slice(&changed);
    }
}

/// Returns the residue from 0 on.
fn modulo(x: &BigInt, m: &BigUint) -> BigUint {
    let m = BigInt::from(m.clone());
    (((x % &m) + &m) % m).try_into().unwrap()
}

/// Returns the numbers `r_j` of a round, which a client's file tells.
pub(crate) fn coefficients(client: &ClientKey, statement: &Statement, count: usize) -> Vec<u64> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("client.json");
    client.save(&path).unwrap();
    let file = std::fs::read_to_string(path).unwrap();
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    let key = BASE64_URL_SAFE_NO_PAD.decode(file["client"]["coefficients"].as_str().unwrap());
    let key: [u8; 32] = key.unwrap().try_into().unwrap();
    // Its form for people is its bytes.
    let text = format!("{statement:?}");
    let text = text.trim_start_matches("Statement(").trim_end_matches(')');
    let statement: Vec<u8> =
        (0..32).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect();
    let mut stream = ChaCha20Rng::from_seed(*blake3::keyed_hash(&key, &statement).as_bytes());
    (0..count).map(|_| stream.next_u64() >> 12).collect()
}

/// Returns the slot of a value of a chunk, by its place there, and one of the value's steps as a change of the slot.
pub(crate) fn place_of(key: &PublicKey, value: usize) -> (usize, BigInt) {
    let g = key.parameters().geometry();
    let field = g.head_fields + value;
    let at = (field % g.fields_per_slot) * g.field_bits as usize;
    (field / g.fields_per_slot, BigInt::from(1) << at)
}

/// Returns one step of a tag as a change of the first slot: all the tag must have its lowest bits there.
pub(crate) fn tag_step(key: &PublicKey) -> BigInt {
    let head = key.parameters().geometry().head;
    BigInt::from(1) << (head.count_bits() + head.weight_bits())
}
