//! Pipelines on threads of their own.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use tracing::error;

use crate::NicError;
use crate::driver::{Driver, MAX_SLEEP};
use crate::proto::{Bell, Pipeline};
use crate::wire::{Waker, Wire};

/// The wires of all pipelines, each asleep until its own is woken.
struct Bells(Vec<Waker>);

impl Bell for Bells {
    fn ring(&self, pipeline: u16) {
        if let Some(waker) = self.0.get(usize::from(pipeline)) {
            waker.wake();
        }
    }
}

/// Threads that drive an endpoint's pipelines from the second on. They end when it is dropped.
pub struct Crew {
    stop: Arc<AtomicBool>,
    bells: Arc<Bells>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts a thread for each of `others`, with the pipelines that `detach` hands over: see
    /// [`Endpoint::detach`](crate::proto::Endpoint::detach). The first pipeline stays with `first`. If a wire fails for good,
    /// the log says so, and the other pipelines do its work.
    ///
    /// # Errors
    ///
    /// The wires', or the system has no thread to give.
    pub fn start<W: Wire + Send + 'static>(
        first: &mut Driver<W>,
        mut others: Vec<Driver<W>>,
        detach: impl FnOnce(Arc<dyn Bell>) -> Vec<Pipeline>,
    ) -> Result<Self, NicError> {
        let wakers = [first].into_iter().chain(&mut others).map(|driver| driver.wire_mut().waker());
        let bells = Arc::new(Bells(wakers.collect::<Result<_, _>>()?));
        let pipelines = detach(bells.clone());
        let mut crew = Self { stop: Arc::default(), bells, threads: vec![] };
        for (pipeline, driver) in pipelines.into_iter().zip(others) {
            let (stop, name) = (crew.stop.clone(), format!("pipeline-{}", pipeline.number()));
            let thread = Builder::new().name(name).spawn(move || drive(pipeline, driver, &stop))?;
            crew.threads.push(thread);
        }
        Ok(crew)
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

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        (0..self.bells.0.len() as u16).for_each(|pipeline| self.bells.ring(pipeline));
        for thread in self.threads.drain(..) {
            // A panic there was printed there.
            let _ = thread.join();
        }
    }
}
