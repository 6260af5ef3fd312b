//! The loop that times a subject.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    time::{Duration, Instant},
};

use ciphergram_accel::random::StreamRng;
use ciphergram_he::Error;

use super::{
    crops::{ENOUGH, Times},
    subject::{Class, Subject},
};

/// Runs before the first that counts: tables are derived, caches and predictors settle.
const WARM_UP: usize = 32;
/// Samples among which there are [`ENOUGH`] of each class, but for a chance below 2^-100.
pub const MIN_SAMPLES: usize = 1_000;
const _: () = assert!(3 * ENOUGH < MIN_SAMPLES);

/// The samples of one subject.
pub struct Samples {
    /// The number of samples taken.
    pub taken: usize,
    /// The times of those that are used: all, or those without another thread in them.
    pub times: Times,
}

impl Samples {
    /// Leaves out samples during which the core went to another thread, unless that leaves fewer
    /// than [`MIN_SAMPLES`]. Their times have a second peak, which would hide what the first shows.
    fn of(samples: &[Sample]) -> Self {
        let calm = samples.iter().filter(|sample| sample.calm).count() >= MIN_SAMPLES;
        let of = |class| {
            let used = samples.iter().filter(|s| s.class == class && (s.calm || !calm));
            used.map(|sample| sample.ns).collect()
        };
        Self { taken: samples.len(), times: [of(Class::A), of(Class::B)] }
    }
}

/// Runs a subject until its caches are warm; returns what a sample costs, with its preparation.
///
/// # Errors
/// The subject's.
pub fn warm_up(subject: &mut dyn Subject, rng: &mut StreamRng) -> Result<Duration, Error> {
    let (start, turns) = (Instant::now(), Turns::of_this_thread());
    for _ in 0..WARM_UP {
        sample(subject, &turns, rng)?;
    }
    Ok(start.elapsed() / WARM_UP as u32)
}

/// Takes `count` samples, fewer if `limit` has passed and there are [`MIN_SAMPLES`].
///
/// # Errors
/// The subject's.
pub fn measure(
    subject: &mut dyn Subject,
    count: usize,
    limit: Duration,
    rng: &mut StreamRng,
) -> Result<Samples, Error> {
    let (start, turns) = (Instant::now(), Turns::of_this_thread());
    let mut samples = Vec::with_capacity(count);
    while samples.len() < count && (samples.len() < MIN_SAMPLES || start.elapsed() < limit) {
        samples.push(sample(subject, &turns, rng)?);
    }
    Ok(Samples::of(&samples))
}

/// One measurement.
struct Sample {
    class: Class,
    ns: u64,
    /// Whether no other thread had the core meanwhile, as far as is known.
    calm: bool,
}

fn sample(subject: &mut dyn Subject, turns: &Turns, rng: &mut StreamRng) -> Result<Sample, Error> {
    let class = Class::draw(rng);
    subject.prepare(class, rng)?;
    let before = turns.count();
    let start = Instant::now();
    let result = subject.run();
    let time = start.elapsed();
    let calm = turns.count() == before;
    result.map(|()| Sample { class, ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), calm })
}

/// Returns how often Linux gave this thread a core: the third number of its `schedstat` file.
struct Turns(Option<File>);

impl Turns {
    fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Returns the count; none where there is no such file.
    fn count(&self) -> Option<u64> {
        let (mut file, mut text) = (self.0.as_ref()?, [0; 64]);
        file.seek(SeekFrom::Start(0)).ok()?;
        let length = file.read(&mut text).ok()?;
        str::from_utf8(&text[..length]).ok()?.split_whitespace().nth(2)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::secrets::Memory;

    /// Counts its runs.
    #[derive(Default)]
    struct Counter {
        prepared: usize,
        run: usize,
    }

    impl Subject for Counter {
        fn prepare(&mut self, _: Class, _: &mut StreamRng) -> Result<(), Error> {
            self.prepared += 1;
            Ok(())
        }

        fn run(&mut self) -> Result<(), Error> {
            self.run += 1;
            Ok(())
        }

        fn secrets(&self) -> Vec<Memory> {
            vec![]
        }
    }

    #[test]
    fn every_sample_is_of_one_class() {
        let (mut counter, mut rng) = (Counter::default(), StreamRng::from_seed(&[5; 32]));
        let samples = measure(&mut counter, 2_000, Duration::MAX, &mut rng).unwrap();
        assert_eq!(samples.taken, 2_000);
        assert!(samples.times.iter().all(|class| class.len() > ENOUGH));
        assert_eq!((counter.prepared, counter.run), (2_000, 2_000));
    }

    #[test]
    fn time_that_is_up_leaves_the_fewest_that_count() {
        let (mut counter, mut rng) = (Counter::default(), StreamRng::from_seed(&[5; 32]));
        let samples = measure(&mut counter, 1 << 20, Duration::ZERO, &mut rng).unwrap();
        assert_eq!(samples.taken, MIN_SAMPLES);
    }

    #[test]
    fn samples_that_others_interrupt_are_left_out_if_enough_remain() {
        let sample = |i: usize, calm| {
            let class = if i.is_multiple_of(2) { Class::A } else { Class::B };
            Sample { class, ns: i as u64, calm }
        };
        let mut samples: Vec<_> = (0..MIN_SAMPLES).map(|i| sample(i, true)).collect();
        samples.extend((0..500).map(|i| sample(i, false)));
        let used = |samples: &[Sample]| {
            let Samples { taken, times } = Samples::of(samples);
            (taken, times.map(|class| class.len()))
        };
        assert_eq!(used(&samples), (MIN_SAMPLES + 500, [MIN_SAMPLES / 2; 2]));
        assert_eq!(used(&samples[1..]).1, [MIN_SAMPLES / 2 + 249, MIN_SAMPLES / 2 + 250]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn turns_grow_when_the_core_is_given_away() {
        let turns = Turns::of_this_thread();
        let before = turns.count();
        std::thread::sleep(Duration::from_millis(5));
        assert!(before.is_none() || turns.count() > before);
    }
}
