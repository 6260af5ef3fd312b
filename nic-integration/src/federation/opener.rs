//! An opener: it answers what an aggregator asks it, once a round.

mod socket;

use std::{net::SocketAddr, ops::ControlFlow, time::Duration};

use ciphergram_he::{
    Contributor, Ledger,
    threshold::{OpenRequest, OpenerKey},
};

use super::{
    Error, FAREWELL,
    client::connect,
    pipelines::PipelineSet,
    transport::{PathConfig, Transport},
};
use crate::{
    driver::MAX_SLEEP,
    proto::{Identity, NodeId, Time, endpoint::DEFAULT_GIVE_UP},
    round::{RoundClient, RoundClientEvent},
    wire::{PcapFile, Wire, tcp::dial::DialError},
};

pub use socket::SocketOpener;

/// The span after which an opener that nobody asks tells its prekey as of today: they are good for thirty days.
const RENEWAL_SPAN: Duration = Duration::from_secs(24 * 3600);

/// An event of an opener.
#[derive(Clone, Debug, PartialEq)]
pub enum OpenerEvent {
    /// The aggregator answers.
    Attending {
        /// By this, where a [`SocketOpener`] chose it.
        transport: Option<Transport>,
    },
    /// It answered about a round of these contributors.
    Answered {
        /// The round.
        round: u64,
        /// The contributors.
        contributors: Vec<Contributor>,
    },
    /// It gives no answer, and told the aggregator why.
    Refused {
        /// The reason.
        reason: String,
    },
    /// The aggregator is silent, or does not list this node: it is asked again and again.
    Unreachable {
        /// Why there is no connection by TCP, if one was tried.
        dial: Option<DialError>,
    },
}

/// An opener that waits for what one aggregator asks.
pub struct FederationOpener<W> {
    pipelines: PipelineSet<W>,
    node: RoundClient,
}

impl<W: Wire> FederationOpener<W> {
    /// Makes an opener of the aggregator at `server`, which is `node`, with a pipeline for each of `wires`.
    ///
    /// # Errors
    ///
    /// The wires'; no randomness.
    pub fn new(
        wires: Vec<W>,
        server: SocketAddr,
        node: NodeId,
        identity: Identity,
        config: PathConfig,
    ) -> Result<Self, Error> {
        let (pipelines, node) = connect(wires, (server, node), 0, identity, config)?;
        Ok(Self { pipelines, node })
    }

    /// Also writes every datagram, sent and received, to `file`: see [`Captured`](crate::wire::Captured).
    ///
    /// # Errors
    ///
    /// The socket's.
    pub fn capture(&mut self, file: &PcapFile) -> Result<(), Error> {
        Ok(self.pipelines.capture(file)?)
    }

    /// Answers until `observe` breaks, which is given every event, and asked without one no later than 150 ms after the
    /// last time.
    ///
    /// # Errors
    ///
    /// The socket failed for good; the clock stands before 1970.
    pub fn run(
        mut self,
        opener: &OpenerKey,
        ledger: &Ledger,
        mut observe: impl FnMut(Option<OpenerEvent>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut is_there = false;
        self.pipelines.start(|wakers| self.node.detach(wakers))?;
        let now = self.pipelines.first.now();
        self.node.attend(now, opener.place() as u8, opener.prekey()?.to_bytes());
        let mut renewed = now;
        self.pipelines.first.run(&mut self.node, |node, now| {
            let mut events = vec![];
            while let Some(event) = node.poll_event() {
                if matches!(event, RoundClientEvent::Unreachable | RoundClientEvent::Unlisted) {
                    events.push(OpenerEvent::Unreachable { dial: None });
                    is_there = false;
                }
            }
            if !is_there && node.is_attending() {
                is_there = true;
                events.push(OpenerEvent::Attending { transport: None });
            }
            let answer = node.take_request().map(|request| {
                answer_request(opener, ledger, (&mut *node, now), &request).map(|event| {
                    events.push(event);
                })
            });
            let hello = match now.since(renewed) > RENEWAL_SPAN {
                true => opener.prekey().map(|prekey| Some(prekey.to_bytes())),
                false => Ok(None),
            };
            let renewal = hello.map_err(Error::from).map(|hello| {
                if let Some(hello) = hello {
                    renewed = now;
                    node.attend(now, opener.place() as u8, hello);
                }
            });
            if let Err(error) = answer.transpose().and(renewal) {
                return ControlFlow::Break(Err(error));
            }
            let events = events.into_iter().map(Some).chain([None]);
            for event in events {
                if observe(event).is_break() {
                    return ControlFlow::Break(Ok(()));
                }
            }
            ControlFlow::Continue(MAX_SLEEP)
        })??;
        let first = &mut self.pipelines.first;
        let end = first.now() + DEFAULT_GIVE_UP;
        first.run(&mut self.node, |node, now| wait(end.since(now), node.is_answering()))?;
        let end = first.now() + FAREWELL;
        if self.node.bye(first.now()).is_ok() {
            first.run(&mut self.node, |node, now| wait(end.since(now), node.is_leaving()))?;
        }
        Ok(())
    }
}

/// Goes on while something is waited for and time is left.
fn wait(rest: Duration, waits: bool) -> ControlFlow<(), Duration> {
    if waits && !rest.is_zero() { ControlFlow::Continue(rest) } else { ControlFlow::Break(()) }
}

/// Answers a request of a round, or says why not; then tells the prekey of the next answer.
///
/// # Errors
///
/// The clock stands before 1970, or the prekeys cannot be read.
pub(super) fn answer_request(
    opener: &OpenerKey,
    ledger: &Ledger,
    (node, now): (&mut RoundClient, Time),
    (number, request): &(u32, Vec<u8>),
) -> Result<OpenerEvent, Error> {
    let public = opener.public();
    let answered = OpenRequest::from_bytes(request, public).and_then(|request| {
        let answer = opener.answer(ledger, &request)?;
        let (round, contributors) = (request.round, request.contributors().copied().collect());
        Ok((answer, OpenerEvent::Answered { round, contributors }))
    });
    let (answer, event) = match answered {
        Ok((answer, event)) => (Ok(answer.to_bytes(public)), event),
        Err(error) => {
            let reason = error.to_string();
            (Err(reason.clone()), OpenerEvent::Refused { reason })
        }
    };
    node.answer(now, *number, answer);
    node.attend(now, opener.place() as u8, opener.prekey()?.to_bytes());
    Ok(event)
}
