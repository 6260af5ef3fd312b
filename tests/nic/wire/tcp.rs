//! Rounds by TCP: beside UDP, through proxies, over connections that break, and beside those who misuse them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, channel};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ciphergram_he::SecretKey;
use ciphergram_he::params::Scheme;
use ciphergram_nic::NicError;
use ciphergram_nic::faults::Faults;
use ciphergram_nic::federation::{
    Error, FederationClient, Participation, PathConfig, RoundResult, ServerCandidates,
    ServerConfig, SocketClient, SocketClientConfig, Transport, Transports,
};
use ciphergram_nic::proto::endpoint::DEFAULT_GIVE_UP;
use ciphergram_nic::proto::{Origin, Route};
use ciphergram_nic::relay::{Bottleneck, RelaySwitch};
use ciphergram_nic::wire::tcp::dial::{DialError, Dialer};
use ciphergram_nic::wire::tcp::stream::MAGIC;
use ciphergram_nic::wire::{SocketWire, Wire};

use crate::support::federation::*;

const VALUES: usize = 60_000;
const TCP: Transports = Transports::Only(Transport::Tcp);

fn lattice() -> &'static SecretKey {
    key(Scheme::CkksSum)
}

fn bound(transports: Transports) -> Vec<SocketWire> {
    transports.bind((Ipv4Addr::LOCALHOST, 0).into(), 1).unwrap()
}

fn serve_by(transports: Transports, config: ServerConfig) -> Serving {
    let key = lattice().public();
    serve_over(bound(transports), key, job(key), config, |_| false)
}

fn reached(server: ServerCandidates, number: u16) -> SocketClient {
    let (paths, pipelines) = (PathConfig::default(), 1);
    SocketClient::new(SocketClientConfig {
        server,
        node: crate::support::federation::server().id(),
        number,
        identity: node(number),
        paths,
        pipelines,
    })
}

type Outcome = Result<RoundResult, Error>;

/// Takes part in a round, in a thread of its own.
fn join(server: ServerCandidates, number: u16, patience: Duration) -> JoinHandle<Outcome> {
    thread::spawn(move || {
        let update = update(number, 0, VALUES);
        let mut participation = participation(lattice(), &update, number);
        participation.patience = patience;
        let mut client = reached(server, number);
        let result = client.contribute(&participation, |_| ControlFlow::Continue(()))?;
        client.leave()?;
        Ok(result)
    })
}

fn at(address: SocketAddr, transports: Transports, proxy: Option<SocketAddr>) -> ServerCandidates {
    let proxy = proxy.map(|proxy| format!("http://user:secret@{proxy}").parse().unwrap());
    ServerCandidates::resolve(&address.to_string(), transports, proxy).unwrap()
}

/// Checks that all have the exact sum; returns what carried each one's datagrams.
fn all_exact(clients: Vec<JoinHandle<Outcome>>) -> Vec<Option<Transport>> {
    let results = clients.into_iter().map(|client| client.join().unwrap().unwrap());
    let results: BTreeMap<_, _> = (0..).zip(results).collect();
    let (count, transports) = (results.len(), results.values().map(|result| result.transport));
    let transports = transports.collect();
    assert_eq!(check_results(lattice(), &results, &[]).first(), Some(&count));
    transports
}

#[test]
fn clients_of_both_transports_share_a_round() {
    let serving = serve_by(Transports::Auto, config(3, 3));
    let choices = [Transports::Only(Transport::Udp), TCP, Transports::Auto];
    let join = |(number, choice)| join(at(serving.addr, choice, None), number, PATIENCE);
    let transports = all_exact((0..).zip(choices).map(join).collect());
    assert_eq!(transports, [Transport::Udp, Transport::Tcp, Transport::Udp].map(Some));
}

#[test]
fn where_udp_is_dropped_tcp_is_tried() {
    let serving = serve_by(TCP, config(2, 2));
    // Its datagrams arrive, and nobody answers.
    let hole = UdpSocket::bind(serving.addr).unwrap();
    let clients = (0..2).map(|n| join(at(serving.addr, Transports::Auto, None), n, PATIENCE));
    assert_eq!(all_exact(clients.collect()), [Some(Transport::Tcp); 2]);
    assert!(hole.recv(&mut [0; 2000]).is_ok(), "UDP is tried first");
}

