//! A thread with a runtime of its own for a service that the agent offers beside its API: what its clients ask for takes
//! no time from the API.
//!
//! Promises: the service is asked to end when this is dropped, and has ended then. Never: ends the agent.

use crate::run_error::RunError;
use std::thread::JoinHandle;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// The thread of a service, until this is dropped.
pub(crate) struct ServiceThread {
    name: &'static str,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServiceThread {
    /// The runtime of a service.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(crate) fn runtime(name: &'static str) -> Result<Runtime, RunError> {
        let mut builder = Builder::new_current_thread();
        let built = builder.enable_all().build();
        built.map_err(|error| RunError::Thread(name, error))
    }

    /// Runs a service: it is given the runtime, and what is complete when it is to end.
    ///
    /// # Errors
    /// If the thread does not start.
    pub(crate) fn start(
        name: &'static str,
        runtime: Runtime,
        serve: impl FnOnce(Runtime, oneshot::Receiver<()>) + Send + 'static,
    ) -> Result<Self, RunError> {
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || serve(runtime, stopped));
        let thread = thread.map_err(|error| RunError::Thread(name, error))?;
        Ok(ServiceThread {
            name,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for ServiceThread {
    fn drop(&mut self) {
        // It ends when the sender is gone.
        drop(self.stop.take());
        let thread = self.thread.take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(service = self.name, "the thread of a service panicked");
        }
    }
}
