//! Repeats work and samples its times, in spells in which nothing else wants the cores.

use std::{
    fs,
    hint::black_box,
    time::{Duration, Instant},
};

use crate::Failure;

/// The least number of samples of a row, however long they take.
const LEAST_SAMPLES: usize = 5;
/// The least duration of a sample: cheap work is repeated until it lasts this long.
const SAMPLE: Duration = Duration::from_millis(10);
/// The part of a sample's time that other work may have the cores for, and the sample is quiet.
const QUIET: f64 = 0.02;
/// The longest that a row waits for quiet samples, as a multiple of the time that it was to take.
const PATIENCE: u32 = 5;

/// Runs a batch, and returns the seconds that count. What comes before is not timed.
pub(super) type Work<'a> = Box<dyn FnMut() -> Result<f64, Failure> + 'a>;

/// Returns work all of which counts, with making and freeing what it gives.
pub(super) fn timed<'a, T, E>(mut run: impl FnMut() -> Result<T, E> + 'a) -> Work<'a>
where
    Failure: From<E>,
{
    Box::new(move || {
        let start = Instant::now();
        drop(black_box(run()?));
        Ok(start.elapsed().as_secs_f64())
    })
}

/// Returns the work of one of the `steps` that `long` has more than `short`, both run in turn. It takes less than
/// nothing where other work made `short` take longer.
pub(super) fn beyond<'a>(mut short: Work<'a>, mut long: Work<'a>, steps: f64) -> Work<'a> {
    Box::new(move || {
        let (mut of_short, mut batches) = (0.0, 0);
        while of_short < SAMPLE.as_secs_f64() {
            of_short += short()?;
            batches += 1;
        }
        let of_long = (0..batches).map(|_| long()).sum::<Result<f64, _>>()?;
        Ok((of_long - of_short) / (steps * f64::from(batches)))
    })
}

/// Measured times, in seconds a batch.
pub(super) struct Times {
    pub(super) batches: usize,
    /// The part of the time of these samples for which other work had the cores, where the system counts it.
    pub(super) disturbed: Option<f64>,
    /// In order of size.
    samples: Vec<f64>,
}

impl Times {
    /// Returns the time of one batch alone.
    pub(super) fn of_one(seconds: f64) -> Self {
        Self { batches: 1, disturbed: None, samples: vec![seconds] }
    }

    /// Returns the time that a share of all samples does not exceed, interpolated.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let place = share * (self.samples.len() - 1) as f64;
        let (low, high) = (self.samples[place as usize], self.samples[place.ceil() as usize]);
        low + (high - low) * place.fract()
    }
}

/// Samples batches, after one to warm up, until quiet samples make up `duration`, or for [`PATIENCE`] times as long.
pub(super) fn sample(work: &mut Work<'_>, duration: Duration) -> Result<Times, Failure> {
    work()?;
    let (start, mut samples, mut quiet) = (Instant::now(), vec![], Duration::ZERO);
    while samples.len() < LEAST_SAMPLES || quiet < duration && start.elapsed() < PATIENCE * duration
    {
        let (clock, before) = (Instant::now(), spent());
        let (mut seconds, mut batches) = (0.0, 0);
        // A number guessed from one batch would be too small if other work delayed that one.
        while batches == 0 || clock.elapsed() < SAMPLE {
            seconds += work()?;
            batches += 1;
        }
        let spent = spent().zip(before).and_then(|(now, before)| since(now, before));
        let sample = Sample { seconds: seconds / batches as f64, batches, spent };
        quiet += if sample.is_quiet() { clock.elapsed() } else { Duration::ZERO };
        samples.push(sample);
    }
    Ok(chosen(samples))
}

struct Sample {
    /// A batch.
    seconds: f64,
    batches: usize,
    spent: Option<Spent>,
}

impl Sample {
    fn disturbed(&self) -> f64 {
        self.spent.and_then(disturbed).unwrap_or(0.0)
    }

    /// Returns whether nothing else wanted the cores, as far as the system says.
    fn is_quiet(&self) -> bool {
        self.disturbed() < QUIET
    }
}

