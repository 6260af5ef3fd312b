//! The exchange before a round: each client's announcement, and the round terms that answer them.
//!
//! A client either holds a ranges file, the same as everyone's, or proposes its own: the largest
//! magnitude of each tensor rounded up to a power of two, and its weight. **A proposal reveals just
//! that** to the aggregator and to the other clients, beside the tensors' names, types and shapes;
//! with a shared file nothing of a single client is revealed.

use super::frame::{self, Kind};
use crate::{
    Agreement, Error, PublicKey, Update,
    bytes::Reader,
    codec::{Policy, RangesFile, round_up_to_power_of_two},
    contributors::Distinct,
    error::FrameError,
    ids::Seed,
};

/// A client's announcement when it joins.
#[derive(Debug, Clone, PartialEq)]
pub struct Announcement {
    /// The contribution that is coming.
    pub seed: Seed,
    /// Whether the agreement is settled (a shared file, or chunks already sealed under it) or the
    /// client's own proposal.
    pub settled: bool,
    /// Tensors, ranges and the largest weight.
    pub agreement: Agreement,
}

impl Announcement {
    /// Makes a client's own proposal.
    ///
    /// # Errors
    /// A value is not finite, or the weight is not from 1 to 2^32 − 1.
    pub fn propose(seed: Seed, update: &Update, weight: u64) -> Result<Self, Error> {
        let own = RangesFile::measure(update, Policy::Max, weight)?.agreement()?;
        let ranges = own.ranges().iter().map(|&r| round_up_to_power_of_two(r)).collect();
        let agreement = Agreement::new(own.specs().to_vec(), ranges, own.max_weight())?;
        Ok(Self { seed, settled: false, agreement })
    }

    /// Returns the frame.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        frame::seal(Kind::Announcement, key, 1024, |w| {
            self.seed.write(w);
            w.u8(self.settled.into());
            self.agreement.write(w);
        })
    }

    /// Reads a frame made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be.
    pub fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, Error> {
        let mut r = Reader(frame::open(bytes, Kind::Announcement, key)?.body);
        let seed = Seed::read(&mut r)?;
        let settled = match r.u8()? {
            0 => false,
            1 => true,
            _ => {
                return Err(FrameError::Malformed { what: "a flag that is neither 0 nor 1" }.into());
            }
        };
        let agreement = Agreement::read(&mut r)?;
        r.end()?;
        Ok(Self { seed, settled, agreement })
    }
}

/// An aggregator's answer when a round opens.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundTerms {
    /// The agreement that everyone quantises by.
    pub agreement: Agreement,
    /// The participants' numbers and seeds, ascending by number.
    pub participants: Vec<(u16, Seed)>,
}

impl RoundTerms {
    /// Joins announcements, given with their clients' numbers.
    ///
    /// If any agreement is settled, all settled ones must be the same and it holds for everyone;
    /// otherwise it is the largest range of each tensor and the largest weight.
    ///
    /// # Errors
    /// There is none, two tell of different tensors or settled ranges, a weight is above the settled
    /// largest, or two have one seed. The client that differs from the first is named.
    pub fn join(announcements: &[(u16, Announcement)]) -> Result<Self, Error> {
        let first = announcements.iter().find(|(_, a)| a.settled).or(announcements.first());
        let (_, first) = first.ok_or(Error::NothingToSum)?;
        let mut ranges = first.agreement.ranges().to_vec();
        let mut max_weight = first.agreement.max_weight();
        let (mut participants, mut distinct) = (vec![], Distinct::default());
        for (number, a) in announcements {
            let mut take = || -> Result<(), Error> {
                first.agreement.check_layout(a.agreement.specs())?;
                if a.settled {
                    a.agreement.check_same(&first.agreement)?;
                }
                if first.settled && !a.settled {
                    first.agreement.check_weight(a.agreement.max_weight().into())?;
                }
                if !first.settled {
                    let own = a.agreement.ranges();
                    ranges.iter_mut().zip(own).for_each(|(r, o)| *r = r.max(*o));
                    max_weight = max_weight.max(a.agreement.max_weight());
                }
                distinct.add(a.seed)
            };
            take().map_err(|e| e.within(format!("client {number}")))?;
            participants.push((*number, a.seed));
        }
        participants.sort_by_key(|p| p.0);
        let agreement = Agreement::new(first.agreement.specs().to_vec(), ranges, max_weight)?;
        Ok(Self { agreement, participants })
    }

    /// Returns the frame.
    #[must_use]
    pub fn to_bytes(&self, key: &PublicKey) -> Vec<u8> {
        frame::seal(Kind::RoundTerms, key, 4096, |w| {
            w.u16(self.participants.len() as u16);
            for (number, seed) in &self.participants {
                w.u16(*number);
                seed.write(w);
            }
            self.agreement.write(w);
        })
    }

    /// Reads a frame made under `key`.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be, or it lists more
    /// participants than the key admits.
    pub fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, Error> {
        let mut r = Reader(frame::open(bytes, Kind::RoundTerms, key)?.body);
        let (found, admitted) = (usize::from(r.u16()?), key.parameters().clients() as usize);
        if found > admitted {
            return Err(Error::TooManyContributors { found, admitted });
        }
        let participants = (0..found)
            .map(|_| Ok((r.u16()?, Seed::read(&mut r)?)))
            .collect::<Result<Vec<_>, FrameError>>()?;
        if !participants.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(FrameError::Malformed { what: "participants out of order" }.into());
        }
        Distinct::check(participants.iter().map(|p| p.1))?;
        let agreement = Agreement::read(&mut r)?;
        r.end()?;
        Ok(Self { agreement, participants })
    }
}
