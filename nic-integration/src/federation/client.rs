//! A client as a process: one contribution a round, as a pipeline.
//!
//! A thread seals chunks while this one pushes those sealed before and takes the sums that come
//! back; a bounded channel is between them.

use std::{
    fs::File,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, TryRecvError},
    },
    thread::Scope,
    time::{Duration, Instant},
};

use ciphergram_accel::Engine;
use ciphergram_he::{
    Agreement, OpenedSum, PublicKey, SecretKey, Sum, Update,
    exchange::{Announcement, RoundTerms},
    files::ContributorSet,
    keys::AnyKey,
    params::Chunks,
    random,
    seal::{Seed, Ticket},
};
use tracing::{Span, field::Empty, info_span};

use super::{
    Error, fresh_endpoint,
    pipelines::Pipelines,
    seal::{SealTask, Sealed, SpoolState},
    spool::{self, Spool, SpoolHeader, fingerprint},
};
use crate::{
    Refusal,
    driver::MAX_SLEEP,
    proto::{Config, Identity, NodeId, Stats, Time, endpoint::DEFAULT_GIVE_UP},
    round::{Contributor, ContributorConfig, ContributorEvent, End, Opening, Resume, SumLayout},
};

/// Sealed batches that may wait to be pushed.
const BATCHES_AHEAD: usize = 2;
/// How often the sealing thread is looked after while it works.
const SEALING_SLEEP: Duration = Duration::from_millis(1);
/// How long a client answers after its last round.
const FAREWELL: Duration = Duration::from_millis(100);

/// What a client encrypts with, and what it can do with the sum that comes back.
#[derive(Clone, Copy)]
pub enum ClientKey<'a> {
    /// It keeps the sum as it is, for whoever holds the secret key.
    Public(&'a PublicKey),
    /// It opens the sum.
    Secret(&'a SecretKey),
}

impl<'a> ClientKey<'a> {
    /// The public half.
    #[must_use]
    pub fn public(self) -> &'a PublicKey {
        match self {
            Self::Public(key) => key,
            Self::Secret(key) => key.public(),
        }
    }
}

impl<'a> From<&'a SecretKey> for ClientKey<'a> {
    fn from(key: &'a SecretKey) -> Self {
        Self::Secret(key)
    }
}

impl<'a> From<&'a AnyKey> for ClientKey<'a> {
    fn from(key: &'a AnyKey) -> Self {
        match key {
            AnyKey::Public(key) => Self::Public(key),
            AnyKey::Secret(key, _) => Self::Secret(key),
        }
    }
}

/// What a client brings to a round.
pub struct Participation<'a> {
    /// The key.
    pub key: ClientKey<'a>,
    /// What encrypts and decrypts.
    pub engine: Arc<dyn Engine>,
    /// The tensors.
    pub update: &'a Update,
    /// The weight, from 1.
    pub weight: u64,
    /// Ranges settled beforehand; otherwise they are agreed in the round's first exchange.
    pub agreement: Option<Agreement>,
    /// Where sealed chunks are kept until the sum is back; none for a client that need not survive.
    pub spool: Option<&'a Path>,
    /// The fewest contributors whose sum this client takes; by default what the aggregator
    /// declares, at least two if there are two.
    pub min_clients: Option<u16>,
    /// How long to look for an aggregator that does not answer; at least [`DEFAULT_GIVE_UP`].
    pub patience: Duration,
}

/// What a client has of a round.
pub struct RoundResult {
    /// How the round was opened.
    pub opening: Opening,
    /// The sum as it came back, and who is in it.
    pub sum: Sum,
    /// The sum in clear, if the client has the secret key.
    pub opened: Option<OpenedSum>,
    /// This client's own integers.
    pub fields: Vec<u32>,
    /// Values of this client out of range, for each tensor.
    pub clipped: Vec<usize>,
    /// Quantising and encrypting.
    pub encrypting: Duration,
    /// From the opening to the last sum, less encrypting.
    pub exchanging: Duration,
    /// Opening the sum, or checking it.
    pub decrypting: Duration,
    /// The endpoint's counters at the end of the round.
    pub stats: Stats,
}