/// Returns the times of the quiet samples or, where these are too few, of the quietest.
fn chosen(mut samples: Vec<Sample>) -> Times {
    samples.sort_by(|a, b| a.disturbed().total_cmp(&b.disturbed()));
    let quiet = samples.iter().filter(|sample| sample.is_quiet()).count();
    samples.truncate(quiet.max(LEAST_SAMPLES));
    let batches = samples.iter().map(|sample| sample.batches).sum();
    let spent = samples.iter().filter_map(|sample| sample.spent);
    let all = spent.fold([0; 2], |[ran, waited], [r, w]| [ran + r, waited + w]);
    let mut seconds: Vec<_> = samples.iter().map(|sample| sample.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    Times { batches, disturbed: disturbed(all), samples: seconds }
}

/// Nanoseconds that threads ran, and that they were ready to and had no core.
type Spent = [u64; 2];

/// Returns what this program's threads have spent, by Linux's account.
fn spent() -> Option<Spent> {
    let mut spent = [0; 2];
    for thread in fs::read_dir("/proc/self/task").ok()? {
        // A thread may have ended by now.
        let path = thread.ok()?.path().join("schedstat");
        let Ok(text) = fs::read_to_string(path) else { continue };
        for (sum, word) in spent.iter_mut().zip(text.split(' ')) {
            *sum += word.parse::<u64>().ok()?;
        }
    }
    Some(spent)
}

/// Returns what was spent since then; nothing if a thread has ended and its time is missing.
fn since([ran, waited]: Spent, [ran_then, waited_then]: Spent) -> Option<Spent> {
    Some([ran.checked_sub(ran_then)?, waited.checked_sub(waited_then)?])
}

/// Returns the part of the time for which threads were ready to run that other work had their cores.
fn disturbed([ran, waited]: Spent) -> Option<f64> {
    (ran > 0).then(|| waited as f64 / (ran + waited) as f64)
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
    fn quiet_samples_count_or_the_quietest() {
        let found = |quiet: usize, disturbed: usize| {
            let sample =
                |seconds, waited| Sample { seconds, batches: 3, spent: Some([100, waited]) };
            let mut samples = vec![sample(2.0, 100)];
            samples.extend((0..disturbed).map(|_| sample(3.0, 900)));
            samples.extend((0..quiet).map(|_| sample(1.0, 1)));
            assert_eq!(samples.iter().filter(|sample| sample.is_quiet()).count(), quiet);
            let times = chosen(samples);
            (times.batches, times.quantile(1.0), times.disturbed)
        };
        assert_eq!(found(5, 9), (15, 1.0, Some(1.0 / 101.0)));
        assert_eq!(found(7, 0), (21, 1.0, Some(1.0 / 101.0)));
        // One more than are quiet, and of the others the one that was disturbed least.
        assert_eq!(found(4, 3), (15, 2.0, Some(104.0 / 604.0)));
        let unknown = (0..6).map(|_| Sample { seconds: 1.0, batches: 1, spent: None });
        assert_eq!(chosen(unknown.collect()).disturbed, None);
        assert_eq!((disturbed([3, 1]), disturbed([0, 1])), (Some(0.25), None));
        assert_eq!(since([1, 0], [2, 0]), None);
    }

    #[test]
    fn a_difference_is_shared_by_its_steps() {
        let of = |short, long| {
            let mut work = beyond(Box::new(move || Ok(short)), Box::new(move || Ok(long)), 2.0);
            work().unwrap_or_else(|why| panic!("{why}"))
        };
        assert_eq!((of(0.25, 0.75), of(0.25, 0.0)), (0.25, -0.125));
        // As many of the one as of the other.
        assert!((of(0.004, 0.01) - 0.003).abs() < 1e-9);
    }

    #[test]
    fn samples_last_however_long_the_first_batch_took() {
        let mut calls = vec![];
        let mut work: Work<'_> = Box::new(|| {
            std::thread::sleep(if calls.len() < 2 { SAMPLE } else { SAMPLE / 8 });
            calls.push(());
            Ok(0.5)
        });
        let Ok(times) = sample(&mut work, Duration::ZERO) else { panic!("no times") };
        drop(work);
        // All but the one that warms up, which as all others says itself how long it took.
        assert_eq!((calls.len(), times.quantile(0.5)), (1 + times.batches, 0.5));
        assert!(times.batches >= LEAST_SAMPLES);
    }
}
