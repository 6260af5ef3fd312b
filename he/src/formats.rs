//! Everything binary that travels or is stored.

pub mod cohorts;
pub mod contribution;
pub mod exchange;
pub mod frame;
pub mod private_ranges;
pub mod sum;
