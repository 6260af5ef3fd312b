//! Repeats work and samples its times, in spells in which nothing else wants the cores.

use std::time::{Duration, Instant};

use super::spent::Spent;
use crate::failure::Failure;

/// The least number of samples of a row, however long they take.
const LEAST_SAMPLES: usize = 5;
/// The least duration of a sample: cheap work is repeated until it lasts this long.
const SAMPLE: Duration = Duration::from_millis(10);
/// The part of a sample's time that other work may have the cores for, and the sample is quiet.
const QUIET: f64 = 0.02;
/// The longest that a row waits for quiet samples, as a multiple of the time that it was to take.
const PATIENCE: u32 = 5;

/// One batch of work that can be repeated.
pub(crate) trait Work {
    /// Prepares a batch; not timed.
    fn prepare(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Runs the batch.
    fn run(&mut self) -> Result<(), Failure>;
}

impl<F: FnMut() -> Result<(), Failure>> Work for F {
    fn run(&mut self) -> Result<(), Failure> {
        self()
    }
}

/// Measured times, in seconds per batch.
pub(crate) struct Times {
    pub(crate) batches: usize,
    /// The part of the time of these samples for which other work had the cores, where the system
    /// counts it.
    pub(crate) disturbed: Option<f64>,
    /// In order of size.
    samples: Vec<f64>,
}

impl Times {
    /// Makes the times of one batch alone.
    pub(crate) fn of_one(time: Duration) -> Self {
        Self { batches: 1, disturbed: None, samples: vec![time.as_secs_f64()] }
    }

    /// Returns the time that a share of all samples does not exceed, interpolated.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let place = share * (self.samples.len() - 1) as f64;
        let (low, high) = (self.samples[place as usize], self.samples[place.ceil() as usize]);
        low + (high - low) * place.fract()
    }
}

/// Prepares and runs one batch, and returns the time of the run.
pub(crate) fn once(work: &mut dyn Work) -> Result<Duration, Failure> {
    work.prepare()?;
    let start = Instant::now();
    work.run()?;
    Ok(start.elapsed())
}

/// Samples batches for about `duration`, after one to warm up.
pub(crate) fn sample(work: &mut dyn Work, duration: Duration) -> Result<Times, Failure> {
    once(work)?;
    samples(duration, || {
        let (time, batches) = several(work)?;
        Ok((time.as_secs_f64() / batches as f64, batches))
    })
}

/// Samples one of the `steps` that `long` has more than `short`, running both in turn for about
/// `duration`. A time is below zero where other work made `short` take longer.
pub(crate) fn sample_beyond(
    long: &mut dyn Work,
    short: &mut dyn Work,
    steps: f64,
    duration: Duration,
) -> Result<Times, Failure> {
    once(long)?;
    once(short)?;
    samples(duration, || {
        let (time, batches) = several(short)?;
        let beyond = (0..batches).map(|_| once(long)).sum::<Result<Duration, _>>()?;
        Ok(((beyond.as_secs_f64() - time.as_secs_f64()) / (steps * batches as f64), batches))
    })
}

/// Takes samples, each of seconds and the batches that they were measured over, until quiet ones
/// make up about `duration`, or for [`PATIENCE`] times as long.
fn samples(
    duration: Duration,
    mut sample: impl FnMut() -> Result<(f64, usize), Failure>,
) -> Result<Times, Failure> {
    let (start, mut samples, mut quiet) = (Instant::now(), Samples::default(), Duration::ZERO);
    while !samples.suffice() || quiet < duration && start.elapsed() < PATIENCE * duration {
        let (clock, before) = (Instant::now(), Spent::now());
        let (seconds, batches) = sample()?;
        let spent = Spent::now().zip(before).and_then(|(now, before)| now.since(before));
        if samples.add(seconds, batches, spent) {
            quiet += clock.elapsed();
        }
    }
    Ok(samples.times())
}

/// One sample.
struct Sample {
    seconds: f64,
    batches: usize,
    /// The time of this program's threads meanwhile; zero where the system does not say.
    spent: Spent,
}

impl Sample {
    /// Returns the part of the sample's time for which other work had the cores, none where nobody says.
    fn disturbed(&self) -> f64 {
        self.spent.disturbed().unwrap_or(0.0)
    }

    fn is_quiet(&self) -> bool {
        self.disturbed() < QUIET
    }
}

/// The samples of a row.
#[derive(Default)]
struct Samples(Vec<Sample>);

impl Samples {
    /// Adds a sample, and returns whether it is quiet. It is where the system does not say.
    fn add(&mut self, seconds: f64, batches: usize, spent: Option<Spent>) -> bool {
        let sample = Sample { seconds, batches, spent: spent.unwrap_or_default() };
        let quiet = sample.is_quiet();
        self.0.push(sample);
        quiet
    }

    fn suffice(&self) -> bool {
        self.0.len() >= LEAST_SAMPLES
    }

