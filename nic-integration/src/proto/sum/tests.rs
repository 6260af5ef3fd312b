//! Regions that count whole contributions only: what is staged, and what closes over whom.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::proto::NodeId;
use crate::proto::accumulator::ChunkAdder;

use super::*;

const CHUNKS: u32 = 150;
/// The first chunks of shards: the runs of a complete contribution are cut in the second.
const STARTS: [u32; 4] = [0, 7, 140, CHUNKS];
const CONTRIBUTORS: u16 = 5;

/// The additions of all shards: chunks and the first of their bytes, which names the contributor.
type Additions = Arc<Mutex<Vec<(u32, u8)>>>;

/// Bytes of a chunk of most regions here; a power of two, and so a block.
const CHUNK_BYTES: u32 = 4;

struct RecordedSums(Additions, Option<(Sender<()>, Receiver<()>)>);

impl ChunkAdder for RecordedSums {
    fn check(&mut self, _: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        if payload.contains(&255) { Err(Refusal::InvalidCiphertext) } else { Ok(()) }
    }
    fn add(&mut self, chunks: Range<u32>, payload: &[u8]) -> Result<(), Refusal> {
        self.check(chunks.clone(), payload)?;
        if let Some((begun, go_on)) = self.1.take() {
            begun.send(()).unwrap();
            go_on.recv().unwrap();
        }
        let each = payload.len().div_ceil(chunks.len());
        let firsts: Vec<u8> = payload.chunks(each).map(|own| own[0]).collect();
        assert_eq!(firsts.len(), chunks.len());
        self.0.lock().unwrap().extend(chunks.zip(firsts));
        Ok(())
    }
    fn finish(&mut self, chunk: u32, _: u32) -> Result<Vec<u8>, String> {
        Ok(vec![chunk as u8])
    }
}

fn config(chunk_bytes: u32, target: u32, shards: Vec<Shard>) -> SumConfig {
    SumConfig {
        round: 4,
        contributors: CONTRIBUTORS,
        target,
        layout: ChunkLayout {
            chunk_bytes: NonZeroU32::new(chunk_bytes).unwrap(),
            total_bytes: u64::from(CHUNKS) * u64::from(chunk_bytes) - u64::from(chunk_bytes / 2),
        },
        shards,
        counts: Counts::Whole,
    }
}

/// Returns a region whose first shard waits amid its first addition, if it has something to wait
/// for.
fn region(wait: Option<(Sender<()>, Receiver<()>)>) -> (SumRegion, Additions) {
    region_of(CHUNK_BYTES, Counts::Whole, wait)
}

fn region_of(
    chunk_bytes: u32,
    counts: Counts,
    wait: Option<(Sender<()>, Receiver<()>)>,
) -> (SumRegion, Additions) {
    let (additions, mut wait) = (Additions::default(), wait);
    let shards = STARTS.windows(2).map(|ends| {
        let adder = Box::new(RecordedSums(additions.clone(), wait.take()));
        Shard { chunks: ends[0]..ends[1], adder }
    });
    let config = config(chunk_bytes, CONTRIBUTORS.into(), shards.collect());
    let region = SumRegion::new(SumConfig { counts, ..config }).unwrap();
    (0..CONTRIBUTORS).for_each(|number| region.bind(number, peer(number)));
    (region, additions)
}

fn peer(number: u16) -> Peer {
    Peer { node: NodeId([number as u8; 32]), incarnation: 1 }
}

/// Sends some chunks in one datagram; returns how many were new, or the refusal, and the chunks
/// that closed.
fn send(
    region: &SumRegion,
    contributor: u16,
    chunks: Range<u32>,
    byte: u8,
) -> (Result<u32, Refusal>, Vec<u32>) {
    let place = config(CHUNK_BYTES, 1, vec![]).layout.bytes_of(&chunks);
    send_bytes(region, contributor, place, byte)
}

/// Sends some bytes of a contribution in one datagram, as [`send`] does chunks.
fn send_bytes(
    region: &SumRegion,
    contributor: u16,
    place: Range<u64>,
    byte: u8,
) -> (Result<u32, Refusal>, Vec<u32>) {
    let bytes = (place.end - place.start) as usize;
    let header = DatagramHeader {
        offset: place.start,
        message_bytes: bytes as u32,
        immediate: 4,
        contributor,
        ..DatagramHeader::default()
    };
    let mut closed = vec![];
    let outcome = region.add(peer(contributor), &header, &vec![byte; bytes], &mut closed);
    (outcome.map(|added| added.fresh), closed)
}

fn contributors(region: &SumRegion, chunk: u32) -> Vec<u16> {
    (0..CONTRIBUTORS).filter(|number| region.has(chunk, *number)).collect()
}

