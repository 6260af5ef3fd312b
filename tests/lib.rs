//! What the tests of all packages share: how many cases a property has, and worlds, each made by one seed.

use std::{
    any::Any,
    env,
    ops::Range,
    panic::{self, AssertUnwindSafe},
    str::FromStr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Violations after which no more worlds are played.
const MAX_VIOLATIONS: u64 = 10;

fn number<T: FromStr>(variable: &str) -> Option<T> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}: not a number")))
}

/// Returns `count` times `CIPHERGRAM_CASES`, how many cases a property is tried with; `count` itself where that is not
/// set.
///
/// # Panics
///
/// Panics if the variable holds no number.
pub fn cases(count: u32) -> u32 {
    count * number("CIPHERGRAM_CASES").unwrap_or(1)
}

/// Returns the seeds to play: `CIPHERGRAM_WORLDS` of them from `CIPHERGRAM_SEED` on. Without the first there are
/// [`cases`] of `count`, or just the seed of the second.
///
/// # Panics
///
/// Panics if a variable holds no number, or there is no such seed.
pub fn seeds(count: u32) -> Range<u64> {
    let first: Option<u64> = number("CIPHERGRAM_SEED");
    let usual = if first.is_some() { 1 } else { cases(count).into() };
    let first = first.unwrap_or(0);
    let count = number("CIPHERGRAM_WORLDS").unwrap_or(usual);
    let end = first.checked_add(count).filter(|_| count > 0);
    first..end.unwrap_or_else(|| {
        panic!("{count} worlds from seed {first} on: none, or past the last seed")
    })
}

/// Plays the worlds of some seeds on all cores, and tells of those in which `play` panics how to play them again.
/// Returns what each thread gathered.
///
/// # Panics
///
/// Panics if a world did.
pub fn play_worlds<S: Default + Send>(
    seeds: &Range<u64>,
    play: impl Fn(&mut S, u64) + Sync,
) -> Vec<S> {
    let (next, violations) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let gathered = Mutex::new(vec![]);
    let work = || {
        let mut mine = S::default();
        while violations.load(Ordering::Relaxed) < MAX_VIOLATIONS {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            if let Err(why) = panic::catch_unwind(AssertUnwindSafe(|| play(&mut mine, seed))) {
                violations.fetch_add(1, Ordering::Relaxed);
                println!("violation in the world of seed {seed}: {}", message(&*why));
                println!("again: cargo xtask simulate --worlds 1 --seed {seed}");
            }
        }
        gathered.lock().unwrap_or_else(PoisonError::into_inner).push(mine);
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let violations = violations.into_inner();
    println!("violations: {violations}");
    assert_eq!(violations, 0);
    gathered.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default()
}
