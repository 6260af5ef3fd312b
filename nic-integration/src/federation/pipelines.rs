//! The pipelines of one process: a driver and a thread for each wire.

use std::{net::SocketAddr, task::Waker};

use crate::{
    Driver, NicError, PipelineThreads,
    proto::{MAX_PIPELINES, Pipeline},
    wire::{Captured, PcapFile, Wire},
};

/// One driver for each pipeline: the first is the caller's, the others get threads when there is
/// work.
pub(super) struct PipelineSet<W> {
    pub(super) first: Driver<Captured<W>>,
    others: Vec<Driver<Captured<W>>>,
    threads: Option<PipelineThreads>,
}

impl<W: Wire> PipelineSet<W> {
    /// Takes a wire for each pipeline, whose datagrams leave from `sockets` sockets each.
    ///
    /// # Errors
    ///
    /// [`NicError::OutOfRange`] if there is no wire, or one has fewer sockets;
    /// [`NicError::Wire`].
    pub(super) fn new(wires: Vec<W>, sockets: u16, poll: bool) -> Result<Self, NicError> {
        for wire in &wires {
            let (sockets, most) = (usize::from(sockets), wire.local_addrs()?.len());
            if sockets > most {
                return Err(NicError::paths(sockets, most));
            }
        }
        let mut wires = wires.into_iter().map(Captured::new);
        let mut first = Driver::new(wires.next().ok_or(NicError::pipelines(0, MAX_PIPELINES))?);
        first.set_polling(poll);
        let others = wires.map(|wire| first.with_wire(wire)).collect();
        Ok(Self { first, others, threads: None })
    }

    /// Returns the number of pipelines; before the threads begin.
    pub(super) fn count(&self) -> u16 {
        1 + self.others.len() as u16
    }

    /// Returns the address of the first pipeline.
    pub(super) fn local_addr(&self) -> Result<SocketAddr, NicError> {
        self.first.wire().local_addr()
    }

    /// Returns the ports of the pipelines from the second on; before the threads begin.
    pub(super) fn ports(&self) -> Result<Vec<u16>, NicError> {
        self.others.iter().map(|driver| Ok(driver.wire().local_addr()?.port())).collect()
    }

    /// Also writes every datagram of every pipeline to a file; before the threads begin.
    pub(super) fn capture(&mut self, file: &PcapFile) -> Result<(), NicError> {
        let mut all = [&mut self.first].into_iter().chain(&mut self.others);
        all.try_for_each(|driver| driver.wire_mut().capture(file.clone()))
    }

    /// Gives the pipelines from the second on their threads, if there are any and they have none
    /// yet.
    pub(super) fn start(
        &mut self,
        detach: impl FnOnce(Vec<Waker>) -> Vec<Pipeline>,
    ) -> Result<(), NicError> {
        let others = std::mem::take(&mut self.others);
        if !others.is_empty() {
            self.threads = Some(PipelineThreads::start(&mut self.first, others, detach)?);
        }
        Ok(())
    }
}
