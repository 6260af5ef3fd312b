//! The number of cases that properties are tried with, for the tests of all crates.

/// Returns `count` times `CIPHERGRAM_CASES`, a number; `count` itself where that is not set.
pub(crate) fn cases(count: u32) -> u32 {
    let times = std::env::var("CIPHERGRAM_CASES");
    count * times.map_or(1, |times| times.parse().expect("CIPHERGRAM_CASES is a number"))
}
