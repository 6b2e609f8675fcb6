//! What all requests share: configuration, bounds, the end of the service.
//!
//! Promises: a clone is the same service.
//!
//! Never: answers a request; [`observer`](crate::observer) and [`peers`](crate::peers) do.

use crate::config::HubbleConfig;
use crate::flow::FlowMaker;
use crate::limits::MAX_STREAMS;
use crate::namespaces::RecentNamespaces;
use palisade_flows::recent::RecentLines;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tonic::Status;

/// Hubble's API of this node.
#[derive(Clone)]
pub struct HubbleService(Arc<ServiceState>);

struct ServiceState {
    config: HubbleConfig,
    maker: Arc<FlowMaker>,
    namespaces: RecentNamespaces,
    streams: Arc<Semaphore>,
    started: Instant,
    stop: watch::Sender<bool>,
}

impl fmt::Debug for HubbleService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HubbleService")
            .field(&self.0.config.node)
            .finish()
    }
}

impl HubbleService {
    /// A service that begins now.
    #[must_use]
    pub fn new(config: HubbleConfig) -> Self {
        let maker = FlowMaker::of_node(&config);
        HubbleService(Arc::new(ServiceState {
            maker: Arc::new(maker),
            namespaces: RecentNamespaces::new(config.lines.clone()),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            started: Instant::now(),
            stop: watch::Sender::new(false),
            config,
        }))
    }

    pub(crate) fn config(&self) -> &HubbleConfig {
        &self.0.config
    }

    pub(crate) fn lines(&self) -> &RecentLines {
        &self.0.config.lines
    }

    pub(crate) fn maker(&self) -> Arc<FlowMaker> {
        self.0.maker.clone()
    }

    pub(crate) fn namespaces(&self) -> &RecentNamespaces {
        &self.0.namespaces
    }

    /// The time since the epoch.
    pub(crate) fn now(&self) -> Duration {
        (self.0.config.clock)()
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.0.started.elapsed()
    }

    /// A place among the streams, as long as it is held.
    pub(crate) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, Status> {
        let permit = self.0.streams.clone().try_acquire_owned();
        permit.map_err(|_| {
            Status::resource_exhausted(format!(
                "{MAX_STREAMS} streams are open, and no more can be"
            ))
        })
    }

    /// Ends every stream, now and from now on.
    pub(crate) fn stop(&self) {
        self.0.stop.send_replace(true);
    }

    /// Waits until the service stops.
    pub(crate) async fn stopped(&self) {
        let mut stop = self.0.stop.subscribe();
        // The sender is as old as this, so it cannot be gone.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}
