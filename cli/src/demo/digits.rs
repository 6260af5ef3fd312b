//! The handwritten digits that the demonstration learns, and how they are dealt out to clients.
//!
//! 1,797 images of 8×8 pixels, bundled with the binary; `cli/data/README.md` has their origin and
//! format. Everything here is a function of the seed, so that every process of a demonstration
//! finds its own shard without being sent one.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

/// Pixels of one image, row by row.
pub(super) const PIXELS: usize = 64;
/// Labels run from 0 to 9.
pub(super) const CLASSES: usize = 10;

/// Images in the bundled file.
const IMAGES: usize = 1_797;
/// Bytes of one image: its pixels, then its label.
const RECORD_BYTES: usize = PIXELS + 1;
/// A pixel counts the dark points of a 4×4 block, so this is full black.
const PIXEL_MAX: f32 = 16.0;
/// Four images of five are learned from, the fifth is tested on.
const TRAIN_FRACTION: (usize, usize) = (4, 5);

/// The purpose of a random stream. Streams of one seed are independent of each other.
#[derive(Clone, Copy)]
enum StreamPurpose {
    Split = 1,
    ShardSizes = 2,
}

static RECORDS: &[u8; IMAGES * RECORD_BYTES] = include_bytes!("../../data/digits.u8");

/// Labelled images.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DigitImages {
    /// `[image][pixel]`, each pixel in 0..=1.
    pixels: Vec<f32>,
    /// One label an image, below [`CLASSES`].
    labels: Vec<u8>,
}

/// Two parts of the data that share no image.
#[derive(Clone, Debug)]
pub(super) struct DataSplit {
    /// The images that clients train on.
    pub(super) train: DigitImages,
    /// The images that accuracy is measured on.
    pub(super) test: DigitImages,
}

impl DigitImages {
    /// Returns all bundled images, in the order of the file.
    pub(super) fn load() -> Self {
        let (records, _) = RECORDS.as_chunks::<RECORD_BYTES>();
        let pixels = records.iter().flat_map(|record| &record[..PIXELS]);
        Self {
            pixels: pixels.map(|&pixel| f32::from(pixel) / PIXEL_MAX).collect(),
            labels: records.iter().map(|record| record[PIXELS]).collect(),
        }
    }

    /// Returns the number of images.
    pub(super) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns the pixels of image `index`, each in 0..=1.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`DigitImages::len`].
    pub(super) fn image(&self, index: usize) -> &[f32] {
        &self.pixels[index * PIXELS..][..PIXELS]
    }

    /// Returns the label of image `index`.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`DigitImages::len`].
    pub(super) fn label(&self, index: usize) -> usize {
        usize::from(self.labels[index])
    }

    /// Shuffles, then cuts into a training part of four fifths and a test part of the rest.
    pub(super) fn split(&self, seed: u64) -> DataSplit {
        let order = shuffled(self.len(), &mut random(seed, StreamPurpose::Split));
        let (parts, whole) = TRAIN_FRACTION;
        let (train, test) = order.split_at(self.len() * parts / whole);
        DataSplit { train: self.pick(train), test: self.pick(test) }
    }

    /// Cuts into one shard a client, every image in exactly one of them.
    ///
    /// Sizes differ, so that a mean weighted by them differs from an unweighted one; each is at
    /// least half of an equal share, rounded down. Only more clients than half the images can
    /// leave a shard empty.
    pub(super) fn shards(&self, clients: usize, seed: u64) -> Vec<Self> {
        let sizes = shard_sizes(self.len(), clients, &mut random(seed, StreamPurpose::ShardSizes));
        let mut start = 0;
        let mut take = |size| {
            let shard = self.slice(start, size);
            start += size;
            shard
        };
        sizes.into_iter().map(&mut take).collect()
    }

    fn slice(&self, start: usize, count: usize) -> Self {
        Self {
            pixels: self.pixels[start * PIXELS..][..count * PIXELS].to_vec(),
            labels: self.labels[start..][..count].to_vec(),
        }
    }

    fn pick(&self, order: &[usize]) -> Self {
        Self {
            pixels: order.iter().flat_map(|&index| self.image(index)).copied().collect(),
            labels: order.iter().map(|&index| self.labels[index]).collect(),
        }
    }
}

