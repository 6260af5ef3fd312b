//! Remedies for errors of the crates beneath, which state facts only.

use ciphergram_he::{Error, ckks::CkksError, error::OperandFault};
use ciphergram_nic::{NicError, federation::Error as RoundError};

/// Returns what can be done about an error of keys, jobs, tensors or files.
pub(crate) fn remedy(error: &Error) -> Option<String> {
    use Error as E;
    let remedy = match error.cause() {
        E::Integers { .. } => {
            "keep them out of the sum with integers=\"keep\", or sum them with integers=\"sum\""
        }
        E::TooManyContributors { found, .. } => {
            return Some(format!("make a key with clients={found}"));
        }
        E::Weight { .. } => {
            "say max_weight=, the largest of any client, of the job and here, or scale the weights of all clients alike"
        }
        E::KeyKind { found: "levelled", .. } => "make one with keygen(\"ckks-sum\")",
        E::KeyKind { found: "ckks-sum", .. } => "keygen(\"paillier-3072\") makes one",
        E::NoSumKey => "make it one with `ciphergram keygen --upgrade`",
        E::NoNumber => "give its number with client=, or number= of Client",
        E::Ledger { .. } => "name another place with load_keys(ledger=), or CIPHERGRAM_LEDGER",
        E::RangeBeyondJob { most, .. } => {
            return Some(format!(
                "measure it from values clipped to that (policy=\"fixed:{most}\"), or make a job with a larger \
                 max_range="
            ));
        }
        // Rounds of a client ascend.
        E::AnotherRound { found, expected } if found < expected => {
            return Some(format!("its client catches up with round={expected}"));
        }
        E::AnotherRound { found, .. } => {
            return Some(format!(
                "its client can go back to none, so the others catch up with round={found}"
            ));
        }
        E::WithoutTfhe => "build it with `maturin build --release --features tfhe`",
        E::NoRangesSecret => "make one that has with keygen(ranges=\"agree\")",
        E::NoRangesKey => "say ranges_key=, RangesKey.load(\"ranges-evaluation.cgk\")",
        E::RangesNotPrivate => "make one that does with Job(key, ranges=\"agree\")",
        E::Operand { fault: OperandFault::Scale { found, expected }, .. } => {
            return Some(format!("bring both to {} with rescale", found.max(expected)));
        }
        E::Ckks(error) => return vector_remedy(error),
        _ => return None,
    };
    Some(remedy.into())
}

fn vector_remedy(error: &CkksError) -> Option<String> {
    use CkksError as E;
    let give = "give the evaluation keys by vector.under(keys.evaluation)";
    match error {
        E::BeyondRange { .. } => Some("clip values, or give a larger range=".into()),
        E::NoRoom => Some(
            "encrypt all vectors with one range=, no larger than it must be, take a preset with more levels, or sum a \
             matrix before the product rather than the results behind it"
                .into(),
        ),
        E::NoRelinearisation => Some(give.into()),
        E::NoConjugate => Some(format!(
            "{give}, and make the key with rotations=[\"conjugate\"] if they have none"
        )),
        E::NoRotation { steps } => {
            Some(format!("{give}, and make the key with rotations=[{steps}] if they have none"))
        }
        E::NoRotations { of } => {
            Some(format!("{give}, and make the keys with rotations=[{of:?}] if they have none"))
        }
        _ => None,
    }
}

/// Returns what can be done about an error of a round.
pub(crate) fn round_remedy(error: &RoundError) -> Option<String> {
    match error {
        RoundError::Scheme(error) => remedy(error),
        RoundError::TooManyClients { admitted, .. } => {
            Some(format!("say clients={admitted}, or fewer"))
        }
        RoundError::Nic(NicError::Staged { .. }) => {
            Some("serve it with by_chunk=True, or to fewer clients".into())
        }
        _ => None,
    }
}
