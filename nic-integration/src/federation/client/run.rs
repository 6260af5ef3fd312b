//! The way of a contribution to one aggregator, from its join to the result.

use std::{
    net::SocketAddr,
    ops::ControlFlow,
    thread::Scope,
    time::{Duration, Instant},
};

use ciphergram_he::{Member, Sum, exchange::RoundTerms, threshold::OpenAnswer};
use tracing::{Span, info, warn};

use super::{contribution::PreparedContribution, open_round::OpenRound, saved::open_spooled};
use crate::{
    Refusal,
    driver::MAX_SLEEP,
    federation::{
        Error,
        opener::answer_request,
        participation::{Participation, ParticipationPhase, RoundResult},
        spool::Spool,
    },
    proto::{Stats, Time, endpoint::DEFAULT_GIVE_UP},
    round::{Resume, RoundClient, RoundClientEvent, RoundEnd, RoundOpening, SumLayout, Sums},
};

/// The longest sleep while the sealing thread works.
const SEALING_SLEEP: Duration = Duration::from_millis(1);

/// A contribution on its way to an aggregator.
pub(super) struct Run<'c, 'a> {
    contribution: &'c mut PreparedContribution<'a>,
    server: SocketAddr,
    /// The span for the aggregator's first answer.
    contact: Duration,
    open: Option<OpenRound>,
    /// Datagrams received before it.
    former: u64,
    /// The time at which it began to look for the aggregator.
    began: Instant,
    /// Datagrams received when the aggregator was last found silent, and when that silence began.
    silence: (u64, Instant),
    /// Bytes of the longest datagrams that the path was last known to take.
    datagram_bytes: u64,
}

type IterationFlow = ControlFlow<Result<RoundEnd, Error>, Duration>;

impl<'c, 'a> Run<'c, 'a> {
    /// Returns a run that has asked nobody yet.
    pub(super) fn new(
        contribution: &'c mut PreparedContribution<'a>,
        server: SocketAddr,
        contact: Duration,
    ) -> Self {
        let now = Instant::now();
        Self {
            contribution,
            server,
            contact,
            open: None,
            former: 0,
            began: now,
            silence: (0, now),
            datagram_bytes: 0,
        }
    }

    /// Asks to take part.
    ///
    /// # Errors
    ///
    /// As [`RoundClient::join`].
    pub(super) fn join(&mut self, node: &mut RoundClient, now: Time) -> Result<(), Error> {
        // What came in former rounds is no answer to this.
        self.former = node.stats().received.datagrams;
        let id = self.contribution.announcement.seed.id();
        if let Some(opener) = self.contribution.participation.opener {
            node.attend(now, opener.place() as u8, opener.prekey()?.to_bytes());
        }
        Ok(node.join(now, id, self.contribution.hello()?, self.contribution.resume)?)
    }

    /// Answers what this client is asked as an opener.
    fn answer(&self, node: &mut RoundClient, now: Time) -> Result<(), Error> {
        let Participation { member, opener, .. } = self.contribution.participation;
        let Some(opener) = opener else { return Ok(()) };
        let Some(request) = node.take_request() else { return Ok(()) };
        answer_request(opener, member.ledger, (node, now), &request)
            .map(|event| info!(?event, "opener"))
    }

    fn bad_round(&self, what: &'static str) -> Error {
        Error::BadRound { server: self.server, what }
    }

