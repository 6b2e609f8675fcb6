//! The page in the browser, served by the agent over its own API.
//!
//! Promises: the page reaches the read operations of the API only, as a client without credentials. Never: started
//! without an address.

use crate::core_queue::CoreHandle;
use crate::http::admission::AdmissionControl;
use crate::http::router;
use crate::run_error::RunError;
use crate::service_thread::ServiceThread;
use palisade_config::PageConfig;
use palisade_page::{PageSettings, RouterUpstream, serve};
use std::net::TcpListener;
use std::sync::Arc;

/// Starts the page, if the configuration asks for it.
///
/// # Errors
/// If the token cannot be read or is none, or the address is taken.
pub(crate) fn start_page(
    config: &PageConfig,
    core: &CoreHandle,
    guard: &Arc<AdmissionControl>,
) -> Result<Option<ServiceThread>, RunError> {
    let Some(address) = config.address else {
        return Ok(None);
    };
    let token = config.token_file.as_ref().map(|path| {
        std::fs::read_to_string(path).map_err(|source| RunError::File {
            doing: "reading",
            path: path.clone(),
            source,
        })
    });
    let settings = PageSettings::new(address, token.transpose()?.as_deref())?;
    let runtime = ServiceThread::runtime("page")?;
    let opened = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        // A listener belongs to the runtime that serves it.
        let _entered = runtime.enter();
        tokio::net::TcpListener::from_std(listener)
    });
    let listener = opened.map_err(|source| RunError::PageAddress { address, source })?;
    tracing::info!(%address, token = config.token_file.is_some(), "serving the page");
    let upstream = Arc::new(RouterUpstream(router(core.clone(), Arc::clone(guard))));
    let started = ServiceThread::start("page", runtime, move |runtime, stopped| {
        let end = async move {
            // Whoever holds the sender has gone, or stops this.
            let _ = stopped.await;
        };
        runtime.block_on(serve(listener, settings, upstream, end));
    });
    started.map(Some)
}
