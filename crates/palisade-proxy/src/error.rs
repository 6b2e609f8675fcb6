//! What can fail, and what was being done to what.
//!
//! Promises: each error names the action and its object; the inner one is its source.
//!
//! Never: is the result of what a client or a server sends; such messages are counted.

use palisade_sys::atomic_file::WriteError;
use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;

/// The proxy cannot start.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// A listening socket cannot be made.
    #[error("listening for {protocol} at {address}")]
    Listen {
        /// UDP or TCP.
        protocol: &'static str,
        /// The address.
        address: SocketAddr,
        /// The failure.
        source: io::Error,
    },
    /// A listening socket cannot be used.
    #[error("using a listening socket that was handed over")]
    Listener(#[source] io::Error),
    /// The sockets for answers cannot be made.
    #[error("opening the sockets for answers")]
    Sender(#[source] io::Error),
    /// The thread or its reactor cannot be made.
    #[error("starting the thread of the proxy")]
    Thread(#[source] io::Error),
}

/// The file of rule sets cannot be read or written.
#[derive(Debug, Error)]
pub enum RuleSetsError {
    /// It cannot be opened or read.
    #[error("reading the rule sets {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The failure.
        source: io::Error,
    },
    /// It is not what is expected.
    #[error("parsing the rule sets {}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The failure.
        source: serde_json::Error,
    },
    /// It is of another version.
    #[error("the rule sets {} have version {version}; this program reads version {expected}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        version: u32,
        /// The version that can be read.
        expected: u32,
    },
    /// It cannot be written as text.
    #[error("formatting the rule sets {}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The failure.
        source: serde_json::Error,
    },
    /// It cannot be replaced.
    #[error("replacing the rule sets")]
    Write(#[source] WriteError),
}

/// The agent's side of the connection to the proxy failed.
#[derive(Debug, Error)]
pub enum AnswerLinkError {
    /// The socket cannot be made.
    #[error("making the socket {} for answers", path.display())]
    Bind {
        /// The socket.
        path: PathBuf,
        /// The failure.
        source: io::Error,
    },
    /// No connection can be accepted.
    #[error("accepting a connection of the proxy")]
    Accept(#[source] io::Error),
    /// A connection cannot be read.
    #[error("reading an offer of the proxy")]
    Read(#[source] io::Error),
    /// An offer is too long: the peer is not the proxy.
    #[error("an offer of the proxy is longer than {0} bytes")]
    LongOffer(usize),
    /// An offer is not what is expected.
    #[error("parsing an offer of the proxy")]
    Parse(#[source] serde_json::Error),
    /// A confirmation cannot be sent.
    #[error("confirming offer {id} to the proxy")]
    Confirm {
        /// The number of the offer.
        id: u64,
        /// The failure.
        source: io::Error,
    },
    /// What was confirmed cannot be withdrawn.
    #[error("withdrawing what the proxy remembers of {client}")]
    Withdraw {
        /// The client.
        client: IpAddr,
        /// The failure.
        source: io::Error,
    },
}

/// The listening sockets cannot be handed over.
#[derive(Debug, Error)]
pub enum HandoverError {
    /// The socket for a successor cannot be made.
    #[error("making the socket {} for the next proxy", path.display())]
    Bind {
        /// The socket.
        path: PathBuf,
        /// The failure.
        source: io::Error,
    },
    /// The process that serves does not give them.
    #[error("receiving the listening sockets from the proxy at {}", path.display())]
    Receive {
        /// The socket.
        path: PathBuf,
        /// The failure.
        source: io::Error,
    },
}
