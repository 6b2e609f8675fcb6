//! The page in the browser: live and recorded flows, a map of workloads, policies with their counters, explanations,
//! and previews of changed policies. It is served by the agent and by a command, over any [`Upstream`].
//!
//! Promises: only the read operations of [`operations`] reach the upstream. Connections, streams, sizes and times are
//! bounded ([`PageLimits`]). Without a token only this machine is served, under its loopback names; with a token nothing
//! but the login form is served without it. The same flows give the same map.
//!
//! Never: changes anything, loads anything from another host, interprets text of the agent as markup.

mod access;
mod assets;
mod connections;
mod forwarding;
mod map;
mod operations;
mod responses;
mod service;
mod sessions;
mod settings;
mod slow_reader;
mod upstream;

pub use connections::serve;
pub use map::{
    HiddenPart, MapEdge, MapGroup, MapGroupKind, MapNode, MapNodeKind, MapQuery, WorkloadMap,
    map_of_flows,
};
pub use service::router;
pub use settings::{PageLimits, PageSettings, PageSettingsError};
pub use slow_reader::SlowReaderStream;
pub use upstream::{RouterUpstream, SocketUpstream, Upstream, UpstreamError, UpstreamFuture};
