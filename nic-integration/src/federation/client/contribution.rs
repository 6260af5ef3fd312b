//! What a client prepares of a contribution before it asks an aggregator.

use std::path::Path;

use ciphergram_he::{
    Member, SealPermit,
    exchange::{Announcement, RoundTerms},
    random,
};
use tracing::warn;

use super::{
    saved::{find, finish_saved},
    sealing::Sealing,
};
use crate::{
    federation::{
        Error,
        participation::{Participation, RoundResult},
        spool::{FoundSpool, Spool, SpoolContent, fingerprint},
    },
    round::Resume,
};

/// A contribution with its announcement and the right to seal it, for whichever aggregator answers.
pub(super) struct PreparedContribution<'a> {
    pub(super) participation: &'a Participation<'a>,
    pub(super) announcement: Announcement,
    /// Whether the announcement names the terms that chunks are sealed under, no longer a proposal.
    pub(super) is_sealed: bool,
    pub(super) resume: Option<Resume>,
    pub(super) sealing: Sealing,
}

/// What a client has of a contribution before it asks anybody.
pub(super) enum Prepared<'a> {
    /// It has to take part in a round.
    Unfinished(Box<PreparedContribution<'a>>),
    /// An earlier run took part, and its spool saved the sum.
    Finished(Box<RoundResult>),
}

impl<'a> PreparedContribution<'a> {
    /// Prepares the contribution of client `number` afresh, or from what its spool holds.
    ///
    /// # Errors
    ///
    /// Another client's key; the tensors or the weight do not fit; the spool's; a saved sum is of too few or is none.
    pub(super) fn prepare(
        participation: &'a Participation<'a>,
        number: u16,
    ) -> Result<Prepared<'a>, Error> {
        let Participation { member, update, weight, .. } = participation;
        let found = member.key.number();
        if found != number {
            return Err(ciphergram_he::Error::AnotherClient { found, asked: number }.into());
        }
        let total_bytes = |announcement: &Announcement| {
            announcement.agreement.chunks(member.key.public().parameters()).total_bytes() as u64
        };
        let (announcement, resume, sealing) = match find(participation)? {
            Some(FoundSpool { spool, content: SpoolContent::Sum(saved), .. }) => {
                let result = finish_saved(participation, spool, *saved)?;
                return Ok(Prepared::Finished(Box::new(result)));
            }
            Some(FoundSpool { spool, header, content: SpoolContent::Chunks(chunks, shares) }) => {
                // Before anyone waits for us.
                spool.reserve(total_bytes(&header.announcement))?;
                let of = (header.fingerprint, header.rounding);
                let sealing = Sealing::resumed(spool, (chunks, shares), of);
                (header.announcement, Some(header.resume), sealing)
            }
            None => {
                let fingerprint = fingerprint(update, *weight)?;
                let rounding = random::bytes::<32>()?;
                let permit = SealPermit::of_update(&rounding, &fingerprint);
                // Tensors and weight are checked here, and space is reserved, before anyone waits for us.
                let announcement = member.propose(permit.seed(), update, *weight)?;
                let new = |path| Spool::create(path, total_bytes(&announcement));
                let spool = participation.spool.map(new).transpose()?;
                let sealing = Sealing::fresh(permit, spool, (fingerprint, rounding));
                (announcement, None, sealing)
            }
        };
        let is_sealed = resume.is_some();
        let contribution = Self { participation, announcement, is_sealed, resume, sealing };
        Ok(Prepared::Unfinished(Box::new(contribution)))
    }

    /// Returns the announcement as the aggregator may see it.
    pub(super) fn hello(&self) -> Result<Vec<u8>, Error> {
        let Member { key, job, .. } = &self.participation.member;
        Ok(self.announcement.without_private_ranges(job)?.to_bytes(key.public()))
    }

    /// Checks the round's terms and makes them this contribution's, of which a client seals one to a round; once it is
    /// sealed under some, no others will do.
    pub(super) fn hold_to(&mut self, terms: &RoundTerms) -> Result<(), Error> {
        let Participation { member, spool, .. } = self.participation;
        let own = &self.announcement;
        let is_same = || {
            terms.round == own.lowest_round && terms.agreement.check_same(&own.agreement).is_ok()
        };
        if self.is_sealed && !is_same() {
            return Err(Error::TermsChanged { spool: spool.map(Path::to_path_buf) });
        }
        terms.check(member.key, own, member.job)?;
        if self.is_sealed {
            return Ok(());
        }
        if let Some((name, factor)) = terms.coarsest(own) {
            warn!(
                "tensor {name:?} is rounded {factor} times as coarsely as by this client's own range: another client \
                 proposed a larger one, which the job's largest range bounds"
            );
        }
        member.enter(terms.round)?;
        self.announcement.seal_under(terms, member.job, member.key.ranges_secret())?;
        self.is_sealed = true;
        Ok(())
    }
}
