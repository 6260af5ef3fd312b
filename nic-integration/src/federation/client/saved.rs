//! The sum of a round, saved in the spool until it is opened and its result is on disk.

use std::time::{Duration, Instant};

use ciphergram_he::{
    Destination, Error as SchemeError, KeyRef, Member, OpenedSum, Sum, codec::Output,
    threshold::OpenAnswer,
};
use tracing::info_span;

use crate::{
    federation::{
        Error,
        participation::{Participation, RoundResult},
        spool::{FoundSpool, SavedSum, Spool, SpoolContent, SpoolHeader, fingerprint},
    },
    proto::Stats,
};

/// Returns the result of a round whose sum the spool of an earlier run saved, without asking anybody; none if there
/// is no such spool.
///
/// # Errors
///
/// The sum is of too few or is none; the spool's.
pub fn finish_from_spool(participation: &Participation<'_>) -> Result<Option<RoundResult>, Error> {
    match find(participation)? {
        Some(FoundSpool { spool, content: SpoolContent::Sum(saved), .. }) => {
            finish_saved(participation, spool, *saved).map(Some)
        }
        _ => Ok(None),
    }
}

/// Opens a sum that a spool saved.
///
/// # Errors
///
/// The sum is of too few or is none; the spool's.
pub(super) fn finish_saved(
    participation: &Participation<'_>,
    spool: Spool,
    saved: SavedSum,
) -> Result<RoundResult, Error> {
    let SavedSum { sum, clipped, answers } = saved;
    let (opened, decrypting, spool) = open_spooled(participation, (&sum, &answers), Some(spool))?;
    Ok(RoundResult {
        opening: None,
        sum,
        shares_bytes: 0,
        answers,
        opened,
        fields: None,
        clipped,
        encrypting: Duration::ZERO,
        exchanging: Duration::ZERO,
        decrypting,
        stats: Stats::default(),
        transport: None,
        spool,
    })
}

/// Returns the spool of a participation, if there is one, and it is of this contribution under this job. The ledger
/// has the contribution's round from then on: the one that it was entered in may be in another place.
///
/// # Errors
///
/// It is of another one; the spool's; the ledger's.
pub(super) fn find(participation: &Participation<'_>) -> Result<Option<FoundSpool>, Error> {
    let Participation { member, spool, update, weight, .. } = participation;
    let number = member.key.number();
    let Some(path) = *spool else { return Ok(None) };
    let Some(found) = Spool::open(path, member.key.public())? else { return Ok(None) };
    let SpoolHeader { contributor, fingerprint: of, announcement, .. } = &found.header;
    let own = fingerprint(update, *weight)?;
    let fail = |why: &str| Err(Error::Spool { path: path.into(), why: why.into() });
    if *of != own || *contributor != number {
        return fail(
            "it holds another unfinished contribution: finish that one with its own \
             tensors, weight and client number, or delete the file",
        );
    }
    if announcement.job != member.job.id() {
        return fail(
            "it holds this contribution under another job: finish it with that one, or delete \
             the file",
        );
    }
    member.ledger.resume(member.job, number, announcement.lowest_round)?;
    Ok(Some(found))
}

type SpooledOutcome = (Option<OpenedSum>, Duration, Option<Spool>);

/// Opens a sum, or checks it, and returns how long it took, and the spool. Removes that if the sum never opens.
pub(super) fn open_spooled(
    participation: &Participation<'_>,
    (sum, answers): (&Sum, &[OpenAnswer]),
    spool: Option<Spool>,
) -> Result<SpooledOutcome, Error> {
    let clock = Instant::now();
    let _span =
        info_span!("open", client = participation.member.key.number(), round = sum.round).entered();
    match open_sum(participation, sum, answers) {
        Ok(opened) => Ok((opened, clock.elapsed(), spool)),
        Err(error) => {
            if !may_open_later(&error) {
                spool.map_or(Ok(()), Spool::remove)?;
            }
            Err(error.into())
        }
    }
}

/// Returns whether a sum that did not open may open at another try: by another engine, or if fewer contributors
/// are asked for. What is wrong with the sum itself stays so.
fn may_open_later(error: &SchemeError) -> bool {
    matches!(
        error,
        SchemeError::Engine(_)
            | SchemeError::In { .. }
            | SchemeError::Randomness
            | SchemeError::TooFewContributors { .. }
            | SchemeError::Overflow { .. }
            | SchemeError::Io { .. }
    )
}

/// Opens the sum with the secret key, if its integers are to be kept; else checks it as far as that takes no secret.
fn open_sum(
    participation: &Participation<'_>,
    sum: &Sum,
    answers: &[OpenAnswer],
) -> Result<Option<OpenedSum>, SchemeError> {
    let Participation { member, keep_fields, .. } = participation;
    let Member { key, job, engine, .. } = member;
    match key {
        KeyRef::Client(key) => {
            member.compute(|| sum.verify(key.public(), &**engine, job)).map(|()| None)
        }
        KeyRef::Secret(..) | KeyRef::Member(_) if *keep_fields => {
            member.open_integers(sum, answers).map(Some)
        }
        KeyRef::Secret(..) | KeyRef::Member(_) => sum.check(key.public(), job).map(|()| None),
    }
}

impl RoundResult {
    /// Opens the sum to a destination, as [`Member::open_sum`] does. The spool is removed if the sum never opens.
    ///
    /// # Errors
    ///
    /// Those of [`Member::open_sum`]; the spool's.
    pub fn open_to(
        &mut self,
        member: &Member<'_>,
        output: Output,
        to: Destination<'_, '_>,
    ) -> Result<(), Error> {
        let clock = Instant::now();
        let opened = member.open_sum(&self.sum, &self.answers, output, to);
        self.decrypting += clock.elapsed();
        opened.map_err(|error| match self.spool.take_if(|_| !may_open_later(&error)) {
            Some(spool) => spool.remove().err().unwrap_or(error.into()),
            None => error.into(),
        })
    }
}
