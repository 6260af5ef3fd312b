//! Ledgers: one contribution of a client to a round, one sum of it, and four failures.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ciphergram_he::{AnyKey, Error, Job, Ledger, Sum, params::Scheme};

use crate::support::sums::{Key, agreement, contribute, generate};

/// A key, a folder for its ledger, and a sum that opens.
struct Place {
    key: Key,
    folder: tempfile::TempDir,
    sum: Sum,
}

impl Place {
    fn new() -> Self {
        let key = generate(Scheme::CkksSum, 5, 16);
        let agreement = agreement(9, 1);
        let both = [0, 1].map(|client| contribute(&key, client, &[7; 9], 1, &agreement));
        let sum = key.aggregate(both).unwrap();
        Self { key, folder: tempfile::tempdir().unwrap(), sum }
    }

    /// Makes it anew, as another process does.
    fn ledger(&self) -> Ledger {
        Ledger::beside(&self.folder.path().join("secret.json"))
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("secret.json.ledger")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    fn open(&self, sum: &Sum) -> Result<(), Error> {
        self.open_by(sum, || self.key.open(sum).map(drop))
    }

    fn open_by<T>(&self, sum: &Sum, open: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.ledger().open(self.key.public(), &self.key.job, sum, open)
    }

    fn failures(&self) -> Result<usize, Error> {
        self.ledger().failures(self.key.public())
    }

    /// A sum of another round that does not open.
    fn lie(&self, round: u64) -> Sum {
        Sum { round, ..self.sum.clone() }
    }
}

fn not_theirs() -> Result<(), Error> {
    Err(Error::NotTheirs { contributors: 2 })
}

#[test]
fn a_client_seals_once_to_a_round_and_in_order() {
    let place = Place::new();
    let job = &place.key.job;
    let over = |number, round, last| Err(Error::RoundOver { number, round, last });
    assert_eq!(place.ledger().next_round(job, 3), Ok(0));
    assert_eq!(place.ledger().seal(job, 3, 5), Ok(()));
    for round in [5, 4, 0] {
        assert_eq!(place.ledger().seal(job, 3, round), over(3, round, 5));
    }
    let text = place.ledger().seal(job, 3, 4).unwrap_err().to_string();
    assert!(text.ends_with("its next round is 6"), "{text}");
    assert_eq!(place.ledger().next_round(job, 3), Ok(6));
    assert_eq!(place.ledger().seal(job, 3, 9), Ok(()));
    assert_eq!(place.ledger().seal(job, 3, 8), over(3, 8, 9));
    // After the last round there is none.
    assert_eq!(place.ledger().seal(job, 0, u64::MAX), Ok(()));
    let last = place.ledger().next_round(job, 0).unwrap();
    let error = place.ledger().seal(job, 0, last).unwrap_err();
    assert_eq!(place.ledger().seal_next(job, 0, Ok), Err(error.clone()), "there is no later one");
    assert!(error.to_string().contains("has sealed a contribution to round 18446744073709551615"));
    // Another client, one whose number begins alike, another job.
    for number in [4, 33] {
        assert_eq!(place.ledger().next_round(job, number), Ok(0));
        assert_eq!(place.ledger().seal(job, number, 5), Ok(()));
    }
    let other = Job::new(place.key.public(), job.limits().clone()).unwrap();
    assert_eq!(place.ledger().seal(&other, 3, 1), Ok(()));
    assert_eq!(place.ledger().next_round(job, 3), Ok(10));
    let expected: Vec<_> =
        [(job, 3, 5), (job, 3, 9), (job, 0, u64::MAX), (job, 4, 5), (job, 33, 5), (&other, 3, 1)]
            .map(|(job, number, round)| format!("sealed {} {number} {round}", job.id()))
            .into();
    let text = place.text();
    let (first, lines) = text.split_once('\n').unwrap();
    assert_eq!(first, "# ciphergram ledger 1");
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

/// A line that was being written when all ended counts for nothing, and is written over.
#[test]
fn a_torn_last_line_counts_for_nothing() {
    let place = Place::new();
    let job = &place.key.job;
    place.ledger().seal(job, 0, 1).unwrap();
    let whole = place.text();
    for cut in ["s", "sealed", &format!("sealed {} 0 7", job.id()), "failed x y z"] {
        fs::write(place.path(), format!("{whole}{cut}")).unwrap();
        assert_eq!(place.ledger().next_round(job, 0), Ok(2), "{cut}");
        assert_eq!(place.failures(), Ok(0));
        place.ledger().seal(job, 0, 2).unwrap();
        assert_eq!(place.text(), format!("{whole}sealed {} 0 2\n", job.id()));
    }
    // Longer than what follows it: nothing of it is left.
    let mut file = fs::OpenOptions::new().append(true).open(place.path()).unwrap();
    file.write_all(&[b'x'; 500]).unwrap();
    place.ledger().seal(job, 0, 3).unwrap();
    assert!(!place.text().contains('x') && place.ledger().next_round(job, 0) == Ok(4));
}

#[test]
fn a_round_opens_to_one_sum_as_often_as_asked() {
    let place = Place::new();
    for _ in 0..3 {
        assert_eq!(place.open(&place.sum), Ok(()));
    }
    // Of the same round, of other contributors: it would open.
    let agreement = agreement(9, 1);
    let other = place.key.aggregate([contribute(&place.key, 2, &[7; 9], 1, &agreement)]).unwrap();
    assert!(place.key.open(&other).is_ok());
    let second = Err(Error::SecondSum { round: place.sum.round });
    assert_eq!(place.open(&other), second);
    // Any byte makes it another one, of the header and of the stream.
    let mut changed = place.sum.clone();
    changed.stream[0] ^= 1;
    assert_eq!(place.open(&changed), second);
    let mut changed = place.sum.clone();
    changed.contributors.swap(0, 1);
    assert_eq!(place.open(&changed), second);
    assert_eq!(place.open(&place.sum), Ok(()), "the first goes on opening");
    assert_eq!(place.failures(), Ok(0));
    // A failure counts wherever it is said to be.
    let named = || place.key.open(&place.lie(9)).map(drop).map_err(|e| e.within("a.cgm"));
    assert!(place.open_by(&place.lie(9), named).is_err());
    assert_eq!(place.failures(), Ok(1));
    // What anyone can see is no failure, and takes nothing from the round.
    let place = Place::new();
    let mut bad = place.sum.clone();
    bad.stream[..7].fill(0xff);
    assert!(matches!(place.open(&bad), Err(Error::Ciphertext { .. })));
    assert_eq!(place.failures(), Ok(0));
}

#[test]
fn a_round_that_was_opened_is_over_for_all_and_one_that_did_not_open_for_nobody() {
    let place = Place::new();
    let next = |number| place.ledger().next_round(&place.key.job, number);
    assert_eq!(place.open(&place.lie(u64::MAX)), not_theirs());
    assert_eq!(next(3), Ok(0), "a liar's number is not believed");
    assert_eq!(place.open(&place.sum), Ok(()));
    assert_eq!(next(3), Ok(place.sum.round + 1));
    assert_eq!(place.ledger().seal(&place.key.job, 3, 7), Ok(()));
    assert_eq!((next(3), next(4)), (Ok(8), Ok(place.sum.round + 1)));
}

/// A sum of the same round that does not open.
fn changed(sum: &Sum, byte: usize) -> Sum {
    let mut changed = sum.clone();
    let byte = byte % changed.stream.len();
    changed.stream[byte] ^= 1;
    changed
}

#[test]
fn four_failures_end_a_round_and_no_key() {
    let place = Place::new();
    let lies: Vec<_> = (0..6).map(|i| changed(&place.sum, 7 * i + 20)).collect();
    for (i, lie) in lies[..4].iter().enumerate() {
        assert_eq!(place.failures(), Ok(i));
        assert_eq!(place.open(lie), not_theirs());
        // Once more is no second failure, and no second try.
        let again = place.open_by(lie, || -> Result<(), Error> { panic!("tried again") });
        assert_eq!(again, not_theirs());
    }
    let over = Err(Error::RoundSpent { round: place.sum.round });
    for sum in [&place.sum, &lies[4], &lies[5]] {
        let opened = place.open_by(sum, || -> Result<(), Error> { panic!("opened") });
        assert_eq!(opened, over);
    }
    // The next rounds are as they were: each has a secret of its own.
    for round in 10..40 {
        assert_eq!(place.open(&place.lie(round)), not_theirs());
    }
    assert_eq!(place.failures(), Ok(34));
    assert_eq!(place.ledger().seal(&place.key.job, 0, 41), Ok(()), "it still seals");
}

/// After less than four the round's own sum opens, and is the only one.
#[test]
fn a_sum_opens_behind_three_that_did_not() {
    let place = Place::new();
    for byte in [3, 9, 20] {
        assert_eq!(place.open(&changed(&place.sum, byte)), not_theirs());
    }
    assert_eq!(place.open(&place.sum), Ok(()));
    let second = Err(Error::SecondSum { round: place.sum.round });
    assert_eq!(place.open(&changed(&place.sum, 30)), second);
    assert_eq!(place.open(&place.sum), Ok(()));
}

/// Of many that seal or open at once, as processes do, one has a round.
#[test]
fn of_many_at_once_one_has_a_round() {
    let place = Arc::new(Place::new());
    let at_once = |act: fn(&Place, u64) -> bool| {
        let threads: Vec<_> = (0..8)
            .map(|i| {
                let place = place.clone();
                thread::spawn(move || act(&place, i))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).filter(|&won| won).count()
    };
    let sealed =
        at_once(|place, _| (0..20).any(|_| place.ledger().seal(&place.key.job, 1, 3).is_ok()));
    assert_eq!(sealed, 1);
    // The next round of each is its own, in one process and in several.
    let shared = place.ledger();
    let rounds: Mutex<Vec<u64>> = Mutex::default();
    thread::scope(|scope| {
        for at in 0..8 {
            let ledger = if at < 4 { shared.clone() } else { place.ledger() };
            let (job, rounds) = (&place.key.job, &rounds);
            scope.spawn(move || {
                for _ in 0..5 {
                    let round = ledger.seal_next(job, 2, Ok).unwrap();
                    rounds.lock().unwrap().push(round);
                }
            });
        }
    });
    let mut rounds = rounds.into_inner().unwrap();
    rounds.sort_unstable();
    assert_eq!(rounds, (0..40).collect::<Vec<_>>());
    // Different sums of one round: whichever is first is the only one that is tried.
    let opened = at_once(|place, i| {
        let mut sum = place.lie(40);
        sum.stream[0] ^= i as u8;
        place.open_by(&sum, || Ok(())).is_ok()
    });
    assert_eq!(opened, 1);
    // Failures of different rounds at once: none is lost.
    let failed = at_once(|place, i| place.open(&place.lie(50 + i)) == not_theirs());
    assert_eq!((failed, place.failures()), (8, Ok(8)));
    let lines = place.text();
    assert_eq!(lines.lines().filter(|line| line.starts_with("sealed")).count(), 41);
    assert_eq!(lines.lines().filter(|line| line.starts_with("opening")).count(), 9);
}

/// As many at once as there are failures left: no more are tried than may fail.
#[test]
fn no_more_than_four_fail_however_many_are_opened_at_once() {
    let place = Arc::new(Place::new());
    for byte in [1, 2] {
        assert_eq!(place.open(&changed(&place.sum, byte)), not_theirs());
    }
    let threads: Vec<_> = (0..8)
        .map(|i| {
            let place = place.clone();
            thread::spawn(move || {
                let sum = changed(&place.sum, 10 + i);
                place.open_by(&sum, || {
                    // Long enough for all of them to be here, if they could be.
                    thread::sleep(Duration::from_millis(50));
                    place.key.open(&sum).map(drop)
                })
            })
        })
        .collect();
    let results: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let failed = results.iter().filter(|&result| *result == not_theirs()).count();
    assert_eq!(failed, 2, "{results:?}");
    assert_eq!(place.failures(), Ok(4));
}

/// Clients that share a key open one sum: the first of them alone, as it may fail, and then all at once.
#[test]
fn a_sum_that_opened_is_opened_by_many_at_once() {
    let place = Arc::new(Place::new());
    let meet = |sum: &Sum, patience: Duration| {
        let inside = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (place, sum, inside) = (place.clone(), sum.clone(), inside.clone());
                thread::spawn(move || {
                    place.open_by(&sum, || {
                        inside.fetch_add(1, Ordering::SeqCst);
                        let began = Instant::now();
                        let both = || inside.load(Ordering::SeqCst) == 2;
                        while !both() && began.elapsed() < patience {
                            thread::sleep(Duration::from_millis(1));
                        }
                        Ok(both())
                    })
                })
            })
            .collect();
        let mut met: Vec<bool> =
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
        met.sort_unstable();
        met
    };
    let first = meet(&place.sum, Duration::from_millis(100));
    assert_eq!(first, [false, true], "the second came when the first had left");
    assert_eq!(meet(&place.sum, Duration::from_secs(60)), [true, true]);
    assert_eq!(place.text().lines().filter(|line| line.starts_with("opened")).count(), 1);
}

#[test]
fn a_ledger_that_cannot_be_written_stops_what_it_is_for() {
    let place = Place::new();
    let ledger = Ledger::beside(&place.folder.path().join("none").join("secret.json"));
    let named = |error: Error| error.to_string().contains("secret.json.ledger");
    assert!(named(ledger.seal(&place.key.job, 0, 0).unwrap_err()));
    let opened =
        ledger.open(place.key.public(), &place.key.job, &place.sum, || -> Result<(), Error> {
            panic!("opened")
        });
    assert!(named(opened.unwrap_err()));
    assert!(AnyKey::load(&place.path()).is_err());
    // A file that is named by mistake stays as it is, if it has one line too.
    let key = place.folder.path().join("other.json");
    fs::write(&key, "{}").unwrap();
    let error = Ledger::at(key.clone()).seal(&place.key.job, 0, 0).unwrap_err().to_string();
    assert!(
        error.ends_with("other.json: not a valid ledger: line 1 is not one of a ledger"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(key).unwrap(), "{}");
}

/// A sum whose opening was cut short opens once more, but not behind another one of its round.
#[test]
fn a_sum_that_was_cut_short_does_not_open_behind_another() {
    let place = Place::new();
    let cut = || -> Result<(), Error> { Err(Error::Randomness) };
    let other = Sum { stream: vec![0; place.sum.stream.len()], ..place.sum.clone() };
    assert_eq!(place.open_by(&other, cut), Err(Error::Randomness));
    assert_eq!(place.open(&place.sum), Ok(()));
    let opened = place.open_by(&other, || -> Result<(), Error> { panic!("opened") });
    assert_eq!(opened, Err(Error::SecondSum { round: place.sum.round }));
}

/// An opening that was cut short may have failed: it counts until it is tried again and ends well.
#[test]
fn an_opening_that_never_ended_counts_until_it_does() {
    let place = Place::new();
    let cut = || -> Result<(), Error> { Err(Error::Randomness) };
    assert_eq!(place.open_by(&place.sum, cut), Err(Error::Randomness));
    assert_eq!(place.failures(), Ok(1));
    assert_eq!(place.open(&place.sum), Ok(()));
    assert_eq!(place.failures(), Ok(0));
    // What anyone can see to be no sum tells nothing, and takes nothing from the round.
    let none = || -> Result<(), Error> {
        let fault = ciphergram_he::error::CiphertextFault::residue(0);
        Err(Error::Ciphertext { chunk: 0, fault })
    };
    assert!(place.open_by(&place.lie(1), none).is_err());
    assert_eq!(place.failures(), Ok(0));
    let other = Sum { stream: vec![0; place.sum.stream.len()], ..place.lie(1) };
    assert_eq!(place.open(&other), not_theirs());
}

/// Lines of another key count for that one; lines of no form that is known are not passed over.
#[test]
fn failures_are_of_a_key_and_damage_is_refused() {
    let place = Place::new();
    assert!(place.open(&place.lie(8)).is_err());
    assert_eq!(place.failures(), Ok(1));
    let other = generate(Scheme::CkksSum, 5, 16);
    assert_eq!(place.ledger().failures(other.public()), Ok(0));
    let text = place.text();
    for damaged in [text.replace("failed", "fai1ed"), text.replacen(' ', "", 1)] {
        fs::write(place.path(), damaged).unwrap();
        let error = place.failures().unwrap_err().to_string();
        assert!(error.contains("secret.json.ledger: ") && error.contains("line "), "{error}");
        assert!(place.open(&place.sum).is_err());
    }
}

#[test]
fn rounds_reserved_by_the_block_are_nobody_else_s() {
    let place = Place::new();
    let job = &place.key.job;
    let own = Ledger::reserving(place.path(), 32);
    // A process that takes part in one round reserves no others.
    assert_eq!((own.next_round(job, 3), own.seal(job, 3, 0)), (Ok(0), Ok(())));
    assert_eq!((own.next_round(job, 3), place.ledger().next_round(job, 3)), (Ok(1), Ok(1)));
    for round in [1, 2, 5, 32] {
        assert_eq!(own.seal(job, 3, round), Ok(()));
        assert_eq!(own.next_round(job, 3), Ok(round + 1));
        // However this process ends, another one begins after the block.
        assert_eq!(place.ledger().next_round(job, 3), Ok(33));
        assert!(matches!(
            place.ledger().seal(job, 3, round),
            Err(Error::RoundOver { last: 32, .. })
        ));
        for earlier in [0, round] {
            let over = Error::RoundOver { number: 3, round: earlier, last: round };
            assert_eq!(own.seal(job, 3, earlier), Err(over));
        }
    }
    // Another client of the process has numbers of its own, and so has the next block.
    assert_eq!((own.next_round(job, 4), own.seal(job, 4, 2)), (Ok(0), Ok(())));
    assert_eq!((own.seal(job, 3, 40), own.next_round(job, 3)), (Ok(()), Ok(41)));
    assert_eq!(place.ledger().next_round(job, 3), Ok(72));
    // Two processes by the block never have a round in common.
    let other = Ledger::reserving(place.path(), 1000);
    assert_eq!((other.seal(job, 3, 72), other.seal(job, 3, 73)), (Ok(()), Ok(())));
    assert_eq!(own.seal(job, 3, 71), Ok(()));
    assert!(own.seal(job, 3, 72).is_err() && own.seal(job, 3, 104).is_err());
    assert_eq!((other.next_round(job, 3), own.next_round(job, 3)), (Ok(74), Ok(105)));
    assert_eq!(own.seal(job, 3, u64::MAX), Ok(()));
    assert!(own.seal(job, 3, u64::MAX).is_err());
}

/// Rounds that were reserved and left are over once a later one was opened: the next is after all that anyone sealed.
#[test]
fn reserved_rounds_that_others_went_past_are_left() {
    let place = Place::new();
    let job = &place.key.job;
    let (own, other) = (Ledger::reserving(place.path(), 32), place.ledger());
    assert_eq!((own.seal(job, 0, 0), own.seal(job, 0, 1)), (Ok(()), Ok(())));
    assert_eq!((other.seal(job, 0, 33), other.seal(job, 0, 34)), (Ok(()), Ok(())));
    assert_eq!(place.open_by(&place.lie(33), || Ok(())), Ok(()));
    assert_eq!(own.next_round(job, 0), Ok(35));
    assert_eq!(own.seal_next(job, 0, Ok), Ok(35));
}

#[test]
fn a_ledger_elsewhere_does_not_forget_the_one_beside_the_key() {
    let place = Place::new();
    let (key, elsewhere) =
        (place.folder.path().join("secret.json"), place.folder.path().join("use"));
    assert_eq!(Ledger::path_of(&key, None), Ok(place.path()));
    assert_eq!(Ledger::path_of(&key, Some(elsewhere.clone())), Ok(elsewhere.clone()));
    assert_eq!(place.ledger().seal(&place.key.job, 0, 0), Ok(()));
    let error = Ledger::path_of(&key, Some(elsewhere.clone())).unwrap_err().to_string();
    assert!(error.contains("use: move ") && error.contains("secret.json.ledger"), "{error}");
    fs::rename(place.path(), &elsewhere).unwrap();
    let ledger = Ledger::at(Ledger::path_of(&key, Some(elsewhere)).unwrap());
    assert_eq!(ledger.next_round(&place.key.job, 0), Ok(1));
    // One that there is already, for another key, does not either.
    let shared = place.folder.path().join("shared");
    assert_eq!(Ledger::at(shared.clone()).seal(&place.key.job, 1, 0), Ok(()));
    assert_eq!(place.ledger().seal(&place.key.job, 0, 5), Ok(()));
    let error = Ledger::path_of(&key, Some(shared)).unwrap_err().to_string();
    assert!(error.contains("shared: append ") && error.contains("remove that first"), "{error}");
    assert_eq!(Ledger::path_of(&key, Some(place.path())), Ok(place.path()));
}

#[test]
fn what_others_add_is_seen_and_a_ledger_that_is_replaced_is_read_anew() {
    let place = Place::new();
    let (one, other, job) = (place.ledger(), place.ledger(), &place.key.job);
    for round in 0..20 {
        let (sealing, seeing) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        assert_eq!(sealing.seal(job, 1, round), Ok(()));
        assert!(matches!(seeing.seal(job, 1, round), Err(Error::RoundOver { .. })));
        assert_eq!(seeing.next_round(job, 1), Ok(round + 1));
    }
    let path = place.folder.path().join("secret.json.ledger");
    let text = std::fs::read_to_string(&path).unwrap();
    let half: String = text.split_inclusive('\n').take(5).collect();
    std::fs::write(place.folder.path().join("new"), &half).unwrap();
    std::fs::rename(place.folder.path().join("new"), &path).unwrap();
    assert_eq!((one.next_round(job, 1), other.next_round(job, 1)), (Ok(4), Ok(4)));
    std::fs::remove_file(&path).unwrap();
    assert_eq!((one.next_round(job, 1), other.seal(job, 1, 0)), (Ok(0), Ok(())));
    assert_eq!(one.next_round(job, 1), Ok(1));
}

#[test]
fn a_ledger_in_memory_moves_to_the_file_of_its_key_once() {
    let place = Place::new();
    let (memory, job) = (Ledger::in_memory(), &place.key.job);
    let clone = memory.clone();
    assert_eq!((memory.seal(job, 1, 7), clone.next_round(job, 1)), (Ok(()), Ok(8)));
    let key = place.folder.path().join("secret.json");
    assert_eq!(memory.move_beside(&key), Ok(place.path()));
    assert_eq!(place.ledger().next_round(job, 1), Ok(8));
    assert_eq!((clone.seal(job, 1, 8), place.ledger().next_round(job, 1)), (Ok(()), Ok(9)));
    assert_eq!(clone.move_beside(&key), Ok(place.path()));
    assert!(matches!(Ledger::in_memory().move_beside(&key), Err(Error::Exists { .. })));
}
