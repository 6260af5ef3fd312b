//! Repeating work and what its times are.

use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Samples of every row, however long they take.
const LEAST_SAMPLES: usize = 5;
/// A sample of cheap work is of so many batches that it lasts this long.
const SAMPLE: Duration = Duration::from_millis(10);

/// One batch of work, to be done again and again.
pub(crate) trait Work {
    /// What must be so before each batch and is not timed.
    fn prepare(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// The batch.
    fn run(&mut self) -> Result<(), Failure>;
}

impl<F: FnMut() -> Result<(), Failure>> Work for F {
    fn run(&mut self) -> Result<(), Failure> {
        self()
    }
}

/// What was measured, in seconds per batch.
pub(crate) struct Times {
    pub(crate) batches: usize,
    /// In order of size.
    samples: Vec<f64>,
}

impl Times {
    /// The time that a share of all samples does not exceed, interpolated.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let place = share * (self.samples.len() - 1) as f64;
        let (low, high) = (self.samples[place as usize], self.samples[place.ceil() as usize]);
        low + (high - low) * place.fract()
    }
}

/// Prepares and does one batch; the time of doing it.
pub(crate) fn once(work: &mut dyn Work) -> Result<Duration, Failure> {
    work.prepare()?;
    let start = Instant::now();
    work.run()?;
    Ok(start.elapsed())
}

/// Does batches for about this long, after one to warm up.
pub(crate) fn sample(work: &mut dyn Work, duration: Duration) -> Result<Times, Failure> {
    once(work)?;
    let repeats = repeats(once(work)?);
    samples(repeats, duration, || Ok(several(work, repeats)?.as_secs_f64()))
}

/// What one of `steps` takes by which `long` is more than `short`: both in turn, for about this long. Where
/// `short` took longer, by the doings of others, a time is below zero.
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

/// Samples of `repeats` batches each, in seconds, for about this long.
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

/// The time of so many batches.
fn several(work: &mut dyn Work, count: usize) -> Result<Duration, Failure> {
    (0..count).map(|_| once(work)).sum()
}

/// Batches of one sample, of which each takes this long.
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
    fn what_is_more_is_told_for_each_step() {
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