/// How a client's datagrams reach its aggregator.
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// Pipelines, each with sockets and a thread.
    pub pipelines: u16,
    /// Sockets of a pipeline that each flow's datagrams are sprayed over.
    pub paths: u16,
    /// Flows that messages are dealt to; paths × flows is at most [`MAX_PATHS`](crate::proto::path::MAX_PATHS).
    pub flows: u16,
    /// Asks the sockets over and over instead of sleeping.
    pub poll: bool,
    /// Bytes of the largest datagram sent, headers and tags of the protocol included: no fewer than
    /// [`DEFAULT_DATAGRAM_BYTES`](crate::proto::endpoint::DEFAULT_DATAGRAM_BYTES), which hold a chunk. By default
    /// what the way is sure to carry.
    pub datagram_bytes: Option<usize>,
}

impl Default for PathConfig {
    /// One pipeline, one path, and sleep.
    fn default() -> Self {
        Self { pipelines: 1, paths: 1, flows: 1, poll: false, datagram_bytes: None }
    }
}

/// A client of one aggregator, for any number of rounds.
pub struct Client {
    server: SocketAddr,
    number: u16,
    pipelines: Pipelines,
    node: Contributor,
}

impl Client {
    /// Binds sockets for contributor `number` of the aggregator at `server`, which is `node`.
    ///
    /// # Errors
    ///
    /// The sockets', no randomness, or no such number of paths.
    pub fn new(
        server: SocketAddr,
        node: NodeId,
        number: u16,
        identity: Identity,
        config: PathConfig,
    ) -> Result<Self, Error> {
        let PathConfig { pipelines, paths, flows, poll, datagram_bytes } = config;
        let endpoint = fresh_endpoint(identity, server, datagram_bytes)?;
        let endpoint = Config { pipelines, paths, flows, ..endpoint };
        let sockets = endpoint.sockets();
        let config = ContributorConfig {
            endpoint,
            addr: server,
            aggregator: node,
            contributor: number,
            seed: *random::bytes::<32>()?,
        };
        // What is near need not be reachable from afar.
        let local: IpAddr = match (server.ip(), server.ip().is_loopback()) {
            (IpAddr::V4(_), true) => Ipv4Addr::LOCALHOST.into(),
            (IpAddr::V6(_), true) => Ipv6Addr::LOCALHOST.into(),
            (IpAddr::V4(_), false) => Ipv4Addr::UNSPECIFIED.into(),
            (IpAddr::V6(_), false) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let node = Contributor::new(config)?;
        let pipelines = Pipelines::bind((local, 0).into(), pipelines, sockets, poll)?;
        Ok(Self { server, number, pipelines, node })
    }

    /// Also writes every datagram, sent and received, to `file`: see [`Captured`](crate::wire::Captured).
    ///
    /// # Errors
    ///
    /// The socket's, or the file's.
    pub fn capture(&mut self, file: File) -> Result<(), Error> {
        Ok(self.pipelines.capture(file)?)
    }

    /// Takes part in one round: joins, contributes, waits for the sum and opens it if it can.
    ///
    /// # Errors
    ///
    /// See [`Error`]; a public key that cannot encrypt is refused before anyone hears of it. The spool is
    /// kept unless the round ended, and if what came back is no sum.
    pub fn contribute(&mut self, job: &Participation<'_>) -> Result<RoundResult, Error> {
        if let ClientKey::Public(key) = job.key {
            key.check_encrypts()?;
        }
        let _round = info_span!("round", client = self.number, round = Empty).entered();
        let (end, run) = std::thread::scope(|scope| {
            let mut run = Run::begin(job, self.server, self.number)?;
            self.pipelines.start(|wakers| self.node.detach(wakers))?;
            let now = self.pipelines.first.now();
            let (id, hello) = (run.announcement.seed.id(), run.hello());
            self.node.join(now, id, hello, run.resume)?;
            let driver = &mut self.pipelines.first;
            let ending = driver.run(&mut self.node, |node, now| run.turn(node, now, scope))?;
            let end = ending?;
            run.stop_sealing()?;
            Ok::<_, Error>((end, run))
        })?;
        run.finish(&end, self.node.stats())
    }

    /// Answers a little longer, so that the last acknowledgements arrive.
    ///
    /// # Errors
    ///
    /// The socket failed for good.
    pub fn leave(mut self) -> Result<(), Error> {
        Ok(self.pipelines.first.linger(&mut self.node, FAREWELL)?)
    }
}

/// What entitles to seal the contribution that is announced.
enum Right {
    /// Nothing of it is sealed.
    Fresh(Ticket),
    /// Its first chunks are sealed and in this spool.
    Spooled(Spool),
}

/// One round in progress.
struct Run<'a> {
    job: &'a Participation<'a>,
    server: SocketAddr,
    number: u16,
    announcement: Announcement,
    /// Until sealing begins, with it.
    right: Option<Right>,
    resume: Option<Resume>,
    fingerprint: [u8; 32],
    rounding: [u8; 32],
    /// Sealed chunks, from the first.
    stream: Vec<u8>,
    sealing: Option<Receiver<Sealed>>,
    encrypting: Duration,
    /// Our own integers, and how many values of each tensor were clipped, once known.
    quantised: Option<(Vec<u32>, Vec<usize>)>,
    open: Option<OpenRound>,
    /// Datagrams received when the aggregator was last found silent, and when that silence began.
    silence: (u64, Instant),
}

