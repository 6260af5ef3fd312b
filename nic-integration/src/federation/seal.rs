//! The sealing thread: quantises the update, then encrypts, spools and hands over one batch of
//! chunks after the other.

use std::{
    sync::mpsc::{Sender, SyncSender},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ciphergram_he::{Agreement, KeyRef, SealPermit, Sealer, threshold::Prekey};
use zeroize::Zeroizing;

use super::{
    Error,
    participation::Participation,
    spool::{Spool, SpoolHeader},
};

/// A message of the sealing thread.
pub(super) enum SealerMessage {
    /// The update is quantised.
    Quantised {
        /// The integers, if they are to be kept.
        fields: Option<Zeroizing<Vec<u32>>>,
        /// Values out of range, for each tensor.
        clipped: Vec<usize>,
        /// Time that it took.
        busy: Duration,
    },
    /// The next chunks, on disk already.
    Chunks {
        /// Their bytes.
        bytes: Bytes,
        /// Time that encrypting them took.
        busy: Duration,
    },
    /// The shares that the contribution opens by, on disk already, after all chunks.
    Shares(Vec<u8>),
    /// The thread cannot go on.
    Failed(Error),
}

/// The input of the sealing thread.
pub(super) struct SealTask<'a> {
    pub participation: &'a Participation<'a>,
    /// The round's number and agreement.
    pub round: u64,
    pub agreement: Agreement,
    /// The prekeys of openers that its terms name.
    pub prekeys: Vec<Prekey>,
    /// The seed of the rounding: one contribution is rounded one way, however often it is begun.
    pub rounding: Zeroizing<[u8; 32]>,
    pub permit: SealPermit,
    /// Whether the shares are sealed already.
    pub has_shares: bool,
    pub spool: SpoolState,
    /// Takes the spool when this thread has no more for it.
    pub sealed: Sender<Spool>,
}

/// The place of sealed chunks before they are sent.
pub(super) enum SpoolState {
    /// Nowhere: a restart would be refused.
    None,
    /// A new file, empty, and how it begins.
    New(Spool, Box<SpoolHeader>),
    /// A file that holds the first chunks already, and these.
    Resumed(Spool, Bytes),
}

impl SealTask<'_> {
    /// Seals everything into `out`; ends early if the other side is gone.
    pub(super) fn run(self, out: &SyncSender<SealerMessage>) {
        if let Err(error) = self.seal(out) {
            // A receiver that is gone has no more use for it.
            let _ = out.send(SealerMessage::Failed(error));
        }
    }

    fn seal(self, out: &SyncSender<SealerMessage>) -> Result<(), Error> {
        let Self { participation, round, agreement, prekeys, .. } = self;
        let Participation { member, update, weight, .. } = participation;
        let own = match member.key {
            // Of what the ledger has learned an aggregator may know less, and say less.
            KeyRef::Member(key) => {
                let learned = member.ledger.prekeys(member.job)?;
                let learned = learned.iter().map(|(opener, prekey)| (*opener, prekey));
                Some(key.clone().with_told(learned.chain((0..).zip(&prekeys))))
            }
            KeyRef::Secret(..) | KeyRef::Client(_) => None,
        };
        let key = own.as_ref().map_or(member.key, KeyRef::Member);
        let public = member.key.public();
        let mut clock = Instant::now();
        let terms = member.job.terms(round, &agreement)?;
        let parameters = public.parameters();
        let quantise = || terms.quantise(update, *weight, parameters, &self.rounding);
        let update = member.compute(quantise)?;
        let kept = participation.keep_fields.then(|| update.fields()).transpose()?;
        let fields = kept.map(|fields| Zeroizing::new(fields.into_owned()));
        let clipped = update.clipped().to_vec();
        let quantising = clock.elapsed();
        // Waits for the disk, which is no work of this stage.
        let mut sealed = Bytes::new();
        let mut spool = match self.spool {
            SpoolState::None => None,
            SpoolState::New(mut spool, header) => {
                spool.begin(public, &header)?;
                Some(spool)
            }
            SpoolState::Resumed(spool, chunks) => {
                sealed = chunks;
                Some(spool)
            }
        };
        clock = Instant::now();
        let mut sealer = Sealer::new(key, member.engine.clone(), update, self.permit, &terms)?;
        sealer.after(&sealed);
        let busy = quantising + clock.elapsed();
        let mut wanted = out.send(SealerMessage::Quantised { fields, clipped, busy }).is_ok();
        while wanted {
            clock = Instant::now();
            let Some(bytes) = member.compute(|| sealer.next_batch())? else { break };
            let busy = clock.elapsed();
            if let Some(spool) = &mut spool {
                spool.append(&bytes)?;
            }
            wanted = out.send(SealerMessage::Chunks { bytes: bytes.into(), busy }).is_ok();
        }
        if wanted
            && !self.has_shares
            && let Some(shares) = sealer.key_message()?
        {
            let shares = shares.to_bytes();
            if let Some(spool) = &mut spool {
                spool.append_shares(&shares)?;
            }
            // Nobody takes them if the round failed.
            let _ = out.send(SealerMessage::Shares(shares));
        }
        if let Some(spool) = spool {
            // Nobody takes it if the round failed: the next run finds the file.
            let _ = self.sealed.send(spool);
        }
        Ok(())
    }
}
