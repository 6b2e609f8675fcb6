//! Why the service could not start, or ended.
//!
//! Promises: each error says what was being done.
//!
//! Never: what is wrong with a request; that is a status of gRPC.

use std::io;
use std::path::PathBuf;

/// Why Hubble's API is not served.
#[derive(Debug, thiserror::Error)]
pub enum HubbleError {
    /// A socket could not be opened.
    #[error("opening Hubble's socket {}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// An address could not be listened on.
    #[error("listening on {address} for Hubble's API")]
    Address {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system answered.
        source: io::Error,
    },
    /// A server cannot be asked.
    #[error("connecting to Hubble's API at {address}")]
    Connect {
        /// Its address.
        address: String,
        /// Why.
        source: tonic::transport::Error,
    },
    /// A server did not respond, or refused a request.
    #[error("asking Hubble's API at {address}: {}", status.message())]
    Request {
        /// Its address.
        address: String,
        /// What it said, or what became of the connection.
        status: Box<tonic::Status>,
    },
    /// A certificate, key or authority cannot be used.
    #[error("reading the certificates of Hubble's API")]
    Certificates(#[source] tonic::transport::Error),
    /// The metrics that are asked for are not understood.
    #[error("hubble-metrics: {0}")]
    Metrics(String),
    /// The server failed.
    #[error("serving Hubble's API")]
    Serve(#[source] tonic::transport::Error),
    /// The description of the API cannot be served.
    #[error("preparing the reflection of Hubble's API")]
    Reflection(#[source] tonic_reflection::server::Error),
}
