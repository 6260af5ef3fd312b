//! Remedies for errors of the crates beneath, which state facts only.

use ciphergram_he::{Error, ckks::CkksError};
use ciphergram_nic::{NicError, federation};

/// Returns what can be done about an error of keys, jobs or files.
pub(crate) fn remedy(error: &Error) -> Option<String> {
    use Error as E;
    let remedy = match error.cause() {
        E::Integers { .. } => "keep or sum them (--integers)",
        E::TooManyContributors { found, .. } => {
            return Some(format!("make a key with --clients {found}"));
        }
        E::KeyKind { found: "levelled", .. } => "make one with keygen --scheme ckks-sum",
        E::KeyKind { found: "ckks-sum", .. } => "keygen --scheme paillier-3072 makes one",
        E::NoSumKey => "make it one with `ciphergram keygen --upgrade`",
        E::NoNumber => "give its number with --client",
        E::NoJob => "make one with `ciphergram job`",
        E::Ledger { .. } => "name another place by --ledger FILE",
        E::RangeBeyondJob { most, .. } => {
            return Some(format!(
                "measure it from values clipped to that (`ranges --policy fixed:{most}`; without a ranges file --clip \
                 {most} does), or make a job with a larger --max-range"
            ));
        }
        // Rounds of a client ascend.
        E::AnotherRound { found, expected } if found < expected => {
            return Some(format!("its client catches up by encrypt --round {expected}"));
        }
        E::AnotherRound { found, .. } => {
            return Some(format!(
                "its client can go back to none, so the others catch up by encrypt --round {found}"
            ));
        }
        E::NoMember { .. } => "it is of those whose member.pub job --members and --openers named",
        E::TooFewAnswers { .. } => "name more with --answers",
        E::WithoutTfhe => "build it with `cargo build --release --features tfhe`",
        E::NoRangesSecret => "make one that has with keygen --scheme ckks-sum --ranges-key",
        E::NoRangesKey => {
            "give the aggregator ranges-evaluation.cgk, which keygen --scheme ckks-sum --ranges-key makes"
        }
        E::RangesNotPrivate => "make one that does with job --ranges agree",
        E::Ckks(error) => return vector_remedy(error),
        _ => return None,
    };
    Some(remedy.into())
}

fn vector_remedy(error: &CkksError) -> Option<String> {
    use CkksError as E;
    let remedy = match error {
        E::BeyondRange { .. } => "clip values with --clip, or agree on a larger --range",
        E::NoRoom => "encrypt with a smaller --range, or weigh by less",
        E::NoRelinearisation => "give keys/evaluation.cgk",
        E::ModelInput { .. } => "encrypt a batch with --columns",
        E::NoConjugate => "make it with `keygen --rotations conjugate`",
        E::NoRotation { steps } => {
            return Some(format!("make it with `keygen --rotations {steps}`"));
        }
        E::NoRotations { of } => return Some(format!("make them with `keygen --rotations {of}`")),
        _ => return None,
    };
    Some(remedy.into())
}

/// Returns what can be done about an error of a round.
pub(crate) fn round_remedy(error: &federation::Error) -> Option<String> {
    match error {
        federation::Error::Scheme(error) => remedy(error),
        federation::Error::TooManyClients { admitted, .. } => {
            Some(format!("say --clients {admitted}, or fewer"))
        }
        federation::Error::Nic(NicError::Staged { .. }) => {
            Some("serve it by chunk (--by-chunk), or to fewer clients".into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ciphergram_he::error::with_remedy;

    use super::*;

    #[test]
    fn the_innermost_error_has_the_remedy_once() {
        let of = |error: Error| {
            let error = error.within("client 2").within("a.cgm");
            with_remedy(&error, remedy(&error))
        };
        assert_eq!(
            of(CkksError::NoRotations { of: "sum".into() }.into()),
            "a.cgm: client 2: there are no keys for all rotations of \"sum\": make them with `keygen --rotations sum`"
        );
        assert_eq!(of(Error::NothingToSum), "a.cgm: client 2: there is nothing to sum");
        let staged = NicError::Staged { bytes: 1 << 33 }.into();
        let advised = with_remedy(&staged, round_remedy(&staged));
        assert!(advised.ends_with(
            "may wait to be whole: serve it by chunk (--by-chunk), or to fewer clients"
        ));
    }
}
