//! Datagrams and acknowledgements, alone and given to an endpoint.

#![no_main]

use std::{net::SocketAddr, num::NonZeroU32};

use ciphergram_nic::proto::{AckEntry, Config, Datagram, Endpoint, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Datagram::parse(bytes);
    let _ = AckEntry::parse_all(bytes);
    let Ok(mut endpoint) = Endpoint::new(Config::new(NonZeroU32::MIN)) else { return };
    let _ = endpoint.register_inbox(1, 1 << 16);
    let _ = endpoint.register_memory(2, 4096, None);
    let from = SocketAddr::from(([127, 0, 0, 1], 9));
    endpoint.handle_datagram(Time::ZERO, from, bytes);
    let mut out = vec![];
    while endpoint.poll_transmit(Time::ZERO, &mut out).is_some() {}
    while endpoint.poll_event().is_some() {}
});
