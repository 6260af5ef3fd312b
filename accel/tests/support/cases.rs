//! The number of cases that properties are tried with, for the tests of all crates.

/// Returns `count` times `CIPHERGRAM_CASES`, a number; `count` itself where that is not set.
pub(crate) fn cases(count: u32) -> u32 {
    let Ok(times) = std::env::var("CIPHERGRAM_CASES") else { return count };
    count * times.parse::<u32>().unwrap_or_else(|why| panic!("CIPHERGRAM_CASES={times}: {why}"))
}
