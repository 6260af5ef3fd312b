//! Identities, handshakes and sealed datagrams (PROTOCOL §8).
//!
//! A node is its static key. Two nodes shake hands once per pair of processes (Noise IK); from then
//! on every datagram is sealed under keys that only those two processes have.

mod cookie;
mod handshake;
mod identity;
mod session;
mod window;

pub(super) use cookie::{Admission, Cookie, Gate};
pub use cookie::{
    COOKIE_BYTES, COOKIE_SPAN, DECLINE_RATE, HELLO_RATE, PROVEN_RATE, SAME_STRANGER_SPAN,
    STRANGER_SPAN,
};
pub(super) use handshake::{HELLO_BYTES, Hello, Initiator, SessionSecrets, TransportParameters};
pub use identity::{Identity, NodeId};
pub(super) use session::{OpenedDatagram, Session};
pub use session::{ROTATE_PACKETS, Suite};
pub(super) use window::PacketWindow;
pub use window::{ACK_WORDS, WINDOW_PACKETS};
