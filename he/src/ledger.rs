//! The record of a key's use, on disk beside its file or where a person says: a client seals one contribution to a
//! round, and an opener opens one sum of it. That of a key that is in one process alone is in its memory, until the
//! key is saved.
//!
//! A ledger is a file of lines, to which lines are only added. The first one says of which version it is; that of the
//! first version may be without. A line is on disk before what it is about happens, and that of an end before anything
//! comes of it:
//!
//! | line | meaning |
//! |---|---|
//! | `sealed JOB NUMBER ROUND` | client NUMBER seals a contribution to ROUND; no other process seals to this or an earlier one |
//! | `answered JOB OPENER ROUND` | the opener answers for ROUND, and for no earlier one any more; without OPENER, every one |
//! | `prekey JOB OPENER PREKEY` | the opener told this prekey last |
//! | `opening KEY JOB ROUND DIGEST` | the sum of this digest is opened |
//! | `opened …`, `failed …`, `refused …` | it opened, it did not, or anyone can see that it is none |
//!
//! Of a round one sum opens, and before it four may fail; then the round is over. A sum of which no end is recorded
//! counts as failed: its opening may have been cut short. So the line of an end that a failing machine loses counts
//! against the round, never for it.
//!
//! A client that contributes to one round after the other may reserve their numbers by the block: its line says the
//! last of them, and no other process seals to any of them, whatever becomes of this one.

mod lines;
mod record;

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use self::{
    lines::{ENDING, Lines, Locked, Sync, chosen, lock},
    record::{End, Known},
};
use crate::{
    Error, Job, KeyRef, PublicKey, Sum,
    codec::OpenedRound,
    files::{sibling_of, with_end},
    ids::hex,
    params::security::MAX_TRIES,
    threshold::Prekey,
};

/// The most rounds that may be reserved by the block: clients that start anew are half as far ahead of others as a
/// round admits.
const MAX_BLOCK: u64 = 32;

/// The ledger of a key. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Ledger(Arc<LedgerState>);

#[derive(Debug)]
struct LedgerState {
    lines: Mutex<Lines>,
    /// Held while a sum that may fail is opened.
    turn: Mutex<()>,
    /// Rounds that are reserved at a time.
    block: u64,
    /// The rounds that are reserved and not sealed for, by `JOB NUMBER`.
    reserved: Mutex<BTreeMap<String, Range<u64>>>,
}

impl Ledger {
    /// Returns the ledger beside a key's file, wherever links to that lead.
    #[must_use]
    pub fn beside(key: &Path) -> Self {
        Self::at(sibling_of(key, ENDING))
    }

    /// Returns the file of the ledger of a key's file: the one given, or that which `CIPHERGRAM_LEDGER` names, or else
    /// the one beside it. Several keys may have one ledger.
    ///
    /// # Errors
    /// The file chosen is not there yet, and the one beside the key is.
    pub fn path_of(key: &Path, given: Option<PathBuf>) -> Result<PathBuf, Error> {
        Ok(chosen(key, given)?.unwrap_or_else(|| sibling_of(key, ENDING)))
    }

