//! A card by its definition: registers, memory and a ring, and each operation as a formula over
//! whole numbers. Programs run over it with no card, which proves the host's side: constants,
//! layouts, descriptors, cuts.
//!
//! It panics where a recording does not keep to what the arrays and the tail can take.

mod operations;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::{
    FpgaEngine,
    descriptor::WORDS,
    form::BEAT,
    link::{Link, LinkError},
    registers,
};

/// The contents of memory that nobody wrote.
const ANYTHING: u8 = 0xa5;

/// The state of a card.
pub(super) struct ModelCard {
    pub(super) memory: Vec<u8>,
    pub(super) arrays: u32,
    pub(super) rows: u32,
    pub(super) version: u32,
    /// The most words of a number that an array takes.
    pub(super) most_words: u32,
    ring: u64,
    entries: u32,
    tail: u32,
    head: u32,
    fault: u32,
    busy: u64,
    products: u64,
    /// All descriptors that ran.
    pub(super) log: Vec<[u32; WORDS]>,
    /// Resets.
    pub(super) resets: usize,
    /// After so many descriptors something else happens: a fault of the link.
    pub(super) breaks: Option<(usize, LinkError)>,
    pub(super) is_emulated: bool,
}

/// A link to a card in memory of the host, and a hold on it for tests.
#[derive(Clone)]
pub(super) struct Twin(Arc<Mutex<ModelCard>>);

impl Twin {
    /// Makes a card of so many rows and beats.
    pub(super) fn new(rows: u32, beats: usize) -> Self {
        Self(Arc::new(Mutex::new(ModelCard {
            memory: vec![ANYTHING; beats * BEAT],
            arrays: 2,
            rows,
            version: registers::VERSION,
            most_words: registers::FIELD_WORDS.max(),
            ring: 0,
            entries: 0,
            tail: 0,
            head: 0,
            fault: 0,
            busy: 0,
            products: 0,
            log: vec![],
            resets: 0,
            breaks: None,
            is_emulated: true,
        })))
    }

    pub(super) fn engine(&self) -> FpgaEngine {
        FpgaEngine::over(Box::new(self.clone())).unwrap()
    }

    pub(super) fn card(&self) -> MutexGuard<'_, ModelCard> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Link for Twin {
    fn describe(&self) -> String {
        "a card by its definition".into()
    }

    fn is_emulated(&self) -> bool {
        self.card().is_emulated
    }

    fn read(&mut self, register: u32) -> Result<u32, LinkError> {
        let card = self.card();
        let half = |value: u64, base: u32| (value >> (8 * (register - base))) as u32;
        Ok(match register {
            registers::REGISTER_ID => registers::ID,
            registers::REGISTER_VERSION => card.version,
            registers::REGISTER_SIZES => card.arrays | card.rows << 8 | 4 << 16 | 8 << 24,
            registers::REGISTER_MEMORY => (card.memory.len() / BEAT) as u32,
            registers::REGISTER_STATUS => u32::from(card.head == card.tail),
            registers::REGISTER_TAIL => card.tail,
            registers::REGISTER_ENTRIES => card.entries,
            registers::REGISTER_HEAD => card.head,
            registers::REGISTER_FAULT => card.fault,
            registers::REGISTER_CYCLES..registers::REGISTER_BUSY => {
                half(card.busy, registers::REGISTER_CYCLES)
            }
            registers::REGISTER_BUSY..registers::REGISTER_PRODUCTS => {
                half(card.busy, registers::REGISTER_BUSY)
            }
            registers::REGISTER_PRODUCTS..registers::REGISTER_BEATS => {
                half(card.products, registers::REGISTER_PRODUCTS)
            }
            // Items are computed where they lie.
            registers::REGISTER_BEATS..0x060 => 0,
            _ => panic!("no register {register:#x}"),
        })
    }

    fn write(&mut self, register: u32, value: u32) -> Result<(), LinkError> {
        let mut card = self.card();
        match register {
            registers::REGISTER_RING => card.ring = value.into(),
            0x024 => assert_eq!(value, 0, "card memory has less beats"),
            registers::REGISTER_ENTRIES => card.entries = value,
            registers::REGISTER_TAIL => {
                assert!(value.wrapping_sub(card.head) <= card.entries, "the ring is full");
                card.tail = value;
            }
            _ => panic!("no register {register:#x} to write"),
        }
        Ok(())
    }

    fn upload(&mut self, beat: u64, bytes: &[u8]) -> Result<(), LinkError> {
        assert!(bytes.len().is_multiple_of(BEAT));
        self.card().memory[beat as usize * BEAT..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn download(&mut self, beat: u64, bytes: &mut [u8]) -> Result<(), LinkError> {
        assert!(bytes.len().is_multiple_of(BEAT));
        bytes.copy_from_slice(&self.card().memory[beat as usize * BEAT..][..bytes.len()]);
        Ok(())
    }

    fn wait(&mut self, head: u32, _patience: Duration) -> Result<(), LinkError> {
        let mut card = self.card();
        while card.head != head {
            assert!(card.head != card.tail, "what is waited for was written");
            match &mut card.breaks {
                Some((0, why)) => return Err(why.clone()),
                Some((left, _)) => *left -= 1,
                None => {}
            }
            card.next();
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<(), LinkError> {
        let mut card = self.card();
        (card.ring, card.entries, card.tail, card.head, card.fault) = (0, 0, 0, 0, 0);
        (card.busy, card.products) = (0, 0);
        card.resets += 1;
        Ok(())
    }
}

impl ModelCard {
    /// Does the next descriptor of the ring.
    fn next(&mut self) {
        let at = (self.ring as usize + (self.head % self.entries) as usize) * BEAT;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(self.memory[at..at + BEAT].as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let status = self.status(&words);
        if status == registers::STATUS_DONE {
            self.log.push(words);
            self.carry_out(&words);
        } else if self.fault == 0 {
            self.fault = self.head << 8 | status;
        }
        self.memory[at + 60..at + 64].copy_from_slice(&status.to_le_bytes());
        self.head = self.head.wrapping_add(1);
    }
}

/// Programs over twins: what the host does is right, whatever card there is. One of as few rows as
/// can be, one of many.
mod conformance {
    use super::Twin;
    use crate::{conformance, engine::Engine};

    pub(super) const WITHOUT: [&str; 23] = [
        "invert",
        "ntt",
        "intt",
        "add",
        "sub",
        "poly_mul",
        "automorphism",
        "uniform",
        "noise",
        "ternary",
        "lift",
        "lift_signed",
        "compose",
        "base_extend",
        "limbs",
        "join_limbs",
        "scale",
        "mul_sum",
        "pack",
        "unpack",
        "first_bad_lane",
        "add_lanes",
        "reduce_lanes",
    ];

    fn over(case: fn(&dyn Engine)) {
        for rows in [2, 5, 32] {
            case(&Twin::new(rows, 1 << 17).engine());
        }
    }

    conformance!(over: over, without: WITHOUT);
}

/// Programs over the card that the environment names, if it names one.
mod on_card {
    use super::conformance::WITHOUT;
    use crate::{conformance, engine::Engine, fpga::FpgaEngine};

    fn over(case: fn(&dyn Engine)) {
        match FpgaEngine::new() {
            Ok(engine) => {
                println!("on {}", engine.info().description);
                case(&engine);
            }
            Err(why) => println!("SKIPPED, {why}"),
        }
    }

    conformance!(over: over, without: WITHOUT);
}
