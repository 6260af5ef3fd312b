//! Which beats of card memory are free.

use std::ops::Range;

/// The free beats, in order; no two ranges touch.
pub(super) struct Free(Vec<Range<u64>>);

impl Free {
    /// Makes all of them free.
    pub(super) fn new(beats: Range<u64>) -> Self {
        Self(if beats.is_empty() { vec![] } else { vec![beats] })
    }

    /// Takes `beats` beats, 1 or more, the highest that there are together; none where there are not
    /// so many.
    pub(super) fn take(&mut self, beats: u64) -> Option<Range<u64>> {
        let found = self.0.iter_mut().rfind(|range| range.end - range.start >= beats)?;
        found.end -= beats;
        let taken = found.end..found.end + beats;
        self.0.retain(|range| !range.is_empty());
        Some(taken)
    }

    /// Gives back what was taken.
    pub(super) fn give(&mut self, beats: Range<u64>) {
        let at = self.0.partition_point(|range| range.start < beats.start);
        self.0.insert(at, beats);
        self.0.dedup_by(|next, before| {
            let touch = before.end == next.start;
            if touch {
                before.end = next.end;
            }
            touch
        });
    }

    /// Returns the largest range.
    pub(super) fn largest(&self) -> Range<u64> {
        self.0.iter().max_by_key(|range| range.end - range.start).cloned().unwrap_or(0..0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_whole_again() {
        let mut free = Free::new(10..100);
        let [a, b, c] = [20, 30, 40].map(|beats| free.take(beats));
        assert_eq!((a.clone(), b.clone(), c.clone()), (Some(80..100), Some(50..80), Some(10..50)));
        assert_eq!((free.take(1), free.largest()), (None, 0..0));
        free.give(a.unwrap());
        free.give(c.unwrap());
        assert_eq!((free.largest(), free.take(20)), (10..50, Some(80..100)));
        free.give(80..100);
        free.give(b.unwrap());
        assert_eq!(free.largest(), 10..100);
    }
}
