//! Datagrams on a stream of bytes: after a magic, each behind its length (PROTOCOL §10.1).

use crate::proto::datagram::MAX_DATAGRAM_BYTES;
/// Bytes of the shortest datagram.
pub use crate::proto::secure::COOKIE_BYTES as SHORTEST_BYTES;

/// The first bytes of either side of a connection.
pub const MAGIC: [u8; 8] = *b"cgram 1\n";
/// Bytes of a length.
const LENGTH_BYTES: usize = 2;

/// A stream that is not one of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// It begins otherwise.
    #[error("it does not begin as a connection of ciphergram does")]
    Magic,
    /// A length that no datagram has.
    #[error("a datagram of {0} bytes")]
    Length(usize),
}

/// Appends a datagram behind its length, within [`SHORTEST_BYTES`] and [`MAX_DATAGRAM_BYTES`].
pub fn append_datagram(out: &mut Vec<u8>, datagram: &[u8]) {
    out.extend_from_slice(&(datagram.len() as u16).to_le_bytes());
    out.extend_from_slice(datagram);
}

/// Splits what arrives into datagrams, however it is cut.
#[derive(Debug, Default)]
pub struct DatagramSplitter {
    has_magic: bool,
    /// The magic, or the length and the datagram, of which something came, and not all.
    begun: Vec<u8>,
}

impl DatagramSplitter {
    /// Hands over the datagrams that are whole with `bytes`, which follow those before, and returns how many they are.
    ///
    /// # Errors
    ///
    /// [`StreamError`]; the rest of the stream means nothing then.
    pub fn split(
        &mut self,
        mut bytes: &mut [u8],
        mut take: impl FnMut(&mut [u8]),
    ) -> Result<usize, StreamError> {
        let mut count = 0;
        if !self.has_magic {
            bytes = self.complete(bytes, MAGIC.len());
            if !MAGIC.starts_with(&self.begun) {
                return Err(StreamError::Magic);
            }
            if self.begun.len() < MAGIC.len() {
                return Ok(0);
            }
            self.has_magic = true;
            self.begun.clear();
        }
        while !self.begun.is_empty() && !bytes.is_empty() {
            let (length, wanted) = (bytes_with_length(&self.begun)?, self.begun.len());
            bytes = self.complete(bytes, length.unwrap_or(wanted + 1));
            if bytes_with_length(&self.begun)? == Some(self.begun.len()) {
                take(&mut self.begun[LENGTH_BYTES..]);
                self.begun.clear();
                count += 1;
            }
        }
        while let Some(length) = bytes_with_length(bytes)?.filter(|length| *length <= bytes.len()) {
            let (whole, rest) = std::mem::take(&mut bytes).split_at_mut(length);
            take(&mut whole[LENGTH_BYTES..]);
            bytes = rest;
            count += 1;
        }
        self.begun.extend_from_slice(bytes);
        Ok(count)
    }

    /// Adds to what has begun until it has `wanted` bytes; returns the others.
    fn complete<'a>(&mut self, bytes: &'a mut [u8], wanted: usize) -> &'a mut [u8] {
        let (part, rest) = bytes.split_at_mut(bytes.len().min(wanted - self.begun.len()));
        self.begun.extend_from_slice(part);
        rest
    }
}

/// Returns the bytes of the length and the datagram that begin here, once they are known.
fn bytes_with_length(bytes: &[u8]) -> Result<Option<usize>, StreamError> {
    let Some(length) = bytes.first_chunk() else { return Ok(None) };
    match usize::from(u16::from_le_bytes(*length)) {
        length @ SHORTEST_BYTES..=MAX_DATAGRAM_BYTES => Ok(Some(LENGTH_BYTES + length)),
        length => Err(StreamError::Length(length)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However a stream is cut, its datagrams are those that were sent.
        #[test]
        fn datagrams_survive_any_cut(
            sizes in proptest::collection::vec(SHORTEST_BYTES..600, 0..20),
            mut cuts in proptest::collection::vec(0usize..6000, 0..30),
        ) {
            let sent: Vec<Vec<u8>> = sizes.iter().map(|size| vec![*size as u8; *size]).collect();
            let mut stream = MAGIC.to_vec();
            sent.iter().for_each(|datagram| append_datagram(&mut stream, datagram));
            cuts.iter_mut().for_each(|cut| *cut = (*cut).min(stream.len()));
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let (mut splitter, mut got, mut count) = (DatagramSplitter::default(), vec![], 0);
            for cut in cuts.windows(2) {
                let part = &mut stream[cut[0]..cut[1]];
                count += splitter.split(part, |datagram| got.push(datagram.to_vec())).unwrap();
            }
            prop_assert_eq!(&got, &sent);
            prop_assert_eq!((count, splitter.begun.len()), (sent.len(), 0));
        }
    }

    #[test]
    fn what_is_no_stream_of_datagrams_is_refused() {
        let split = |stream: &[u8]| {
            let (mut splitter, mut bytes) = (DatagramSplitter::default(), stream.to_vec());
            // Also byte by byte.
            let slow = bytes
                .clone()
                .chunks_mut(1)
                .map(|byte| splitter.split(byte, |_| ()).err())
                .find(Option::is_some);
            let whole = DatagramSplitter::default().split(&mut bytes, |_| ()).err();
            assert_eq!(slow.flatten(), whole);
            whole
        };
        assert_eq!(split(b"GET / HTTP/1.1\r\n\r\n"), Some(StreamError::Magic));
        assert_eq!(split(b"cgram 2\n"), Some(StreamError::Magic));
        for length in [0, 51, 65_508, 65_535] {
            let stream = [&MAGIC[..], &(length as u16).to_le_bytes()].concat();
            assert_eq!(split(&stream), Some(StreamError::Length(length)));
        }
        assert_eq!(split(&[&MAGIC[..], &[52, 0, 1, 2]].concat()), None);
    }
}
