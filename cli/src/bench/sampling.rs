//! Repeats work and samples its times.

use std::time::{Duration, Instant};

use crate::failure::Failure;

/// The least number of samples of a row, however long they take.
const LEAST_SAMPLES: usize = 5;
/// The least duration of a sample: cheap work is repeated until it lasts this long.
const SAMPLE: Duration = Duration::from_millis(10);

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

/// Takes samples of `repeats` batches each, in seconds, for about `duration`.
fn samples(
    repeats: usize,
    duration: Duration,
    mut sample: impl FnMut() -> Result<f64, Failure>,
) -> Result<Times, Failure> {
    let end = Instant::now() + duration;
    let mut samples = vec![];
    while samples.len() < LEAST_SAMPLES || Instant::now() < end {
        samples.push(sample()? / repeats as f64);
    }
    samples.sort_by(f64::total_cmp);
    Ok(Times { batches: samples.len() * repeats, samples })
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
        let times = |samples: &[f64]| Times { batches: 1, samples: samples.to_vec() };
        assert_eq!([0.0, 0.5, 1.0].map(|s| times(&[7.0]).quantile(s)), [7.0; 3]);
        let five = times(&[1.0, 2.0, 3.0, 4.0, 10.0]);
        let found = [0.0, 0.1, 0.5, 0.9, 1.0].map(|s| (five.quantile(s) * 10.0).round());
        assert_eq!(found, [10.0, 14.0, 30.0, 76.0, 100.0]);
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
