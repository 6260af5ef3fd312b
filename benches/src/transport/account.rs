//! An account of where the transport's time goes, byte for byte.

use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ciphergram_he::Scheme;
use ciphergram_nic::proto::datagram::{HEADER_BYTES, OVERHEAD_BYTES, TAG_BYTES};

use super::{Failure, Flow, Setting, Spent, additions, ceiling, sums, writes};

/// Bytes of the messages that are written.
const MEBIBYTE: usize = 1 << 20;
/// Bytes under way between sockets alone.
const AHEAD: u64 = MEBIBYTE as u64;
/// Datagrams that lie one behind the other, as in a burst.
const BURST: usize = 7;
/// Runs of sockets, of the cipher and of the copy alone, of which the least counts.
const RUNS: u32 = 6;

/// What one end spends on a byte of payload, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The operation and the end.
    pub name: &'static str,
    /// All of the thread's time.
    pub total: f64,
    /// Of it, in the system.
    pub system: f64,
    /// What sockets alone take of that end, the system and what calls it, and nothing else.
    pub sockets: f64,
    /// Sealing or opening by AES-256-GCM alone.
    pub cipher: f64,
    /// One copy of the payload alone, where there is one.
    pub copy: f64,
    /// Adding alone, with its range check, as many chunks at once as a datagram holds.
    pub add: f64,
}

impl Column {
    /// Returns what is outside of the system and is none of the parts.
    #[must_use]
    pub fn rest(&self) -> f64 {
        self.total - self.system - self.cipher - self.copy - self.add
    }

    /// Returns what nothing that passes sealed bytes by sockets can do without: sockets, the cipher, and a copy where
    /// there is one.
    #[must_use]
    pub fn floor(&self) -> f64 {
        self.sockets + self.cipher + self.copy
    }
}

/// Measures WRITE and SUM of `ckks-sum` by datagrams of `datagram_bytes`, each for `span`, and their parts alone in
/// the same minute.
///
/// # Errors
/// The sockets', or an end that gave up.
pub fn account(datagram_bytes: usize, span: Duration) -> Result<Vec<Column>, Failure> {
    let payload = datagram_bytes - OVERHEAD_BYTES;
    let part = span / 4;
    let sockets = sockets(datagram_bytes, part)?;
    let cipher = cipher(payload, part)?;
    let copy = copy(payload, part);
    let add = additions(payload, Scheme::CkksSum, part)?;
    let setting = Setting::of(datagram_bytes);
    let names = [["WRITE send", "WRITE receive"], ["SUM send", "SUM receive"]];
    let flows = [writes(setting, MEBIBYTE, span)?, sums(setting, Scheme::CkksSum, span)?];
    let columns = flows.into_iter().zip(names).enumerate().flat_map(|(is_sum, (flow, names))| {
        let Flow { ends, .. } = flow;
        [0, 1].map(|end| {
            let adds = is_sum == 1 && end == 1;
            Column {
                name: names[end],
                total: ends[end].total(),
                system: ends[end].system,
                sockets: sockets[end].total(),
                cipher: cipher[end],
                // A sum is added from where it arrived.
                copy: if adds { 0.0 } else { copy },
                add: if adds { add } else { 0.0 },
            }
        })
    });
    Ok(columns.collect())
}

/// Measures sockets alone, both ends, for each byte of payload; the least of some runs, as rates of one pair differ by
/// half.
fn sockets(datagram_bytes: usize, span: Duration) -> Result<[Spent; 2], Failure> {
    let runs = (0..RUNS).map(|_| Ok(ceiling(datagram_bytes, AHEAD, span)?.ends));
    let runs = runs.collect::<Result<Vec<_>, Failure>>()?;
    let total = |ends: &[Spent; 2]| ends[0].total() + ends[1].total();
    let least = runs.into_iter().min_by(|a, b| total(a).total_cmp(&total(b)));
    let more = datagram_bytes as f64 / (datagram_bytes - OVERHEAD_BYTES) as f64;
    let of_payload = |spent: Spent| Spent { system: spent.system * more, user: spent.user * more };
    Ok(least.unwrap_or_default().map(of_payload))
}

/// Measures the picoseconds that `work`, on `bytes` bytes, takes for each: the least of [`RUNS`] runs, of which the
/// first warms the caches.
fn alone(bytes: usize, span: Duration, mut work: impl FnMut(usize)) -> f64 {
    let runs = (0..RUNS).map(|_| {
        let (mut count, began) = (0, Instant::now());
        while began.elapsed() < span / RUNS {
            (0..BURST).for_each(&mut work);
            count += BURST;
        }
        began.elapsed().as_secs_f64() * 1e12 / (count.max(1) * bytes) as f64
    });
    runs.fold(f64::INFINITY, f64::min)
}

/// Measures sealing and opening datagrams alone.
fn cipher(payload: usize, span: Duration) -> Result<[f64; 2], Failure> {
    let key = UnboundKey::new(&AES_256_GCM, &[7; 32]).map_err(|_| "no key")?;
    let key = LessSafeKey::new(key);
    let nonce = || Nonce::assume_unique_for_key([0; 12]);
    let (head, data) = ([3; HEADER_BYTES], vec![5; MEBIBYTE]);
    let each = payload + TAG_BYTES;
    let mut sealed = vec![0; BURST * each];
    let mut failed = false;
    let seals = alone(payload, span, |at| {
        let (data, out) = (&data[at * payload..][..payload], &mut sealed[at * each..][..each]);
        failed |= key.seal_in_place_scatter(nonce(), Aad::from(&head), &mut [], data, out).is_err();
    });
    let mut opened = vec![0; MEBIBYTE];
    let opens = alone(payload, span, |at| {
        let (body, tag) = sealed[at * each..][..each].split_at(payload);
        let out = &mut opened[at * payload..][..payload];
        failed |= key.open_separate_gather(nonce(), Aad::from(&head), body, tag, out).is_err();
    });
    if failed {
        return Err("the cipher fails".into());
    }
    Ok([seals, opens])
}

/// Measures one copy of payloads alone, from and to what does not fit the first level of cache.
fn copy(payload: usize, span: Duration) -> f64 {
    let (from, mut to) = (vec![5u8; MEBIBYTE], vec![0u8; MEBIBYTE]);
    let mut place = 0;
    alone(payload, span, |_| {
        place = if place + 2 * payload > MEBIBYTE { 0 } else { place + payload };
        to[place..][..payload].copy_from_slice(&from[place..][..payload]);
        std::hint::black_box(&mut to);
    })
}