/// What a proxy of a test does.
#[derive(Clone, Copy)]
enum Gate {
    /// Passes on, whatever it is asked.
    Forwards,
    /// As it does, but ends its first connection after so many bytes from the client.
    Breaks(u64),
    /// Answers this, and closes.
    Says(&'static str),
}

/// Forwards connections to an address, as `CONNECT` asks for. Returns its own address, and what it is asked.
fn proxy(to: SocketAddr, gate: Gate) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (addr, (asked, questions)) = (listener.local_addr().unwrap(), channel());
    thread::spawn(move || {
        for (at, stream) in listener.incoming().flatten().enumerate() {
            let mut client = stream;
            let mut question = vec![];
            while !question.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if client.read_exact(&mut byte).is_err() {
                    break;
                }
                question.extend(byte);
            }
            let _ = asked.send(String::from_utf8(question).unwrap());
            if let Gate::Says(text) = gate {
                let _ = client.write_all(text.as_bytes());
                continue;
            }
            client
                .write_all(b"HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 200 Connection established\r\nVia: a\r\n\r\n")
                .unwrap();
            let server = TcpStream::connect(to).unwrap();
            let most = match gate {
                Gate::Breaks(bytes) if at == 0 => bytes,
                _ => u64::MAX,
            };
            for (from, to, most) in [(&client, &server, most), (&server, &client, u64::MAX)] {
                let (from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut (&from).take(most), &mut to);
                    for end in [&from, &to] {
                        let _ = end.shutdown(Shutdown::Both);
                    }
                });
            }
        }
    });
    (addr, questions)
}

#[test]
fn a_proxy_carries_a_round_even_if_a_connection_breaks() {
    for gate in [Gate::Forwards, Gate::Breaks(50_000)] {
        let serving = serve_by(Transports::Auto, config(2, 2));
        let (proxy, questions) = proxy(serving.addr, gate);
        let clients = vec![
            join(at(serving.addr, TCP, Some(proxy)), 0, PATIENCE),
            join(at(serving.addr, TCP, None), 1, PATIENCE),
        ];
        assert_eq!(all_exact(clients), [Some(Transport::Tcp); 2]);
        let questions: Vec<_> = questions.try_iter().collect();
        let host = serving.addr;
        let asked = format!(
            "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n\r\n"
        );
        let count = if let Gate::Breaks(_) = gate { 2 } else { 1 };
        assert_eq!(questions, vec![asked; count]);
    }
}

#[test]
fn what_a_proxy_refuses_is_named() {
    let nobody = (Ipv4Addr::LOCALHOST, 9).into();
    let fault = |text, patience| {
        let (proxy, _) = proxy(nobody, Gate::Says(text));
        let ended = join(at(nobody, TCP, Some(proxy)), 0, patience).join().unwrap();
        match ended.map(|_| ()) {
            Err(Error::Unreachable { dial: Some(fault), .. }) => (fault.to_string(), fault, proxy),
            other => panic!("{other:?}"),
        }
    };
    // At once, whatever the patience.
    for (text, code, reason) in [
        ("HTTP/1.1 407 Who are you?\r\n\r\n", 407, "HTTP 407, it asks for other credentials"),
        ("HTTP/1.0 403 No\r\nA: b\r\n\r\n", 403, "HTTP 403, it forbids that"),
    ] {
        let (line, fault, proxy) = fault(text, PATIENCE);
        assert_eq!(fault, DialError::Refused { proxy, code });
        assert!(line.ends_with(reason), "{line}");
    }
    // Others may reach it later.
    let moment = Duration::from_millis(10);
    let (line, ..) = fault("HTTP/1.1 503 Busy\r\n\r\n", moment);
    assert!(line.ends_with("HTTP 503, it does not reach it"), "{line}");
    let endless: &str = Box::leak("HTTP/1.1 200 OK\r\n".repeat(1000).into_boxed_str());
    for text in ["", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200 OK\r\n", endless] {
        let (line, fault, _) = fault(text, moment);
        assert!(matches!(fault, DialError::NoHttp { .. }), "{line}");
    }
    let closed = join(at(nobody, TCP, None), 0, moment).join().unwrap().map(|_| ());
    let Err(Error::Unreachable { dial: Some(DialError::Connect { .. }), .. }) = closed else {
        panic!("{closed:?}")
    };
}

