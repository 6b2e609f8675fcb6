//! Hubble's API, as Cilium 1.18 publishes it, over the recent flows of this host: for the `hubble` command, Hubble's relay
//! and its page, all unmodified.
//!
//! [`HubbleService`] answers from [`palisade_flows::recent::RecentLines`]; [`serve`] serves it on sockets, which
//! [`HubbleListener`] has opened; [`HubbleClient`] reads the flows of other servers. The definitions in `proto` are Cilium's; the types are generated from them.
//!
//! Promises: what a request selects is what Cilium's server would select, by the same rules; a filter that is not known
//! is refused, never ignored; a request is bounded in what it may cost, and there are at most
//! [`MAX_STREAMS`](limits::MAX_STREAMS) readers; a reader that does not keep up is told how much it missed, and holds
//! nobody up.
//!
//! Never: judges a packet, keeps flows of its own, or runs an expression of a client (`cel_expression` is refused).

mod agent_events;
mod client;
mod codec;
mod config;
mod consumer;
mod descriptors;
mod detail;
mod error;
mod field_mask;
mod filter;
mod flow;
mod flow_log;
mod history;
mod identity;
mod json;
pub mod limits;
mod lost;
mod metrics;
mod namespaces;
mod observed_line;
mod observer;
mod peers;
mod policy;
mod proto;
mod server;
mod service;
mod stream;
mod wire;

pub use client::{HubbleClient, HubbleClientTls, ObservedLine, ObserverStatus};
pub use config::{HubbleClock, HubbleConfig, HubblePeer};
pub use consumer::FlowConsumer;
pub use error::HubbleError;
pub use flow_log::{FlowLogError, FlowLogStatus};
pub use metrics::HubbleMetrics;
pub use server::{HubbleListener, HubbleTls, serve};
pub use service::HubbleService;
