//! The security table for RLWE.

use crate::error::faults::ParameterError;

/// The largest modulus at 128-bit classical security for a ternary secret, in bits.
///
/// # Source
/// The tighter of M. Albrecht et al., "Homomorphic Encryption Standard", 2018, table 1, which allows
/// 109, 218, 438 and 881 bits from N = 4096 on, and J.-P. Bossuat et al., "Security guidelines for
/// implementing homomorphic encryption", 2024, table 5.2.
const STANDARD_128: [(usize, u32); 5] =
    [(2048, 53), (4096, 106), (8192, 214), (16384, 430), (32768, 868)];

/// Returns the most bits of a modulus at this degree, 0 where the table has no row.
pub(crate) fn security_limit(degree: usize) -> u32 {
    STANDARD_128.iter().find(|row| row.0 == degree).map_or(0, |row| row.1)
}

/// Refuses what the standard does not allow.
///
/// # Errors
/// The modulus has more bits than the ring degree can hide.
pub(crate) fn check_security(degree: usize, log_q: u32) -> Result<(), ParameterError> {
    let limit = security_limit(degree);
    if log_q <= limit {
        return Ok(());
    }
    Err(ParameterError(format!(
        "a modulus of {log_q} bits at N = {degree} is not 128-bit secure, at most {limit} are; take fewer primes or a \
         larger N"
    )))
}

/// Sums of a round that may fail to open, after which the round is over. Each failure may tell whoever made the sum an
/// equation in the statement's secret: `he/docs/verifiable-sums.md` has what all clients together tell.
pub(crate) const MAX_TRIES: usize = 4;