/// Returns the numbers below `count` in random order (Fisher and Yates).
pub(super) fn shuffled(count: usize, rng: &mut ChaCha20Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, below(last + 1, rng));
    }
    order
}

/// Draws a number below `bound`. The bias is bound / 2^64, which no data set can notice.
fn below(bound: usize, rng: &mut ChaCha20Rng) -> usize {
    ((u128::from(rng.next_u64()) * bound as u128) >> 64) as usize
}

fn random(seed: u64, purpose: StreamPurpose) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    rng.set_stream(purpose as u64);
    rng
}

/// Deals half of every equal share evenly, the other half in proportion to random numbers.
fn shard_sizes(total: usize, clients: usize, rng: &mut ChaCha20Rng) -> Vec<usize> {
    let even = total / (2 * clients.max(1));
    let uneven = (total - even * clients) as u64;
    // 1..=2^16, so that the sum is never zero and the products below stay far under 2^64.
    let portions: Vec<u64> = (0..clients).map(|_| below(1 << 16, rng) as u64 + 1).collect();
    let whole: u64 = portions.iter().sum();
    // Rounding the boundaries, and not the sizes, makes the sizes add up to the total.
    let mut cumulative = 0;
    let mut previous = 0;
    let mut size = |portion| {
        cumulative += portion;
        let boundary = uneven * cumulative / whole;
        let size = even + (boundary - previous) as usize;
        previous = boundary;
        size
    };
    portions.into_iter().map(&mut size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: std::ops::Range<u64> = 0..20;

    /// Comparable and sortable, unlike floats.
    fn keys(digits: &DigitImages) -> Vec<Vec<u32>> {
        let key = |index| {
            let pixels = digits.image(index).iter().map(|pixel| pixel.to_bits());
            pixels.chain([digits.label(index) as u32]).collect()
        };
        (0..digits.len()).map(key).collect()
    }

    #[test]
    fn the_file_holds_digits() {
        let digits = DigitImages::load();
        assert_eq!(digits.len(), IMAGES);
        assert!((0..IMAGES).all(|index| digits.label(index) < CLASSES));
        assert!(digits.pixels.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
        // Known from the data set's description: images per class, in order of the label.
        let count = |class| (0..IMAGES).filter(|&index| digits.label(index) == class).count();
        let counts: Vec<usize> = (0..CLASSES).map(count).collect();
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    }

    #[test]
    fn a_split_loses_and_repeats_nothing() {
        let digits = DigitImages::load();
        for seed in SEEDS {
            let split = digits.split(seed);
            assert_eq!(split.train.len(), 1_437);
            let mut seen = [keys(&split.train), keys(&split.test)].concat();
            let mut all = keys(&digits);
            seen.sort();
            all.sort();
            assert_eq!(seen, all, "seed {seed}");
        }
    }

    #[test]
    fn shards_cover_the_training_part_once() {
        let train = DigitImages::load().split(7).train;
        for (seed, clients) in SEEDS.flat_map(|seed| [1, 2, 3, 4, 64].map(|n| (seed, n))) {
            let shards = train.shards(clients, seed);
            assert_eq!(shards.len(), clients);
            let joined = shards.iter().flat_map(keys).collect::<Vec<_>>();
            assert_eq!(joined, keys(&train), "seed {seed}, {clients} clients");
            let half_share = train.len() / (2 * clients);
            assert!(shards.iter().all(|shard| shard.len() >= half_share));
        }
    }

    #[test]
    fn shard_sizes_differ_and_follow_the_seed() {
        let sizes = |seed| shard_sizes(1_437, 4, &mut random(seed, StreamPurpose::ShardSizes));
        for seed in SEEDS {
            let dealt = sizes(seed);
            assert_eq!(dealt, sizes(seed));
            assert!(dealt.iter().any(|size| *size != dealt[0]), "seed {seed}: {dealt:?}");
        }
        assert_ne!(sizes(0), sizes(1));
        assert!(shard_sizes(10, 0, &mut random(0, StreamPurpose::ShardSizes)).is_empty());
    }

    #[test]
    fn a_seed_fixes_the_order() {
        let digits = DigitImages::load();
        assert_eq!(digits.split(3).train, digits.split(3).train);
        assert_ne!(digits.split(3).train, digits.split(4).train);
    }
}
