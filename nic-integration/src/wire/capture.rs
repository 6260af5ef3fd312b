//! A wire whose traffic is also written to a file, as packet analysers read it: a classic pcap file of raw
//! IP packets, whose IP and UDP headers are made up from the addresses.

use std::fs::File;
use std::io::{BufWriter, Error, Write as _};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use tracing::warn;

use crate::NicError;
use crate::proto::{Origin, Route};

use super::Wire;

/// What the file begins with: its magic, version 2.4, UTC, no packet cut, and the link type RAW, 101,
/// which is IPv4 or IPv6 as the packet's first bits say.
const FILE_HEADER: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0];
const UDP: u8 = 17;
const UDP_HEADER_BYTES: usize = 8;
const HOPS: u8 = 64;

/// Another wire, and the file if there is one. An end bound to all addresses is shown with address 0.
pub struct Captured<W> {
    wire: W,
    capture: Option<Capture>,
}

/// A file that one or several wires write to.
#[derive(Clone, Debug)]
pub struct PcapFile(Arc<Mutex<BufWriter<File>>>);

impl PcapFile {
    /// Begins a capture.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`], if it cannot be written to.
    pub fn new(file: File) -> Result<Self, NicError> {
        let mut file = BufWriter::new(file);
        file.write_all(&FILE_HEADER)?;
        file.flush()?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    fn with<T>(&self, work: impl FnOnce(&mut BufWriter<File>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Capture {
    file: PcapFile,
    locals: Vec<SocketAddr>,
    /// One record.
    record: Vec<u8>,
}

impl<W: Wire> Captured<W> {
    /// `wire`, of which nothing is written yet.
    pub fn new(wire: W) -> Self {
        Self { wire, capture: None }
    }

    /// Writes from here on what is sent and received, at the latest when nothing comes for a while. If
    /// the file cannot be written to, a warning says so and it ends there; the traffic goes on.
    ///
    /// # Errors
    ///
    /// [`NicError::Wire`], if the wire does not know where it is.
    pub fn capture(&mut self, file: PcapFile) -> Result<(), NicError> {
        self.capture = Some(Capture { file, locals: self.wire.local_addrs()?, record: vec![] });
        Ok(())
    }
}

impl<W: Wire> Wire for Captured<W> {
    fn local_addrs(&self) -> Result<Vec<SocketAddr>, NicError> {
        self.wire.local_addrs()
    }

    fn burst_limit(&self) -> usize {
        self.wire.burst_limit()
    }

    fn send(&mut self, to: Route, burst: &[u8], each: usize) -> bool {
        let sent = self.wire.send(to, burst, each);
        if sent {
            let mut datagrams = burst.chunks(each.max(1));
            try_write(&mut self.capture, |capture| {
                datagrams.try_for_each(|bytes| capture.write(capture.local(to.via), to.addr, bytes))
            });
        }
        sent
    }

    fn receive(
        &mut self,
        wait: Duration,
        take: &mut dyn FnMut(Origin, &mut [u8]),
    ) -> Result<usize, NicError> {
        let Self { wire, capture } = self;
        let count = wire.receive(wait, &mut |from, bytes| {
            let route = from.route;
            try_write(capture, |capture| {
                capture.write(route.addr, capture.local(route.via), bytes)
            });
            take(from, bytes);
        })?;
        if count == 0 {
            try_write(capture, |capture| capture.file.with(BufWriter::flush));
        }
        Ok(count)
    }

    fn waker(&mut self) -> Result<Waker, NicError> {
        self.wire.waker()
    }
}

/// Writes, if there is a file that takes it.
fn try_write(capture: &mut Option<Capture>, write: impl FnOnce(&mut Capture) -> Result<(), Error>) {
    if let Some(Err(error)) = capture.as_mut().map(write) {
        warn!(%error, "the capture ends here");
        *capture = None;
    }
}

impl Capture {
    fn local(&self, via: u16) -> SocketAddr {
        self.locals[usize::from(via)]
    }

    fn write(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> Result<(), Error> {
        // A clock before 1970 is the reader's to wonder about.
        let when = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.record.clear();
        append_record(&mut self.record, when, from, to, bytes);
        self.file.with(|file| file.write_all(&self.record))
    }
}

/// Appends a record of the file: when, since 1970, a datagram went from one address to the other.
fn append_record(
    out: &mut Vec<u8>,
    when: Duration,
    from: SocketAddr,
    to: SocketAddr,
    bytes: &[u8],
) {
    let packet = packet(from, to, bytes);
    let length = packet.len() as u32;
    for word in [when.as_secs() as u32, when.subsec_micros(), length, length] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&packet);
}

/// The IP packet that carries the datagram. `bytes` are no more than UDP carries.
fn packet(from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let udp_bytes = (UDP_HEADER_BYTES + bytes.len()) as u16;
    let (mut packet, addresses) = match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => {
            let addresses = [from.ip().octets(), to.ip().octets()].concat();
            // Version and words of header, service; length; identification, "do not fragment".
            let mut header = vec![0x45, 0];
            header.extend_from_slice(&(20 + udp_bytes).to_be_bytes());
            header.extend_from_slice(&[0, 0, 0x40, 0, HOPS, UDP, 0, 0]);
            header.extend_from_slice(&addresses);
            let sum = checksum([&header[..]]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            (header, addresses)
        }
        _ => {
            let addresses = [ipv6(from).octets(), ipv6(to).octets()].concat();
            let mut header = vec![0x60, 0, 0, 0];
            header.extend_from_slice(&udp_bytes.to_be_bytes());
            header.extend_from_slice(&[UDP, HOPS]);
            header.extend_from_slice(&addresses);
            (header, addresses)
        }
    };
    let mut header = [0; UDP_HEADER_BYTES];
    header[..2].copy_from_slice(&from.port().to_be_bytes());
    header[2..4].copy_from_slice(&to.port().to_be_bytes());
    header[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    let [high, low] = udp_bytes.to_be_bytes();
    let sum = match checksum([&addresses, &[0, UDP, high, low], &header, bytes]) {
        // Zero would say that there is none.
        0 => 0xffff,
        sum => sum,
    };
    header[6..].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(&header);
    packet.extend_from_slice(bytes);
    packet
}

fn ipv6(addr: SocketAddr) -> Ipv6Addr {
    match addr {
        SocketAddr::V4(addr) => addr.ip().to_ipv6_mapped(),
        SocketAddr::V6(addr) => *addr.ip(),
    }
}

/// The Internet checksum of `parts` one after the other; all but the last are of even length.
fn checksum<const N: usize>(parts: [&[u8]; N]) -> u16 {
    let pairs = parts.iter().flat_map(|part| part.chunks(2));
    let words = pairs.map(|p| u32::from(p[0]) << 8 | p.get(1).map_or(0, |&low| u32::from(low)));
    // Of 65,535 bytes and some, so 32 bits hold it.
    let sum: u32 = words.sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    !((folded >> 16) + folded) as u16
}

#[cfg(test)]
mod tests;