    /// Returns the ledger of a file.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self::reserving(path, 1)
    }

    /// Returns the ledger of a file, for a process that takes part in many rounds: from the second one of a client on
    /// it reserves their numbers by blocks of `rounds`, 32 at most.
    #[must_use]
    pub fn reserving(path: PathBuf, rounds: u64) -> Self {
        Self::of(Lines::of_file(path), rounds.clamp(1, MAX_BLOCK))
    }

    /// Makes the ledger of a key that no file has.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::of(Lines::default(), 1)
    }

    fn of(lines: Lines, block: u64) -> Self {
        let (lines, turn, reserved) = (Mutex::new(lines), Mutex::default(), Mutex::default());
        Self(Arc::new(LedgerState { lines, turn, block, reserved }))
    }

    /// Moves a ledger from memory to beside the file that its key is saved to, and all clones with it. Of one that is
    /// on disk a copy is written there. Returns where that is.
    ///
    /// # Errors
    /// There is a ledger beside that file already, or it cannot be written.
    pub fn move_beside(&self, key: &Path) -> Result<PathBuf, Error> {
        let path = sibling_of(key, ENDING);
        held(&self.0.lines).move_to(path.clone())?;
        Ok(path)
    }

    /// Returns the round that client `number` may contribute to next: the one after the last that it sealed a
    /// contribution to, and after the last that was opened here. Of a round that was opened no other sum is.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn next_round(&self, job: &Job, number: u16) -> Result<u64, Error> {
        let name = job.id().to_string();
        let reserved = held(&self.0.reserved).get(&client(&name, number)).cloned();
        let mut lines = held(&self.0.lines);
        let record = lines.read()?;
        let next = |last: Option<u64>| last.map_or(0, |last| last.saturating_add(1));
        let after_opened = next(record.last_opened(&name).map(|(round, _)| round));
        let own = match reserved {
            // All up to its end are sealed, as far as others know.
            Some(rounds) if rounds.start.max(after_opened) < rounds.end => rounds.start,
            _ => next(record.last_sealed(&name, number)),
        };
        Ok(own.max(after_opened))
    }

    /// Returns the round asked for, or the next one, if client `number` may contribute to it by now.
    ///
    /// # Errors
    /// [`Error::RoundOver`]; the file cannot be read.
    pub fn open_round(&self, job: &Job, number: u16, asked: Option<u64>) -> Result<u64, Error> {
        let Some(round) = asked else { return self.next_round(job, number) };
        let last = held(&self.0.lines).read()?.last_sealed(&job.id().to_string(), number);
        match last.filter(|last| *last >= round) {
            Some(last) => Err(Error::RoundOver { number, round, last }),
            None => Ok(round),
        }
    }

    /// Records that client `number` seals its contribution to a round. Nothing of it may leave if this fails.
    ///
    /// # Errors
    /// [`Error::RoundOver`]; the file cannot be written.
    pub fn seal(&self, job: &Job, number: u16, round: u64) -> Result<(), Error> {
        let name = job.id().to_string();
        let mut all_reserved = held(&self.0.reserved);
        let own = client(&name, number);
        // Many a process takes part in one round, and its numbers would be lost with it.
        let block = if all_reserved.contains_key(&own) { self.0.block } else { 1 };
        let reserved = all_reserved.entry(own).or_default();
        if reserved.contains(&round) {
            reserved.start = round.saturating_add(1);
            return Ok(());
        }
        let last = round.saturating_add(block - 1);
        held(&self.0.lines).change(Sync::Now, |record| {
            // What is reserved and left counts as sealed for, but says no more than this about the last.
            let sealed = record.last_sealed(&name, number);
            let left = (!reserved.is_empty()).then(|| reserved.start.saturating_sub(1));
            match sealed {
                Some(sealed) if sealed >= round => {
                    Err(Error::RoundOver { number, round, last: left.unwrap_or(sealed) })
                }
                _ => Ok(Some(sealed_line(&name, number, last))),
            }
        })?;
        *reserved = round.saturating_add(1)..last.saturating_add(1);
        Ok(())
    }

    /// Begins a contribution of client `number` to the next round that it may contribute to, and records that it is
    /// sealed: of several at once, in this process and others, each has a round of its own. What `begin` refuses takes
    /// no round.
    ///
    /// # Errors
    /// Those of `begin`, which is called again with a later round if another contribution came between; those of
    /// [`seal`](Self::seal), where there is no later round; those of [`next_round`](Self::next_round).
    pub fn seal_next<T>(
        &self,
        job: &Job,
        number: u16,
        mut begin: impl FnMut(u64) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            let round = self.next_round(job, number)?;
            let begun = begin(round)?;
            match self.seal(job, number, round) {
                Err(Error::RoundOver { .. }) if round < u64::MAX => {}
                sealed => return sealed.map(|()| begun),
            }
        }
    }

    /// Refuses a round that an opener answered for, or an earlier one.
    ///
    /// # Errors
    /// [`Error::Answered`]; the file cannot be read.
    pub(crate) fn check_unanswered(
        &self,
        job: &Job,
        opener: usize,
        round: u64,
    ) -> Result<(), Error> {
        held(&self.0.lines).read()?.check_unanswered(&job.id().to_string(), opener, round)
    }

    /// Records that an opener answers for a round. Nothing of the answer may leave if this fails.
    ///
    /// # Errors
    /// [`Error::Answered`]; the file cannot be written.
    pub(crate) fn answer(&self, job: &Job, opener: usize, round: u64) -> Result<(), Error> {
        let name = job.id().to_string();
        held(&self.0.lines).change(Sync::Now, |record| {
            record.check_unanswered(&name, opener, round)?;
            Ok(Some(format!("answered {name} {opener} {round}")))
        })
    }

    /// Records the prekeys that openers told with their answers. One that is lost with the machine is told again.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn learn(&self, job: &Job, prekeys: Vec<(u8, &Prekey)>) -> Result<(), Error> {
        let name = job.id().to_string();
        for (opener, prekey) in prekeys {
            held(&self.0.lines).change(Sync::Later, |record| {
                let known = record.prekey(&name, opener);
                let is_known = known.is_some_and(|known| !known.is_before(prekey));
                Ok((!is_known).then(|| format!("prekey {name} {opener} {}", prekey.to_text())))
            })?;
        }
        Ok(())
    }

    /// Returns the prekeys that openers of a job told last, as far as they are known, each by the opener's place.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn prekeys(&self, job: &Job) -> Result<Vec<(u8, Prekey)>, Error> {
        Ok(held(&self.0.lines).read()?.prekeys(&job.id().to_string()))
    }

    /// Records the same of a contribution that was sealed before, and goes on: the record may be in another place.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn resume(&self, job: &Job, number: u16, round: u64) -> Result<(), Error> {
        let name = job.id().to_string();
        held(&self.0.lines).change(Sync::Now, |record| {
            let is_known = record.last_sealed(&name, number).is_some_and(|last| last >= round);
            Ok((!is_known).then(|| sealed_line(&name, number, round)))
        })
    }

    /// Returns where a client stands in a job: the [next round](Self::next_round), and the last of which a sum was
    /// opened here, named under the client's key.
    ///
    /// # Errors
    /// The file cannot be read; [`Error::NoSumKey`].
    pub fn standing(
        &self,
        job: &Job,
        key: KeyRef<'_>,
    ) -> Result<(u64, Option<OpenedRound>), Error> {
        // In this order: what another process opens between the two is not of a round still to come.
        let last = held(&self.0.lines).read()?.last_opened(&job.id().to_string());
        let next = self.next_round(job, key.number())?;
        let Some((round, digest)) = last else { return Ok((next, None)) };
        Ok((next, Some(key.opened_round(round, &digest)?)))
    }

    /// Opens a sum by `open`, unless another one of its round was opened or too many did not open. Sums that may fail
    /// are opened one at a time: of many at once no more may fail than one after the other. A sum that opened before
    /// cannot fail, so clients that share a key open it at once as soon as the first of them has.
    ///
    /// # Errors
    /// That of `open`; those of [`Sum::check`], after which another sum of the round may still be opened;
    /// [`Error::SecondSum`], [`Error::RoundSpent`], [`Error::NotTheirs`] if it did not open before; the file cannot be
    /// written.
    pub fn open<T>(
        &self,
        key: &PublicKey,
        job: &Job,
        sum: &Sum,
        open: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        sum.check(key, job)?;
        let turn = self.turn()?;
        let (id, digest) = (key.id().to_string(), hex(&sum.digest()));
        let round = format!("{id} {} {}", sum.job, sum.round);
        let mut opened_before = false;
        held(&self.0.lines).change(Sync::Now, |record| {
            opened_before = record.has_ended(&round, &digest, End::Opened);
            match record.known(&round, &digest) {
                Known::Failed => Err(Error::NotTheirs { contributors: sum.contributors.len() }),
                Known::Another => Err(Error::SecondSum { round: sum.round }),
                Known::New { failed: MAX_TRIES.. } => Err(Error::RoundSpent { round: sum.round }),
                Known::Tried => Ok(None),
                Known::New { .. } => Ok(Some(format!("opening {round} {digest}"))),
            }
        })?;
        // It cannot fail: others need not wait, and an end by an engine's fault is not the sum's.
        let _turn = (!opened_before).then_some(turn);
        let opened = open();
        if !opened_before && let Some(end) = end_of(&opened) {
            let sync = if end == End::Refused { Sync::Later } else { Sync::Now };
            held(&self.0.lines).change(sync, |record| {
                let is_known = record.has_ended(&round, &digest, end);
                Ok((!is_known).then(|| format!("{} {round} {digest}", end.verb())))
            })?;
        }
        opened
    }

    /// Returns the number of sums that did not open under a key.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn failures(&self, key: &PublicKey) -> Result<usize, Error> {
        Ok(held(&self.0.lines).read()?.failures(&key.id().to_string()))
    }

    /// Waits until nobody else opens a sum that may fail, in this process or another.
    fn turn(&self) -> Result<(MutexGuard<'_, ()>, Option<Locked>), Error> {
        let turn = held(&self.0.turn);
        let file = held(&self.0.lines).path().map(Path::to_path_buf);
        let file = file.map(|path| lock(&path, &with_end(&path, ".lock"))).transpose()?;
        Ok((turn, file))
    }
}

/// Returns what a lock guards: whoever panicked had it whole.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn client(job: &str, number: u16) -> String {
    format!("{job} {number}")
}

fn sealed_line(job: &str, number: u16, round: u64) -> String {
    format!("sealed {job} {number} {round}")
}

/// Returns how an opening ended; none if it may be tried again.
fn end_of<T>(opened: &Result<T, Error>) -> Option<End> {
    fn of(error: &Error) -> Option<End> {
        match error {
            Error::In { error, .. } => of(error),
            Error::NotTheirs { .. } => Some(End::Failed),
            Error::Ciphertext { .. } => Some(End::Refused),
            _ => None,
        }
    }
    match opened {
        Ok(_) => Some(End::Opened),
        Err(error) => of(error),
    }
}
