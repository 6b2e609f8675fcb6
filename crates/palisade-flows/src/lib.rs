//! Flows and packets of this host, for whoever reads them: the most recent ones, whole ([`recent`]).
//!
//! Promises: a reader, however slow, holds up neither the monitor that writes nor another reader; what it misses is counted.
//!
//! Never: judges a packet, or knows where flows come from.

pub mod recent;
