//! Frames of every kind: as they come, and with a digest that vouches for whatever the body is.

#![no_main]

use ciphergram_he::{Contribution, Sum, frame::Frame};
use libfuzzer_sys::fuzz_target;

fn read(bytes: &[u8]) {
    if let Ok(frame) = Frame::parse(bytes) {
        let _ = frame.parameters();
        let _ = Contribution::from_frame(&frame);
        let _ = Sum::from_frame(&frame);
    }
}

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    let mut vouched = bytes.to_vec();
    vouched.extend(blake3::hash(bytes).as_bytes());
    read(&vouched);
});
