//! An attacker on the path who knows no key: it copies datagrams, and sends any bytes in anybody's
//! name.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ciphergram_nic::proto::endpoint::MAX_HANDSHAKE_DATAGRAMS;
use ciphergram_nic::sim::Network;

use super::plan::Dice;

/// Its own address.
const ADDR: ([u8; 4], u16) = ([10, 0, 2, 1], 666);
/// The number of copies that it keeps.
const MAX_KEPT: usize = 48;
/// The code of a HELLO, and the place of codes.
const HELLO: u8 = 16;
const CODE_AT: usize = 3;

pub(crate) struct Attacker {
    dice: Dice,
    /// Sender, receiver and bytes.
    kept: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
}

impl Attacker {
    pub(crate) fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed ^ 0xa77ac), kept: vec![] }
    }

    /// Copies a datagram that is on its way.
    pub(crate) fn listen(&mut self, network: &Network) {
        let which = self.dice.below(network.in_flight().len() as u64) as usize;
        let Some((from, to, bytes)) = network.in_flight().nth(which) else { return };
        if self.kept.len() == MAX_KEPT {
            let gone = self.dice.below(MAX_KEPT as u64) as usize;
            self.kept.swap_remove(gone);
        }
        if !bytes.is_empty() {
            self.kept.push((from, to, bytes.to_vec()));
        }
    }

    /// Sends one datagram, and counts it.
    pub(crate) fn act(&mut self, network: &mut Network, counts: &mut BTreeMap<&'static str, u64>) {
        self.listen(network);
        let which = self.dice.below(self.kept.len() as u64) as usize;
        let Some((from, to, bytes)) = self.kept.get(which) else { return };
        let (from, to, mut bytes) = (*from, *to, bytes.clone());
        let name = match self.dice.below(5) {
            0 | 1 => "replayed",
            2 => {
                for _ in 0..=self.dice.below(3) {
                    let bit = self.dice.below(8 * bytes.len() as u64) as usize;
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
                "bits flipped"
            }
            3 => {
                let length = self.dice.below(bytes.len() as u64 + 40) as usize;
                bytes.resize(length, 0);
                "cut or grown"
            }
            _ => {
                // A session that there is, a kind that there is, and nothing else that is true.
                let start = bytes.len().min(8);
                self.dice.fill(&mut bytes[start..]);
                if let Some(code) = bytes.get_mut(CODE_AT) {
                    *code = [1, 2, 3, 5, 16, 17, 18][self.dice.below(7) as usize];
                }
                "forged"
            }
        };
        *counts.entry(name).or_default() += 1;
        let from = if self.dice.below(2) == 0 { from } else { ADDR.into() };
        // Now and then back to its sender.
        let to = if self.dice.below(8) == 0 { from } else { to };
        network.send(from, to, &bytes);
    }

    /// Sends more HELLOs with the right first MAC than are worked for.
    pub(crate) fn flood(&mut self, network: &mut Network) -> u64 {
        let hello = |(_, _, bytes): &&(_, _, Vec<u8>)| bytes.get(CODE_AT) == Some(&HELLO);
        let Some((_, to, bytes)) = self.kept.iter().rfind(hello) else { return 0 };
        let count = MAX_HANDSHAKE_DATAGRAMS + 64;
        (0..count).for_each(|_| network.send(ADDR.into(), *to, bytes));
        count as u64
    }
}
