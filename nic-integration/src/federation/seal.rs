//! The sealing thread: quantises the update, then encrypts, spools and hands over one batch of
//! chunks after the other.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc::SyncSender},
    time::{Duration, Instant},
};

use ciphergram_accel::{Engine, random::StreamRng};
use ciphergram_he::{Agreement, KeyRef, Quantised, Sealer, Ticket, Update};

use super::{
    Error,
    spool::{Spool, SpoolHeader},
};

/// What the sealing thread hands over.
pub(super) enum Sealed {
    /// Integers and clipping, for the caller's own account.
    Quantised {
        /// The integers.
        fields: Vec<u32>,
        /// Values out of range, for each tensor.
        clipped: Vec<usize>,
        /// What it took.
        busy: Duration,
    },
    /// The next chunks, on disk already.
    Chunks {
        /// Their bytes.
        bytes: Vec<u8>,
        /// What encrypting them took.
        busy: Duration,
    },
    /// It cannot go on.
    Failed(Error),
}

/// What the sealing thread works from.
pub(super) struct SealTask<'a> {
    pub key: KeyRef<'a>,
    pub engine: Arc<dyn Engine>,
    pub update: &'a Update,
    pub weight: u64,
    pub agreement: Agreement,
    /// The seed of the rounding: one contribution is rounded one way, however often it is begun.
    pub rounding: [u8; 32],
    pub ticket: Ticket,
    pub spool: SpoolState,
}

/// Where sealed chunks go before they are sent.
pub(super) enum SpoolState {
    /// Nowhere: a restart would be refused.
    None,
    /// A new file.
    New(PathBuf, SpoolHeader),
    /// A file that holds the first chunks already.
    Resumed(Spool),
}

impl SealTask<'_> {
    /// Seals everything into `out`; ends early if the other side is gone.
    pub(super) fn run(self, out: &SyncSender<Sealed>) {
        if let Err(error) = self.seal(out) {
            // A receiver that is gone has no more use for it.
            let _ = out.send(Sealed::Failed(error));
        }
    }

    fn seal(self, out: &SyncSender<Sealed>) -> Result<(), Error> {
        let public = self.key.public();
        let mut clock = Instant::now();
        let mut rng = StreamRng::from_seed(&self.rounding);
        let update = Quantised::new(
            self.update,
            &self.agreement,
            self.weight,
            public.parameters(),
            &mut rng,
        )?;
        let (fields, clipped) = (update.fields().to_vec(), update.clipped().to_vec());
        let quantising = clock.elapsed();
        // Waits for the disk, which is no work of this stage.
        let mut spool = match self.spool {
            SpoolState::None => None,
            SpoolState::New(path, header) => Some(Spool::create(&path, public, &header)?),
            SpoolState::Resumed(spool) => Some(spool),
        };
        clock = Instant::now();
        let mut sealer = Sealer::new(self.key, self.engine, update, self.ticket)?;
        let busy = quantising + clock.elapsed();
        let mut wanted = out.send(Sealed::Quantised { fields, clipped, busy }).is_ok();
        while wanted {
            clock = Instant::now();
            let Some(bytes) = sealer.next_batch()? else { break };
            let busy = clock.elapsed();
            if let Some(spool) = &mut spool {
                spool.append(&bytes)?;
            }
            wanted = out.send(Sealed::Chunks { bytes, busy }).is_ok();
        }
        Ok(())
    }
}
