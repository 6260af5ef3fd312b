//! Datagrams given to an endpoint: as they are, and with a sealed one's tag made right by its peer.

#![no_main]

use std::{net::SocketAddr, num::NonZeroU32};

use ciphergram_nic::proto::{Config, Endpoint, Identity, Peer, Time};
use libfuzzer_sys::fuzz_target;

fn endpoint(number: u8, other: u8) -> Option<Endpoint> {
    let identity = |number| Identity::from_secret(&[number; 32]).ok();
    let config = Config::new(identity(number)?, NonZeroU32::MIN, [number; 32]);
    let allow = [identity(other)?.id()].into();
    let mut endpoint = Endpoint::new(Config { allow, ..config }).ok()?;
    endpoint.contact(identity(other)?.id(), addr(other));
    endpoint.register_inbox(1, 1 << 16).ok()?;
    endpoint.register_memory(2, 4096, None).ok()?;
    Some(endpoint)
}

fn addr(number: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], u16::from(number)))
}

/// Delivers the datagrams of either end, until both are silent.
fn exchange(ends: &mut [Endpoint; 2]) {
    let mut bytes = vec![];
    for _ in 0..64 {
        for (from, to) in [(0, 1), (1, 0)] {
            while ends[from].poll_transmit(Time::ZERO, &mut bytes).is_some() {
                ends[to].handle_datagram(Time::ZERO, addr(from as u8 + 1), &mut bytes);
                bytes.clear();
            }
        }
    }
    ends.iter_mut().for_each(|end| while end.poll_event().is_some() {});
}

fuzz_target!(|bytes: &[u8]| {
    let (Some(one), Some(two)) = (endpoint(1, 2), endpoint(2, 1)) else { return };
    let mut ends = [one, two];
    ends[0].handle_datagram(Time::ZERO, addr(9), &mut bytes.to_vec());
    exchange(&mut ends);
    // The fields of a request of a peer that is who it says: rkey, offset, immediate, payload.
    let Some((head, payload)) = bytes.split_first_chunk::<16>() else { return };
    let (head, _) = head.as_chunks::<4>();
    let [rkey, low, high, immediate] = [0, 1, 2, 3].map(|at| u32::from_le_bytes(head[at]));
    let Ok(identity) = Identity::from_secret(&[1; 32]) else { return };
    let peer = Peer::of(identity.id());
    let offset = u64::from(low) | u64::from(high) << 32;
    let _ =
        ends[1].write(Time::ZERO, peer, rkey % 4, offset, payload.to_vec().into(), Some(immediate));
    exchange(&mut ends);
});
