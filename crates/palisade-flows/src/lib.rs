//! Flows and packets of this host, for whoever reads them: the most recent ones, whole ([`recent`]), and a record over days
//! of what they have in common ([`aggregate`], [`store`], [`recorder`]); beside them events of the agent ([`agent_event`]).
//!
//! Promises: a reader, however slow, holds up neither the monitor that writes nor another reader; what it misses is counted.
//!
//! Never: judges a packet, or knows where flows come from.

pub mod agent_event;
pub mod aggregate;
mod block;
pub mod bucket;
mod bucket_header;
pub mod database;
mod dictionary;
pub mod filter;
pub mod line_filter;
mod open_flows;
pub mod query;
pub mod recent;
mod recorded_end;
pub mod recorder;
mod row;
pub mod store;
pub mod summary;
