//! A contribution's sealed bytes, held once.

use bytes::Bytes;

/// The sealed chunks so far, from the first, in buffers that the messages under way share.
#[derive(Default)]
pub(super) struct SealedStream {
    /// Each with the offset at which it begins.
    parts: Vec<(usize, Bytes)>,
    length: usize,
}

impl SealedStream {
    /// Returns the number of bytes so far.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Appends whole chunks.
    pub(super) fn append(&mut self, chunks: Bytes) {
        let start = self.length;
        self.length += chunks.len();
        self.parts.push((start, chunks));
    }

    /// Returns the bytes from `offset` to the end of their buffer; none if they are not sealed yet.
    pub(super) fn rest(&self, offset: usize) -> Bytes {
        let after = self.parts.partition_point(|(start, _)| *start <= offset);
        let part = self.parts[..after].last().filter(|_| offset < self.length);
        part.map_or_else(Bytes::new, |(start, bytes)| bytes.slice(offset - start..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_buffer_is_shared_not_copied() {
        let mut stream = SealedStream::default();
        assert!(stream.rest(0).is_empty());
        let parts: [Bytes; 2] = [vec![1, 2, 3].into(), vec![4, 5].into()];
        parts.iter().for_each(|part| stream.append(part.clone()));
        assert_eq!(stream.len(), 5);
        for (offset, expected) in
            [(0, &[1, 2, 3][..]), (2, &[3]), (3, &[4, 5]), (4, &[5]), (5, &[])]
        {
            assert_eq!(stream.rest(offset), expected, "at {offset}");
        }
        assert_eq!(stream.rest(1).as_ptr(), parts[0][1..].as_ptr());
    }
}
