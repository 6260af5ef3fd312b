//! The sum of a round, kept in the spool until it is opened and its result is on disk.

use std::{
    fs::File,
    time::{Duration, Instant},
};

use ciphergram_accel::Engine;
use ciphergram_he::{
    Error as SchemeError, Job, KeyRef, Ledger, OpenedSum, SecretKey, Sum, codec::Output,
    decrypt_into, decrypt_to,
};
use tracing::info_span;

use crate::{
    federation::{
        Error,
        participation::{Participation, RoundResult},
        spool::{Content, Found, KeptSum, Spool, SpoolHeader, fingerprint},
    },
    proto::Stats,
};

/// Returns the result of a round whose sum the spool of an earlier run kept, without asking anybody; none if there
/// is no such spool.
///
/// # Errors
///
/// The sum is of too few or is none; the spool's.
pub fn finish_from_spool(participation: &Participation<'_>) -> Result<Option<RoundResult>, Error> {
    match find(participation, participation.key.number())? {
        Some(Found { spool, content: Content::Sum(kept), .. }) => {
            finish_kept(participation, spool, *kept).map(Some)
        }
        _ => Ok(None),
    }
}

/// Opens a sum that a spool kept.
///
/// # Errors
///
/// The sum is of too few or is none; the spool's.
pub(super) fn finish_kept(
    participation: &Participation<'_>,
    spool: Spool,
    kept: KeptSum,
) -> Result<RoundResult, Error> {
    let KeptSum { sum, clipped } = kept;
    let (opened, decrypting, spool) = open_spooled(participation, &sum, Some(spool))?;
    Ok(RoundResult {
        opening: None,
        sum,
        opened,
        fields: None,
        clipped,
        encrypting: Duration::ZERO,
        exchanging: Duration::ZERO,
        decrypting,
        stats: Stats::default(),
        spool,
    })
}

/// Returns the spool of a participation, if there is one, and it is of this contribution under this job. The ledger
/// has the contribution's round from then on: the one that it was entered in may be in another place.
///
/// # Errors
///
/// It is of another one; the spool's; the ledger's.
pub(super) fn find(participation: &Participation<'_>, number: u16) -> Result<Option<Found>, Error> {
    let Some(path) = participation.spool else { return Ok(None) };
    let Some(found) = Spool::open(path, participation.key.public())? else { return Ok(None) };
    let SpoolHeader { contributor, fingerprint: of, announcement, .. } = &found.header;
    let own = fingerprint(participation.update, participation.weight)?;
    let fail = |why: &str| Err(Error::Spool { path: path.into(), why: why.into() });
    if *of != own || *contributor != number {
        return fail(
            "it holds another unfinished contribution: finish that one with its own \
             tensors, weight and client number, or delete the file",
        );
    }
    if announcement.job != participation.job.id() {
        return fail(
            "it holds this contribution under another job: finish it with that one, or delete \
             the file",
        );
    }
    if let Some(ledger) = participation.ledger {
        ledger.resume(participation.job, number, announcement.lowest_round)?;
    }
    Ok(Some(found))
}

type Opened = (Option<OpenedSum>, Duration, Option<Spool>);

/// Opens a sum, or checks it, and returns how long it took, and the spool. Removes that if the sum never opens.
pub(super) fn open_spooled(
    participation: &Participation<'_>,
    sum: &Sum,
    spool: Option<Spool>,
) -> Result<Opened, Error> {
    let clock = Instant::now();
    let _span =
        info_span!("open", client = participation.key.number(), round = sum.round).entered();
    match open_sum(participation, &*participation.engine, sum) {
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
            | SchemeError::KeySpent { .. }
            | SchemeError::Randomness
            | SchemeError::TooFewContributors { .. }
            | SchemeError::Overflow { .. }
            | SchemeError::Io { .. }
    )
}

/// Opens the sum with the secret key, if its integers are to be kept; else checks it as far as that takes no secret.
fn open_sum(
    participation: &Participation<'_>,
    engine: &dyn Engine,
    sum: &Sum,
) -> Result<Option<OpenedSum>, SchemeError> {
    let Participation { key, job, ledger, keep_fields, .. } = participation;
    match key {
        KeyRef::Client(key) => {
            participation.compute(|| sum.verify(key.public(), engine, job)).map(|()| None)
        }
        KeyRef::Secret(key, _) if *keep_fields => {
            let open = || participation.compute(|| OpenedSum::open(key, engine, sum, job));
            entered(*ledger, (key, job), sum, open).map(Some)
        }
        KeyRef::Secret(key, _) => sum.check(key.public(), job).map(|()| None),
    }
}

/// Opens a sum by `open`, with a record of it in the ledger, if there is one. Not to be called on threads to compute
/// on: one that waits there for parts of its own sum may begin another's opening, which waits for this one's turn.
fn entered<T>(
    ledger: Option<&Ledger>,
    (key, job): (&SecretKey, &Job),
    sum: &Sum,
    open: impl FnOnce() -> Result<T, SchemeError>,
) -> Result<T, SchemeError> {
    match ledger {
        Some(ledger) => ledger.open(key.public(), job, sum, open),
        None => open(),
    }
}

impl RoundResult {
    /// Decrypts the sum to a safetensors file, laid out as that of the client's update and with the tensors that this
    /// one keeps, as [`decrypt_to`] does. The spool is removed if the sum never opens.
    ///
    /// # Errors
    ///
    /// Those of [`decrypt_to`] and of the ledger; the spool's.
    pub fn decrypt_to(
        &mut self,
        key: &SecretKey,
        participation: &Participation<'_>,
        output: Output,
        file: &File,
    ) -> Result<(), Error> {
        let Participation { job, engine, update, .. } = participation;
        self.open_by(key, participation, |sum| {
            decrypt_to(key, &**engine, (sum, Some(update)), job, output, file, &|_| {})
        })
    }

    /// Decrypts the sum to memory, as [`decrypt_into`] does. The spool is removed if the sum never opens.
    ///
    /// # Errors
    ///
    /// Those of [`decrypt_into`] and of the ledger; the spool's.
    pub fn decrypt_into(
        &mut self,
        key: &SecretKey,
        participation: &Participation<'_>,
        output: Output,
        out: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let Participation { job, engine, .. } = participation;
        self.open_by(key, participation, |sum| decrypt_into(key, &**engine, sum, job, output, out))
    }

    fn open_by(
        &mut self,
        key: &SecretKey,
        participation: &Participation<'_>,
        open: impl FnOnce(&Sum) -> Result<(), SchemeError> + Send,
    ) -> Result<(), Error> {
        let Participation { job, ledger, .. } = *participation;
        let clock = Instant::now();
        let sum = &self.sum;
        let opened = entered(ledger, (key, job), sum, || participation.compute(|| open(sum)));
        self.decrypting += clock.elapsed();
        opened.map_err(|error| match self.spool.take_if(|_| !may_open_later(&error)) {
            Some(spool) => spool.remove().err().unwrap_or(error.into()),
            None => error.into(),
        })
    }
}
