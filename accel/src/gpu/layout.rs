//! Which buffers of a recording share memory: those that do not hold something at the same time.

use crate::device::Life;

/// The places of the buffers of a recording.
pub(crate) struct GpuLayout {
    /// For each buffer its place; none of those that stay, or that nothing uses.
    pub(super) places: Vec<Option<usize>>,
    /// For each place its bytes.
    pub(super) sizes: Vec<u64>,
}

impl GpuLayout {
    /// Gives each buffer, in the order in which they are first used, the smallest place that is
    /// free and large enough; else the largest that is free, which grows.
    pub(super) fn new(lives: &[Option<Life>]) -> Self {
        let of_buffer = |(index, life): (usize, &Option<Life>)| {
            life.map(|Life { first, last, size }| (first, last, index, 4 * size))
        };
        let mut order: Vec<_> = lives.iter().enumerate().filter_map(of_buffer).collect();
        order.sort_unstable();
        let mut places = vec![None; lives.len()];
        // Bytes of a place, and the last command that uses what lies there.
        let mut made: Vec<(u64, usize)> = vec![];
        for (first, last, index, bytes) in order {
            let free = || made.iter().enumerate().filter(|&(_, &(_, until))| until < first);
            let fits = free().filter(|&(_, &(size, _))| size >= bytes).min_by_key(|&(_, p)| p.0);
            let found = fits.or_else(|| free().max_by_key(|&(_, p)| p.0)).map(|(place, _)| place);
            let place = found.unwrap_or(made.len());
            match made.get_mut(place) {
                Some(place) => *place = (bytes.max(place.0), last),
                None => made.push((bytes, last)),
            }
            places[index] = Some(place);
        }
        Self { places, sizes: made.into_iter().map(|(size, _)| size).collect() }
    }
}
