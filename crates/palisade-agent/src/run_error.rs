//! Why the agent did not start, or stopped.

use crate::http::sockets::ApiSocketError;
use palisade_network::network_driver::NetworkDriverError;
use palisade_node::subsystem::SubsystemError;
use palisade_source::SourceError;
use palisade_sys::lock::LockError;
use palisade_workloads::workloads::WorkloadError;
use std::io;
use std::path::PathBuf;

/// Why the agent did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file or directory of the agent cannot be used.
    #[error("{doing} {path}")]
    File {
        /// The operation that failed.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another agent is running.
    #[error("starting: {0}")]
    Lock(#[from] LockError),
    /// The host's namespace cannot be opened.
    #[error("opening this host's network namespace")]
    Host(#[from] NetworkDriverError),
    /// The dataplane cannot be used.
    #[error("opening the dataplane")]
    Dataplane(#[from] palisade_dataplane::DriverError),
    /// The workloads cannot be restored.
    #[error("restoring workloads")]
    Restore(#[from] WorkloadError),
    /// What a subsystem would do cannot be planned.
    #[error("planning")]
    Preview(#[from] SubsystemError),
    /// The source cannot be opened.
    #[error("opening the source")]
    Source(#[from] SourceError),
    /// A thread or the runtime could not be started.
    #[error("starting {0}")]
    Thread(&'static str, #[source] io::Error),
    /// A listener of the API cannot be opened.
    #[error("opening the API")]
    ApiSocket(#[from] ApiSocketError),
    /// The socket for the DNS proxy cannot be opened.
    #[error("opening the socket for the DNS proxy")]
    AnswerSocket(#[source] palisade_proxy::AnswerLinkError),
    /// Flows cannot be served or counted.
    #[error("starting what serves and counts flows")]
    Hubble(#[from] palisade_hubble::HubbleError),
    /// The settings of the page are refused.
    #[error("serving the page")]
    Page(#[from] palisade_page::PageSettingsError),
    /// The address of the page cannot be opened.
    #[error("opening the page's address {address}")]
    PageAddress {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The socket no longer accepts connections.
    #[error("serving the API")]
    Serving(#[source] io::Error),
    /// A thread of the agent ended unexpectedly: the first that did.
    #[error("{name} ended: {reason}")]
    ThreadEnded {
        /// Its name.
        name: &'static str,
        /// Why.
        reason: String,
    },
}
