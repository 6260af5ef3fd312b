//! PROTOCOL.md is true of the code: its constants, its codes, and every clause that is cited.

use std::fs;
use std::path::{Path, PathBuf};

use ciphergram_nic::federation::FAREWELL;
use ciphergram_nic::proto::ack::MAX_ACK_NOTICES;
use ciphergram_nic::proto::channel::QUIET_SPAN;
use ciphergram_nic::proto::datagram::{MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES};
use ciphergram_nic::proto::endpoint::*;
use ciphergram_nic::proto::link::*;
use ciphergram_nic::proto::path::*;
use ciphergram_nic::proto::path_size::{
    BLACK_HOLE_LOSSES, BLACK_HOLE_TIMEOUTS, DATAGRAM_SIZES, RAISE_SPAN, SIZE_TRIES,
};
use ciphergram_nic::proto::pipeline::SWEEP_SPAN;
use ciphergram_nic::proto::recovery::*;
use ciphergram_nic::proto::secure::{
    ACK_WORDS, COOKIE_SPAN, DECLINE_RATE, HELLO_RATE, PROVEN_RATE, ROTATE_PACKETS,
    SAME_STRANGER_SPAN, STRANGER_SPAN, WINDOW_PACKETS,
};
use ciphergram_nic::proto::sender::{EARLY_SHARE, PROBES};
use ciphergram_nic::proto::{MAX_PIPELINES, MAX_STAGED_BYTES, MESSAGE_WINDOW, Opcode, Refusal};
use ciphergram_nic::round::JOIN_INBOX;
use ciphergram_nic::round::aggregator::SPARE_SPAN;
use ciphergram_nic::round::client::PROBE_SPAN;
use ciphergram_nic::round::message::MAX_ROUND_MESSAGE_BYTES;
use ciphergram_nic::wire::tcp::dial::{DIAL_SPAN, REFUSED_SPAN};
use ciphergram_nic::wire::tcp::{
    MAX_CONNECTIONS, NAMELESS_SPAN, QUEUE_BYTES, REDIAL_SPAN, SILENT_SPAN,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../nic-integration")
}

fn specification() -> String {
    fs::read_to_string(root().join("PROTOCOL.md")).unwrap()
}

macro_rules! constants {
    ($($name:ident),* $(,)?) => { [$((stringify!($name), format!("{:?}", $name))),*] };
}

#[test]
fn the_constants_are_those_of_the_code() {
    let expected = constants![
        MIN_DATAGRAM_BYTES,
        MAX_DATAGRAM_BYTES,
        DATAGRAM_SIZES,
        SIZE_TRIES,
        BLACK_HOLE_LOSSES,
        BLACK_HOLE_TIMEOUTS,
        RAISE_SPAN,
        MAX_MESSAGE_BYTES,
        MESSAGE_WINDOW,
        WINDOW_PACKETS,
        ACK_WORDS,
        MAX_ACK_NOTICES,
        MAX_PEERS,
        MAX_UNCONFIRMED,
        MAX_HANDSHAKE_DATAGRAMS,
        MAX_EVENTS,
        DEFAULT_HELD_BYTES,
        MAX_STAGED_BYTES,
        INITIAL_WINDOW,
        MIN_WINDOW,
        MAX_WINDOW,
        MAX_WINDOW_BYTES,
        LOSS_TOLERANCE,
        LOSS_SAMPLE,
        GROWTH_BYTES,
        GROWTH_SHARE,
        MAX_ROUND_TRIP,
        MIN_QUEUE_BYTES,
        INITIAL_PTO,
        MIN_PTO,
        MAX_PTO,
        MIN_REORDER,
        PERSISTENT_TIMEOUTS,
        PROBES,
        EARLY_SHARE,
        MAX_PIPELINES,
        MAX_PATHS,
        DEFAULT_SPRAY,
        REST_TIMEOUTS,
        LAG,
        LAG_FLOOR,
        LAG_SAMPLES,
        REST_SPAN,
        MAX_REST_SPAN,
        DEFAULT_GIVE_UP,
        IDLE_SPAN,
        UNCONFIRMED_SPAN,
        SWEEP_SPAN,
        QUIET_SPAN,
        HELLO_SPAN,
        MAX_HELLO_SPAN,
        SILENCE_SPAN,
        HELLO_RATE,
        PROVEN_RATE,
        DECLINE_RATE,
        STRANGER_SPAN,
        SAME_STRANGER_SPAN,
        COOKIE_SPAN,
        ROTATE_PACKETS,
        PROBE_SPAN,
        SPARE_SPAN,
        FAREWELL,
        JOIN_INBOX,
        MAX_ROUND_MESSAGE_BYTES,
        QUEUE_BYTES,
        MAX_CONNECTIONS,
        NAMELESS_SPAN,
        DIAL_SPAN,
        REFUSED_SPAN,
        REDIAL_SPAN,
        SILENT_SPAN,
    ]
    .map(|(name, value)| format!("| `{name}` | {value} |"));
    let text = specification();
    let (_, table) = text.split_once("## 9. Constants").unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows, expected);
}

#[test]
fn the_codes_are_those_of_the_code() {
    use Refusal::*;
    let text = specification();
    let refusals = [
        UnknownRkey,
        OutOfBounds,
        NoRight,
        WrongLength,
        ChunkOutOfRange,
        InvalidCiphertext,
        NotContributor,
        RoundClosed,
        WrongOffset,
        WrongRound,
    ];
    for refusal in refusals {
        let row = format!("| {} | {refusal:?} |", refusal as u32);
        assert!(text.contains(&row), "{row}");
    }
    for (opcode, name) in [
        (Opcode::Write, "WRITE"),
        (Opcode::WriteImm, "WRITE_IMM"),
        (Opcode::Sum, "SUM"),
        (Opcode::Ack, "ACK"),
    ] {
        let row = format!("| {} | {name} |", opcode as u8);
        assert!(text.contains(&row), "{row}");
    }
}

#[test]
fn every_clause_cited_exists() {
    let text = specification();
    let exists = |clause: &str| {
        let heads = [format!("## {clause}. "), format!("### {clause} "), format!("- **{clause}")];
        text.lines().any(|line| heads.iter().any(|head| line.starts_with(head)))
    };
    let mut cited = 0;
    for file in sources(&root().join("src")) {
        let code = fs::read_to_string(&file).unwrap();
        let lines = code.lines().filter(|line| line.contains("PROTOCOL §"));
        for clause in lines.flat_map(|line| line.split('§').skip(1)) {
            let end =
                clause.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(clause.len());
            let clause = clause[..end].trim_end_matches('.');
            assert!(exists(clause), "{} cites §{clause}", file.display());
            cited += 1;
        }
    }
    assert!(cited > 20, "only {cited} citations found");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}