/// What is known once a round is open.
struct OpenRound {
    since: Instant,
    opening: Opening,
    terms: RoundTerms,
    chunks: Chunks,
    next: u32,
    sets: Vec<ContributorSet>,
    sums: Vec<u8>,
}

impl OpenRound {
    /// Refuses a sum with chunks withheld, or of fewer contributors than wanted.
    fn check_enough(&self, end: &End, wanted: Option<u16>) -> Result<(), Error> {
        if end.withheld > 0 {
            let (withheld, chunks) = (end.withheld, self.chunks.count());
            let reason = end.reason.clone();
            return Err(Error::Withheld { round: end.round, withheld, chunks, reason });
        }
        let declared_floor = self.opening.min_clients.max(self.opening.declared.min(2));
        let min_clients = wanted.unwrap_or(declared_floor);
        for (set, chunk) in self.sets.iter().zip(0..) {
            let found = set.count();
            if found < usize::from(min_clients) {
                return Err(Error::TooFewContributors { chunk, found, min_clients });
            }
        }
        Ok(())
    }
}

type Turn = ControlFlow<Result<End, Error>, Duration>;

impl<'a> Run<'a> {
    /// A fresh contribution, or the one that the spool holds.
    fn begin(job: &'a Participation<'a>, server: SocketAddr, number: u16) -> Result<Self, Error> {
        let (key, update) = (job.key.public(), job.update);
        let fingerprint = fingerprint(update, job.weight);
        let ticket = Ticket::draw()?;
        let mut run = Self {
            job,
            server,
            number,
            announcement: announce(job, ticket.seed())?,
            right: Some(Right::Fresh(ticket)),
            resume: None,
            fingerprint,
            rounding: *random::bytes::<32>()?,
            stream: vec![],
            sealing: None,
            encrypting: Duration::ZERO,
            quantised: None,
            open: None,
            silence: (0, Instant::now()),
        };
        let Some(path) = job.spool else { return Ok(run) };
        if let Some((spool, header, stream)) = Spool::open(path, key)? {
            let fail = |why: &str| Err(Error::Spool { path: path.into(), why: why.into() });
            if header.fingerprint != fingerprint || header.contributor != number {
                return fail(
                    "it holds another unfinished contribution: finish that one with its own \
                     tensors, weight and client number, or delete the file",
                );
            }
            let sealed_under = &header.announcement.agreement;
            if job.agreement.as_ref().is_some_and(|a| a.check_same(sealed_under).is_err()) {
                return fail(
                    "it holds this contribution under other clipping ranges: finish it with those, \
                     or delete the file",
                );
            }
            run.resume = Some(header.resume);
            run.rounding = header.rounding;
            // Whatever it says: chunks are sealed under it.
            run.announcement = Announcement { settled: true, ..header.announcement };
            run.right = Some(Right::Spooled(spool));
            run.stream = stream;
        }
        Ok(run)
    }

