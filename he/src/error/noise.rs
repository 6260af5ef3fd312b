//! Faults of differentially private noise.

/// A reason to refuse noise for differential privacy, and what to change.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NoiseError {
    /// Noise is a positive, finite multiple of the clip.
    #[error(
        "a sigma of {sigma}; choose a positive number, the noise of a sum in multiples of the clip"
    )]
    Sigma {
        /// The sigma given.
        sigma: f64,
    },
    /// An L2 norm to clip to is positive and finite, with room for the noise above it.
    #[error("a clip of {clip}; choose a positive number that leaves doubles room for the noise")]
    Clip {
        /// The clip given.
        clip: f64,
    },
    /// From one to [`MAX_CLIENTS`](crate::params::MAX_CLIENTS), the fewest no more than the most.
    #[error("{min_clients} to {clients} clients; choose 1 to 1024, and the fewest first")]
    Clients {
        /// The most clients of a sum.
        clients: u32,
        /// The fewest.
        min_clients: u32,
    },
    /// The range holds the clip but not the tail of the noise.
    #[error(
        "a sigma of {sigma} has no headroom: the range is {range}, but the clip of {clip} and {tail} \
         standard deviations of a client's noise, {deviation} each, take {needed}; choose a range of \
         {needed} or more, a smaller sigma, or more clients at least"
    )]
    Headroom {
        /// The noise of a sum in multiples of the clip.
        sigma: f64,
        /// The agreed range of all tensors.
        range: f64,
        /// The L2 norm that an update is clipped to.
        clip: f64,
        /// Standard deviations of a client's noise that must fit.
        tail: f64,
        /// The standard deviation of a client's noise, as the values are.
        deviation: f64,
        /// The smallest range with headroom.
        needed: f64,
    },
    /// Noise that is narrower than a step, which integers cannot carry.
    #[error(
        "a client's noise has a standard deviation of {deviation} steps, less than 1: choose a larger \
         sigma, a smaller range, more bits, or fewer clients at least"
    )]
    Narrow {
        /// The standard deviation of a client's noise, in steps.
        deviation: f64,
    },
    /// Several ranges, or a weight above 1.
    #[error(
        "noise hides one client's update only if all tensors have one range and all weights are 1; \
         {found} was agreed"
    )]
    Terms {
        /// The range or weight that does not fit, in words.
        found: String,
    },
    /// A question about privacy that has no answer.
    #[error("{what} of {found}; choose {choose}")]
    Release {
        /// The quantity that is out of its range.
        what: &'static str,
        /// The value given.
        found: f64,
        /// The values that it may have, in words.
        choose: &'static str,
    },
    /// No epsilon holds at the delta asked for.
    #[error(
        "no epsilon at a delta of {delta}: the noise left by {colluders} colluders is too little; \
         choose a larger sigma, fewer rounds or a larger delta"
    )]
    Unbounded {
        /// The delta asked for.
        delta: f64,
        /// The clients that know their own noise.
        colluders: u32,
    },
}
