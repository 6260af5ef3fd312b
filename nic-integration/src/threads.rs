//! Pipelines on threads of their own.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread::{Builder, JoinHandle};

use tracing::error;

use crate::NicError;
use crate::driver::{Driver, MAX_SLEEP};
use crate::proto::Pipeline;
use crate::wire::Wire;

/// Threads that drive an endpoint's pipelines from the second on. They end when it is dropped.
pub struct PipelineThreads {
    stop: Arc<AtomicBool>,
    wakers: Vec<Waker>,
    threads: Vec<JoinHandle<()>>,
}

impl PipelineThreads {
    /// Starts a thread for each of `others`, with the pipelines that `detach` hands over: see
    /// [`Endpoint::detach`](crate::proto::Endpoint::detach). The first pipeline stays with `first`.
    /// If a wire fails for good, the log says so, and the other pipelines do its work.
    ///
    /// # Errors
    ///
    /// The wires', or the system has no thread to give.
    pub fn start<W: Wire + Send + 'static>(
        first: &mut Driver<W>,
        mut others: Vec<Driver<W>>,
        detach: impl FnOnce(Vec<Waker>) -> Vec<Pipeline>,
    ) -> Result<Self, NicError> {
        let wakers = [first].into_iter().chain(&mut others).map(|driver| driver.wire_mut().waker());
        let wakers = wakers.collect::<Result<Vec<_>, _>>()?;
        let pipelines = detach(wakers.clone());
        let mut all = Self { stop: Arc::default(), wakers, threads: vec![] };
        for (pipeline, driver) in pipelines.into_iter().zip(others) {
            let (stop, name) = (all.stop.clone(), format!("pipeline-{}", pipeline.number()));
            let thread = Builder::new().name(name).spawn(move || drive(pipeline, driver, &stop))?;
            all.threads.push(thread);
        }
        Ok(all)
    }
}

fn drive<W: Wire>(mut pipeline: Pipeline, mut driver: Driver<W>, stop: &AtomicBool) {
    let ended = driver.run(&mut pipeline, |_, _| match stop.load(Ordering::Acquire) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(MAX_SLEEP),
    });
    if let Err(error) = ended {
        error!(pipeline = pipeline.number(), %error, "a pipeline has failed; the others go on");
    }
}

impl Drop for PipelineThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake_by_ref);
        for thread in self.threads.drain(..) {
            // A panic there was printed there.
            let _ = thread.join();
        }
    }
}