#[test]
fn chunks_count_once_all_of_a_contribution_are_there() {
    let (region, additions) = region(None);
    assert_eq!(send(&region, 2, 0..100, 2), (Ok(100), vec![]));
    assert_eq!(send(&region, 2, 90..CHUNKS - 1, 2), (Ok(CHUNKS - 101), vec![]));
    assert_eq!(send(&region, 2, 0..30, 2), (Ok(0), vec![]), "again");
    assert_eq!(region.received(2), CHUNKS - 1, "each once");
    assert_eq!(send(&region, 2, 0..1, 9), (Ok(0), vec![]), "nobody looks at the second");
    let last = CHUNKS - 1..CHUNKS;
    assert_eq!(send(&region, 2, last.clone(), 255), (Err(Refusal::InvalidCiphertext), vec![]));
    assert!(additions.lock().unwrap().is_empty());
    assert!((0..CHUNKS).all(|chunk| region.contributor_count(chunk) == 0));
    assert_eq!(send(&region, 2, last.clone(), 2), (Ok(1), vec![]));
    let mut added = std::mem::take(&mut *additions.lock().unwrap());
    added.sort_unstable();
    assert_eq!(added, (0..CHUNKS).map(|chunk| (chunk, 2)).collect::<Vec<_>>());
    assert!((0..CHUNKS).all(|chunk| contributors(&region, chunk) == [2]));
    assert_eq!(region.bitmap(CHUNKS - 1), [4, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(send(&region, 2, last, 2), (Ok(0), vec![]), "again");
    for number in [0, 1, 3] {
        assert_eq!(send(&region, number, 0..CHUNKS, number as u8), (Ok(CHUNKS), vec![]));
    }
    assert_eq!(send(&region, 4, 1..CHUNKS, 4), (Ok(CHUNKS - 1), vec![]));
    let received: Vec<u32> = (0..=CONTRIBUTORS).map(|number| region.received(number)).collect();
    assert_eq!(received, [CHUNKS, CHUNKS, CHUNKS, CHUNKS, CHUNKS - 1, 0]);
    let (outcome, closed) = send(&region, 4, 0..1, 4);
    assert_eq!((outcome, closed), (Ok(1), (0..CHUNKS).collect()), "the last closes all");
    assert_eq!(region.finish(3), Ok(vec![3]));
    assert_eq!(additions.lock().unwrap().len(), 4 * CHUNKS as usize);
}

/// Datagrams may end within a chunk, which is checked once all of it is there, and whose first bytes count.
#[test]
fn blocks_of_chunks_are_staged_in_any_order() {
    let each = 192;
    let (region, additions) = region_of(each as u32, Counts::Whole, None);
    let end = u64::from(CHUNKS) * each - each / 2;
    let mut starts: Vec<u64> = (0..end).step_by(448).collect();
    starts.sort_by_key(|start| start.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let last = starts.pop().unwrap();
    let mut fresh = 0;
    for start in starts {
        fresh += send_bytes(&region, 2, start..end.min(start + 448), 2).0.unwrap();
        // Overlaps what came, or will come.
        fresh += send_bytes(&region, 2, start..end.min(start + 64), 9).0.unwrap();
    }
    assert_eq!((fresh, region.received(2)), (region.received(2), fresh));
    assert!(fresh > CHUNKS - 6 && additions.lock().unwrap().is_empty());
    let lacking = last..end.min(last + 448);
    assert_eq!(send_bytes(&region, 2, lacking.clone(), 255).0, Err(Refusal::InvalidCiphertext));
    for (bytes, refusal) in [
        (last..last + 63, Refusal::WrongLength),
        (last + 1..last + 64, Refusal::WrongOffset),
        (end..end + 64, Refusal::ChunkOutOfRange),
        (last..end + 64, Refusal::ChunkOutOfRange),
    ] {
        assert_eq!(send_bytes(&region, 2, bytes, 2).0, Err(refusal));
    }
    assert_eq!(send_bytes(&region, 2, lacking, 2).0, Ok(CHUNKS - fresh));
    assert_eq!(additions.lock().unwrap().len(), CHUNKS as usize);
    assert!((0..CHUNKS).all(|chunk| contributors(&region, chunk) == [2]));
    assert!(
        additions.lock().unwrap().iter().all(|(_, first)| *first == 2),
        "the first bytes count"
    );
}

#[test]
fn chunks_that_count_by_themselves_come_whole() {
    let (region, additions) = region_of(192, Counts::Chunks, None);
    assert_eq!(send_bytes(&region, 0, 0..64, 0).0, Err(Refusal::WrongLength));
    assert_eq!(send_bytes(&region, 0, 64..192, 0).0, Err(Refusal::WrongOffset));
    assert_eq!(send_bytes(&region, 0, 192..576, 0).0, Ok(2));
    assert_eq!(*additions.lock().unwrap(), [(1, 0), (2, 0)]);
}

#[test]
fn nobody_becomes_whole_after_a_chunk_is_closed() {
    let (region, additions) = region(None);
    assert_eq!(send(&region, 0, 0..CHUNKS, 0), (Ok(CHUNKS), vec![]));
    assert_eq!(send(&region, 1, 0..CHUNKS - 1, 1), (Ok(CHUNKS - 1), vec![]));
    assert!(region.close(20) && !region.close(20));
    assert_eq!(send(&region, 1, CHUNKS - 1..CHUNKS, 1), (Err(Refusal::RoundClosed), vec![]));
    assert_eq!(send(&region, 1, 0..CHUNKS - 1, 1), (Ok(0), vec![]), "what it knows to be staged");
    assert_eq!(region.close_all(&(0..CHUNKS).collect::<Vec<_>>()), CHUNKS as usize - 1);
    assert!((0..CHUNKS).all(|chunk| contributors(&region, chunk) == [0]));
    assert_eq!(additions.lock().unwrap().len(), CHUNKS as usize);
}

/// A contributor that is being added when chunks close is in those that were not reached yet.
#[test]
fn chunks_that_close_while_a_contribution_is_added_have_all_of_it() {
    let ((begun, begins), (go_on, goes_on)) = (channel(), channel());
    let (region, additions) = region(Some((begun, goes_on)));
    let adding = {
        let region = region.clone();
        thread::spawn(move || send(&region, 3, 0..CHUNKS, 3))
    };
    begins.recv().unwrap();
    assert_eq!(region.close_all(&(7..CHUNKS).collect::<Vec<_>>()), CHUNKS as usize - 7);
    assert!((7..CHUNKS).all(|chunk| contributors(&region, chunk) == [3]));
    go_on.send(()).unwrap();
    assert_eq!(adding.join().unwrap(), (Ok(CHUNKS), vec![]));
    region.close_all(&(0..7).collect::<Vec<_>>());
    assert!((0..7).all(|chunk| contributors(&region, chunk) == [3]));
    assert_eq!(additions.lock().unwrap().len(), CHUNKS as usize, "each once");
}

#[test]
fn threads_that_add_and_one_that_closes_leave_the_same_contributors_everywhere() {
    let (mut counts, everyone) = ([0; CONTRIBUTORS as usize + 1], 0..CONTRIBUTORS);
    for pause in 0..400 {
        let (region, additions) = region(None);
        let start = AtomicBool::new(false);
        thread::scope(|scope| {
            for number in everyone.clone() {
                // From both ends, at once; each contributor has a few more chunks to a datagram.
                for half in [0..80, 80..CHUNKS] {
                    let (region, start) = (&region, &start);
                    scope.spawn(move || {
                        while !start.load(Ordering::Relaxed) {
                            thread::yield_now();
                        }
                        for first in half.clone().step_by(usize::from(number) + 3) {
                            let chunks = first..half.end.min(first + u32::from(number) + 3);
                            send(region, number, chunks, number as u8).0.unwrap_or_default();
                        }
                    });
                }
            }
            start.store(true, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(pause));
            region.close_all(&(0..CHUNKS).collect::<Vec<_>>());
        });
        let whole = contributors(&region, 0);
        counts[whole.len()] += 1;
        let mut expected = vec![];
        for chunk in 0..CHUNKS {
            assert_eq!(contributors(&region, chunk), whole, "chunk {chunk}");
            assert_eq!(region.contributor_count(chunk), whole.len() as u32);
            expected.extend(whole.iter().map(|number| (chunk, *number as u8)));
        }
        let mut added = std::mem::take(&mut *additions.lock().unwrap());
        added.sort_unstable();
        assert_eq!(added, expected, "each once");
    }
    println!("rounds by whole contributions: {counts:?}");
}

#[test]
fn contributions_that_may_not_wait_together_make_no_region() {
    let shards = || {
        let adder = Box::new(RecordedSums(Additions::default(), None));
        vec![Shard { chunks: 0..CHUNKS, adder }]
    };
    // 149 chunks and half of one, of four contributors, come to 598 times the bytes of a chunk.
    let most = (MAX_STAGED_BYTES / 598) as u32 & !1;
    assert!(SumRegion::new(config(most, 4, shards())).is_ok());
    let refused = SumRegion::new(config(most + 2, 4, shards())).err();
    let bytes = 598 * (u64::from(most) + 2);
    assert_eq!(refused, Some(NicError::Staged { bytes }));
    let words = refused.unwrap().to_string();
    assert!(words.contains(&bytes.to_string()), "{words}");
    let more = SumConfig { counts: Counts::Chunks, ..config(most + 2, 4, shards()) };
    assert!(SumRegion::new(more).is_ok(), "a bound of whole contributions only");
}
