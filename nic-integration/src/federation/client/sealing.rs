//! The owner's side of sealing: the right to it, the thread at work, and the chunks sealed so far.

use std::{
    path::Path,
    sync::mpsc::{self, Receiver, TryRecvError},
    thread::Scope,
    time::Duration,
};

use ciphergram_he::{SealPermit, exchange::Announcement, params::Chunks, threshold::Prekey};
use tracing::info_span;
use zeroize::Zeroizing;

use super::stream::SealedStream;
use crate::{
    federation::{
        Error,
        participation::Participation,
        seal::{SealTask, SealerMessage, SpoolState},
        spool::{Spool, SpoolHeader},
    },
    round::Resume,
};

/// Sealed batches that may wait to be pushed.
const BATCHES_AHEAD: usize = 2;

/// The right to seal the contribution that is announced.
enum Right {
    /// Nothing of it is sealed; the spool, if there is one, is empty.
    Fresh(SealPermit, Option<Spool>),
    /// Its first chunks are sealed and in this spool.
    Spooled(Spool),
}

/// Integers, if they are kept, and how many values of each tensor were clipped.
pub(super) type Quantities = (Option<Zeroizing<Vec<u32>>>, Vec<usize>);

/// The sealing of one contribution.
pub(super) struct Sealing {
    /// Until the thread begins, with it.
    right: Option<Right>,
    /// [`fingerprint`](crate::federation::spool::fingerprint) of the update.
    fingerprint: [u8; 32],
    rounding: Zeroizing<[u8; 32]>,
    stream: SealedStream,
    /// The shares that it opens by, once they are sealed, behind all chunks.
    shares: Option<Vec<u8>>,
    thread: Option<Receiver<SealerMessage>>,
    /// The spool, when the thread has ended.
    spool: Option<Receiver<Spool>>,
    busy: Duration,
    quantities: Option<Quantities>,
}

impl Sealing {
    /// Returns the sealing of a contribution of which nothing is sealed, into an empty spool if there is one.
    pub(super) fn fresh(
        permit: SealPermit,
        spool: Option<Spool>,
        of: ([u8; 32], Zeroizing<[u8; 32]>),
    ) -> Self {
        Self::new(Right::Fresh(permit, spool), of)
    }

    /// Returns the sealing of a contribution after the chunks of a spool, and its shares if they are there, rounding as
    /// they were rounded.
    pub(super) fn resumed(
        spool: Spool,
        (sealed, shares): (Vec<u8>, Option<Vec<u8>>),
        of: ([u8; 32], Zeroizing<[u8; 32]>),
    ) -> Self {
        let mut sealing = Self::new(Right::Spooled(spool), of);
        sealing.shares = shares;
        sealing.stream.append(sealed.into());
        sealing
    }

    /// Takes the [`fingerprint`](crate::federation::spool::fingerprint) of the update, then the seed of its rounding.
    fn new(right: Right, (fingerprint, rounding): ([u8; 32], Zeroizing<[u8; 32]>)) -> Self {
        Self {
            right: Some(right),
            fingerprint,
            rounding,
            stream: SealedStream::default(),
            shares: None,
            thread: None,
            spool: None,
            busy: Duration::ZERO,
            quantities: None,
        }
    }

    /// Returns the chunks sealed so far.
    pub(super) fn stream(&self) -> &SealedStream {
        &self.stream
    }

    /// Returns the shares that it opens by, once they are sealed.
    pub(super) fn shares(&self) -> Option<&[u8]> {
        self.shares.as_deref()
    }

    /// Returns the time spent on quantising and encrypting.
    pub(super) fn busy(&self) -> Duration {
        self.busy
    }

    /// Returns whether the thread was started: from then on the contribution is of one round.
    pub(super) fn has_begun(&self) -> bool {
        self.right.is_none()
    }

    /// Returns whether the thread may have more.
    pub(super) fn is_running(&self) -> bool {
        self.thread.is_some()
    }