#[test]
fn connections_that_are_misused_end_alone() {
    let serving = serve_by(Transports::Auto, config(2, 2));
    let connect = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(serving.addr).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let with_length = |bytes: &[u8]| [&(bytes.len() as u16).to_le_bytes(), bytes].concat();
    let with_magic = |bytes: &[u8]| [&MAGIC[..], bytes].concat();
    // These are closed, after the magic that everyone gets.
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        with_magic(&[51, 0]),
        with_magic(&[0xff, 0xff]),
    ] {
        let mut got = vec![];
        // Its system may say that we sent on.
        let _ = connect(&bytes).read_to_end(&mut got);
        assert!(MAGIC.starts_with(&got), "{got:?}");
    }
    // These stay: half a datagram, and nothing at all.
    let _open = [connect(&with_magic(&with_length(&[7; 100])[..50])), connect(&[])];
    // Junk, of one who never reads.
    let flood = with_magic(&with_length(&[7; 1000]).repeat(1000));
    let _flooding = connect(&flood);
    let clients = (0..2).map(|n| join(at(serving.addr, TCP, None), n, PATIENCE));
    assert_eq!(all_exact(clients.collect()), [Some(Transport::Tcp); 2]);
}

/// Sends by two wires in turn, some bursts by each.
struct Alternating {
    wires: [SocketWire; 2],
    sent: usize,
}

impl Wire for Alternating {
    fn local_addrs(&self) -> Result<Vec<SocketAddr>, NicError> {
        self.wires[0].local_addrs()
    }

    fn burst_limit(&self) -> usize {
        self.wires[0].burst_limit()
    }

    fn send(&mut self, to: Route, burst: &[u8], each: usize) -> bool {
        self.sent += 1;
        self.wires[self.sent / 4 % 2].send(to, burst, each)
    }

    fn receive(
        &mut self,
        wait: Duration,
        take: &mut dyn FnMut(Origin, &mut [u8]),
    ) -> Result<usize, NicError> {
        let [udp, tcp] = &mut self.wires;
        let count = udp.receive(wait.min(Duration::from_millis(1)), take)?;
        Ok(count + tcp.receive(Duration::ZERO, take)?)
    }

    fn waker(&mut self) -> Result<Waker, NicError> {
        self.wires[0].waker()
    }
}

#[test]
fn both_transports_of_one_client_count_once() {
    let serving = serve_by(Transports::Auto, config(2, 2));
    let addr = serving.addr;
    let moving = thread::spawn(move || {
        let dialer = Dialer::direct(addr);
        let tcp = SocketWire::dialed(dialer.connect().unwrap(), dialer).unwrap();
        let udp = SocketWire::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let wires = vec![Alternating { wires: [udp, tcp], sent: 0 }];
        let (server, paths) = (crate::support::federation::server().id(), PathConfig::default());
        let mut client = FederationClient::new(wires, addr, server, 0, node(0), paths).unwrap();
        let update = update(0, 0, VALUES);
        let participation = participation(lattice(), &update, 0);
        client.contribute(&participation, |_| ControlFlow::Continue(()))
    });
    let clients = vec![moving, join(at(addr, Transports::Auto, None), 1, PATIENCE)];
    assert_eq!(all_exact(clients), [None, Some(Transport::Udp)]);
}

/// After a third of a contribution nothing passes by UDP any more. What its spool has goes on by TCP, and counts once.
#[test]
fn where_udp_ends_in_mid_round_its_contribution_goes_on_by_tcp() {
    let serving = serve_by(Transports::Auto, config(2, 2));
    let (faults, line) = (Faults::default(), Bottleneck::default());
    let loopback = (Ipv4Addr::LOCALHOST, 0).into();
    let mut switch = RelaySwitch::bind(loopback, serving.addr, faults, line, 1).unwrap();
    let through = switch.local_addr().unwrap();
    let ending = thread::spawn(move || {
        let began = Instant::now();
        switch.run(Some(PATIENCE), Some(50_000)).unwrap();
        assert!(began.elapsed() < PATIENCE, "less of the contribution came by UDP");
        // Its sockets stay open, and nobody reads them.
        switch
    });
    let (proxy, _asked) = proxy(serving.addr, Gate::Forwards);
    let moving = thread::spawn(move || {
        let folder = tempfile::tempdir().unwrap();
        let update = update(0, 0, VALUES);
        let spool = folder.path().join("spool");
        let own = Participation {
            spool: Some(&spool),
            patience: DEFAULT_GIVE_UP,
            ..participation(lattice(), &update, 0)
        };
        let mut client = reached(at(through, Transports::Auto, Some(proxy)), 0);
        let result = client.contribute(&own, |_| ControlFlow::Continue(()))?;
        client.leave()?;
        // The folder goes with this thread.
        Ok(RoundResult { spool: None, ..result })
    });
    let clients = vec![moving, join(at(serving.addr, Transports::Auto, None), 1, PATIENCE)];
    assert_eq!(all_exact(clients), [Transport::Tcp, Transport::Udp].map(Some));
    ending.join().unwrap();
}
