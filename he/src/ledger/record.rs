//! The lines of a ledger, and all that follows from them.

use std::{collections::BTreeMap, iter};

use crate::{Error, ids::parse_hex, threshold::Prekey};

/// Everything that the lines so far say. Keys of maps are the words of lines.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Record {
    /// The last round that a client sealed a contribution to, by `JOB NUMBER`.
    sealed: BTreeMap<String, u64>,
    /// The last round that an opener answered for, by `JOB OPENER`; or every one, by `JOB`.
    answered: BTreeMap<String, u64>,
    /// The last prekey that an opener told, by `JOB OPENER`.
    prekeys: BTreeMap<String, Prekey>,
    /// The last round of which a sum opened, and its digest, by job.
    opened: BTreeMap<String, (u64, String)>,
    /// The sums of a round that were opened or tried, by `KEY JOB ROUND`.
    sums: BTreeMap<String, Vec<Opening>>,
    /// Openings under a key, and those that ended without a failure.
    counts: BTreeMap<String, (usize, usize)>,
}

/// The opening of one sum.
#[derive(Debug, PartialEq)]
struct Opening {
    digest: String,
    ends: Vec<End>,
}

/// The end of an opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It opened.
    Opened,
    /// It did not.
    Failed,
    /// Anyone can see that it is none.
    Refused,
}

impl End {
    /// Returns the verb of its line.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

/// What is known of a sum before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// It was not tried, and no sum of its round opened.
    New {
        /// The sums of the round that did not open, or may not have.
        failed: usize,
    },
    /// It opened, or its opening was cut short.
    Tried,
    /// It did not open.
    Failed,
    /// Another sum of its round was opened.
    Another,
}

impl Record {
    /// Returns lines that say the same.
    pub(super) fn lines(&self) -> Vec<String> {
        let sealed = self.sealed.iter().map(|(client, round)| format!("sealed {client} {round}"));
        let openings = self.sums.iter().flat_map(|(round, openings)| {
            openings.iter().flat_map(move |Opening { digest, ends }| {
                let ends = ends.iter().map(|end| end.verb());
                iter::once("opening")
                    .chain(ends)
                    .map(move |verb| format!("{verb} {round} {digest}"))
            })
        });
        let answered = self.answered.iter();
        let answered = answered.map(|(opener, round)| format!("answered {opener} {round}"));
        let prekeys = self.prekeys.iter();
        let prekeys =
            prekeys.map(|(opener, prekey)| format!("prekey {opener} {}", prekey.to_text()));
        sealed.chain(answered).chain(prekeys).chain(openings).collect()
    }