    /// Starts the thread, once, under the terms that the announcement names: its lowest round is the one that is sealed
    /// for.
    ///
    /// # Errors
    ///
    /// [`Error::Spool`], if the spool's chunks are not cut as this contribution's are.
    pub(super) fn start<'s, 'a: 's>(
        &mut self,
        participation: &'a Participation<'a>,
        announcement: &Announcement,
        (chunks, prekeys): (Chunks, Vec<Prekey>),
        resume: Resume,
        scope: &'s Scope<'s, 'a>,
    ) -> Result<(), Error> {
        let number = participation.member.key.number();
        let (permit, spool) = match self.right.take() {
            Some(Right::Spooled(spool)) => {
                let end_of = |chunk: u32| chunks.offset_of(chunk) + chunks.bytes_of(chunk);
                let sealed = |chunk: &u32| end_of(*chunk) <= self.stream.len();
                let whole = (0..chunks.count()).take_while(sealed).count() as u32;
                if self.stream.len() != chunks.offset_of(whole).min(chunks.total_bytes()) {
                    let path = participation.spool.unwrap_or(Path::new("")).into();
                    let why = "its chunks are not those of this contribution".into();
                    return Err(Error::Spool { path, why });
                }
                // A chunk that is not in the spool was never sent; its rounding makes the same
                // integers.
                let state = SpoolState::Resumed(spool, self.stream.rest(0));
                (SealPermit::resume(announcement.seed, &self.rounding, whole), state)
            }
            Some(Right::Fresh(permit, spool)) => {
                let header = || SpoolHeader {
                    contributor: number,
                    resume,
                    fingerprint: self.fingerprint,
                    rounding: self.rounding.clone(),
                    announcement: announcement.clone(),
                };
                let new = |spool| SpoolState::New(spool, Box::new(header()));
                (permit, spool.map_or(SpoolState::None, new))
            }
            None => return Ok(()),
        };
        let (round, agreement) = (announcement.lowest_round, announcement.agreement.clone());
        let rounding = self.rounding.clone();
        let (sealed, done) = mpsc::channel();
        self.spool = Some(done);
        let has_shares = self.shares.is_some();
        let task = SealTask {
            participation,
            round,
            agreement,
            prekeys,
            rounding,
            permit,
            has_shares,
            spool,
            sealed,
        };
        let (sender, receiver) = mpsc::sync_channel(BATCHES_AHEAD);
        self.thread = Some(receiver);
        let span = info_span!("seal", client = number, round = resume.round);
        scope.spawn(move || span.in_scope(|| task.run(&sender)));
        Ok(())
    }

    /// Takes the batches that the thread has handed over.
    ///
    /// # Errors
    ///
    /// The thread's.
    pub(super) fn poll(&mut self) -> Result<(), Error> {
        while let Some(receiver) = &self.thread {
            match receiver.try_recv() {
                Ok(sealed) => self.take(sealed)?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.thread = None,
            }
        }
        Ok(())
    }

    /// Waits for the quantities if they are not known yet, then lets the thread go, which may wait
    /// for space to hand over.
    ///
    /// # Errors
    ///
    /// The thread's.
    pub(super) fn stop(&mut self) -> Result<(), Error> {
        while self.quantities.is_none()
            && let Some(sealed) = self.thread.as_ref().and_then(|thread| thread.recv().ok())
        {
            self.take(sealed)?;
        }
        self.let_go();
        Ok(())
    }

    /// Lets the thread go, which may wait for space to hand over.
    pub(super) fn let_go(&mut self) {
        self.thread = None;
    }

    /// Returns the quantities and the spool, once it is [stopped](Self::stop) and its thread has ended.
    pub(super) fn take_parts(&mut self) -> (Quantities, Option<Spool>) {
        let spool = self.spool.take().and_then(|spool| spool.try_recv().ok());
        (self.quantities.take().unwrap_or_default(), spool)
    }

    fn take(&mut self, sealed: SealerMessage) -> Result<(), Error> {
        match sealed {
            SealerMessage::Quantised { fields, clipped, busy } => {
                self.quantities = Some((fields, clipped));
                self.busy += busy;
            }
            SealerMessage::Chunks { bytes, busy } => {
                self.stream.append(bytes);
                self.busy += busy;
            }
            SealerMessage::Shares(shares) => self.shares = Some(shares),
            SealerMessage::Failed(error) => return Err(error),
        }
        Ok(())
    }
}
