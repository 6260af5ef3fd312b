//! Which beats the memory of a recording takes: what does not hold something at the same time may
//! lie in the same ones.

use crate::device::Life;

/// The places of the memory of a recording, from beat 0 on.
pub(crate) struct CardLayout {
    /// For each its first beat; none of what stays, or of what nothing uses.
    pub(super) places: Vec<Option<u64>>,
    /// Beats in all.
    pub(super) beats: u64,
}

impl CardLayout {
    /// Gives each, in the order in which they are first used, the lowest gap that is large enough.
    pub(super) fn new(lives: &[Option<Life>]) -> Self {
        let mut order: Vec<_> = (0..lives.len()).filter(|&i| lives[i].is_some()).collect();
        order.sort_by_key(|&index| lives[index].map(|life| life.first));
        let mut layout = Self { places: vec![None; lives.len()], beats: 0 };
        // What is there at the time: its first beat, the one past its last, and its last use.
        let mut there: Vec<(u64, u64, usize)> = vec![];
        for index in order {
            let Some(life) = lives[index] else { continue };
            there.retain(|&(_, _, last)| last >= life.first);
            there.sort_unstable();
            let mut at = 0;
            for &(start, end, _) in &there {
                if at + life.size <= start {
                    break;
                }
                at = at.max(end);
            }
            there.push((at, at + life.size, life.last));
            layout.places[index] = Some(at);
            layout.beats = layout.beats.max(at + life.size);
        }
        layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What follows one another lies in the same beats, in the lowest gap; what nothing uses lies
    /// nowhere.
    #[test]
    fn beats_are_used_again() {
        let life = |first, last, size| Some(Life { first, last, size });
        let lives = [life(0, 9, 3), life(0, 1, 10), None, life(1, 2, 5), life(2, 3, 8)];
        let layout = CardLayout::new(&lives);
        assert_eq!(layout.places, [Some(0), Some(3), None, Some(13), Some(3)]);
        assert_eq!(layout.beats, 18);
    }
}
