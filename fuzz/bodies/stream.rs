//! A stream of bytes as datagrams: whatever its bytes, and however it is cut, the same ones come of it.

use ciphergram_nic::proto::datagram::MAX_DATAGRAM_BYTES;
use ciphergram_nic::wire::tcp::stream::{DatagramSplitter, MAGIC, StreamError};

/// Splits a stream in parts of at most `part` bytes. Returns its datagrams until it ends, or what ends it.
fn split(stream: &[u8], part: usize) -> (Vec<Vec<u8>>, Option<StreamError>) {
    let (mut splitter, mut datagrams) = (DatagramSplitter::default(), vec![]);
    for part in stream.to_vec().chunks_mut(part) {
        if let Err(fault) = splitter.split(part, |datagram| datagrams.push(datagram.to_vec())) {
            return (datagrams, Some(fault));
        }
    }
    (datagrams, None)
}

/// The first byte says how the rest is cut, and whether the magic is before it.
pub(crate) fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let stream = if first & 1 == 1 { [&MAGIC, rest].concat() } else { rest.to_vec() };
    let whole = split(&stream, stream.len().max(1));
    assert!(whole.0.iter().all(|datagram| (1..=MAX_DATAGRAM_BYTES).contains(&datagram.len())));
    assert!(whole.0.iter().map(|datagram| 2 + datagram.len()).sum::<usize>() <= stream.len());
    assert_eq!(split(&stream, 1 + usize::from(first >> 1)), whole);
}