    /// Runs one iteration of the loop: events, sealed chunks, pushes.
    pub(super) fn iterate<'s>(
        &mut self,
        node: &mut RoundClient,
        now: Time,
        scope: &'s Scope<'s, 'a>,
    ) -> IterationFlow
    where
        'a: 's,
    {
        match self.step(node, now, scope) {
            Ok(Some(end)) => ControlFlow::Break(Ok(end)),
            Ok(None) => {
                let busy = self.contribution.sealing.is_running();
                ControlFlow::Continue(if busy { SEALING_SLEEP } else { MAX_SLEEP })
            }
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }

    /// Says how long datagrams may be on the path, when that changes.
    fn note_path(&mut self, node: &RoundClient) {
        let bytes = node.stats().datagram_bytes;
        let before = std::mem::replace(&mut self.datagram_bytes, bytes);
        if before != bytes && before > 0 {
            info!(bytes, before, "the path takes datagrams of this size");
        }
    }

    fn step<'s>(
        &mut self,
        node: &mut RoundClient,
        now: Time,
        scope: &'s Scope<'s, 'a>,
    ) -> Result<Option<RoundEnd>, Error>
    where
        'a: 's,
    {
        self.note_path(node);
        while let Some(event) = node.poll_event() {
            match event {
                RoundClientEvent::Opened(opening) => self.on_opened(node, now, opening, scope)?,
                RoundClientEvent::Sum { chunk, bitmap, bytes } => {
                    let open = self.open.as_mut();
                    let taken = open.map_or(Ok(()), |open| open.take_sum(chunk, &bitmap, &bytes));
                    taken.map_err(|what| self.bad_round(what))?;
                }
                // Too late for a chunk: its sum goes on without this contribution.
                RoundClientEvent::Counted { .. }
                | RoundClientEvent::Rejected { refusal: Refusal::RoundClosed, .. } => {}
                RoundClientEvent::Rejected { first_chunk, refusal } => {
                    let (server, reason) = (self.server, refusal.to_string());
                    return Err(Error::Rejected { server, chunk: first_chunk, reason });
                }
                RoundClientEvent::Ended(end) => return Ok(Some(end)),
                RoundClientEvent::Refused { reason } => {
                    return Err(Error::Refused { server: self.server, reason });
                }
                RoundClientEvent::Unreachable => self.ask_again(node, now)?,
                RoundClientEvent::Unlisted => {
                    let node = node.endpoint().node();
                    return Err(Error::Unlisted { server: self.server, node });
                }
            }
        }
        let has_answered = node.stats().received.datagrams > self.former;
        if !has_answered && self.began.elapsed() >= self.contact {
            return Err(self.unreachable(self.contact, false));
        }
        self.contribution.sealing.poll()?;
        self.push(node, now)?;
        self.answer(node, now)?;
        Ok(None)
    }

    fn unreachable(&self, waited: Duration, has_answered: bool) -> Error {
        Error::Unreachable {
            server: self.server,
            waited,
            has_answered,
            is_closed: false,
            dial: None,
        }
    }

    /// Returns the part of the round that it is in.
    pub(super) fn phase(&self, node: &RoundClient) -> ParticipationPhase {
        match &self.open {
            Some(open) => open.phase(self.contribution.sealing.stream().len()),
            None if node.is_waiting() => ParticipationPhase::Waiting,
            None => ParticipationPhase::Contacting { waited: self.began.elapsed() },
        }
    }

    /// Returns the phase after the last sum.
    pub(super) fn opening_phase(&self) -> Option<ParticipationPhase> {
        let sealed = self.contribution.sealing.stream().len();
        self.open.as_ref().map(|open| open.opening_phase(sealed))
    }

    /// Asks again: the aggregator has not answered for the give-up span, and may not have started
    /// yet, or be restarting. If nothing at all was received since this happened last, it is one
    /// silence. That of an aggregator that never answered is watched at every step.
    fn ask_again(&mut self, node: &mut RoundClient, now: Time) -> Result<(), Error> {
        let received = node.stats().received.datagrams;
        if received != self.silence.0 {
            let began = Instant::now().checked_sub(DEFAULT_GIVE_UP);
            self.silence = (received, began.unwrap_or_else(Instant::now));
        }
        let patience = self.contribution.participation.patience;
        if received > self.former && self.silence.1.elapsed() >= patience {
            return Err(self.unreachable(patience, true));
        }
        Ok(node.rejoin(now)?)
    }

    /// Checks the terms, makes space for the sums, and starts sealing unless that has begun.
    fn on_opened<'s>(
        &mut self,
        node: &mut RoundClient,
        now: Time,
        opening: RoundOpening,
        scope: &'s Scope<'s, 'a>,
    ) -> Result<(), Error>
    where
        'a: 's,
    {
        let own = &*self.contribution;
        let Member { key, job, .. } = &own.participation.member;
        let (secret, key) = (key.ranges_secret(), key.public());
        let terms = RoundTerms::from_bytes(&opening.terms, key)?;
        let sealed = own.is_sealed.then_some(&own.announcement.agreement);
        let terms = terms.opened(job, secret, sealed)?;
        if !opening.contributors.iter().eq(terms.participants.iter().map(|c| &c.number)) {
            return Err(self.bad_round("its lists of contributors differ"));
        }
        self.contribution.hold_to(&terms)?;
        let prekeys = terms.prekeys.clone();
        let chunks = terms.agreement.chunks(key.parameters());
        node.accept(now, SumLayout { chunks: chunks.count(), sum_bytes: chunks.bytes_of(0) })?;
        let resume = Resume { incarnation: opening.incarnation, round: opening.round };
        Span::current().record("round", opening.round);
        node.amend(self.contribution.hello()?);
        let since = self.open.as_ref().map_or_else(Instant::now, |open| open.since);
        self.open = Some(OpenRound::new(since, opening, terms, chunks));
        let PreparedContribution { participation, announcement, sealing, .. } =
            &mut *self.contribution;
        sealing.start(participation, announcement, (chunks, prekeys), resume, scope)
    }

    /// Pushes sealed chunks while there is space.
    fn push(&mut self, node: &mut RoundClient, now: Time) -> Result<(), Error> {
        let Some(open) = &mut self.open else { return Ok(()) };
        while node.can_push()
            && let Some((first_chunk, bytes)) = open.next_push(self.contribution.sealing.stream())
        {
            node.push(now, first_chunk, open.chunk_bytes(), bytes)?;
        }
        if let Some(shares) = self.contribution.sealing.shares()
            && open.is_pushed()
            && !open.shares_sent
            && node.can_push()
        {
            node.push_shares(now, shares.to_vec())?;
            open.shares_sent = true;
        }
        Ok(())
    }

    /// Ends sealing: the round is over, with or without all chunks of this contribution.
    ///
    /// # Errors
    ///
    /// The sealing thread's.
    pub(super) fn stop_sealing(&mut self) -> Result<(), Error> {
        self.contribution.sealing.stop()
    }

    /// Keeps the sum in the spool, then opens it, or checks it where it cannot. A spool whose sum will never open
    /// goes: no second try follows.
    ///
    /// # Errors
    ///
    /// The round did not open, the sum is of too few or is none; the spool's.
    pub(super) fn finish(
        mut self,
        end: &RoundEnd,
        landed: Option<Sums>,
        stats: Stats,
    ) -> Result<RoundResult, Error> {
        let unopened = self.bad_round("it ended before it opened");
        let open = self.open.take().ok_or(unopened)?;
        let PreparedContribution { participation, announcement, sealing, .. } =
            &mut *self.contribution;
        let encrypting = sealing.busy();
        let shares_bytes = sealing.shares().map_or(0, <[u8]>::len);
        let exchanging = open.since.elapsed().saturating_sub(encrypting);
        let ((fields, clipped), mut spool) = sealing.take_parts();
        if let Err(error) = open.check_whole(end) {
            spool.map_or(Ok(()), Spool::remove)?;
            return Err(error);
        }
        let stream = open.stream(landed);
        let sum = Sum {
            contributors: open.terms.participants,
            job: announcement.job,
            round: open.terms.round,
            agreement: open.terms.agreement,
            sets: open.sets,
            stream,
        };
        let key = participation.member.key.public();
        let answers = OpenAnswer::list_from_bytes(&end.answers, key)?;
        if let Some(spool) = &mut spool
            && let Err(error) = spool.keep(&sum, (&clipped, &answers), key)
        {
            // It may open all the same, and the aggregator has it still.
            warn!(%error, "the sum is not kept beside the result");
        }
        let opening = (&sum, &answers[..]);
        let (opened, decrypting, spool) = open_spooled(participation, opening, spool)?;
        Ok(RoundResult {
            opening: Some(open.opening),
            sum,
            shares_bytes,
            answers,
            opened,
            fields,
            clipped,
            encrypting,
            exchanging,
            decrypting,
            stats,
            transport: None,
            spool,
        })
    }
}

impl Drop for Run<'_, '_> {
    /// A sealing thread that waits for space to hand over ends then, and so does the scope that it is of.
    fn drop(&mut self) {
        self.contribution.sealing.let_go();
    }
}
