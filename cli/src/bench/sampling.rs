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
    let repeats = repeats(once(work)?);
    samples(repeats, duration, || Ok(several(work, repeats)?.as_secs_f64()))
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
    let repeats = repeats(once(short)?);
    samples(repeats, duration, || {
        let long = several(long, repeats)?.as_secs_f64();
        Ok((long - several(short, repeats)?.as_secs_f64()) / steps)
    })
}

/// Takes samples of `repeats` batches each, in seconds, until quiet ones make up about `duration`,
/// or for [`PATIENCE`] times as long.
fn samples(
    repeats: usize,
    duration: Duration,
    mut sample: impl FnMut() -> Result<f64, Failure>,
) -> Result<Times, Failure> {
    let (start, mut samples, mut quiet) = (Instant::now(), Samples::default(), Duration::ZERO);
    while !samples.suffice() || quiet < duration && start.elapsed() < PATIENCE * duration {
        let (clock, before) = (Instant::now(), Spent::now());
        let seconds = sample()? / repeats as f64;
        let spent = Spent::now().zip(before).and_then(|(now, before)| now.since(before));
        if samples.add(seconds, spent) {
            quiet += clock.elapsed();
        }
    }
    Ok(samples.times(repeats))
}

/// Samples, in seconds a batch, and what was spent meanwhile.
#[derive(Default)]
struct Samples(Vec<(f64, Spent)>);

impl Samples {
    /// Adds a sample, and returns whether it is quiet. It is where the system does not say.
    fn add(&mut self, seconds: f64, spent: Option<Spent>) -> bool {
        let sample = (seconds, spent.unwrap_or_default());
        self.0.push(sample);
        is_quiet(&sample)
    }

    fn suffice(&self) -> bool {
        self.0.len() >= LEAST_SAMPLES
    }

    /// Returns the times of the quiet samples or, where these are too few, of the quietest.
    fn times(self, repeats: usize) -> Times {
        let mut chosen = self.0;
        chosen.sort_by(|(_, a), (_, b)| part(a).total_cmp(&part(b)));
        let quiet = chosen.iter().filter(|sample| is_quiet(sample)).count();
        chosen.truncate(quiet.max(LEAST_SAMPLES));
        let disturbed = chosen.iter().map(|(_, spent)| *spent).sum::<Spent>().disturbed();
        let mut samples: Vec<_> = chosen.into_iter().map(|(seconds, _)| seconds).collect();
        samples.sort_by(f64::total_cmp);
        Times { batches: samples.len() * repeats, disturbed, samples }
    }
}

/// Returns the part of a sample's time for which other work had the cores, none where nobody says.
fn part(spent: &Spent) -> f64 {
    spent.disturbed().unwrap_or(0.0)
}

fn is_quiet((_, spent): &(f64, Spent)) -> bool {
    part(spent) < QUIET
}

/// Runs `count` batches, and returns their time.
fn several(work: &mut dyn Work, count: usize) -> Result<Duration, Failure> {
    (0..count).map(|_| once(work)).sum()
}

/// Returns the batches of one sample, each of which takes the time `batch`.
fn repeats(batch: Duration) -> usize {
    SAMPLE.as_nanos().div_ceil(batch.as_nanos().max(1)).max(1) as usize
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
            (0..disturbed).for_each(|_| assert!(!samples.add(3.0, Some(Spent::of(100, 900)))));
            (0..quiet).for_each(|_| assert!(samples.add(1.0, Some(Spent::of(100, 1)))));
            assert!(!samples.add(2.0, Some(Spent::of(100, 100))));
            assert_eq!(samples.suffice(), quiet + disturbed >= 4);
            samples.times(3)
        };
        let found = |times: Times| (times.batches, times.quantile(1.0), times.disturbed);
        assert_eq!(found(times(5, 9)), (15, 1.0, Some(1.0 / 101.0)));
        assert_eq!(found(times(7, 0)), (21, 1.0, Some(1.0 / 101.0)));
        // One more than are quiet, and of the others the one that was disturbed least.
        assert_eq!(found(times(4, 3)), (15, 2.0, Some(104.0 / 604.0)));
        let mut unknown = Samples::default();
        (0..6).for_each(|_| assert!(unknown.add(1.0, None)));
        assert_eq!(found(unknown.times(1)), (6, 1.0, None));
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
        assert_eq!((work.0, work.1, times.batches), (7, 7, 5));
        assert!(times.quantile(0.0) >= SAMPLE.as_secs_f64());
        assert_eq!(repeats(SAMPLE / 4), 4);
    }
}
