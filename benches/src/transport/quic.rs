//! QUIC by quinn, the rival of WRITE that encrypts as well.
//!
//! It has what makes it fast here: wide windows, sockets with our buffers, datagrams of the wanted length
//! from the start, few acknowledgements, bursts as long as the kernel takes, and cubic, its default.

use std::{
    io::{self, IoSliceMut},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use ciphergram_nic::wire::SOCKET_BUFFER_BYTES;
use quinn::{
    AckFrequencyConfig, AsyncUdpSocket, ClientConfig, ConnectionError, Endpoint, EndpointConfig,
    Runtime as _, ServerConfig, TokioRuntime, TransportConfig, UdpPoller, VarInt, WriteError,
    congestion::CubicConfig,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
    rustls::{
        self, RootCertStore,
        crypto::{
            CryptoProvider,
            aws_lc_rs::{cipher_suite, default_provider},
        },
        pki_types::PrivatePkcs8KeyDer,
        quic::Suite,
    },
    udp::{RecvMeta, Transmit},
};
use rcgen::{CertifiedKey, KeyPair};
use socket2::SockRef;

use super::{Failure, WARM_UP};

/// The name of the server.
const NAME: &str = "localhost";
/// Bytes that may arrive unread: the reader never holds up the writer.
const WINDOW_BYTES: u32 = 16 << 20;
/// Bytes that may be under way unacknowledged. With 16 MiB, datagrams are lost for want of socket buffer.
const SEND_WINDOW_BYTES: u64 = 2 << 20;
/// The window that cubic starts with. Its own 12,000 bytes have no room for one long datagram, and
/// then it never sends any.
const INITIAL_WINDOW_BYTES: u64 = 1 << 20;
/// Not quinn's default of an acknowledgement to two: it asks for more than loopback needs.
const DATAGRAMS_PER_ACK: u32 = 16;
/// Bytes that the kernel takes or gives in one call.
const MAX_BURST_BYTES: usize = 65_507;
/// Quinn fills its first datagrams up to the shortest that it expects to pass, and has 14 bits for their length.
const MAX_PADDED_BYTES: u16 = 16_000;
/// An end that waits longer for the other one gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest datagram that quinn sends over IPv4.
pub const MAX_DATAGRAM_BYTES: usize = MAX_BURST_BYTES;

/// Measures the goodput of one stream of quinn's under AES-256-GCM, written in pieces of
/// `message_bytes` and read into memory of that length, in Gbit/s: what the reader has read.
///
/// Either end has a thread of its own, which does all that it does.
///
/// # Errors
/// The sockets', quinn's, or an end that gave up.
pub fn stream(datagram_bytes: usize, message_bytes: usize, span: Duration) -> Result<f64, Failure> {
    let certified = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let server = server_config(&certified, datagram_bytes)?;
    let client = client_config(&certified, datagram_bytes)?;
    let (reads, writes) = (bind()?, bind()?);
    let addr = reads.local_addr()?;
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            alone(span, async {
                let endpoint = endpoint(reads, Some(server), datagram_bytes)?;
                let rate = read(&endpoint, message_bytes, span).await;
                endpoint.wait_idle().await;
                rate
            })
        });
        let wrote = alone(span, async {
            let endpoint = endpoint(writes, None, datagram_bytes)?;
            write(&endpoint, client, addr, vec![7; message_bytes].into()).await
        });
        let rate = reading.join().map_err(|_| "the reader panicked")?;
        wrote.and(rate)
    })
}

/// Runs all of an end's work on the thread that calls.
fn alone<T>(span: Duration, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(WARM_UP + span + PATIENCE, work).await? })
}