    fn hello(&self) -> Vec<u8> {
        self.announcement.to_bytes(self.job.key.public())
    }

    /// One turn of the loop: events, sealed chunks, pushes.
    fn turn<'s>(&mut self, node: &mut Contributor, now: Time, scope: &'s Scope<'s, 'a>) -> Turn
    where
        'a: 's,
    {
        match self.step(node, now, scope) {
            Ok(Some(end)) => ControlFlow::Break(Ok(end)),
            Ok(None) => {
                let busy = self.sealing.is_some();
                ControlFlow::Continue(if busy { SEALING_SLEEP } else { MAX_SLEEP })
            }
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }

    fn step<'s>(
        &mut self,
        node: &mut Contributor,
        now: Time,
        scope: &'s Scope<'s, 'a>,
    ) -> Result<Option<End>, Error>
    where
        'a: 's,
    {
        while let Some(event) = node.poll_event() {
            match event {
                ContributorEvent::Opened(opening) => self.on_opened(node, now, opening, scope)?,
                ContributorEvent::Sum { chunk, bitmap, bytes } => {
                    self.on_sum(chunk, &bitmap, &bytes)?;
                }
                // Too late for a chunk: the sum goes on without us.
                ContributorEvent::Counted { .. }
                | ContributorEvent::Rejected { refusal: Refusal::RoundClosed, .. } => {}
                ContributorEvent::Rejected { first_chunk, refusal } => {
                    let (server, reason) = (self.server, refusal.to_string());
                    return Err(Error::Rejected { server, chunk: first_chunk, reason });
                }
                ContributorEvent::Ended(end) => return Ok(Some(end)),
                ContributorEvent::Refused { reason } => {
                    return Err(Error::Refused { server: self.server, reason });
                }
                ContributorEvent::Unreachable => self.look_again(node, now)?,
            }
        }
        self.take_sealed()?;
        self.push(node, now)?;
        Ok(None)
    }

    /// The aggregator has not answered for the give-up span: it may not have started yet, or be
    /// restarting. If nothing at all was heard since this happened last, it is one silence.
    fn look_again(&mut self, node: &mut Contributor, now: Time) -> Result<(), Error> {
        let received = node.stats().received.datagrams;
        if received != self.silence.0 {
            let began = Instant::now().checked_sub(DEFAULT_GIVE_UP);
            self.silence = (received, began.unwrap_or_else(Instant::now));
        }
        if self.silence.1.elapsed() >= self.job.patience {
            return Err(Error::Unreachable { server: self.server });
        }
        Ok(node.rejoin(now)?)
    }

    /// Checks the terms, makes room for the sums, and starts sealing unless that has begun.
    fn on_opened<'s>(
        &mut self,
        node: &mut Contributor,
        now: Time,
        opening: Opening,
        scope: &'s Scope<'s, 'a>,
    ) -> Result<(), Error>
    where
        'a: 's,
    {
        let key = self.job.key.public();
        let terms = RoundTerms::from_bytes(&opening.terms, key)?;
        let bad = |what| Error::BadRound { server: self.server, what };
        if !terms.participants.contains(&(self.number, self.announcement.seed)) {
            return Err(bad("it does not list this contribution"));
        }
        if !opening.contributors.iter().eq(terms.participants.iter().map(|(n, _)| n)) {
            return Err(bad("its lists of contributors differ"));
        }
        let settled = self.announcement.settled.then_some(&self.announcement.agreement);
        if settled.is_some_and(|a| terms.agreement.check_same(a).is_err()) {
            return Err(Error::RangesChanged);
        }
        terms.agreement.check_layout(&self.job.update.specs())?;
        let chunks = key.parameters().chunks(terms.agreement.values());
        node.accept(now, SumLayout { chunks: chunks.count(), sum_bytes: chunks.bytes_of(0) })?;
        let sets = vec![ContributorSet::none(terms.participants.len()); chunks.count() as usize];
        let resume = Resume { incarnation: opening.incarnation, round: opening.round };
        Span::current().record("round", opening.round);
        self.announcement.settled = true;
        self.announcement.agreement = terms.agreement.clone();
        node.amend(self.hello());
        let sums = vec![0; chunks.total_bytes()];
        let since = self.open.as_ref().map_or_else(Instant::now, |open| open.since);
        self.open = Some(OpenRound { since, opening, terms, chunks, next: 0, sets, sums });
        self.start_sealing(chunks, resume, scope)
    }

    /// Starts the sealing thread, once.
    fn start_sealing<'s>(
        &mut self,
        chunks: Chunks,
        resume: Resume,
        scope: &'s Scope<'s, 'a>,
    ) -> Result<(), Error>
    where
        'a: 's,
    {
        let (ticket, spool) = match self.right.take() {
            Some(Right::Spooled(spool)) => {
                let whole = (0..chunks.count())
                    .take_while(|&c| chunks.offset_of(c) + chunks.bytes_of(c) <= self.stream.len())
                    .count() as u32;
                let sealed = chunks.offset_of(whole).min(chunks.total_bytes());
                if self.stream.len() != sealed {
                    let path = self.job.spool.unwrap_or(Path::new("")).into();
                    let why = "its chunks are not those of this contribution".into();
                    return Err(Error::Spool { path, why });
                }
                // What is not in the spool was never sent; its rounding makes the same integers.
                (Ticket::resume(self.announcement.seed, whole), SpoolState::Resumed(spool))
            }
            Some(Right::Fresh(ticket)) => {
                let header = || SpoolHeader {
                    contributor: self.number,
                    resume,
                    fingerprint: self.fingerprint,
                    rounding: self.rounding,
                    announcement: self.announcement.clone(),
                };
                let new = |path: &Path| SpoolState::New(path.into(), header());
                (ticket, self.job.spool.map_or(SpoolState::None, new))
            }
            None => return Ok(()),
        };
        let task = SealTask {
            key: self.job.key,
            engine: self.job.engine.clone(),
            update: self.job.update,
            weight: self.job.weight,
            agreement: self.announcement.agreement.clone(),
            rounding: self.rounding,
            ticket,
            spool,
        };
        let (sender, receiver) = mpsc::sync_channel(BATCHES_AHEAD);
        self.sealing = Some(receiver);
        let span = info_span!("seal", client = self.number, round = resume.round);
        scope.spawn(move || span.in_scope(|| task.run(&sender)));
        Ok(())
    }

    fn take_sealed(&mut self) -> Result<(), Error> {
        while let Some(receiver) = &self.sealing {
            match receiver.try_recv() {
                Ok(sealed) => self.on_sealed(sealed)?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.sealing = None,
            }
        }
        Ok(())
    }

    fn on_sealed(&mut self, sealed: Sealed) -> Result<(), Error> {
        match sealed {
            Sealed::Quantised { fields, clipped, busy } => {
                self.quantised = Some((fields, clipped));
                self.encrypting += busy;
            }
            Sealed::Chunks { bytes, busy } => {
                self.stream.extend(bytes);
                self.encrypting += busy;
            }
            Sealed::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// The round is over, with or without all of our chunks: waits for our own integers if they are
    /// not known yet, then lets the sealing thread go, which may wait for room to hand over.
    fn stop_sealing(&mut self) -> Result<(), Error> {
        while self.quantised.is_none()
            && let Some(sealed) = self.sealing.as_ref().and_then(|sealing| sealing.recv().ok())
        {
            self.on_sealed(sealed)?;
        }
        self.sealing = None;
        Ok(())
    }

    /// Pushes sealed chunks, as many to a datagram as fit, while there is room.
    fn push(&mut self, node: &mut Contributor, now: Time) -> Result<(), Error> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let chunks = &open.chunks;
        while open.next < chunks.count() && node.can_push() {
            let start = chunks.offset_of(open.next);
            let end_of = |chunk: u32| chunks.offset_of(chunk) + chunks.bytes_of(chunk);
            let limit = self.stream.len().min(start + node.push_limit());
            let after = (open.next..chunks.count()).take_while(|&c| end_of(c) <= limit).last();
            let Some(last) = after else { break };
            let bytes = self.stream[start..end_of(last)].into();
            node.push(now, open.next, start as u64, bytes)?;
            open.next = last + 1;
        }
        Ok(())
    }

    /// Keeps a chunk's sum. The bitmap is over client numbers; ours are over participants.
    fn on_sum(&mut self, chunk: u32, bitmap: &[u8], bytes: &[u8]) -> Result<(), Error> {
        let bad = |what| Error::BadRound { server: self.server, what };
        let Some(open) = &mut self.open else { return Ok(()) };
        let start = open.chunks.offset_of(chunk);
        let length = open.chunks.bytes_of(chunk);
        if bytes.len() != length {
            return Err(bad("a sum of the wrong length"));
        }
        let mut set = ContributorSet::none(open.terms.participants.len());
        let mut known = 0;
        for (index, (number, _)) in open.terms.participants.iter().enumerate() {
            let byte = bitmap.get(usize::from(number / 8)).copied().unwrap_or(0);
            if byte >> (number % 8) & 1 == 1 {
                set.insert(index);
                known += 1;
            }
        }
        if bitmap.iter().map(|b| b.count_ones()).sum::<u32>() != known {
            return Err(bad("a sum of someone who does not take part"));
        }
        open.sums[start..start + length].copy_from_slice(bytes);
        open.sets[chunk as usize] = set;
        Ok(())
    }

    /// Opens the sum, or checks it where it cannot, unless it is of too few; then lets the spool go.
    fn finish(self, end: &End, stats: Stats) -> Result<RoundResult, Error> {
        let bad = |what| Error::BadRound { server: self.server, what };
        let open = self.open.ok_or_else(|| bad("it ended before it opened"))?;
        let exchanging = open.since.elapsed().saturating_sub(self.encrypting);
        let enough = open.check_enough(end, self.job.min_clients);
        let sum = Sum {
            contributors: open.terms.participants.into_iter().map(|(_, t)| t).collect(),
            agreement: open.terms.agreement,
            sets: open.sets,
            stream: open.sums,
        };
        let (fields, clipped) = self.quantised.unwrap_or_default();
        let clock = Instant::now();
        let engine = &*self.job.engine;
        let span = info_span!("open", client = self.number, round = end.round).entered();
        let opened = match (&enough, self.job.key) {
            (Err(_), _) => None,
            (Ok(()), ClientKey::Secret(key)) => Some(OpenedSum::open(key, engine, &sum)?),
            (Ok(()), ClientKey::Public(key)) => {
                sum.verify(key, engine)?;
                None
            }
        };
        drop(span);
        let decrypting = clock.elapsed();
        if let Some(path) = self.job.spool {
            spool::remove(path)?;
        }
        enough?;
        Ok(RoundResult {
            opening: open.opening,
            sum,
            opened,
            fields,
            clipped,
            encrypting: self.encrypting,
            exchanging,
            decrypting,
            stats,
        })
    }
}

/// Settled ranges, or a proposal. Tensors and weight are checked here, before anyone else waits.
fn announce(job: &Participation<'_>, seed: Seed) -> Result<Announcement, Error> {
    let proposal = Announcement::propose(seed, job.update, job.weight)?;
    Ok(match &job.agreement {
        Some(agreement) => {
            agreement.check_layout(&job.update.specs())?;
            agreement.check_weight(job.weight)?;
            Announcement { seed, settled: true, agreement: agreement.clone() }
        }
        None => proposal,
    })
}
