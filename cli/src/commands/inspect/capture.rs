//! Captures of datagrams, as `--capture` writes them and other programs do.

use std::{collections::BTreeMap, net::IpAddr};

use ciphergram_he::Error;
use serde_json::json;

use super::Findings;

/// The link type of raw IP packets.
const RAW: u32 = 101;
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
const UDP: u8 = 17;
/// The most pairs of addresses that are listed.
const MAX_PAIRS: usize = 64;

/// Describes a classic pcap file: datagrams, time, and who sent how many to whom.
pub(super) fn capture(bytes: &[u8], found: &mut Findings) -> Result<(), Error> {
    let invalid = |why: &str| Error::Format { what: "capture", why: why.into() };
    let magic = bytes.first_chunk::<4>().ok_or_else(|| invalid("truncated"))?;
    let (big, nanoseconds) = match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => (false, false),
        [0xa1, 0xb2, 0xc3, 0xd4] => (true, false),
        [0x4d, 0x3c, 0xb2, 0xa1] => (false, true),
        [0xa1, 0xb2, 0x3c, 0x4d] => (true, true),
        _ => return Err(invalid("pcapng, which only the programs that write it read")),
    };
    let word = |at: usize| {
        let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    };
    let link = word(20).ok_or_else(|| invalid("truncated"))?;
    let (mut at, mut packets, mut total) = (FILE_HEADER_BYTES, 0u64, 0u64);
    let (mut first, mut last) = (None, 0.0);
    let mut pairs: BTreeMap<String, u64> = BTreeMap::new();
    let mut unlisted = 0u64;
    while let (Some(seconds), Some(part), Some(length)) = (word(at), word(at + 4), word(at + 8)) {
        let start = at + RECORD_HEADER_BYTES;
        let end = start.saturating_add(length as usize);
        let Some(packet) = bytes.get(start..end) else { break };
        last = f64::from(seconds) + f64::from(part) / if nanoseconds { 1e9 } else { 1e6 };
        first.get_or_insert(last);
        (packets, total, at) = (packets + 1, total + u64::from(length), end);
        let Some(pair) = addresses(packet).filter(|_| link == RAW) else { continue };
        match pairs.len() < MAX_PAIRS || pairs.contains_key(&pair) {
            true => *pairs.entry(pair).or_default() += 1,
            false => unlisted += 1,
        }
    }
    found.add("kind", "capture", "captured datagrams (pcap), sealed as they travelled");
    found.add_same("packets", packets);
    found.add("packet_bytes", total, format!("{total}, IP and UDP headers included"));
    let seconds = last - first.unwrap_or(last);
    found.add("seconds", seconds, format!("{seconds:.3}"));
    if link != RAW {
        found.add("link_type", link, format!("{link}, whose addresses are not read here"));
    }
    for (pair, count) in &pairs {
        found.lines.push(format!("datagrams        {pair}: {count}"));
    }
    if unlisted > 0 {
        found.add("unlisted", unlisted, format!("{unlisted} between others"));
    }
    let list = pairs.iter().map(|(pair, count)| json!({"between": pair, "packets": count}));
    found.json.insert("datagrams".into(), list.collect());
    if at != bytes.len() {
        let rest = bytes.len() - at;
        found.add("cut_bytes", rest, format!("{rest} at the end, of a packet that was cut"));
    }
    Ok(())
}

/// Returns sender and receiver of a UDP datagram in an IP packet.
fn addresses(packet: &[u8]) -> Option<String> {
    let address = |at: usize, bytes: usize| -> Option<IpAddr> {
        let part = packet.get(at..at + bytes)?;
        match <[u8; 4]>::try_from(part) {
            Ok(v4) => Some(IpAddr::from(v4)),
            Err(_) => Some(IpAddr::from(<[u8; 16]>::try_from(part).ok()?)),
        }
    };
    let (from, to, udp) = match packet.first()? {
        v4 if v4 >> 4 == 4 && *packet.get(9)? == UDP => {
            (address(12, 4)?, address(16, 4)?, usize::from(v4 & 15) * 4)
        }
        v6 if v6 >> 4 == 6 && *packet.get(6)? == UDP => (address(8, 16)?, address(24, 16)?, 40),
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    let end = |ip: IpAddr, port: u16| std::net::SocketAddr::new(ip, port).to_string();
    Some(format!("{} to {}", end(from, port(udp)?), end(to, port(udp + 2)?)))
}