/// Takes one stream, and counts what it brings.
async fn read(endpoint: &Endpoint, message_bytes: usize, span: Duration) -> Result<f64, Failure> {
    let connection = endpoint.accept().await.ok_or("nobody came")?.await?;
    let mut stream = connection.accept_uni().await?;
    let mut memory = vec![0; message_bytes];
    let (began, mut measured, mut bytes, mut at) = (Instant::now(), None, 0, 0);
    loop {
        let count = stream.read(&mut memory[at..]).await?.ok_or("the stream ended")?;
        at = (at + count) % message_bytes;
        bytes += count as u64;
        if measured.is_none() && began.elapsed() >= WARM_UP {
            (measured, bytes) = (Some(Instant::now()), 0);
        }
        let elapsed = measured.map_or(Duration::ZERO, |since: Instant| since.elapsed());
        if elapsed >= span {
            connection.close(VarInt::from_u32(0), b"");
            return Ok(bytes as f64 * 8e-9 / elapsed.as_secs_f64());
        }
    }
}

/// Writes messages to one stream until the reader has had enough.
async fn write(
    endpoint: &Endpoint,
    client: ClientConfig,
    to: SocketAddr,
    data: Bytes,
) -> Result<(), Failure> {
    let connection = endpoint.connect_with(client, to, NAME)?.await?;
    let mut stream = connection.open_uni().await?;
    loop {
        match stream.write_chunk(data.clone()).await {
            Ok(()) => (),
            Err(WriteError::ConnectionLost(ConnectionError::ApplicationClosed(_))) => return Ok(()),
            Err(failure) => return Err(failure.into()),
        }
    }
}

fn bind() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    SockRef::from(&socket).set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    SockRef::from(&socket).set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    Ok(socket)
}

fn endpoint(
    socket: UdpSocket,
    server: Option<ServerConfig>,
    datagram_bytes: usize,
) -> Result<Endpoint, Failure> {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(u16::try_from(datagram_bytes)?)?;
    let socket = TokioRuntime.wrap_udp_socket(socket)?;
    let socket = Arc::new(Capped { socket, segments: MAX_BURST_BYTES / datagram_bytes });
    Ok(Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(TokioRuntime))?)
}

/// Configures datagrams of that length from the start: loopback has no shorter way to discover.
fn transport(datagram_bytes: usize) -> Result<Arc<TransportConfig>, Failure> {
    let mtu = u16::try_from(datagram_bytes)?;
    let window = VarInt::from_u32(WINDOW_BYTES);
    let mut config = TransportConfig::default();
    config.initial_mtu(mtu).min_mtu(mtu.min(MAX_PADDED_BYTES)).mtu_discovery_config(None);
    config.stream_receive_window(window).receive_window(window);
    config.send_window(SEND_WINDOW_BYTES);
    let mut cubic = CubicConfig::default();
    cubic.initial_window(INITIAL_WINDOW_BYTES);
    config.congestion_controller_factory(Arc::new(cubic));
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(DATAGRAMS_PER_ACK));
    config.ack_frequency_config(Some(acks));
    Ok(Arc::new(config))
}

/// Returns a provider of AES-256-GCM and nothing else.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![cipher_suite::TLS13_AES_256_GCM_SHA384];
    Arc::new(CryptoProvider { cipher_suites, ..default_provider() })
}

/// Returns the cipher with which QUIC seals the first datagrams, before there are keys.
fn initial() -> Result<Suite, Failure> {
    let suite = cipher_suite::TLS13_AES_128_GCM_SHA256.tls13();
    Ok(suite.and_then(|suite| suite.quic_suite()).ok_or("no suite for the first datagrams")?)
}

fn server_config(
    certified: &CertifiedKey<KeyPair>,
    datagram_bytes: usize,
) -> Result<ServerConfig, Failure> {
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key.into())?;
    let crypto = QuicServerConfig::with_initial(Arc::new(tls), initial()?)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport(datagram_bytes)?);
    Ok(config)
}

fn client_config(
    certified: &CertifiedKey<KeyPair>,
    datagram_bytes: usize,
) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone())?;
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let crypto = QuicClientConfig::with_initial(Arc::new(tls), initial()?)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport(datagram_bytes)?);
    Ok(config)
}

/// A socket that is given no more in one call than the kernel takes. Quinn sends bursts of ten datagrams
/// whatever their length, and takes a burst that the kernel refused for sent.
#[derive(Debug)]
struct Capped {
    socket: Arc<dyn AsyncUdpSocket>,
    segments: usize,
}

impl AsyncUdpSocket for Capped {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.socket.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_recv(cx, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments().min(self.segments)
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }
}
