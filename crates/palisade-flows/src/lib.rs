//! Flows and packets of this host, for whoever reads them: the most recent ones, whole ([`recent`]), and a record over days
//! of what they have in common ([`aggregate`], [`store`], [`recorder`]).
//!
//! Promises: a reader, however slow, holds up neither the monitor that writes nor another reader; what it misses is counted.
//!
//! Never: judges a packet, or knows where flows come from.

pub mod aggregate;
mod block;
pub mod bucket;
mod bucket_header;
pub mod database;
mod dictionary;
pub mod filter;
mod open_flows;
pub mod query;
pub mod recent;
mod recorded_end;
pub mod recorder;
mod row;
pub mod store;