    /// Takes a line; whether it is one of a ledger.
    pub(super) fn take(&mut self, line: &str) -> bool {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["sealed", job, number, round] => {
                let Ok(round) = round.parse() else { return false };
                let last = self.sealed.entry(format!("{job} {number}")).or_insert(round);
                *last = round.max(*last);
            }
            ["answered", job, round] => return self.note_answer(job.into(), round),
            ["answered", job, opener, round] => {
                let Ok(opener) = opener.parse::<u8>() else { return false };
                return self.note_answer(format!("{job} {opener}"), round);
            }
            ["prekey", job, opener, prekey] => {
                let Some(prekey) = Prekey::of_text(prekey) else { return false };
                let opener = format!("{job} {opener}");
                let is_late = |known: &Prekey| !known.is_before(&prekey);
                if !self.prekeys.get(&opener).is_some_and(is_late) {
                    self.prekeys.insert(opener, prekey);
                }
            }
            ["opening", key, job, round, digest] => {
                let opening = Opening { digest: digest.into(), ends: vec![] };
                self.sums.entry(format!("{key} {job} {round}")).or_default().push(opening);
                self.counts.entry(key.into()).or_default().0 += 1;
            }
            ["opened", key, job, round, digest] => {
                let Ok(number) = round.parse() else { return false };
                let last = self.opened.entry(job.into()).or_default();
                *last = (number, digest.to_owned()).max(std::mem::take(last));
                self.end(key, &format!("{key} {job} {round}"), digest, End::Opened);
            }
            ["failed", key, job, round, digest] => {
                self.end(key, &format!("{key} {job} {round}"), digest, End::Failed);
            }
            ["refused", key, job, round, digest] => {
                self.end(key, &format!("{key} {job} {round}"), digest, End::Refused);
            }
            _ => return false,
        }
        true
    }

    fn note_answer(&mut self, opener: String, round: &str) -> bool {
        let Ok(round) = round.parse() else { return false };
        let last = self.answered.entry(opener).or_insert(round);
        *last = round.max(*last);
        true
    }

    fn end(&mut self, key: &str, round: &str, digest: &str, end: End) {
        if end != End::Failed {
            self.counts.entry(key.into()).or_default().1 += 1;
        }
        let openings = self.sums.entry(round.into()).or_default();
        match openings.iter_mut().find(|opening| opening.digest == digest) {
            Some(opening) => opening.ends.push(end),
            None => openings.push(Opening { digest: digest.into(), ends: vec![end] }),
        }
    }

    /// Returns the last round of a job that a client sealed a contribution to.
    pub(super) fn last_sealed(&self, job: &str, number: u16) -> Option<u64> {
        self.sealed.get(&format!("{job} {number}")).copied()
    }

    /// Refuses a round of a job that an opener answered for, or an earlier one.
    pub(super) fn check_unanswered(
        &self,
        job: &str,
        opener: usize,
        round: u64,
    ) -> Result<(), Error> {
        let own = [job, &format!("{job} {opener}")].map(|name| self.answered.get(name).copied());
        match own.into_iter().flatten().max() {
            Some(last) if last >= round => Err(Error::Answered { round, last }),
            _ => Ok(()),
        }
    }

    /// Returns the prekey that an opener of a job told last.
    pub(super) fn prekey(&self, job: &str, opener: u8) -> Option<&Prekey> {
        self.prekeys.get(&format!("{job} {opener}"))
    }

    /// Returns the prekeys that openers of a job told last.
    pub(super) fn prekeys(&self, job: &str) -> Vec<(u8, Prekey)> {
        let own = self.prekeys.iter().filter_map(|(opener, prekey)| {
            let opener = opener.strip_prefix(job)?.trim_start().parse().ok()?;
            Some((opener, prekey.clone()))
        });
        own.collect()
    }

    /// Returns the last round of a job of which a sum opened, and the digest of that. One that did not open says
    /// nothing of its round.
    pub(super) fn last_opened(&self, job: &str) -> Option<(u64, [u8; 32])> {
        let (round, digest) = self.opened.get(job)?;
        Some((*round, parse_hex(digest)?))
    }

    /// Returns what is known of the sum of a round, named `KEY JOB ROUND`, that has this digest.
    pub(super) fn known(&self, round: &str, digest: &str) -> Known {
        let openings = self.sums.get(round).map_or(&[][..], Vec::as_slice);
        match openings.iter().find(|opening| opening.digest == digest) {
            Some(opening) if opening.ends.contains(&End::Failed) => Known::Failed,
            // Whether it was tried before or not: one that was cut short must not open behind another.
            _ if openings
                .iter()
                .any(|other| other.digest != digest && other.ends.contains(&End::Opened)) =>
            {
                Known::Another
            }
            Some(_) => Known::Tried,
            None => {
                let may_tell = |opening: &&Opening| !opening.ends.contains(&End::Refused);
                Known::New { failed: openings.iter().filter(may_tell).count() }
            }
        }
    }

    /// Returns whether the opening of a sum is known to have ended so.
    pub(super) fn has_ended(&self, round: &str, digest: &str, end: End) -> bool {
        let openings = self.sums.get(round).into_iter().flatten();
        openings.filter(|opening| opening.digest == digest).any(|one| one.ends.contains(&end))
    }

    /// Returns the number of openings under a key that did not end well.
    pub(super) fn failures(&self, key: &str) -> usize {
        let (openings, ends) = self.counts.get(key).copied().unwrap_or_default();
        openings.saturating_sub(ends)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_without_an_opener_is_of_every_one() {
        let mut record = Record::default();
        assert!(record.take("answered job 1 7") && record.take("answered job 5"));
        let refused = |opener, round| record.check_unanswered("job", opener, round).is_err();
        assert_eq!([5, 6, 7, 8].map(|round| refused(0, round)), [true, false, false, false]);
        assert_eq!([5, 6, 7, 8].map(|round| refused(1, round)), [true, true, true, false]);
        assert!(!Record::default().take("answered job one 7"));
    }

    proptest! {
        #[test]
        fn lines_of_a_record_say_the_same(
            used in prop::collection::vec((0..6u8, 0..2u8, 0..4u64, 0..3u8), 0..40),
        ) {
            let mut record = Record::default();
            for (verb, name, round, other) in used {
                let sum = format!("key{name} job{name} {round} digest{other}");
                let lines = match verb {
                    0 => vec![format!("sealed job{name} {other} {round}")],
                    1 => vec![format!("opening {sum}")],
                    2 => vec![format!("opening {sum}"), format!("opened {sum}")],
                    3 => vec![format!("opening {sum}"), format!("failed {sum}")],
                    4 if other == 0 => vec![format!("answered job{name} {round}")],
                    4 => vec![format!("answered job{name} {other} {round}")],
                    _ => vec![format!("opening {sum}"), format!("refused {sum}")],
                };
                prop_assert!(lines.iter().all(|line| record.take(line)));
            }
            let mut again = Record::default();
            prop_assert!(record.lines().iter().all(|line| again.take(line)));
            prop_assert_eq!(again, record);
        }
    }
}
