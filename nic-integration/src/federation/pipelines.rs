//! The pipelines of one process: their sockets and threads.

use std::{fs::File, net::SocketAddr, task::Waker};

use crate::{
    Driver, NicError, PipelineThreads,
    proto::Pipeline,
    wire::{Captured, PcapFile, UdpWire, Wire},
};

/// One driver for each pipeline: the first is the caller's, the others get threads when there is work.
pub(super) struct Pipelines {
    pub(super) first: Driver<Captured<UdpWire>>,
    others: Vec<Driver<Captured<UdpWire>>>,
    threads: Option<PipelineThreads>,
}

impl Pipelines {
    /// Binds an address for the first pipeline and the following ports for the others, so many sockets to
    /// each; any ports, if port 0 is asked for.
    pub(super) fn bind(
        addr: SocketAddr,
        pipelines: u16,
        sockets: u16,
        poll: bool,
    ) -> Result<Self, NicError> {
        let bind = |addr| Ok::<_, NicError>(Captured::new(UdpWire::bind_many(addr, sockets)?));
        let mut first = Driver::new(bind(addr)?);
        first.set_polling(poll);
        let others = (1..pipelines).map(|pipeline| {
            let port = match addr.port() {
                0 => Some(0),
                port => port.checked_add(pipeline),
            };
            let port =
                port.ok_or(NicError::Pipelines { pipelines, most: u16::MAX - addr.port() + 1 })?;
            Ok(first.beside(bind(SocketAddr::new(addr.ip(), port))?))
        });
        let others = others.collect::<Result<_, NicError>>()?;
        Ok(Self { first, others, threads: None })
    }

    /// Where the pipelines from the second on listen.
    pub(super) fn ports(&self) -> Result<Vec<u16>, NicError> {
        self.others.iter().map(|driver| Ok(driver.wire().local_addr()?.port())).collect()
    }

    /// Also writes every datagram of every pipeline to a file; before the threads begin.
    pub(super) fn capture(&mut self, file: File) -> Result<(), NicError> {
        let file = PcapFile::new(file)?;
        let mut all = [&mut self.first].into_iter().chain(&mut self.others);
        all.try_for_each(|driver| driver.wire_mut().capture(file.clone()))
    }

    /// Gives the pipelines from the second on their threads, if there are any and they have none yet.
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
