//! A wire of one's own: datagrams between threads, and a whole encrypted round over it. This file
//! is all that such a wire takes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use ciphergram_he::Scheme;
use ciphergram_nic::NicError;
use ciphergram_nic::federation::{FederationClient, PathConfig};
use ciphergram_nic::proto::{Origin, Route};
use ciphergram_nic::wire::Wire;

use crate::support::federation::{
    check_results, config, job, key, node, participation, serve_over, server, update,
};

/// A datagram and its sender; none only wakes.
type Arrival = Option<(SocketAddr, Vec<u8>)>;

/// Everyone's mailbox by address, and how many datagrams were put there.
type Network = Arc<Mutex<BTreeMap<SocketAddr, (Sender<Arrival>, usize)>>>;

/// A wire of one socket: a mailbox in the network.
struct ToyWire {
    network: Network,
    addr: SocketAddr,
    arrivals: Receiver<Arrival>,
    waker: Waker,
}

/// Wakes by an arrival that carries nothing.
struct WakeUp(Sender<Arrival>);

impl Wake for WakeUp {
    fn wake(self: Arc<Self>) {
        // A wire that is gone need not wake.
        let _ = self.0.send(None);
    }
}

impl ToyWire {
    /// Returns `count` wires of one machine, at ports that follow one another.
    fn bind(network: &Network, machine: u8, count: u16) -> Vec<Self> {
        let bind = |pipeline| {
            let addr = SocketAddr::from(([10, 0, 0, machine], 1000 + pipeline));
            let (sender, arrivals) = mpsc::channel();
            network.lock().unwrap().insert(addr, (sender.clone(), 0));
            let waker = Arc::new(WakeUp(sender)).into();
            Self { network: network.clone(), addr, arrivals, waker }
        };
        (0..count).map(bind).collect()
    }
}

impl Wire for ToyWire {
    fn local_addrs(&self) -> Result<Vec<SocketAddr>, NicError> {
        Ok(vec![self.addr])
    }

    fn burst_limit(&self) -> usize {
        16
    }

    fn send(&mut self, to: Route, burst: &[u8], each: usize) -> bool {
        if let Some((mailbox, count)) = self.network.lock().unwrap().get_mut(&to.addr) {
            for datagram in burst.chunks(each) {
                *count += 1;
                // As anywhere, a datagram to a process that is gone is lost.
                let _ = mailbox.send(Some((self.addr, datagram.to_vec())));
            }
        }
        true
    }

    fn receive(
        &mut self,
        wait: Duration,
        take: &mut dyn FnMut(Origin, &mut [u8]),
    ) -> Result<usize, NicError> {
        let first = self.arrivals.recv_timeout(wait).ok().flatten();
        let arrivals = first.into_iter().chain(self.arrivals.try_iter().flatten());
        let mut count = 0;
        for (from, mut bytes) in arrivals {
            take(from.into(), &mut bytes);
            count += 1;
        }
        Ok(count)
    }

    fn waker(&mut self) -> Result<Waker, NicError> {
        Ok(self.waker.clone())
    }
}

const CLIENTS: u16 = 4;
const PIPELINES: u16 = 2;
const VALUES: usize = 300_000;

/// Returns the machine that client `number` runs on.
fn machine(number: u16) -> u8 {
    2 + number as u8
}

#[test]
fn rounds_over_a_custom_wire_are_exact() {
    let network = Network::default();
    let key = key(Scheme::CkksSum);
    let wires = ToyWire::bind(&network, 1, PIPELINES);
    let serving =
        serve_over(wires, key.public(), job(key.public()), config(CLIENTS, CLIENTS), |_| false);
    let addr = serving.addr;
    let clients = (0..CLIENTS).map(|number| {
        let wires = ToyWire::bind(&network, machine(number), PIPELINES);
        thread::spawn(move || {
            let update = update(number, 0, VALUES);
            let (server, paths) = (server().id(), PathConfig::default());
            let mut client =
                FederationClient::new(wires, addr, server, number, node(number), paths).unwrap();
            let result = client
                .contribute(&participation(key, &update, number), |_| ControlFlow::Continue(()))
                .unwrap();
            client.leave().unwrap();
            (number, result)
        })
    });
    let clients: Vec<_> = clients.collect();
    let results = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let counts = check_results(key, &results, &[]);
    assert!(counts.iter().all(|&count| count == usize::from(CLIENTS)), "{counts:?}");
    serving.thread.join().unwrap();
    let mailboxes = network.lock().unwrap();
    let arrived: Vec<_> = mailboxes.values().map(|(_, count)| *count).collect();
    assert_eq!(arrived.len(), usize::from((CLIENTS + 1) * PIPELINES));
    assert!(arrived.iter().all(|&count| count > 0), "every pipeline is used: {arrived:?}");
}
