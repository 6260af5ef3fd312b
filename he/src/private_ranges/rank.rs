//! Which of the clients' levels is agreed on.

use std::{fmt, str::FromStr};

/// The rank, among those of all clients of a round, of what is agreed on: a range or a norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// The K-th largest: 1 is the largest of all, which one client alone can raise.
    Largest(u16),
    /// The middle, of an even number the larger of two.
    Median,
}

impl Rank {
    /// Returns the rank by default among `clients`: the second largest from four on, else the largest.
    #[must_use]
    pub fn usual(clients: u16) -> Self {
        Self::Largest(if clients >= 4 { 2 } else { 1 })
    }

    /// Reads `agree:K` or `agree:median`, as options have it.
    ///
    /// # Errors
    /// It is neither: the message for people.
    pub fn from_agree(text: &str) -> Result<Self, String> {
        match text.strip_prefix("agree:") {
            Some(rank) => rank.parse(),
            None => Err("choose agree:K, the K-th largest, or agree:median".into()),
        }
    }

    /// Returns K among `clients`.
    #[must_use]
    pub fn among(self, clients: usize) -> usize {
        match self {
            Self::Largest(k) => k.into(),
            Self::Median => clients.div_ceil(2),
        }
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Largest(k) => write!(f, "{k}"),
            Self::Median => f.write_str("median"),
        }
    }
}

impl FromStr for Rank {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "median" => Ok(Self::Median),
            _ => text.parse().ok().filter(|&k| k > 0).map(Self::Largest).ok_or_else(|| {
                format!("{text:?} is neither a number from 1 on, for the K-th largest, nor median")
            }),
        }
    }
}