    /// Returns the times of the quiet samples or, where these are too few, of the quietest.
    fn times(self) -> Times {
        let mut chosen = self.0;
        chosen.sort_by(|a, b| a.disturbed().total_cmp(&b.disturbed()));
        let quiet = chosen.iter().filter(|sample| sample.is_quiet()).count();
        chosen.truncate(quiet.max(LEAST_SAMPLES));
        let batches = chosen.iter().map(|sample| sample.batches).sum();
        let disturbed = chosen.iter().map(|sample| sample.spent).sum::<Spent>().disturbed();
        let mut samples: Vec<_> = chosen.iter().map(|sample| sample.seconds).collect();
        samples.sort_by(f64::total_cmp);
        Times { batches, disturbed, samples }
    }
}

/// Runs batches until they took [`SAMPLE`], and returns their time and number.
///
/// A number guessed from one batch would be too small if other work delayed that one, and samples
/// too short for the system to count their time.
fn several(work: &mut dyn Work) -> Result<(Duration, usize), Failure> {
    let (mut time, mut batches) = (Duration::ZERO, 0);
    while time < SAMPLE {
        time += once(work)?;
        batches += 1;
    }
    Ok((time, batches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_samples() {
        let times =
            |samples: &[f64]| Times { batches: 1, disturbed: None, samples: samples.to_vec() };
        assert_eq!([0.0, 0.5, 1.0].map(|s| times(&[7.0]).quantile(s)), [7.0; 3]);
        let five = times(&[1.0, 2.0, 3.0, 4.0, 10.0]);
        let found = [0.0, 0.1, 0.5, 0.9, 1.0].map(|s| (five.quantile(s) * 10.0).round());
        assert_eq!(found, [10.0, 14.0, 30.0, 76.0, 100.0]);
    }

    #[test]
    fn figures_are_of_quiet_samples_or_of_the_quietest() {
        let times = |quiet: usize, disturbed: usize| {
            let mut samples = Samples::default();
            (0..disturbed).for_each(|_| assert!(!samples.add(3.0, 3, Some(Spent::of(100, 900)))));
            (0..quiet).for_each(|_| assert!(samples.add(1.0, 3, Some(Spent::of(100, 1)))));
            assert!(!samples.add(2.0, 3, Some(Spent::of(100, 100))));
            assert_eq!(samples.suffice(), quiet + disturbed >= 4);
            samples.times()
        };
        let found = |times: Times| (times.batches, times.quantile(1.0), times.disturbed);
        assert_eq!(found(times(5, 9)), (15, 1.0, Some(1.0 / 101.0)));
        assert_eq!(found(times(7, 0)), (21, 1.0, Some(1.0 / 101.0)));
        // One more than are quiet, and of the others the one that was disturbed least.
        assert_eq!(found(times(4, 3)), (15, 2.0, Some(104.0 / 604.0)));
        let mut unknown = Samples::default();
        (0..6).for_each(|_| assert!(unknown.add(1.0, 1, None)));
        assert_eq!(found(unknown.times()), (6, 1.0, None));
    }

    #[test]
    fn a_difference_is_shared_by_its_steps() {
        let wait = |times: u32| {
            move || {
                std::thread::sleep(times * SAMPLE);
                Ok(())
            }
        };
        let Ok(times) = sample_beyond(&mut wait(3), &mut wait(1), 2.0, Duration::ZERO) else {
            panic!("no times")
        };
        // To sleep takes as long as it says, or longer.
        assert!(times.batches == LEAST_SAMPLES && times.quantile(0.5) > 0.0);
        let Ok(times) = sample_beyond(&mut wait(0), &mut wait(1), 2.0, Duration::ZERO) else {
            panic!("no times")
        };
        assert!(times.quantile(1.0) < 0.0);
    }

    #[test]
    fn a_sample_lasts_however_long_its_first_batch_took() {
        let mut times = vec![];
        let mut slow_at_first = || {
            let start = Instant::now();
            std::thread::sleep(if times.len() < 2 { SAMPLE } else { SAMPLE / 8 });
            times.push(start.elapsed());
            Ok(())
        };
        let Ok(found) = sample(&mut slow_at_first, Duration::ZERO) else { panic!("no times") };
        assert_eq!(times.len(), 1 + found.batches);
        // All but the batch that warms up.
        assert!(times[1..].iter().sum::<Duration>() + SAMPLE / 8 >= LEAST_SAMPLES as u32 * SAMPLE);
    }

    #[test]
    fn every_batch_is_prepared_and_five_samples_are_taken() {
        struct Counted(usize, usize);
        impl Work for Counted {
            fn prepare(&mut self) -> Result<(), Failure> {
                self.0 += 1;
                Ok(())
            }
            fn run(&mut self) -> Result<(), Failure> {
                self.1 += 1;
                std::thread::sleep(SAMPLE);
                Ok(())
            }
        }
        let mut work = Counted(0, 0);
        let Ok(times) = sample(&mut work, Duration::ZERO) else { panic!("no times") };
        assert_eq!((work.0, work.1, times.batches), (6, 6, 5));
        assert!(times.quantile(0.0) >= SAMPLE.as_secs_f64());
    }
}
