//! Each fault by itself, on virtual time.

use proptest::prelude::*;

use super::*;
use crate::faults::MILLION;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

/// Sends `count` datagrams of `bytes` bytes, one a millisecond, each beginning with its number.
/// Returns the datagrams that came out, and when they were due.
fn run(
    faults: Faults,
    seed: u64,
    count: u32,
    bytes: usize,
) -> (Vec<(Time, Vec<u8>)>, DirectionTally) {
    run_on(Direction::new(faults, Bottleneck::default(), seed), count, bytes)
}

fn run_on(
    mut direction: Direction<()>,
    count: u32,
    bytes: usize,
) -> (Vec<(Time, Vec<u8>)>, DirectionTally) {
    for number in 0..count {
        direction.push(at(number.into()), &(), &mut datagram(number, bytes));
    }
    drain(direction)
}

fn datagram(number: u32, bytes: usize) -> Vec<u8> {
    let mut datagram = vec![0; bytes];
    datagram[..4].copy_from_slice(&number.to_le_bytes());
    datagram
}

fn drain(mut direction: Direction<()>) -> (Vec<(Time, Vec<u8>)>, DirectionTally) {
    let mut out = vec![];
    while let Some(due) = direction.due() {
        out.extend(std::iter::from_fn(|| direction.pop(due)).map(|datagram| (due, datagram.bytes)));
    }
    assert_eq!(direction.held_bytes, 0);
    (out, direction.tally())
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

fn numbers(out: &[(Time, Vec<u8>)]) -> Vec<u32> {
    out.iter().map(|(_, bytes)| number(bytes)).collect()
}

/// Returns whether it is within six standard deviations of `per_million` of `count`.
fn is_about(found: u64, count: u32, per_million: u32) -> bool {
    let share = f64::from(per_million) / 1e6;
    let expected = f64::from(count) * share;
    (found as f64 - expected).abs() <= 6.0 * (expected * (1.0 - share)).sqrt()
}

#[test]
fn without_faults_all_pass_at_once_in_order() {
    let (out, tally) = run(Faults::default(), 1, 500, 100);
    let expected: Vec<_> = (0..500).map(|n| (at(n.into()), datagram(n, 100))).collect();
    assert_eq!(out, expected);
    assert_eq!(
        tally,
        DirectionTally { received: 500, forwarded: 500, ..DirectionTally::default() }
    );
}

#[test]
fn losses_have_their_probability() {
    for loss in [1_000, 50_000, 500_000, MILLION] {
        let (out, tally) = run(Faults { loss, ..Faults::default() }, 2, 50_000, 80);
        assert!(is_about(tally.injected.lost, 50_000, loss), "{tally:?}");
        assert_eq!(tally.forwarded + tally.injected.lost, 50_000);
        assert_eq!(out.len() as u64, tally.forwarded);
        assert!(numbers(&out).is_sorted());
    }
}

#[test]
fn duplicates_have_their_probability() {
    let faults = Faults { duplication: 50_000, ..Faults::default() };
    let (out, tally) = run(faults, 3, 20_000, 80);
    assert!(is_about(tally.injected.duplicated, 20_000, 50_000), "{tally:?}");
    let mut found = numbers(&out);
    let twice = found.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert_eq!(twice, tally.injected.duplicated);
    found.dedup();
    assert_eq!(found, (0..20_000).collect::<Vec<_>>());
}

#[test]
fn flipped_bits_have_their_probability() {
    let faults = Faults { corruption: 100_000, ..Faults::default() };
    let (out, tally) = run(faults, 4, 20_000, 80);
    assert!(is_about(tally.injected.corrupted, 20_000, 100_000), "{tally:?}");
    let mut places = vec![0; 80 * 8];
    for ((_, bytes), n) in out.iter().zip(0..) {
        let flips = bytes.iter().zip(datagram(n, 80)).map(|(a, b)| a ^ b);
        let set: Vec<_> = flips.enumerate().filter(|(_, flip)| *flip != 0).collect();
        assert!(set.len() <= 1 && set.iter().all(|(_, flip)| flip.is_power_of_two()));
        set.iter().for_each(|(i, flip)| places[i * 8 + flip.ilog2() as usize] += 1);
    }
    assert_eq!(places.iter().sum::<u64>(), tally.injected.corrupted);
    let met = places.iter().filter(|&&count| count > 0).count();
    assert!(met > 500, "only {met} of 640 bits are ever flipped");
}

#[test]
fn trimmed_datagrams_have_their_probability() {
    let faults = Faults { trimming: 50_000, ..Faults::default() };
    let (out, tally) = run(faults, 5, 20_000, 80);
    assert!(is_about(tally.injected.trimmed, 20_000, 50_000), "{tally:?}");
    let cut = out.iter().filter(|(_, bytes)| bytes.len() == HEADER_BYTES).count();
    assert_eq!(cut as u64, tally.injected.trimmed);
    for ((_, bytes), n) in out.iter().zip(0..) {
        assert!(bytes[..] == datagram(n, 80)[..bytes.len()]);
        assert!([HEADER_BYTES, 80].contains(&bytes.len()));
    }
    let (_, tally) = run(Faults { trimming: MILLION, ..faults }, 5, 100, HEADER_BYTES);
    assert_eq!(tally.injected.trimmed, 0, "nothing is left to cut off");
}

#[test]
fn delay_keeps_the_order_and_jitter_does_not() {
    let delay = Faults { delay: 30 * MS, ..Faults::default() };
    let (out, tally) = run(delay, 6, 200, 80);
    let expected: Vec<_> = (0..200).map(|n| (at(u64::from(n) + 30), datagram(n, 80))).collect();
    assert_eq!((out, tally.reordered), (expected, 0));

    let (out, tally) = run(Faults { jitter: 10 * MS, ..delay }, 6, 2_000, 80);
    let mut span = (Duration::MAX, Duration::ZERO);
    for (due, bytes) in &out {
        let late = due.since(at(number(bytes).into()));
        span = (span.0.min(late), span.1.max(late));
    }
    assert!(span.0 >= 30 * MS && span.0 < 31 * MS, "{span:?}");
    assert!(span.1 <= 40 * MS && span.1 > 39 * MS, "{span:?}");
    let found = numbers(&out);
    let newest_before = |i: usize| found[..i].iter().max().copied().unwrap_or_default();
    let overtaken = (0..found.len()).filter(|&i| found[i] < newest_before(i)).count();
    assert_eq!(tally.reordered, overtaken as u64);
    assert!(overtaken > 200, "{overtaken}");
}

/// Returns a line of 80 kbit/s: a datagram of 100 bytes takes ten milliseconds.
fn slow(queue: usize) -> Bottleneck {
    Bottleneck { rate: NonZeroU64::new(80_000), queue, ..Bottleneck::default() }
}

fn on(line: Bottleneck, seed: u64) -> Direction<()> {
    Direction::new(Faults::default(), line, seed)
}

#[test]
fn a_rate_spaces_datagrams() {
    let (out, tally) = run_on(on(slow(1000), 7), 100, 100);
    assert_eq!(tally.dropped, 0);
    for ((due, bytes), n) in out.iter().zip(0u32..) {
        assert_eq!((*due, number(bytes)), (at(10 * (u64::from(n) + 1)), n));
    }
    // A line that was idle begins when the datagram comes, not when it became free.
    let mut direction = on(slow(1000), 7);
    direction.push(at(0), &(), &mut datagram(0, 100));
    direction.push(at(500), &(), &mut datagram(1, 100));
    let due: Vec<_> = drain(direction).0.into_iter().map(|(due, _)| due).collect();
    assert_eq!(due, [at(10), at(510)]);
}

#[test]
fn a_full_queue_drops_the_last() {
    let mut direction = on(slow(3), 8);
    (0..10).for_each(|n| direction.push(at(0), &(), &mut datagram(n, 100)));
    let (out, tally) = drain(direction);
    assert_eq!(numbers(&out), [0, 1, 2, 3], "one on the line, three in the queue");
    assert_eq!((tally.dropped, tally.trimmed_full), (6, 0));
}

#[test]
fn a_full_queue_trims_and_headers_go_first() {
    let mut direction = on(Bottleneck { trim_on_full: true, ..slow(3) }, 9);
    (0..10).for_each(|n| direction.push(at(0), &(), &mut datagram(n, 100)));
    direction.push(at(0), &(), &mut datagram(10, HEADER_BYTES));
    let (out, tally) = drain(direction);
    assert_eq!(numbers(&out), [0, 4, 5, 6, 1, 2, 3]);
    for (_, bytes) in &out {
        let trimmed = (4..7).contains(&number(bytes));
        assert_eq!(bytes.len(), if trimmed { HEADER_BYTES } else { 100 });
    }
    // Of six that did not fit, headers fill their own queue; and one was no more than a header.
    assert_eq!((tally.trimmed_full, tally.dropped, tally.reordered), (6, 4, 3));
}

#[test]
fn what_is_held_is_bounded() {
    let mut direction =
        Direction::new(Faults { delay: 1000 * MS, ..Faults::default() }, Bottleneck::default(), 10);
    let bytes = vec![0; 65_000];
    let fit = MAX_HELD_BYTES / (bytes.len() + ENTRY_BYTES);
    (0..fit + 5).for_each(|_| direction.push(at(0), &(), &mut bytes.clone()));
    assert_eq!((direction.under_way.len(), direction.tally().dropped), (fit, 5));
}

fn all_faults() -> impl Strategy<Value = (Faults, Bottleneck)> {
    let shares = any::<[u32; 7]>().prop_map(|shares| shares.map(|share| share % 300_000));
    let spans = (0..20u32, 0..20u32, proptest::option::of(10_000..1_000_000u64), 1..10usize);
    (shares, spans, any::<bool>()).prop_map(|(shares, (delay, jitter, rate, queue), trim)| {
        let faults = Faults {
            loss: shares[0],
            duplication: shares[1],
            corruption: shares[2],
            trimming: shares[3],
            marking: shares[4],
            junk: shares[5],
            lateness: shares[6],
            delay: delay * MS,
            jitter: jitter * MS,
        };
        (faults, Bottleneck { rate: rate.and_then(NonZeroU64::new), queue, trim_on_full: trim })
    })
}

proptest! {
    /// One seed, one outcome, also if the owner asks at other times; and every datagram is
    /// accounted for.
    #[test]
    fn one_seed_gives_one_outcome(
        (faults, line) in all_faults(),
        seed: u64,
        asks: [bool; 32],
    ) {
        let direction = || Direction::new(faults, line, seed);
        let (expected, tally) = run_on(direction(), 200, 100);
        prop_assert_eq!(
            tally.received + tally.injected.duplicated + tally.injected.junk,
            tally.forwarded + tally.injected.lost + tally.dropped
        );
        let mut direction = direction();
        let mut found = vec![];
        for n in 0..200 {
            if asks[n as usize % 32] {
                found.extend(std::iter::from_fn(|| direction.pop(at(n.into()))).map(|datagram| datagram.bytes));
            }
            direction.push(at(n.into()), &(), &mut datagram(n, 100));
        }
        let (rest, again) = drain(direction);
        found.extend(rest.into_iter().map(|(_, bytes)| bytes));
        let expected: Vec<_> = expected.into_iter().map(|(_, bytes)| bytes).collect();
        prop_assert!(found == expected);
        prop_assert_eq!(again, tally);
    }

    #[test]
    fn another_seed_gives_another(seed: u64) {
        let faults = Faults { loss: 500_000, ..Faults::default() };
        prop_assert!(run(faults, seed, 200, 80).0 != run(faults, !seed, 200, 80).0);
    }
}
